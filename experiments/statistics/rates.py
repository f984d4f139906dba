"""How much the order of the series depends on the learning rate: Kendall's tau between the orders at two rates."""

from itertools import combinations

import numpy as np
import pandas as pd
from scipy import stats

from experiments.statistics.intervals import with_series
from experiments.statistics.scores import scores

LEAST = 3
"""Series that learned at both rates, for an order to be compared."""
COLUMNS = ["task", "metric", "first_rate", "second_rate", "series", "tau"]


def agreement(rows: pd.DataFrame) -> pd.DataFrame:
    """Compare the orders of the series by area at each two learning rates that a search tried.

    Args:
        rows: quality at each length and ``learning_rate`` (experiment ``tuning``), of runs that learned the task at
            that rate; of any number of tasks.

    Returns:
        ``task``, ``metric``, the two rates, ``series`` (those that learned at both), and ``tau``: 1 where all pairs
        of series are in the same order, -1 where all are reversed (Kendall, 1938; tau-b). NaN below `LEAST` series.
    """
    found = []
    for (task, metric), of_task in with_series(rows.assign(converged=True)).groupby(["task", "metric"]):
        areas: dict[float, pd.Series[float]] = {
            float(str(rate)): scores(part).groupby("series")["area"].mean()
            for rate, part in of_task.groupby("learning_rate")
        }
        for first, second in combinations(sorted(areas), 2):
            both = pd.concat([areas[first], areas[second]], axis=1).dropna().to_numpy()
            tau = stats.kendalltau(*both.T).statistic if len(both) >= LEAST else np.nan
            found.append([task, metric, first, second, len(both), tau])
    return pd.DataFrame(found, columns=COLUMNS)
