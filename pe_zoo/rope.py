import torch
from torch import Tensor

from pe_zoo import Geometry, register
from pe_zoo._knobs import number, one_of
from pe_zoo._positions import geometric_frequencies
from pe_zoo._rotation import Rotary


@register("rope")
class RoPE(Rotary):
    """Rotates query and key pairs by position, so that scores depend on relative distance.
    RoPE (rotary position embedding), Su et al. (2021), arXiv:2104.09864, §3.2.

        (a, b) → (a · cos − b · sin, a · sin + b · cos),      angle = p · base^(−2i/rotated_dim)

    Args:
        base: above 0; 10000 as published (500000 in Llama 3).
        pairing: which dimensions form pair i: ``interleaved`` (2i, 2i+1) as published and in GPT-J, or ``half`` (i, i +
            rotated_dim/2) as in GPT-NeoX and Llama: the same up to a fixed permutation of the head's dimensions.
        fraction: share of the head's pairs that are rotated, in (0, 1], rounded down to whole pairs; 1 as published.
        spectrum: ``compressed`` rotates the first dimensions with the whole range of frequencies, 1 down to 1/base,
            spread over fewer pairs (GPT-J; GPT-NeoX ``rotary_pct``; Kazemnejad et al. use 0.25); ``truncated`` rotates
            at the highest frequencies of the full head and not at the lowest (p-RoPE, Barbero et al. 2024,
            arXiv:2410.06205). They differ only where ``fraction`` is below 1.

    Departures: none. Angles are computed in float64.
    """

    family = "rotation"

    def __init__(
        self,
        geometry: Geometry,
        *,
        base: float = 10000.0,
        pairing: str = "interleaved",
        fraction: float = 1.0,
        spectrum: str = "compressed",
    ) -> None:
        super().__init__(geometry, base)
        self.pairing = one_of("rope pairing", pairing, ("interleaved", "half"))
        self.spectrum = one_of("rope spectrum", spectrum, ("compressed", "truncated"))
        number("rope fraction", fraction, above=0, at_most=1)
        self.rotated_pairs = int(fraction * self.pairs + 1e-9)  # 15/22 of 22 pairs is 15, not 14.999…
        if self.rotated_pairs < 1:
            share = f"rope fraction={fraction:g} of head_dim={geometry.head_dim}"
            raise ValueError(f"{share} is less than one pair; raise it")

    def frequencies(self, device: torch.device | None = None) -> Tensor:
        if self.spectrum == "compressed":
            return geometric_frequencies(self.rotated_pairs, self.base, 2 * self.rotated_pairs, device)
        rotated = torch.arange(self.pairs, device=device) < self.rotated_pairs
        return self.plain_frequencies(device) * rotated
