import torch
from torch import Tensor, nn

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._knobs import whole
from pe_zoo._positions import ROUNDING, row_of


@register("relative_projection")
class RelativeProjection(Encoder):
    """Biases scores by learned functions of distance, mixed by a projection of the query's token.
    Inkling, Thinking Machines (2026), ``InklingRelativeLogits`` in transformers; it has no paper. The term is that of
    Shaw et al. (2018), arXiv:1803.02155, §3.2, with a small projection in place of the query.

        scores[h, q, k] += Σ weight[h, r] · x[q] · curves[r, q − k],  r = 1 … rank,      0 ≤ q − k < window

    Keys ahead, or ``window`` and more behind, get nothing. Each layer has its own weights and curves.

    Args:
        rank: curves to mix, at least 1; 16 as published (``d_rel``).
        window: distances a curve holds, at least 1 (``rel_extent``). None: 1024 as published, but no more than
            ``train_length``, beyond which curves would stay as initialised.

    Departures: the model's short convolutions, normalised queries and keys, and scores that grow with the logarithm of
    length are not included. A distance between two whole numbers counts as the lower one. Both tables start at standard
    deviation 0.02, the default in transformers.
    """

    family = "relative term"
    shift_invariant = direction_aware = True
    static_bias = True  # neither scores nor q and k decide the bias, though the layer's input does

    def __init__(self, geometry: Geometry, *, rank: int = 16, window: int | None = None) -> None:
        super().__init__(geometry)
        whole("relative_projection rank", rank, at_least=1)
        window = min(1024, geometry.train_length) if window is None else window
        whole("relative_projection window", window, at_least=1)
        layers, heads = geometry.num_layers, geometry.num_heads
        self.weight = nn.Parameter(torch.empty(layers, heads, rank, geometry.model_dim))
        self.curves = nn.Parameter(torch.empty(layers, rank, window))
        for table in (self.weight, self.curves):
            nn.init.normal_(table, std=0.02)

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        dtype = torch.promote_types(scores.dtype, torch.float32)
        weight, curves = self.weight[site.layer].to(dtype), self.curves[site.layer].to(dtype)
        x = site.content("relative_projection")[:, None, site.rows].to(dtype)
        curve = x @ weight.mT @ curves  # (batch, heads, query, rank), then (…, window)
        distance, window = site.distance, curves.shape[-1]
        row = row_of(distance, window).expand(*curve.shape[:-1], -1)
        inside = (distance >= -ROUNDING) & (distance < window - ROUNDING)
        return (scores + torch.where(inside, curve.gather(-1, row), 0.0)).to(scores.dtype)
