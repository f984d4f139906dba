"""One score for each run of a task; groups and ranks are computed from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from experiments.rows.row import metric_of
from experiments.statistics.intervals import Matrix, with_series

WHY = ("not measured", "unsupported", "diverged")
"""Why a run has no score. Of several reasons, the last one counts."""
COLUMNS = ["task", "metric", "series", "seed", "value", "score", "lengths", "status"]


def scores(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one line for each task, metric, series and seed: the mean over the lengths that the series share.

    These are the lengths at which at least half of a task's series have a value. A run that lacks one of them has no
    score, so no series is ranked on easier lengths than the others.

    Args:
        rows: of any number of tasks and metrics, at the lengths that count.

    Returns:
        ``task``, ``metric``, ``series``, ``seed``, ``value`` (NaN where there is no score), ``score`` (normalised by
        chance, see `normalised`), ``lengths`` (how many), ``status`` (``ok`` or one of `WHY`). Sorted.
    """
    rows = with_series(rows)
    of_run = rows.groupby(["task", "metric", "series", "seed"])
    table = of_run.size().index.to_frame(index=False)
    if table.empty:
        return pd.DataFrame(columns=COLUMNS)
    # Grouping by number is much faster than by several texts.
    numbered = rows[["value", "status"]].assign(score=normalised(rows), run=of_run.ngroup())
    numbered["length"] = rows.groupby(["task", "metric", "eval_length"]).ngroup()
    valued = numbered[(rows["status"] == "ok") & (numbered["run"] >= 0)]
    part = table.groupby(["task", "metric"]).ngroup()
    series = table.groupby(["task", "metric", "series"]).ngroup()
    having = series[valued["run"]].groupby(valued["length"].to_numpy()).nunique()
    of_length = part[valued["run"]].groupby(valued["length"].to_numpy()).first()
    shared = having.index[having * 2 >= series.groupby(part).nunique()[of_length].to_numpy()]
    by_length = valued[valued["length"].isin(shared)].groupby(["run", "length"])[["value", "score"]].mean()
    by_run = by_length.groupby(level="run")
    lengths = of_length[shared].value_counts().reindex(part).fillna(0).astype(int).to_numpy()
    # A score without chance at one length would be a mean over other lengths than its value.
    whole = by_run.count().reindex(table.index).eq(lengths, axis=0)
    table[["value", "score"]] = by_run.mean().reindex(table.index).where(whole)
    known = table["value"].notna()
    why = numbered["status"].map({name: place for place, name in enumerate(WHY)}).fillna(0).groupby(numbered["run"])
    table["status"] = why.max().reindex(table.index).map(dict(enumerate(WHY))).mask(known, "ok")
    return table.assign(lengths=np.where(known, lengths, 0))[COLUMNS]


def normalised(rows: pd.DataFrame) -> pd.Series[float]:
    """Return (value - chance) / (best - chance) of each row: 0 is guessing, 1 is perfect; best is 1, or 0 bits."""
    best = rows["metric"].map({name: _best(name) for name in set(rows["metric"].unique())}).astype(float)
    room = best - rows["chance"]
    return (rows["value"] - rows["chance"]).where(room != 0) / room.where(room != 0)


def _best(metric: str) -> float:
    return {True: 1.0, False: 0.0, None: np.nan}[metric_of(metric).higher_is_better]


def matrix(table: pd.DataFrame, series_names: Sequence[str], column: str = "value") -> Matrix:
    """Return a column of `scores`, of one task and metric, as a matrix: seeds down, series across; NaN for gaps."""
    wide = table.pivot(index="seed", columns="series", values=column).reindex(columns=list(series_names))
    return wide.to_numpy(dtype=np.float64)
