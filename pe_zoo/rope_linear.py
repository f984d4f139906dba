import torch
from torch import Tensor

from pe_zoo import Geometry, register
from pe_zoo._knobs import number
from pe_zoo._rotation import Rotary


@register("rope_linear")
class LinearRoPE(Rotary):
    """Rotates as RoPE does, with positions interpolated: divided by a constant factor.
    Position interpolation, Chen et al. (2023), arXiv:2306.15595, §2.3.

        angle[i] = p / factor · base^(−2i/head_dim)

    Args:
        factor: length wanted over length trained at, at least 1 (1 is RoPE); 4 is the paper's step from 2048 to 8192.
        base: above 0; 10000 as published.

    Departures: the factor holds from the start of training; the paper fine-tunes a model pretrained with RoPE.
    """

    family = "rotation"
    extends = "rope"
    fine_tuned = True
    rope_type = "linear"

    def __init__(self, geometry: Geometry, *, factor: float = 4.0, base: float = 10000.0) -> None:
        super().__init__(geometry, base)
        self.factor = number("rope_linear factor", factor, at_least=1)

    def frequencies(self, device: torch.device | None = None) -> Tensor:
        return self.plain_frequencies(device) / self.factor
