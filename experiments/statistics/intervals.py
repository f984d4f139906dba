"""Means over seeds and their 95 % intervals, which stay inside the bounds of the metric.

An interval is Student's t on the scale of the metric: logit for a share between 0 and 1, log for what has one bound,
plain for what has none (delta method). The deviation is at least the noise of the evaluation itself. There is none
below three seeds, nor where few seeds fall into two clusters: it would leave out the mean too often, and the seeds are
shown.
An interval is a statement about seeds like those seen: five seeds miss a failure of one seed in five in 33 of 100
cases. `docs/statistics.md` has the coverage of all of it.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.special import expit, logit, stdtrit

from experiments.rows.row import coordinates_in, metric_of, rows_of
from experiments.statistics.rule import FEWEST

SIGNIFICANCE = 0.05
CONFIDENCE = 1 - SIGNIFICANCE
APART, OF_RANGE = 0.1, 1.2
"""Seeds form two clusters where neighbours differ by more than `APART` of the metric's bounds, and by more than
`OF_RANGE` / √(seeds - 1) of the range of all."""
MANY = 12
"""Seeds from which on clusters have an interval: where one seed in five fails it covers the mean in 91 of 100 cases."""
ROUNDING = 1e-12
"""Largest difference that is put down to rounding."""
Vector = np.ndarray[tuple[int], np.dtype[np.float64]]
Matrix = np.ndarray[tuple[int, int], np.dtype[np.float64]]


def with_series(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with a ``series``, the encoder unless they have one."""
    return rows if "series" in rows.columns else rows.assign(series=rows["encoder"])


def over_seeds(rows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Summarise over seeds, one line for each group.

    Args:
        rows: rows with the columns of `experiments.rows.row.Row`.
        by: the columns that define a group. Several rows of a seed in one group are averaged first.

    Returns:
        ``by``, then ``mean``, ``median``, ``low``, ``high`` (95 % interval of the mean, see above; NaN where there is
        none), ``seeds`` (with a value), ``unsupported`` and ``diverged`` (seeds without one), ``chance``. Sorted.
    """
    by = list(by)
    groups = rows.groupby(by, dropna=False)
    table = groups[["chance"]].mean()
    # Grouping by number is much faster than by several texts, and there may be millions of rows.
    numbered = rows[["seed", "value", "n"]].assign(group=groups.ngroup())
    valued = numbered[rows["status"] == "ok"].groupby(["group", "seed"])[["value", "n"]].mean()
    every = range(len(table))
    of_group = valued["value"].groupby(level="group").agg(["mean", "median", "std", "count"]).reindex(every)
    table[["mean", "median"]] = of_group[["mean", "median"]].to_numpy()
    table["seeds"] = of_group["count"].fillna(0).astype(int).to_numpy()
    for status in ("unsupported", "diverged"):
        counts = numbered[rows["status"] == status].groupby("group")["seed"].nunique()
        table[status] = counts.reindex(every).fillna(0).astype(int).to_numpy()
    first = ~numbered["group"].duplicated()
    bounds = np.array([metric_of(name).bounds for name in rows["metric"][first]], dtype=float).reshape(-1, 2)
    bounds = bounds[np.argsort(numbered["group"][first].to_numpy())]
    share = (bounds == (0, 1)).all(axis=1)
    questions = valued["n"].groupby(level="group").mean().reindex(every).to_numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        certain = (table["mean"].to_numpy() * questions + 0.5) / (questions + 1)
        noise = np.where(share & (questions > 0), certain * (1 - certain) / questions, 0.0)
    mean, deviation = of_group["mean"].to_numpy(), of_group["std"].to_numpy()
    low, high = mean_intervals(mean, deviation, table["seeds"].to_numpy(), bounds, noise)
    clustered = _clusters(valued["value"], every, bounds)
    table["low"], table["high"] = np.where(clustered, np.nan, low), np.where(clustered, np.nan, high)
    return table[["mean", "median", "low", "high", "seeds", "unsupported", "diverged", "chance"]].reset_index()


def _clusters(valued: "pd.Series[float]", every: range, bounds: Matrix) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    ordered = valued.sort_values(kind="stable").groupby(level="group")
    gaps = ordered.diff().groupby(level="group").max().reindex(every).to_numpy()
    spread, count = (ordered.max() - ordered.min()).reindex(every), ordered.size().reindex(every)
    with np.errstate(invalid="ignore", divide="ignore"):
        far = (gaps > APART * (bounds[:, 1] - bounds[:, 0])) & (count.to_numpy() < MANY)
        return far & (gaps > OF_RANGE / np.sqrt(count.to_numpy() - 1) * spread.to_numpy())


def bounded(values: Vector, bounds: tuple[float, float], noise: float = 0.0) -> tuple[float, float]:
    """Return the interval of the mean of one series' values, one for each seed; NaN where there is none.

    ``bounds`` are those of the metric, ``noise`` is the variance of a value that the evaluation alone causes.
    """
    if len(values) < FEWEST:
        return np.nan, np.nan
    ends = np.array([bounds], dtype=float)
    series = pd.Series(values, index=pd.Index(np.zeros(len(values), dtype=int), name="group"))
    if _clusters(series, range(1), ends)[0]:
        return np.nan, np.nan
    mean, deviation, count = (np.array([number]) for number in (values.mean(), values.std(ddof=1), len(values)))
    low, high = mean_intervals(mean, deviation, count, ends, noise)
    return float(low[0]), float(high[0])


def mean_intervals(
    mean: Vector, deviation: Vector, count: Vector, bounds: Matrix, noise: Vector | float
) -> tuple[Vector, Vector]:
    """Return both ends of the intervals of many means, each within its interval; NaN below `FEWEST` seeds.

    Args:
        mean: over seeds.
        deviation: over seeds (n - 1).
        count: of seeds.
        bounds: two columns, the least and the largest mean that is possible; infinite where there is none.
        noise: variance of one seed's value that the evaluation alone causes.
    """
    low, high = bounds[:, 0], bounds[:, 1]
    few = count < FEWEST
    seeds = np.where(few, FEWEST, count)
    error = np.sqrt(np.maximum(deviation**2, noise) / seeds)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        # All seeds at a bound do not prove that the mean is there.
        margin = np.sqrt(noise / seeds) + ROUNDING
        inner = np.minimum(np.maximum(mean, low + margin), high - margin)
        half = stdtrit(seeds - 1.0, (1 + CONFIDENCE) / 2) * error
        width, share = high - low, (inner - low) / (high - low)
        kinds = [np.isfinite(width), np.isfinite(low), np.isfinite(high)]
        ends = []
        for sign in (-1, 1):
            step = sign * half
            scaled = [
                low + width * expit(logit(share) + step / (width * share * (1 - share))),
                low + (inner - low) * np.exp(step / (inner - low)),
                high - (high - inner) * np.exp(-step / (high - inner)),
            ]
            ends.append(np.where(few, np.nan, np.select(kinds, scaled, mean + step)))
    return np.minimum(ends[0], mean), np.maximum(ends[1], mean)


def half_width(values: "pd.Series[float]") -> float:
    """Return half the width of the t interval of the mean of some values; NaN below two."""
    count = len(values)
    return float(stdtrit(count - 1, (1 + CONFIDENCE) / 2) * values.std() / np.sqrt(count)) if count > 1 else np.nan


def by_measurement(
    rows: pd.DataFrame, coordinates: Sequence[str] | None = None, *, experiment: str | None = None
) -> pd.DataFrame:
    """Summarise each series' measurements over seeds, one line for each metric, length, condition and coordinates.

    Return ``task, metric, series, train_length, eval_length, condition`` and the coordinates (None: those that any of
    the rows has), then what `over_seeds` gives. ``rows`` are of one experiment, or of many if it is named.
    """
    rows = rows if experiment is None else rows_of(rows, experiment)
    columns = ["task", "metric", "series", "train_length", "eval_length", "condition"]
    return over_seeds(with_series(rows), [*columns, *(coordinates_in(rows) if coordinates is None else coordinates)])
