import math

import torch
from torch import Tensor, nn

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._knobs import number
from pe_zoo._positions import geometric_frequencies
from pe_zoo._rotation import pairs_of, rotate_by


@register("mixed_rope")
class MixedRoPE(Encoder):
    """Rotates each pair by a learned mixture of row and column, so that it may wave in any direction.
    RoPE-Mixed, Heo et al. (2024), arXiv:2403.13298, §3.2.

        angle[l, h, i] = row · by_row[l, h, i] + column · by_column[l, h, i]

    Each layer and head learns its frequencies. At the start half of a head's pairs wave in one random direction and
    half at right angles to it, at frequencies base^(−4i/head_dim).

    Args:
        base: of the frequencies at the start, above 0; 10 as published.

    Departures: none. Marks outside the grid, which the paper leaves alone, stand at (0, 0), where nothing rotates.
    """

    axes = 2
    family = "rotation"
    shift_invariant = direction_aware = True

    def __init__(self, geometry: Geometry, *, base: float = 10.0) -> None:
        super().__init__(geometry)
        quarter = pairs_of("mixed_rope", geometry, axes=2)
        size = geometric_frequencies(quarter, number("mixed_rope base", base, above=0), 2 * quarter).float()
        direction = 2 * math.pi * torch.rand(geometry.num_layers, geometry.num_heads, 1)
        directions = (direction, direction + math.pi / 2)
        self.by_column = nn.Parameter(torch.cat([size * angle.cos() for angle in directions], -1))
        self.by_row = nn.Parameter(torch.cat([size * angle.sin() for angle in directions], -1))

    def rotate(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        row, column = (along.double()[:, None, :, None] for along in self.coordinates(site.key_positions))
        by_row, by_column = (table[site.layer].double().unsqueeze(1) for table in (self.by_row, self.by_column))
        angle = row * by_row + column * by_column
        cos, sin = angle.cos().to(q.dtype), angle.sin().to(q.dtype)
        return rotate_by(q, cos[:, :, site.rows], sin[:, :, site.rows]), rotate_by(k, cos, sin)
