"""Which change of one model is better, over contiguous blocks of the measured text: where there are no seeds.

Every change is measured on the same blocks, so the differences are paired. A difference is that of all of the text; its
95 % interval is Student's t over the differences of the blocks. Several comparisons have Holm's correction.
"""

import math

import numpy as np
import pandas as pd
from scipy.special import stdtr, stdtrit

from experiments.statistics.comparisons import holm
from experiments.statistics.intervals import CONFIDENCE, Vector

FEWEST = 4
"""Blocks below which there is no interval."""


def against(whole: "pd.Series[float]", parts: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """Compare each change with one of them.

    Args:
        whole: the value of each change on all of the text, by its name.
        parts: the same in each block: a line for each block, a column for each change.
        baseline: the one that the others are compared with.

    Returns:
        By name: ``difference`` (its value less the baseline's), ``low`` and ``high``, ``p`` and ``p_holm``; NaN where
        it was not tested, and for the baseline.
    """
    found = {}
    for name in whole.index:
        low = high = p = math.nan
        difference = float(whole[name] - whole.get(baseline, math.nan))
        if name != baseline and {name, baseline} <= set(parts.columns):
            low, high, p = _paired(np.array((parts[name] - parts[baseline]).dropna(), dtype=np.float64), difference)
        found[name] = {"difference": difference if name != baseline else math.nan, "low": low, "high": high, "p": p}
    table = pd.DataFrame(found).T.astype(float).reindex(columns=["difference", "low", "high", "p"])
    return table.assign(p_holm=holm(table["p"]))


def interval(value: float, parts: "pd.Series[float]", several: int = 1) -> tuple[float, float]:
    """Return the 95 % interval of a value, from those of its blocks; Bonferroni's, for one of several."""
    return _paired(np.array(parts.dropna(), dtype=np.float64), value, several)[:2]


def _paired(values: Vector, centre: float, several: int = 1) -> tuple[float, float, float]:
    count = len(values)
    if count < FEWEST:
        return math.nan, math.nan, math.nan
    error = float(values.std(ddof=1)) / math.sqrt(count)
    half = float(stdtrit(count - 1, 1 - (1 - CONFIDENCE) / 2 / several)) * error
    p = 2 * float(stdtr(count - 1, -abs(centre) / error)) if error else float(centre == 0)
    return centre - half, centre + half, p
