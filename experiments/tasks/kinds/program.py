"""Tasks that execute something step by step: lego, s5, scan."""

from __future__ import annotations

from experiments.tasks.kinds.task import Task


class Program(Task):
    """Lengths count the steps.

    Args:
        train_length: longest program trained on, at least 1.
        min_length: shortest program trained on, between 1 and ``train_length``.
    """

    def __init__(self, train_length: int, min_length: int) -> None:
        self.set_lengths(train_length, min_length)
