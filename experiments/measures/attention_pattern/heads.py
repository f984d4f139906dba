"""Figure of the most pronounced head, or the mean of heads, among all heads."""

import math
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.figures import style
from experiments.figures.panels import dot_panels, why_empty
from experiments.figures.style import Look
from experiments.measures.attention_pattern import INITIAL
from experiments.rows.row import COORDINATES, among, metric_of
from experiments.statistics.intervals import over_seeds

UNIFORM = "uniform weights"


def over_heads(rows: pd.DataFrame, by: list[str], *, largest: bool) -> pd.DataFrame:
    """Return one row for each run: the largest of its heads' rows of one metric, or their mean. Without coordinates.

    A run without a value keeps one row with its status.

    Args:
        rows: with a ``series``.
        by: columns that make groups within a run.
        largest: whether to take the largest; else the mean of value and chance.
    """
    parts = []
    for _, group in rows.groupby([*by, "series", "run_id"], sort=False):
        valued = group[group["status"] == "ok"]
        if valued.empty:
            parts.append(group.head(1))
        elif largest:
            parts.append(valued.loc[[valued["value"].idxmax()]])
        else:
            parts.append(valued.head(1).assign(value=valued["value"].mean(), chance=valued["chance"].mean()))
    found = pd.concat(parts) if parts else rows.head(0)
    return found.assign(condition="", **dict.fromkeys(COORDINATES, None))


def dots(rows: pd.DataFrame, metrics: list[str], looks: dict[str, Look], *, largest: bool) -> Figure:
    """Return a figure with a panel for each metric and a line for each series, or each layer of a single series."""
    series_names = among(looks, rows["series"])
    if len(series_names) == 1:
        rows = rows[rows["layer"].notna()]
        rows = rows.assign(line="layer " + rows["layer"].astype(str))
        look_of = {f"layer {layer}": looks[series_names[0]] for layer in sorted(set(rows["layer"]))}
    else:
        rows, look_of = rows.assign(line=rows["series"]), {series: looks[series] for series in series_names}
    with style.theme():
        figure, panels = dot_panels(list(look_of), [metric_of(metric).label for metric in metrics])
        for axes, metric in zip(panels, metrics, strict=True):
            _panel(axes, rows, metric, look_of, largest=largest)
            axes.set_xlabel(metric_of(metric).unit, fontsize="small")
        text = "the most pronounced heads" if largest else "how widely heads attend"
        figure.suptitle(style.title(rows, text), fontsize="large")
        grey: dict[str, Any] = {"color": "#555555", "linestyle": ""}
        key = [
            Line2D([], [], marker="o", markersize=7, label="largest head" if largest else "mean of heads", **grey),
            Line2D([], [], marker="o", markersize=6, markerfacecolor="white", label="before training", **grey),
            Line2D([], [], marker=".", markersize=4, alpha=0.6, label="each head and seed", **grey),
            Line2D([], [], marker="|", markersize=10, label=UNIFORM, **grey),
        ]
        style.legend(figure, key)
    return figure


def _panel(axes: Axes, rows: pd.DataFrame, metric: str, looks: dict[str, Look], *, largest: bool) -> None:
    found = {}
    for name in (metric, INITIAL + metric):
        best = over_heads(rows[rows["metric"] == name], ["line"], largest=largest)
        found[name] = {line["line"]: line for line in over_seeds(best, ["line"]).to_dict("records")}
    for place, (line, look) in enumerate(looks.items()):
        of_line = rows[(rows["metric"] == metric) & (rows["line"] == line) & (rows["status"] == "ok")]["value"]
        axes.plot(of_line, [place] * len(of_line), ".", color=look.colour, alpha=0.35, markersize=3.5, zorder=2)
        now, before = found[metric].get(line), found[INITIAL + metric].get(line)
        if now is None or not now["seeds"]:
            why = why_empty(rows[(rows["line"] == line) & (rows["status"] != "ok")])
            where = axes.get_yaxis_transform()
            axes.text(0.02, place, why, fontsize="small", color="#666666", va="center", transform=where)
            continue
        axes.plot(now["chance"], place, "|", color="#555555", markersize=10, zorder=2)
        if before is not None:
            hollow = {**look.marking(), "markerfacecolor": "white", "markeredgecolor": look.colour}
            hollow |= {"markersize": 5, "markeredgewidth": 1.1, "fillstyle": "full"}
            axes.plot(before["mean"], place, linestyle="none", zorder=3, **hollow)
        half = 0.0 if math.isnan(now["half_width"]) else now["half_width"]
        bar: dict[str, Any] = {"color": look.colour, "linestyle": "", "elinewidth": 1.1, **look.marking()}
        axes.errorbar(now["mean"], place, xerr=half, zorder=4, **bar)
    if metric_of(metric).unit.startswith("share"):
        axes.set_xlim(-0.04, 1.04)
        axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    else:
        axes.set_xlim(left=0)
