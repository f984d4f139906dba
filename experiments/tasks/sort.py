"""Sort a random word."""

from __future__ import annotations

import math

from torch import Tensor

from experiments.tasks._task import tasks
from experiments.tasks._transduction import Transduction


@tasks.register("sort")
class Sort(Transduction):
    """Say a random word in ascending order: ``3 1 2 | 1 2 3``. Counting; the order of the input does not matter.

    The place alone tells much (the first symbol is likely a 0), and more the longer the word: read
    per-token accuracy against ``position_guess``.
    """

    def answer(self, word: Tensor) -> Tensor:
        return word.sort(-1).values

    def position_guess(self, metric: str, length: int) -> float:
        if metric == "exact_match":
            return self._likeliest_word(length)
        return sum(self._likeliest_symbol(place, length) for place in range(1, length + 1)) / length

    def _likeliest_symbol(self, place: int, length: int) -> float:
        """Probability of the likeliest symbol at a place (from 1) of the sorted word: an order statistic."""

        def at_most(symbol: int) -> float:
            share = (symbol + 1) / self.num_symbols
            return sum(
                math.comb(length, k) * share**k * (1 - share) ** (length - k) for k in range(place, length + 1)
            )

        below = [0.0, *(at_most(symbol) for symbol in range(self.num_symbols))]
        return max(after - before for before, after in zip(below, below[1:], strict=False))

    def _likeliest_word(self, length: int) -> float:
        """Probability of the likeliest sorted word: each symbol as often as the next, within one."""
        often, rest = divmod(length, self.num_symbols)
        ways = math.lgamma(length + 1) - rest * math.lgamma(often + 2) - (self.num_symbols - rest) * math.lgamma(often + 1)
        return math.exp(ways - length * math.log(self.num_symbols))
