"""Figures of ranks: means with groups, a critical-difference diagram, and places under resampled tasks."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator

from experiments.figures import style
from experiments.rows.row import metric_of
from experiments.statistics.groups import ALPHABET
from experiments.statistics.intervals import SIGNIFICANCE
from experiments.statistics.ranks import friedman

INK, GREY, PALE = "#0173b2", "#666666", "#9cc4dd"
LONGEST = 40
"""Most characters of the name of a series; the middle of a longer one is left out."""
PANELS = 4
"""Most tasks side by side."""


def ranking(table: pd.DataFrame, hollow: Mapping[str, Collection[str]]) -> Figure:
    """Plot means beyond the training length with intervals and significance groups, a panel for each task.

    Args:
        table: of `groups.ranking`, of at most `PANELS` tasks, one metric each. Series are ordered by mean rank.
        hollow: task -> series whose dots are hollow.

    Raises:
        ValueError: there is nothing to draw.
    """
    known = table[table["status"] == "ok"]
    if known.empty:
        raise ValueError("no ranking to draw: no series has a score")
    order = known.groupby("series")["rank"].mean().sort_values(kind="stable").index
    height_of = {series: height for height, series in enumerate(order)}
    with style.theme():
        figure, panels = _lines(list(order), known["task"].nunique())
        for axes, (task, lines) in zip(panels, known.groupby("task", sort=False), strict=True):
            heights = lines["series"].map(height_of)
            axes.hlines(heights, lines["low"], lines["high"], color=PALE, linewidth=5)
            open_dots = lines["series"].isin(list(hollow.get(str(task), ())))
            for part, fill in ((~open_dots, INK), (open_dots, "white")):
                axes.plot(lines["mean"][part], heights[part], "o", color=INK, mfc=fill, markersize=4, zorder=3)
            _column(axes, heights, [short_group(group) for group in lines["group"]], "group", 1.03)
            metric = metric_of(str(lines["metric"].iloc[0]))
            unit = metric.unit if metric.higher_is_better else f"{metric.unit}; lower is better"
            axes.set_xlabel(f"{metric.label}\n({unit})", fontsize="small")
            axes.set_title(str(task), fontsize="medium")
            if metric.higher_is_better:  # an accuracy; a t interval of few seeds may exceed it
                axes.set_xlim(-0.05, 1.05)
            axes.xaxis.set_major_locator(MaxNLocator(3))
            axes.grid(visible=True, axis="y", color="#f0f0f0")
            axes.tick_params(axis="x", labelsize="small")
            sns.despine(ax=axes, left=True)
        _headline(figure, "Means beyond the training length, 95 % intervals. Same letter: no significant difference")
    return figure


def short_group(letters: str) -> str:
    """Abbreviate consecutive letters: ``bcdef`` to ``b–f``."""
    runs: list[str] = []
    for letter in letters:
        if runs and runs[-1][-1] + letter in ALPHABET:
            runs[-1] += letter
        else:
            runs.append(letter)
    return "".join(run if len(run) < 3 else f"{run[0]}–{run[-1]}" for run in runs)


def critical_difference(table: pd.DataFrame) -> Figure:
    """Plot mean ranks, with bars over series that do not differ in Nemenyi's test (Demšar 2006).

    There are bars only if Friedman's test is significant.

    Args:
        table: of `statistics.ranks.ranks`.

    Raises:
        ValueError: there are no ranks.
    """
    if not table.size:
        raise ValueError("no ranks to draw: no task was measured with two series")
    means, test = table.mean(axis=1), friedman(table)
    with style.theme():
        figure, (axes,) = _lines([str(series) for series in table.index])
        heights = np.arange(len(means))
        axes.hlines(heights, 1, means, color="#dddddd", linewidth=0.9, zorder=1)
        axes.plot(means, heights, "o", color=INK, markersize=5, zorder=3)
        bars = _bars(means.to_numpy(), test["critical_difference"]) if test["p"] < SIGNIFICANCE else []
        levels = _levels(bars)
        right = len(table) + 0.5
        step = max(right - 1, 1) * 0.022
        for (first, last), level in zip(bars, levels, strict=True):
            axes.plot([right + step * (level + 0.5)] * 2, [first - 0.3, last + 0.3], color=GREY, linewidth=2.4)
        axes.set_xlim(0.5, right + step * (max(levels, default=-1) + 1.5))
        _whole_numbers(axes, len(table))
        axes.set_xlabel(f"mean rank over {len(table.columns)} task{'s' * (len(table.columns) != 1)} (1 is best)")
        _headline(figure, _result(test))
        sns.despine(ax=axes, left=True)
    return figure


def _result(test: dict[str, float]) -> str:
    """Return the results of both tests as a title."""
    if math.isnan(test["p"]):
        return "Too few series or tasks for a test"
    p = "p < 0.001" if test["p"] < 0.001 else f"p = {test['p']:.3f}"
    if test["p"] >= SIGNIFICANCE:
        return f"Friedman: {p}. No significant differences over these tasks"
    return f"Friedman: {p}. Critical difference: {test['critical_difference']:.2f}. Joined: no significant difference"


def _bars(means: np.ndarray[tuple[int], np.dtype[np.float64]], difference: float) -> list[tuple[int, int]]:
    """Return first and last of each longest stretch of sorted means within the critical difference."""
    bars: list[tuple[int, int]] = []
    for first in range(len(means)):
        last = int(np.flatnonzero(means - means[first] <= difference)[-1])
        if last > first and (not bars or last > bars[-1][1]):
            bars.append((first, last))
    return bars


def _levels(bars: list[tuple[int, int]]) -> list[int]:
    """Return for each bar the first column in which it touches no other."""
    ends: list[int] = []
    levels = []
    for first, last in bars:
        level = next((number for number, end in enumerate(ends) if end < first), len(ends))
        ends[level : level + 1] = [last]
        levels.append(level)
    return levels


def places(table: pd.DataFrame) -> Figure:
    """Plot places by mean rank, their intervals over resampled tasks, and how often a series is first or in the top 3.

    Args:
        table: of `statistics.ranks.over_tasks`.
    """
    with style.theme():
        figure, (axes,) = _lines(list(table["series"]))
        heights = np.arange(len(table))
        axes.hlines(heights, table["place_low"], table["place_high"], color=PALE, linewidth=5)
        axes.plot(table["place"], heights, "o", color=INK, markersize=5, zorder=3)
        axes.set_xlim(0.5, len(table) + 0.5)
        _whole_numbers(axes, len(table))
        axes.set_xlabel("place by mean rank (1 is best)")
        if table["first"].notna().any():
            _column(axes, heights, list(map(_percent, table["first"])), "first", 1.02)
            _column(axes, heights, list(map(_percent, table["top_three"])), "top 3", 1.16)
            headline = "Bars: 95 % of resampled sets of tasks. Right: share of them with this place"
        else:
            headline = "Too few tasks to resample"
        _headline(figure, headline)
        sns.despine(ax=axes, left=True)
    return figure


def _percent(share: float) -> str:
    """Return a share as text; blank for 0 or NaN."""
    return "" if not share > 0 else "< 1 %" if share < 0.005 else f"{share:.0%}".replace("%", " %")


def _column(axes: Axes, heights: Iterable[int], texts: Sequence[str], head: str, x: float) -> None:
    """Write a column of text to the right of the axes."""
    where = axes.get_yaxis_transform()
    how: dict[str, Any] = {"transform": where, "ha": "left", "va": "center", "fontsize": "small"}
    axes.text(x, -1, head, color=GREY, **how)
    for height, text in zip(heights, texts, strict=True):
        axes.text(x, float(height), text, **how)


def _lines(series_names: list[str], panels: int = 1) -> tuple[Figure, list[Axes]]:
    """Return a figure with a line for each series, the first on top, and panels side by side."""
    # The end of a name tells variants apart.
    shown = [
        series if len(series) <= LONGEST else f"{series[: LONGEST - 16]}…{series[-15:]}" for series in series_names
    ]
    figure = style.figure(1.1 + 0.2 * len(series_names))
    found = list(figure.subplots(1, panels, sharey=True, squeeze=False)[0])
    found[0].set_ylim(len(series_names) - 0.4, -1.4 if series_names else -0.6)
    found[0].set_yticks(range(len(series_names)), shown)
    for axes in found:
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
    return figure, found


def _whole_numbers(axes: Axes, last: int) -> None:
    """Set ticks at whole numbers from 1 to the last."""
    ticks = MaxNLocator(integer=True, min_n_ticks=1).tick_values(1, last)
    step = ticks[1] - ticks[0]
    axes.xaxis.set_major_locator(FixedLocator([1, *(int(tick) for tick in ticks if 1 + step / 2 < tick <= last)]))


def _headline(figure: Figure, text: str) -> None:
    """Write a headline over the whole figure: its panel may be narrow beside long names."""
    figure.suptitle(text, x=0.01, ha="left", fontsize="medium")
