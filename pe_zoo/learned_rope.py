import torch
from torch import Tensor, nn

from pe_zoo import Geometry, Site, register
from pe_zoo._knobs import true_or_false
from pe_zoo._rotation import Rotary, rotate_both


@register("learned_rope")
class LearnedRoPE(Rotary):
    """Rotates query and key pairs at learned frequencies, initialised to those of RoPE.
    LeRoPE, Karypis (2026), arXiv:2607.10134, on the rotation of Su et al. (2021), arXiv:2104.09864, §3.2.

        angle[i] = p · base^(−2i/head_dim) · exp(log_scale[i]),      log_scale = 0 at the start

    All heads share the frequencies.

    Args:
        per_layer: True gives each layer frequencies of its own; False, one set for all.
        base: of the frequencies at the start, above 0; 10000 as in RoPE.

    Departures: written without code of the authors; ``log_scale`` learns at the rate of every other parameter.
    """

    family = "rotation"

    def __init__(self, geometry: Geometry, *, per_layer: bool = False, base: float = 10000.0) -> None:
        super().__init__(geometry, base)
        true_or_false("learned_rope per_layer", per_layer)
        self.log_scale = nn.Parameter(torch.zeros(geometry.num_layers if per_layer else 1, self.pairs))

    def frequencies(self, device: torch.device | None = None, layer: int = 0) -> Tensor:
        log_scale = self.log_scale[layer if len(self.log_scale) > 1 else 0].double()
        return self.plain_frequencies(device) * log_scale.exp()

    def rotate(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        return rotate_both(q, k, site, self.frequencies(q.device, site.layer))
