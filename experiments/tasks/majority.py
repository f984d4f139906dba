"""Say which of two symbols is the more frequent."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from experiments.tasks.kinds.question import Question
from experiments.tasks.kinds.task import tasks


@tasks.register("majority")
class Majority(Question):
    """Say which of 0 and 1 is the more frequent: ``0 1 1 | 1``. Counting; the order of the input does not matter.

        tokens    ^ 0 1 1 |
        targets   . . . . 1

    The number of ones is uniform over those that make no tie, and so is their arrangement: margins are wide and
    narrow alike at every length, and either answer is as likely. Binary majority of Huang et al. (2024),
    arXiv:2410.02140, drawn as in their code; they also score an end token. ``mode`` with ``num_symbols=2`` asks the
    same of uniform words, whose margins are narrow.

    Chance: ``1 / 2``. Place alone: no more.

    Args:
        train_length: longest word trained on, at least 1.
        min_length: shortest word trained on, between 1 and ``train_length``.
    """

    def __init__(self, *, train_length: int = 16, min_length: int = 1) -> None:
        super().__init__(train_length, min_length, num_symbols=2, num_answers=2)

    def words(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        """Any number of ones but half of the length, in any order."""
        counts = torch.arange(length + 1)
        counts = counts[2 * counts != length]
        ones = counts[torch.randint(len(counts), (batch_size, 1), generator=generator)]
        # Double precision: in single, equal keys would favour the order before the shuffle.
        ranks = torch.rand(batch_size, length, generator=generator, dtype=torch.float64).argsort(-1)
        return (ranks < ones).long()

    def answer(self, words: Tensor) -> Tensor:
        return (2 * words.sum(-1) > words.shape[-1]).long()
