import math

import torch
from torch import Tensor

from pe_zoo import Geometry, register
from pe_zoo._knobs import number, whole
from pe_zoo._rotation import Rotary, rotations_ramp


@register("yarn")
class YaRN(Rotary):
    """Rotates as RoPE does, with low frequencies interpolated, high ones kept, and all scores scaled up.
    YaRN, Peng et al. (2023), arXiv:2309.00071, §3.4.

        angle[i] = p · base^(−2i/head_dim) · ((1 − ramp[i]) + ramp[i] / factor)
        q, k = m · rotate(q), m · rotate(k),      m = 0.1 · ln(factor) + 1

    The ramp is 0 for pairs that rotate more than ``beta_fast`` times over the original length, 1 for those that rotate
    less than ``beta_slow`` times, and linear in i between. Scores grow by m².

    Args:
        factor: length wanted over original length, at least 1 (1 is RoPE); 16 as published.
        original_length: length over which rotations are counted, at least 1. None: ``train_length``, as published.
        beta_fast: rotations from which a pair is kept, above ``beta_slow``; 32 as published.
        beta_slow: rotations below which a pair is fully interpolated, above 0; 1 as published.
        base: above 1; 10000 as published.

    Departures: the factor holds from the start of training; the paper fine-tunes a model pretrained with RoPE. The
    ramp's upper end stays at pair 0 or above, where original lengths under 7 would reverse the official one.
    """

    family = "rotation"
    extends = "rope"
    fine_tuned = True
    rope_type = "yarn"

    def __init__(
        self,
        geometry: Geometry,
        *,
        factor: float = 16.0,
        original_length: int | None = None,
        beta_fast: float = 32.0,
        beta_slow: float = 1.0,
        base: float = 10000.0,
    ) -> None:
        super().__init__(geometry, base)
        self.factor = number("yarn factor", factor, at_least=1)
        length = geometry.train_length if original_length is None else original_length
        self.original_length = whole("yarn original_length", length, at_least=1)
        self.beta_slow = number("yarn beta_slow", beta_slow, above=0)
        self.beta_fast = number("yarn beta_fast", beta_fast, above=0)
        if beta_fast <= beta_slow:
            raise ValueError(f"yarn beta_fast must be above beta_slow; got {beta_fast:g} and {beta_slow:g}")
        number("yarn base", base, above=1)
        self.scale = 0.1 * math.log(factor) + 1

    def frequencies(self, device: torch.device | None = None) -> Tensor:
        ramp = rotations_ramp(self.pairs, self.base, self.original_length, self.beta_fast, self.beta_slow, device)
        plain = self.plain_frequencies(device)
        return plain * (1 - ramp + ramp / self.factor)
