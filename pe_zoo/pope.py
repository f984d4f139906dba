import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._knobs import number, one_of
from pe_zoo._positions import angles, geometric_frequencies


@register("pope")
class PoPE(Encoder):
    """Represents queries and keys in polar coordinates: content sets magnitudes, position sets angles.
    PoPE (polar coordinate position embedding), Gopalakrishnan et al. (2025), arXiv:2509.10534, §3.

        scores[q, k] = Σ_c softplus(q[c]) · softplus(k[c]) · cos(angle[c]) / sqrt(head_dim)
        angle[c] = (k − q) · base^(−c/head_dim) + phase[c]

    Queries and keys become twice as wide. Each layer, head and dimension learns its phase; while all are 0, a key ahead
    counts as one behind.

    Args:
        base: above 0; 10000 as published.
        phase: where the learned phases start, in [−2π, 0]: ``zero``, or ``uniform`` over that range.

    Departures: the published phase is clamped to [−2π, 0]; here it is wrapped into that range. Every layer has its own
    phases; x-transformers shares one set. Angles are computed in float64, magnitudes at least in float32.
    """

    family = "rotation"
    shift_invariant = direction_aware = True

    def __init__(self, geometry: Geometry, *, base: float = 10000.0, phase: str = "zero") -> None:
        super().__init__(geometry)
        self.base = number("pope base", base, above=0)
        one_of("pope phase", phase, ("zero", "uniform"))
        self.turns = nn.Parameter(torch.zeros(geometry.num_layers, geometry.num_heads, geometry.head_dim))
        if phase == "uniform":
            nn.init.uniform_(self.turns, -2 * math.pi, 0.0)

    def phases(self, layer: int) -> Tensor:
        """``(heads, head_dim)`` float64, radians in (−2π, 0]."""
        return -torch.remainder(-self.turns[layer].double(), 2 * math.pi)

    def rotate(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        head_dim = self.geometry.head_dim
        frequencies = geometric_frequencies(head_dim, self.base, 2 * head_dim, q.device)
        query_angle, key_angle = (
            angles(positions, frequencies).unsqueeze(-3) for positions in (site.query_positions, site.key_positions)
        )
        return polar(q, query_angle), polar(k, key_angle + self.phases(site.layer).unsqueeze(-2))


def polar(x: Tensor, angle: Tensor) -> Tensor:
    """Dimensions as magnitudes at angles, ``(…, head_dim)`` to ``(…, 2 · head_dim)``: all cosines, then all sines."""
    magnitude = functional.softplus(x.to(torch.promote_types(x.dtype, torch.float32)))
    cos, sin = angle.cos().to(magnitude.dtype), angle.sin().to(magnitude.dtype)
    return torch.cat([magnitude * cos, magnitude * sin], -1).to(x.dtype)
