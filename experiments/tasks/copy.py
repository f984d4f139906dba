"""Copy a random word."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from experiments.tasks.kinds.task import tasks
from experiments.tasks.kinds.transduction import Transduction
from pe_zoo import Unsupported
from pe_zoo._knobs import true_or_false


@tasks.register("copy")
class Copy(Transduction):
    """Say a random word again: ``3 1 2 | 3 1 2``. Retrieval at one fixed distance; symbols may repeat.

    Where none does (``unique``), the symbol before the one that is asked for says which comes next, by content alone:
    the unique copy of Huang et al. (2024), arXiv:2410.02140.

    Chance: ``1 / num_symbols`` a symbol, ``num_symbols ** -length`` a word. Place alone: no more; a
    ``unique`` word is one of fewer.

    Args:
        train_length: longest word trained on, at least 1.
        min_length: shortest word trained on, between 1 and ``train_length``.
        num_symbols: alphabet, at least 2; in unique words at least as large as the longest asked for.
        unique: whether all symbols of a word differ; every such word is as likely as any other.
    """

    def __init__(
        self, *, train_length: int = 16, min_length: int = 1, num_symbols: int = 10, unique: bool = False
    ) -> None:
        super().__init__(train_length=train_length, min_length=min_length, num_symbols=num_symbols)
        self.unique = true_or_false("task.unique", unique)
        if unique and train_length > num_symbols:
            raise ValueError(
                f"task.train_length={train_length} exceeds task.num_symbols={num_symbols}, and with task.unique=true "
                f"all symbols of a word differ; lower the one or raise the other"
            )

    def words(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        if not self.unique:
            return super().words(batch_size, length, generator)
        if length > self.num_symbols:
            raise Unsupported(
                f"task=copy with task.unique=true has words of at most task.num_symbols={self.num_symbols} symbols; "
                f"got {length}"
            )
        # Double precision: in single, equal keys would favour the order of the alphabet.
        keys = torch.rand(batch_size, self.num_symbols, generator=generator, dtype=torch.float64)
        return keys.argsort(-1)[:, :length]

    def answer(self, word: Tensor) -> Tensor:
        return word

    def sources(self, length: int) -> Tensor:
        return torch.arange(length)

    def position_guess(self, metric: str, length: int) -> float:
        """Any word without repeats is as good a guess as any other, and better than one with them."""
        if self.unique and metric == "exact_match" and length <= self.num_symbols:
            return 1 / math.perm(self.num_symbols, length)
        return self.chance(metric, length)
