from functools import lru_cache
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from experiments.tasks import Ended, tasks

PLUS = END = 2


@tasks.register("binary_addition")
class BinaryAddition(Ended):
    """Add two binary numbers, lowest digits first: ``1 0 + 1 1`` to ``0 0 1 END``, which is 1 + 3 = 4.

        tokens    ^ 1 0 2 1 1 _ _ _ _ _ _
        targets   . . . . . . 0 0 1 2 0 0

    The + (2) stands anywhere but first or last. Each number is uniform over those above 0 that fit; its highest digits,
    on the right, may be 0. 2 ends the sum, 0 fills the blanks. Delétang et al. (2023), arXiv:2207.02098: a
    context-sensitive task.

    Chance: ``1 / 3`` a symbol, ``3 ** -(length + 1)`` a sum. Best guess from position: 0.625 and 0.00111 at length 16.
    """

    shortest = 3

    def __init__(self, *, train_length: int = 16, min_length: int = 3) -> None:
        super().__init__(train_length=train_length, min_length=min_length, num_symbols=3)

    def problems(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        plus = torch.randint(1, length - 1, (batch_size, 1), generator=generator)
        words = torch.zeros(batch_size, length, dtype=torch.long)
        again, places = torch.arange(batch_size), torch.arange(length)
        while len(again) > 0:  # a number is 0
            digits = torch.randint(2, (len(again), length), generator=generator)
            words[again] = digits.scatter_(1, plus[again], PLUS)
            first = places < plus[again]
            has_one = [((digits == 1) & number).any(1) for number in (first, ~first)]
            again = again[~(has_one[0] & has_one[1])]
        return words

    def solve(self, problems: Tensor) -> Tensor:
        length = problems.shape[1]
        places = torch.arange(length + 1)
        plus = (problems == PLUS).long().argmax(1, keepdim=True)
        filled = torch.nn.functional.pad(problems, (0, 1))
        first = filled.masked_fill(places >= plus, 0)
        second = filled.gather(1, (places + plus + 1).clamp(max=length))
        # Equal digits decide what is carried from their place; unequal ones pass on what comes.
        decided = torch.where(first == second, places, -1).cummax(1).values
        carried = first.gather(1, decided.clamp(min=0)) * (decided >= 0)
        total = first ^ second ^ carried.roll(1, 1)
        ends = (total * (places + 1)).amax(1, keepdim=True)
        return total.scatter(1, ends, END)

    def position_guess(self, metric: str, length: int) -> float:
        if metric != "exact_match":
            return likeliest_symbols(length)
        # The likeliest sum is the power of two above the longer number in the evenest split.
        digits = np.arange(1, length - 1)
        longer = np.maximum(digits, digits[::-1])
        return float((0.5**longer / (1 - 0.5**longer)).mean())


@lru_cache
def likeliest_symbols(length: int) -> float:
    """Return the mean over the blanks of the probability of the likeliest symbol."""
    n, m, splits = _splits(length)
    pairs = splits / ((1 - 0.5**n) * (1 - 0.5**m))
    highest = np.bincount(n, pairs * (0.5 ** (n - m) - 0.5**n) / 2, length + 1)
    lower = _beyond(n, pairs * (0.5 - 0.5 ** (m + 1)), length) - _beyond(m, pairs * 0.5 ** (n + 1), length)
    one = highest + lower[1:]
    below = _shares_below(length)
    end = np.diff(below, prepend=below[0])
    return float(np.maximum.reduce([one, end, 1 - one - end]).mean())


def _splits(length: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return the digits of the longer number, of the other, and the probability of each such split."""
    longer = np.arange(length // 2, length - 1)
    other = length - 1 - longer
    return longer, other, np.where(longer == other, 1, 2) / (length - 2)


def _shares_below(length: int) -> NDArray[np.float64]:
    """Return the share of the sums below 2**k, for each k from 0 to the length."""
    # Of each split, shares are of all pairs of numbers, 0 included; the pairs with a 0 are then subtracted.
    n, m, splits = _splits(length)
    pairs = splits / ((1 - 0.5**n) * (1 - 0.5**m))
    k = np.arange(length + 1)
    # 2**k may cut both numbers (k <= m), the longer alone (m < k <= n), or none.
    both = (1 - 0.5**k) * (1 - 2 * 0.5**k) / 2 * 0.5 ** np.maximum(length - 1 - 2 * k, 0)
    longer = pairs * (1 - 0.5**m)
    carried = longer * (0.5**n + 0.5 ** (n - m + 1))
    alone = _beyond(n, longer, length, 0.5) - _beyond(m, longer * 0.5 ** (n - m), length, 0.5)
    alone -= _beyond(n, carried, length) - _beyond(m, carried, length)
    return both * _beyond(m, pairs, length)[:-1] + alone[:-1] + 1 - _beyond(n, splits, length)[:-1]


def _beyond(
    digits: NDArray[np.int64], values: NDArray[np.float64], length: int, fading: float = 1.0
) -> NDArray[np.float64]:
    """Sum the values of the splits with at least k digits, each less by ``fading`` per digit above k; k from 0 on."""
    counts = np.bincount(digits, values, length + 2)[::-1]
    return np.array(list(accumulate(counts, lambda total, value: fading * total + value)))[::-1]
