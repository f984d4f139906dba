"""Name the most frequent symbol of a random word."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from experiments.tasks.kinds.question import Question
from experiments.tasks.kinds.task import tasks
from pe_zoo._knobs import whole


@tasks.register("mode")
class Mode(Question):
    """Say which symbol is the most frequent: ``3 1 3 | 3``. Counting; the order of the input does not matter.

    The control for sensitivity to order: what a model loses when the word is shuffled is not the order's doing but
    its own. Words are uniform over those in which one symbol is more frequent than any other, be it by a single
    occurrence; each symbol is the answer as often as any other. A task of Zhou et al. (2024), arXiv:2310.16028;
    alphabet and words are this bench's own.

    Chance: ``1 / num_symbols``. Place alone: no more.

    Args:
        train_length: longest word trained on, at least 1.
        min_length: shortest word trained on, between 1 and ``train_length``.
        num_symbols: alphabet, at least 2.
    """

    def __init__(self, *, train_length: int = 16, min_length: int = 1, num_symbols: int = 5) -> None:
        whole("task.num_symbols", num_symbols, at_least=2)
        super().__init__(train_length, min_length, num_symbols=num_symbols, num_answers=num_symbols)

    def words(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        """Uniform over the words with one most frequent symbol: those without are drawn again."""
        kept: list[Tensor] = []
        at_once = missing = batch_size
        while missing > 0:
            drawn = super().words(at_once, length, generator)
            kept.append(drawn[has_mode(drawn)])
            missing -= len(kept[-1])
            at_once *= 2  # of a large alphabet few short words have one
        return torch.cat(kept)[:batch_size]

    def answer(self, words: Tensor) -> Tensor:
        return words.mode(-1).values


def has_mode(words: Tensor) -> Tensor:
    """Whether one symbol is more frequent than any other: ``(batch, length)`` to ``(batch,)`` bool.

    >>> has_mode(torch.tensor([[3, 1, 3], [3, 1, 2]]))
    tensor([ True, False])
    """
    ordered = words.sort(-1).values
    runs = torch.zeros_like(words)
    runs[:, 1:] = (ordered.diff() != 0).cumsum(-1)
    lengths = torch.zeros_like(words).scatter_add_(1, runs, torch.ones_like(words))
    return (lengths == lengths.amax(-1, keepdim=True)).sum(-1) == 1
