import math

import torch
from torch import Generator, Tensor

from experiments.tasks import Transduction, shuffles, tasks
from pe_zoo._knobs import true_or_false


@tasks.register("copy")
class Copy(Transduction):
    """Copy a random word: ``3 1 2 | 3 1 2``. Retrieval at one fixed distance; symbols may repeat.

    Where none does (``unique``), the symbol before the one that is asked for says which comes next, by content alone:
    the unique copy of Huang et al. (2024), arXiv:2410.02140.

    Chance: ``1 / num_symbols`` a symbol, ``num_symbols ** -length`` a word. Best guess from position: no better; a
    ``unique`` word is one of fewer.

    Args:
        num_symbols: size of the alphabet, at least 2; for unique words at least the longest length asked for.
        unique: whether all symbols of a word differ; every such word is as likely as any other.
    """

    def __init__(
        self, *, train_length: int = 16, min_length: int = 1, num_symbols: int = 10, unique: bool = False
    ) -> None:
        self.unique = true_or_false("task.unique", unique)
        if unique:
            self.limit = "num_symbols", num_symbols
        super().__init__(train_length=train_length, min_length=min_length, num_symbols=num_symbols)

    def problems(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        if self.unique:
            return shuffles(batch_size, self.num_symbols, generator)[:, :length]
        return super().problems(batch_size, length, generator)

    def solve(self, problems: Tensor) -> Tensor:
        return problems

    def sources(self, length: int) -> Tensor:
        return torch.arange(length)

    def position_guess(self, metric: str, length: int) -> float:
        if self.unique and metric == "exact_match" and length <= self.num_symbols:
            return 1 / math.perm(self.num_symbols, length)
        return self.chance(metric, length)
