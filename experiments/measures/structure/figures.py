"""Figures of untrained encoders, a panel for each series."""

import math
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, StrMethodFormatter

from experiments.figures import style
from experiments.figures.panels import colour_bar, line, shades, small_multiples
from experiments.figures.style import Look
from experiments.rows.row import metric_of
from experiments.statistics.intervals import over_seeds

Looks = dict[str, Look]
Trained = dict[str, list[float]]
"""Series -> positions of its training sequences; several where its runs differ."""

BELOW = partial(small_multiples, sharey=False)
DASHED = (0, (4, 2))
UNSEEN = "#e4e4e0"


def heatmap(rows: pd.DataFrame, looks: Looks, _: Trained) -> Figure:
    """Plot what is added to embeddings, position by dimension, of the first seed."""
    pictures = _pictures(rows, "dimension")

    def draw(axes: Axes, series: str, _: Look) -> None:
        limit = float(np.nanmax(np.abs(pictures[series].to_numpy()))) or 1.0
        _image(axes, pictures[series], "RdBu_r", Normalize(-limit, limit))
        axes.set_title(f"{axes.get_title()}\n± {limit:.3g}", fontsize="small")

    figure = BELOW(rows, looks, draw, title="what is added to embeddings", x="dimension", y="position")
    colour_bar(figure, "RdBu_r", Normalize(-1, 1), {-1: "−largest", 0: "0", 1: "+largest of the panel"}, shrink=0.5)
    return figure


def waves(rows: pd.DataFrame, looks: Looks, trained: Trained) -> Figure:
    """Plot some dimensions of what is added, over position, of the first seed."""
    pictures = _pictures(rows, "dimension")
    colours = shades(rows["dimension"])

    def draw(axes: Axes, series: str, _: Look) -> None:
        for dimension, values in pictures[series].items():
            axes.plot(values.index, values, color=colours[dimension], linewidth=1.3)
        axes.set_xlim(0, rows["position"].max())
        _value_axis(axes, pictures[series])
        for length in trained.get(series, []):
            style.boundary(axes, length)

    what: dict[str, Any] = {"title": "waves of single dimensions", "x": "position", "y": metric_of("wave").label}
    return BELOW(rows, looks, draw, **what, key=_key("dimension", colours))


def kernel(rows: pd.DataFrame, looks: Looks, trained: Trained) -> Figure:
    """Plot the expected score of equal content, query by key, of the first seed."""
    pictures = _pictures(rows, "key")
    edges = [_edges(picture.index) for picture in pictures.values()]
    first, last = min(low for low, _ in edges), max(high for _, high in edges)

    def draw(axes: Axes, series: str, _: Look) -> None:
        cells = pictures[series].to_numpy()
        low, high = float(np.nanmin(cells)), float(np.nanmax(cells))
        constant = high - low <= 1e-9 * max(1.0, abs(low), abs(high))
        scale = Normalize(low - 0.5, low + 0.5) if constant else Normalize(low, high)
        _image(axes, pictures[series], "viridis", scale)
        axes.set_xlim(first, last)
        axes.set_ylim(last, first)
        axes.set_box_aspect(1)
        for length in trained.get(series, []):
            for rule in (axes.axvline, axes.axhline):
                rule(length - 0.5, color="white", linewidth=1.6)
                rule(length - 0.5, color="#222222", linewidth=0.9, linestyle=DASHED)
        ends = f"{_short(low)} everywhere" if constant else f"{_short(low)} to {_short(high)}"
        axes.set_title(f"{axes.get_title()}\n{ends}", fontsize="small")

    figure = small_multiples(rows, looks, draw, title=metric_of("kernel").label, x="key position", y="query position")
    colour_bar(figure, "viridis", Normalize(0, 1), {0: "lowest", 1: "highest of the panel"}, shrink=0.5)
    return figure


def kernel_curve(rows: pd.DataFrame, looks: Looks, trained: Trained) -> Figure:
    """Plot the expected score over distance, less that at the nearest distance, a line for each head."""
    summary = over_seeds(rows, ["series", "head", "distance"])
    colours = shades(rows["head"])
    far, both_ways = int(rows["distance"].abs().max()), bool((rows["distance"] < 0).any())
    powers = [4**power for power in range(far.bit_length()) if 4**power <= far]
    ahead = [-power for power in powers if both_ways]

    def draw(axes: Axes, series: str, _: Look) -> None:
        of_series = summary[summary["series"] == series]
        lines = of_series.pivot_table(index="distance", columns="head", values="mean").sort_index()
        lines = lines - lines.loc[min(lines.index, key=lambda distance: (abs(distance), -distance))]
        for place, head in enumerate(lines.columns):
            width = 3.0 - 2.0 * place / max(1, len(lines.columns) - 1)  # so that lines that coincide show
            axes.plot(lines.index, lines[head], color=colours[head], linewidth=width)
        _value_axis(axes, lines)
        axes.set_xscale("symlog", base=2, linthresh=1, linscale=1)
        axes.set_xlim(-far if both_ways else 0, far)
        style.ticks(axes.xaxis, [*ahead, 0, *powers], [*ahead[1::2], 0, *powers[1::2]])
        for length in trained.get(series, []):
            style.boundary(axes, length - 1)

    what: dict[str, Any] = {"x": "query minus key position", "y": "score less that at 0", "key": _key("head", colours)}
    return BELOW(rows, looks, draw, title="expected score over distance", **what)


def wavelengths(rows: pd.DataFrame, looks: Looks, trained: Trained) -> Figure:
    """Plot the wavelength of each dimension that is a wave."""
    summary = over_seeds(rows, ["series", "condition", "head", "dimension"])
    values = [*summary["mean"], *(length for lengths in trained.values() for length in lengths)]

    def draw(axes: Axes, series: str, look: Look) -> None:
        part = summary[summary["series"] == series]
        marking = look.marking() | {"markersize": 3.5}
        axes.plot(part["dimension"], part["mean"], color=look.colour, linestyle="none", **marking)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.set_ylim(min(values) / 1.5, max(values) * 1.5)
        for length in trained.get(series, []):
            axes.axhline(length, color="#222222", linewidth=1.1, linestyle=DASHED, zorder=1)

    return small_multiples(rows, looks, draw, title="wavelengths", x="dimension", y="wavelength (positions)")


def entropy(rows: pd.DataFrame, looks: Looks, trained: Trained) -> Figure:
    """Plot the entropy of attention to content that is all alike, over the number of keys."""
    summary = over_seeds(rows[rows["head"].isna()], ["series", "sequence_length"])
    keys = sorted({int(length) for length in summary["sequence_length"]})
    highest = max(math.log(max(keys)), float(summary["mean"].max()))

    def draw(axes: Axes, series: str, look: Look) -> None:
        style.length_axis(axes, keys, [])
        axes.plot(keys, np.log(keys), color="#222222", linestyle=":", linewidth=1.3, zorder=3)
        marking = look.marking() | {"markersize": 5}
        line(axes, summary[summary["series"] == series], "sequence_length", look.colour, **marking)
        axes.set_ylim(-0.04 * highest, 1.06 * highest)
        for length in trained.get(series, []):
            style.boundary(axes, length)

    what: dict[str, Any] = {"title": "entropy of attention to equal content", "x": "keys", "y": "entropy (nats)"}
    return small_multiples(rows, looks, draw, **what)


def _pictures(rows: pd.DataFrame, across: str) -> dict[str, pd.DataFrame]:
    first = rows.sort_values("seed", kind="stable").groupby("series")["run_id"].first()
    rows = rows[rows["run_id"] == rows["series"].map(first)]
    return {
        str(series): part.pivot_table(index="position", columns=across, values="value")
        for series, part in rows.groupby("series")
    }


def _image(axes: Axes, picture: pd.DataFrame, colours: str, scale: Normalize) -> None:
    (left, right), (top, bottom) = _edges(picture.columns), _edges(picture.index)
    axes.set_facecolor(UNSEEN)
    axes.grid(visible=False)
    cells, extent = np.ma.masked_invalid(picture.to_numpy(float)), (left, right, bottom, top)
    axes.imshow(cells, cmap=colours, norm=scale, extent=extent, aspect="auto", interpolation="nearest")


def _edges(places: pd.Index) -> tuple[float, float]:
    first, last = float(places[0]), float(places[-1])
    half = (last - first) / max(1, len(places) - 1) / 2 or 0.5
    return first - half, last + half


def _value_axis(axes: Axes, values: pd.DataFrame) -> None:
    low, high = min(0.0, float(np.nanmin(values))), max(0.0, float(np.nanmax(values)))
    room = 0.06 * (high - low) if high - low > 1e-9 else 1.0
    axes.set_ylim(low - room, high + room)
    axes.yaxis.set_major_formatter(FuncFormatter(_short))


def _short(value: float, _: int | None = None) -> str:
    text = f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) >= 1e-12 else "0"
    return text.replace("-", "−")


def _key(what: str, colours: dict[int, str]) -> list[Line2D]:
    return [Line2D([], [], color=colour, linewidth=2.2, label=f"{what} {key}") for key, colour in colours.items()]
