"""The most pronounced head of each label, or the mean of its heads, among all heads. Rows only, no model."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.figures import style
from experiments.figures.style import Look
from experiments.rows.row import COORDINATES, among, metric_of
from experiments.statistics.intervals import over_seeds

INITIAL = "initial_"
SMALL = 7.5
"""Points; the smallest text."""
ALIKE = "looking at all visible keys alike"


def over_heads(rows: pd.DataFrame, by: list[str], *, largest: bool) -> pd.DataFrame:
    """One row a run, of its heads' rows of one metric: the largest, or one with their mean. Without coordinates.

    A run that has no value keeps one row that says why.

    Args:
        rows: with a ``label``.
        by: columns that make groups within a run.
        largest: whether to take the largest, else the mean, of value and chance.
    """
    parts = []
    for _, group in rows.groupby([*by, "label", "run_id"], sort=False):
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
    """A panel a metric; a line a label, or a layer where there is but one; every head, and the largest or mean."""
    of_metrics = rows
    labels = among(looks, rows["label"])
    if len(labels) == 1:
        of_metrics = of_metrics[of_metrics["layer"].notna()]
        lines = [str(layer) for layer in sorted(set(of_metrics["layer"]))]
        named, look_of = {line: f"layer {line}" for line in lines}, {line: looks[labels[0]] for line in lines}
        of_metrics = of_metrics.assign(line=of_metrics["layer"].astype(str))
    else:
        lines = labels
        named, look_of = {line: line for line in lines}, looks
        of_metrics = of_metrics.assign(line=of_metrics["label"])
    with style.theme():
        figure = style.figure(1.3 + 0.24 * max(2, len(lines)))
        panels = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
        for axes, metric in zip(panels, metrics, strict=True):
            _dots_panel(axes, of_metrics, metric, lines, look_of, largest=largest)
            axes.set_title(metric_of(metric).label, fontsize="medium")
            axes.set_xlabel(metric_of(metric).unit, fontsize=9)
            sns.despine(ax=axes, left=True)
        panels[0].set_yticks(range(len(lines)), [named[line] for line in lines], fontsize=8.5)
        panels[0].set_ylim(len(lines) - 0.5, -0.5)
        text = "the most pronounced heads" if largest else "how widely heads look"
        figure.suptitle(style.title(rows, text), fontsize="large")
        what = "largest head" if largest else "mean of heads"
        grey: dict[str, Any] = {"color": "#555555", "linestyle": ""}
        legend(
            figure,
            [
                Line2D([], [], marker="o", markersize=7, label=what, **grey),
                Line2D([], [], marker="o", markersize=6, markerfacecolor="white", label="before training", **grey),
                Line2D([], [], marker=".", markersize=4, alpha=0.6, label="each head and seed", **grey),
                Line2D([], [], marker="|", markersize=10, label=ALIKE, **grey),
            ],
        )
    return figure


def _dots_panel(
    axes: Axes, rows: pd.DataFrame, metric: str, lines: list[str], looks: dict[str, Look], *, largest: bool
) -> None:
    found = {}
    for name in (metric, INITIAL + metric):
        best = over_heads(rows[rows["metric"] == name], ["line"], largest=largest)
        found[name] = over_seeds(best, ["line"]).set_index("line")
    heads = rows[(rows["metric"] == metric) & (rows["status"] == "ok")]
    for place, line in enumerate(lines):
        look = looks[line]
        of_line = heads.loc[heads["line"] == line, "value"]
        axes.plot(of_line, [place] * len(of_line), ".", color=look.colour, alpha=0.35, markersize=3.5, zorder=2)
        if line not in found[metric].index or not found[metric].loc[line, "seeds"]:
            why = " or ".join(sorted(set(rows.loc[rows["line"] == line, "status"]) - {"ok"}))
            axes.text(
                0.02, place, why, fontsize=SMALL, color="#666666", va="center", transform=axes.get_yaxis_transform()
            )
            continue
        now = found[metric].loc[line].to_dict()
        axes.plot(now["chance"], place, "|", color="#555555", markersize=10, zorder=2)
        if line in found[INITIAL + metric].index:
            before = {**look.marking(), "markerfacecolor": "white", "markeredgecolor": look.colour}
            before |= {"markersize": 5, "markeredgewidth": 1.1, "fillstyle": "full"}
            axes.plot(float(found[INITIAL + metric]["mean"][line]), place, linestyle="none", zorder=3, **before)
        half = 0.0 if math.isnan(now["half_width"]) else now["half_width"]
        axes.errorbar(
            now["mean"],
            place,
            xerr=half,
            color=look.colour,
            linestyle="none",
            elinewidth=1.1,
            zorder=4,
            **look.marking(),
        )
    axes.grid(visible=False, axis="y")
    for place in range(0, len(lines), 2):
        axes.axhspan(place - 0.5, place + 0.5, color="#f4f4f0", zorder=0)
    if metric_of(metric).unit.startswith("share"):
        axes.set_xlim(-0.04, 1.04)
        axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    else:
        axes.set_xlim(left=0)


def legend(figure: Figure, handles: list[Any]) -> None:
    """One line under the whole figure, which grows by it."""
    figure.set_figheight(figure.get_figheight() + 0.3)
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=8.5)
