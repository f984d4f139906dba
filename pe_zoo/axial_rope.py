import torch
from torch import Tensor

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._knobs import number
from pe_zoo._positions import angles, at, geometric_frequencies
from pe_zoo._rotation import pairs_of, rotate_pairs


@register("axial_rope")
class AxialRoPE(Encoder):
    """Rotates one half of each head's pairs by the column, the other half by the row.
    RoPE-Axial, Heo et al. (2024), arXiv:2403.13298, §3.2.

        angle = (column · frequency, row · frequency),      frequency[i] = base^(−4i/head_dim)

    Args:
        base: above 0; 100 as published, since a side of an image has fewer places than a text.

    Departures: none. Marks outside the grid, which the paper leaves alone, stand at (0, 0), where nothing rotates.
    """

    axes = 2
    family = "rotation"
    shift_invariant = direction_aware = True

    def __init__(self, geometry: Geometry, *, base: float = 100.0) -> None:
        super().__init__(geometry)
        self.quarter = pairs_of("axial_rope", geometry, axes=2)
        self.base = number("axial_rope base", base, above=0)

    def rotate(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        row, column = self.coordinates(site.key_positions)
        frequencies = geometric_frequencies(self.quarter, self.base, 2 * self.quarter, q.device)
        angle = torch.cat([angles(column, frequencies), angles(row, frequencies)], -1)
        return rotate_pairs(q, at(angle, site.rows)), rotate_pairs(k, angle)
