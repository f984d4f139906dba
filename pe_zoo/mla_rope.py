import torch
from torch import Tensor, nn

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._knobs import number, one_of, whole
from pe_zoo._positions import angles, geometric_frequencies
from pe_zoo._rotation import rotate_pairs


@register("mla_rope")
class MLARoPE(Encoder):
    """Widens queries and keys by a rotated part of their own, and leaves the rest without position.
    Decoupled RoPE, part of multi-head latent attention (MLA): DeepSeek-AI (2024), arXiv:2405.04434, §2.1.3.

        scores[q, k] = (q · k + rotate(w_q · x[q], q_p · θ) · rotate(w_k · x[k], k_p · θ)) / sqrt(scale)

    θ[i] = base^(−2i/rotary_dim). The rotated part is projected from the layer's input; that of keys is the same for all
    heads. Each layer has its own projections.

    Args:
        rotary_dim: width of the rotated part, even, at least 2. None: half of head_dim, rounded up to even, as
            published (64 beside 128).
        scale: ``joint``, head_dim + rotary_dim as published, or ``head``, head_dim as in other encoders.
        base: above 0; 10000 as published.

    Departures: both parts are projected from the layer's input, not from compressed latents, which save memory and are
    no matter of position. Weights start with variance 1/fan-in, as this trunk's do.
    """

    family = "content"
    shift_invariant = direction_aware = True

    def __init__(
        self, geometry: Geometry, *, rotary_dim: int | None = None, scale: str = "joint", base: float = 10000.0
    ) -> None:
        super().__init__(geometry)
        layers, heads, dim = geometry.num_layers, geometry.num_heads, geometry.model_dim
        width = 2 * -(-geometry.head_dim // 4) if rotary_dim is None else rotary_dim
        if whole("mla_rope rotary_dim", width, at_least=2) % 2:
            raise ValueError(f"mla_rope rotary_dim={width} must be even: pairs are rotated")
        self.rotary_dim = width
        self.scale = one_of("mla_rope scale", scale, ("joint", "head"))
        self.base = number("mla_rope base", base, above=0)
        self.w_q = nn.Parameter(torch.randn(layers, heads, width, dim) * dim**-0.5)
        self.w_k = nn.Parameter(torch.randn(layers, width, dim) * dim**-0.5)

    def rotate(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        x = site.content("mla_rope")
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        w_q, w_k = self.w_q[site.layer].to(x.dtype), self.w_k[site.layer].to(x.dtype)
        frequencies = geometric_frequencies(self.rotary_dim // 2, self.base, self.rotary_dim, q.device)
        angle = angles(site.key_positions, frequencies)
        of_q = rotate_pairs(x[:, None, site.rows] @ w_q.mT, angle[..., site.rows, :])
        of_k = rotate_pairs((x @ w_k.mT).unsqueeze(1), angle).expand(-1, k.shape[1], -1, -1)
        q, k = torch.cat([q, of_q.to(q.dtype)], -1), torch.cat([k, of_k.to(k.dtype)], -1)
        if self.scale == "joint":
            # Scores are divided by sqrt(head_dim) whatever the width.
            q = q * (1 + self.rotary_dim / self.geometry.head_dim) ** -0.5
        return q, k
