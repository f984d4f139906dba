"""Figures and tables of quality and outputs over the shift of positions."""

from functools import partial
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.figures import style
from experiments.figures.panels import GREY, by_task, failed, highest, line, small_multiples, spread, under_heads
from experiments.figures.style import Look
from experiments.measures.shift_sensitivity import CHANGE, CHANGES, INITIAL, MAIN, NAME
from experiments.rows.row import main_metric, metric_of
from experiments.statistics.intervals import by_measurement, over_seeds

MOST_SHIFTS = 5
CAPTIONS = {
    "shift_quality": "Quality of the trained model with all positions shifted by the same number. Dotted: guessing "
    "without reading. Bands: 95 % intervals over seeds. A line ends where the encoder does not support the positions.",
    "shift_output_change": "Change of the outputs when all positions are shifted, relative to the outputs at shift 0. "
    "Solid: trained. Dashed: before training. Bands: 95 % intervals over seeds. A line ends where the encoder does "
    "not support the positions.",
}


def shown(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the table, with their column's heading in ``head``: quality, loss, change."""
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


def _figures(rows: pd.DataFrame, looks: dict[str, Look]) -> dict[str, Figure]:
    valued, without = set(rows.loc[rows["status"] == "ok", "metric"]), failed(rows)
    figures = {}
    for name, metrics, draw in (
        ("shift_quality", [main_metric(valued)], _of_quality),
        ("shift_output_change", [*CHANGES], _of_change),
    ):
        if valued & set(metrics):
            figures[name] = draw(pd.concat([rows[rows["metric"].isin(metrics)], without]), looks)
    return figures


def _shifted(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(shifted=rows["shift"].fillna(0).astype(int))


def _of_quality(rows: pd.DataFrame, looks: dict[str, Look]) -> Figure:
    metric = metric_of(str(rows["metric"].iloc[0]))
    summary = over_seeds(rows, ["series", "shifted"])
    chance = rows.groupby("series")["chance"].mean()
    top = 1.0 if metric.higher_is_better else max(highest(summary), chance.max())
    chance_style: dict[str, Any] = {"color": GREY, "linewidth": 1.2, "linestyle": ":"}

    def draw(axes: Axes, series: str, look: Look) -> None:
        marking = look.marking() | {"markersize": 5}
        line(axes, summary[summary["series"] == series], "shifted", look.colour, linewidth=1.6, **marking)
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
        for metric, how in ((INITIAL, dashed), (CHANGE, {"linewidth": 1.6, **look.marking(), "markersize": 5})):
            part = summary[(summary["series"] == series) & (summary["metric"] == metric)]
            line(axes, part, "shifted", look.colour, **how)
        _shift_axis(axes, sorted(set(rows["shifted"]) - {0}))
        axes.set_ylim(-0.03 * top, 1.05 * top)

    key = [
        Line2D([], [], color="#222222", linewidth=1.6, marker="o", markersize=4, label="trained"),
        Line2D([], [], color="#222222", **dashed, label="before training"),
    ]
    what = {"title": "change of the outputs, positions shifted", "x": "shift"}
    return small_multiples(rows, looks, draw, **what, y=f"change ({metric_of(CHANGE).unit})", key=key)


def _shift_axis(axes: Axes, shifts: list[int]) -> None:
    """Logarithmic above 1, linear below, so that 0 has a place; a tick at every shift, numbers while there is room."""
    axes.set_xscale("symlog", base=2, linthresh=1, linscale=1)
    axes.set_xlim(-0.35 if 0 in shifts else min(shifts) / 1.8, max(shifts) * 1.8)
    style.ticks(axes.xaxis, shifts, spread(shifts, 6))


summarise = partial(by_measurement, experiment=NAME)
plot = partial(by_task, experiment=NAME, draw=lambda of_task, looks: _figures(_shifted(of_task), looks))
