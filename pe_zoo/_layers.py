"""Small layers shared by encoders."""

import torch
from torch import Tensor, nn
from torch.nn import functional


def look_back(x: Tensor, kernel: Tensor) -> Tensor:
    """A short causal convolution of each channel: a token and its nearest predecessors, weighted.

    >>> look_back(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([[0.5, 1.0]]))
    tensor([[1.0000],
            [2.5000],
            [5.0000]])

    Args:
        x: ``(..., length, channels)``.
        kernel: ``(channels, width)``; the last weight is the token's own.
    """
    taps = kernel.unbind(-1)
    padded = functional.pad(x, (0, 0, len(taps) - 1, 0))
    return torch.stack([padded[..., i : i + x.shape[-2], :] * tap for i, tap in enumerate(taps)]).sum(0)


def unit_length(x: Tensor) -> Tensor:
    """Vectors along the last dimension, scaled to length 1; 0 stays 0."""
    return x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt()


def linear(layer: nn.Module, x: Tensor) -> Tensor:
    """A linear layer in the dtype of its input, whatever its own is."""
    assert isinstance(layer, nn.Linear)
    return functional.linear(x, *(parameter.to(x.dtype) for parameter in layer.parameters()))
