import torch
from torch import Tensor, nn

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._knobs import whole


@register("cope")
class CoPE(Encoder):
    """Biases scores by a contextual position: a gated count of tokens, looked up in a learned table.
    CoPE (contextual position encoding), Golovneva et al. (2024), arXiv:2405.18719, §4.

        count[h, q, k] = Σ sigmoid(scores[h, q, t]),  t = k … q, both ends included
        scores[h, q, k] += query[h, q] · embedding[layer, min(count[h, q, k], p_max − 1)]

    Fractional counts interpolate between the vectors of the neighbouring whole counts. Each layer has a table, shared
    by its heads. Positions are not read.

    Args:
        p_max: rows of a table, at least 2; 64 as published. Training leaves rows above ``train_length`` at 0.

    Departures: none. As in the published listing, tables start at zero and the query is not scaled by 1/sqrt(head_dim)
    where it meets them. Counts are summed in float32 at least.
    """

    family = "content"
    shift_invariant = causal_only = True

    def __init__(self, geometry: Geometry, *, p_max: int = 64) -> None:
        super().__init__(geometry)
        whole("cope p_max", p_max, at_least=2)
        self.embedding = nn.Parameter(torch.zeros(geometry.num_layers, p_max, geometry.head_dim))

    def counts(self, scores: Tensor, site: Site) -> Tensor:
        """Tokens counted from each key to the query, ``(batch, heads, query, key)``; 0 for keys ahead."""
        place = torch.arange(scores.shape[-1], device=scores.device)
        # The order of the sequence counts even where a mask hides nothing: gates ahead would be the future.
        seen = site.mask & (place <= place[site.rows, None])
        gates = torch.where(seen, scores.to(torch.promote_types(scores.dtype, torch.float32)).sigmoid(), 0.0)
        return gates.flip(-1).cumsum(-1).flip(-1)

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        table = self.embedding[site.layer]
        count = self.counts(scores, site).clamp(max=len(table) - 1)
        products = q.to(count.dtype) @ table.to(count.dtype).mT  # (batch, heads, query, p_max)
        below, above = (products.gather(-1, row.long()) for row in (count.floor(), count.ceil()))
        return (scores + torch.lerp(below, above, count - count.floor())).to(scores.dtype)
