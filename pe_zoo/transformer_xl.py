import torch
from torch import Tensor, nn

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._knobs import number, true_or_false, whole
from pe_zoo._positions import angles, even_width, geometric_frequencies


@register("transformer_xl")
class TransformerXL(Encoder):
    """Adds to scores the query's product with a projected sinusoid of the distance, and two global biases.
    Dai et al. (2019), arXiv:1901.02860, §3.3.

        scores[q, k] = ((query[q] + u) · key[k] + (query[q] + v) · W R[q − k]) / sqrt(head_dim)
        R[d] = (sin(d · base^(−2i/model_dim)) …, cos(d · base^(−2i/model_dim)) …),      i = 0 … model_dim/2 − 1

    Each layer has its own W, with separate rows for each head; u and v are per head and shared by all layers.

    Args:
        base: above 0; 10000 as published.
        clamp_len: distances beyond count as this one, on either side, at least 1; None: never, the official default.
        untied: whether each layer has its own u and v; false as published.

    Departures: the official code computes the term once per distance and shifts it into place, for positions 0, 1, 2, …
    under a causal mask. Here it is computed for each pair, by sin(a − b) = sin a cos b − cos a sin b: the same numbers,
    for any positions and mask. W starts as the trunk's projections do, u and v at the official standard deviation of
    0.02. Angles are computed in float64.
    """

    family = "relative term"
    shift_invariant = direction_aware = True

    def __init__(
        self, geometry: Geometry, *, base: float = 10000.0, clamp_len: int | None = None, untied: bool = False
    ) -> None:
        super().__init__(geometry)
        even_width("transformer_xl", geometry.model_dim)
        self.base = number("transformer_xl base", base, above=0)
        self.clamp_len = None if clamp_len is None else whole("transformer_xl clamp_len", clamp_len, at_least=1)
        self.untied = true_or_false("transformer_xl untied", untied)
        heads, head_dim, model_dim = geometry.num_heads, geometry.head_dim, geometry.model_dim
        self.projection = nn.Parameter(torch.empty(geometry.num_layers, heads, head_dim, model_dim))
        nn.init.normal_(self.projection, std=model_dim**-0.5)
        self.u = nn.Parameter(torch.empty(geometry.num_layers if untied else 1, heads, 1, head_dim))
        self.v = nn.Parameter(torch.empty_like(self.u))
        for common in (self.u, self.v):
            nn.init.normal_(common, std=0.02)

    def sinusoid(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Sines and cosines of positions or distances, ``(..., length)`` to two of ``(..., length, model_dim / 2)``."""
        dim = self.geometry.model_dim
        angle = angles(positions, geometric_frequencies(dim // 2, self.base, dim, positions.device))
        return angle.sin().to(dtype), angle.cos().to(dtype)

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        # At least float32, whatever the scores are: sums over the sinusoid cancel.
        wide = torch.promote_types(scores.dtype, torch.float32)
        u, v = (common[site.layer if self.untied else 0].to(wide) for common in (self.u, self.v))
        query = (q.to(wide) + v) @ self.projection[site.layer].to(wide)
        terms = u @ k.to(wide).mT + self._at_distances(query, site)
        return scores + (terms * self.geometry.head_dim**-0.5).to(scores.dtype)

    def _at_distances(self, query: Tensor, site: Site) -> Tensor:
        """``(batch, heads, query, model_dim)``, times R of each distance: ``(batch, heads, query, key)``."""
        of_sin, of_cos = query.chunk(2, -1)
        sin, cos = self.sinusoid(_for_heads(site.query_positions), query.dtype)
        key_sin, key_cos = self.sinusoid(_for_heads(site.key_positions), query.dtype)
        rotated = torch.cat([of_sin * sin + of_cos * cos, of_cos * sin - of_sin * cos], -1)
        term = rotated @ torch.cat([key_cos, key_sin], -1).mT
        if self.clamp_len is None:
            return term
        ends = torch.tensor([self.clamp_len, -self.clamp_len], device=query.device)
        far_back, far_ahead = (query @ torch.cat(self.sinusoid(ends, query.dtype), -1).mT).split(1, -1)
        term = torch.where(site.distance > self.clamp_len, far_back, term)
        return torch.where(site.distance < -self.clamp_len, far_ahead, term)


def _for_heads(positions: Tensor) -> Tensor:
    """``(length,)`` as it is, ``(batch, length)`` to ``(batch, 1, length)``."""
    return positions if positions.ndim == 1 else positions.unsqueeze(-2)
