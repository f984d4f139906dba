import torch
from torch import Tensor

from experiments.tasks.kinds.task import tasks
from experiments.tasks.kinds.transduction import Transduction


@tasks.register("reverse")
class Reverse(Transduction):
    """Reverse a random word: ``3 1 2 | 2 1 3``. Retrieval at a distance that grows with every step.

    Chance: ``1 / num_symbols`` a symbol, ``num_symbols ** -length`` a word. Best guess from position: no better.
    """

    def solve(self, problems: Tensor) -> Tensor:
        return problems.flip(-1)

    def sources(self, length: int) -> Tensor:
        return torch.arange(length).flip(0)
