"""Figures of standings: each series' area with its seeds and the places it may have, and all pairs over tasks."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from experiments.figures import style, words

INK, GREY, PALE = "#0173b2", "#666666", "#9cc4dd"
LONGEST = 48
"""Most characters of a series' name; the middle of a longer one is left out."""
PANELS = 4


def standings(table: pd.DataFrame, scores: pd.DataFrame, hollow: Mapping[str, Collection[str]]) -> Figure:
    """Plot the areas of the seeds, their mean and interval, and the range of places; a panel for each task.

    Series are ordered by mean place; ``hollow`` is task -> series whose dots are hollow. ValueError if none has a
    score. The table is of `statistics.comparisons.standings`, of at most `PANELS` tasks.
    """
    known = table[table["status"] == "ok"]
    if known.empty:
        raise ValueError("no standings to draw: no series has a score")
    order = known.groupby("series")["place"].mean().sort_values(kind="stable").index
    height_of = {series: height for height, series in enumerate(order)}
    with style.theme():
        figure = style.figure(1.1 + 0.2 * len(order))
        panels = figure.subplots(1, known["task"].nunique(), sharey=True, squeeze=False)[0]
        panels[0].set_ylim(len(order) - 0.4, -1.4)
        panels[0].set_yticks(range(len(order)), [_short(name) for name in order])
        for axes, (task, lines) in zip(panels, known.groupby("task", sort=False), strict=True):
            heights = lines["series"].map(height_of)
            axes.hlines(heights, lines["low"], lines["high"], color=PALE, linewidth=5)
            seeds = scores[(scores["task"] == task) & (scores["status"] == "ok")]
            axes.plot(seeds["area"], seeds["series"].map(height_of), "o", color=GREY, markersize=2, alpha=0.7, zorder=2)
            open_dots = lines["series"].isin(list(hollow.get(str(task), ())))
            for part, fill in ((~open_dots, INK), (open_dots, "white")):
                axes.plot(lines["area"][part], heights[part], "o", color=INK, mfc=fill, markersize=4, zorder=3)
            places = [words.span(low, high) for low, high in zip(lines["place_low"], lines["place_high"], strict=True)]
            side: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "va": "center", "fontsize": "small"}
            axes.text(1.03, -1, "places", color=GREY, **side)
            for height, text in zip(heights, places, strict=True):
                axes.text(1.03, float(height), text, **side)
            axes.set_xlabel(f"area to ×{lines['up_to'].iloc[0]:g}", fontsize="small")
            axes.set_title(str(task), fontsize="medium")
            axes.xaxis.set_major_locator(MaxNLocator(3))
            axes.grid(visible=True, axis="y", color="#f0f0f0")
            axes.tick_params(axis="x", labelsize="small")
            axes.tick_params(axis="y", length=0)
            sns.despine(ax=axes, left=True)
        figure.suptitle("Quality kept beyond the training length, and the places it may have", x=0.01, ha="left")
    return figure


def pairs(table: pd.DataFrame, order: list[str]) -> Figure:
    """Plot `statistics.comparisons.over_tasks`: tasks in which the series of the line is better less those in which
    worse.
    """
    wide = table.assign(net=table["wins"] - table["losses"]).pivot(index="first", columns="second", values="net")
    wide = wide.reindex(index=order, columns=order)
    most = max(1.0, float(np.nanmax(np.abs(wide.to_numpy(dtype=float)), initial=1)))
    with style.theme():
        figure = style.figure(1.6 + 0.2 * len(order))
        axes = figure.subplots()
        image = axes.imshow(wide.to_numpy(dtype=float), cmap="RdBu", vmin=-most, vmax=most)
        axes.set_xticks(range(len(order)), [_short(name) for name in order], rotation=90, fontsize="small")
        axes.set_yticks(range(len(order)), [_short(name) for name in order], fontsize="small")
        axes.grid(visible=False)
        figure.colorbar(image, ax=axes, shrink=0.6, label="tasks better less tasks worse")
    return figure


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 16]}…{name[-15:]}"
