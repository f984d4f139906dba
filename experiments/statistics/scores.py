"""One number for each run of a task: what comparisons, groups and ranks are made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from experiments.rows.row import metric_of
from experiments.statistics.intervals import Matrix, labelled

WHY = ("not measured", "unsupported", "diverged")
"""Why a run has no score; of several reasons, the last."""
COLUMNS = ["task", "metric", "label", "seed", "value", "score", "lengths", "status"]


def scores(rows: pd.DataFrame) -> pd.DataFrame:
    """One line for each task, metric, label and seed: its mean over the lengths that the labels have in common.

    These are the lengths at which at least half of a task's labels have a value. A run that lacks one of them has no
    score, and says why: no label is ranked by lengths that are easier than those of the others. So all differences
    between lines of one task, metric and seed are paired by seed and by input.

    Args:
        rows: of any number of tasks and metrics, at the lengths that are to count, as `_stats.beyond` gives them.

    Returns:
        ``task``, ``metric``, ``label``, ``seed``, ``value`` (in the metric's unit; NaN without), ``score`` (the
        value less what guessing gets, as a share of what is left to gain: (value - chance) / (best - chance), best
        being 1, or 0 bits; 0 is guessing, 1 perfect; NaN where there is no chance level), ``lengths`` (how many the
        mean is over), ``status`` (``ok``, ``unsupported``, ``diverged``, ``not measured``). Sorted.
    """
    rows = labelled(rows)
    of_run = rows.groupby(["task", "metric", "label", "seed"])
    table = of_run.size().index.to_frame(index=False)
    if table.empty:
        return pd.DataFrame(columns=COLUMNS)
    # From here on by the number of a run and of a length: there may be many rows, and a key is several texts.
    numbered = rows[["value", "status"]].assign(score=normalised(rows), run=of_run.ngroup())
    numbered["length"] = rows.groupby(["task", "metric", "eval_length"]).ngroup()
    valued = numbered[(rows["status"] == "ok") & (numbered["run"] >= 0)]
    part = table.groupby(["task", "metric"]).ngroup()
    label = table.groupby(["task", "metric", "label"]).ngroup()
    having = label[valued["run"]].groupby(valued["length"].to_numpy()).nunique()
    of_length = part[valued["run"]].groupby(valued["length"].to_numpy()).first()
    shared = having.index[having * 2 >= label.groupby(part).nunique()[of_length].to_numpy()]
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
    """Each row's value as a share of the way from guessing (0) to perfect (1); negative is worse than guessing.

    Perfect is 1 where more is better (shares of tokens or sequences), and 0 where less is (bits).
    """
    best = rows["metric"].map({name: _best(name) for name in set(rows["metric"].unique())}).astype(float)
    room = best - rows["chance"]
    return (rows["value"] - rows["chance"]).where(room != 0) / room.where(room != 0)


def _best(metric: str) -> float:
    return {True: 1.0, False: 0.0, None: np.nan}[metric_of(metric).higher_is_better]


def matrix(table: pd.DataFrame, labels: Sequence[str], column: str = "value") -> Matrix:
    """Seeds down, ascending, and labels across; NaN where a label has no such seed.

    Args:
        table: of `scores`, one task and metric.
        labels: in the order of the columns.
        column: ``value`` or ``score``.
    """
    wide = table.pivot(index="seed", columns="label", values=column).reindex(columns=list(labels))
    return wide.to_numpy(dtype=np.float64)
