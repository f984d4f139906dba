from pe_zoo import Geometry, register
from pe_zoo._knobs import number
from pe_zoo._rotation import Rotary


@register("p_rope")
class PRoPE(Rotary):
    """Rotates only RoPE's highest frequencies; the pairs of the lowest carry no position, only content.
    p-RoPE, Barbero et al. (2024), arXiv:2410.06205, §6.

        angle[i] = p · base^(−2i/head_dim) for the first fraction of the pairs i, 0 for the others

    Not the partial RoPE of GPT-J and GPT-NeoX, which spreads all frequencies over fewer pairs (``rope`` with
    ``fraction`` below 1).

    Args:
        fraction: share of the pairs that are rotated, the paper's p, in (0, 1], rounded down to whole pairs but at
            least one; 0.75 as published, 1 is RoPE.
        base: above 0; 10000 as published.

    Departures: none. Angles are computed in float64.
    """

    family = "rotation"
    relative_of = "rope"

    def __init__(self, geometry: Geometry, *, fraction: float = 0.75, base: float = 10000.0) -> None:
        super().__init__(geometry, base)
        number("p_rope fraction", fraction, above=0, at_most=1)
        self.rotated_pairs = max(1, int(fraction * self.pairs + 1e-9))  # 15/22 of 22 pairs is 15, not 14.999…
