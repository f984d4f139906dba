"""Several tasks side by side: quality in range, at twice the training length, and free-running."""

from collections.abc import Sequence

import pandas as pd

from experiments.figures import style, words
from experiments.report.page import Section, Table
from experiments.report.sections.task import MEANS
from experiments.rows.row import OVER_LENGTHS, main_quality, metric_of, whole
from experiments.statistics import intervals

BEYOND = 2.0
"""Length beyond training at which tasks are compared, in training lengths."""
FREE_RUNNING_GAP = "free_running_gap"
NOTE = f"{MEANS} †: a run did not learn the task within the training length. Guess: the best without reading the input."


def sections(rows: pd.DataFrame, order: Sequence[str]) -> list[Section]:
    """Make the section from the rows of all tasks where several were measured over lengths."""
    quality = main_quality(rows)
    if quality["task"].nunique() < 2:
        return []
    rows = whole(rows[rows["experiment"] == OVER_LENGTHS])
    freed = _at(rows[rows["metric"] == FREE_RUNNING_GAP], BEYOND)
    tables = [_table("tasks_in_range", "At the longest training length", _at(quality, 1.0), quality, order)]
    if len(beyond := _at(quality, BEYOND)):
        tables.append(_table("tasks_at_twice", "At twice the training length", beyond, quality, order))
    if len(freed):
        caption = "Free-running less teacher-forced token accuracy, at twice the training length"
        tables.append(_table("tasks_free_running", caption, freed, quality, order))
    how = "Main metric of each task, per scored token, teacher-forced."
    return [Section("Tasks side by side", [how], list(tables), folded=True)]


def _at(rows: pd.DataFrame, multiple: float) -> pd.DataFrame:
    return rows[rows["eval_length"] == (rows["train_length"] * multiple).round()]


def _table(stem: str, caption: str, rows: pd.DataFrame, quality: pd.DataFrame, order: Sequence[str]) -> Table:
    seeds = quality.groupby(["task", "series"])["seed"].nunique().to_dict()
    unlearned = set(quality.loc[quality["converged"].eq(False), ["task", "series"]].itertuples(index=False, name=None))
    summary = intervals.over_seeds(rows, ["task", "metric", "series", "train_length", "eval_length"])
    found = {(line["task"], line["series"]): line for line in summary.to_dict("records")}
    lines, gap = [], bool(summary["metric"].eq(FREE_RUNNING_GAP).any())
    for task, of_task in summary.groupby("task"):
        metric = str(of_task["metric"].iloc[0])
        usual = metric in ("token_accuracy", FREE_RUNNING_GAP)
        line = {"task": str(task) if usual else f"{task} ({metric_of(metric).label})"}
        line["length"] = words.listed(sorted(set(of_task["eval_length"])))
        line |= {} if gap else {"guess": words.short(of_task["chance"].mean())}
        for series in order:
            cell = words.cell(found.get((task, series)), seeds.get((task, series), 0), f"{{:{'+' * gap}.2f}}".format)
            line[series] = cell + style.NOT_CONVERGED * ((task, series) in unlearned)
        lines.append(line)
    note = f"On the same sequences; negative: mistakes bring on more mistakes. {MEANS} †: as above." if gap else NOTE
    return Table(stem, caption, pd.DataFrame(lines), summary, note)
