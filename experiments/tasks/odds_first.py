import torch
from torch import Tensor

from experiments.tasks import Blanks, tasks


@tasks.register("odds_first")
class OddsFirst(Blanks):
    """Write the symbols at odd places, counted from 0, then those at even ones: ``0 1 1 _ _ _`` to ``1 0 1``.

        tokens    ^ 0 1 1 _ _ _
        targets   . . . . 1 0 1

    Delétang et al. (2023), arXiv:2207.02098: a context-sensitive task. Places are counted from 0, as in their code.

    Chance: ``1 / num_symbols`` a symbol, ``num_symbols ** -length`` a word. Best guess from position: no better.
    """

    def solve(self, problems: Tensor) -> Tensor:
        return problems[:, self.sources(problems.shape[1])]

    def sources(self, length: int) -> Tensor:
        places = torch.arange(length)
        return torch.cat([places[1::2], places[::2]])
