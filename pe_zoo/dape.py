import torch
from torch import Tensor, nn
from torch.nn import functional

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._knobs import one_of, whole
from pe_zoo._positions import slopes


@register("dape")
class DAPE(Encoder):
    """Biases scores by a static bias and an MLP over the scores and biases of all heads.
    DAPE (data-adaptive positional encoding), Zheng et al. (2024), arXiv:2405.14722, §3.

        scores[q, k] += bias(q − k) + w_out · leaky_relu(w_in · [scores[q, k]; bias(q − k)] + b_in)

    The MLP sees one query and one key at a time. Each layer has its own MLP and bias.

    Args:
        prior: the static bias. ``logarithmic``, −p[h] · log(1 + a[h] · |q − k|) with p and a learned, that of KERPLE;
            ``linear``, −slope[h] · |q − k|, that of ALiBi. Both are published.
        width: hidden units of the MLP, at least 1; 32 as published.

    Departures: p and a stay positive by softplus, where the official code clamps them; they start as there, uniform up
    to 2 and 1. The output layer has no bias, which softmax cannot see. Keys ahead count by |q − k|, where the official,
    causal code has 0.
    """

    family = "content"
    shift_invariant = True

    def __init__(self, geometry: Geometry, *, prior: str = "logarithmic", width: int = 32) -> None:
        super().__init__(geometry)
        self.prior = one_of(f"{self.name} prior", prior, ("logarithmic", "linear"))
        whole(f"{self.name} width", width, at_least=1)
        layers, heads = geometry.num_layers, geometry.num_heads
        self.w_in = nn.Parameter(torch.empty(layers, width, 2 * heads))
        self.b_in = nn.Parameter(torch.empty(layers, width))
        self.w_out = nn.Parameter(torch.empty(layers, heads, width))
        for parameter, inputs in ((self.w_in, 2 * heads), (self.b_in, 2 * heads), (self.w_out, width)):
            nn.init.uniform_(parameter, -(inputs**-0.5), inputs**-0.5)  # as nn.Linear starts
        if prior == "logarithmic":
            p, a = 2 * torch.rand(layers, heads), torch.rand(layers, heads)
            self.p, self.a = (nn.Parameter(start.clamp(min=0.01).expm1().log()) for start in (p, a))

    def bias(self, distance: Tensor, layer: int) -> Tensor:
        """``(…, query, key)`` distances, not negative, to ``(…, heads, query, key)`` biases, all at most 0."""
        if self.prior == "linear":
            return -slopes(self.geometry.num_heads, 8.0, distance)[:, None, None] * distance
        p, a = (functional.softplus(raw[layer].to(distance.dtype))[:, None, None] for raw in (self.p, self.a))
        return -p * torch.log1p(a * distance)

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        dtype = torch.promote_types(scores.dtype, torch.float32)
        bias = self.bias(site.distance.to(dtype).abs(), site.layer)
        w_in, b_in, w_out = (parameter[site.layer].to(dtype) for parameter in (self.w_in, self.b_in, self.w_out))
        heads = self.geometry.num_heads
        from_scores = functional.linear(scores.to(dtype).movedim(-3, -1), w_in[:, :heads], b_in)
        from_bias = functional.linear(bias.movedim(-3, -1), w_in[:, heads:])  # once for the whole batch
        hidden = functional.leaky_relu(from_scores + from_bias)  # (batch, query, key, width)
        return (scores + bias + functional.linear(hidden, w_out).movedim(-1, -3)).to(scores.dtype)
