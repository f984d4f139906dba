"""List the numbers from one to another."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from experiments.tasks.kinds.problem import Problem
from experiments.tasks.kinds.task import tasks
from pe_zoo import Unsupported
from pe_zoo._knobs import whole


@tasks.register("counting")
class Counting(Problem):
    """Count from one number to another, and stop there: ``2 5 | 2 3 4 5 $``. A successor, and an end to be found.

        causal    tokens    ^ 2 5 | 2 3 4 5        bidirectional    ^ 2 5 | | | | |
                  targets   . . . 2 3 4 5 $                         . . . 2 3 4 5 $

    A number is one token. The first is uniform over those that leave room for a list of the batch's length; one
    alphabet serves all lengths, so that longer lists bring no new symbols. Count of Zhou et al. (2024),
    arXiv:2310.16028: start and end given, end token scored, without which the second number would say nothing. The
    paper packs many lists into a sequence; here one stands alone.

    Chance: ``1 / (num_symbols + 1)`` a number, ``(num_symbols + 1) ** -(length + 1)`` a list. Place alone: 0.0627 and
    0.00415 at length 16.

    Args:
        train_length: longest list trained on, in numbers, at least 1.
        min_length: shortest list trained on, between 1 and ``train_length``.
        num_symbols: numbers there are, from 0 on, at least 2 and ``train_length``; no list can be longer.
    """

    def __init__(self, *, train_length: int = 16, min_length: int = 1, num_symbols: int = 256) -> None:
        self.num_symbols = whole("task.num_symbols", num_symbols, at_least=2)
        super().__init__(train_length, min_length, num_symbols=num_symbols + 1, num_answers=num_symbols + 1)
        if num_symbols < train_length:
            raise ValueError(
                f"task.num_symbols={num_symbols} has no list of task.train_length={train_length}; set it higher"
            )

    def problem_size(self, length: int) -> int:
        return 2

    def solution_size(self, length: int) -> int:
        return length + 1

    def problems(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        """Uniform over the pairs that are a length apart."""
        first = torch.randint(self._num_starts(length), (batch_size, 1), generator=generator)
        return torch.cat([first, first + length - 1], 1)

    def solve(self, problems: Tensor) -> Tensor:
        first, last = problems[:, :1], problems[0, 1]
        length = int(last - problems[0, 0]) + 1
        return torch.cat([first + torch.arange(length), torch.full_like(first, self.num_symbols)], 1)

    def position_guess(self, metric: str, length: int) -> float:
        """Any one start, and the end token, whose place the length gives away."""
        start = 1 / self._num_starts(length)
        return start if metric == "exact_match" else (length * start + 1) / (length + 1)

    def _num_starts(self, length: int) -> int:
        if length > self.num_symbols:
            raise Unsupported(
                f"task={self.name} cannot list {length} of {self.num_symbols} numbers; set task.num_symbols higher"
            )
        return self.num_symbols - length + 1
