from bisect import bisect_left

import torch
from torch import Tensor, nn
from torch.nn import functional

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._knobs import number

CHUNK = 16
"""Keys handled at once. It changes cost, not results."""


@register("wall")
class Wall(Encoder):
    """Lets each channel of a product fade by forget gates of its own, accumulated from the key to the query.
    Wall attention, Averbuch and Pai (2026), github.com/tilde-research/wall-attention-release.

        scores[q, k] = Σ_n q[n] · k[n] · Π_{t = k+1 … q} gate[t, n] / sqrt(head_dim)
        gate[t] = sigmoid(weight · x[t] + bias),  one for each channel of each head

    FoX has one gate a head, and adds its logarithm to the score. Positions are not read. Each layer has its own gates.

    Args:
        bias: where gates start, before the sigmoid; 8 as published, nearly open.

    Departures: weights start at standard deviation 0.02. The optional second gate, that of FoX, is not included. Sums
    are in float64; no exponent is above 0, so that nothing overflows.
    """

    family = "content"
    shift_invariant = causal_only = True

    def __init__(self, geometry: Geometry, *, bias: float = 8.0) -> None:
        super().__init__(geometry)
        number("wall bias", bias)
        layers, width = geometry.num_layers, geometry.num_heads * geometry.head_dim
        self.weight = nn.Parameter(torch.empty(layers, width, geometry.model_dim))
        self.bias = nn.Parameter(torch.full((layers, width), bias))
        nn.init.normal_(self.weight, std=0.02)

    def log_gates(self, site: Site) -> Tensor:
        """The logarithm of every gate, ``(batch, heads, key, head_dim)``, at most 0."""
        x = site.content("wall")
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        gates = functional.linear(x, self.weight[site.layer].to(x.dtype), self.bias[site.layer].to(x.dtype))
        return functional.logsigmoid(gates).unflatten(-1, (self.geometry.num_heads, -1)).transpose(-3, -2)

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        dtype = torch.promote_types(scores.dtype, torch.float32)
        sums = self.log_gates(site).double().cumsum(-2)
        faded = fading_products(q.to(dtype), k.to(dtype), sums, site.rows)
        return (faded * self.geometry.head_dim**-0.5).to(scores.dtype)


def fading_products(q: Tensor, k: Tensor, sums: Tensor, rows: slice) -> Tensor:
    """Return Σ_n q[n] · k[n] · exp(sums[query, n] − sums[key, n]), as if the exponent were 0 where the key is ahead.

    Queries behind a chunk of keys meet its keys at its last one: to there the keys fade, from there the queries.

    Args:
        q: ``(batch, heads, query, head_dim)``.
        k: ``(batch, heads, key, head_dim)``.
        sums: falling along the keys, as k.
        rows: which rows of the sequence the queries are.
    """
    of_queries, columns = sums[..., rows, :], []
    places = range(k.shape[-2])[rows]
    for start in range(0, k.shape[-2], CHUNK):
        keys, of_keys = k[..., start : start + CHUNK, :], sums[..., start : start + CHUNK, :]
        last = of_keys[..., -1:, :]
        fading = (of_queries - last).clamp(max=0).exp().to(q.dtype)
        far = (q * fading) @ (keys * (last - of_keys).exp().to(q.dtype)).mT
        first, after = (bisect_left(places, edge) for edge in (start, start + CHUNK))
        among = (of_queries[..., first:after, None, :] - of_keys[..., None, :, :]).clamp(max=0).exp().to(q.dtype)
        near = torch.einsum("...qn,...kn,...qkn->...qk", q[..., first:after, :], keys, among)
        columns.append(torch.cat([far[..., :first, :], near, far[..., after:, :]], -2))
    return torch.cat(columns, -1)
