import math

import torch
from torch import Tensor, nn

from pe_zoo import Geometry, Site, register
from pe_zoo._knobs import number, true_or_false
from pe_zoo._positions import angles
from pe_zoo._rotation import Rotary, rotate_by


@register("fope")
class FoPE(Rotary):
    """Rotates query and key pairs by a mixture of frequencies each, and not at those too slow to have been trained.
    FoPE (Fourier position embedding), Hua et al. (2024), arXiv:2412.17739, §4.

        (a, b) → (a · c − b · s, a · s + b · c)
        c = Σ_j C[h, j, i] · cos(p · θ[j]),  s = Σ_j S[h, j, i] · sin(p · θ[j])

    θ[j] = base^(−2j/head_dim): the fastest and those that turn once within the training length. C and S start as one
    frequency for each pair plus noise. At most half of the pairs are rotated; the others are left without position.

    Args:
        gain: of the noise (Xavier, normal), at least 0; 0.3 in the official code's smallest model.
        learned: trains C and S; False as in the official code.
        base: above 0; 10000 as published.

    Departures: pairs without position are left as they are, as in the paper; the official code has c = s = 1 there,
    which doubles what they add to scores.
    """

    family = "rotation"
    shift_invariant = False
    cosines: Tensor
    sines: Tensor

    def __init__(self, geometry: Geometry, *, gain: float = 0.3, learned: bool = False, base: float = 10000.0) -> None:
        super().__init__(geometry, base)
        number("fope gain", gain, at_least=0)
        true_or_false("fope learned", learned)
        every = self.plain_frequencies()
        self.rotated_pairs = found = max(1, int((every >= 2 * math.pi / geometry.train_length).sum()))
        rotated = min(found, max(1, geometry.head_dim // 4))
        alone, step = torch.zeros(found, rotated), -(-found // rotated)
        alone[range(0, found, step), range(-(-found // step))] = 1.0
        shape = geometry.num_heads, found, rotated
        for name in ("cosines", "sines"):
            noise = [nn.init.xavier_normal_(torch.empty(shape), gain) for _ in range(geometry.num_layers)]
            start = alone + torch.stack(noise)
            if learned:
                self.register_parameter(name, nn.Parameter(start))
            else:
                self.register_buffer(name, start)

    def rotate(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        angle = angles(site.key_positions, self.frequencies(q.device)).unsqueeze(-3)
        cos = (angle.cos() @ self.cosines[site.layer].to(angle.dtype)).to(q.dtype)
        sin = (angle.sin() @ self.sines[site.layer].to(angle.dtype)).to(q.dtype)
        return rotate_by(q, cos[..., site.rows, :], sin[..., site.rows, :]), rotate_by(k, cos, sin)
