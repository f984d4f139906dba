"""Say which symbol is missing from a word that is said twice."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from experiments.tasks.kinds.question import Question
from experiments.tasks.kinds.task import tasks

HOLE, FILLER = 2, 3


@tasks.register("missing_duplicate")
class MissingDuplicate(Question):
    """Say which symbol is missing (2) from a binary word that is said twice: ``0 1 1 0 2 1 | 1``.

        tokens    ^ 0 1 1 0 2 1 |
        targets   . . . . . . . 1

    Any of the places may miss its symbol. To an odd length the two words are filled up with a 3 at the end.

    ``missing_duplicate_string`` of Delétang et al. (2023), arXiv:2207.02098, as Ruoss et al. (2023), arXiv:2305.16843,
    train encoders on it; there without ``^``, and of length 1 there is a word that misses nothing. A
    context-sensitive task.

    Chance: ``1 / 2``. Place alone: no more.

    Args:
        train_length: longest pair of words trained on, at least 2; 40 published, 16 here for quick training.
        min_length: shortest pair of words trained on, in symbols, between 2 and ``train_length``.
    """

    shortest = 2

    def __init__(self, *, train_length: int = 16, min_length: int = 2) -> None:
        super().__init__(train_length, min_length, num_symbols=4, num_answers=2)

    def words(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        word = torch.randint(2, (batch_size, length // 2), generator=generator)
        filler = torch.full((batch_size, length % 2), FILLER)
        hole = torch.randint(length // 2 * 2, (batch_size, 1), generator=generator)
        return torch.cat([word, word, filler], 1).scatter_(1, hole, HOLE)

    def answer(self, words: Tensor) -> Tensor:
        half = words.shape[1] // 2
        hole = (words == HOLE).long().argmax(1, keepdim=True)
        return words.gather(1, (hole + half) % (2 * half)).squeeze(1)

    def numbers(self, kind: str, size: int, *, causal: bool) -> Tensor:
        """``coupled``: both words count from 1, so that a symbol and its duplicate share a number; all else is 0."""
        if kind != "coupled":
            return super().numbers(kind, size, causal=causal)
        half = (size - 2) // 2
        numbers = torch.zeros(size, dtype=torch.long)
        numbers[1 : 2 * half + 1] = torch.arange(1, half + 1).repeat(2)
        return numbers
