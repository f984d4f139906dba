"""LeRoPE: RoPE with learned frequencies."""

import torch
from torch import Tensor, nn

from pe_zoo._encoder import Encoder, Geometry, Site
from pe_zoo._knobs import number, true_or_false
from pe_zoo._positions import geometric_frequencies
from pe_zoo._registry import register
from pe_zoo._rotation import pairs_of, rotate_both


@register("learned_rope")
class LearnedRoPE(Encoder):
    """Rotates query and key pairs at learned frequencies, initialised to those of RoPE.
    LeRoPE, Karypis (2026), arXiv:2607.10134, on the rotation of Su et al. (2021), arXiv:2104.09864, §3.2.

        angle[i] = p · base^(−2i/head_dim) · exp(log_scale[i]),      log_scale = 0 at the start

    All heads share the frequencies.

    Args:
        per_layer: True gives each layer frequencies of its own; False, one set for all.
        base: of the frequencies at the start, above 0; 10000 as in RoPE.

    Departures: written without code of the authors. Whether layers share their frequencies is a knob, and ``log_scale``
    learns at the rate of every other parameter.
    """

    shift_invariant = True
    direction_aware = True

    def __init__(self, geometry: Geometry, *, per_layer: bool = False, base: float = 10000.0) -> None:
        super().__init__(geometry)
        self.pairs = pairs_of("learned_rope", geometry)
        true_or_false("learned_rope per_layer", per_layer)
        self.base = number("learned_rope base", base, above=0)
        self.log_scale = nn.Parameter(torch.zeros(geometry.num_layers if per_layer else 1, self.pairs))

    def frequencies(self, layer: int, device: torch.device | None = None) -> Tensor:
        """Radians per position of each pair in a layer, ``(pairs,)`` float64."""
        log_scale = self.log_scale[layer if len(self.log_scale) > 1 else 0].double()
        return geometric_frequencies(self.pairs, self.base, self.geometry.head_dim, device) * log_scale.exp()

    def rotate(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        return rotate_both(q, k, site, self.frequencies(site.layer, q.device))
