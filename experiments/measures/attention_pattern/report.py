"""Figures and table of attention weights over distance and of each head's scores."""

import pandas as pd
from matplotlib.figure import Figure

from experiments.figures.panels import by_task
from experiments.figures.style import Look
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
    "attention_spread": "How widely heads attend. Large: mean over heads and seeds; bars: 95 % interval over seeds; "
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
    return by_task(rows, NAME, _figures)


def _figures(rows: pd.DataFrame, looks: dict[str, Look]) -> dict[str, Figure]:
    drawn = {}
    valued = set(rows.loc[rows["status"] == "ok", "metric"])
    if MASS in valued and rows["run_id"].nunique() == 1:
        drawn["attention_histogram"] = histograms(rows, MASS)
    elif MASS in valued:
        drawn["attention_lift"] = lifts(rows, MASS, looks)
    for name, metrics in (("attention_heads", SCORES), ("attention_spread", (DISTANCE, ENTROPY))):
        if measured := [metric for metric in metrics if metric in valued]:
            drawn[name] = dots(rows, measured, looks, largest=metrics is SCORES)
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
