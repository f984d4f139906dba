import math

import torch
from torch import Tensor

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._knobs import number, whole
from pe_zoo._positions import angles, geometric_frequencies
from pe_zoo._rotation import pairs_of, reach, rotate_pairs, rotations_ramp


@register("longrope")
class LongRoPE(Encoder):
    """Rotates as RoPE does up to the training length and rescales each frequency by its own factor beyond it.
    LongRoPE, Ding et al. (2024), arXiv:2402.13753, §3.2, with the factors that its search starts from.

        angle[i] = p · base^(−2i/head_dim) / rescale[i]
        rescale[i] = 1 up to the original length, 1 + (factor − 1) · ramp[i] beyond
        q, k = m · rotate(q), m · rotate(k),      m = sqrt(1 + ln(factor) / ln(original_length))

    m applies at every length. The ramp is 0 for pairs that rotate more than 32 times over that length, 1 for those that
    rotate less than once, and linear in i between. A query is beyond if the highest position it knows of is: in a
    causal model that of the text so far, otherwise of the whole text. Queries and keys become twice as wide.

    Args:
        factor: length wanted over original length, at least 1 (1 is RoPE); 8 is what the paper reaches without further
            training.
        original_length: length up to which angles are those of RoPE, at least 2. None: ``train_length``, as published.
        base: above 1; 10000 as published.

    Departures: the paper searches the factors, and how many first tokens to exempt, by the perplexity of a trained
    model; here factors are those that the official search starts from, and no token is exempt. Published code uses the
    final length of a text for all queries, so that later tokens change earlier outputs; here a causal query uses the
    text up to it.
    """

    family = "rotation"
    direction_aware = True
    extends = "rope"
    fine_tuned = True

    def __init__(
        self, geometry: Geometry, *, factor: float = 8.0, original_length: int | None = None, base: float = 10000.0
    ) -> None:
        super().__init__(geometry)
        self.pairs = pairs_of("longrope", geometry)
        self.factor = number("longrope factor", factor, at_least=1)
        length = max(geometry.train_length, 2) if original_length is None else original_length
        self.original_length = whole("longrope original_length", length, at_least=2)
        self.base = number("longrope base", base, above=1)

    def frequencies(self, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
        """Radians per position of each pair up to the original length and beyond it, ``(pairs,)`` float64 each."""
        plain = geometric_frequencies(self.pairs, self.base, self.geometry.head_dim, device)
        ramp = rotations_ramp(self.pairs, self.base, self.original_length, 32.0, 1.0, device)
        return plain, plain / (1 + (self.factor - 1) * ramp)

    def rotate(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        scale = math.sqrt(1 + math.log(self.factor) / math.log(self.original_length))
        beyond = (reach(site) + 1 > self.original_length).unsqueeze(-1)  # (..., query, 1)
        beyond = beyond.unsqueeze(1) if beyond.ndim == 3 else beyond
        queries, keys = [], []
        for frequencies, mine in zip(self.frequencies(q.device), (~beyond, beyond), strict=True):
            queries.append(rotate_pairs(q, angles(site.query_positions, frequencies), scale=scale) * mine.to(q.dtype))
            keys.append(rotate_pairs(k, angles(site.key_positions, frequencies), scale=scale))
        return torch.cat(queries, -1), torch.cat(keys, -1)
