import torch
from torch import Tensor, nn

from pe_zoo import Encoder, Geometry, Site, Unsupported, register
from pe_zoo._knobs import number, one_of
from pe_zoo._positions import slopes

MAX_BIAS = 8.0


@register("alibi")
class ALiBi(Encoder):
    """Biases scores by a linear penalty on distance, with a slope per head.
    ALiBi (attention with linear biases), Press et al. (2022), arXiv:2108.12409, §3.

        scores[h, q, k] −= slope[h] · |q − k|,      slope[h] = 2^(−max_bias · h / heads),  h = 1 … heads

    Head counts that are no power of two get the official slopes: those of the power of two below, then every other
    slope of the power of two above.

    Args:
        max_bias: above 0; the gentlest slope is 2^(−max_bias); 8 as published. ``asymmetric`` takes no other.
        form: how keys on the right are biased, which the causal paper leaves open: one of three in the authors'
            repository (issue 5). ``symmetric``, |q − k| both ways, is the published method under a causal mask;
            ``one_sided`` lets one half of the heads look left only and the other right only; ``asymmetric`` learns a
            slope per head and side.

    Departures: the official code adds slope · k, which softmax cannot tell from −slope · (q − k) under a causal mask,
    and only there; here it is the distance.
    """

    family = "score bias"
    shift_invariant = static_bias = distance_bias = True

    def __init__(self, geometry: Geometry, *, max_bias: float = MAX_BIAS, form: str = "symmetric") -> None:
        super().__init__(geometry)
        self.max_bias = number("alibi max_bias", max_bias, above=0)
        self.form = one_of("alibi form", form, ("symmetric", "one_sided", "asymmetric"))
        self.direction_aware = form != "symmetric"
        if form == "one_sided" and geometry.num_heads % 2:
            raise ValueError(f"alibi form=one_sided splits the heads in two; num_heads={geometry.num_heads} is odd")
        if form == "asymmetric":
            if max_bias != MAX_BIAS:
                unused = f"alibi max_bias={max_bias:g} changes nothing with form=asymmetric, which learns its slopes"
                raise ValueError(f"{unused}; leave one of them out")
            self.slope_logits = nn.Parameter(torch.empty(2, geometry.num_heads))
            nn.init.normal_(self.slope_logits, mean=-2.0, std=1.0)

    def bias(self, distance: Tensor, causal: bool) -> Tensor:
        """``(…, query, key)`` distances to ``(…, heads, query, key)`` biases, all at most 0."""
        heads = self.geometry.num_heads
        if self.form == "asymmetric":
            left, right = self.slope_logits.to(distance.dtype).sigmoid()[:, :, None, None]
            return torch.where(distance >= 0, -left * distance, right * distance)
        if self.form == "symmetric":
            return -slopes(heads, self.max_bias, distance)[:, None, None] * distance.abs()
        if causal:
            raise Unsupported("alibi form=one_sided has heads that look right only: use it in a bidirectional model")
        half = slopes(heads // 2, self.max_bias, distance)[:, None, None]
        leftward = torch.where(distance >= 0, -half * distance, -torch.inf)
        rightward = torch.where(distance <= 0, half * distance, -torch.inf)
        return torch.cat([leftward, rightward], -3)

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        # At least float32, whatever the scores are: bfloat16 cannot hold distances above 256.
        distance = site.distance.to(torch.promote_types(scores.dtype, torch.float32))
        return (scores + self.bias(distance, site.causal)).to(scores.dtype)
