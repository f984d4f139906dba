"""The numbers behind the boards: places and verdicts of every task, and comparisons over tasks."""

from collections.abc import Sequence

import pandas as pd

from experiments.report import board
from experiments.report.front.tasks import counted, main_block, ranked
from experiments.report.page import Numbers
from experiments.report.sections.task import TaskResults
from experiments.statistics import comparisons


def numbers(tasks: Sequence[TaskResults]) -> list[Numbers]:
    """Return the tables that boards are made from, as files."""
    known = [task for task in tasks if len(task.standing)]
    found = [Numbers("standings", pd.concat(map(_standing, known), ignore_index=True))] if known else []
    several = main_block(tasks)
    if len(several) > 1:
        found.append(Numbers("over_tasks", board.compared(several)))
        found.append(Numbers("pairs", comparisons.over_tasks(task.family for task in several)))
    return found


def _standing(task: TaskResults) -> pd.DataFrame:
    verdicts = task.against.drop(columns=["task", "metric", "seeds", "low", "high"])
    table = task.standing.merge(verdicts, "left", on="series")
    if task.seeks_best:
        table["possibly_best"] = table["series"].isin(task.possibly_best)
    series = table["series"]
    return table.assign(free_running_kept=series.map(task.free_running), scores=series.map(task.relatives))


def apart(tasks: Sequence[TaskResults]) -> list[str]:
    """Name the tasks that do not count over tasks, since no series keeps half of its quality at ×2."""
    lost = [task.label for task in ranked(tasks) if task not in counted(tasks)] if len(tasks) > 1 else []
    why = "Not counted over tasks, since no encoding keeps half of its quality at twice the training length:"
    return [f"{why} {', '.join(lost)}."] if lost else []
