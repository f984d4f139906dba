import torch
from torch import Tensor

from pe_zoo import Encoder, Geometry, register
from pe_zoo._knobs import number
from pe_zoo._positions import angles, even_width, geometric_frequencies


@register("sinusoidal_2d")
class Sinusoidal2D(Encoder):
    """Adds sines and cosines of the column to one half of the channels, of the row to the other.
    As in MAE, He et al. (2021), arXiv:2111.06377; MoCo v3, Chen et al. (2021), arXiv:2104.02057.

        x += (sin(column · f), cos(column · f), sin(row · f), cos(row · f)),      f[i] = base^(−4i/model_dim)

    Args:
        base: above 0; 10000 as published.

    Departures: none from MAE's code. Its class token gets no vector; marks here get that of (0, 0). Angles are computed
    in float64.
    """

    axes = 2
    family = "input"
    direction_aware = True

    def __init__(self, geometry: Geometry, *, base: float = 10000.0) -> None:
        super().__init__(geometry)
        even_width("sinusoidal_2d", geometry.model_dim, axes=2)
        self.base = number("sinusoidal_2d base", base, above=0)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        row, column = self.coordinates(positions)
        dim = self.geometry.model_dim
        frequencies = geometric_frequencies(dim // 4, self.base, dim // 2, x.device)
        across, down = angles(column, frequencies), angles(row, frequencies)
        return x + torch.cat([across.sin(), across.cos(), down.sin(), down.cos()], -1).to(x.dtype)
