import math

import torch
from torch import Tensor

from pe_zoo import Geometry, register
from pe_zoo._knobs import number, whole
from pe_zoo._rotation import Rotary


@register("rope_id")
class RoPEID(Rotary):
    """Rotates half of the pairs, each fast enough to complete its circle in training, and leaves the others alone.
    RoPE-ID (in distribution), Wertheimer et al. (2026), arXiv:2603.18017.

        angle[i] = p · 2π / wavelength[i] for the first n pairs i, 0 for the others
        wavelength[i] = shortest · (longest / shortest)^(i / (n − 1)),  longest = train_length / turns

    Not p-RoPE, which keeps the fastest of RoPE's frequencies: here the range of frequencies is another, and depends on
    the training length.

    Args:
        fraction: share of the pairs that are rotated, in (0, 1], rounded down to whole pairs but at least one; 0.5 as
            published.
        turns: full turns of the slowest pair within ``train_length``, above 0; 2 as published.
        shortest: wavelength of the fastest pair, in positions, at least 1. None: a 128th of ``train_length``, 32 of
            4096 as published, but at least 2π, RoPE's own, and at most ``longest``.

    Departures: the published temperature, which grows with the length of the input, is not included: see
    ``model.temperature``. Pairs are neighbours (2i, 2i+1); the authors' code has (i, i + head_dim/2).
    """

    family = "rotation"

    def __init__(
        self, geometry: Geometry, *, fraction: float = 0.5, turns: float = 2.0, shortest: int | None = None
    ) -> None:
        super().__init__(geometry, base=10000.0)
        number("rope_id fraction", fraction, above=0, at_most=1)
        self.rotated_pairs = max(1, int(fraction * self.pairs + 1e-9))  # 15/22 of 22 pairs is 15, not 14.999…
        self.longest = geometry.train_length / number("rope_id turns", turns, above=0)
        self.shortest = min(max(geometry.train_length / 128, 2 * math.pi), self.longest)
        if shortest is not None:
            self.shortest = whole("rope_id shortest", shortest, at_least=1)

    def frequencies(self, device: torch.device | None = None) -> Tensor:
        share = torch.arange(self.rotated_pairs, dtype=torch.float64, device=device) / max(1, self.rotated_pairs - 1)
        return 2 * math.pi / (self.shortest * (self.longest / self.shortest) ** share)
