import math

import torch
from torch import Tensor

from pe_zoo import Geometry, register
from pe_zoo._knobs import number, one_of
from pe_zoo._rotation import Rotary


@register("clipped_rope")
class ClippedRoPE(Rotary):
    """Rotates as RoPE does, with the lowest frequencies clipped: faded out by a cosine taper, or cut off.
    "CoPE: Clipped RoPE", Li et al. (2026), arXiv:2602.05258, §4.2.

        angle[i] = p · base^(−2i/head_dim) · weight[i]
        weight = (1 + cos(0 … π)) / 2, in equal steps over the slowest pairs; 1 for the others

    Not the contextual position encoding that is also called CoPE (arXiv:2405.18719).

    Args:
        fraction: share of the pairs that are clipped, in (0, 1), rounded up to whole pairs, though the fastest pair
            never is; 0.3125 as published (onset 44 of 64).
        clipping: ``soft`` as published; ``hard`` does not rotate those pairs at all, the paper's HardClip.
        base: above 0; 10000 as in RoPE (the paper continues a model of 500000 with 10 million).

    Departures: weights fall along the index i, as in the official code; the paper's equation has them fall along the
    frequency. The first pair of the clipped range has weight 1, so that ``soft`` changes nothing where only one is
    clipped.
    """

    family = "rotation"
    relative_of = "rope"

    def __init__(
        self, geometry: Geometry, *, fraction: float = 0.3125, clipping: str = "soft", base: float = 10000.0
    ) -> None:
        super().__init__(geometry, base)
        number("clipped_rope fraction", fraction, above=0, below=1)
        self.clipped_pairs = min(math.ceil(fraction * self.pairs - 1e-9), self.pairs - 1)
        self.clipping = one_of("clipped_rope clipping", clipping, ("soft", "hard"))

    def frequencies(self, device: torch.device | None = None) -> Tensor:
        plain = self.plain_frequencies(device)
        fade = torch.zeros(self.clipped_pairs, dtype=torch.float64, device=device)
        if self.clipping == "soft":
            steps = torch.linspace(0, math.pi, self.clipped_pairs, dtype=torch.float64, device=device)
            fade = (1 + steps.cos()) / 2
        ones = torch.ones(self.pairs - self.clipped_pairs, dtype=torch.float64, device=device)
        return plain * torch.cat([ones, fade])
