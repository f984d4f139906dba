import math

import torch
from torch import Tensor

from pe_zoo import Encoder, Geometry, register
from pe_zoo._knobs import number
from pe_zoo._positions import angles, even_width

STEP = 2.0**-40


@register("random_fourier")
class RandomFourier(Encoder):
    """Adds random Fourier features of the position to the token embeddings, at frequencies that stay as drawn.
    Tancik et al. (2020), arXiv:2006.10739, §6.

        x[p] += [cos(p · frequency), sin(p · frequency)],      frequency = 2π · scale · N(0, 1) / train_length

    The inner product of two vectors, divided by model_dim/2, is close to exp(−2 · (π · scale · distance /
    train_length)²). Frequencies are drawn and saved with the model's other initial values.

    Args:
        scale: standard deviation of the frequencies in periods per training length, above 0; 10, the middle one of 1,
            10 and 100 in the official demonstration.

    Departures: features are added to the token embeddings, where the paper makes them a network's only input. Angles
    are computed in float64.
    """

    family = "input"
    direction_aware = True

    def __init__(self, geometry: Geometry, *, scale: float = 10.0) -> None:
        super().__init__(geometry)
        even_width("random_fourier", geometry.model_dim)
        self.scale = number("random_fourier scale", scale, above=0)
        # In whole steps: a change of the module's dtype rounds what floats, and would leave other frequencies.
        drawn = torch.randn(geometry.model_dim // 2, dtype=torch.float64)
        self.register_buffer("drawn_steps", (drawn / STEP).round().long())

    drawn_steps: Tensor

    def frequencies(self) -> Tensor:
        """Radians per position, ``(model_dim / 2,)`` float64."""
        return 2 * math.pi * self.scale / self.geometry.train_length * STEP * self.drawn_steps.double()

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        angle = angles(positions, self.frequencies())
        return x + torch.cat([angle.cos(), angle.sin()], -1).to(x.dtype)
