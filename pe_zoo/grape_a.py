import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._knobs import one_of
from pe_zoo._positions import slopes


@register("grape_a")
class GRAPEA(Encoder):
    """Biases scores linearly with distance, at a slope gated by the query and the key.
    GRAPE-A (additive GRAPE), Zhang et al. (2025), arXiv:2512.07805, §4.1.

        scores[h, q, k] −= omega[h] · slope[h] · (gate(query[h, q]) + gate(key[h, k])) · (q − k)
        gate(y) = softplus(direction[h] · y / sqrt(head_dim)),  a unit vector for queries and one for keys

    Slopes are ALiBi's; omega and both gates are learned, per layer and head.

    Args:
        gates: what gates the slope: ``query_key``, ``query`` or ``key``. All three are published.

    Departures: gate directions have unit length, as in the official code and unlike the paper's (4.6). As there, omega
    starts at 1 and stays positive by softplus. Its normalised queries and keys, GRAPE-AP and GRAPE-M are not included.
    """

    family = "relative term"
    shift_invariant = causal_only = True

    def __init__(self, geometry: Geometry, *, gates: str = "query_key") -> None:
        super().__init__(geometry)
        self.gates = one_of("grape_a gates", gates, ("query_key", "query", "key"))
        layers, heads, head_dim = geometry.num_layers, geometry.num_heads, geometry.head_dim
        self.omega = nn.Parameter(torch.full((layers, heads), math.log(math.expm1(1.0))))
        if "query" in gates:
            self.query_gate = nn.Parameter(torch.randn(layers, heads, head_dim) * head_dim**-0.5)
        if "key" in gates:
            self.key_gate = nn.Parameter(torch.randn(layers, heads, head_dim) * head_dim**-0.5)

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        dtype = torch.promote_types(scores.dtype, torch.float32)
        distance = site.distance.to(dtype).clamp(min=0)
        gate: Tensor | float = 0.0
        if "query" in self.gates:
            gate = gate + opening(self.query_gate[site.layer].to(dtype), q.to(dtype)).unsqueeze(-1)
        if "key" in self.gates:
            gate = gate + opening(self.key_gate[site.layer].to(dtype), k.to(dtype)).unsqueeze(-2)
        slope = functional.softplus(self.omega[site.layer].to(dtype)) * slopes(self.geometry.num_heads, 8.0, distance)
        return (scores - slope[:, None, None] * gate * distance).to(scores.dtype)


def opening(direction: Tensor, y: Tensor) -> Tensor:
    """Gates, ``(batch, heads, length)``, of queries or keys; ``direction`` is ``(heads, head_dim)``, not 0."""
    products = (y @ functional.normalize(direction, dim=-1).unsqueeze(-1)).squeeze(-1)
    return functional.softplus(products * y.shape[-1] ** -0.5)
