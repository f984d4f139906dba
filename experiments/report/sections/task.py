"""One task of a report: its rows, the names and order of its series, and the tables that several sections share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import pandas as pd

from experiments import measures
from experiments.figures import style, words
from experiments.report.page import Section
from experiments.rows.quality import OVER_LENGTHS, beyond_training
from experiments.rows.read import FINISHED
from experiments.rows.results import Results, trained_runs
from experiments.rows.row import metric_of
from experiments.statistics import intervals
from experiments.statistics import reach as reaches

IN_TEXT = ("series", "encoder", "task", "positions", "condition", "run_id")
"""Columns whose text may appear in a figure."""
PANELS = 160
"""Series drawn in all figures of one kind together: drawing takes most of the time of a report."""
MOST, LEAST = 40, 6
"""Most series drawn in the figures of one task, and how many are drawn however many tasks there are."""
PICTURED = 10
"""Most tasks that have all their figures; with more tasks, each section shows only its first figure."""
LINES = 12
"""Most lines that can be told apart in one panel."""
MEANS = "Mean over seeds ± half the 95 % t interval."


def series_drawn(rows: pd.DataFrame, quality: pd.DataFrame | None, baseline: str | None, tasks: int) -> list[str]:
    """Return the series that the figures of one of several tasks show: the baseline, then the best beyond training."""
    series_names = list(style.looks(rows))
    beyond = beyond_training(rows.iloc[:0] if quality is None else quality)
    means = beyond.groupby("series")["value"].mean()
    sign = -1 if len(beyond) and metric_of(str(beyond["metric"].iloc[0])).higher_is_better else 1
    worth = {series: sign * mean for series, mean in means.items() if mean == mean}
    ordered = sorted(
        series_names,
        key=lambda series: (series != baseline, worth.get(series, float("inf")), series_names.index(series)),
    )
    return ordered[: max(LEAST, min(MOST, PANELS // max(1, tasks)))]


class TaskResults:
    """The results of one task, from which its sections are made.

    Args:
        key: the task as it is named in the rows.
        rows: its rows, with ``series``, ``converged`` and ``look``.
        results: the whole folder.
        compared: comparisons of quality with the baseline beyond the training length.
        areas: comparisons of areas; None where there are none.
        drawn: series that figures show, see `series_drawn`.
        first_figure_only: whether each section shows only its first figure.
    """

    def __init__(
        self,
        key: str,
        rows: pd.DataFrame,
        results: Results,
        compared: pd.DataFrame,
        areas: pd.DataFrame | None,
        drawn: list[str],
        *,
        first_figure_only: bool,
    ) -> None:
        self.key, self.rows, self.compared, self.areas, self.configs = key, rows, compared, areas, results.configs
        self.drawn, self.first_figure_only = drawn, first_figure_only
        self.runs = results.runs[(results.runs["task"] == key) & results.runs["status"].isin(FINISHED)]
        self.trained = self.runs[self.runs["run_id"].isin(trained_runs(results.configs))]
        self.not_converged = rows[rows["converged"].eq(False)].groupby("series")["run_id"].nunique().to_dict()
        self.order = list(style.looks(rows))
        self.quality = results.quality[results.quality["task"] == key]

    @cached_property
    def beyond(self) -> pd.DataFrame:
        """The rows with the main metric beyond the training length."""
        return beyond_training(self.quality)

    @cached_property
    def lengths(self) -> pd.DataFrame:
        """Everything measured over lengths, summarised over seeds."""
        return intervals.by_measurement(self.rows_of(OVER_LENGTHS))

    @cached_property
    def reach(self) -> pd.DataFrame:
        """How far each series keeps its quality, see `experiments.statistics.reach.reach`."""
        return reaches.reach(self.lengths[self.lengths["metric"].isin(self.quality["metric"].unique())])

    @cached_property
    def seeds(self) -> dict[str, dict[Any, int]]:
        """Experiment -> series -> number of seeds; measures that need no training often have fewer."""
        of_experiments = self.rows.groupby("experiment")
        return {str(name): rows.groupby("series")["seed"].nunique().to_dict() for name, rows in of_experiments}

    def display(self, series: Any) -> str:
        """Return the name that readers see: marked if a run of it did not converge."""
        return f"{series}{style.NOT_CONVERGED}" if series in self.not_converged else str(series)

    def rows_of(self, experiment: str, *, drawn: int = 0) -> pd.DataFrame:
        """Return the rows of an experiment; for a figure only those of the first series drawn, by display name."""
        rows = self.rows[self.rows["experiment"] == experiment]
        if not drawn:
            return rows
        shown = self.drawn[:drawn]
        rows = rows[rows["series"].isin(shown)]
        rows = rows.assign(series=rows["series"].map({series: self.display(series) for series in shown}))
        for column in IN_TEXT:
            # matplotlib would typeset text between two dollar signs as a formula.
            plain = {text: text.replace("$", r"\$") for text in rows[column].unique()}
            if any("$" in text for text in plain):
                rows[column] = rows[column].map(plain)
        return rows

    def stem(self, name: str) -> str:
        """Return the name of a file of this task."""
        return f"{style.slug(self.key)}_{name}"

    def with_marks(self, summary: pd.DataFrame) -> pd.DataFrame:
        """Add the number of runs of each series that did not converge."""
        return summary.assign(not_converged=summary["series"].map(lambda series: self.not_converged.get(series, 0)))

    def comparison(self, line: dict[Any, Any]) -> dict[str, str]:
        """Return the cells of a line of `intervals.corrected`; blank where there was no comparison."""
        if not line["pairs"] >= 0:
            return dict.fromkeys(("difference", "95 % interval", "seeds paired", "p (Holm)", "verdict"), "")
        return {
            "difference": f"{line['difference']:+.3f}" if line["pairs"] else "",
            "95 % interval": words.between(line["low"], line["high"], "+.3f"),
            "seeds paired": f"{line['pairs']:.0f}",
            "p (Holm)": words.p_value(line["p_holm"]),
            "verdict": words.verdict(line["verdict"]),
        }

    def grid(
        self,
        summary: pd.DataFrame,
        keys: Sequence[str],
        heads: Mapping[Any, str],
        experiment: str,
        written: Callable[[float], str] = "{:.3f}".format,
    ) -> pd.DataFrame:
        """Return a table with one line for each series and one column for each of the values of ``keys``.

        Args:
            summary: of `intervals.over_seeds`, by series and ``keys``.
            keys: columns of the summary that tell the columns of the table apart.
            heads: value of the key, or tuple of the values of several -> head of its column.
            experiment: the one that the summary is of; its seeds are those expected.
            written: how a number is written.
        """
        at = summary.set_index(["series", *keys]).index.to_flat_index()
        found = dict(zip(at, summary.to_dict("records"), strict=True))
        seeds = self.seeds.get(experiment, {})
        lines = []
        for series in self.order:
            places = [(series, *(key if isinstance(key, tuple) else (key,))) for key in heads]
            if any(place in found for place in places):
                cells = (words.cell(found.get(place), seeds.get(series, 0), written) for place in places)
                lines.append([self.display(series), *cells])
        return pd.DataFrame(lines, columns=["series", *heads.values()])


def opening(title: str, experiment: str) -> Section:
    """Start a section with the question that an experiment asks and how it measures."""
    entry = next((entry for entry in measures.entries() if entry.name == experiment), None)
    return Section(title, [entry.summary, *entry.paragraphs] if entry else [])
