"""Intervals of the interquartile mean over many tasks, from few seeds each.

Seeds are resampled within each task (Agarwal et al. 2021, arXiv 2108.13264). Percentiles of so few seeds are too narrow
(with three seeds in ten tasks, their 95 % is 82 to 87 %), so there are two departures. Runs are first moved away from
their task's mean by √(n / (n - 1)) (Rao and Wu 1988, doi 10.1080/01621459.1988.10478591). The interval is t times the
deviation of the draws, with Satterthwaite's degrees of freedom. `tests/statistics/test_coverage.py` has simulations.

Draws depend on the names of tasks and on the seeds alone, not on the order of rows or on other series.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

from experiments.statistics.intervals import CONFIDENCE, SIGNIFICANCE, Matrix, Vector

DRAWS = 2000
"""Number of bootstrap samples."""
FEWEST_TASKS = 5
"""Number of tasks below which there is no interval over tasks."""


def over_seeds(runs: dict[str, Vector], seeds: dict[str, Vector]) -> tuple[float, float]:
    """Return the 95 % interval of the interquartile mean of all runs, for other seeds and the same tasks.

    Args:
        runs: task -> its values, one for each seed.
        seeds: task -> their seeds, in the same order.

    Returns:
        Both ends; NaN where a task has a single seed.
    """
    if min(map(len, runs.values())) < 2:
        return math.nan, math.nan
    drawn = []
    for task, values in runs.items():
        count, mean = len(values), values.mean()
        spread = mean + math.sqrt(count / (count - 1)) * (values - mean)
        generator = np.random.default_rng(zlib.crc32(repr((task, *map(int, seeds[task]))).encode()))
        drawn.append(spread[generator.integers(count, size=(DRAWS, count))])
    found = interquartile_mean(np.concatenate(drawn, axis=1))
    degrees = _degrees(found, np.array([part.mean(axis=1) for part in drawn]), [len(part) for part in runs.values()])
    middle = float(interquartile_mean(np.concatenate(list(runs.values()))[None, :])[0])
    half = float(stdtrit(degrees, (1 + CONFIDENCE) / 2) * found.std(ddof=1))
    return middle - half, middle + half


def _degrees(found: Vector, means: Matrix, counts: Sequence[int]) -> float:
    """Return the degrees of freedom of the bootstrap's variance (Satterthwaite 1946).

    A task's share of it is what its own mean explains of the draws: covariance² / variance of that mean.
    """
    apart, off = means - means.mean(axis=1, keepdims=True), found - found.mean()
    variance, covariance = (apart**2).mean(axis=1), apart @ off / len(off)
    parts = np.divide(covariance**2, variance, out=np.zeros_like(covariance), where=variance > 0)
    if not parts.sum() > 0:
        return 1.0
    return max(1.0, float(parts.sum() ** 2 / (parts**2 / (np.array(counts) - 1)).sum()))


def over_tasks(runs: dict[str, Vector]) -> tuple[float, float]:
    """Return the 95 % interval for other tasks, by resampling one task fewer than there are; NaN for few tasks."""
    if len(runs) < FEWEST_TASKS:
        return math.nan, math.nan
    padded = np.full((len(runs), max(map(len, runs.values()))), np.nan)
    for place, values in enumerate(runs.values()):
        padded[place, : len(values)] = values
    picked = draw_tasks(list(runs), len(runs) - 1)
    drawn = interquartile_mean(padded[picked].reshape(DRAWS, -1))
    low, high = np.quantile(drawn, [SIGNIFICANCE / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def interquartile_mean(values: Matrix) -> Vector:
    """Return each line's mean without its NaN and its lowest and highest quarters, as `scipy.stats.trim_mean` does."""
    ordered = np.sort(values, axis=1)
    count = (~np.isnan(ordered)).sum(axis=1, keepdims=True)
    place, cut = np.arange(ordered.shape[1]), count // 4
    middle = (place >= cut) & (place < count - cut)
    means: Vector = np.where(middle, ordered, 0.0).sum(axis=1) / middle.sum(axis=1)
    return means


def draw_tasks(tasks: Sequence[str], count: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Return `DRAWS` samples of ``count`` places in the list of tasks, the same for the same tasks."""
    generator = np.random.default_rng(zlib.crc32(repr(sorted(tasks)).encode()))
    return generator.integers(len(tasks), size=(DRAWS, count))
