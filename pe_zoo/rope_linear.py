"""Position interpolation."""

import torch
from torch import Tensor

from pe_zoo._encoder import Encoder, Geometry, Site
from pe_zoo._knobs import number
from pe_zoo._positions import geometric_frequencies
from pe_zoo._registry import register
from pe_zoo._rotation import pairs_of, rotate_both


@register("rope_linear")
class LinearRoPE(Encoder):
    """Rotates as RoPE does, with positions interpolated: divided by a constant factor.
    Position interpolation, Chen et al. (2023), arXiv:2306.15595, §2.3.

        angle[i] = p / factor · base^(−2i/head_dim)

    Args:
        factor: length wanted over length trained at, at least 1 (1 is RoPE); 4 is the paper's step from 2048 to 8192.
        base: above 0; 10000 as published.

    Departures: the factor holds from the start of training; the paper fine-tunes a model pretrained with RoPE.
    """

    shift_invariant = True
    direction_aware = True

    def __init__(self, geometry: Geometry, *, factor: float = 4.0, base: float = 10000.0) -> None:
        super().__init__(geometry)
        self.pairs = pairs_of("rope_linear", geometry)
        self.factor = number("rope_linear factor", factor, at_least=1)
        self.base = number("rope_linear base", base, above=0)

    def frequencies(self, device: torch.device | None = None) -> Tensor:
        """Radians per position of each pair, ``(pairs,)`` float64."""
        return geometric_frequencies(self.pairs, self.base, self.geometry.head_dim, device) / self.factor

    def rotate(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        return rotate_both(q, k, site, self.frequencies(q.device))
