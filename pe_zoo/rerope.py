from torch import Tensor

from pe_zoo import Geometry, Site, register
from pe_zoo._knobs import number, whole
from pe_zoo._rotation import Regrouped, beyond


@register("rerope")
class ReRoPE(Regrouped):
    """Rotates as RoPE does up to a distance; keys further away count as being at that distance.
    ReRoPE (rectified RoPE), Su (2023), kexue.fm/archives/9708.

        scores[q, k] = q · rotate(k, −d · θ) / sqrt(head_dim),      θ[i] = base^(−2i/head_dim)
        d = q_p − k_p  where |q_p − k_p| < window,  else ±(window + leak · (|q_p − k_p| − window))

    Args:
        window: distance up to which this is RoPE, at least 1. None: an eighth of ``train_length``, rounded up, and at
            least 2: 512 of 4096 in the official code.
        leak: how much of a distance beyond the window counts, in [0, 1); 0 is ReRoPE, above it is Leaky ReRoPE.
        base: above 0; 10000 as published.

    Departures: in a bidirectional model keys ahead are treated alike; the official code is causal. Its logarithmic
    sharpening of queries is ``model.temperature=log_n``.
    """

    family = "rotation"
    extends = "rope"

    def __init__(
        self, geometry: Geometry, *, window: int | None = None, leak: float = 0.0, base: float = 10000.0
    ) -> None:
        super().__init__(geometry, base)
        self.window = whole(
            "rerope window", max(2, -(-geometry.train_length // 8)) if window is None else window, at_least=1
        )
        self.leak = number("rerope leak", leak, at_least=0, below=1)

    def far(self, site: Site) -> list[tuple[Tensor, Tensor, Tensor]]:
        offset = (1 - self.leak) * self.window
        queries, keys = self.leak * site.query_positions, self.leak * site.key_positions
        return beyond(self.window, offset, site, queries, keys)
