from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._knobs import one_of, true_or_false, whole
from pe_zoo._layers import linear
from pe_zoo._positions import angles, geometric_frequencies
from pe_zoo._tables import heads_first

NUM_FREQUENCIES = 16


@register("dynamic_bias")
class DynamicBias(Encoder):
    """Biases scores by an MLP of the signed distance, with one output per head.
    Wang et al. (2021), arXiv:2108.00154, §3.2; on a log scale: Liu et al. (2021), arXiv:2111.09883, §3.3.

        scores[h, q, k] += mlp(seen(q − k))[h]

    Args:
        input: the MLP's input. ``linear``: the distance (Wang et al.; DynamicPositionBias of x-transformers). ``log``:
            sign(distance) · log(1 + |distance|) (Liu et al., Swin V2; ``log_distance`` of x-transformers). ``fourier``:
            cosines and sines of the distance, at frequencies from 1 down towards 1/10000 (ours).
        hidden_dim: width of the MLP, at least 1. None: a quarter of ``model_dim``, as in x-transformers (512 in Swin
            V2).
        depth: hidden layers, 1 to 1000; 2 as in x-transformers (1 in Swin V2).
        num_frequencies: frequencies of ``fourier``, at least 1.
        shared: one MLP for all layers, as in x-transformers, or one for each, as in Swin V2.

    Departures: one dimension; both papers have two. The MLP is that of x-transformers (SiLU, no normalisation), its
    last layer without the bias, which softmax cannot see. Swin V2 has ReLU, scales distances to ±8 over its window
    before the logarithm, and bounds the bias to (0, 16) by a sigmoid.
    """

    family = "score bias"
    shift_invariant = direction_aware = static_bias = distance_bias = True

    def __init__(
        self,
        geometry: Geometry,
        *,
        input: str = "log",
        hidden_dim: int | None = None,
        depth: int = 2,
        num_frequencies: int = NUM_FREQUENCIES,
        shared: bool = True,
    ) -> None:
        super().__init__(geometry)
        self.input = one_of("dynamic_bias input", input, ("log", "linear", "fourier"))
        if hidden_dim is None:
            hidden_dim = max(geometry.model_dim // 4, 1)
        whole("dynamic_bias hidden_dim", hidden_dim, at_least=1)
        whole("dynamic_bias depth", depth, at_least=1, at_most=1000)
        self.num_frequencies = whole("dynamic_bias num_frequencies", num_frequencies, at_least=1)
        if num_frequencies != NUM_FREQUENCIES and input != "fourier":
            unused = f"dynamic_bias num_frequencies={num_frequencies} changes nothing"
            raise ValueError(f"{unused} without input=fourier; set both")
        self.shared = true_or_false("dynamic_bias shared", shared)
        widths = [2 * num_frequencies if input == "fourier" else 1, *depth * [hidden_dim]]
        self.mlps = nn.ModuleList()
        for _ in range(1 if shared else geometry.num_layers):
            hidden = [nn.Linear(*pair) for pair in pairwise(widths)]
            self.mlps.append(nn.ModuleList([*hidden, nn.Linear(hidden_dim, geometry.num_heads, bias=False)]))

    def seen(self, distance: Tensor) -> Tensor:
        """Distances of any shape as the MLP sees them: ``(..., inputs)``."""
        if self.input == "fourier":
            num = self.num_frequencies
            angle = angles(distance, geometric_frequencies(num, 10000.0, 2 * num, distance.device))
            return torch.cat([angle.cos(), angle.sin()], -1).to(distance.dtype)
        if self.input == "log":
            distance = distance.sign() * distance.abs().log1p()
        return distance.unsqueeze(-1)

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        distance = site.distance.to(torch.promote_types(scores.dtype, torch.float32))
        mlp = self.mlps[0 if self.shared else site.layer]
        assert isinstance(mlp, nn.ModuleList)
        *layers, out = mlp
        hidden = self.seen(distance)
        for layer in layers:
            hidden = functional.silu(linear(layer, hidden))
        return (scores + heads_first(linear(out, hidden))).to(scores.dtype)
