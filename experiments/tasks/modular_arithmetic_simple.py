from functools import lru_cache

import numpy as np
import torch
from torch import Generator, Tensor

from experiments.tasks import Question, tasks
from pe_zoo._knobs import whole


@tasks.register("modular_arithmetic_simple")
class ModularArithmeticSimple(Question):
    """Evaluate an expression without brackets, modulo 5: ``1 + 2 * 4 | 4``.

        tokens    ^ 1 5 2 7 4 |
        targets   . . . . . . 4

    Digits and operators are uniform; after the digits come + (5), - (6) and * (7), which binds closer. Length counts
    symbols; of an even length, one less is drawn, as published. Delétang et al. (2023), arXiv:2207.02098: a regular
    task. Some values are likelier than others, 0 most: see ``position_guess``.

    Chance: ``1 / modulus``. Best guess from position: 0.201 at length 16.

    Args:
        modulus: there are as many digits, at least 2; 5 as published.
    """

    def __init__(self, *, train_length: int = 16, min_length: int = 1, modulus: int = 5) -> None:
        self.modulus = self.num_answers = whole("task.modulus", modulus, at_least=2)
        self.num_symbols = modulus + 3
        super().__init__(train_length=train_length, min_length=min_length)

    def problem_size(self, length: int) -> int:
        return odd(length)

    def problems(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        length = odd(length)
        words = torch.randint(self.modulus, (batch_size, length), generator=generator)
        words[:, 1::2] = self.modulus + torch.randint(3, (batch_size, length // 2), generator=generator)
        return words

    def solve(self, problems: Tensor) -> Tensor:
        digits, operators = problems[:, 2::2], problems[:, 1::2] - self.modulus
        times = operators == 2
        factors = torch.where(operators == 1, -digits, digits)
        total, term = torch.zeros_like(problems[:, 0]), problems[:, 0]
        for factor, multiplied in zip(factors.unbind(1), times.unbind(1), strict=True):
            total = torch.where(multiplied, total, total + term)
            term = torch.where(multiplied, term * factor % self.modulus, factor)
        return ((total + term) % self.modulus).unsqueeze(1)

    def answer_shares(self, length: int) -> list[float]:
        return shares(odd(length), self.modulus)


def odd(length: int) -> int:
    """Return the length, or one less where it is even.

    >>> odd(7), odd(8)
    (7, 7)
    """
    return max(0, length - 1 + length % 2)


@lru_cache
def shares(length: int, modulus: int) -> list[float]:
    """Return the probability of each value of the expressions of a length."""
    values = np.arange(modulus)
    product = np.zeros((modulus, modulus))
    np.add.at(product, (values[:, None], values[:, None] * values % modulus), 1 / modulus)
    # The sum of the terms before (rows), and the term that may yet be multiplied (columns).
    state = np.zeros((modulus, modulus))
    state[0] = 1 / modulus
    sums = (values[:, None] + values) % modulus
    for _ in range(length // 2):
        total = np.bincount(sums.ravel(), state.ravel(), modulus)
        state = 2 / 3 * total[:, None] / modulus + state @ product / 3
    return np.bincount(sums.ravel(), state.ravel(), modulus).tolist()
