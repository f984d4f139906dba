"""Figures and table of attention weights over distance and of each head's scores."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from experiments.figures.style import looks, slug
from experiments.measures.attention_pattern import DISTANCE, ENTROPY, FIRST, INDUCTION, INITIAL, MAIN, MASS, NAME
from experiments.measures.attention_pattern.distances import histograms, lifts
from experiments.measures.attention_pattern.heads import dots, over_heads
from experiments.rows.row import metric_of, rows_of
from experiments.statistics.intervals import by_measurement, with_series

SCORES = (MAIN, INDUCTION, FIRST)
CAPTIONS = {
    "attention_histogram": "Share of each head's weight at each distance, in tokens (negative: ahead). Bars: mean over "
    "queries and sequences; circles: before training; line: uniform weights on all visible keys. A preference stands "
    "out from the line. Models of many heads have one panel for each layer.",
    "attention_lift": "Weight at each distance, in tokens (negative: ahead), relative to uniform weights on all "
    "visible keys. A panel for each series, a line for each head and seed, by layer and by mean distance. White: no "
    "preference; the ends of the scale include all beyond them. Grey: no such distance.",
    "attention_heads": "The most pronounced head. Large: the largest of all heads, mean over seeds; bars: 95 % t "
    "interval, not cut to the axis; hollow: before training; small dots: every head and seed; vertical strokes: that "
    "head with uniform weights. For one series, a line for each layer.",
    "attention_spread": "How widely heads attend. Large: mean over heads and seeds; bars: 95 % t interval over seeds; "
    "hollow: before training; small dots: every head and seed; vertical strokes: uniform weights. For one series, a "
    "line for each layer.",
}


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """Return mean, interval and number of seeds for each metric, layer, head and range. See `by_measurement`."""
    return by_measurement(rows_of(rows, NAME))


def plot(rows: pd.DataFrame) -> dict[str, Figure]:
    """Plot weight over distance, the scores of heads and how widely they attend: stem -> figure, for each task.

    Args:
        rows: of this experiment, of one run or of many.
    """
    rows = with_series(rows_of(rows, NAME))
    drawn = {}
    for task, of_task in rows.groupby("task"):
        found, stem = looks(of_task), slug(str(task))
        valued = set(of_task.loc[of_task["status"] == "ok", "metric"])
        if MASS in valued and of_task["run_id"].nunique() == 1:
            drawn[f"{stem}_attention_histogram"] = histograms(of_task, MASS)
        elif MASS in valued:
            drawn[f"{stem}_attention_lift"] = lifts(of_task, MASS, found)
        for name, metrics, largest in (
            ("attention_heads", SCORES, True),
            ("attention_spread", (DISTANCE, ENTROPY), False),
        ):
            measured = [metric for metric in metrics if metric in valued]
            if measured:
                drawn[f"{stem}_{name}"] = dots(of_task, measured, found, largest=largest)
    return drawn


def shown(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each run with the largest score of its heads and their mean distance; before training too."""
    parts = []
    for metric in (*SCORES, DISTANCE):
        for stage in ("", INITIAL):
            of_metric = with_series(rows[rows["metric"] == f"{stage}{metric}"])
            if len(of_metric):
                head = f"{metric_of(f'{stage}{metric}').label}{', largest' if metric in SCORES else ''}"
                parts.append(over_heads(of_metric, [], largest=metric in SCORES).assign(head=head))
    return pd.concat(parts, ignore_index=True) if parts else rows.assign(head="")
