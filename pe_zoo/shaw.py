import torch
from torch import Tensor, nn

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._knobs import true_or_false, whole
from pe_zoo._positions import nearest
from pe_zoo._tables import pick


@register("shaw")
class Shaw(Encoder):
    """Adds learned vectors of the clipped relative distance to keys and values.
    Shaw et al. (2018), arXiv:1803.02155, §3.2.

        scores[q, k] += query[q] · key_vectors[c] / sqrt(head_dim),      c = clip(k − q, −max_distance, max_distance)
        output[q] += Σ_k weights[q, k] · value_vectors[c]

    Each layer has its own tables, shared by its heads. All keys beyond ``max_distance`` on one side share a vector.

    Args:
        max_distance: where distances are clipped, at least 1; 16 as published.
        value_term: whether values get vectors too; true as published.

    Departures: none from the official code, whose tables are shared by heads and start uniform within sqrt(6 / (rows +
    head_dim)), as here. A fractional distance takes the vector of the nearest whole one, a half that of the further.
    """

    family = "relative term"
    shift_invariant = direction_aware = True

    def __init__(self, geometry: Geometry, *, max_distance: int = 16, value_term: bool = True) -> None:
        super().__init__(geometry)
        self.max_distance = whole("shaw max_distance", max_distance, at_least=1)
        true_or_false("shaw value_term", value_term)
        self.key_vectors = self._table()
        self.value_vectors = self._table() if value_term else None

    def _table(self) -> nn.Parameter:
        rows, dim = 2 * self.max_distance + 1, self.geometry.head_dim
        bound = (6 / (rows + dim)) ** 0.5
        return nn.Parameter(torch.empty(self.geometry.num_layers, rows, dim).uniform_(-bound, bound))

    def rows(self, distance: Tensor) -> Tensor:
        """Distances, query minus key, of any shape, to rows of the tables, int64."""
        return nearest((-distance).clamp(-self.max_distance, self.max_distance)).long() + self.max_distance

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        # At least float32, whatever the scores are: the sum is rounded once.
        wide = torch.promote_types(scores.dtype, torch.float32)
        products = q.to(wide) @ self.key_vectors[site.layer].to(wide).mT * self.geometry.head_dim**-0.5
        return (scores + pick(products, self.rows(site.distance))).to(scores.dtype)

    def mix(self, scores: Tensor, v: Tensor, site: Site) -> Tensor:
        weights = scores.softmax(-1)
        if self.value_vectors is None:
            return weights @ v
        # At least float32: in bfloat16, the many small weights beyond the clip would add up to too little.
        wide = weights.to(torch.promote_types(weights.dtype, torch.float32))
        vectors = self.value_vectors[site.layer].to(wide.dtype)
        nothing = wide.new_zeros(*wide.shape[:-1], len(vectors))
        weights_of_rows = nothing.scatter_add(-1, self.rows(site.distance).expand(wide.shape), wide)
        return weights @ v + (weights_of_rows @ vectors).to(v.dtype)
