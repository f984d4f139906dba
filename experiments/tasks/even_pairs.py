"""Say whether a binary word changes an odd number of times."""

from __future__ import annotations

from torch import Tensor

from experiments.tasks.kinds.question import Question
from experiments.tasks.kinds.task import tasks


@tasks.register("even_pairs")
class EvenPairs(Question):
    """Say whether 01 and 10 occur an odd number of times together: ``0 1 1 0 0 | 0``. So: do first and last differ?

        tokens    ^ 0 1 1 0 0 |
        targets   . . . . . . 0

    Delétang et al. (2023), arXiv:2207.02098, as Ruoss et al. (2023), arXiv:2305.16843, train encoders on it; there
    without ``^``. A regular task.

    Chance: ``1 / 2``. Place alone: no more.

    Args:
        train_length: longest word trained on, at least 1; 40 published, 16 here for quick training.
        min_length: shortest word trained on, between 1 and ``train_length``.
    """

    def __init__(self, *, train_length: int = 16, min_length: int = 1) -> None:
        super().__init__(train_length, min_length, num_symbols=2, num_answers=2)

    def answer(self, words: Tensor) -> Tensor:
        return (words[:, 0] != words[:, -1]).long()

    def answer_shares(self, length: int) -> list[float]:
        return [1.0, 0.0] if length == 1 else [0.5, 0.5]
