import math

import torch
from torch import Tensor, nn

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._knobs import number, true_or_false
from pe_zoo._positions import geometric_frequencies
from pe_zoo._rotation import pairs_of, rotate_heads


@register("grape_m")
class GRAPEM(Encoder):
    """Rotates query and key pairs at learned frequencies by a phase that grows with each token's own step.
    GRAPE-M (multiplicative GRAPE), contextual form, Zhang et al. (2025), arXiv:2512.07805, §3.

        (a, b) → (a · cos − b · sin, a · sin + b · cos),      angle[p] = frequency[i] · Σ_{t < p} step[t]
        step[t] = sigmoid((weight · x[t] + bias) / 16)

    Frequencies start as RoPE's and are shared by the heads. Positions are not read. Each layer has its own parameters.
    Without the input it is ``learned_rope``.

    Args:
        per_head: gives every head its own steps; False as in the official configurations.
        base: of the frequencies at the start, above 0; 10000 as published.

    Departures: none from the official code, whose steps are sigmoids where the text has softplus, and start at .39.
    """

    family = "content"
    shift_invariant = causal_only = True

    def __init__(self, geometry: Geometry, *, per_head: bool = False, base: float = 10000.0) -> None:
        super().__init__(geometry)
        layers = geometry.num_layers
        true_or_false("grape_m per_head", per_head)
        number("grape_m base", base, above=0)
        frequencies = geometric_frequencies(pairs_of("grape_m", geometry), base, geometry.head_dim)
        self.log_frequency = nn.Parameter(frequencies.log().float().repeat(layers, 1))
        steps = geometry.num_heads if per_head else 1
        self.weight = nn.Parameter(torch.zeros(layers, geometry.model_dim, steps))
        self.bias = nn.Parameter(torch.full((layers, steps), math.log(math.expm1(1e-3))))

    def rotate(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        x = site.content("grape_m")
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        step = ((x @ self.weight[site.layer].to(x.dtype) + self.bias[site.layer].to(x.dtype)) / 16).sigmoid().double()
        phase = (step.cumsum(-2) - step).mT.unsqueeze(-1)  # (batch, heads or 1, key, 1)
        angle = phase.expand(-1, q.shape[1], -1, -1) * self.log_frequency[site.layer].double().exp()
        return rotate_heads(q, angle[..., site.rows, :]), rotate_heads(k, angle)
