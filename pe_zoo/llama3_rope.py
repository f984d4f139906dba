import math

import torch
from torch import Tensor

from pe_zoo import Geometry, register
from pe_zoo._knobs import number, whole
from pe_zoo._rotation import Rotary


@register("llama3_rope")
class Llama3RoPE(Rotary):
    """Rotates as RoPE does, with long wavelengths interpolated by a factor and short ones kept.
    Grattafiori et al. (2024), arXiv:2407.21783, §3.2, for the base; the rule is that of Llama 3.1's code.

        rotations[i] = original_length · base^(−2i/head_dim) / 2π
        share[i] = (rotations[i] − low_freq_factor) / (high_freq_factor − low_freq_factor), between 0 and 1
        angle[i] = p · base^(−2i/head_dim) · (share[i] + (1 − share[i]) / factor)

    Unlike YaRN it is linear in rotations, not in i, and does not scale scores.

    Args:
        factor: at least 1 (1 is RoPE); 8 as published.
        original_length: length over which rotations are counted, at least 1. None: ``train_length``, as published
            (8192).
        low_freq_factor: rotations up to which a pair is fully interpolated, at least 0; 1 as published.
        high_freq_factor: rotations from which a pair is kept, above ``low_freq_factor``; 4 as published.
        base: above 0; 500000 as published.

    Departures: the factor holds from the start of training; Llama continued training of a model pretrained with RoPE.
    """

    family = "rotation"
    extends = "rope"
    fine_tuned = True
    rope_type = "llama3"

    def __init__(
        self,
        geometry: Geometry,
        *,
        factor: float = 8.0,
        original_length: int | None = None,
        low_freq_factor: float = 1.0,
        high_freq_factor: float = 4.0,
        base: float = 500000.0,
    ) -> None:
        super().__init__(geometry, base)
        self.factor = number("llama3_rope factor", factor, at_least=1)
        length = geometry.train_length if original_length is None else original_length
        self.original_length = whole("llama3_rope original_length", length, at_least=1)
        self.low_freq_factor = number("llama3_rope low_freq_factor", low_freq_factor, at_least=0)
        self.high_freq_factor = number("llama3_rope high_freq_factor", high_freq_factor, above=0)
        if high_freq_factor <= low_freq_factor:
            wrong = f"got {high_freq_factor:g} and {low_freq_factor:g}"
            raise ValueError(f"llama3_rope high_freq_factor must be above low_freq_factor; {wrong}")

    def frequencies(self, device: torch.device | None = None) -> Tensor:
        plain = self.plain_frequencies(device)
        rotations = self.original_length * plain / (2 * math.pi)
        share = ((rotations - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)).clamp(0, 1)
        return plain * (share + (1 - share) / self.factor)
