import math

import torch
from torch import Tensor, nn

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._knobs import whole
from pe_zoo._positions import look_up, nearest
from pe_zoo._tables import pick


@register("deberta")
class DeBERTa(Encoder):
    """Adds content-to-position and position-to-content terms to scores (disentangled attention).
    He et al. (2020), arXiv:2006.03654, §3.1.

        scores[q, k] = (query[q] · key[k] + query[q] · K vectors[c] + key[k] · (Q vectors[c] + b)) / sqrt(3 · head_dim)
        c = clip(q − k + max_distance, 0, 2 · max_distance − 1)

    The table of vectors serves all layers; each layer has a K, a Q and a b of its own, with rows of their own for each
    head. Rows of distances that training never reached stay as initialised.

    Args:
        max_distance: half the rows of the table, at least 1. None: ``train_length``, the published ratio (512 at 512).
        num_buckets: None: a row per distance, as published. Otherwise buckets on each side, as in version 2 (256): one
            distance each up to half of them, then growing logarithmically up to ``max_distance`` − 1. Even, at least 4,
            below 2 · ``max_distance`` − 2.

    Departures: the paper writes the third term with the row of k − q; here, as in the official code, it is that of q −
    k, with the b. Not included: version 2's normalised table, shared with the trunk's projections, and the absolute
    positions added before the last layers. Vectors start at the official standard deviation of 0.02, K and Q as the
    trunk's projections do. A fractional distance counts as the nearest whole one, a half as the further.
    """

    family = "relative term"
    shift_invariant = direction_aware = True

    def __init__(self, geometry: Geometry, *, max_distance: int | None = None, num_buckets: int | None = None) -> None:
        super().__init__(geometry)
        if max_distance is None:
            max_distance = geometry.train_length
        self.span = whole("deberta max_distance", max_distance, at_least=1)
        self.num_buckets = num_buckets
        if num_buckets is not None:
            self.span = whole("deberta num_buckets", num_buckets, at_least=4)
            if num_buckets % 2 or num_buckets // 2 >= max_distance - 1:
                limit = f"below 2 · max_distance − 2 = {2 * max_distance - 2}, so that some buckets can grow"
                raise ValueError(f"deberta num_buckets must be even and {limit}; got {num_buckets}")
            # An integer buffer, which a change of the module's dtype leaves alone.
            self.register_buffer("buckets", signed_log_buckets(num_buckets, max_distance), persistent=False)
        heads, head_dim, model_dim = geometry.num_heads, geometry.head_dim, geometry.model_dim
        self.vectors = nn.Parameter(torch.empty(2 * self.span, model_dim))
        nn.init.normal_(self.vectors, std=0.02)
        self.to_key = nn.Parameter(torch.empty(geometry.num_layers, heads, model_dim, head_dim))
        self.to_query = nn.Parameter(torch.empty_like(self.to_key))
        for projection in (self.to_key, self.to_query):
            nn.init.normal_(projection, std=model_dim**-0.5)
        self.query_bias = nn.Parameter(torch.zeros(geometry.num_layers, heads, 1, head_dim))

    buckets: Tensor

    def rows(self, distance: Tensor) -> Tensor:
        """Distances, query minus key, of any shape, to rows of the table, int64."""
        distance = nearest(distance)
        if self.num_buckets is not None:
            distance = distance.sign() * look_up(distance.abs(), self.buckets)
        return (distance + self.span).clamp(0, 2 * self.span - 1).long()

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        # At least float32, whatever the scores are: the sum is rounded once.
        wide = torch.promote_types(scores.dtype, torch.float32)
        to_key, to_query, bias = (p[site.layer].to(wide) for p in (self.to_key, self.to_query, self.query_bias))
        rows, vectors = self.rows(site.distance), self.vectors.to(wide)
        content_to_position = pick(q.to(wide) @ (vectors @ to_key).mT, rows)
        position_to_content = pick(k.to(wide) @ (vectors @ to_query + bias).mT, rows.mT).mT
        terms = (content_to_position + position_to_content) * self.geometry.head_dim**-0.5
        return ((scores + terms) * 3**-0.5).to(scores.dtype)


def signed_log_buckets(num_buckets: int, max_distance: int) -> Tensor:
    """The bucket of each whole distance from 0 to ``max_distance``, int64; beyond, the last one goes on.

    Half of the buckets hold one distance each. T5's logarithm is rounded down, this one up.

    >>> signed_log_buckets(8, 32)[[0, 4, 5, 7, 8, 15, 16, 31, 32]]
    tensor([0, 4, 5, 5, 6, 6, 7, 7, 8])
    """
    mid = num_buckets // 2
    steps = (mid - 1) / math.log((max_distance - 1) / mid)
    # The tolerance keeps edges that are whole numbers on paper from being rounded up.
    growing = [mid + math.ceil(math.log(n / mid) * steps - 1e-9) for n in range(mid + 1, max_distance + 1)]
    return torch.tensor([*range(mid + 1), *growing])
