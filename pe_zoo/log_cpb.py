import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._knobs import whole
from pe_zoo._layers import linear
from pe_zoo._tables import heads_first


@register("log_cpb")
class LogCPB(Encoder):
    """Biases scores by an MLP of the logarithms of the distances, down and across, which any distance can enter.
    Log-spaced continuous position bias of Swin Transformer V2, Liu et al. (2021), arXiv:2111.09883, §3.3.

        scores[h, q, k] += 16 · sigmoid(out[h] · ReLU(hidden · spread + hidden_bias))
        spread = sign(d) · log2(1 + 8 · |d|/(window − 1)) / 3,      d = (row[q] − row[k], column[q] − column[k])

    Each layer has its own MLP.

    Args:
        hidden_dim: width of the MLP, at least 1; 512 as published.
        window: side of the training grid, at least 2. None: that of the largest square of ``train_length`` places.

    Departures: attention sees the whole grid, and its scores are products and not cosines; of the paper, this is the
    bias alone.
    """

    axes = 2
    family = "score bias"
    shift_invariant = direction_aware = static_bias = distance_bias = True

    def __init__(self, geometry: Geometry, *, hidden_dim: int = 512, window: int | None = None) -> None:
        super().__init__(geometry)
        whole("log_cpb hidden_dim", hidden_dim, at_least=1)
        if window is None:
            window = max(2, math.isqrt(geometry.train_length))
        self.window = whole("log_cpb window", window, at_least=2)
        layers, heads = range(geometry.num_layers), geometry.num_heads
        self.hidden = nn.ModuleList(nn.Linear(2, hidden_dim) for _ in layers)
        self.out = nn.ModuleList(nn.Linear(hidden_dim, heads, bias=False) for _ in layers)
        for name, parameter in self.named_parameters():
            nn.init.zeros_(parameter) if name.endswith("bias") else nn.init.trunc_normal_(parameter, std=0.02)

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        self.taken(site.key_positions)
        distance = site.distance.to(torch.promote_types(scores.dtype, torch.float32))
        spread = distance.sign() * torch.log2(1 + 8 * distance.abs() / (self.window - 1)) / 3
        hidden = functional.relu(linear(self.hidden[site.layer], spread))
        return (scores + heads_first(16 * linear(self.out[site.layer], hidden).sigmoid())).to(scores.dtype)
