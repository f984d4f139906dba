"""Cost against quality: what each encoder costs, what it gives for it, and which of them no other beats in both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes

from experiments.figures import style, words
from experiments.figures.style import Look
from experiments.report.page import Picture, Section, Table
from experiments.report.sections.ranking import Standings
from experiments.report.sections.task import OfTask
from experiments.rows.row import metric_of

RELATIVE = {
    "relative_train_time": "training time, × without encoder",
    "relative_operations": "operations, × without encoder",
}
"""Metrics of the experiment `cost` that a cost is taken from, the first that was measured of every label."""
SECONDS = "training seconds"
NAMED = 14
"""Labels written beside their marks; of more, those on the front alone."""
TALL = 4.2
"""Inches of the figure."""
PICTURES = 4
"""Tasks from which on there is a table alone."""


def weigh(tasks: Sequence[OfTask], standings: Standings) -> dict[str, pd.DataFrame]:
    """Task -> its lines of `weighed`, where two labels or more have both a cost and a quality beyond training."""
    found = {of.task: weighed(of, standings[of.task]) for of in tasks if of.task in standings}
    return {task: table for task, table in found.items() if len(table) > 1}


def said(of: OfTask, table: pd.DataFrame | None) -> list[str]:
    """What the best costs, and which cheaper ones nothing beats, in a sentence."""
    if table is None:
        return []
    front = table[table["front"]].sort_values("cost", ascending=False)
    lines = front.to_dict("records")
    named = [f"{of.name(line['label'])} ({line['quality']:.3f} for {line['cost']:.3g})" for line in lines]
    return [
        f"Quality beyond the training length for its cost ({table['cost_of'].iloc[0]}) on {of.task}: no other label "
        f"gives at least as much for no more than {words.few(named)}."
    ]


def sections(tasks: Sequence[OfTask], found: dict[str, pd.DataFrame]) -> list[Section]:
    """The section, if there is anything to weigh; `weigh` finds it."""
    if not found:
        return []
    section = Section(
        "Cost against quality",
        [
            "What does quality beyond the training length cost? A label is on the front (Pareto) if no other has at "
            "least its quality for at most its cost, and is better in one of them. Means over seeds: a label that is "
            "off the front by less than its interval may belong there."
        ],
    )
    for of in (of for of in tasks if of.task in found and len(found) < PICTURES):
        section.parts.append(_picture(of, found[of.task]))
    section.parts.append(_table(tasks, found))
    return [section]


def weighed(of: OfTask, standing: pd.DataFrame) -> pd.DataFrame:
    """Cost and quality of each label of a task, best quality first.

    Returns:
        ``task``, ``label``, ``metric``, ``quality``, ``low``, ``high`` (95 % t interval), ``cost``, ``cost_low``,
        ``cost_high`` (lowest and highest of its seeds), ``cost_of`` (what is counted), ``encoder_parameters``,
        ``front`` (whether no other label beats it in both).
    """
    ranked = standing[standing["status"] == "ok"]
    spent, counted = _spent(of, list(ranked["label"]))
    table = ranked[["task", "label", "metric", "mean", "low", "high"]].rename(columns={"mean": "quality"})
    table = table.merge(spent, on="label").assign(cost_of=counted)
    parameters = pd.to_numeric(of.runs["encoder_parameters"]).groupby(of.runs["label"]).mean()
    table["encoder_parameters"] = table["label"].map(parameters)
    up = bool(len(table)) and metric_of(str(table["metric"].iloc[0])).higher_is_better is not False
    return table.assign(front=_front(list(table["cost"]), [q if up else -q for q in table["quality"]]))


def _spent(of: OfTask, labels: list[str]) -> tuple[pd.DataFrame, str]:
    """Mean, lowest and highest cost of each label, and what it is: a ratio where it was measured, else seconds."""
    for metric, counted in RELATIVE.items():
        rows = of.rows_of("cost")
        rows = rows[(rows["metric"] == metric) & (rows["status"] == "ok")]
        # A label may have been asked at several lengths: the longest that all share is compared.
        shared = rows.fillna({"sequence_length": 0}).groupby("sequence_length")["label"].nunique()
        shared = shared[shared == len(labels)]
        if len(shared):
            return _spread(rows[rows["sequence_length"].fillna(0) == max(shared.index)], "value"), counted
    runs = of.runs.assign(seconds=pd.to_numeric(of.runs["train_seconds"]))
    return _spread(runs[runs["label"].isin(labels) & (runs["seconds"] > 0)], "seconds"), SECONDS


def _spread(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    table = rows.groupby("label")[column].agg(["mean", "min", "max"]).reset_index()
    return table.rename(columns={"mean": "cost", "min": "cost_low", "max": "cost_high"})


def _front(costs: Sequence[float], worths: Sequence[float]) -> list[bool]:
    """Whether no other has at least as much worth at no more cost, and more of one."""
    both = list(zip(costs, worths, strict=True))
    return [not any(c <= cost and w >= worth and (c < cost or w > worth) for c, w in both) for cost, worth in both]


def _table(tasks: Sequence[OfTask], found: dict[str, pd.DataFrame]) -> Table:
    names = {of.task: of.name for of in tasks}
    data = pd.concat(found.values(), ignore_index=True)
    several = len(found) > 1
    lines = [
        [
            *([line["task"]] if several else []),
            names[line["task"]](line["label"]),
            words.interval(line["quality"], line["low"], line["high"]),
            f"{line['cost']:.3g}",
            f"{line['cost_low']:.3g} to {line['cost_high']:.3g}",
            line["cost_of"],
            words.number(line["encoder_parameters"]),
            "on the front" if line["front"] else "",
        ]
        for line in data.to_dict("records")
    ]
    head = [*(["task"] if several else []), "label", "quality beyond training", "cost", "seeds' range", "cost of"]
    head += ["encoder parameters", "front"]
    note = "Quality: mean over the lengths beyond the training length [95 % t interval]. Cost: mean over seeds."
    if (data["cost_of"] == SECONDS).any():
        note += (
            " Seconds are those of the machine and of how busy it was; the experiment cost measures each encoder "
            "against the same model without it, and its ratios are taken where there are any."
        )
    return Table("cost_and_quality", "Cost and quality of each label", pd.DataFrame(lines, columns=head), data, note)


# ---- the figure ------------------------------------------------------------------------------------


def _picture(of: OfTask, table: pd.DataFrame) -> Picture:
    metric = metric_of(str(table["metric"].iloc[0]))
    looks = style.looks(of.rows)
    with style.theme():
        figure = style.figure(TALL)
        axes = figure.subplots()
        _draw_front(axes, table[table["front"]].sort_values("cost"))
        for line in table.to_dict("records"):
            _draw_label(axes, line, looks[line["label"]])
        shown = table if len(table) <= NAMED else table[table["front"]]
        axes.margins(x=0.12, y=0.1)
        _name(axes, shown.assign(name=[of.name(label) for label in shown["label"]]))
        axes.set_xlabel(str(table["cost_of"].iloc[0]))
        axes.set_ylabel(f"{metric.label} beyond training ({metric.unit})")
        axes.set_title(f"{of.task}: cost against quality", fontsize="large")
        sns.despine(ax=axes)
    better = "higher" if metric.higher_is_better else "lower"
    caption = (
        f"Mean {metric.label} over the lengths beyond the training length against {table['cost_of'].iloc[0]}, "
        f"{of.task}; {better} and further left is better. Line: the front. Bars: 95 % t interval of quality, and the "
        "range of the seeds' costs."
    )
    return Picture(of.stem("cost_and_quality"), caption, figure, table)


def _name(axes: Axes, table: pd.DataFrame) -> None:
    """Names beside their marks, moved up where one would stand on another, or down where there is no room above."""
    x, y = axes.get_xlim(), axes.get_ylim()
    wide, tall = 72 * 0.8 * style.room(), 72 * 0.7 * TALL  # points, about
    taken: list[tuple[float, float, float]] = []
    for line in table.sort_values(["quality", "cost"]).to_dict("records"):
        across = wide * (line["cost"] - x[0]) / (x[1] - x[0])
        up = tall * (line["quality"] - y[0]) / (y[1] - y[0])
        length = 5.5 * len(line["name"])
        beside = [at for left, right, at in taken if across < right and left < across + length]
        heights = [*np.arange(up, tall - 11), *np.arange(up, up - tall, -1)]
        height = next((height for height in heights if all(abs(height - at) >= 11 for at in beside)), up)
        taken.append((across, across + length, height))
        at, offset = (line["cost"], line["quality"]), (6, 4 + height - up)
        axes.annotate(line["name"], at, xytext=offset, textcoords="offset points", fontsize="small", zorder=5)


def _draw_front(axes: Axes, front: pd.DataFrame) -> None:
    axes.plot(front["cost"], front["quality"], color="#999999", linewidth=1.4, zorder=1, drawstyle="steps-post")


def _draw_label(axes: Axes, line: dict[Any, Any], look: Look) -> None:
    x, y = line["cost"], line["quality"]
    bars: dict[str, Any] = {"color": look.colour, "linewidth": 1.0, "alpha": 0.6, "zorder": 2}
    axes.plot([line["cost_low"], line["cost_high"]], [y, y], **bars)
    if line["low"] == line["low"]:
        axes.plot([x, x], [line["low"], line["high"]], **bars)
    axes.plot([x], [y], linestyle="none", zorder=3, **look.marking())
