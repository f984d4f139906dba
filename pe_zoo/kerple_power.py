import torch
from torch import Tensor, nn

from pe_zoo import Encoder, Geometry, Site, register


@register("kerple_power")
class KERPLEPower(Encoder):
    """Biases scores by a power kernel of distance with two learned parameters per head.
    KERPLE, Chi et al. (2022), arXiv:2205.09921, §4.

        scores[h, q, k] −= amplitude[h] · |q − k|^exponent[h],      amplitude > 0,  0 < exponent < 2

    With exponent 1 and fixed amplitudes it is ALiBi. Layers share both parameters, as in the official code. A
    bidirectional model cannot tell left from right.

    Departures: the official code clamps both parameters in every forward pass, from 0.01 and, the exponent, up to 2;
    here the amplitude is the exponential of a learned number, and the exponent twice the sigmoid of one. They start as
    there: amplitude uniform in (0, 1), exponent in (0, 2), neither below 0.01.
    """

    family = "score bias"
    shift_invariant = static_bias = distance_bias = True

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.log_amplitude = nn.Parameter(torch.rand(geometry.num_heads).clamp(min=0.01).log())
        # Half of the exponent; the upper limit keeps the logit finite where 1 is drawn but for rounding.
        self.exponent_logit = nn.Parameter(torch.rand(geometry.num_heads).clamp(0.005, 1 - 1e-6).logit())

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        distance = site.distance.to(torch.promote_types(scores.dtype, torch.float32)).abs()
        amplitude = self.log_amplitude.to(distance.dtype).exp()[:, None, None]
        exponent = 2 * self.exponent_logit.to(distance.dtype).sigmoid()[:, None, None]
        return (scores - amplitude * distance**exponent).to(scores.dtype)
