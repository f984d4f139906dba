import math

import numpy as np
from torch import Tensor

from experiments.tasks import Blanks, Transduction, tasks


@tasks.register("sort")
class Sort(Transduction):
    """Sort a random word: ``3 1 2 | 1 2 3``. Counting; the order of the input does not matter.

    The position alone tells much (the first symbol is likely a 0): read token accuracy against ``position_guess``.

    Chance: ``1 / num_symbols`` a symbol, ``num_symbols ** -length`` a word. Best guess from position: 0.423 and
    3.27e-05 at length 16.
    """

    def solve(self, problems: Tensor) -> Tensor:
        return problems.sort(-1).values

    def position_guess(self, metric: str, length: int) -> float:
        if metric == "exact_match":  # the likeliest word has each symbol as often as the next, within one
            often, rest = divmod(length, self.num_symbols)
            more, less = rest * math.lgamma(often + 2), (self.num_symbols - rest) * math.lgamma(often + 1)
            return math.exp(math.lgamma(length + 1) - more - less - length * math.log(self.num_symbols))
        from scipy import special  # slower to import than all tasks together

        places = np.arange(1, length + 1)[:, None]
        shares = np.arange(self.num_symbols + 1) / self.num_symbols
        # At most symbol s stands at place i of the sorted word if at least i of its symbols are at most s.
        at_most = special.bdtrc(places - 1, length, shares)
        return float(np.diff(at_most).max(1).mean())


@tasks.register("bucket_sort")
class BucketSort(Blanks, Sort):
    """Sort a random word, at blanks: ``3 1 2 _ _ _`` to ``1 2 3``. ``sort`` without teacher forcing.

        tokens    ^ 3 1 2 _ _ _
        targets   . . . . 1 2 3

    Delétang et al. (2023), arXiv:2207.02098: a context-sensitive task, on 5 symbols as here. The position alone tells
    most: read token accuracy against ``position_guess``.

    Chance: ``1 / num_symbols`` a symbol, ``num_symbols ** -length`` a word. Best guess from position: 0.66 and 0.00441
    at length 16.
    """

    def __init__(self, *, train_length: int = 16, min_length: int = 1, num_symbols: int = 5) -> None:
        super().__init__(train_length=train_length, min_length=min_length, num_symbols=num_symbols)
