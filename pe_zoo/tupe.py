import torch
from torch import Tensor, nn
from torch.nn import functional

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._knobs import true_or_false
from pe_zoo._tables import Buckets, by_bucket, enough_rows, heads_first, rows_at


@register("tupe")
class TUPE(Encoder):
    """Biases scores by products of projected position vectors; the first token is untied from position.
    TUPE (untied positional encoding), Ke et al. (2020), arXiv:2006.15595, §3.

        scores[q, k] = query[q] · key[k] / sqrt(2 · head_dim) + reset(bias)[q, k]
        bias[q, k] = (U_q norm(table[q])) · (U_k norm(table[k])) / sqrt(2 · head_dim)  (+ relative[bucket(q − k)])
        reset(bias) = first_to_others in the first row, others_to_first in the rest of the first column, else bias

    The bias is the same in all layers, and so are its parameters; U_q and U_k have separate rows for each head.

    Args:
        num_rows: positions the table has, at least ``train_length``; 2048 as in ``learned`` (the official table ends at
            the training length). Positions beyond ``num_rows`` − 1 are unsupported.
        untie_first: whether the first token, here the beginning-of-sequence token in the place of [CLS], has two
            numbers per head instead of a position; true as published.
        num_buckets: None: no relative bias (TUPE-A as published). Otherwise T5's, with that many buckets, a multiple of
            4: 32 in the published TUPE-R.
        max_distance: of the relative bias, as in ``t5`` (128 in the official code).

    Departures: a causal model has T5's buckets for looking back only. Untied numbers get no relative bias; the official
    code adds one per head, to the same effect. As there, the untied numbers are products of vectors of their own, and
    U_q and U_k have biases that the paper does not write; the table and those vectors start at its standard deviation
    of 0.02, U_q and U_k as the trunk's projections do, the relative bias at model_dim^(−1/2). Fractional positions are
    interpolated, as in ``learned``.
    """

    family = "score bias"
    direction_aware = static_bias = True

    def __init__(
        self,
        geometry: Geometry,
        *,
        num_rows: int = 2048,
        untie_first: bool = True,
        num_buckets: int | None = None,
        max_distance: int | None = None,
    ) -> None:
        super().__init__(geometry)
        dim = geometry.model_dim
        self.max_length = enough_rows("tupe", num_rows, geometry.train_length)
        true_or_false("tupe untie_first", untie_first)
        self.table = nn.Parameter(0.02 * torch.randn(num_rows, dim))
        self.first = nn.Parameter(0.02 * torch.randn(2, dim)) if untie_first else None
        self.norm = nn.LayerNorm(dim)
        self.projection = nn.Linear(dim, 2 * geometry.num_heads * geometry.head_dim)
        nn.init.normal_(self.projection.weight, std=dim**-0.5)
        nn.init.zeros_(self.projection.bias)
        if num_buckets is None and max_distance is not None:
            raise ValueError(f"tupe max_distance={max_distance} changes nothing without num_buckets; set both")
        self.buckets = self.relative = None
        if num_buckets is not None:
            self.buckets = Buckets("tupe", num_buckets, max_distance, geometry.train_length)
            self.relative = nn.Parameter(dim**-0.5 * torch.randn(num_buckets, geometry.num_heads))

    def rotate(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        # Here and not in ``score``, which so adds a term that positions alone decide.
        return q * 2**-0.5, k

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        # At least float32: it costs little without a batch, and the bias is as exact as its parameters.
        dtype = torch.promote_types(scores.dtype, torch.float32)
        of_queries, _ = self._project(rows_at("tupe", self.table, site.query_positions, dtype))
        _, of_keys = self._project(rows_at("tupe", self.table, site.key_positions, dtype))
        bias = of_queries @ of_keys.mT * (2 * self.geometry.head_dim) ** -0.5
        if self.buckets is not None and self.relative is not None:
            bias = bias + heads_first(by_bucket(self.relative.to(dtype), self.buckets(site.distance, not site.causal)))
        if self.first is not None:
            bias = self._untie(self.first.to(dtype), bias, site)
        return scores + bias.to(scores.dtype)

    def _project(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """``(…, length, model_dim)`` to queries and keys, ``(…, heads, length, head_dim)``."""
        norm, dtype = self.norm, vectors.dtype
        normal = functional.layer_norm(
            vectors, norm.normalized_shape, norm.weight.to(dtype), norm.bias.to(dtype), norm.eps
        )
        both = functional.linear(normal, self.projection.weight.to(dtype), self.projection.bias.to(dtype))
        queries, keys = both.unflatten(-1, (2, self.geometry.num_heads, -1)).movedim(-4, -2).unbind(-4)
        return queries, keys

    def _untie(self, first: Tensor, bias: Tensor, site: Site) -> Tensor:
        queries, keys = self._project(first)
        products = (queries * keys).sum(-1) * (2 * self.geometry.head_dim) ** -0.5
        first_to_others, others_to_first = products[..., None, None].unbind(1)  # each (heads, 1, 1)
        is_first = torch.arange(bias.shape[-1], device=bias.device) == 0
        bias = torch.where(is_first, others_to_first, bias)
        return torch.where(is_first[site.rows, None], first_to_others, bias)
