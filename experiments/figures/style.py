"""How figures look: one look per encoder everywhere, one theme, one way to save. Nothing here knows a model."""

from __future__ import annotations

import hashlib
import io
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from experiments.rows.row import among, metric_of, write_whole
from experiments.statistics.intervals import labelled, over_seeds

Dash = Literal["-", "--", "-."] | tuple[float, tuple[float, ...]]
Fill = Literal["full", "none", "left", "top", "right", "bottom"]

WIDTH = 7.2
"""Inches; the width of every figure, so that text is of one size on the page."""
NOT_CONVERGED = " †"
"""Put behind a label of which a run did not learn its task within the training length."""

# After Okabe and Ito, and seaborn's colour-blind palette; told apart by lightness, marker and dash as well.
_FIRST_COLOURS = ("#4d4d4d", "#0173b2", "#de8f05", "#029e73", "#c44e00", "#b35fa3")
_OTHER_COLOURS = (
    *("#56b4e9", "#8c6d31", "#a50026", "#7b8f00", "#5e3c99"),
    *("#0f9b9b", "#e7298a", "#1b2a6b", "#2f5d3a", "#9a9a9a"),
)
_COLOURS = (*_FIRST_COLOURS, *_OTHER_COLOURS)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "*")
_DASHES: tuple[Dash, ...] = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)))
_FILLS: tuple[Fill, ...] = ("full", "none", "left", "top", "right", "bottom")
_FIRST = ("none", "sinusoidal", "learned", "rope", "alibi", "t5")
_SPREAD = 11472
"""With this, no two encoders of the zoo fall on one look, and no colour has more than four of them."""


@dataclass(frozen=True)
class Look:
    """Colour, marker, its filling and dash of one label; ``rank`` is its place in legends and tables."""

    colour: str
    marker: str
    fill: Fill
    dash: Dash
    rank: int

    @property
    def hollow(self) -> bool:
        """Whether the marker is drawn as an outline."""
        return self.fill == "none"

    def marking(self) -> dict[str, Any]:
        """How matplotlib is to draw the marker."""
        hollow = self.hollow
        edge = {"markeredgecolor": self.colour if hollow else "white", "markeredgewidth": 1.4 if hollow else 0.5}
        fill = {"markerfacecolor": "white" if hollow else self.colour, "markerfacecoloralt": "#dddddd"}
        style = {"marker": self.marker, "markersize": 6 if hollow else 7}
        return style | edge | fill | {"fillstyle": "full" if hollow else self.fill}


def looks(rows: pd.DataFrame) -> dict[str, Look]:
    """A look for every label, best known encoders first, the rest in alphabetical order after them.

    An encoder has one colour and one marker, which follow from its name: the same in every figure and report,
    whichever others are there. Only where another one of the table has that look already, it takes the next free one.
    Its labels differ in their dash and filling. If there is but one encoder, its labels differ in colour and marker
    too. Rows with a column ``look`` keep what that holds, so that a part of a table looks as the whole.
    """
    rows = labelled(rows).drop_duplicates("label", keep="last")
    if "look" in rows.columns:
        kept = dict(zip(rows["label"], rows["look"], strict=True))
        return dict(sorted(kept.items(), key=lambda item: item[1].rank))
    encoder_of = dict(zip(rows["label"], rows["encoder"], strict=True))
    encoders = sorted(set(encoder_of.values()), key=_known_first)
    homes = _homes(encoders)
    variant_of = {label: label.removeprefix(encoder_of[label]) for label in encoder_of}
    variants = sorted(set(variant_of.values()), key=_plain_first)
    labels = sorted(encoder_of, key=lambda label: (_known_first(encoder_of[label]), _plain_first(variant_of[label])))
    found = {}
    for rank, label in enumerate(labels):
        home = (rank, rank, rank) if len(encoders) == 1 and len(labels) > 1 else homes[encoder_of[label]]
        variant = variants.index(variant_of[label])
        found[label] = Look(
            colour=_COLOURS[home[0] % len(_COLOURS)],
            marker=_MARKERS[home[1] % len(_MARKERS)],
            fill=_FILLS[variant % len(_FILLS)],
            dash=_DASHES[(variant if len(variants) > 1 else home[2]) % len(_DASHES)],
            rank=rank,
        )
    return found


def _homes(encoders: Sequence[str]) -> dict[str, tuple[int, int, int]]:
    """Encoder -> places of its colour, marker and dash; told by the name alone as far as nobody else has them."""
    found = {name: (_FIRST.index(name),) * 3 for name in encoders if name in _FIRST}
    taken: set[tuple[int, int]] = set()
    for name in (name for name in encoders if name not in _FIRST):
        digest = int(hashlib.sha256(f"{_SPREAD} {name}".encode()).hexdigest(), 16)
        of_colour, number = digest % len(_OTHER_COLOURS), digest // len(_OTHER_COLOURS)
        colour, marker = len(_FIRST_COLOURS) + of_colour, number % len(_MARKERS)
        if len(taken) < len(_OTHER_COLOURS) * len(_MARKERS):
            while (colour, marker) in taken:
                marker = (marker + 1) % len(_MARKERS)
                if sum(other == colour for other, _ in taken) == len(_MARKERS):
                    colour = len(_FIRST_COLOURS) + (colour + 1 - len(_FIRST_COLOURS)) % len(_OTHER_COLOURS)
        taken.add((colour, marker))
        found[name] = (colour, marker, number // len(_MARKERS) % len(_DASHES))
    return found


def _known_first(encoder: str) -> tuple[int, str]:
    return (_FIRST.index(encoder) if encoder in _FIRST else len(_FIRST), encoder)


def _plain_first(variant: str) -> tuple[bool, str]:
    return "sequential" not in variant, variant


@contextmanager
def theme() -> Iterator[None]:
    """The theme, for as long as a figure is drawn or saved; whatever the caller had set comes back after it."""
    settings: dict[Any, Any] = sns.axes_style("whitegrid") | sns.plotting_context("notebook", font_scale=0.85)
    settings |= {"svg.hashsalt": "pe-zoo", "svg.fonttype": "path", "axes.titlesize": 11.0, "grid.color": "#e4e4e4"}
    # A dollar sign in a name is a dollar sign, not the start of a formula.
    settings |= {"text.parse_math": False}
    settings |= {"figure.facecolor": "white", "savefig.facecolor": "white", "figure.constrained_layout.use": True}
    with mpl.rc_context(settings):
        yield


def render(figure: Figure, suffix: str) -> bytes:
    """The figure as ``png`` (150 dots an inch) or ``svg``: the same bytes for the same figure."""
    with theme():
        content = io.BytesIO()
        metadata = {"Date": None} if suffix == "svg" else {"Software": None}
        figure.savefig(content, format=suffix, dpi=150, metadata=metadata)
    return content.getvalue()


@contextmanager
def as_laid_out(figure: Figure) -> Iterator[None]:
    """A figure that was rendered once keeps its layout when it is rendered again: half of the time goes there."""
    engine = figure.get_layout_engine()
    figure.set_layout_engine("none")
    yield
    figure.set_layout_engine(engine)


def renderings(figure: Figure) -> dict[str, bytes]:
    """The figure as ``svg`` and ``png``, laid out once."""
    svg = render(figure, "svg")
    with as_laid_out(figure):
        return {"svg": svg, "png": render(figure, "png")}


def save(figure: Figure, path_without_suffix: Path) -> None:
    """Write ``<path>.png`` and ``<path>.svg``, each whole or not at all; makes the folder if need be."""
    path_without_suffix.parent.mkdir(parents=True, exist_ok=True)
    for suffix, content in renderings(figure).items():
        write_whole(path_without_suffix.with_name(f"{path_without_suffix.name}.{suffix}"), content, lasting=False)


def slug(text: str) -> str:
    """A text as part of a file name: letters, digits, ``.``, ``=``, ``_`` and ``-``."""
    plain = re.sub(r"[^A-Za-z0-9._=]+", "-", text).strip("-.") or "unnamed"
    # With what is put before and behind it, a file's name still has to fit into 255 bytes.
    return plain if len(plain) <= 120 else f"{plain[:111]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def title(rows: pd.DataFrame, text: str) -> str:
    """The task and the text; the name of the run below it where the rows are of one run."""
    names = rows["run_id"].unique()
    whole = f"{rows['task'].iloc[0]}: {text}"
    return f"{whole}\nrun {names[0]}" if len(names) == 1 else whole


def length_axis(axes: Axes, lengths: Sequence[int], train_lengths: Sequence[int]) -> None:
    """Logarithmic in base 2: a tick at every length, a number where there is room, training's end first."""
    axes.set_xscale("log", base=2)
    reach = [*lengths, *train_lengths]  # a boundary outside would take the whole figure to be written at
    axes.set_xlim(min(reach) / 1.1, max(reach) * 1.1)
    low, high = (math.log2(end) for end in axes.get_xlim())
    inches = axes.get_position().width * axes.figure.get_figwidth()  # type: ignore[union-attr]
    numbered: list[int] = []
    for length in dict.fromkeys([*train_lengths, max(lengths), min(lengths), *sorted(lengths)]):
        room = 0.09 * len(str(max(lengths))) * (high - low) / inches
        if length in lengths and all(abs(math.log2(length / other)) > room for other in numbered):
            numbered.append(length)
    ticks(axes.xaxis, sorted(lengths), numbered)


def ticks(axis: Axis, places: Sequence[int], numbered: Sequence[int]) -> None:
    """A tick at every place, and a number at some of them."""
    axis.set_major_locator(FixedLocator(places))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FixedFormatter([str(place) if place in numbered else "" for place in places]))


def boundary(axes: Axes, train_length: float, text: str) -> None:
    """Where training ended: a line, and the trained side shaded."""
    axes.axvspan(axes.get_xlim()[0], train_length, color="#f1f1ec", zorder=0)
    axes.axvline(train_length, color="#666666", linewidth=1.2, linestyle=(0, (4, 2)), zorder=1)
    if text:
        axes.annotate(
            text,
            (train_length, 1),
            xycoords=("data", "axes fraction"),
            xytext=(-3, 3),
            textcoords="offset points",
            ha="right",
            va="bottom",
            fontsize="small",
            color="#444444",
        )


def curves(axes: Axes, summary: pd.DataFrame, x: str, looks: dict[str, Look], *, markers: bool = True) -> None:
    """A line a label through its means, and a band for the interval over seeds where there is one.

    Args:
        axes: where to draw.
        summary: of `over_seeds`, with ``label`` and the column named ``x``; lines without a value are left out.
        x: the column on the horizontal axis.
        looks: label -> look.
        markers: whether to mark the points.
    """
    for label, look in looks.items():
        line = summary[(summary["label"] == label) & (summary["seeds"] > 0)].sort_values(x)
        if line.empty:
            continue
        style: dict[str, Any] = {"color": look.colour, "linestyle": look.dash, "linewidth": 1.8}
        if markers:
            style |= look.marking()
        axes.plot(line[x], line["mean"], **style)
        banded = line.dropna(subset=["low", "high"])
        axes.fill_between(banded[x], banded["low"], banded["high"], color=look.colour, alpha=0.15, linewidth=0)


def legend(
    figure: Figure,
    looks: dict[str, Look],
    notes: dict[str, str] | None = None,
    *,
    lines: bool = True,
    markers: bool = True,
) -> None:
    """One legend under the whole figure, which grows by what the legend takes.

    Args:
        figure: laid out with constraints.
        looks: label -> look, in the order to be listed.
        notes: label -> what is to be said behind it, such as why its line ends.
        lines: whether the labels are drawn with lines.
        markers: whether they are drawn with markers.
    """
    handles = []
    for label, look in looks.items():
        text = label + (f" ({notes[label]})" if notes and label in notes else "")
        style: dict[str, Any] = {"color": look.colour, "linestyle": look.dash if lines else "none", "linewidth": 1.8}
        handles.append(Line2D([], [], label=text, **style, **(look.marking() if markers else {})))
    longest = max((len(str(handle.get_label())) for handle in handles), default=1)
    columns = max(1, min(len(handles), 4, int(WIDTH / (0.62 + 0.085 * longest))))
    figure.set_figheight(figure.get_figheight() + 0.1 + 0.2 * -(-len(handles) // columns))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, handlelength=2.8)


def training_curves(rows: pd.DataFrame) -> dict[str, Figure]:
    """Loss and held-out accuracy while training, a figure a task: stem -> figure.

    Args:
        rows: those of experiment ``training``; condition ``step=100``.
    """
    rows = labelled(rows)
    rows = rows.assign(step=[int(condition.rpartition("=")[2]) for condition in rows["condition"]])
    figures = {}
    for task, of_task in rows.groupby("task"):
        found = looks(of_task)
        metrics = among(("loss", "token_accuracy"), of_task["metric"])
        if not metrics:
            continue
        with theme():
            figure = Figure(figsize=(WIDTH, 3.2))
            panels = figure.subplots(1, len(metrics), squeeze=False)[0]
            for axes, metric in zip(panels, metrics, strict=True):
                of_metric = of_task[of_task["metric"] == metric]
                curves(axes, over_seeds(of_metric, ["label", "step"]), "step", found, markers=False)
                axes.set_xlabel("training step")
                axes.set_ylabel(f"{metric_of(metric).label} ({metric_of(metric).unit})")
                axes.set_ylim(*((-0.02, 1.02) if metric == "token_accuracy" else (0, None)))
                sns.despine(ax=axes)
            figure.suptitle(title(of_task, "training"), fontsize="large")
            legend(figure, found, markers=False)
        figures[f"{slug(str(task))}_training"] = figure
    return figures
