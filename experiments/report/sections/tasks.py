"""What the page says of several tasks side by side: quality in range, beyond, and when answers are read on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from experiments.figures import style, words
from experiments.report.page import Section, Table
from experiments.rows.quality import OVER_LENGTHS, main_quality
from experiments.rows.row import among, metric_of, whole
from experiments.statistics import intervals, reach

BEYOND = 2.0
"""Length beyond training at which tasks are put side by side, in training lengths."""
MANY = 4
"""Tasks from which on the page opens with what holds over all of them, and each task's own words are in its section."""
USUAL = "token_accuracy"
FREE_RUNNING_GAP = "free_running_gap"
NOTE = (
    "Mean over seeds ± half the 95 % t interval. †: a run of this label did not learn the task within the training "
    "length. Guess: the best without reading the input."
)


def said(quality: pd.DataFrame, order: Sequence[str]) -> list[str]:
    """In how many tasks each label learned its task, and in how many of these it still works at twice the length.

    Tasks measured at no length that far are left out.

    Args:
        quality: of all tasks, see `main_quality`.
        order: labels in the order they are shown in.
    """
    kept: dict[str, list[bool]] = {label: [] for label in order}
    for _, of_task in quality.groupby("task"):
        summary = intervals.over_seeds(of_task, ["label", "metric", "train_length", "eval_length"])
        learned = of_task["converged"].eq(True).groupby(of_task["label"]).all()
        for line in reach.reach(summary).to_dict("records"):
            if learned[line["label"]] and line["longest"] >= BEYOND * line["train_length"]:
                kept[line["label"]].append(bool(line["multiple"] >= BEYOND))
    labels = among(order, quality["label"])
    alike: dict[tuple[int, int], list[str]] = {}
    for label in labels:
        alike.setdefault((sum(kept[label]), len(kept[label])), []).append(label)
    none = alike.pop((0, 0), [])
    most_first = sorted(alike.items(), key=lambda item: (-item[0][0], item[0][1]))
    parts = [f"{keeps} of {learned} ({words.listed(names)})" for (keeps, learned), names in most_first]
    if none:
        parts.append(f"{words.listed(none)} learned none of them")
    tasks = quality["task"].nunique()
    return [
        f"{tasks} tasks were measured, with {words.count(len(labels), 'label')}. Of the tasks measured at "
        f"{BEYOND:g} times the training length that a label learned within it with every seed, it keeps at least "
        f"{reach.KEEPS:.0%} of its quality up to there in {'; '.join(parts)}. Which and how much: Tasks side by side."
    ]


def section(rows: pd.DataFrame, order: Sequence[str]) -> Section | None:
    """A section where several tasks were measured within and beyond their training length; else None.

    Args:
        rows: of all tasks, labelled.
        order: labels in the order they are shown in.
    """
    quality = main_quality(rows)
    if quality["task"].nunique() < 2:
        return None
    marks = quality.loc[quality["converged"].eq(False), ["task", "label"]]
    failing = set(marks.itertuples(index=False, name=None))
    seeds: dict[Any, int] = quality.groupby(["task", "label"])["seed"].nunique().to_dict()
    grid = _Grid(order, seeds, failing)
    said = (
        f"How do the {quality['task'].nunique()} tasks compare? Main metric of each, per scored token, teacher-forced."
    )
    found = Section("Tasks side by side", [said])
    within, beyond = (
        quality[quality["eval_length"] == (quality["train_length"] * multiple).round()] for multiple in (1.0, BEYOND)
    )
    found.parts.append(grid.table("tasks_in_range", "Within the training length: at the longest trained on", within))
    if len(beyond):
        found.parts.append(grid.table("tasks_at_twice", "At twice the training length", beyond))
    rows = whole(rows[rows["experiment"] == OVER_LENGTHS])
    at_twice = rows[rows["eval_length"] == (rows["train_length"] * BEYOND).round()]
    freed = at_twice[at_twice["metric"] == FREE_RUNNING_GAP]
    if len(freed):
        caption = "Free-running less teacher-forced token accuracy, at twice the training length"
        note = (
            "Negative: what goes wrong is read on and brings more mistakes; teacher-forcing corrects each of them. Of "
            "tasks whose answers are read on, of causal models; both on the same sequences. Mean over seeds ± half the "
            "95 % t interval; † as above."
        )
        found.parts.append(grid.table("tasks_free_running", caption, freed, note, _signed, guess=False))
    return found


def _signed(value: float) -> str:
    return f"{value:+.2f}"


def _plain(value: float) -> str:
    return f"{value:.2f}"


class _Grid:
    """Tasks down, labels across."""

    def __init__(self, order: Sequence[str], seeds: dict[Any, int], failing: set[tuple[str, str]]) -> None:
        self.order, self.seeds, self.failing = order, seeds, failing

    def table(
        self,
        stem: str,
        caption: str,
        rows: pd.DataFrame,
        note: str = NOTE,
        written: Callable[[float], str] = _plain,
        *,
        guess: bool = True,
    ) -> Table:
        by = ["task", "metric", "label", "train_length", "eval_length"]
        summary = intervals.over_seeds(rows, by)
        found = {(line["task"], line["label"]): line for line in summary.to_dict("records")}
        lines = []
        for task, of_task in summary.groupby("task"):
            lengths = sorted(set(of_task["eval_length"]))
            cells = [self._cell(found, str(task), label, written) for label in self.order]
            chance = [words.short(of_task["chance"].mean())] if guess else []
            metric = str(of_task["metric"].iloc[0])
            named = task if metric in (USUAL, FREE_RUNNING_GAP) else f"{task} ({metric_of(metric).label})"
            lines.append([named, words.listed(lengths), *chance, *cells])
        head = ["task", "length", *(["guess"] if guess else []), *self.order]
        return Table(stem, caption, pd.DataFrame(lines, columns=head), summary, note)

    def _cell(self, found: dict[Any, dict[Any, Any]], task: str, label: str, written: Callable[[float], str]) -> str:
        seeds = self.seeds.get((task, label), 0)
        mark = style.NOT_CONVERGED if (task, label) in self.failing else ""
        return words.cell(found.get((task, label)), seeds, written) + mark
