import torch
from torch import Tensor, nn
from torch.nn import functional

from pe_zoo import Encoder, Geometry, register
from pe_zoo._knobs import number, whole
from pe_zoo._positions import angles


@register("learnable_fourier")
class LearnableFourier(Encoder):
    """Adds an MLP of learned Fourier features of the position to the token embeddings.
    Li et al. (2021), arXiv:2106.02795, §3, algorithm 1.

        features[p] = [cos(p · frequency), sin(p · frequency)] / sqrt(num_features)
        x[p] += out · GELU(hidden · features[p] + hidden_bias) + out_bias

    Every real-valued position has a vector. At the start the features of two positions have the inner product
    exp(−distance² / (2 · gamma²)) / 2, on average over the draw of the frequencies.

    Args:
        num_features: sines and cosines together, even, at least 2. None: ``model_dim``, or one more if that is odd.
        hidden_dim: width of the MLP, at least 1; 32.
        gamma: how many positions stay alike at the start, above 0: frequencies are drawn from N(0, 1/gamma²); 10.
            Algorithm 1 leaves this and both widths open.

    Departures: positions have one dimension. The MLP starts with weights of variance 2 and 1/hidden_dim and biases of
    0, so that vectors have about the scale of the token embeddings. Angles are computed in float64.
    """

    family = "input"
    direction_aware = True

    def __init__(
        self, geometry: Geometry, *, num_features: int | None = None, hidden_dim: int = 32, gamma: float = 10.0
    ) -> None:
        super().__init__(geometry)
        if num_features is None:
            num_features = geometry.model_dim + geometry.model_dim % 2
        if whole("learnable_fourier num_features", num_features, at_least=2) % 2:
            rule = "learnable_fourier num_features must be even (sines are paired with cosines)"
            raise ValueError(f"{rule}; got {num_features}")
        whole("learnable_fourier hidden_dim", hidden_dim, at_least=1)
        number("learnable_fourier gamma", gamma, above=0)
        self.frequency = nn.Parameter(torch.randn(num_features // 2) / gamma)
        self.hidden = nn.Parameter(2**0.5 * torch.randn(hidden_dim, num_features))
        self.hidden_bias = nn.Parameter(torch.zeros(hidden_dim))
        self.out = nn.Parameter(hidden_dim**-0.5 * torch.randn(geometry.model_dim, hidden_dim))
        self.out_bias = nn.Parameter(torch.zeros(geometry.model_dim))

    def features(self, positions: Tensor) -> Tensor:
        """Cosines, then sines: ``(..., length)`` to ``(..., length, num_features)``, float64."""
        angle = angles(positions, self.frequency.double())
        return torch.cat([angle.cos(), angle.sin()], -1) * (2 * len(self.frequency)) ** -0.5

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        dtype = torch.promote_types(x.dtype, torch.float32)
        features = self.features(positions).to(dtype)
        hidden = functional.linear(features, self.hidden.to(dtype), self.hidden_bias.to(dtype))
        vector = functional.linear(functional.gelu(hidden), self.out.to(dtype), self.out_bias.to(dtype))
        return x + vector.to(x.dtype)
