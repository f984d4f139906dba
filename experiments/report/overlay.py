"""Published curves over ours: drawn and named, but in no number of the report."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from experiments.figures import lines, style
from experiments.figures.panels import length_axis
from experiments.report.page import Page, Picture
from experiments.rows.row import COLUMNS, COORDINATES, OVER_LENGTHS
from experiments.rows.untrusted import name_of, read_cells

NEEDED = ("encoder", "task", "metric", "eval_length", "value")
"""Columns that a published curve must have."""
DASH = (0, (3, 2))


def read(path: Path) -> pd.DataFrame:
    """Read published curves from a CSV file in the columns of ``rows.csv``.

    Returns:
        ``source`` (the file's name without its ending), ``encoder``, ``task``, ``metric``, ``eval_length``, ``value``;
        quality over lengths alone.

    Raises:
        ValueError: it cannot be read, or a cell is not what its column holds; the message names column and line.
    """
    try:
        head, lines = read_cells(path, path.parent, by_hand=True)
    except FileNotFoundError:
        raise ValueError(f"no file {str(path)!r}: --overlay takes a CSV file with the columns of rows.csv") from None
    refused = f"{path.name} cannot be drawn"
    if missing := [column for column in NEEDED if column not in head]:
        raise ValueError(f"{refused}: it lacks the column {missing[0]!r}; needed are {', '.join(NEEDED)}")
    if unknown := [column for column in head if column not in COLUMNS or head.count(column) > 1]:
        raise ValueError(f"{refused}: column {name_of(unknown[0])!r} is not one of rows.csv, or there twice")
    table = pd.DataFrame(lines, columns=head, dtype=str).map(name_of)
    blank: dict[str, tuple[str, ...]] = dict.fromkeys(("condition", *COORDINATES), ("",))
    for column, allowed in (blank | {"experiment": ("", OVER_LENGTHS), "status": ("", "ok")}).items():
        table = table[table[column].isin(allowed)] if column in table else table
    if table.empty:
        raise ValueError(f"{refused}: none of its rows is a quality over lengths ({OVER_LENGTHS}, no condition)")
    for column, least in (("eval_length", 1.0), ("value", -math.inf)):
        numbers = pd.to_numeric(table[column], errors="coerce").astype(float)
        for line in table.index[~(numbers.abs() < math.inf) | (numbers < least)]:
            limit = " of at least 1" if least == 1 else ""
            cell = table[column][line]
            raise ValueError(f"{refused}: column {column!r}: {cell!r} in line {line + 2} is not a number{limit}")
        table = table.assign(**{column: numbers})
    return table[list(NEEDED)].assign(source=name_of(path.stem))


def draw(page: Page, published: list[pd.DataFrame]) -> None:
    """Draw curves into figures of the same task and metric over lengths; ValueError if a file fits no figure."""
    for curves in published:
        source, missed, groups = curves["source"].iloc[0], [], list(curves.groupby(["task", "metric"]))
        for (task, metric), rows in groups:
            stem, found = f"{style.slug(str(task))}_{metric}", False
            for section in (section for each in page.pages for section in each.sections):
                for number, part in enumerate(section.parts):
                    if isinstance(part, Picture) and part.stem == stem:
                        _add_curves(part.figure, rows)
                        note = f"Hollow, dashed: published ({source}), in no number of this report."
                        section.parts[number], found = replace(part, caption=f"{part.caption} {note}"), True
                        section.folded = False
            missed += [] if found else [f"{metric} of {task}"]
        problem = f"no figure shows {', '.join(missed)}"
        if len(missed) == len(groups):
            reason = f"{problem} over lengths; name task and metric as in rows.csv"
            raise ValueError(f"{source}.csv cannot be drawn: {reason}")
        if missed:
            page.warnings.append(f"{source}.csv: {problem}, so these are not drawn.")


def _add_curves(figure: Figure, rows: pd.DataFrame) -> None:
    axes, looks, named = figure.axes[0], style.looks(rows[["encoder"]]), {}
    with style.theme():
        for encoder, of_encoder in rows.groupby("encoder"):
            mean = of_encoder.groupby("eval_length")["value"].mean().sort_index()
            how: dict[str, Any] = {"color": looks[str(encoder)].colour, "linestyle": DASH, "linewidth": 1.2}
            how |= {"marker": "o", "markersize": 3.5, "markerfacecolor": "white", "markeredgewidth": 0.9, "zorder": 2.5}
            (named[f"{encoder} ({of_encoder['source'].iloc[0]})"],) = axes.plot(mean.index, mean, **how)
        (low, high), lengths = axes.get_xlim(), rows["eval_length"]
        if lengths.min() < low or lengths.max() > high:  # the published curve goes further than ours
            shown = {round(place) for place in [*axes.xaxis.get_majorticklocs(), *lengths]}
            length_axis(axes, sorted(shown))
        lines.name(axes, named)
