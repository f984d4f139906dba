import torch
from torch import Tensor, nn

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._tables import Buckets, by_bucket, heads_first


@register("t5")
class T5(Encoder):
    """Biases scores by a learned value per head and distance bucket.
    Raffel et al. (2020), arXiv:1910.10683, §2.1.

        scores[h, q, k] += bias[bucket(q − k), h]

    Buckets hold one distance each up to half of them, then grow logarithmically to ``max_distance``; all larger ones
    share the last. One table serves all layers.

    Args:
        num_buckets: a multiple of 4; 32 as published. A bidirectional model uses half for each side.
        max_distance: where the last bucket begins to saturate, above ``num_buckets / 2``. None: a quarter of
            ``train_length``, the published ratio (128 at 512), but at least ``num_buckets``.
        bidirectional: which bucket scheme: False, T5's decoder (all buckets look back, keys ahead share bucket 0);
            True, its encoder. None: as the model's mask.

    Departures: T5 does not scale scores by 1/sqrt(head_dim); this trunk does, for every encoder. Rows start at standard
    deviation model_dim^(−1/2), as in the official code. Distances count by their whole part.
    """

    family = "score bias"
    shift_invariant = direction_aware = static_bias = distance_bias = True

    def __init__(
        self,
        geometry: Geometry,
        *,
        num_buckets: int = 32,
        max_distance: int | None = None,
        bidirectional: bool | None = None,
    ) -> None:
        super().__init__(geometry)
        if not (bidirectional is None or isinstance(bidirectional, bool)):
            raise ValueError(f"t5 bidirectional must be true, false or null; got {bidirectional!r}")
        self.bidirectional = bidirectional
        self.scheme = Buckets("t5", num_buckets, max_distance, geometry.train_length)
        self.bias = nn.Parameter(torch.empty(num_buckets, geometry.num_heads))
        nn.init.normal_(self.bias, std=geometry.model_dim**-0.5)

    def buckets(self, distance: Tensor, causal: bool) -> Tensor:
        """Distances, query minus key, of any shape, to bucket numbers, int64."""
        return self.scheme(distance, not causal if self.bidirectional is None else self.bidirectional)

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        bias = heads_first(by_bucket(self.bias, self.buckets(site.distance, site.causal)))
        return scores + bias.to(scores.dtype)
