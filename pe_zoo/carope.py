import torch
from torch import Tensor, nn
from torch.nn import functional

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._rotation import pairs_of, rotate_heads


@register("carope")
class CARoPE(Encoder):
    """Rotates query and key pairs by powers of a base that every token sets for each head, summed over the tokens.
    CARoPE (context-aware RoPE), Veisi et al. (2025), arXiv:2507.23083.

        (a, b) → (a · cos − b · sin, a · sin + b · cos),      angle[p, i] = Σ_{t ≤ p} base[t, h]^i,  i = 1 … pairs
        base[t, h] = 1 / (1 + softplus(weight[h] · x[t]))

    With a base of 10000^(−2/head_dim) for every token it is RoPE, one pair slower. Positions are not read. Each layer
    has its own weights.

    Departures: x is the layer's input. Weights start with variance 1/fan-in, as this trunk's do. Sums are in float64.
    """

    family = "content"
    shift_invariant = causal_only = True

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.pairs = pairs_of("carope", geometry)
        dim = geometry.model_dim
        self.weight = nn.Parameter(torch.randn(geometry.num_layers, dim, geometry.num_heads) * dim**-0.5)

    def rotate(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        x = site.content("carope")
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        base = 1 / (1 + functional.softplus(x @ self.weight[site.layer].to(x.dtype)))
        power = torch.arange(1, self.pairs + 1, dtype=torch.float64, device=x.device)
        angle = (base.mT.double().unsqueeze(-1) ** power).cumsum(-2)  # (batch, heads, key, pairs)
        return rotate_heads(q, angle[..., site.rows, :]), rotate_heads(k, angle)
