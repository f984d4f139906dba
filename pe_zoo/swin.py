import torch
from torch import Tensor, nn

from pe_zoo import Encoder, Geometry, Site, Unsupported, register
from pe_zoo._knobs import whole
from pe_zoo._positions import nearest
from pe_zoo._tables import heads_first, known_to_hold


@register("swin")
class Swin(Encoder):
    """Biases scores by a learned value per head for each pair of distances, down and across.
    Relative position bias of Swin Transformer, Liu et al. (2021), arXiv:2103.14030, §3.2.

        scores[h, q, k] += table[row[q] − row[k], column[q] − column[k], h]

    Each layer has its own table. One for a window of M × M places has (2M − 1)² entries for each head.

    Args:
        window: side of the window that the table is for, at least 1: places run from 0 to ``window`` − 1, and others
            are unsupported. 64, for grids of up to 63 a side; 7 in the paper, whose attention never leaves a window.

    Departures: attention sees the whole grid; the paper's is cut into windows, which shift from layer to layer. A
    fractional distance takes the value of the nearest whole one.
    """

    axes = 2
    family = "score bias"
    shift_invariant = direction_aware = static_bias = distance_bias = True

    def __init__(self, geometry: Geometry, *, window: int = 64) -> None:
        super().__init__(geometry)
        self.max_length = whole("swin window", window, at_least=1)
        side = 2 * window - 1
        self.table = nn.Parameter(torch.empty(geometry.num_layers, side, side, geometry.num_heads))
        nn.init.trunc_normal_(self.table, std=0.02)

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        last = (self.max_length or 1) - 1
        places = self.taken(site.key_positions)
        inside = ((places >= 0) & (places <= last)).all(-1)
        if not known_to_hold(inside):
            given = f"places from {places.min().item():g} to {places.max().item():g} were given"
            raise Unsupported(f"swin has values for places 0 to {last}; {given}. Set window higher before training")
        row, column = (nearest(site.distance).clamp(-last, last).long() + last).unbind(-1)
        bias = heads_first(self.table[site.layer][row, column])
        # Where a place outside cannot be seen (under vmap), its scores are NaN.
        return torch.where(inside[:, None, None], scores + bias.to(scores.dtype), torch.nan)
