import torch
from torch import Tensor, nn

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._knobs import number, true_or_false, whole
from pe_zoo._layers import look_back, unit_length
from pe_zoo._positions import geometric_frequencies
from pe_zoo._rotation import pairs_of, rotate_heads


@register("selective_rope")
class SelectiveRoPE(Encoder):
    """Rotates query and key pairs by input-dependent angles, accumulated over the tokens.
    Selective RoPE, Movahedi et al. (2025), arXiv:2511.17388, §4.

        (a, b) → (a · cos − b · sin, a · sin + b · cos),      angle[p] = Σ_{t ≤ p} step[t] · base^(−2i/head_dim)
        step = convolution(x @ down @ up)

    Each head's slice of x is scaled to length 1 first. Positions are not read. The short causal convolution is a
    positional signal of its own: it lets a token see its nearest predecessors. Pairs are (i, i + head_dim/2). Every
    layer has its own parameters; heads share ``down``.

    Args:
        rank: width between ``down`` and ``up``, at least 1; 16 as in the official code.
        conv_width: tokens the convolution sees, its own included, at least 1; 4 as in the official code.
        base: above 0; 500000 as in the official code.
        bias: adds a learned positive number to every step, 1 at the start: with no other input that is RoPE. False as
            in the official code.
        gate: multiplies the steps of a head by a sigmoid of x. False as in the official code.
        rotate_values: rotates values too, each by the angle at its key less that at the query, as its key is: Godavarti
            (2026), arXiv:2606.24975. False as published.

    Departures: weights start with variance 1/fan-in, as this trunk's do; the official 0.02 rotates almost nothing. The
    sum is taken in float64.
    """

    family = "content"
    shift_invariant = causal_only = True

    def __init__(
        self,
        geometry: Geometry,
        *,
        rank: int = 16,
        conv_width: int = 4,
        base: float = 500000.0,
        bias: bool = False,
        gate: bool = False,
        rotate_values: bool = False,
    ) -> None:
        super().__init__(geometry)
        layers, heads, dim = geometry.num_layers, geometry.num_heads, geometry.model_dim
        whole("selective_rope rank", rank, at_least=1)
        whole("selective_rope conv_width", conv_width, at_least=1)
        self.base = number("selective_rope base", base, above=0)
        for knob, value in (("bias", bias), ("gate", gate), ("rotate_values", rotate_values)):
            true_or_false(f"selective_rope {knob}", value)
        self.pairs = pairs_of("selective_rope", geometry)
        if dim % heads:
            raise ValueError(f"selective_rope splits x among heads: num_heads={heads} must divide model_dim={dim}")
        self.down = nn.Parameter(torch.randn(layers, dim, rank) * dim**-0.5)
        self.up = nn.Parameter(torch.randn(layers, rank, heads * self.pairs) * rank**-0.5)
        self.kernel = nn.Parameter(torch.randn(layers, heads * self.pairs, conv_width) * conv_width**-0.5)
        self.log_bias = nn.Parameter(torch.zeros(layers, heads, self.pairs)) if bias else None
        self.gate_weight = nn.Parameter(torch.randn(layers, dim, heads) * dim**-0.5) if gate else None
        self.gate_bias = nn.Parameter(torch.zeros(layers, heads)) if gate else None
        if rotate_values:  # of this one, not of the class, so that a model may fuse it where values are left alone
            self.__dict__["overrides"] = super().overrides

    @classmethod
    def overrides(cls, hook: str) -> bool:
        """Whether this encoder, its values not rotated, does anything at a hook."""
        return hook == "rotate"

    def angle(self, site: Site) -> Tensor:
        """The angle of each pair at each key, ``(batch, heads, key, pairs)`` float64, radians."""
        layer, heads, x = site.layer, self.geometry.num_heads, site.content("selective_rope")
        x = x.to(torch.promote_types(x.dtype, torch.float32)).unflatten(-1, (heads, -1))
        x = unit_length(x).flatten(-2)
        step = x @ self.down[layer].to(x.dtype) @ self.up[layer].to(x.dtype)
        step = look_back(step, self.kernel[layer].to(x.dtype))
        step = step.unflatten(-1, (heads, self.pairs))
        if self.log_bias is not None:
            step = step + self.log_bias[layer].to(x.dtype).exp()
        if self.gate_weight is not None and self.gate_bias is not None:
            gate = x @ self.gate_weight[layer].to(x.dtype) + self.gate_bias[layer].to(x.dtype)
            step = step * gate.sigmoid().unsqueeze(-1)
        frequencies = geometric_frequencies(self.pairs, self.base, 2 * self.pairs, x.device)
        return step.double().cumsum(-3).transpose(-3, -2) * frequencies

    def rotate(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        angle = self.angle(site)
        return rotate_heads(q, angle[..., site.rows, :]), rotate_heads(k, angle)

    def mix(self, scores: Tensor, v: Tensor, site: Site) -> Tensor:
        if not self.overrides("mix"):
            return super().mix(scores, v, site)
        angle = self.angle(site)
        return rotate_heads(super().mix(scores, rotate_heads(v, angle), site), -angle[..., site.rows, :])
