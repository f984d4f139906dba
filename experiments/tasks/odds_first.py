"""Say every second symbol of a word, then the others."""

from __future__ import annotations

import torch
from torch import Tensor

from experiments.tasks.kinds.chomsky import Blanks
from experiments.tasks.kinds.task import tasks


@tasks.register("odds_first")
class OddsFirst(Blanks):
    """Say the symbols at odd places, counted from 0, then those at even ones: ``0 1 1 _ _ _`` to ``1 0 1``.

        tokens    ^ 0 1 1 _ _ _
        targets   . . . . 1 0 1

    Delétang et al. (2023), arXiv:2207.02098, as Ruoss et al. (2023), arXiv:2305.16843, train encoders on it; there
    without ``^``. Places are counted from 0, as in their code; its docstring counts them from 1, and so puts the
    other half first. A context-sensitive task.

    Chance: ``1 / num_symbols`` a symbol, ``num_symbols ** -length`` a word. Place alone: no more.

    Args:
        train_length: longest word trained on, at least 1; 40 published, 16 here for quick training.
        min_length: shortest word trained on, between 1 and ``train_length``.
        num_symbols: alphabet, at least 2; 2 as published.
    """

    def answer(self, word: Tensor) -> Tensor:
        return word[:, self.sources(word.shape[1])]

    def sources(self, length: int) -> Tensor:
        places = torch.arange(length)
        return torch.cat([places[1::2], places[::2]])
