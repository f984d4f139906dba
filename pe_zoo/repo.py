import torch
from torch import Tensor, nn
from torch.nn import functional

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._knobs import number, whole
from pe_zoo._positions import geometric_frequencies
from pe_zoo._rotation import pairs_of, rotate_heads


@register("repo")
class RePo(Encoder):
    """Rotates query and key pairs by positions that each head reads off the layer's input.
    RePo (context re-positioning), Li et al. (2025), arXiv:2512.14391, §3.2.

        (a, b) → (a · cos − b · sin, a · sin + b · cos),      angle = position[h, t] · base^(−2i/head_dim)
        position[t] = w_out · (silu(w_gate · x[t]) ⊙ (w_content · x[t])),  one real number for each head

    The places of the tokens are not read at all: nothing but a causal mask tells this encoder their order. Each layer
    has its own parameters.

    Args:
        width: hidden units, at least 1. None: an eighth of model_dim, rounded up, as published.
        base: above 0; 10000. The official model has its trunk's, 500000.

    Departures: weights start with variance 1/fan-in, as this trunk's do. The paper leaves the first third of the layers
    as they were; here every layer of the layout carries it.
    """

    family = "content"
    shift_invariant = True

    def __init__(self, geometry: Geometry, *, width: int | None = None, base: float = 10000.0) -> None:
        super().__init__(geometry)
        layers, dim = geometry.num_layers, geometry.model_dim
        units = whole("repo width", -(-dim // 8) if width is None else width, at_least=1)
        number("repo base", base, above=0)
        self.base, self.pairs = base, pairs_of("repo", geometry)
        self.w_gate = nn.Parameter(torch.randn(layers, dim, units) * dim**-0.5)
        self.w_content = nn.Parameter(torch.randn(layers, dim, units) * dim**-0.5)
        self.w_out = nn.Parameter(torch.randn(layers, units, geometry.num_heads) * units**-0.5)

    def places(self, site: Site) -> Tensor:
        """The position of each key in each head, ``(batch, heads, key)``."""
        x = site.content("repo")
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        w_gate, w_content, w_out = (w[site.layer].to(x.dtype) for w in (self.w_gate, self.w_content, self.w_out))
        return ((functional.silu(x @ w_gate) * (x @ w_content)) @ w_out).mT

    def rotate(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        frequencies = geometric_frequencies(self.pairs, self.base, 2 * self.pairs, q.device)
        angle = self.places(site).double().unsqueeze(-1) * frequencies
        return rotate_heads(q, angle[..., site.rows, :]), rotate_heads(k, angle)
