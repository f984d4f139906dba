"""Small multiples: a panel for each series or head, all on the same axes."""

import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from experiments.figures import style
from experiments.figures.style import Look
from experiments.rows.row import among, rows_of, whole
from experiments.statistics.intervals import with_series

GREY = "#7f7f7f"


class Grid:
    """A figure of titled panels, row by row, that share their axes, to be drawn within `style.theme`.

    There are up to 3 ``columns`` by default, or 4 for more than 9 panels; ``height`` is in inches, of a panel with its
    title.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        x: str,
        y: str,
        columns: int | None = None,
        height: float | None = None,
        sharey: bool = True,
    ) -> None:
        self.columns = min(len(names), columns or (3 if len(names) <= 9 else 4))
        rows, narrow = -(-len(names) // self.columns), self.columns > 3
        size = "small" if narrow else "medium"
        self.figure = style.figure(1.3 + (height or (2.6 if rows == 1 else 1.5 if narrow else 1.75)) * rows)
        grid = self.figure.subplots(rows, self.columns, sharex=True, sharey=sharey, squeeze=False).ravel()
        self.panels: list[Axes] = list(grid[: len(names)])
        for axes in grid[len(names) :]:
            axes.set_axis_off()
        for axes, name in zip(self.panels, names, strict=True):
            axes.set_title(textwrap.fill(name, max(24, 66 // self.columns)), fontsize=size)
            axes.tick_params(labelsize=size)
            sns.despine(ax=axes)
        last = self.panels[(rows - 1) * self.columns :]
        for axes in last:
            axes.set_xlabel(x, fontsize=size)
        self.above_nothing = self.panels[-self.columns : len(self.panels) - len(last)]
        for axes in self.above_nothing:
            axes.tick_params(labelbottom=True)
        self.figure.supylabel(y, fontsize="medium")

    def __iter__(self) -> Iterator[Axes]:
        return iter(self.panels)

    def finish(self, title: str, key: Sequence[Artist] = ()) -> Figure:
        for axes in self.above_nothing:
            for text in axes.get_xticklabels():
                text.set_in_layout(False)  # the empty place below has room for them
        self.figure.suptitle(title, fontsize="large")
        if key:
            style.legend(self.figure, key, most=8)
        return self.figure


def small_multiples(
    rows: pd.DataFrame,
    looks: Mapping[str, Look],
    draw: Callable[[Axes, str, Look], None],
    *,
    title: str,
    x: str,
    y: str,
    key: Sequence[Artist] = (),
    **layout: Any,
) -> Figure:
    """Return a figure with a panel for each series that has rows, in the order of ``looks``.

    ``draw`` draws a series of the rows, which are of one task, into its panel; the panel of a series without a value
    says why. ``key`` are the entries of the legend, ``layout`` further arguments of `Grid`.
    """
    series_names = among(looks, rows["series"])
    with style.theme():
        grid = Grid(series_names, x=x, y=y, **layout)
        for axes, series in zip(grid, series_names, strict=True):
            draw(axes, series, looks[series])
            remark(axes, why_empty(rows[rows["series"] == series]))
        return grid.finish(style.title(rows, title), key)


def by_task(
    rows: pd.DataFrame, experiment: str, draw: Callable[[pd.DataFrame, dict[str, Look]], Mapping[str, Figure | None]]
) -> dict[str, Figure]:
    """Return the figures of an experiment, ``<task>_<name>`` -> figure, of one run or of many.

    ``draw`` makes them from the rows of a task, with a ``series``, and the looks, by name; None: nothing to draw.
    """
    found = {}
    for task, of_task in with_series(rows_of(rows, experiment)).groupby("task"):
        for name, figure in draw(of_task, style.looks(of_task)).items():
            if figure is not None:
                found[f"{style.slug(str(task))}_{name}"] = figure
    return found


def dot_panels(
    names: Sequence[str], titles: Sequence[str], *, inches: float = 0.24, sharex: bool = False
) -> tuple[Figure, list[Axes]]:
    """Return a figure with titled panels side by side that share a line for each name, the first on top."""
    figure = style.figure(1.2 + inches * max(2, len(names)))
    panels = list(figure.subplots(1, len(titles), sharex=sharex, sharey=True, squeeze=False)[0])
    for axes, title in zip(panels, titles, strict=True):
        for place in range(0, len(names), 2):
            axes.axhspan(place - 0.5, place + 0.5, color="#f4f4f0", zorder=0)
        axes.grid(visible=False, axis="y")
        axes.set_title(title, fontsize="medium" if len(titles) < 4 else "small")
        sns.despine(ax=axes, left=True)
    panels[0].set_yticks(range(len(names)), names, fontsize="small")
    panels[0].set_ylim(len(names) - 0.5, -0.5)
    return figure, panels


def colour_bar(
    figure: Figure, colours: Any, scale: Normalize, ticks: Mapping[float, str] | None = None, **how: Any
) -> None:
    """Add a colour bar above all panels; ``ticks`` are value -> text beside it, ``how`` goes to matplotlib."""
    with style.theme():
        tall = figure.get_figheight()
        where: dict[str, Any] = {"location": "top", "fraction": 0.25 / tall, "pad": 0.1 / tall, "aspect": 40}
        bar = figure.colorbar(ScalarMappable(scale, colours), ax=figure.axes, **where | how)
        if ticks:
            bar.set_ticks(list(ticks), labels=list(ticks.values()))
        bar.ax.tick_params(labelsize="small")
        bar.ax.xaxis.label.set_fontsize("small")


def shades(keys: Iterable[Any]) -> dict[Any, Any]:
    """Return a colour for each of a few numbers in order, darker and darker."""
    ordered = sorted(set(keys))
    return dict(zip(ordered, sns.color_palette("viridis_r", len(ordered) + 1)[1:], strict=True))


def remark(axes: Axes, text: str) -> None:
    """Write a remark into the middle of an empty panel."""
    if text:
        axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", fontsize="small", color="#666666")


def why_empty(rows: pd.DataFrame) -> str:
    """Return ``unsupported``, ``diverged`` or both if no row has a value, else a blank."""
    return "" if (rows["status"] == "ok").any() else ", ".join(sorted(rows["status"].unique()))


def failed(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that stand for a whole experiment without values: no condition and no coordinates."""
    return whole(rows[rows["status"] != "ok"])


def under_heads(parts: Sequence[pd.DataFrame], rows: pd.DataFrame) -> pd.DataFrame:
    """Return parts of the rows, each with its ``head``, as one table; failed experiments stand under every head."""
    heads = list(dict.fromkeys(head for part in parts for head in part["head"]))
    return pd.concat([*parts, *(failed(rows).assign(head=head) for head in heads or ["measured"])])


def highest(summary: pd.DataFrame) -> float:
    """Return the top of all lines and bands of a summary, for limits that panels share."""
    return float(summary[["high", "mean"]].max().max())


line = style.curve


def spread(numbers: Sequence[int], most: int) -> list[int]:
    """Return at most a given count of the numbers: the first, the last, and others evenly between.

    >>> spread([0, 1, 2, 3, 4, 5, 6], 4)
    [0, 2, 4, 6]
    """
    ordered = sorted(set(numbers))
    if len(ordered) <= most:
        return ordered
    steps = (place * (len(ordered) - 1) / max(1, most - 1) for place in range(most))
    return [ordered[math.floor(step + 0.5)] for step in steps]
