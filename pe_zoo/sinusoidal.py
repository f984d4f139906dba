import torch
from torch import Tensor

from pe_zoo import Encoder, Geometry, register
from pe_zoo._knobs import number, one_of
from pe_zoo._positions import angles, even_width, geometric_frequencies


@register("sinusoidal")
class Sinusoidal(Encoder):
    """Adds fixed sines and cosines of the position to the token embeddings.
    Vaswani et al. (2017), arXiv:1706.03762, §3.5.

        x[p, 2i] += sin(p · base^(−2i/model_dim)),      x[p, 2i+1] += cos(p · base^(−2i/model_dim))

    Args:
        base: above 0; 10000 as published. Wavelengths run from 2π to almost 2π · base.
        channels: ``interleaved`` as published, or ``concatenated`` (all sines, then all cosines, as in Tensor2Tensor
            and Transformer-XL): the same up to a fixed permutation of the channels.

    Departures: none. Angles are computed in float64, so that position 10⁶ is right to 1e-9 radian.
    """

    family = "input"
    direction_aware = True

    def __init__(self, geometry: Geometry, *, base: float = 10000.0, channels: str = "interleaved") -> None:
        super().__init__(geometry)
        even_width("sinusoidal", geometry.model_dim)
        self.base = number("sinusoidal base", base, above=0)
        self.channels = one_of("sinusoidal channels", channels, ("interleaved", "concatenated"))

    def table(self, positions: Tensor) -> Tensor:
        """The vectors themselves: ``(..., length)`` to ``(..., length, model_dim)``, float64."""
        dim = self.geometry.model_dim
        angle = angles(positions, geometric_frequencies(dim // 2, self.base, dim, positions.device))
        if self.channels == "concatenated":
            return torch.cat([angle.sin(), angle.cos()], -1)
        return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + self.table(positions).to(x.dtype)
