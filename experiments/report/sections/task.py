"""One task of a report: its rows, how its labels are shown, which of them are drawn."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import pandas as pd

from experiments import measures
from experiments.figures import style
from experiments.report.page import Section
from experiments.rows.quality import OVER_LENGTHS, beyond_training
from experiments.rows.results import FINISHED, Results, trained_runs
from experiments.rows.row import metric_of
from experiments.statistics import intervals
from experiments.statistics import reach as _reach

IN_TEXT = ("label", "encoder", "task", "positions", "condition", "run_id")
"""Columns whose text may come to stand in a figure."""
PANELS = 160
"""Labels drawn in all figures of one kind together: drawing is what a report takes its time for."""
MOST, LEAST = 40, 6
"""Labels drawn in a task's figures at most, and in however many tasks."""
PICTURED = 10
"""Tasks up to which each has all its figures; of more, each section shows its first."""
LINES = 12
"""Lines that can be told apart in one panel."""


def labels_drawn(rows: pd.DataFrame, quality: pd.DataFrame | None, baseline: str | None, tasks: int) -> list[str]:
    """The labels of a task that its figures show, best quality beyond the training length first, after the baseline.

    Args:
        rows: of the task.
        quality: those of `main_quality` among them, if there are any.
        baseline: goes first, if there is one.
        tasks: how many tasks there are to be drawn.
    """
    labels = list(style.looks(rows))
    beyond = beyond_training(rows.iloc[:0] if quality is None else quality)
    means = beyond.groupby("label")["value"].mean()
    sign = -1 if len(beyond) and metric_of(str(beyond["metric"].iloc[0])).higher_is_better else 1
    worth = {label: sign * mean for label, mean in means.items() if mean == mean}
    ordered = sorted(labels, key=lambda label: (label != baseline, worth.get(label, float("inf")), labels.index(label)))
    return ordered[: max(LEAST, min(MOST, PANELS // max(1, tasks)))]


class OfTask:
    """What the sections of one task are made from.

    Args:
        task: as it is called in the rows.
        rows: its rows, with ``label``, ``converged`` and ``look``.
        results: the whole folder.
        compared: comparisons with the baseline beyond the training length, of this task.
        areas: comparisons of areas, see `_reach_page.compare`; None where there are none.
        drawn: labels that figures show, of `labels_drawn`; None for all of them.
        in_short: whether there are so many tasks that each section shows its first figure alone.
    """

    def __init__(
        self,
        task: str,
        rows: pd.DataFrame,
        results: Results,
        compared: pd.DataFrame,
        areas: pd.DataFrame | None = None,
        drawn: list[str] | None = None,
        *,
        in_short: bool = False,
    ) -> None:
        self.in_short = in_short
        self.task, self.rows, self.compared, self.areas, self.configs = task, rows, compared, areas, results.configs
        self.runs = results.runs[(results.runs["task"] == task) & results.runs["status"].isin(FINISHED)]
        self.trained = self.runs[self.runs["run_id"].isin(trained_runs(results.configs))]
        failing = rows[rows["converged"].eq(False)]
        self.not_converged = failing.groupby("label")["run_id"].nunique().to_dict()
        self.order = list(style.looks(rows))
        self.drawn = self.order if drawn is None else drawn
        self.quality = results.quality[results.quality["task"] == task]

    @cached_property
    def beyond(self) -> pd.DataFrame:
        """Those of the rows that have the quality beyond the training length."""
        return beyond_training(self.quality)

    @cached_property
    def lengths(self) -> pd.DataFrame:
        """Everything measured over lengths, over seeds, see `intervals.by_measurement`."""
        return intervals.by_measurement(self.rows_of(OVER_LENGTHS))

    @cached_property
    def reach(self) -> pd.DataFrame:
        """How far each label keeps its quality, see `_reach.reach`."""
        return _reach.reach(self.lengths[self.lengths["metric"].isin(self.quality["metric"].unique())])

    def name(self, label: Any) -> str:
        """The label as it is shown: marked if a run of it did not converge."""
        return f"{label}{style.NOT_CONVERGED}" if label in self.not_converged else str(label)

    @cached_property
    def seeds(self) -> dict[str, dict[str, int]]:
        """Experiment -> label -> how many seeds; what needs no training is often measured with fewer."""
        counts = self.rows.groupby(["experiment", "label"])["seed"].nunique().reset_index()
        found: dict[str, dict[str, int]] = {}
        for line in counts.to_dict("records"):
            found.setdefault(line["experiment"], {})[line["label"]] = line["seed"]
        return found

    def rows_of(self, experiment: str, *, drawn: int = 0) -> pd.DataFrame:
        """The rows of an experiment; for a figure those of the labels that are drawn, named as they are shown.

        Args:
            experiment: its name.
            drawn: how many labels at most are to be drawn; 0: the rows are not for a figure.
        """
        rows = self.rows[self.rows["experiment"] == experiment]
        if not drawn:
            return rows
        shown = self.drawn[:drawn]
        rows = rows[rows["label"].isin(shown)]
        rows = rows.assign(label=rows["label"].map({label: self.name(label) for label in shown}))
        for column in IN_TEXT:
            # What stands between two dollars is typeset, and refused where it cannot be.
            plain = {text: text.replace("$", r"\$") for text in rows[column].unique()}
            if any("$" in text for text in plain):
                rows[column] = rows[column].map(plain)
        return rows

    def stem(self, name: str) -> str:
        """The name of a file of this task."""
        return f"{style.slug(self.task)}_{name}"

    def with_marks(self, summary: pd.DataFrame) -> pd.DataFrame:
        """A summary that says of each label how many of its runs did not converge."""
        return summary.assign(not_converged=summary["label"].map(lambda label: self.not_converged.get(label, 0)))


def opened(title: str, experiment: str) -> Section:
    """Start a section with the question that an experiment asks and how it measures."""
    entry = next((entry for entry in measures.entries() if entry.name == experiment), None)
    return Section(title, [entry.summary, *entry.paragraphs] if entry else [])
