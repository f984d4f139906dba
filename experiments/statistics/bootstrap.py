"""Intervals of the interquartile mean over many tasks, from few seeds each.

Over seeds: seeds are drawn anew within each task (Agarwal et al. 2021, arXiv 2108.13264), with two departures, for
percentiles of so few seeds are too narrow: of three seeds in each of ten tasks, what they call 95 % is 82 to 87 %.
Runs are first moved away from their task's mean by √(n / (n - 1)) (Rao and Wu 1988, doi
10.1080/01621459.1988.10478591), and the interval is t times the deviation of the draws, with Satterthwaite's degrees
of freedom: few where a few tasks bring most of the variance. Of one task it is about the t interval. Simulations:
`tests/statistics/test_coverage.py`.

What is drawn hangs on the names of tasks and on the seeds alone, not on the order of rows or on other labels.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

from experiments.statistics.intervals import CONFIDENCE, SIGNIFICANCE, Matrix, Vector

DRAWS = 2000
"""Times that everything is drawn anew."""
FEWEST_TASKS = 5
"""Tasks below which other tasks of their kind cannot be guessed at."""


def over_seeds(runs: dict[str, Vector], seeds: dict[str, Vector]) -> tuple[float, float]:
    """95 % interval of the interquartile mean of all runs, from seeds drawn anew within each task.

    Args:
        runs: task -> its values, one a seed.
        seeds: task -> their seeds, in the same order.

    Returns:
        Its ends; NaN where a task has a single seed.
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
    """Degrees of freedom of the bootstrap's variance (Satterthwaite 1946).

    A task's part in it is what of the draws its own mean explains: covariance² / variance of that mean.
    """
    apart, off = means - means.mean(axis=1, keepdims=True), found - found.mean()
    variance, covariance = (apart**2).mean(axis=1), apart @ off / len(off)
    parts = np.divide(covariance**2, variance, out=np.zeros_like(covariance), where=variance > 0)
    if not parts.sum() > 0:
        return 1.0
    return max(1.0, float(parts.sum() ** 2 / (parts**2 / (np.array(counts) - 1)).sum()))


def over_tasks(runs: dict[str, Vector]) -> tuple[float, float]:
    """95 % interval of the interquartile mean of all runs, from tasks drawn anew, one fewer than there are.

    Returns:
        Percentiles; NaN below `FEWEST_TASKS`.
    """
    if len(runs) < FEWEST_TASKS:
        return math.nan, math.nan
    padded = np.full((len(runs), max(map(len, runs.values()))), np.nan)
    for place, values in enumerate(runs.values()):
        padded[place, : len(values)] = values
    picked = draw_tasks(list(runs), len(runs) - 1)
    return _percentiles(interquartile_mean(padded[picked].reshape(DRAWS, -1)))


def interquartile_mean(values: Matrix) -> Vector:
    """Of each line, without its NaN: the mean without the lowest and the highest quarter, rounded down.

    What `scipy.stats.trim_mean` gives for a quarter, which knows no NaN and takes lines one by one.
    """
    ordered = np.sort(values, axis=1)
    count = (~np.isnan(ordered)).sum(axis=1, keepdims=True)
    place, cut = np.arange(ordered.shape[1]), count // 4
    middle = (place >= cut) & (place < count - cut)
    means: Vector = np.where(middle, ordered, 0.0).sum(axis=1) / middle.sum(axis=1)
    return means


def draw_tasks(tasks: Sequence[str], count: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """`DRAWS` lines of ``count`` places in the list of tasks, the same whenever the tasks are."""
    generator = np.random.default_rng(zlib.crc32(repr(sorted(tasks)).encode()))
    return generator.integers(len(tasks), size=(DRAWS, count))


def _percentiles(drawn: Vector) -> tuple[float, float]:
    low, high = np.quantile(drawn, [SIGNIFICANCE / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)
