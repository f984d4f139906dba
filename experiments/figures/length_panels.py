"""Quality over length as small multiples: a panel a label, a line for each thing that was done. No torch."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.figures import style
from experiments.rows.row import among, metric_of
from experiments.statistics.intervals import labelled, over_seeds

WORST = 8.0
"""Bits per byte of a uniform guess: the few lines that are worse run along the top of their panels."""


def columns_at(parts: Sequence[tuple[pd.DataFrame, float, str]]) -> pd.DataFrame:
    """Rows of a table, with the column ``head``: of each part those at a multiple of the training length.

    If a part has none at that one, those at its longest. What could not be measured at any length is in the head too.

    Args:
        parts: rows of one metric and condition, the multiple wanted, and what the head says besides it.
    """
    found = []
    for rows, wanted, said in parts:
        if rows.empty:
            continue
        rows = labelled(rows)
        there = (rows["eval_length"] - wanted * rows["train_length"]).abs() <= 0.5
        longest = rows["eval_length"] == rows.groupby("train_length")["eval_length"].transform("max")
        shown = wanted if there.any() else float((rows["eval_length"] / rows["train_length"]).max())
        chosen = rows[there if there.any() else longest]
        missing = rows[(rows["status"] != "ok") & ~rows["run_id"].isin(chosen["run_id"])]
        found += [chosen.assign(head=f"{said}, {shown:.3g}×"), missing.assign(head=f"{said}, {shown:.3g}×")]
    return pd.concat([part for part in found if len(part)]) if found else pd.DataFrame(columns=["label", "head"])


def panels(rows: pd.DataFrame, lines: Sequence[str], text: str, xlabel: str) -> Figure:
    """A panel a label, a line for each value of the column ``line`` through its means over seeds.

    Args:
        rows: of one task and one metric, with ``label`` and ``line``.
        lines: all lines there may be, in the order of the legend.
        text: what the figure is called.
        xlabel: what ``eval_length`` is here.
    """
    summary = over_seeds(rows, ["label", "line", "eval_length"])
    metric = metric_of(rows["metric"].iloc[0])
    labels = among(style.looks(rows), rows["label"])
    found = style.looks(pd.DataFrame({"label": list(lines), "encoder": ""}))
    looks = {
        line: replace(found[line], fill="full")
        for line in lines
        if line in set(summary.loc[summary["seeds"] > 0, "line"])
    }
    columns = next(count for count, most in ((1, 1), (2, 4), (3, 12), (4, len(labels))) if len(labels) <= most)
    height = -(-len(labels) // columns)
    trained = {label: sorted(set(part["train_length"])) for label, part in rows.groupby("label")}
    with style.theme():
        figure = Figure(figsize=(style.WIDTH, 1.1 + (3.0 if columns == 1 else 2.1 if columns < 4 else 1.7) * height))
        grid = figure.subplots(height, columns, sharex=True, sharey=True, squeeze=False).ravel()
        for axes in grid[len(labels) :]:
            axes.set_axis_off()
        style.length_axis(grid[0], sorted(set(rows["eval_length"])), sorted(set(rows["train_length"])))
        bottom, top = _limits(summary, higher_is_better=bool(metric.higher_is_better))
        grid[0].set_ylim(bottom, top)
        summary[["mean", "low", "high"]] = summary[["mean", "low", "high"]].clip(upper=top)
        for axes, label in zip(grid, labels, strict=False):
            _panel(axes, summary[summary["label"] == label], looks)
            for train_length in trained[label]:
                style.boundary(axes, train_length, "")
            axes.set_title(textwrap.fill(label, max(24, 72 // columns)), fontsize="medium" if columns < 4 else "small")
            sns.despine(ax=axes)
        for axes in grid[max(0, len(labels) - columns) : len(labels)]:
            axes.set_xlabel(xlabel, fontsize="medium")
            axes.tick_params(labelbottom=True)  # the lowest of its column, even where the last row is not full
        figure.supylabel(f"{metric.label} ({metric.unit})", fontsize="medium")
        figure.suptitle(style.title(rows, text), fontsize="large")
        style.legend(figure, looks)
    return figure


def _limits(summary: pd.DataFrame, *, higher_is_better: bool) -> tuple[float, float]:
    """All there is, intervals too; a share's whole range; up to a uniform guess, if most lines are better."""
    if higher_is_better:
        return -0.04, 1.04
    valued = summary[summary["seeds"] > 0]
    low, high = valued[["mean", "low"]].min().min(), valued[["mean", "high"]].max().max()
    high = min(high, WORST) if valued["mean"].quantile(0.75) < WORST else high
    return max(0.0, low - 0.08 * (high - low)), high + 0.04 * (high - low)


def _panel(axes: Axes, summary: pd.DataFrame, looks: dict[str, style.Look]) -> None:
    """The lines of one label; if it has none, why."""
    if not (summary["seeds"] > 0).any():
        why = "diverged" if (summary["diverged"] > 0).any() else "unsupported"
        axes.text(0.5, 0.5, why, transform=axes.transAxes, ha="center", fontsize="small", color="#666666")
    style.curves(axes, summary.drop(columns="label").rename(columns={"line": "label"}), "eval_length", looks)
    for line in axes.get_lines():
        line.set(markersize=4.5, linewidth=1.4)
    chance = summary.groupby("eval_length")["chance"].mean().dropna()
    axes.plot(chance.index, chance, color="#888888", linestyle=":", linewidth=1.2, zorder=1.5)
