import torch
from torch import Tensor, nn

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._knobs import whole
from pe_zoo._layers import look_back


@register("short_convolution")
class ShortConvolution(Encoder):
    """Adds a short causal convolution of the input to queries and keys: a control for encoders that contain one.
    After Allen-Zhu (2025), arXiv:2512.17351, §4, whose Canon layers lift a model without an encoder to one with RoPE.

        q → q + query_convolution(x @ down @ up),      k → k + key_convolution(x @ down @ up)

    PaTH and Selective RoPE read the layer's input through such a branch; this one's gain over no encoder needs none of
    their reflections and rotations. The defaults match PaTH; ``rank=9 conv_width=4`` has the kernel and the number of
    parameters of Selective RoPE. Positions are not read. Every layer has its own parameters; heads share ``down``.

    Args:
        rank: width between ``down`` and ``up``, at least 1; 32 as in PaTH's official code.
        conv_width: tokens the convolution sees, its own included, at least 1; 3 as in PaTH's official code; Canon
            layers and Selective RoPE have 4.

    Departures: Canon layers convolve projections and stream themselves, values too; here the low-rank branch of PaTH is
    convolved, without its activation. Kernels start uniform within ±1/sqrt(conv_width), as torch's convolutions do, the
    other weights with variance 1/fan-in, as this trunk's do.
    """

    family = "content"
    shift_invariant = causal_only = True
    control = True

    def __init__(self, geometry: Geometry, *, rank: int = 32, conv_width: int = 3) -> None:
        super().__init__(geometry)
        layers, dim, width = geometry.num_layers, geometry.model_dim, geometry.num_heads * geometry.head_dim
        whole("short_convolution rank", rank, at_least=1)
        whole("short_convolution conv_width", conv_width, at_least=1)
        self.down = nn.Parameter(torch.randn(layers, dim, rank) * dim**-0.5)
        self.up = nn.Parameter(torch.randn(layers, rank, width) * rank**-0.5)
        # Kernels of their own: with one for both, a query would be most like its own key before anything is learned.
        self.query_kernel = nn.Parameter((2 * torch.rand(layers, width, conv_width) - 1) * conv_width**-0.5)
        self.key_kernel = nn.Parameter((2 * torch.rand(layers, width, conv_width) - 1) * conv_width**-0.5)

    def rotate(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        layer, x = site.layer, site.content("short_convolution")
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        features = x @ self.down[layer].to(x.dtype) @ self.up[layer].to(x.dtype)
        seen = (look_back(features, kernel[layer].to(x.dtype)) for kernel in (self.query_kernel, self.key_kernel))
        for_q, for_k = (each.unflatten(-1, (self.geometry.num_heads, -1)).transpose(-3, -2) for each in seen)
        return (q + for_q[..., site.rows, :]).to(q.dtype), (k + for_k).to(k.dtype)
