"""Distances, angles and buckets, shared by encoders. The sign convention is stated here, once."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def distances(query: Tensor, key: Tensor) -> Tensor:
    """Query minus key: at least 0 looks back, negative looks ahead.

    >>> distances(torch.tensor([2.0]), torch.tensor([0.0, 1.0, 2.0, 3.0]))
    tensor([[ 2.,  1.,  0., -1.]])

    Args:
        query: ``(..., query)``.
        key: ``(..., key)``.

    Returns:
        ``(..., query, key)``.
    """
    return query.unsqueeze(-1) - key.unsqueeze(-2)


def geometric_frequencies(num: int, base: float, dim: int, device: torch.device | None = None) -> Tensor:
    """``base^(−2i/dim)`` for i = 0 … num−1, radians per position, in float64.

    >>> geometric_frequencies(2, 10000.0, 4)
    tensor([1.0000, 0.0100], dtype=torch.float64)
    """
    return base ** (-2.0 / dim * torch.arange(num, dtype=torch.float64, device=device))


def angles(positions: Tensor, frequencies: Tensor) -> Tensor:
    """Position times frequency in radians, in float64: float32 is off by 0.06 rad at position 10⁶.

    Args:
        positions: ``(..., length)``.
        frequencies: ``(pairs,)``.

    Returns:
        ``(..., length, pairs)``.
    """
    return positions.double().unsqueeze(-1) * frequencies


def log_buckets(num_buckets: int, max_distance: int) -> Tensor:
    """The bucket of each whole distance from 0 to ``max_distance``, int64; beyond, the last one goes on.

    Half of the buckets hold one distance each, the rest grow logarithmically. T5's formula floors a float32
    logarithm; the same edges are found here without rounding doubt, so that a distance falls into the same bucket
    on every device.

    >>> log_buckets(8, 32)[[0, 3, 6, 7, 19, 20, 32]]
    tensor([0, 3, 4, 5, 6, 7, 7])
    """
    exact = num_buckets // 2
    steps = num_buckets - exact
    # The tolerance keeps edges that are whole numbers on paper (8·16^¼ = 16) from being rounded up.
    growing = [math.ceil(exact * (max_distance / exact) ** (i / steps) * (1 - 1e-12)) for i in range(steps)]
    edges = torch.tensor([*range(1, exact), *growing])
    return torch.bucketize(torch.arange(max_distance + 1), edges, right=True)


def look_up(distance: Tensor, buckets: Tensor) -> Tensor:
    """Buckets of distances of any shape; distances below 0 share that of 0.

    >>> look_up(torch.tensor([-5.0, 0.0, 6.9, 1000.0]), log_buckets(8, 32))
    tensor([0, 0, 4, 7])
    """
    return buckets[distance.clamp(0, len(buckets) - 1).long()]
