"""Small multiples: one panel a label, all on the same axes, so that any number of labels can be told apart."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from experiments.rows.row import among

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from experiments.figures.style import Look

GREY = "#7f7f7f"


def small_multiples(
    rows: pd.DataFrame,
    looks: dict[str, Look],
    draw: Callable[[Axes, str, Look], None],
    *,
    title: str,
    x: str,
    y: str,
    key: Sequence[Line2D],
) -> Figure:
    """A figure with a panel for each label that has rows.

    Args:
        rows: with a ``label``, of one task; of a label without a value, why is written into its panel.
        looks: label -> look, in the order of the panels.
        draw: draws a label into its panel; limits and ticks are shared by all.
        title: what is drawn.
        x: what is on the horizontal axis, in a word or two: it stands under each column.
        y: what is on the vertical axis.
        key: lines for the legend, what they mean their label.
    """
    import seaborn as sns
    from matplotlib.figure import Figure

    from experiments.figures import style as _style

    shown = among(looks, rows["label"])
    columns = min(len(shown), 3 if len(shown) <= 9 else 4)
    lines = -(-len(shown) // columns)
    with _style.theme():
        figure = Figure(figsize=(_style.WIDTH, 1.3 + (2.6 if lines == 1 else 1.75 if columns < 4 else 1.5) * lines))
        panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).ravel()
        for axes in panels[len(shown) :]:
            axes.set_axis_off()
        for axes, label in zip(panels, shown, strict=False):
            draw(axes, label, looks[label])
            if said := why_empty(rows[rows["label"] == label]):
                axes.text(0.5, 0.5, said, transform=axes.transAxes, ha="center", va="center", fontsize="small")
            if len(shown) > 1:
                size = "medium" if columns < 4 else "small"
                axes.set_title(textwrap.fill(label, 22 if columns == 4 else 28), fontsize=size)
            axes.tick_params(labelsize="medium" if columns < 4 else "small")
            sns.despine(ax=axes)
        for axes in panels[max(0, len(shown) - columns) : len(shown)]:
            axes.tick_params(labelbottom=True)  # the lowest of its column, even where the last row is not full
            axes.set_xlabel(x, fontsize="medium" if columns < 4 else "small")
        figure.supylabel(y, fontsize="medium")
        figure.suptitle(_style.title(rows, title), fontsize="large")
        widest = max((len(str(line.get_label())) for line in key), default=1)
        at_once = max(1, min(len(key), int(_style.WIDTH / (0.55 + 0.085 * widest))))
        figure.set_figheight(figure.get_figheight() + 0.1 + 0.2 * -(-len(key) // at_once))
        figure.legend(handles=list(key), loc="outside lower center", ncols=at_once, frameon=False, handlelength=2.6)
    return figure


def why_empty(rows: pd.DataFrame) -> str:
    """``unsupported``, ``diverged`` or both where no row has a value; else nothing."""
    return "" if (rows["status"] == "ok").any() else ", ".join(sorted(rows["status"].unique()))


def failed(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows that stand for a whole experiment that could not be made: no condition, no value."""
    return rows[(rows["condition"] == "") & (rows["status"] != "ok")]


def under_heads(parts: Sequence[pd.DataFrame], rows: pd.DataFrame) -> pd.DataFrame:
    """The parts of a table, each with its ``head``, one below the other; what failed stands under every head.

    Args:
        parts: of the rows.
        rows: all rows of the experiment.
    """
    import pandas as pd

    heads = list(dict.fromkeys(head for part in parts for head in part["head"]))
    return pd.concat([*parts, *(failed(rows).assign(head=head) for head in heads or ["measured"])])


def highest(summary: pd.DataFrame) -> float:
    """The top of all lines and bands of a summary: panels share their limits, which the first must not set alone."""
    return float(summary[["high", "mean"]].max().max())


def line(axes: Axes, summary: pd.DataFrame, x: str, colour: str, **style: object) -> None:
    """A line through means, and a band for their intervals over seeds where there are any.

    Args:
        axes: where to draw.
        summary: of `_stats.over_seeds`, of one label and metric, with the column named ``x``.
        x: the column on the horizontal axis.
        colour: of both.
        style: further style of the line, as matplotlib names it.
    """
    valued = summary[summary["seeds"] > 0].sort_values(x)
    axes.plot(valued[x], valued["mean"], color=colour, **style)  # type: ignore[arg-type]
    banded = valued.dropna(subset=["low", "high"])
    axes.fill_between(banded[x], banded["low"], banded["high"], color=colour, alpha=0.15, linewidth=0)


def spread(found: Sequence[int], most: int) -> list[int]:
    """At most so many of the numbers, the first and last among them and the others evenly between.

    >>> spread([0, 1, 2, 3, 4, 5, 6], 4)
    [0, 2, 4, 6]
    """
    ordered = sorted(set(found))
    if len(ordered) <= most:
        return ordered
    steps = (place * (len(ordered) - 1) / max(1, most - 1) for place in range(most))
    return [ordered[math.floor(step + 0.5)] for step in steps]
