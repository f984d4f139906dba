"""Which tasks the first screen compares over, and whose curve opens it."""

from collections.abc import Sequence

from experiments.report import board
from experiments.report.sections.task import TaskResults

HALF = 0.5
"""Quality at twice the training length that some series keeps in a task that counts over tasks."""


def ranked(tasks: Sequence[TaskResults]) -> list[TaskResults]:
    """Return the tasks with a quality beyond the training length of two series or more."""
    return [task for task in tasks if len(task.ranked) > 1]


def counted(tasks: Sequence[TaskResults]) -> list[TaskResults]:
    """Return the ranked tasks that count over tasks: those of which some series keeps half of its quality at ×2."""
    return [task for task in ranked(tasks) if (task.standing["kept_2"] >= HALF).any()]


def main_block(tasks: Sequence[TaskResults]) -> list[TaskResults]:
    """Return the tasks over which the report compares: of those that count, the ones with the most series.

    A report that was asked something of each series has all of them, though a series lacks some.
    """
    known = counted(tasks)
    blocks = [known] if any(task.asks_of_each for task in known) else board.blocks(known)
    return next((block for block in blocks if len(block) > 1), [])


def shown(tasks: Sequence[TaskResults]) -> TaskResults | None:
    """Return the task whose curve opens the report: of those with the most series, that which sets them apart most.

    None where nothing was measured beyond the training length.
    """
    beyond = (task for task in tasks if (task.measured["eval_length"] > task.measured["train_length"]).any())
    return max(beyond, key=_spread, default=None)


def _spread(task: TaskResults) -> tuple[int, float]:
    kept = task.standing["kept"].dropna()
    return len(kept) // 2, float(kept.max() - kept.min()) if len(kept) else 0.0
