import torch
from torch import Tensor, nn
from torch.nn import functional

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._knobs import one_of, true_or_false


@register("stick_breaking")
class StickBreaking(Encoder):
    """Replaces softmax by stick-breaking: from the nearest key back, each takes a share of what is left.
    Tan et al. (2024), arXiv:2410.17980, §2.

        weights[q, k] = sigmoid(scores[q, k]) · Π_t (1 − sigmoid(scores[q, t])),      t between k and q

    Positions are not read. Weights of a query sum to at most 1, and nearer keys come first. By default a query does not
    see its own place: the first one sees nothing and gets zeros.

    Args:
        attend_current: whether a query may attend to its own place, first of all; False as published.
        remainder: what happens to the rest of the stick: ``dropped`` as published, or given to a learned ``vector`` of
            each layer and head, 0 at the start, as in the authors' training code.

    Departures: that code also normalises each head's output; this trunk does not. Weights are computed in log space, at
    least in float32.
    """

    family = "content"
    shift_invariant = causal_only = True
    static_bias = distance_bias = True  # −inf at a query's own place, or nothing

    def __init__(self, geometry: Geometry, *, attend_current: bool = False, remainder: str = "dropped") -> None:
        super().__init__(geometry)
        self.attend_current = true_or_false("stick_breaking attend_current", attend_current)
        one_of("stick_breaking remainder", remainder, ("dropped", "vector"))
        self.rest_value: nn.Parameter | None = None
        if remainder == "vector":
            shape = (geometry.num_layers, geometry.num_heads, 1, geometry.head_dim)
            self.rest_value = nn.Parameter(torch.zeros(shape))

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        if self.attend_current:
            return scores
        place = torch.arange(scores.shape[-1], device=scores.device)
        return scores.masked_fill(place[site.rows, None] == place, -torch.inf)

    def mix(self, scores: Tensor, v: Tensor, site: Site) -> Tensor:
        seen = scores > -torch.inf
        # Hidden scores are 0 on the way: a gradient through −inf would be NaN even where it is not used.
        finite = torch.where(seen, scores, 0.0).to(torch.promote_types(scores.dtype, torch.float32))
        log_left = torch.where(seen, functional.logsigmoid(-finite), 0.0)
        log_left_by_nearer = functional.pad(log_left[..., 1:], (0, 1)).flip(-1).cumsum(-1).flip(-1)
        weights = torch.where(seen, (functional.logsigmoid(finite) + log_left_by_nearer).exp(), 0.0)
        mixed = weights.to(v.dtype) @ v
        if self.rest_value is None:
            return mixed
        rest = log_left.sum(-1, keepdim=True).exp()
        return mixed + (rest * self.rest_value[site.layer]).to(v.dtype)
