import torch
from torch import Tensor

from experiments.tasks import Blanks, Transduction, tasks


@tasks.register("reverse")
class Reverse(Transduction):
    """Reverse a random word: ``3 1 2 | 2 1 3``. Retrieval at a distance that grows with every step.

    Chance: ``1 / num_symbols`` a symbol, ``num_symbols ** -length`` a word. Best guess from position: no better.
    """

    def solve(self, problems: Tensor) -> Tensor:
        return problems.flip(-1)

    def sources(self, length: int) -> Tensor:
        return torch.arange(length).flip(0)


@tasks.register("reverse_string")
class ReverseString(Blanks, Reverse):
    """Reverse a random word, at blanks: ``0 1 1 _ _ _`` to ``1 1 0``. ``reverse`` without teacher forcing.

        tokens    ^ 0 1 1 _ _ _
        targets   . . . . 1 1 0

    Delétang et al. (2023), arXiv:2207.02098: a deterministic context-free task.

    Chance: ``1 / num_symbols`` a symbol, ``num_symbols ** -length`` a word. Best guess from position: no better.
    """
