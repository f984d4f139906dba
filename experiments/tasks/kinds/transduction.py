"""Tasks that turn a random word into another: after a mark, or at blanks as the Chomsky hierarchy's."""

from collections.abc import Callable

import torch
from torch import Tensor

from experiments.tasks.kinds.problem import Problem
from pe_zoo._knobs import whole


class Transduction(Problem):
    """A random word, a mark, and an answer of the same length.

        causal         tokens    ^ 3 1 2 | 2 1          bidirectional    ^ 3 1 2 | | |
        (reverse)      targets         . 2 1 3                                   2 1 3

    Args:
        num_symbols: size of the alphabet, at least 2.
    """

    def __init__(self, *, train_length: int = 16, min_length: int = 1, num_symbols: int = 10) -> None:
        self.num_symbols = self.num_answers = whole("task.num_symbols", num_symbols, at_least=2)
        super().__init__(train_length=train_length, min_length=min_length)

    def sources(self, length: int) -> Tensor | None:
        """Return which symbol of the word, from 0, each symbol of the answer repeats; None where it depends."""
        return None

    def numbered(self, kind: str, length: int) -> tuple[Tensor, int, Tensor] | None:
        of_kind: dict[str, Callable[[int], Tensor | None]] = {"abacus": torch.arange, "coupled": self.sources}
        answer, first_two = (of_kind[kind](size) if kind in of_kind else None for size in (length, 2))
        if answer is None or first_two is None:
            return None
        # The mark stands where the symbol before the answer's first would: one step before it.
        mark = int(answer[0] + 1 - first_two.diff())
        return torch.arange(1, length + 1), mark, answer + 1


class Blanks(Transduction):
    """A word, then a blank for each symbol of its answer.

        tokens       ^ 0 1 1 _ _ _
        targets      . . . . 1 1 0      (reverse_string)

    The blanks are those of Delétang et al. (2023), arXiv:2207.02098, and Ruoss et al. (2023), arXiv:2305.16843, who
    train networks without a causal mask on words of up to 40 symbols, without ``^``. No answer is ever read: causal and
    bidirectional models get the same tokens.
    """

    reads_answers = False

    def __init__(self, *, train_length: int = 16, min_length: int = 1, num_symbols: int = 2) -> None:
        super().__init__(train_length=train_length, min_length=min_length, num_symbols=num_symbols)


class Ended(Blanks):
    """An answer whose length depends on the word: 2 ends it, and 0 fills the remaining blanks.

    The published accuracy is over the symbols up to the end; here all places are scored, as they are trained on there
    and here. Read accuracy against ``position_guess``.
    """

    def __init__(self, *, train_length: int, min_length: int, num_symbols: int) -> None:
        super().__init__(train_length=train_length, min_length=min_length, num_symbols=num_symbols)
        self.num_answers = 3

    def answer_size(self, length: int) -> int:
        return length + 1

    def numbered(self, kind: str, length: int) -> None:
        return None
