import torch
from torch import Tensor

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._knobs import number
from pe_zoo._positions import slopes


@register("alibi_2d")
class ALiBi2D(Encoder):
    """Biases scores by a linear penalty on the Euclidean distance in the grid, with a slope per head.
    2D-ALiBi, Fuller et al. (2023), arXiv:2311.00566.

        scores[h, q, k] −= slope[h] · ‖place[q] − place[k]‖,      slope[h] = 2^(−max_bias · h / heads),  h = 1 … heads

    Head counts that are no power of two get ALiBi's slopes, as in the official code.

    Args:
        max_bias: above 0; the gentlest slope is 2^(−max_bias); 8 as published.

    Departures: none.
    """

    axes = 2
    family = "score bias"
    shift_invariant = static_bias = distance_bias = True

    def __init__(self, geometry: Geometry, *, max_bias: float = 8.0) -> None:
        super().__init__(geometry)
        self.max_bias = number("alibi_2d max_bias", max_bias, above=0)

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        self.taken(site.key_positions)
        # At least float32, whatever the scores are: bfloat16 cannot hold distances above 256.
        distance = site.distance.to(torch.promote_types(scores.dtype, torch.float32)).norm(dim=-1)
        slope = slopes(self.geometry.num_heads, self.max_bias, distance)[:, None, None]
        return (scores - slope * distance).to(scores.dtype)
