"""Distances, angles and buckets, shared by encoders. The sign convention is stated here, once."""

import math
from typing import Any

import torch
from torch import Tensor

FURTHEST = 2**24
"""The largest position that float32 tells from the next."""
ROUNDING = 2**-8
"""More than the rounding error of a distance between float32 positions up to 2¹⁵. A distance short of a whole or half
number by no more counts as that number, so that equal distances fall into the same row at every position."""


def distances(query: Tensor, key: Tensor) -> Tensor:
    """Query minus key, ``(..., query, key)``: at least 0 looks back, negative looks ahead.

    >>> distances(torch.tensor([2.0]), torch.tensor([0.0, 1.0, 2.0, 3.0]))
    tensor([[ 2.,  1.,  0., -1.]])
    """
    return query.unsqueeze(-1) - key.unsqueeze(-2)


def evenly_spaced(positions: Tensor) -> bool:
    """Return whether all neighbouring positions are equally far apart, so that distance follows from the index."""
    steps = positions.diff()
    return positions.ndim == 1 and bool((steps == steps[:1]).all())


def at(positions: Tensor, rows: slice) -> Tensor:
    """The positions of some places: of ``(..., length)`` or, of several axes, of ``(batch, length, axes)``.

    >>> at(torch.tensor([5.0, 6.0, 7.0]), slice(1, 3))
    tensor([6., 7.])
    >>> at(torch.tensor([[[1.0, 1.0], [1.0, 2.0], [2.0, 1.0]]]), slice(1, 3))
    tensor([[[1., 2.],
             [2., 1.]]])
    """
    return positions[:, rows] if positions.ndim == 3 else positions[..., rows]


def plane_of(of: Any) -> str:
    """Return what an encoder or a numbering numbers, in words."""
    return "a sequence" if of.axes == 1 else {"grid": "a grid"}.get(of.plane, of.plane)


def length_of(positions: Tensor) -> int:
    """How many places have positions, see `at`."""
    return positions.shape[1 if positions.ndim == 3 else -1]


def geometric_frequencies(num: int, base: float, dim: int, device: torch.device | None = None) -> Tensor:
    """``base^(−2i/dim)`` for i = 0 … num−1, radians per position, in float64.

    >>> geometric_frequencies(2, 10000.0, 4)
    tensor([1.0000, 0.0100], dtype=torch.float64)
    """
    return base ** (-2.0 / dim * torch.arange(num, dtype=torch.float64, device=device))


def angles(positions: Tensor, frequencies: Tensor) -> Tensor:
    """Positions ``(..., length)`` times frequencies ``(pairs,)``: radians, ``(..., length, pairs)``.

    In float64: float32 is off by 0.06 rad at position 10⁶.
    """
    return positions.double().unsqueeze(-1) * frequencies


def even_width(owner: str, model_dim: int, axes: int = 1) -> None:
    """Refuse a width in which the sines and cosines of each axis, of one or two, do not pair."""
    if rest := model_dim % (2 * axes):
        needs = "has sines and cosines of two axes and needs a model_dim that 4 divides"
        if axes == 1:
            needs = "pairs sines with cosines and needs an even model_dim"
        below = model_dim - rest
        raise ValueError(f"{owner} {needs}; got {model_dim}, use {below or 2 * axes} or {below + 2 * axes}")


def log_buckets(num_buckets: int, max_distance: int) -> Tensor:
    """The bucket of each whole distance from 0 to ``max_distance``, int64; beyond, the last one goes on.

    Half of the buckets hold one distance each, the rest grow logarithmically. T5's formula floors a float32 logarithm;
    these edges are the same and do not depend on the device.

    >>> log_buckets(8, 32)[[0, 3, 6, 7, 19, 20, 32]]
    tensor([0, 3, 4, 5, 6, 7, 7])
    """
    if max(num_buckets, max_distance) > FURTHEST:
        sizes = f"num_buckets={num_buckets} and max_distance={max_distance}"
        raise ValueError(f"{sizes} must be at most {FURTHEST}: float32 tells no whole distances beyond apart")
    exact = num_buckets // 2
    steps = num_buckets - exact
    # The tolerance keeps edges that are whole numbers on paper (8·16^¼ = 16) from being rounded up.
    growing = [math.ceil(exact * (max_distance / exact) ** (i / steps) * (1 - 1e-12)) for i in range(steps)]
    edges = torch.tensor([*range(1, exact), *growing])
    return torch.bucketize(torch.arange(max_distance + 1), edges, right=True)


def row_of(distance: Tensor, rows: int) -> Tensor:
    """The row of each distance in a table, its whole part (but for ``ROUNDING``), between the first row and the last.

    >>> row_of(torch.tensor([-5.0, 0.0, 0.99999994, 1.9, 1000.0]), 8)
    tensor([0, 0, 1, 1, 7])
    """
    return (distance + ROUNDING).clamp(0, rows - 1).long()


def nearest(distance: Tensor) -> Tensor:
    """The nearest whole distances; of two as near (but for ``ROUNDING``), the one further from 0.

    >>> nearest(torch.tensor([-2.5, -0.49999997, 0.0, 0.5, 1.4]))
    tensor([-3., -1.,  0.,  1.,  1.])
    """
    return (distance + ROUNDING * distance.sign()).round()


def look_up(distance: Tensor, buckets: Tensor) -> Tensor:
    """Buckets of the whole part of distances of any shape; distances below 0 share that of 0.

    >>> look_up(torch.tensor([-5.0, 0.0, 6.9, 1000.0]), log_buckets(8, 32))
    tensor([0, 0, 4, 7])
    """
    return buckets[row_of(distance, len(buckets))]


def look_up_both_ways(distance: Tensor, buckets: Tensor, per_side: int) -> Tensor:
    """Buckets of the whole part of distances, those of keys ahead, by 1 or more, after the ``per_side`` of keys behind.

    >>> look_up_both_ways(torch.tensor([-1.0, -0.5, 0.0, 1.0]), log_buckets(4, 8), 4)
    tensor([5, 0, 0, 1])
    """
    return look_up(distance.abs(), buckets) + per_side * (distance <= ROUNDING - 1)


def slopes(num_heads: int, max_bias: float, like: Tensor) -> Tensor:
    """ALiBi's official slopes, ``(heads,)``, in the dtype and on the device of a tensor.

    Head counts that are no power of two get those of the power of two below, then those between.

    >>> slopes(3, 8.0, torch.zeros(()))
    tensor([0.0625, 0.0039, 0.2500])
    """
    below = 1 << (num_heads.bit_length() - 1)
    count = torch.arange(1, below + 1, dtype=like.dtype, device=like.device)
    ranks = torch.cat([count, count[: num_heads - below] - 0.5])  # between neighbours: slopes of 2 · below heads
    return torch.exp2(-max_bias / below * ranks)
