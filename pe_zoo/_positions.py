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


def log_bucket_edges(num_buckets: int, max_distance: int) -> list[int]:
    """Smallest distance of each bucket but the first: one each up to half of them, then logarithmic.

    T5's formula floors a float32 logarithm; the same edges are found here without rounding doubt, so
    a distance falls into the same bucket on every device.

    >>> log_bucket_edges(8, 32)
    [1, 2, 3, 4, 7, 12, 20]
    """
    exact = num_buckets // 2
    ratio = max_distance / exact
    steps = num_buckets - exact
    # The tolerance keeps edges that are whole numbers on paper (8·16^¼ = 16) from being rounded up.
    logarithmic = [math.ceil(exact * ratio ** (i / steps) * (1 - 1e-12)) for i in range(steps)]
    return [*range(1, exact), *logarithmic]


def bucketize(distance: Tensor, edges: Tensor) -> Tensor:
    """How many edges a distance has reached: its bucket. ``edges`` is ``(num_buckets − 1,)``.

    >>> bucketize(torch.tensor([0.0, 3.0, 6.0, 7.0, 1000.0]), torch.tensor(log_bucket_edges(8, 32)))
    tensor([0, 3, 4, 5, 7])
    """
    return torch.bucketize(distance, edges.to(distance.dtype), right=True)
