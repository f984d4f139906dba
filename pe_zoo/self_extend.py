import math

from torch import Tensor

from pe_zoo import Geometry, Site, register
from pe_zoo._knobs import number, whole
from pe_zoo._rotation import Regrouped, beyond


@register("self_extend")
class SelfExtend(Regrouped):
    """Rotates as RoPE does among neighbours; further away, positions count in groups.
    Self-Extend, Jin et al. (2024), arXiv:2401.01325, §3.

        scores[q, k] = rotate(q, a · θ) · rotate(k, b · θ) / sqrt(head_dim),      θ[i] = base^(−2i/head_dim)
        a, b = q_p, k_p                                               where |q_p − k_p| < window
        a, b = ⌊q_p/group⌋ ± (window − ⌊window/group⌋), ⌊k_p/group⌋     elsewhere

    Groups are as large as they must be for no distance to exceed those trained:
    ``group = ⌈(factor · train_length − window) / (train_length − window)⌉``.

    Args:
        factor: length wanted over length trained at, at least 1 (1 is RoPE); 4 is the paper's step from 4096 to 16384.
        window: distance up to which this is RoPE, at least 1 and below ``train_length``. None: a quarter of
            ``train_length``, rounded up: 1024 of 4096 as published.
        base: above 0; 10000 as published.

    Departures: the factor holds from the start of training; the paper puts this into a model trained with RoPE, and
    trains no more. In a bidirectional model keys ahead are treated alike. Published code leaves texts shorter than the
    window alone, where this does too.
    """

    family = "rotation"
    extends = "rope"
    shift_invariant = False

    def __init__(
        self, geometry: Geometry, *, factor: float = 4.0, window: int | None = None, base: float = 10000.0
    ) -> None:
        super().__init__(geometry, base)
        self.factor = number("self_extend factor", factor, at_least=1)
        length = geometry.train_length
        self.window = whole("self_extend window", -(-length // 4) if window is None else window, at_least=1)
        if self.window >= length and factor > 1:
            raise ValueError(f"self_extend window={self.window} must be below train_length={length}")
        self.group = math.ceil((factor * length - self.window) / (length - self.window) - 1e-9) if factor > 1 else 1

    def far(self, site: Site) -> list[tuple[Tensor, Tensor, Tensor]]:
        if self.group == 1:
            return []
        offset = self.window - self.window // self.group
        queries, keys = ((positions / self.group).floor() for positions in (site.query_positions, site.key_positions))
        return beyond(self.window, offset, site, queries, keys)
