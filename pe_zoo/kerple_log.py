import torch
from torch import Tensor, nn

from pe_zoo import Encoder, Geometry, Site, register


@register("kerple_log")
class KERPLELog(Encoder):
    """Biases scores by a logarithmic kernel of distance with two learned parameters per head.
    KERPLE, Chi et al. (2022), arXiv:2205.09921, §4.

        scores[h, q, k] −= amplitude[h] · log(1 + rate[h] · |q − k|),      amplitude, rate > 0

    Layers share both parameters, as in the official code. A bidirectional model cannot tell left from right.

    Departures: the official code clamps both parameters at 0.01 in every forward pass; here they are exponentials of
    learned numbers. They start as there: amplitude uniform in (0, 2), rate in (0, 1), neither below 0.01.
    """

    family = "score bias"
    shift_invariant = static_bias = distance_bias = True

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.log_amplitude = nn.Parameter((2 * torch.rand(geometry.num_heads)).clamp(min=0.01).log())
        self.log_rate = nn.Parameter(torch.rand(geometry.num_heads).clamp(min=0.01).log())

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        distance = site.distance.to(torch.promote_types(scores.dtype, torch.float32)).abs()
        amplitude = self.log_amplitude.to(distance.dtype).exp()[:, None, None]
        rate = self.log_rate.to(distance.dtype).exp()[:, None, None]
        return (scores - amplitude * torch.log1p(rate * distance)).to(scores.dtype)
