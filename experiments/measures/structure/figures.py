"""The figures of the experiment `structure`: from rows alone, a panel a series where lines would cover each other."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator, StrMethodFormatter

from experiments.figures import style
from experiments.figures.style import Look
from experiments.rows.row import among, metric_of
from experiments.statistics.intervals import over_seeds

Looks = dict[str, Look]
Draw = Callable[[Axes, list[str]], None]

COLUMNS = 5
"""Panels in a row, at most: the longest name of an encoder fits above one."""
TOGETHER = 8
"""Series that share one panel, at most."""
SMALL, TINY = 8.0, 7.0
"""Points: titles of panels, numbers at their axes."""
UNSEEN = "#e4e4e0"


def heatmap(rows: pd.DataFrame, looks: Looks) -> Figure | None:
    """What is added to embeddings, position by dimension; None if nothing is. Of the first seed."""
    pictures = {series: _matrix(part, "position", "dimension") for series, part in _first_seed(rows, "code", looks)}
    if not pictures:
        return None
    same_heights = len({len(picture) for picture in pictures.values()}) == 1
    limits = {series: float(np.nanmax(np.abs(picture.to_numpy()))) or 1.0 for series, picture in pictures.items()}
    unit = metric_of("code").unit
    bar = ("−largest", "0", "+largest of the panel")
    with style.theme():
        figure, panels = _grid(list(pictures), 0.95, same_heights=same_heights)
        for series, axes in panels.items():
            norm = Normalize(-limits[series], limits[series])
            image = _image(axes, pictures[series], "RdBu_r", norm)
            if len(panels) > 1:
                axes.set_title(f"{_wrapped(series)}\n± {limits[series]:.3g}", fontsize=SMALL)
        if len(panels) == 1:
            figure.colorbar(image, ax=axes, label=f"{metric_of('code').label} ({unit})")
        else:
            _bar(figure, list(panels.values()), "RdBu_r", bar)
        _named(figure, rows, "what is added to embeddings", "dimension", "position")
    return figure


def waves(rows: pd.DataFrame, looks: Looks) -> Figure | None:
    """Some dimensions of what is added, over position; None if nothing is. Of the first seed."""
    pictures = {series: _matrix(part, "position", "dimension") for series, part in _first_seed(rows, "wave", looks)}
    if not pictures:
        return None
    drawn = sorted({int(d) for picture in pictures.values() for d in picture.columns})
    colours = _shades(drawn)
    trained = _train_positions(rows)
    furthest = max(float(picture.index.max()) for picture in pictures.values())
    with style.theme():
        figure, panels = _grid(list(pictures), 0.8, same_heights=False)
        for series, axes in panels.items():
            for dimension in pictures[series].columns:
                line = pictures[series][dimension]
                axes.plot(line.index, line, color=colours[int(dimension)], linewidth=1.3)
            axes.set_xlim(0, furthest)
            _room(axes, pictures[series].to_numpy())
            _shade(axes, trained.get(series, []))
        _keys(figure, "dimension", colours)
        _named(figure, rows, "waves of single dimensions", "position", metric_of("wave").label)
    return figure


def kernel(rows: pd.DataFrame, looks: Looks) -> Figure | None:
    """The expected score of equal content, query by key, an image a series; None without a value. Of the first seed."""
    pictures = {series: _matrix(part, "position", "key") for series, part in _first_seed(rows, "kernel", looks)}
    if not pictures:
        return None
    trained = _train_positions(rows)
    edges = [_edges(picture.index) for picture in pictures.values()]
    first, last = min(low for low, _ in edges), max(high for _, high in edges)
    with style.theme():
        figure, panels = _grid(list(pictures), 1.0, same_heights=True)
        for series, axes in panels.items():
            cells = pictures[series].to_numpy()
            low, high = float(np.nanmin(cells)), float(np.nanmax(cells))
            constant = high - low <= 1e-9 * max(1.0, abs(low), abs(high))
            norm = Normalize(low - 0.5, low + 0.5) if constant else Normalize(low, high)
            image = _image(axes, pictures[series], "viridis", norm)
            axes.set_xlim(first, last)
            axes.set_ylim(last, first)
            axes.set_box_aspect(1)
            for place in trained.get(series, []):
                for line in (axes.axvline, axes.axhline):
                    line(place - 0.5, color="white", linewidth=1.6)
                    line(place - 0.5, color="#222222", linewidth=0.9, linestyle=(0, (4, 2)))
            ends = f"{_short(low)} everywhere" if constant else f"{_short(low)} to {_short(high)}"
            if len(panels) > 1 or constant:
                axes.set_title(f"{_wrapped(series)}\n{ends}", fontsize=SMALL)
        if len(panels) > 1:
            _bar(figure, list(panels.values()), "viridis", ("lowest", "", "highest of the panel"))
        elif not constant:
            figure.colorbar(image, ax=axes, label=metric_of("kernel").label)
        _named(figure, rows, metric_of("kernel").label, "key position", "query position")
    return figure


def kernel_curve(rows: pd.DataFrame, looks: Looks) -> Figure | None:
    """The expected score over distance, less that at the nearest distance, a line a head; None without a value."""
    found = _valued(rows, "kernel_at")
    if found.empty:
        return None
    found = found.assign(head=found["head"].astype(int), distance=found["distance"].astype(int))
    summary = over_seeds(found, ["series", "head", "distance"])
    series_names = among(looks, summary["series"])
    colours = _shades(sorted(set(found["head"])))
    trained = _train_positions(rows)
    far = int(found["distance"].abs().max())
    with style.theme():
        figure, panels = _grid(series_names, 0.8, same_heights=False)
        for series, axes in panels.items():
            of_series = summary[summary["series"] == series]
            lines = of_series.pivot_table(index="distance", columns="head", values="mean").sort_index()
            nearest = min(lines.index, key=lambda distance: (abs(distance), -distance))
            lines = lines - lines.loc[nearest]
            for place, head in enumerate(lines.columns):
                width = 3.0 - 2.0 * place / max(1, len(lines.columns) - 1)  # so that lines that coincide show
                axes.plot(lines.index, lines[head], color=colours[int(head)], linewidth=width)
            _room(axes, lines.to_numpy())
            _distance_axis(axes, far, both_ways=bool((found["distance"] < 0).any()))
            _shade(axes, [length - 1 for length in trained.get(series, [])])
        _keys(figure, "head", colours)
        _named(
            figure, rows, "expected score over distance", "distance (query minus key position)", "score less that at 0"
        )
    return figure


def wavelengths(rows: pd.DataFrame, looks: Looks) -> Figure | None:
    """Wavelength of each dimension that is a wave; None if none is."""
    found = _valued(rows, "wavelength")
    if found.empty:
        return None
    summary = over_seeds(found.astype({"dimension": int}), ["series", "condition", "head", "dimension"])
    trained = _train_positions(rows)
    largest = float(summary["dimension"].max())
    few = summary["series"].nunique() <= TOGETHER
    values = [*summary["mean"], *(place for places in trained.values() for place in places)]

    def draw(axes: Axes, series_names: list[str]) -> None:
        alone = len(series_names) == 1
        for series in series_names:
            part = summary[summary["series"] == series]
            marking = looks[series].marking() | {"markersize": 3.5 if alone else 5}
            axes.plot(part["dimension"], part["mean"], color=looks[series].colour, linestyle="none", **marking)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.set_ylim(min(values) / 1.5, max(values) * 1.5)
        axes.set_xlim(-0.03 * largest - 0.5, 1.03 * largest + 0.5)
        for place in sorted({place for series in series_names for place in trained.get(series, [])}):
            axes.axhline(place, color="#222222", linewidth=1.1, linestyle=(0, (4, 2)), zorder=1)
            if few:
                _note(axes, place, f"training sequence: {place:.0f}")

    return _together_or_apart(
        rows,
        {series: looks[series] for series in among(looks, summary["series"])},
        draw,
        ("wavelengths", "dimension", "wavelength (positions)"),
        lines=False,
    )


def entropy(rows: pd.DataFrame, looks: Looks) -> Figure | None:
    """Entropy of attention to content that is all alike, over the number of keys; None without a value."""
    found = _valued(rows, "attention_entropy")
    found = found[found["head"].isna()]
    if found.empty:
        return None
    summary = over_seeds(found.assign(keys=found["sequence_length"].astype(int)), ["series", "keys"])
    trained = _train_positions(rows)
    keys = sorted(set(summary["keys"]))
    highest = max(math.log(max(keys)), float(summary["mean"].max()))
    few = summary["series"].nunique() <= TOGETHER

    def draw(axes: Axes, series_names: list[str]) -> None:
        axes.set_xscale("log", base=2)
        axes.set_xlim(min(keys) / 1.15, max(keys) * 1.15)
        axes.plot(keys, np.log(keys), color="#222222", linestyle=":", linewidth=1.3, zorder=3)
        style.curves(axes, summary, "keys", {series: looks[series] for series in series_names})
        numbered = keys if few else [keys[0], keys[-1]]
        style.ticks(axes.xaxis, keys, numbered)
        axes.set_ylim(-0.04 * highest, 1.06 * highest)
        _shade(axes, sorted({place for series in series_names for place in trained.get(series, [])}))

    return _together_or_apart(
        rows,
        {series: looks[series] for series in among(looks, summary["series"])},
        draw,
        ("entropy of attention, content alike", "keys", "entropy (nats)"),
        lines=True,
    )


# ---- rows -----------------------------------------------------------------------------------------


def _valued(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    return rows[(rows["metric"] == metric) & (rows["status"] == "ok")]


def _first_seed(rows: pd.DataFrame, metric: str, looks: Looks) -> Iterator[tuple[str, pd.DataFrame]]:
    """Each series' rows of its first seed, in the order of series: a mean over seeds is a picture of no encoder."""
    found = _valued(rows, metric)
    for series in looks:
        part = found[found["series"] == series]
        if len(part):
            first = part.sort_values("seed", kind="stable")["run_id"].iloc[0]
            yield series, part[part["run_id"] == first]


def _matrix(part: pd.DataFrame, down: str, across: str) -> pd.DataFrame:
    part = part.assign(**{name: part[name].astype(int) for name in (down, across)})
    return part.pivot_table(index=down, columns=across, values="value")


def _train_positions(rows: pd.DataFrame) -> dict[str, list[float]]:
    """Series -> how many positions its training sequences have; several where runs of a series differ."""
    found = _valued(rows, "train_positions")
    return {str(series): sorted(set(part)) for series, part in found.groupby("series")["value"]}


# ---- panels ---------------------------------------------------------------------------------------


def _grid(series_names: list[str], ratio: float, *, same_heights: bool) -> tuple[Figure, dict[str, Axes]]:
    """A panel a series, titled; numbers at the lowest of each column, and of equal scales at the first of each line.

    Args:
        series_names: one a panel.
        ratio: height to width.
        same_heights: whether the vertical scales are the same.
    """
    lines = -(-len(series_names) // COLUMNS)
    columns = -(-len(series_names) // lines)
    titles = max(_wrapped(series).count("\n") for series in series_names)
    height = min(3.4, ratio * (style.room() - 0.6) / columns) + 0.36 + 0.15 * titles
    figure = style.figure(1.15 + lines * height)
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    for axes in panels[len(series_names) :]:
        axes.set_axis_off()
    for place, (series, axes) in enumerate(zip(series_names, panels, strict=False)):
        axes.set_title(_wrapped(series), fontsize=SMALL)
        axes.tick_params(labelsize=TINY, pad=1, labelbottom=place + columns >= len(series_names))
        axes.tick_params(labelleft=not same_heights or place % columns == 0)
        if len(series_names) > 1:
            axes.xaxis.set_major_locator(MaxNLocator(3, integer=True))
            axes.yaxis.set_major_locator(MaxNLocator(4))
        sns.despine(ax=axes)
    return figure, dict(zip(series_names, panels, strict=False))


def _together_or_apart(
    rows: pd.DataFrame, shown: Looks, draw: Draw, names: tuple[str, str, str], *, lines: bool
) -> Figure:
    """Few series in one panel, many in one each."""
    with style.theme():
        if len(shown) <= TOGETHER:
            figure = style.figure(4.0)
            axes = figure.subplots()
            draw(axes, list(shown))
            axes.set_title(style.title(rows, names[0]), pad=12)
            axes.set_xlabel(names[1])
            axes.set_ylabel(names[2])
            sns.despine(ax=axes)
            style.legend(figure, style.handles(shown, lines=lines))
        else:
            figure, panels = _grid(list(shown), 0.8, same_heights=True)
            for series, axes in panels.items():
                draw(axes, [series])
            _named(figure, rows, *names)
    return figure


def _named(figure: Figure, rows: pd.DataFrame, what: str, across: str, up: str) -> None:
    figure.suptitle(style.title(rows, what), fontsize="large")
    panels = [axes for axes in figure.axes if axes.get_title()]
    if len(panels) == 1:
        panels[0].set_xlabel(across)
        panels[0].set_ylabel(up)
    else:
        figure.supxlabel(across, fontsize="medium")
        figure.supylabel(up, fontsize="medium")


def _wrapped(series: str) -> str:
    return textwrap.fill(series, 21)


def _short(value: float, place: int | None = None) -> str:
    if abs(value) < 1e-12:
        return "0"
    return (f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}").replace("-", "−")


def _note(axes: Axes, height: float, text: str) -> None:
    """What a horizontal line means, at its right end."""
    axes.annotate(
        text,
        (1, height),
        xycoords=("axes fraction", "data"),
        xytext=(-2, -3),
        textcoords="offset points",
        ha="right",
        va="top",
        fontsize="small",
        color="#444444",
    )


def _image(axes: Axes, picture: pd.DataFrame, colours: str, norm: Normalize) -> ScalarMappable:
    """A matrix as an image over the positions that its cells stand for; blank cells are grey."""
    (left, right), (top, bottom) = _edges(picture.columns), _edges(picture.index)
    axes.set_facecolor(UNSEEN)
    axes.grid(visible=False)
    return axes.imshow(
        np.ma.masked_invalid(picture.to_numpy()),
        cmap=colours,
        norm=norm,
        extent=(left, right, bottom, top),
        aspect="auto",
        interpolation="nearest",
    )


def _edges(places: pd.Index) -> tuple[float, float]:
    """From half a step before the first of evenly spaced places to half a step behind the last."""
    first, last = float(places[0]), float(places[-1])
    half = (last - first) / max(1, len(places) - 1) / 2 or 0.5
    return first - half, last + half


def _bar(figure: Figure, panels: list[Axes], colours: str, words: tuple[str, str, str]) -> None:
    """One colour bar for panels that have each their own scale."""
    bar = figure.colorbar(
        ScalarMappable(Normalize(0, 1), colours), ax=panels, location="bottom", fraction=0.03, shrink=0.5, aspect=40
    )
    bar.set_ticks([0.0, 0.5, 1.0], labels=list(words))
    bar.ax.tick_params(labelsize=SMALL)


def _keys(figure: Figure, title: str, colours: dict[int, str]) -> None:
    """One legend beside the panels."""
    handles = [Line2D([], [], color=colour, linewidth=2.2, label=str(name)) for name, colour in colours.items()]
    figure.legend(handles=handles, title=title, loc="outside right upper", frameon=False, handlelength=1.4)


def _shades(keys: list[int]) -> dict[int, str]:
    """A colour for each of a few numbers in order: told apart by lightness alone, too."""
    shades = colormaps["viridis_r"](np.linspace(0.3, 1.0, len(keys)))
    return {key: to_hex(shade) for key, shade in zip(keys, shades, strict=True)}


def _room(axes: Axes, values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> None:
    """Limits that hold the values, but do not blow rounding up to a picture."""
    low, high = min(0.0, float(np.nanmin(values))), max(0.0, float(np.nanmax(values)))
    if high - low <= 1e-9:
        axes.yaxis.set_major_locator(FixedLocator([0.0]))
        axes.set_ylim(-1.0, 1.0)
    else:
        axes.set_ylim(low - 0.06 * (high - low), high + 0.06 * (high - low))
    axes.yaxis.set_major_formatter(FuncFormatter(_short))


def _shade(axes: Axes, ends: list[float]) -> None:
    """The part that training covers, up to each of the ends; on a distance axis both ways."""
    left, right = axes.get_xlim()
    for end in ends:
        if end < right:
            start = max(left, -end) if left < 0 else left
            axes.axvspan(start, end, color="#ecece4", zorder=0)
            for edge in (end, start) if start == -end else (end,):
                axes.axvline(edge, color="#666666", linewidth=1.0, linestyle=(0, (4, 2)), zorder=1)
    axes.set_xlim(left, right)


def _distance_axis(axes: Axes, far: int, *, both_ways: bool) -> None:
    axes.set_xscale("symlog", base=2, linthresh=1, linscale=1)
    axes.set_xlim(-far if both_ways else 0, far)
    powers = [0, *(4**power for power in range(far.bit_length()) if 4**power <= far)]
    step = 1 + len(powers) // 4
    ticks = [powers[0], *powers[step::step]] if both_ways else powers
    axes.xaxis.set_major_locator(FixedLocator([*(-tick for tick in ticks if both_ways and tick), *ticks]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(_short))
