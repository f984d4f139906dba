"""Figures of training."""

from typing import Any

import pandas as pd

from experiments.figures import lines, style
from experiments.figures.panels import chart
from experiments.figures.style import Chart
from experiments.rows.row import among, metric_of
from experiments.statistics.intervals import with_series


def training_curves(rows: pd.DataFrame) -> dict[str, Chart]:
    """Plot loss and held-out accuracy over the steps of ``training``: stem -> figure, for each task."""
    figures = {}
    for task, of_task in with_series(rows).groupby("task"):
        if not (metrics := among(("loss", "token_accuracy"), of_task["metric"])):
            continue
        looks = style.looks(of_task)
        loss = of_task[of_task["metric"] == metrics[0]]
        last = loss[loss["step"] == loss.groupby("run_id")["step"].transform("max")]
        named = style.chosen(looks, last.groupby("series")["value"].mean().sort_values().index)
        caption = (
            "Training loss (mean since the previous point) and accuracy on held-out data of training length. Thick: "
            "mean, thin: seeds."
        )
        caption += " Colour: the best of each family; grey: the others." if len(named) < len(looks) else ""
        with style.theme():
            titles = [f"{metric_of(metric).label} ({metric_of(metric).unit})" for metric in metrics]
            how: dict[str, Any] = {"x": "training step", "key": named, "alike": "x"}
            figure, panels = chart(f"{task}: training", caption, titles, height=1.5, **how)
            for axes, metric in zip(panels, metrics, strict=True):
                lines.draw(axes, of_task[of_task["metric"] == metric], "step", named)
                axes.set_ylim(*((0, 1.02) if metric == "token_accuracy" else (0, None)))
        figures[f"{style.slug(str(task))}_training"] = figure
    return figures
