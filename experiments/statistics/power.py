"""How many seeds would show a difference, and how large it is next to the deviation over seeds."""

from __future__ import annotations

import math
from bisect import bisect_left

import numpy as np
from scipy.special import gammaincinv, gammaln, ndtr, stdtrit
from statsmodels.stats.power import TTestPower

Values = np.ndarray[tuple[int], np.dtype[np.float64]]

POWER = 0.8
"""Probability with which `seeds_wanted` seeds would find the difference, were it as large as it seems."""
MOST = 1000
"""Largest number of seeds that is given."""


def power(standardised: float, pairs: int, significance: float) -> float:
    """Return the power of a two-sided paired t test: its probability of finding a difference.

    Args:
        standardised: the true mean of the paired differences over their true deviation.
        pairs: number of seeds, at least two.
        significance: level of the test.
    """
    found = float(TTestPower().power(abs(standardised), pairs, significance))
    if not math.isnan(found):
        return found
    # SciPy's noncentral t distribution is NaN at some large shifts. Johnson and Welch's normal approximation is good
    # to three digits there.
    degrees, limit = pairs - 1, float(stdtrit(pairs - 1, 1 - significance / 2))
    shift = abs(standardised) * math.sqrt(pairs)
    return float(ndtr((shift - limit * (1 - 1 / (4 * degrees))) / math.sqrt(1 + limit**2 / (2 * degrees))))


def seeds_wanted(difference: float, deviation: float, pairs: int, significance: float) -> float:
    """Return how many seeds would find a difference as large as this one with probability `POWER`.

    The deviation of few seeds is too small more often than too large. The median of χ² corrects for that, so the
    answer is too large about as often as too small. It is good for the order of magnitude only.

    Args:
        difference: mean of the paired differences.
        deviation: of the paired differences (n - 1).
        pairs: number of differences.
        significance: level of the test.

    Returns:
        A whole number of seeds; inf beyond `MOST`; NaN below three pairs, and without a difference or a deviation.
    """
    if pairs < 3 or difference == 0 or math.isnan(difference) or not deviation > 0:
        return math.nan
    degrees = pairs - 1
    standardised = difference / deviation * math.sqrt(2 * float(gammaincinv(degrees / 2, 0.5)) / degrees)
    seeds = range(2, MOST + 1)
    place = bisect_left(seeds, POWER, key=lambda count: power(standardised, count, significance))
    return float(seeds[place]) if place < len(seeds) else math.inf


def hedges(degrees: int) -> float:
    """Return Hedges' (1981) correction of a difference over its estimated deviation; 0 for one degree of freedom.

    Γ(df/2) / (√(df/2) Γ((df - 1)/2)); 0.56 for three seeds, 0.92 for ten.
    """
    if degrees < 2:
        return 0.0
    return math.exp(gammaln(degrees / 2) - gammaln((degrees - 1) / 2)) / math.sqrt(degrees / 2)


def effect(ours: Values, theirs: Values) -> float:
    """Return Hedges' g_av: the difference of two means in deviations of one seed (doi 10.3389/fpsyg.2013.00863).

    The deviation is the root mean square of the two.

    Returns:
        NaN below two values; ±inf where the means differ and neither has a deviation.
    """
    count = min(len(ours), len(theirs))
    if count < 2:
        return math.nan
    difference = float(ours.mean() - theirs.mean())
    deviation = math.sqrt((float(ours.var(ddof=1)) + float(theirs.var(ddof=1))) / 2)
    if abs(difference) <= 1e-12:
        return 0.0
    if deviation <= 1e-12:
        return math.copysign(math.inf, difference)
    return difference / deviation * hedges(2 * (count - 1))


def improvement(ours: Values, theirs: Values) -> float:
    """Return the probability that a value of ours is higher than one of theirs, ties half (arXiv 2108.13264).

    Mann and Whitney's U over the number of pairs of seeds.
    """
    if not len(ours) or not len(theirs):
        return math.nan
    return float((np.sign(np.subtract.outer(ours, theirs)) + 1).mean() / 2)
