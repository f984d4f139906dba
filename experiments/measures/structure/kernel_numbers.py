"""What can be read off a kernel, and off the weights that it makes: pure functions of scores, no encoder in sight."""

from __future__ import annotations

import math

import torch
from scipy.stats import rankdata
from torch import Tensor

from pe_zoo import Unsupported

ROUNDING = 1e-9
"""Differences below this share of the largest value are rounding, and count as none."""
LOCAL = 16
"""Distances that count as near."""


def tolerance(values: Tensor) -> float:
    """What counts as rounding among these values; those that are not finite do not count."""
    finite = values[values.isfinite()].abs()
    return ROUNDING * finite.max().item() if len(finite) else 0.0


def clean(value: float) -> float:
    """A relative difference, 0 if it is only rounding."""
    return 0.0 if value < ROUNDING else value


def curve(kernel: Tensor) -> Tensor:
    """The kernel over distance: the mean of K(i, i − d) over the queries i that have such a key.

    Args:
        kernel: ``(heads, length, length)``.

    Returns:
        ``(heads, length)`` for d = 0, 1, …; −inf where an encoder hides a distance.
    """
    return torch.stack([kernel.diagonal(-d, -2, -1).mean(-1) for d in range(kernel.shape[-1])], -1)


def translation_invariance(kernel: Tensor, *, causal: bool) -> Tensor:
    """How much of the kernel's variance is between distances, not within one: ``(heads,)`` in [0, 1].

        1 − Σ_d Σ_i (K(i, i − d) − mean over i)² / Σ_ij (K(i, j) − mean)²

    1: the kernel depends on the distance alone, as a constant one does; 0: distance says nothing about it. The
    property is that of Wang et al. (ICLR 2021, "On position embeddings in BERT"); the normalisation is ours. Each
    distance weighs by its pairs, which keeps the two variances in one law and the value within [0, 1].

    Args:
        kernel: ``(heads, length, length)``; distances hidden by the encoder (−inf) are left out.
        causal: whether keys ahead of the query are hidden: then they do not count.
    """
    length = kernel.shape[-1]
    distances = range(0 if causal else 1 - length, length)
    lines = [line for d in distances if (line := kernel.diagonal(-d, -2, -1)).isfinite().all()]
    within = torch.stack([(line - line.mean(-1, keepdim=True)).square().sum(-1) for line in lines]).sum(0)
    everything = torch.cat(lines, -1)
    total = (everything - everything.mean(-1, keepdim=True)).square().sum(-1)
    constant = total <= everything.shape[-1] * tolerance(everything) ** 2
    return torch.where(constant, 1.0, 1 - within / total.where(~constant, torch.ones_like(total)))


def falling_steps(over_distance: Tensor, within: int | None = None) -> Tensor:
    """Share of steps from distance d to d + 1 at which the curve falls, beyond rounding: ``(heads,)``.

    1: the farther, the lower, always; a constant never falls and has 0. Wang et al. (ICLR 2021). Steps to or from a
    distance that the encoder hides are left out.

    Args:
        over_distance: of ``curve``, ``(heads, length)``.
        within: only up to this distance.
    """
    over_distance = over_distance if within is None else over_distance[:, : within + 1]
    steps = over_distance.diff()
    counted = steps.isfinite()
    if not counted.any(-1).all():
        raise Unsupported("the kernel has fewer than two distances")
    return ((steps < -tolerance(over_distance)) & counted).sum(-1) / counted.sum(-1).double()


def rank_correlation(over_distance: Tensor) -> Tensor:
    """Spearman's correlation of nearness (−d) and the curve, ``(heads,)`` in [−1, 1].

    1: the nearer, the higher. A constant curve ranks nothing: 0. Equal values, up to rounding, share their rank.

    Args:
        over_distance: of ``curve``, ``(heads, length)``.
    """
    unit = tolerance(over_distance)
    found = []
    for line in over_distance:
        seen = line.isfinite()
        values = line[seen] if unit == 0 else (line[seen] / unit).round()
        pairs = torch.tensor(rankdata(torch.stack([-torch.arange(len(line))[seen].double(), values]), axis=1))
        pairs = pairs - pairs.mean(-1, keepdim=True)
        norms = pairs.norm(dim=-1).prod()
        found.append((pairs.prod(0).sum() / norms) if norms > 0 else torch.zeros((), dtype=torch.float64))
    return torch.stack(found)


def window(weights: Tensor, share: float) -> Tensor:
    """The smallest window, from the query's own place backwards, that holds a share of all weight: in positions.

    Weights that sum to less than 1 are taken relative to their sum.

    Args:
        weights: not negative, ``(..., keys)``; the query is at the last key.
        share: above 0 and at most 1.

    Raises:
        Unsupported: there is no weight anywhere.
    """
    nearest_first = weights.flip(-1).cumsum(-1)
    total = nearest_first[..., -1:]
    if not bool((total > 0).all()):
        raise Unsupported("attention gives no weight to any key")
    return (nearest_first < share * total * (1 - ROUNDING)).sum(-1).double() + 1


def entropy(weights: Tensor) -> Tensor:
    """Entropy in nats of weights relative to their sum, ``(..., keys)`` to ``(...)``; ln(keys) if all are equal."""
    total = weights.sum(-1, keepdim=True)
    if not bool((total > 0).all()):
        raise Unsupported("attention gives no weight to any key")
    return torch.special.entr(weights / total).sum(-1)


def slope(lengths: list[int], entropies: Tensor) -> Tensor:
    """Least-squares slope of entropy over ln(length): 1 if attention spreads with the length, 0 if it stays local.

    Wang et al. (2024), arXiv:2404.12224, trace failure at long lengths to attention that spreads.

    Args:
        lengths: at least two.
        entropies: ``(lengths, heads)``.

    Returns:
        ``(heads,)``.
    """
    logs = torch.tensor([math.log(length) for length in lengths], dtype=torch.float64)
    logs = logs - logs.mean()
    return (logs @ entropies) / logs.square().sum()
