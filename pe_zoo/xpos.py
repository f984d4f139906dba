import math

import torch
from torch import Tensor

from pe_zoo import Encoder, Geometry, Site, Unsupported, register
from pe_zoo._knobs import number
from pe_zoo._positions import angles, geometric_frequencies
from pe_zoo._rotation import pairs_of, rotate_pairs
from pe_zoo._tables import known_to_hold


@register("xpos")
class XPos(Encoder):
    """Rotates as RoPE does, with an exponential decay of each pair over distance, strongest at high frequencies.
    xPos (extrapolatable position embedding), Sun et al. (2022), arXiv:2212.10554, §3.2.

        q = rotate(q, angle) · decay[i]^(p / scale_base),      k = rotate(k, angle) · decay[i]^(−p / scale_base)
        angle[i] = p · base^(−2i/head_dim),      decay[i] = (2i/head_dim + gamma) / (1 + gamma)

    Their product fades as decay^(distance / scale_base); keys ahead would grow instead, hence a causal mask only.

    Args:
        scale_base: distance over which a pair fades by its decay, above 0; 512 as published, where the training length
            is 1024. Half of a shorter ``train_length`` is the same ratio.
        gamma: above 0; the lower, the faster pairs fade; 0.4 as published.
        base: above 0; 10000 as published.

    Departures: exponents count from the middle of the queries at hand, where the official code counts from the middle
    of the text: the same product for texts of any length. In float32 the queries handled at once, with the keys they
    see, may span about 65 · scale_base positions at the published gamma; more is unsupported. The paper's blockwise
    attention is not part of the encoder.
    """

    family = "rotation"
    shift_invariant = causal_only = True
    relative_of = "rope"
    blockwise_rotation = True  # exponents count from the middle of the queries at hand

    def __init__(
        self, geometry: Geometry, *, scale_base: float = 512.0, gamma: float = 0.4, base: float = 10000.0
    ) -> None:
        super().__init__(geometry)
        self.pairs = pairs_of("xpos", geometry)
        self.scale_base = number("xpos scale_base", scale_base, above=0)
        self.gamma = number("xpos gamma", gamma, above=0)
        self.base = number("xpos base", base, above=0)

    def decay(self, device: torch.device | None = None) -> Tensor:
        """What each pair is multiplied by over ``scale_base`` positions, ``(pairs,)`` float64."""
        share = torch.arange(self.pairs, dtype=torch.float64, device=device) / self.pairs
        return (share + self.gamma) / (1 + self.gamma)

    def rotate(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        here, there = site.query_positions.double(), site.key_positions.double()
        middle = (here.amin(-1, keepdim=True) + here.amax(-1, keepdim=True)) / 2
        seen = site.mask.any(-2)
        seen = seen if seen.ndim < 3 else seen.any(1)
        self._refuse_span(torch.where(seen, there, -torch.inf).amax(-1) - here.amin(-1), q.dtype)
        rates = self.decay(q.device).log() / self.scale_base
        query_scale, key_scale = ((away.unsqueeze(-1) * rates).exp() for away in (here - middle, middle - there))
        # Keys that none of these queries may see could lie too far ahead for a finite number.
        key_scale = torch.where(seen.unsqueeze(-1), key_scale, 0.0)
        frequencies = geometric_frequencies(self.pairs, self.base, self.geometry.head_dim, q.device)
        return rotate_pairs(q, angles(here, frequencies), scale=query_scale), rotate_pairs(
            k, angles(there, frequencies), scale=key_scale
        )

    def _refuse_span(self, spans: Tensor, dtype: torch.dtype) -> None:
        """Refuse queries so far before a key that others see that their own, hidden score of it would be infinite."""
        largest = torch.finfo(dtype).max / 2.0**10  # with room for products of queries and keys
        allowed = self.scale_base * math.log(largest) / math.log1p(1 / self.gamma)
        if not known_to_hold(spans <= allowed):
            knobs = f"scale_base={self.scale_base:g} and gamma={self.gamma:g}; got {spans.max().item():g}"
            limit = f"xpos handles queries and keys up to {allowed:.0f} positions apart at once in {str(dtype)[6:]}"
            raise Unsupported(f"{limit}, at {knobs}. Raise scale_base, or give a shorter text or fewer queries at once")
