"""Published curves over ours: drawn and named, but in no number of the report."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.figures import style
from experiments.report.page import Page, Picture
from experiments.rows.quality import OVER_LENGTHS
from experiments.rows.row import COLUMNS, COORDINATES
from experiments.rows.untrusted import name_of, read_cells

NEEDED = ("encoder", "task", "metric", "eval_length", "value")
"""Columns that a published curve must have."""
DASH = (0, (3, 2))


@dataclass(frozen=True)
class Published:
    """Curves from one file.

    Args:
        source: the file's name without its ending, shown behind every series.
        rows: ``series``, ``encoder``, ``task``, ``metric``, ``eval_length``, ``value``; quality over lengths alone.
    """

    source: str
    rows: pd.DataFrame


def read(path: Path) -> Published:
    """Read rows of a CSV file in the columns of ``rows.csv``.

    Raises:
        ValueError: it cannot be read, or a cell is not what its column holds; the message names column and line.
    """
    try:
        head, lines = read_cells(path, path.parent, by_hand=True)
    except FileNotFoundError:
        raise ValueError(f"no file {str(path)!r}: --overlay takes a CSV file with the columns of rows.csv") from None
    refused = f"{path.name} cannot be drawn"
    for column in NEEDED:
        if column not in head:
            raise ValueError(f"{refused}: it lacks the column {column!r}; needed are {', '.join(NEEDED)}")
    for column in head:
        if column not in COLUMNS or head.count(column) > 1:
            raise ValueError(f"{refused}: column {name_of(column)!r} is not one of rows.csv, or there twice")
    table = pd.DataFrame(lines, columns=head, dtype=str).map(name_of)
    allowed = {"experiment": ("", OVER_LENGTHS), "status": ("", "ok")} | dict.fromkeys(
        ("condition", *COORDINATES), ("",)
    )
    for column in set(allowed) & set(head):
        table = table[table[column].isin(allowed[column])]
    if table.empty:
        raise ValueError(f"{refused}: none of its rows is a quality over lengths ({OVER_LENGTHS}, no condition)")
    for column, least in (("eval_length", 1.0), ("value", -math.inf)):
        numbers = pd.to_numeric(table[column], errors="coerce").astype(float)
        for line in table.index[~(numbers.abs() < math.inf) | (numbers < least)]:
            limit = " of at least 1" if least == 1 else ""
            cell = table[column][line]
            raise ValueError(f"{refused}: column {column!r}: {cell!r} in line {line + 2} is not a number{limit}")
        table = table.assign(**{column: numbers})
    source = name_of(path.stem)
    return Published(source, table.assign(series=[f"{encoder} ({source})" for encoder in table["encoder"]]))


def draw(page: Page, published: list[Published]) -> None:
    """Draw curves into the figures of a page that show the same task and metric over lengths.

    Raises:
        ValueError: a file has no curve that any figure could take.
    """
    for curves in published:
        drawn: list[str] = []
        missed: list[str] = []
        for (task, metric), rows in curves.rows.groupby(["task", "metric"]):
            stem, name = f"{style.slug(str(task))}_{metric}", f"{metric} of {task}"
            missed.append(name)
            for section in page.sections:
                for number, part in enumerate(section.parts):
                    if isinstance(part, Picture) and part.stem == stem:
                        drawn.append(missed.pop() if missed[-1:] == [name] else name)
                        section.parts[number] = _with_curves(part, rows, curves.source)
        if not drawn:
            raise ValueError(
                f"{curves.source}.csv cannot be drawn: no figure shows {', '.join(missed)} over lengths; "
                "name task and metric as in rows.csv"
            )
        if missed:
            page.warnings.append(f"{curves.source}.csv: no figure shows {', '.join(missed)}, so these are not drawn.")


def _with_curves(picture: Picture, rows: pd.DataFrame, source: str) -> Picture:
    """Add curves to a figure in place; return it with a caption that says so."""
    assert isinstance(picture.figure, Figure)
    (axes, *_) = picture.figure.axes
    looks = style.looks(rows[["encoder"]].assign(series=rows["encoder"]))
    lines: list[Line2D] = []
    with style.theme():
        for series, of_series in rows.groupby("series"):
            look = looks[str(of_series["encoder"].iloc[0])]
            mean = of_series.groupby("eval_length")["value"].mean().sort_index()
            marking: dict[str, Any] = {"marker": look.marker, "markersize": 5, "markerfacecolor": "white"}
            marking |= {"markeredgecolor": look.colour, "color": look.colour, "zorder": 2.5}
            lines += axes.plot(mean.index, mean, label=str(series), linestyle=DASH, linewidth=1.4, **marking)
        _make_room(picture.figure, sorted(set(rows["eval_length"])))
        _extend_legend(picture.figure, lines)
    caption = f"{picture.caption} Hollow, dashed: published ({source}), in no number of this report."
    return replace(picture, caption=caption)


def _make_room(figure: Figure, lengths: list[float]) -> None:
    """Extend the axis of lengths where a published curve goes further than ours."""
    axes = figure.axes[0]
    low, high = axes.get_xlim()
    if lengths[0] < low or lengths[-1] > high:
        shown = {round(place) for place in axes.xaxis.get_majorticklocs()} | {round(length) for length in lengths}
        style.length_axis(axes, sorted(shown), [])


def _extend_legend(figure: Figure, lines: list[Line2D]) -> None:
    (legend, *_) = figure.legends
    texts = [text.get_text() for text in legend.get_texts()] + [str(line.get_label()) for line in lines]
    handles = [*(handle for handle in legend.legend_handles if handle is not None), *lines]
    legend.remove()
    columns = max(1, min(4, int(style.room() / (0.62 + 0.085 * max(map(len, texts))))))
    rows = -(-len(texts) // columns) - -(-(len(texts) - len(lines)) // columns)
    style.add_height(figure, 0.2 * (rows + 1))
    figure.legend(handles, texts, loc="outside lower center", ncols=columns, frameon=False, handlelength=2.8)
