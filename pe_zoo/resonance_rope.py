import math

import torch
from torch import Tensor

from pe_zoo import Geometry, register
from pe_zoo._rotation import Rotary


@register("resonance_rope")
class ResonanceRoPE(Rotary):
    """Rotates as RoPE does, at wavelengths rounded to whole positions, so that no rotation beyond training is new.
    Resonance RoPE, Wang et al. (2024), arXiv:2403.00071, §4.

        angle[i] = p · 2π / round(2π · base^(2i/head_dim))

    Pairs whose wavelength is shorter than the training length have then met, in training, all that they ever do.

    Args:
        base: above 0; 10000 as published.

    Departures: none.
    """

    family = "rotation"

    def __init__(self, geometry: Geometry, *, base: float = 10000.0) -> None:
        super().__init__(geometry, base)

    def frequencies(self, device: torch.device | None = None) -> Tensor:
        return 2 * math.pi / (2 * math.pi / self.plain_frequencies(device)).round()
