"""What these seeds could have shown, how many would, and how large a difference is next to the spread of seeds."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaincinv, gammaln, nctdtr, stdtrit

Values = np.ndarray[tuple[int], np.dtype[np.float64]]

POWER = 0.8
"""With how many seeds a difference would be found with this probability, were it as large as it seems."""
MOST = 1000
"""Seeds beyond which no number is given."""


def power(standardised: float, pairs: int, significance: float) -> float:
    """Probability that a two-sided paired t test finds a difference, from the noncentral t distribution.

    Args:
        standardised: the true mean of the paired differences, over their true deviation.
        pairs: seeds, two at least.
        significance: of the test.
    """
    degrees, shift = pairs - 1, abs(standardised) * math.sqrt(pairs)
    limit = float(stdtrit(degrees, 1 - significance / 2))
    return float(1 - nctdtr(degrees, shift, limit) + nctdtr(degrees, shift, -limit))


def seeds_wanted(difference: float, deviation: float, pairs: int, significance: float) -> float:
    """Seeds that would find a difference as large as this one with probability `POWER`, from what these pairs say.

    Few seeds make a difference look larger next to its deviation than it is. That is corrected for by the median of
    χ², so that the number is too large about as often as too small. What is left is rough: even of ten seeds, good
    for the order of magnitude.

    Args:
        difference: mean of the paired differences.
        deviation: of the paired differences (n - 1).
        pairs: how many there were.
        significance: of the test, less than 0.05 where several are made.

    Returns:
        A whole number of seeds in all; inf beyond `MOST`; NaN where there are fewer than three pairs, no
        difference at all, or no deviation.
    """
    if pairs < 3 or difference == 0 or math.isnan(difference) or not deviation > 0:
        return math.nan
    degrees = pairs - 1
    standardised = difference / deviation * math.sqrt(2 * float(gammaincinv(degrees / 2, 0.5)) / degrees)
    low, high = 1, 2
    while power(standardised, high, significance) < POWER:
        low, high = high, 2 * high
        if low >= MOST:
            return math.inf
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(standardised, middle, significance) >= POWER else (middle, high)
    return float(high)


def hedges(degrees: int) -> float:
    """What a difference over its estimated deviation is to be multiplied by to be unbiased (Hedges 1981); 0 for one.

    Γ(df/2) / (√(df/2) Γ((df - 1)/2)); 0.56 for three seeds, 0.92 for ten.
    """
    if degrees < 2:
        return 0.0
    return math.exp(gammaln(degrees / 2) - gammaln((degrees - 1) / 2)) / math.sqrt(degrees / 2)


def effect(ours: Values, theirs: Values) -> float:
    """Difference of two means in deviations of one value: Hedges' g_av (Lakens 2013, doi 10.3389/fpsyg.2013.00863).

    The deviation is the root mean square of the two. Paired or not, it says how far apart the two are next to how
    much a seed matters; so it compares across studies, as a difference over the deviation of differences does not.

    Returns:
        NaN below two values; inf, with its sign, where neither has a spread and yet they differ.
    """
    count = min(len(ours), len(theirs))
    if count < 2:
        return math.nan
    difference = float(ours.mean() - theirs.mean())
    spread = math.sqrt((float(ours.var(ddof=1)) + float(theirs.var(ddof=1))) / 2)
    if abs(difference) <= 1e-12:
        return 0.0
    if spread <= 1e-12:
        return math.copysign(math.inf, difference)
    return difference / spread * hedges(2 * (count - 1))


def improvement(ours: Values, theirs: Values) -> float:
    """Probability that a value of ours is higher than one of theirs, ties half (Agarwal et al. 2021, arXiv 2108.13264).

    Mann and Whitney's U over the number of pairs; over all pairs of seeds, not only those of the same seed.
    """
    if not len(ours) or not len(theirs):
        return math.nan
    return float((np.sign(np.subtract.outer(ours, theirs)) + 1).mean() / 2)
