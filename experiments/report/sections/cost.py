"""Cost against quality: what each encoder costs, what it gains, and which of them are on the Pareto front."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes

from experiments.figures import style, words
from experiments.report.page import Picture, Section, Table
from experiments.report.sections.task import TaskResults

RELATIVE = {
    "relative_train_time": "training time, × without encoder",
    "relative_operations": "operations, × without encoder",
}
"""Metrics of the experiment `cost` that serve as cost: the first that was measured of every series."""
SECONDS = "training seconds"
NAMED = 14
"""Most series named beside their marks; of more, only those on the front are."""
TALL = 4.2
"""Inches of the figure."""
PICTURES = 4
"""Number of tasks from which on there is only a table."""


def _weigh(tasks: Sequence[TaskResults]) -> dict[str, pd.DataFrame]:
    """Return quality (with its interval), cost (with the range of its seeds) and front of each series, best first."""
    found = {}
    for task in tasks:
        ranked = task.standing[(task.standing["status"] == "ok") & task.standing["series"].isin(task.order)]
        costs, counted = _costs(task, list(ranked["series"]))
        table = ranked[["task", "series", "metric", "area", "low", "high"]].rename(columns={"area": "quality"})
        spent = costs.groupby("series")["cost"].agg(cost="mean", cost_low="min", cost_high="max").reset_index()
        table = table.merge(spent, on="series").assign(cost_of=counted)
        parameters = pd.to_numeric(task.runs["encoder_parameters"]).groupby(task.runs["series"]).mean()
        table["encoder_parameters"] = table["series"].map(parameters)
        if len(table) > 1:
            pairs = list(zip(table["cost"], table["quality"], strict=True))
            found[task.key] = table.assign(
                front=[not any(a <= x and b >= y and (a, b) != (x, y) for a, b in pairs) for x, y in pairs]
            )
    return found


def _costs(task: TaskResults, series_names: list[str]) -> tuple[pd.DataFrame, str]:
    """Return rows with ``series`` and ``cost``, and what it is: a ratio where it was measured, else seconds."""
    rows = task.rows_of("cost")
    rows = rows[rows["status"] == "ok"].fillna({"sequence_length": 0}).rename(columns={"value": "cost"})
    for metric, counted in RELATIVE.items():
        # Series may have been measured at several lengths: the longest that all share is compared.
        of_metric = rows[rows["metric"] == metric]
        shared = of_metric.groupby("sequence_length")["series"].nunique().eq(len(series_names))
        if shared.any():
            return of_metric[of_metric["sequence_length"] == max(shared.index[shared])], counted
    runs = task.runs.assign(cost=pd.to_numeric(task.runs["train_seconds"]))
    return runs[runs["series"].isin(series_names) & (runs["cost"] > 0)], SECONDS


def sections(tasks: Sequence[TaskResults]) -> list[Section]:
    """Make the section, where any task has series to compare."""
    found = _weigh(tasks)
    how = (
        "A series is on the Pareto front if no other keeps at least as much beyond the training length for at most "
        "its cost. A series off the front by less than its interval may belong there."
    )
    drawn = found if len(found) < PICTURES else {}
    parts = [_picture(task, drawn[task.key]) for task in tasks if task.key in drawn]
    return [Section("Cost against quality", [how], [*parts, _table(tasks, found)])] if found else []


def _table(tasks: Sequence[TaskResults], found: dict[str, pd.DataFrame]) -> Table:
    display = {task.key: task.display for task in tasks}
    data = pd.concat(found.values(), ignore_index=True)
    lines = [
        {
            "task": line["task"],
            "series": display[line["task"]](line["series"]),
            "area": words.interval(line["quality"], line["low"], line["high"]),
            "cost": f"{line['cost']:.3g}",
            "seeds' range": words.between(line["cost_low"], line["cost_high"], ".3g"),
            "cost of": line["cost_of"],
            "encoder parameters": words.number(line["encoder_parameters"]),
            "front": "on the front" if line["front"] else "",
        }
        for line in data.to_dict("records")
    ]
    note = "Area: see Standings. Cost: mean over seeds."
    if (data["cost_of"] == SECONDS).any():
        note += " Seconds depend on the machine; ratios of the experiment cost replace them where measured."
    cells = pd.DataFrame(lines).drop(columns=[] if len(found) > 1 else "task")
    return Table("cost_and_quality", "Cost and quality of each series", cells, data, note)


def _picture(task: TaskResults, table: pd.DataFrame) -> Picture:
    counted = str(table["cost_of"].iloc[0])
    looks = style.looks(task.rows)
    with style.theme():
        figure = style.figure(TALL)
        axes = figure.subplots()
        front = table[table["front"]].sort_values("cost")
        axes.plot(front["cost"], front["quality"], color="#999999", linewidth=1.4, zorder=1, drawstyle="steps-post")
        for line in table.to_dict("records"):
            x, y, look = line["cost"], line["quality"], looks[line["series"]]
            bars: dict[str, Any] = {"color": look.colour, "linewidth": 1.0, "alpha": 0.6, "zorder": 2}
            axes.hlines(y, line["cost_low"], line["cost_high"], **bars)
            axes.vlines(x, line["low"], line["high"], **bars)
            axes.plot([x], [y], linestyle="none", zorder=3, **look.marking())
        axes.margins(x=0.12, y=0.1)
        _name(axes, task, table if len(table) <= NAMED else table[table["front"]])
        axes.set_xlabel(counted)
        axes.set_ylabel("area: share of the quality in range kept beyond it")
        axes.set_title(f"{task.key}: cost against quality", fontsize="large")
        sns.despine(ax=axes)
    caption = (
        f"Area (see Standings) against {counted}, {task.key}; higher and further left is better. Line: Pareto front. "
        "Bars: 95 % interval of the area, and the range of cost over seeds."
    )
    return Picture(task.stem("cost_and_quality"), caption, figure, table)


def _name(axes: Axes, task: TaskResults, table: pd.DataFrame) -> None:
    """Write names beside their marks, moved up where two would overlap, or down where there is no room above."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    wide, tall = 72 * 0.8 * style.room(), 72 * 0.7 * TALL  # points, about
    taken: list[tuple[float, float, float]] = []
    for line in table.sort_values(["quality", "cost"]).to_dict("records"):
        name = task.display(line["series"])
        start, up = wide * (line["cost"] - left) / (right - left), tall * (line["quality"] - bottom) / (top - bottom)
        end = start + 5.5 * len(name)
        beside = [at for first, last, at in taken if start < last and first < end]
        heights = [*np.arange(up, tall - 11), *np.arange(up, up - tall, -1)]
        height = next((height for height in heights if all(abs(height - at) >= 11 for at in beside)), up)
        taken.append((start, end, height))
        how: dict[str, Any] = {"textcoords": "offset points", "fontsize": "small", "zorder": 5}
        axes.annotate(name, (line["cost"], line["quality"]), xytext=(6, 4 + height - up), **how)
