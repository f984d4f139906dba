"""Quality over length as small multiples: a panel for each series, a line for each condition."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.figures import style
from experiments.figures.panels import small_multiples
from experiments.figures.style import Look
from experiments.rows.row import among, metric_of
from experiments.statistics.intervals import over_seeds, with_series

WORST = 8.0
"""Bits per byte of a uniform guess: lines that are worse run along the top of their panels."""


def columns_at(parts: Sequence[tuple[pd.DataFrame, float, str]]) -> pd.DataFrame:
    """Return rows of a table with the column ``head``: of each part those at a multiple of the training length.

    A part is rows of one metric and condition, the multiple, and the name in the head. Without that multiple it gives
    its longest length. Runs without a value at any length are included.
    """
    found = []
    for rows, wanted, name in parts:
        if rows.empty:
            continue
        rows = with_series(rows)
        there = (rows["eval_length"] - wanted * rows["train_length"]).abs() <= 0.5
        longest = rows["eval_length"] == rows.groupby("train_length")["eval_length"].transform("max")
        multiple = wanted if there.any() else float((rows["eval_length"] / rows["train_length"]).max())
        chosen = rows[there if there.any() else longest]
        missing = rows[(rows["status"] != "ok") & ~rows["run_id"].isin(chosen["run_id"])]
        found += [part.assign(head=f"{name}, {multiple:.3g}×") for part in (chosen, missing)]
    return pd.concat([part for part in found if len(part)]) if found else pd.DataFrame(columns=["series", "head"])


def panels(rows: pd.DataFrame, lines: Sequence[str], title: str, xlabel: str) -> Figure:
    """Return a figure with a panel for each series, and a line through means over seeds for each condition.

    The rows are of one task and metric, with ``series`` and ``line``, the condition; ``lines`` are all conditions that
    may occur, in the order of the legend.
    """
    summary = over_seeds(rows, ["series", "line", "eval_length"])
    metric = metric_of(rows["metric"].iloc[0])
    conditions = style.looks(pd.DataFrame({"series": list(lines), "encoder": ""}))
    drawn = among(lines, summary.loc[summary["seeds"] > 0, "line"])
    conditions = {line: replace(conditions[line], fill="full") for line in drawn}
    bottom, top = -0.04, 1.04  # a share's whole range; else around all lines and intervals, up to a uniform guess
    if not metric.higher_is_better:
        valued = summary[summary["seeds"] > 0]
        low, high = valued[["mean", "low"]].min().min(), valued[["mean", "high"]].max().max()
        high = min(high, WORST) if valued["mean"].quantile(0.75) < WORST else high
        bottom, top = max(0.0, low - 0.08 * (high - low)), high + 0.04 * (high - low)
    summary[["mean", "low", "high"]] = summary[["mean", "low", "high"]].clip(upper=top)
    lengths, train_lengths = sorted(set(rows["eval_length"])), sorted(set(rows["train_length"]))
    trained = {series: sorted(set(part["train_length"])) for series, part in rows.groupby("series")}

    def draw(axes: Axes, series: str, _: Look) -> None:
        style.length_axis(axes, lengths, train_lengths)
        axes.set_ylim(bottom, top)
        of_series = summary[summary["series"] == series]
        style.curves(axes, of_series.assign(series=of_series["line"]), "eval_length", conditions)
        for line in axes.get_lines():
            line.set(markersize=4.5, linewidth=1.4)
        chance = of_series.groupby("eval_length")["chance"].mean().dropna()
        axes.plot(chance.index, chance, color="#888888", linestyle=":", linewidth=1.2, zorder=1.5)
        for train_length in trained[series]:
            style.boundary(axes, train_length)

    count = rows["series"].nunique()
    return small_multiples(
        rows,
        style.looks(rows),
        draw,
        title=title,
        x=xlabel,
        y=f"{metric.label} ({metric.unit})",
        key=style.handles(conditions),
        columns=1 if count == 1 else 2 if count <= 4 else 3 if count <= 12 else 4,
    )
