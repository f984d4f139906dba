"""Figures and tables of quality and outputs over the shift of positions."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.figures import style as _style
from experiments.figures.panels import GREY, failed, highest, line, small_multiples, spread, under_heads
from experiments.figures.style import Look, looks, slug
from experiments.measures.shift_sensitivity import CHANGE, CHANGES, INITIAL, MAIN, NAME
from experiments.rows.row import main_metric, metric_of, rows_of
from experiments.statistics.intervals import by_measurement, over_seeds, with_series

MOST_SHIFTS = 5
"""Shifts that the report's table has room for."""
CAPTIONS = {
    "shift_quality": (
        "Quality of the trained model with all positions shifted by the same number; at the training length. Dotted: "
        "guessing without reading. Bands: 95 % intervals over seeds. A line ends where the encoder takes no such "
        "positions."
    ),
    "shift_output_change": (
        "How much the outputs change when all positions are shifted, relative to the outputs at shift 0. Solid: "
        "trained. Dashed: before training. Bands: 95 % intervals over seeds. A line ends where the encoder takes no "
        "such positions."
    ),
}


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean, interval and number of seeds for each series, metric and shift. See `by_measurement`."""
    return by_measurement(rows_of(rows, NAME))


def shown(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the report's table, with their column's heading in ``head``: quality, what is lost, change."""
    rows = _shifted(rows)
    shifts = spread([int(shift) for shift in rows["shifted"] if shift], MOST_SHIFTS)
    quality, lost = main_metric(rows["metric"].unique()), rows[rows["metric"] == MAIN]
    parts = []
    if quality is not None:
        untouched = rows[(rows["metric"] == quality) & (rows["shifted"] == 0)]
        parts.append(untouched.assign(head=f"{metric_of(quality).label}, shift 0"))
    parts += [lost[lost["shifted"] == shift].assign(head=f"lost at shift {shift}") for shift in shifts]
    for metric, when in ((INITIAL, "untrained"), (CHANGE, "trained")):
        far = rows[(rows["metric"] == metric) & rows["shifted"].isin(shifts[-1:])]
        parts.append(far.assign(head=f"output change at shift {max(shifts, default=0)}, {when}"))
    return under_heads(parts, rows).drop(columns="shifted")


def plot(rows: pd.DataFrame) -> dict[str, Figure]:
    """Quality over shift, and change of the outputs before and after training: stem -> figure, for each task.

    Args:
        rows: of this experiment, of one run or of many.
    """
    rows = _shifted(with_series(rows_of(rows, NAME)))
    figures = {}
    for task, of_task in rows.groupby("task"):
        valued = set(of_task.loc[of_task["status"] == "ok", "metric"])
        found, quality = looks(of_task), main_metric(valued)
        without = failed(of_task)
        for stem, metrics, draw in (("quality", [quality], _of_quality), (CHANGE, [*CHANGES], _of_change)):
            if valued & set(metrics):
                drawn = pd.concat([of_task[of_task["metric"].isin(metrics)], without])
                figures[f"{slug(str(task))}_shift_{stem}"] = draw(drawn, found)
    return figures


def _shifted(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with ``shifted``: the shift, 0 where there is none."""
    return rows.assign(shifted=rows["shift"].fillna(0).astype(int))


def _of_quality(rows: pd.DataFrame, looks: dict[str, Look]) -> Figure:
    metric = metric_of(str(rows["metric"].iloc[0]))
    summary = over_seeds(rows, ["series", "shifted"])
    chance = rows.groupby("series")["chance"].mean()
    top = 1.0 if metric.higher_is_better else max(highest(summary), chance.max())
    chance_style: dict[str, Any] = {"color": GREY, "linewidth": 1.2, "linestyle": ":"}

    def draw(axes: Axes, series: str, look: Look) -> None:
        line(axes, summary[summary["series"] == series], "shifted", look.colour, linewidth=1.6, **_marked(look))
        if chance.notna()[series]:
            axes.axhline(chance[series], **chance_style)
        _shift_axis(axes, sorted(set(rows["shifted"])))
        axes.set_ylim(-0.03 * top, 1.05 * top)

    key = [Line2D([], [], **chance_style, label="guessing without reading")]
    what = {"title": f"{metric.label}, positions shifted", "x": "shift"}
    return small_multiples(rows, looks, draw, **what, y=f"{metric.label} ({metric.unit})", key=key)


def _of_change(rows: pd.DataFrame, looks: dict[str, Look]) -> Figure:
    summary = over_seeds(rows, ["series", "metric", "shifted"])
    # At least a tenth high: rounding, where nothing changes, is not to fill the panel.
    top = max(0.1, highest(summary))
    dashed: dict[str, Any] = {"linewidth": 1.3, "linestyle": (0, (3, 2))}

    def draw(axes: Axes, series: str, look: Look) -> None:
        for metric, style in ((INITIAL, dashed), (CHANGE, {"linewidth": 1.6, **_marked(look)})):
            part = summary[(summary["series"] == series) & (summary["metric"] == metric)]
            line(axes, part, "shifted", look.colour, **style)
        _shift_axis(axes, sorted(set(rows["shifted"]) - {0}))
        axes.set_ylim(-0.03 * top, 1.05 * top)

    key = [
        Line2D([], [], color="#222222", linewidth=1.6, marker="o", markersize=4, label="trained"),
        Line2D([], [], color="#222222", **dashed, label="before training"),
    ]
    what = {"title": "change of the outputs, positions shifted", "x": "shift"}
    return small_multiples(rows, looks, draw, **what, y=f"change ({metric_of(CHANGE).unit})", key=key)


def _marked(look: Look) -> dict[str, Any]:
    return look.marking() | {"markersize": 5}


def _shift_axis(axes: Axes, shifts: list[int]) -> None:
    """Logarithmic above 1, linear below, so that 0 has a place; a tick at every shift, numbers while there is room."""
    axes.set_xscale("symlog", base=2, linthresh=1, linscale=1)
    axes.set_xlim(-0.35 if 0 in shifts else min(shifts) / 1.8, max(shifts) * 1.8)
    _style.ticks(axes.xaxis, shifts, spread(shifts, 6))
