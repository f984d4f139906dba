"""Figures of training."""

from functools import partial
from typing import Any

import pandas as pd

from experiments.figures import lines, style
from experiments.figures.panels import by_task, chart
from experiments.figures.style import Chart, Look
from experiments.rows.row import among, metric_of


def _figures(rows: pd.DataFrame, looks: dict[str, Look]) -> dict[str, Chart]:
    """Draw loss and held-out accuracy of a task over the steps of ``training``."""
    if not (metrics := among(("loss", "token_accuracy"), rows["metric"])):
        return {}
    loss = rows[rows["metric"] == metrics[0]]
    last = loss[loss["step"] == loss.groupby("run_id")["step"].transform("max")]
    named = style.chosen(looks, last.groupby("series")["value"].mean().sort_values().index)
    caption = "Training loss (mean since the previous point) and accuracy on held-out data of training length. Thick: "
    caption += "mean, thin: seeds."
    caption += " Colour: the best of each family; grey: the others." if len(named) < len(looks) else ""
    titles = [f"{metric_of(metric).label} ({metric_of(metric).unit})" for metric in metrics]
    how: dict[str, Any] = {"x": "training step", "key": named, "alike": "x"}
    figure, panels = chart(f"{rows['task'].iloc[0]}: training", caption, titles, height=1.5, **how)
    for axes, metric in zip(panels, metrics, strict=True):
        lines.draw(axes, rows[rows["metric"] == metric], "step", named)
        axes.set_ylim(*((0, 1.02) if metric == "token_accuracy" else (0, None)))
    return {"training": figure}


training_curves = partial(by_task, experiment="training", draw=_figures)
