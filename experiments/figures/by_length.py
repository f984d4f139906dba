"""The figure of a measure that brings none: what it measured over the length of the sequences."""

from functools import partial
from typing import Any

import pandas as pd

from experiments.figures import lines, style
from experiments.figures.panels import boundary, by_task, chart, length_axis
from experiments.figures.style import Chart, Look
from experiments.rows.row import metric_of, whole

MOST = 4
"""Most metrics that are drawn."""


def _figures(rows: pd.DataFrame, looks: dict[str, Look]) -> dict[str, Chart | None]:
    rows = whole(rows[rows["status"] == "ok"])
    lengths = rows.groupby("metric", sort=False)["eval_length"].nunique()
    metrics = list(lengths[lengths > 1].index)[:MOST]
    if not metrics:
        return {}
    named = style.chosen(looks, looks)
    caption = "Measured at each length of the sequences, beyond the line longer than any in training. "
    caption += "Thick: mean, thin: seeds; dotted: guessing without reading."
    caption += " Colour: one of each family; grey: the others." if len(named) < len(looks) else ""
    titles = [f"{each.label} ({each.unit})" if each.unit else each.label for each in map(metric_of, metrics)]
    how: dict[str, Any] = {"x": "length of the sequences", "key": named, "height": 1.6}
    title = f"{rows['task'].iloc[0]}: {rows['experiment'].iloc[0].replace('_', ' ')}"
    figure, panels = chart(title, caption, titles, **how)
    for axes, metric in zip(panels, metrics, strict=True):
        of_metric = rows[rows["metric"] == metric]
        lines.draw(axes, of_metric, "eval_length", named)
        trained = sorted(set(of_metric["train_length"]))
        length_axis(axes, sorted(set(of_metric["eval_length"])), trained)
        lines.value_axis(axes, of_metric, "eval_length")
        lines.chance(axes, of_metric, "eval_length", "")
        boundary(axes, trained[-1], "trained")
    return {str(rows["experiment"].iloc[0]): figure}


plot = partial(by_task, draw=_figures)
