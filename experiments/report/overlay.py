"""Published curves laid over ours: drawn and named, and in no number of the report."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.figures import style as _style
from experiments.report.page import Page, Picture
from experiments.rows.quality import OVER_LENGTHS
from experiments.rows.row import COLUMNS, COORDINATES
from experiments.rows.untrusted import name_of, read_cells

NEEDED = ("encoder", "task", "metric", "eval_length", "value")
"""Columns that a published curve has to have; the others of a row may be left out."""
DASH = (0, (3, 2))


@dataclass(frozen=True)
class Published:
    """Curves from one file.

    Args:
        source: the file's name without its ending, which stands behind every label.
        rows: ``label``, ``encoder``, ``task``, ``metric``, ``eval_length``, ``value``; quality over lengths alone.
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
    named = f"{path.name} cannot be laid over"
    for column in NEEDED:
        if column not in head:
            raise ValueError(f"{named}: it lacks the column {column!r}; needed are {', '.join(NEEDED)}")
    for column in head:
        if column not in COLUMNS or head.count(column) > 1:
            raise ValueError(f"{named}: column {name_of(column)!r} is none of rows.csv, or there twice")
    table = pd.DataFrame(lines, columns=head, dtype=str).map(name_of)
    if "experiment" in head:
        table = table[table["experiment"].isin(("", OVER_LENGTHS))]
    table = table[
        (table[[column for column in head if column in ("condition", *COORDINATES)]] == "").all(axis="columns")
    ]
    if "status" in head:
        table = table[table["status"].isin(("", "ok"))]
    if table.empty:
        raise ValueError(
            f"{named}: none of its rows is a quality over lengths (experiment {OVER_LENGTHS}, no condition)"
        )
    for column, least in (("eval_length", 1.0), ("value", -math.inf)):
        numbers = [_number(cell, least) for cell in table[column]]
        wrong = next((place for place, number in enumerate(numbers) if number is None), None)
        if wrong is not None:
            said = f"{table[column].iloc[wrong]!r} in line {table.index[wrong] + 2} is no number"
            raise ValueError(f"{named}: column {column!r}: {said}" + (" of at least 1" if least == 1 else ""))
        table[column] = numbers
    source = name_of(path.stem)
    return Published(source, table.assign(label=[f"{encoder} ({source})" for encoder in table["encoder"]]))


def _number(cell: str, least: float) -> float | None:
    try:
        number = float(cell)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= least else None


def draw(page: Page, published: list[Published]) -> None:
    """Draw curves into the figures of a page that show the same task and metric over lengths.

    Raises:
        ValueError: a file has no curve that any figure could take.
    """
    for curves in published:
        drawn: list[str] = []
        missed: list[str] = []
        for (task, metric), rows in curves.rows.groupby(["task", "metric"]):
            stem = f"{_style.slug(str(task))}_{metric}"
            places = [
                (section, number)
                for section in page.sections
                for number, part in enumerate(section.parts)
                if isinstance(part, Picture) and part.stem == stem
            ]
            (drawn if places else missed).append(f"{metric} of {task}")
            for section, number in places:
                part = section.parts[number]
                assert isinstance(part, Picture)
                assert isinstance(part.figure, Figure)
                _add(part.figure, rows)
                caption = (
                    f"{part.caption} Hollow, dashed: published, from {curves.source}; in no number of this report."
                )
                section.parts[number] = replace(part, caption=caption)
        if not drawn:
            raise ValueError(
                f"{curves.source}.csv cannot be laid over: no figure shows {', '.join(missed)} over lengths; "
                "task and metric have to be called as in rows.csv"
            )
        if missed:
            page.warnings.append(f"Of {curves.source}.csv was not drawn, for no figure shows it: {', '.join(missed)}.")


def _add(figure: Figure, rows: pd.DataFrame) -> None:
    (axes, *_) = figure.axes
    looks = _style.looks(rows[["encoder"]].assign(label=rows["encoder"]))
    lines = []
    with _style.theme():
        for label, of_label in rows.groupby("label"):
            look = looks[str(of_label["encoder"].iloc[0])]
            mean = of_label.groupby("eval_length")["value"].mean().sort_index()
            style: dict[str, Any] = {
                "color": look.colour,
                "linestyle": DASH,
                "linewidth": 1.4,
                "marker": look.marker,
                "markersize": 5,
            }
            style |= {"markerfacecolor": "white", "markeredgecolor": look.colour, "zorder": 2.5}
            lines += axes.plot(mean.index, mean.to_numpy(), label=str(label), **style)
        _make_room(figure, sorted(set(rows["eval_length"])))
        _extend_legend(figure, lines)


def _make_room(figure: Figure, lengths: list[float]) -> None:
    """A longer axis of lengths, where a published curve goes further than ours."""
    axes = figure.axes[0]
    low, high = axes.get_xlim()
    if lengths[0] < low or lengths[-1] > high:
        shown = {round(place) for place in axes.xaxis.get_majorticklocs()} | {round(length) for length in lengths}
        _style.length_axis(axes, sorted(shown), [])


def _extend_legend(figure: Figure, lines: list[Line2D]) -> None:
    (legend, *_) = figure.legends
    texts = [text.get_text() for text in legend.get_texts()] + [str(line.get_label()) for line in lines]
    handles = [*(handle for handle in legend.legend_handles if handle is not None), *lines]
    legend.remove()
    columns = max(1, min(4, int(_style.room() / (0.62 + 0.085 * max(map(len, texts))))))
    rows = -(-len(texts) // columns) - -(-(len(texts) - len(lines)) // columns)
    _style.add_height(figure, 0.2 * (rows + 1))
    figure.legend(handles, texts, loc="outside lower center", ncols=columns, frameon=False, handlelength=2.8)
