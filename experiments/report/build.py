"""Rows -> one page: which sections there are, in which order, and what they have in common. Read this first."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pandas as pd

from experiments.figures import style
from experiments.report.page import Page, Section
from experiments.report.sections import cards, cost, curves, fairness, folder, lengths, other, ranking, reach
from experiments.report.sections import claims as _claims_page
from experiments.report.sections import order as _report_order
from experiments.report.sections import reproductions as _reproductions_page
from experiments.report.sections import runs as _report_runs
from experiments.report.sections import summary as _report_summary
from experiments.report.sections import tasks as _tasks_page
from experiments.report.sections.task import PICTURED, OfTask, labels_drawn
from experiments.rows import untrusted
from experiments.rows.quality import beyond_training
from experiments.rows.results import Results
from experiments.statistics import claims as _claims
from experiments.statistics import intervals, reproductions

SECTIONS: dict[str, Callable[[OfTask], Section]] = {
    "length_extrapolation": lengths.section,
    "permutation_sensitivity": _report_order.section,
    "training": other.training,
    "tuning": other.tuning,
}
"""Experiments that have a section of their own, in the order of a task's sections; others follow them."""


def build(results: Results, baselines: dict[str, str], claims: list[_claims.Claim]) -> Page:
    """Put the page together.

    Args:
        results: of `experiments.rows.results.load`.
        baselines: of `find_baselines`.
        claims: of `experiments.statistics.claims.load`.
    """
    rows, runs = results.rows, results.runs
    sections: list[Section] = []
    summary = ["No run has finished with rows that can be read: there is nothing to compare yet."]
    if len(rows):
        summary, sections = _measured(results, baselines, claims)
    sections.append(_report_runs.runs_section(runs, results.configs, results.settings))
    sections.append(_report_runs.provenance_section(runs, results.settings))
    return Page(
        f"{results.folder.resolve().name}: positional encoders compared",
        summary + folder.marked(runs),
        folder.warnings(results),
        folder.method(rows) + fairness.method(runs, results.configs),
        sections,
    )


def _measured(
    results: Results, baselines: dict[str, str], claims: list[_claims.Claim]
) -> tuple[list[str], list[Section]]:
    """Summary and sections of what the rows hold."""
    looks = style.looks(results.rows)
    rows = results.rows.assign(look=results.rows["label"].map(looks))
    tasks = _tasks(rows, results, baselines)
    standings = ranking.standings(tasks)
    weighed = cost.weigh(tasks, standings)
    decided = _claims.decide(claims, results)
    reproduced = reproductions.decide(reproductions.load(), results)
    many = len(tasks) >= _tasks_page.MANY
    order = list(looks)
    summary = [*(_tasks_page.said(results.quality, order) if many else []), *ranking.said(tasks, standings)]
    sections = [
        *ranking.sections(tasks, standings, order),
        *curves.sections(tasks, standings, looks),
        *cost.sections(tasks, weighed),
        *_claims_page.sections(decided),
        *_reproductions_page.sections(reproduced),
    ]
    if side_by_side := _tasks_page.section(rows, order):
        sections.append(side_by_side)
    for of in tasks:
        of_task = task_sections(of)
        told = _report_summary.said(of, standings.get(of.task)) + cost.said(of, weighed.get(of.task))
        (of_task[0].paragraphs if many else summary).extend(told)
        sections += of_task
    sections.append(cards.section(tasks, standings))
    return summary + _claims_page.said(decided) + _reproductions_page.said(reproduced), sections


def _tasks(rows: pd.DataFrame, results: Results, baselines: dict[str, str]) -> list[OfTask]:
    """What the sections of every task are made from, in alphabetical order."""
    compared = _comparisons(results.quality, baselines)
    of_tasks = {str(task): of_task for task, of_task in rows.groupby("task")}
    qualities = {str(task): quality for task, quality in results.quality.groupby("task")}
    areas = reach.compare({task: qualities[task] for task in baselines}, baselines)
    return [
        OfTask(
            task,
            of_task,
            results,
            compared[compared["task"] == task],
            areas.get(task),
            labels_drawn(of_task, qualities.get(task), baselines.get(task), len(of_tasks)),
            in_short=len(of_tasks) > PICTURED,
        )
        for task, of_task in of_tasks.items()
    ]


def find_baselines(results: Results, wanted: str | None = None) -> dict[str, str]:
    """Task -> the label that the others are compared with, for every task that was measured beyond its training length.

    Args:
        results: of `experiments.rows.results.load`.
        wanted: a label, or an encoder that has only one; None: the encoder ``none``, or else the first label.

    Raises:
        ValueError: no task has what is wanted.
    """
    beyond = beyond_training(results.quality)
    found, misses = {}, []
    for task, of_task in beyond.groupby("task"):
        try:
            found[str(task)] = (
                intervals.default_baseline(of_task) if wanted is None else intervals.find_baseline(of_task, wanted)
            )
        except ValueError as error:
            misses.append(error)
    if misses and not found:
        raise misses[0]
    return found


def _comparisons(quality: pd.DataFrame, baselines: dict[str, str]) -> pd.DataFrame:
    """Every comparison with a baseline, corrected together: all tasks, main metric, beyond the training length."""
    beyond = beyond_training(quality)
    lines = []
    for task, baseline in baselines.items():
        of_task = beyond[beyond["task"] == task]
        lines.append(intervals.compare(of_task, baseline).assign(task=task, metric=str(of_task["metric"].iloc[0])))
    lines = [table for table in lines if len(table)]
    if not lines:
        return pd.DataFrame(columns=["task", "metric", "label", "baseline", "verdict"])
    return intervals.corrected(pd.concat(lines, ignore_index=True))


def task_sections(of: OfTask) -> list[Section]:
    """A heading for the task, and a section below it for every experiment that it has rows of."""
    found = [Section(f"Task {of.task}")]
    present = set(of.rows["experiment"].unique())
    if of.in_short:
        present -= {"training"}
        found[0].paragraphs.append(
            "Of so many tasks, each section shows its first figure alone, and curves of training are left out: a "
            f"report of up to {PICTURED} tasks has them all, and rows.csv of each run has the numbers."
        )
    for experiment in [*SECTIONS, *sorted(present - set(SECTIONS))]:
        if experiment in present:
            make = SECTIONS.get(experiment, partial(other.other, experiment=experiment))
            section = _attempt(experiment, partial(make, of))
            section.level = 3
            found.append(section)
    if left := len(of.order) - len(of.drawn):
        found[0].paragraphs.append(
            f"So that figures can be read, they show {len(of.drawn)} of the {len(of.order)} labels: the baseline and "
            f"those with the best quality beyond the training length. The other {left} are in every table."
        )
    found.append(other.cost(of))
    return found


def _attempt(experiment: str, make: Callable[[], Section]) -> Section:
    """What an experiment's rows show, or why they cannot be shown: nonsense in one does not take the page along."""
    try:
        return make()
    except (ValueError, LookupError, TypeError, ArithmeticError, AttributeError) as error:
        said = untrusted.name_of(untrusted.message_of(error))
        return Section(experiment, [f"The rows of {experiment} cannot be shown: {type(error).__name__}: {said}"])
