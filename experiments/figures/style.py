"""How figures look: one look per encoder, one theme, one way to size and save a figure."""

import hashlib
import io
import math
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import pandas as pd
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from experiments.rows.row import among, metric_of, write_whole
from experiments.statistics.intervals import over_seeds, with_series

Dash = Literal["-", "--", "-."] | tuple[float, tuple[float, ...]]
Fill = Literal["full", "none", "left", "top", "right", "bottom"]

PAGE_WIDTH = 6.9
"""Inches; the width of a figure unless `sized` says otherwise. It fits a page and both columns of a paper."""
DOTS = {"page": 150, "print": 300}
NOT_CONVERGED = " †"
"""Put behind a series of which a run did not learn its task within the training length."""

CLASSIC = ("none", "sinusoidal", "learned", "rope", "alibi", "t5")
"""Encoders listed first, each with a colour that no other encoder has."""
# After Okabe and Ito, and seaborn's colour-blind palette.
CLASSIC_COLOURS = ("#4d4d4d", "#0173b2", "#de8f05", "#029e73", "#c44e00", "#b35fa3")
OTHER_COLOURS = (
    *("#56b4e9", "#8c6d31", "#a50026", "#7b8f00", "#5e3c99"),
    *("#0f9b9b", "#e7298a", "#1b2a6b", "#2f5d3a", "#9a9a9a"),
)
COLOURS = (*CLASSIC_COLOURS, *OTHER_COLOURS)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "*")
DASHES: tuple[Dash, ...] = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)))
FILLS: tuple[Fill, ...] = ("full", "none", "left", "top", "right", "bottom")


@dataclass(frozen=True)
class Look:
    """Colour, marker, its filling and dash of one series; ``rank`` is its place in legends and tables."""

    colour: str
    marker: str
    fill: Fill
    dash: Dash
    rank: int

    @property
    def hollow(self) -> bool:
        return self.fill == "none"

    def marking(self) -> dict[str, Any]:
        marker = {"marker": self.marker, "fillstyle": self.fill, "markersize": 7, "markerfacecolor": self.colour}
        marker |= {"markerfacecoloralt": "#dddddd", "markeredgecolor": "white", "markeredgewidth": 0.5}
        outline = {"fillstyle": "full", "markersize": 6, "markerfacecolor": "white"}
        return marker | (outline | {"markeredgecolor": self.colour, "markeredgewidth": 1.4} if self.hollow else {})


def looks(rows: pd.DataFrame) -> dict[str, Look]:
    """Return a look for every series: classic encoders first, the others in alphabetical order.

    The colour of an encoder follows from its name, so that it is the same in every figure and report; so does its
    marker, unless another encoder of the table has both. Series of one encoder differ in dash and filling, or in
    colour and marker if the table has no other encoder. Rows with a column ``look`` keep the looks in it.
    """
    rows = with_series(rows).drop_duplicates("series", keep="last")
    if "look" in rows.columns:
        given = dict(zip(rows["series"], rows["look"], strict=True))
        return dict(sorted(given.items(), key=lambda item: item[1].rank))
    encoder_of = dict(zip(rows["series"], rows["encoder"], strict=True))
    encoders = sorted(set(encoder_of.values()), key=_encoder_order)
    places = _places(encoders)
    # Numbering sequential first, then by name.
    variant_of = {
        series: ("sequential" not in (rest := series.removeprefix(encoder)), rest)
        for series, encoder in encoder_of.items()
    }
    variants = sorted(set(variant_of.values()))
    found = {}
    ordered = sorted(encoder_of, key=lambda series: (_encoder_order(encoder_of[series]), variant_of[series]))
    for rank, series in enumerate(ordered):
        place = (rank, rank, rank) if len(encoders) == 1 < len(ordered) else places[encoder_of[series]]
        variant = variants.index(variant_of[series])
        found[series] = Look(
            colour=COLOURS[place[0] % len(COLOURS)],
            marker=MARKERS[place[1] % len(MARKERS)],
            fill=FILLS[variant % len(FILLS)],
            dash=DASHES[(variant if len(variants) > 1 else place[2]) % len(DASHES)],
            rank=rank,
        )
    return found


def _places(encoders: Sequence[str]) -> dict[str, tuple[int, int, int]]:
    found = {name: (CLASSIC.index(name),) * 3 for name in encoders if name in CLASSIC}
    taken: set[tuple[int, int]] = set()
    for name in (name for name in encoders if name not in CLASSIC):
        number, other = divmod(zlib.crc32(name.encode()), len(OTHER_COLOURS))
        colour = len(CLASSIC) + other
        markers = [(number + step) % len(MARKERS) for step in range(len(MARKERS))]
        marker = next((one for one in markers if (colour, one) not in taken), markers[0])
        taken.add((colour, marker))
        found[name] = (colour, marker, number // len(MARKERS))
    return found


def _encoder_order(encoder: str) -> tuple[int, str]:
    return (CLASSIC.index(encoder) if encoder in CLASSIC else len(CLASSIC), encoder)


_width, _scale = PAGE_WIDTH, 1.0


@contextmanager
def sized(width: float, scale: float = 1.0) -> Iterator[None]:
    """Draw figures ``width`` inches wide; ``scale`` is the size of type and heights, relative to the page."""
    global _width, _scale
    before = _width, _scale
    _width, _scale = width, scale
    try:
        yield
    finally:
        _width, _scale = before


def room() -> float:
    """Return the width of figures in inches of the page, before scaling."""
    return _width / _scale


def figure(height: float) -> Figure:
    """Return an empty figure of the current width; ``height`` is in inches of the page, before scaling."""
    return Figure(figsize=(_width, height * _scale))


@contextmanager
def theme() -> Iterator[None]:
    """Set the theme while a figure is drawn or rendered; the caller's settings come back after it."""
    context = sns.plotting_context("notebook", font_scale=0.85) | {"axes.titlesize": 11.0}
    settings: dict[Any, Any] = sns.axes_style("whitegrid") | {name: size * _scale for name, size in context.items()}
    settings |= {"svg.hashsalt": "pe-zoo", "svg.fonttype": "path", "grid.color": "#e4e4e4"}
    settings |= {"pdf.fonttype": 42}  # publishers refuse fonts of type 3
    settings |= {"text.parse_math": False}  # a dollar sign in a name does not start a formula
    settings |= {"figure.facecolor": "white", "savefig.facecolor": "white", "figure.constrained_layout.use": True}
    with mpl.rc_context(settings):
        yield


def renderings(figure: Figure, suffixes: Sequence[str] = ("svg", "png"), dots: int = DOTS["page"]) -> dict[str, bytes]:
    """Return the figure as ``svg``, ``pdf`` or ``png``, laid out once: the same bytes for the same figure."""
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}
    engine, found = figure.get_layout_engine(), {}
    for suffix in suffixes:
        content = io.BytesIO()
        with theme():
            figure.savefig(content, format=suffix, dpi=dots, metadata=dates[suffix])
        found[suffix] = content.getvalue()
        figure.set_layout_engine("none")
    figure.set_layout_engine(engine)
    return found


def save(
    figure: Figure, path_without_suffix: Path, suffixes: Sequence[str] = ("svg", "png"), dots: int = DOTS["page"]
) -> None:
    """Write ``<path>.<suffix>`` in each format, each whole or not at all; create the folder if it is missing."""
    path_without_suffix.parent.mkdir(parents=True, exist_ok=True)
    for suffix, content in renderings(figure, suffixes, dots).items():
        write_whole(path_without_suffix.with_name(f"{path_without_suffix.name}.{suffix}"), content, lasting=False)


def slug(text: str) -> str:
    """Return a text as part of a file name: letters, digits, ``.``, ``=``, ``_`` and ``-``."""
    plain = re.sub(r"[^A-Za-z0-9._=]+", "-", text).strip("-.") or "unnamed"
    # The whole file name has to fit into 255 bytes.
    return plain if len(plain) <= 120 else f"{plain[:111]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def title(rows: pd.DataFrame, text: str) -> str:
    """Return the task and the text, with the run's name below if the rows are of one run."""
    names = rows["run_id"].unique()
    whole = f"{rows['task'].iloc[0]}: {text}"
    return f"{whole}\nrun {names[0]}" if len(names) == 1 else whole


def length_axis(axes: Axes, lengths: Sequence[int], train_lengths: Sequence[int]) -> None:
    """Make the axis logarithmic: a tick at every length, numbered where there is room, training lengths first."""
    axes.set_xscale("log", base=2)
    ends = [*lengths, *train_lengths]  # a boundary outside the axis would widen the whole figure
    axes.set_xlim(min(ends) / 1.1, max(ends) * 1.1)
    low, high = (math.log2(end) for end in axes.get_xlim())
    inches = axes.get_position().width * room()
    numbered: list[int] = []
    for length in dict.fromkeys([*train_lengths, max(lengths), min(lengths), *sorted(lengths)]):
        gap = 0.09 * len(str(max(lengths))) * (high - low) / inches
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
    """Draw a line at the training length and shade the trained side; on an axis of distances to both sides of 0."""
    start = max(axes.get_xlim()[0], -train_length)
    axes.axvspan(start, train_length, color="#f1f1ec", zorder=0)
    for edge in {train_length, start} if start == -train_length else {train_length}:
        axes.axvline(edge, color="#666666", linewidth=1.2, linestyle=(0, (4, 2)), zorder=1)
    if text:
        note(axes, text, (train_length, 1), (-3, 3), xycoords=("data", "axes fraction"), ha="right", va="bottom")


def note(axes: Axes, text: str, point: tuple[float, float], offset: tuple[float, float], **how: Any) -> None:
    """Write a small remark beside a point, an offset in points away."""
    axes.annotate(text, point, xytext=offset, textcoords="offset points", fontsize="small", color="#555555", **how)


def curves(axes: Axes, summary: pd.DataFrame, x: str, looks: dict[str, Look], *, markers: bool = True) -> None:
    """Draw a `curve` of each series of a summary with ``series``, by its look."""
    for series, look in looks.items():
        marking = look.marking() if markers else {}
        curve(axes, summary[summary["series"] == series], x, look.colour, linestyle=look.dash, linewidth=1.8, **marking)


def curve(axes: Axes, summary: pd.DataFrame, x: str, colour: str, **how: Any) -> None:
    """Draw a line through means over the column ``x`` of an `over_seeds` summary, with a band for their intervals."""
    valued = summary[summary["seeds"] > 0].sort_values(x)
    if valued.empty:
        return
    axes.plot(valued[x], valued["mean"], color=colour, **how)
    banded = valued.dropna(subset=["low", "high"])
    axes.fill_between(banded[x], banded["low"], banded["high"], color=colour, alpha=0.15, linewidth=0)


def handles(
    looks: dict[str, Look], notes: dict[str, str] | None = None, *, lines: bool = True, markers: bool = True
) -> list[Line2D]:
    """Return an entry of a legend for each series; ``notes`` are remarks in brackets behind their names."""
    found = []
    for series, look in looks.items():
        text = series + (f" ({notes[series]})" if notes and series in notes else "")
        how: dict[str, Any] = {"color": look.colour, "linestyle": look.dash if lines else "none", "linewidth": 1.8}
        found.append(Line2D([], [], label=text, **how, **(look.marking() if markers else {})))
    return found


def legend(figure: Figure, entries: Sequence[Artist], most: int = 4) -> None:
    """Put a legend with a limited number of columns below the figure, which grows by its height."""
    widest = max((len(str(entry.get_label())) for entry in entries), default=1)
    columns = max(1, min(len(entries), most, int(room() / (0.62 + 0.085 * widest))))
    figure.set_figheight(figure.get_figheight() + (0.1 + 0.2 * -(-len(entries) // columns)) * _scale)
    figure.legend(handles=list(entries), loc="outside lower center", ncols=columns, frameon=False, handlelength=2.8)


def training_curves(rows: pd.DataFrame) -> dict[str, Figure]:
    """Plot loss and held-out accuracy over the steps of ``training``: stem -> figure, for each task."""
    figures = {}
    for task, of_task in with_series(rows).groupby("task"):
        if not (metrics := among(("loss", "token_accuracy"), of_task["metric"])):
            continue
        found = looks(of_task)
        with theme():
            drawn = figure(3.2)
            panels = drawn.subplots(1, len(metrics), squeeze=False)[0]
            for axes, metric in zip(panels, metrics, strict=True):
                summary = over_seeds(of_task[of_task["metric"] == metric], ["series", "step"])
                curves(axes, summary, "step", found, markers=False)
                axes.set_xlabel("training step")
                axes.set_ylabel(f"{metric_of(metric).label} ({metric_of(metric).unit})")
                axes.set_ylim(*((-0.02, 1.02) if metric == "token_accuracy" else (0, None)))
                sns.despine(ax=axes)
            drawn.suptitle(title(of_task, "training"), fontsize="large")
            legend(drawn, handles(found, markers=False))
        figures[f"{slug(str(task))}_training"] = drawn
    return figures
