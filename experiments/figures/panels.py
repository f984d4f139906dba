"""Panels in a figure: placed by the inch, since a layout that is searched for takes most of the time of drawing."""

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from experiments.figures import style, words
from experiments.figures.style import MUTED, Chart, Look
from experiments.rows.row import rows_of, whole
from experiments.statistics.intervals import with_series

LARGE, NORMAL, SMALL = 10.0, 8.0, 7.5
SHADES = LinearSegmentedColormap.from_list("shades", [to_rgba("#2f6fd0", 0), to_rgba("#2f6fd0", 1)])
"""From nothing to a colour, which can be seen on white and on black."""
LONGEST = 26
"""Letters of a name beside a heat map, as long as they tell the names apart."""


def wide(texts: Sequence[str], size: float = SMALL) -> float:
    """Return the inches that the longest of some texts takes, about."""
    return style.LETTER * size * max(map(len, texts), default=0)


def chart(
    title: str,
    caption: str,
    names: Sequence[str] = ("",),
    *,
    x: str = "",
    y: str = "",
    height: float = 2.1,
    columns: int = 3,
    left: float = 0.3,
    gap: float = 0.12,
    low: float = 0.0,
    key: Mapping[str, Look] | None = None,
    alike: str = "xy",
) -> tuple[Chart, list[Axes]]:
    """Return a figure and its panels, row by row; use it within `style.theme`.

    Args:
        title: the finding, or what is shown.
        caption: what is drawn, of whom, and why of these.
        names: the panels' titles.
        x: what the lower axes show.
        y: what is drawn, above the panels.
        height: of a panel in inches, without its title.
        columns: most panels beside each other.
        left: inches for the numbers of a panel's left axis.
        gap: inches between panels; where axes differ, the numbers come in addition.
        low: inches for tall texts of the lower axes, in addition to one line.
        key: series that are named above the panels, with the dash and colour of their lines.
        alike: the axes that all panels share.
    """
    columns = min(columns, len(names))
    rows, size = -(-len(names) // columns), style.room()
    heads = _heads(title)
    about = textwrap.wrap(y, int(size / wide("x", NORMAL)))
    entries = _flow(key or {}, size)
    step = gap if "y" in alike else left + gap
    right = 0.16  # inches beside the last panel, for half of a number
    width = (size - left - right - (columns - 1) * step) / columns
    names = [textwrap.fill(name, max(8, int(width / wide("x", NORMAL)))) for name in names]
    named = 0.19 * max((name.count("\n") + 1 for name in names if name), default=0)
    head = 0.03 + 0.175 * len(heads) + 0.15 * (len(about) + (entries[-1][1] + 1 if entries else 0)) + 0.07
    # Room for the numbers of each row; those above others need none where axes are shared.
    foot, between = 0.2 + low, 0.1 if "x" in alike else 0.2 + low
    tall = head + rows * (named + height) + (rows - 1) * between + foot + 0.16 * bool(x)
    figure = style.figure(tall)
    for number, line in enumerate(heads):
        figure.text(0.0, 1 - (0.15 + 0.175 * number) / tall, line, fontsize=LARGE * style.scale(), weight="bold")
    start = 0.155 + 0.175 * len(heads)
    for number, line in enumerate(about):
        where = 0.0, 1 - (start + 0.15 * number) / tall
        figure.text(*where, line, fontsize=NORMAL * style.scale(), color=MUTED)
    _swatches(figure, entries, start + 0.15 * len(about), tall, size)
    found: list[Axes] = []
    for number, name in enumerate(names):
        row, column = divmod(number, columns)
        top = head + named + row * (named + height + between)
        box = ((left + column * (width + step)) / size, 1 - (top + height) / tall, width / size, height / tall)
        shared: Any = {f"share{axis}": found[0] for axis in alike if found}
        axes: Any = figure.add_axes(box, **shared)
        axes.set_title(name, fontsize=NORMAL * style.scale(), pad=3 * style.scale())
        lowest = number + columns >= len(names)
        axes.tick_params(labelleft="y" not in alike or not column, labelbottom="x" not in alike or lowest)
        found.append(axes)
    middle = (left + (size - right)) / 2 / size
    figure.text(middle, 0.045 / tall, x, fontsize=NORMAL * style.scale(), color=MUTED, ha="center")
    figure.title, figure.caption = title, caption
    return figure, found


def _heads(title: str) -> list[str]:
    return textwrap.wrap(title, int(style.room() / wide("x", LARGE * 1.08))) if style.titled() else []


def _flow(key: Mapping[str, Look], size: float) -> list[tuple[float, int, str, Look]]:
    """Return the entries of a key with their place in inches and their line."""
    entries, start, line = [], 0.0, 0
    for name, look in key.items():
        length = 0.28 + wide([name]) + 0.12
        start, line = (start, line) if start + length <= size or not start else (0.0, line + 1)
        entries.append((start, line, name, look))
        start += length
    return entries


def _swatches(
    figure: Figure, entries: list[tuple[float, int, str, Look]], top: float, tall: float, size: float
) -> None:
    for start, line, name, look in entries:
        height, across = 1 - (top + 0.15 * line) / tall, np.array([start, start + 0.22]) / size
        how: dict[str, Any] = {"color": look.colour, "linestyle": look.dash, "linewidth": 1.8 * style.scale()}
        figure.add_artist(Line2D(across, np.full(2, height + 0.035 / tall), transform=figure.transFigure, **how))
        figure.text(across[1] + 0.05 / size, height, name, color=look.colour, fontsize=SMALL * style.scale())


def by_task(
    rows: pd.DataFrame, experiment: str, draw: Callable[[pd.DataFrame, dict[str, Look]], Mapping[str, Chart | None]]
) -> dict[str, Chart]:
    """Return the figures of an experiment, ``<task>_<name>`` -> figure, of one run or of many.

    ``draw`` makes them from the rows of a task, with a ``series``, and the looks, by name; None: nothing to draw.
    """
    found = {}
    for task, of_task in with_series(rows_of(rows, experiment)).groupby("task"):
        with style.theme():
            for name, figure in draw(of_task, style.looks(of_task)).items():
                if figure is not None:
                    found[f"{style.slug(str(task))}_{name}"] = figure
    return found


def two_sided() -> LinearSegmentedColormap:
    """Return the colours from orange by nothing to blue."""
    orange, blue = "#e8590c", "#3b82f6"
    ends = [to_rgba(orange, 1), to_rgba(orange, 0), to_rgba(blue, 0), to_rgba(blue, 1)]
    colours = list(zip((0, 0.5, 0.5, 1), ends, strict=True))
    return LinearSegmentedColormap.from_list("two_sided", colours, N=17)  # few, which makes small files


def picture(axes: Axes, cells: Any, colours: Any, low: float, high: float, **how: Any) -> None:
    """Draw a matrix as coloured cells; those without a number are blank."""
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)
    settings: dict[str, Any] = {"aspect": "auto", "vmin": low, "vmax": high}
    image = axes.imshow(np.asarray(cells, dtype=float), colours, interpolation="none", **settings | how)
    left, right, bottom, top = image.get_extent()
    axes.set(xlim=(left, right), ylim=(bottom, top))


def heat(title: str, caption: str, tables: Mapping[str, pd.DataFrame], unit: str) -> Chart:
    """Return a `chart` of tables of shares as coloured cells, all on one scale from 0 to 1."""
    first = next(iter(tables.values()))
    texts, names = [str(name) for name in first.columns], [str(name) for name in first.index]
    cut = [words.cut(name, LONGEST) for name in names]
    names = cut if len(set(cut)) == len(names) else names
    left, size = wide(names) + 0.08, 0.13 if len(names) > 12 else 0.17
    how: dict[str, Any] = {"left": left, "height": size * len(names), "columns": 4, "low": wide(texts)}
    figure, found = chart(title, caption, list(tables), y=f"{unit}: 0", **how)
    for axes, table in zip(found, tables.values(), strict=True):
        cells = table.reindex(first.index).astype(float)
        how = {"vmin": 0, "vmax": 1, "cbar": False, "yticklabels": False, "rasterized": True}
        sns.heatmap(cells, ax=axes, cmap=SHADES, xticklabels=texts, **how)
        sns.despine(ax=axes, left=True, bottom=True)
        axes.grid(visible=False)
        axes.tick_params(axis="x", bottom=False, rotation=90)
        axes.set(xlabel="", ylabel="")
    found[0].set_yticks(np.arange(len(names)) + 0.5, names, rotation=0)
    # Behind the line above the panels: the scale.
    start, tall, size = wide([f"{unit}: 0 "], NORMAL), figure.get_figheight() / style.scale(), style.room()
    head = 1 - (0.155 + 0.175 * len(_heads(title))) / tall
    how = {"fontsize": NORMAL * style.scale(), "color": MUTED}
    figure.text((start + 0.47) / size, head, "1", **how)
    bar = figure.add_axes((start / size, head - 0.01 / tall, 0.42 / size, 0.1 / tall))
    picture(bar, [np.linspace(0, 1, 32)], SHADES, 0, 1)
    bar.set_axis_off()
    return figure


def length_axis(axes: Axes, lengths: Sequence[int], train_lengths: Sequence[int] = ()) -> None:
    """Make the axis logarithmic: a tick at every length, numbered where there is room, training lengths first."""
    axes.set_xscale("log", base=2)
    ends = [*lengths, *train_lengths]
    axes.set_xlim(min(ends) / 1.08, max(ends) * 1.08)
    low, high = (math.log2(end) for end in axes.get_xlim())
    inches = axes.get_position().width * style.room()
    numbered: list[int] = []
    for length in dict.fromkeys([*train_lengths, max(lengths), min(lengths), *sorted(lengths)]):
        gap = 0.085 * (len(str(length)) + 0.6) * (high - low) / inches
        if length in lengths and all(abs(math.log2(length / other)) > gap for other in numbered):
            numbered.append(length)
    ticks(axes.xaxis, sorted(lengths), numbered)


def ticks(axis: Axis, places: Sequence[int], numbered: Sequence[int]) -> None:
    """Set a tick at every place, and a number at some of them."""
    axis.set_major_locator(FixedLocator(places))
    axis.set_minor_locator(NullLocator())
    texts = [str(place).replace("-", "−") if place in numbered else "" for place in places]
    axis.set_major_formatter(FixedFormatter(texts))


def boundary(axes: Axes, train_length: float, text: str = "") -> None:
    """Shade the trained side of the axis, up to a line; on an axis of distances to both sides of 0, on both sides."""
    start = max(axes.get_xlim()[0], -train_length)
    axes.axvspan(start, train_length, **style.SHADE)
    axes.axvline(train_length, color=MUTED, linewidth=0.8 * style.scale(), linestyle=(0, (3, 2)), zorder=1)
    if text:
        room = axes.transAxes.inverted().transform(axes.transData.transform((train_length, 0)))[0] > 0.15
        how: dict[str, Any] = {"fontsize": SMALL * style.scale(), "color": MUTED, "textcoords": "offset points"}
        how |= {"va": "bottom", "ha": "right" if room else "left", "xycoords": ("data", "axes fraction")}
        axes.annotate(text if room else f"← {text}", (train_length, 0), (-3 if room else 3, 3), **how)


def unlearned(untouched: pd.DataFrame) -> str:
    """Return why nothing is found, if no series is half-way from guessing to all right on untouched sequences."""
    rows = untouched[(untouched["metric"] == "token_accuracy") & (untouched["status"] == "ok")]
    means = rows.groupby("series")[["value", "chance"]].mean()
    if means.empty or (means["value"] >= (1 + means["chance"].fillna(0)) / 2).any():
        return ""
    return f"{rows['task'].iloc[0]}: not learned, {100 * means['value'].max():.0f} % right at the training length"


def under_heads(parts: Sequence[pd.DataFrame], rows: pd.DataFrame) -> pd.DataFrame:
    """Return parts of the rows, each with its ``head``, as one table; failed experiments stand under every head."""
    heads = list(dict.fromkeys(head for part in parts for head in part["head"]))
    failed = whole(rows[rows["status"] != "ok"])
    return pd.concat([*parts, *(failed.assign(head=head) for head in heads or ["measured"])])


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


def spread(numbers: Sequence[int], most: int) -> list[int]:
    """Return at most a given count of the numbers: the first, the last, and others evenly between.

    >>> spread([0, 1, 2, 3, 4, 5, 6], 4)
    [0, 2, 4, 6]
    """
    ordered = sorted(set(numbers))
    return [ordered[int(place + 0.5)] for place in np.linspace(0, len(ordered) - 1, min(most, len(ordered)))]
