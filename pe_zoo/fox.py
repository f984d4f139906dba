import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._knobs import number


@register("fox")
class FoX(Encoder):
    """Biases scores by accumulated log forget gates, computed per token and head from the layer's input.
    FoX (forgetting Transformer), Lin et al. (2025), arXiv:2503.02130, §3.

        scores[h, q, k] += Σ log gate[h, t],  t = k + 1 … q,      gate[h, t] = sigmoid(weight[h] · x[t] + bias[h])

    Each layer and head has its own gate. Positions are not read. A gate that is the same for all tokens is ALiBi with
    slope −log gate. CABLE (Veisi et al. 2025, arXiv:2503.08067) sums −softplus(weight · x + bias), which is the same
    encoder with weight and bias negated: ``encoder=cable``.

    Args:
        initial_gate: the gate where the input is 0, in (0, 1); 0.5 as published. Nearer to 1, memory is longer.

    Departures: none. Weights start at standard deviation 0.02, as in the official code. Its output gates, normalised
    queries and keys, and shifted keys and values are not included. Sums are in float64.
    """

    family = "content"
    shift_invariant = causal_only = True
    static_bias = True  # neither scores nor q and k decide the bias, though the layer's input does

    def __init__(self, geometry: Geometry, *, initial_gate: float = 0.5) -> None:
        super().__init__(geometry)
        number("fox initial_gate", initial_gate, above=0, below=1)
        logit = math.log(initial_gate) - math.log1p(-initial_gate)
        self.weight = nn.Parameter(torch.empty(geometry.num_layers, geometry.num_heads, geometry.model_dim))
        self.bias = nn.Parameter(torch.full((geometry.num_layers, geometry.num_heads), logit))
        nn.init.normal_(self.weight, std=0.02)

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        dtype = torch.promote_types(scores.dtype, torch.float32)
        weight, bias = self.weight[site.layer].to(dtype), self.bias[site.layer].to(dtype)
        log_gates = functional.logsigmoid(functional.linear(site.content("fox").to(dtype), weight, bias))
        sums = log_gates.double().cumsum(-2).mT  # (batch, heads, key)
        # Counted from the first query, sums are small, and differences exact, where weights are not yet 0.
        sums = (sums - sums[..., site.rows][..., :1]).to(dtype)
        return (scores + sums[..., site.rows, None] - sums[..., None, :]).to(scores.dtype)
