"""Figures and table of longer sequences whose answers are numbered as in training."""

from functools import partial
from typing import Any

import pandas as pd

from experiments.figures import lines, style, words
from experiments.figures.panels import boundary, by_task, chart, length_axis, under_heads, unlearned
from experiments.figures.style import Chart, Look
from experiments.measures.answer_positions import MOVED, NAME
from experiments.rows.row import KEEPS, main_metric, metric_of
from experiments.statistics.intervals import by_measurement

PANELS = {"": "own positions", MOVED: MOVED}
HEADS = {"": "", MOVED: ", answers moved"}
RETURNS = 0.5
"""Share of the lost quality from which on moved answers bring it back."""
CAPTION = (
    "The same sequences twice, beyond the line longer than any in training: with their own positions, and with those "
    "that the answers have in a sequence of the training length. Thick: mean, thin: seeds; dotted: guessing."
)


def shown(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the table: at each length beyond training, with own positions and with moved answers."""
    metric = main_metric(rows["metric"].unique())
    rows = rows[rows["metric"] == metric] if metric else rows
    parts = []
    for length in sorted(rows.loc[rows["condition"] == MOVED, "eval_length"].unique()):
        at = rows[rows["eval_length"] == length]
        parts += [at[at["condition"] == each].assign(head=f"at {length}{name}") for each, name in HEADS.items()]
    return under_heads(parts, rows)


def _figures(rows: pd.DataFrame, looks: dict[str, Look]) -> dict[str, Chart | None]:
    metric = main_metric(rows["metric"].unique())
    rows = rows[(rows["status"] == "ok") & (rows["metric"] == metric)]
    if metric is None or not (rows["condition"] == MOVED).any():
        return {}
    named, label = style.chosen(looks, looks), metric_of(metric)
    how: dict[str, Any] = {"x": "length of the sequences", "y": f"{label.label} ({label.unit})", "key": named}
    caption = CAPTION + " Colour: one of each family; grey: the others." * (len(named) < len(looks))
    figure, panels = chart(_finding(rows), caption, list(PANELS.values()), height=1.6, **how)
    trained = sorted(set(rows["train_length"]))
    for axes, condition in zip(panels, PANELS, strict=True):
        within = rows["eval_length"] <= rows["train_length"]
        part = rows[within | (rows["condition"] == condition)]
        lines.draw(axes, part, "eval_length", named)
        length_axis(axes, sorted(set(rows["eval_length"])), trained)
        lines.value_axis(axes, rows, "eval_length")
        lines.chance(axes, part, "eval_length", "")
        boundary(axes, trained[-1], "trained")
    return {"answer_positions": figure}


def _finding(rows: pd.DataFrame) -> str:
    """Say whose quality comes back, of those that lose it: at the length where most do, the longest of these."""
    task, found = rows["task"].iloc[0], list[tuple[int, int, list[str], int]]()
    within = rows[rows["eval_length"] <= rows["train_length"]]
    if reason := unlearned(within):
        return reason
    known = within.groupby("series")["value"].mean()
    for length in rows.loc[rows["condition"] == MOVED, "eval_length"].unique():
        means = rows[rows["eval_length"] == length].groupby(["series", "condition"])["value"].mean().unstack().dropna()
        gone = known.reindex(means.index) - means[""]
        failing = means[""] < KEEPS * known.reindex(means.index)
        back = means.index[failing & (means[MOVED] - means[""] >= RETURNS * gone)]
        found.append((len(back), int(length), list(back), len(means)))
    count, length, names, of = max(found)
    if not count:
        return f"{task}: nothing comes back with the answers numbered as in training"
    who = words.brief(names, of)
    return f"{task}: at {length} {who} come{'s' * (count == 1)} back with the answers numbered as in training"


summarise = partial(by_measurement, experiment=NAME)
plot = partial(by_task, experiment=NAME, draw=_figures)
