import torch
from torch import Tensor, nn
from torch.nn import functional

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._knobs import whole
from pe_zoo._layers import look_back, unit_length

CHUNK = 64
"""Keys handled at once. It changes cost, not results."""


@register("path")
class PaTH(Encoder):
    """Transforms keys by accumulated, data-dependent Householder-like reflections, one per token up to the query.
    PaTH, Yang et al. (2025), arXiv:2505.16381, §2.

        scores[q, k] = q · H[q] H[q−1] … H[k+1] k / sqrt(head_dim),      H[t] = 1 − beta[t] · w[t] w[t]ᵀ
        w = silu(convolution(x @ down @ up)), of length 1 in each head;   beta = 2 · sigmoid(x @ strength + offset)

    Positions are not read. The short causal convolution is a positional signal of its own: it lets a token see its
    nearest predecessors. Every layer has its own parameters; heads share ``down``. Costs length² · head_dim a head, as
    plain attention does, but in length/64 consecutive steps.

    Args:
        rank: width between ``down`` and ``up``, at least 1; 32 as in the official code.
        conv_width: tokens the convolution sees, its own included, at least 1; 3 as in the official code.

    Departures: weights start with variance 1/fan-in, as this trunk's do. Products are computed at least in float32.
    """

    family = "content"
    shift_invariant = causal_only = True

    def __init__(self, geometry: Geometry, *, rank: int = 32, conv_width: int = 3) -> None:
        super().__init__(geometry)
        layers, heads, dim = geometry.num_layers, geometry.num_heads, geometry.model_dim
        width = heads * geometry.head_dim
        whole("path rank", rank, at_least=1)
        whole("path conv_width", conv_width, at_least=1)
        self.down = nn.Parameter(torch.randn(layers, dim, rank) * dim**-0.5)
        self.up = nn.Parameter(torch.randn(layers, rank, width) * rank**-0.5)
        self.kernel = nn.Parameter(torch.randn(layers, width, conv_width) * conv_width**-0.5)
        self.strength = nn.Parameter(torch.randn(layers, dim, heads) * dim**-0.5)
        self.offset = nn.Parameter(torch.zeros(layers, heads))

    def reflections(self, site: Site, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Of each head and token: w, ``(batch, heads, key, head_dim)``, and beta, ``(batch, heads, key)``."""
        layer, x = site.layer, site.content("path").to(dtype)
        w = x @ self.down[layer].to(dtype) @ self.up[layer].to(dtype)
        w = functional.silu(look_back(w, self.kernel[layer].to(dtype)))
        w = unit_length(w.unflatten(-1, (self.geometry.num_heads, -1)).transpose(-3, -2))
        beta = 2 * (x @ self.strength[layer].to(dtype) + self.offset[layer].to(dtype)).sigmoid()
        return w, beta.mT

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        dtype = torch.promote_types(scores.dtype, torch.float32)
        w, beta = self.reflections(site, dtype)
        lost = lost_on_the_way(q.to(dtype), k.to(dtype), w, beta, site.rows)
        return (scores - lost * self.geometry.head_dim**-0.5).to(scores.dtype)


def lost_on_the_way(q: Tensor, k: Tensor, w: Tensor, beta: Tensor, rows: slice, chunk: int = CHUNK) -> Tensor:
    """What the product takes away: q · k − q · H[q] … H[k+1] k; 0 where the key is the query's own or ahead.

    With ``taken[t, k]`` the share of w[t] that token t takes off the key,
    ``taken[t, k] = beta[t] · (w[t] · k − Σ_{k < s < t} w[t] · w[s] taken[s, k])``: a triangular system. It is
    solved within chunks; from chunk to chunk, the last first, each query is carried back towards the keys.

    Args:
        q: ``(batch, heads, query, head_dim)``.
        k: ``(batch, heads, key, head_dim)``.
        w: of length 1, as k.
        beta: ``(batch, heads, key)``.
        rows: which rows of the sequence the queries are.
        chunk: keys solved for at once.
    """
    length, dim = k.shape[-2:]
    place = torch.arange(length, device=k.device)
    chunk = min(chunk, length)
    k, w, bw = (
        functional.pad(t, (0, 0, 0, -length % chunk)).unflatten(-2, (-1, chunk)) for t in (k, w, beta.unsqueeze(-1) * w)
    )
    taken, carried = torch.linalg.solve_triangular(
        (bw @ w.mT).tril(-1), torch.cat([(bw @ k.mT).tril(-1), bw], -1), upper=False, unitriangular=True
    ).split([chunk, dim], -1)
    lost = torch.zeros_like(q)
    columns = []
    for index in reversed(range(k.shape[-3])):
        start = index * chunk
        behind = place[rows, None] >= torch.arange(start, start + chunk, device=k.device)
        along = ((q - lost) @ w[..., index, :, :].mT) * behind
        columns.append(lost @ k[..., index, :, :].mT + along @ taken[..., index, :, :])
        lost = lost + along @ carried[..., index, :, :]
    return torch.cat(columns[::-1], -1)[..., :length]
