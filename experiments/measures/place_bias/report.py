"""Figures and table of accuracy and influence by the place of the evidence."""

from functools import partial
from typing import Any

import pandas as pd

from experiments.figures import dots, lines, style, words
from experiments.figures.panels import by_task, chart, under_heads, unlearned
from experiments.figures.style import Chart, Look
from experiments.measures.place_bias import CONTENT, INFLUENCE, INITIAL, LOST, NAME, PLACE, RECENCY, U_INDEX
from experiments.rows.row import metric_of, whole
from experiments.statistics.intervals import by_measurement, with_series

OF_INFLUENCE = f"{INFLUENCE}_{U_INDEX}"
CAPTION = "Accuracy: of the same questions with their evidence at each place, 0 the first and 1 the last. "
OF_INPUTS = "Influence: of each input place on the last output, times the mean{stages}. "
INDICES = (
    "Ends less middle: mean of the first and the last quarter of the places, less that of the middle half. "
    "Line: no difference."
)


def shown(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the table at the shortest length: both indices of accuracy and influence, what is followed."""
    rows = whole(with_series(rows))
    rows = rows[rows["eval_length"] == rows["eval_length"].min()]
    names = (U_INDEX, RECENCY, CONTENT, PLACE, f"{INITIAL}{OF_INFLUENCE}", OF_INFLUENCE, f"{INFLUENCE}_{RECENCY}")
    parts = [rows[rows["metric"] == name].assign(head=metric_of(name).label) for name in names]
    return under_heads([part for part in parts if len(part)], rows.iloc[:0])


def _figures(rows: pd.DataFrame, looks: dict[str, Look]) -> dict[str, Chart | None]:
    rows = rows[(rows["status"] == "ok") & (rows["eval_length"] == rows["eval_length"].min())]
    return {"by_place": _by_place(rows, looks), U_INDEX: _indices(rows, looks)}


def _by_place(rows: pd.DataFrame, looks: dict[str, Look]) -> Chart | None:
    accuracy = rows[rows["metric"] == "token_accuracy"]
    panels = {
        "accuracy": accuracy.assign(at=accuracy["depth"]),
        "influence, untrained": _over_depth(rows[rows["metric"] == f"{INITIAL}{INFLUENCE}"]),
        "influence": _over_depth(rows[rows["metric"] == INFLUENCE]),
    }
    panels = {name: part for name, part in panels.items() if len(part)}
    if not panels:
        return None
    first = next(iter(panels.values()))
    spread = first.groupby(["series", "at"])["value"].mean().groupby("series").std().fillna(0)
    named = style.chosen(looks, spread.sort_values(ascending=False, kind="stable").index)
    caption = CAPTION * (len(accuracy) > 0)
    if influences := [name for name in panels if name != "accuracy"]:
        caption += OF_INPUTS.format(stages=", before and after training" * (len(influences) > 1))
    rest = len(named) < rows["series"].nunique()
    caption += "Colour: of each family the one that place matters most to; grey: the others." * rest
    how: dict[str, Any] = {"x": "place, from the beginning (0) to the end (1)", "alike": "x", "height": 1.6}
    figure, found = chart(_finding(rows), caption, list(panels), key=named, left=0.3, **how)
    for axes, (name, part) in zip(found, panels.items(), strict=True):
        lines.draw(axes, part, "at", named, seeds=False)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1.03 if name == "accuracy" else None)
        if name == "accuracy":
            lines.chance(axes, part, "at", "")
    return figure


def _over_depth(rows: pd.DataFrame) -> pd.DataFrame:
    """Put the pieces of a profile between 0 and 1."""
    middle = rows["position"].astype(float) + (rows["size"].fillna(1).astype(float) - 1) / 2
    low, high = middle.min(), middle.max()
    return rows.assign(at=(middle - low) / (high - low) if high > low else 0.0)


def _finding(rows: pd.DataFrame) -> str:
    task, found = rows["task"].iloc[0], rows[rows["metric"] == U_INDEX].groupby("series")["value"].mean()
    lost = found[found > LOST].sort_values(ascending=False)
    if found.empty:
        return f"{task}: influence of each place"
    if reason := unlearned(rows[rows["eval_length"] == rows["train_length"]]):
        return reason
    if lost.empty:
        return f"{task}: {'no encoder is' if len(found) > 1 else f'{found.index[0]} is not'} lost in the middle"
    return f"{task}: {words.brief(lost.index, len(found))} {'is' if len(lost) == 1 else 'are'} lost in the middle"


def _indices(rows: pd.DataFrame, looks: dict[str, Look]) -> Chart | None:
    metrics = [name for name in (U_INDEX, OF_INFLUENCE) if (rows["metric"] == name).any()]
    if not metrics:
        return None
    means = rows[rows["metric"] == metrics[0]].groupby("series")["value"].mean()
    order = list(means.sort_values(ascending=False, kind="stable").index)
    titles = [{U_INDEX: "accuracy", OF_INFLUENCE: "influence"}[name] for name in metrics]
    title = f"{rows['task'].iloc[0]}: ends less middle"
    before = rows["metric"].isin([f"{INITIAL}{name}" for name in metrics]).any()
    if len(order) == len(metrics) == 1 and not before:
        return None  # one dot, whose number is in the table
    caption = INDICES + " Influence: filled trained, ring before training." * bool(before)
    caption += " All encoders, the largest on top." * (len(order) > 1)
    figure, panels = dots.panels(title, caption, order, titles, y="U index", alike="y")
    for axes, name in zip(panels, metrics, strict=True):
        dots.draw(axes, rows[rows["metric"] == f"{INITIAL}{name}"], order, looks, ring=True, shift=0.15)
        dots.draw(axes, rows[rows["metric"] == name], order, looks)
        dots.reference(axes, 0)
    return figure


summarise = partial(by_measurement, experiment=NAME)
plot = partial(by_task, experiment=NAME, draw=_figures)
