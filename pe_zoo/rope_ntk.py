import torch
from torch import Tensor

from pe_zoo import Geometry, register
from pe_zoo._knobs import number
from pe_zoo._positions import geometric_frequencies
from pe_zoo._rotation import Rotary


@register("rope_ntk")
class NTKRoPE(Rotary):
    """Rotates as RoPE does, at a raised base: interpolates the lowest frequency by a factor and keeps the highest.
    "NTK-aware" interpolation, Peng et al. (2023), arXiv:2309.00071, §3.1.

        angle[i] = p · base^(−2i/head_dim) · factor^(−2i/(head_dim − 2))

    which is RoPE with the base base · factor^(head_dim/(head_dim − 2)).

    Args:
        factor: length wanted over length trained at, at least 1 (1 is RoPE). The method names no value; 4 here, as in
            ``rope_linear``.
        base: the base before it is raised, above 0; 10000 as published.

    Departures: the factor holds from the start of training; the method was made for a model already trained with RoPE.
    """

    family = "rotation"
    extends = "rope"

    def __init__(self, geometry: Geometry, *, factor: float = 4.0, base: float = 10000.0) -> None:
        super().__init__(geometry, base)
        self.factor = number("rope_ntk factor", factor, at_least=1)

    def frequencies(self, device: torch.device | None = None) -> Tensor:
        # The formula leaves the first pair alone, and with head_dim 2 there is no other.
        slower = geometric_frequencies(self.pairs, self.factor, max(self.geometry.head_dim - 2, 1), device)
        return self.plain_frequencies(device) * slower
