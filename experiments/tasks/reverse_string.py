"""Reverse a word without being shown any of it reversed."""

from __future__ import annotations

from experiments.tasks.kinds.chomsky import Blanks
from experiments.tasks.kinds.task import tasks
from experiments.tasks.reverse import Reverse


@tasks.register("reverse_string")
class ReverseString(Blanks, Reverse):
    """Say a random word backwards, at blanks: ``0 1 1 _ _ _`` to ``1 1 0``. ``reverse`` without teacher forcing.

        tokens    ^ 0 1 1 _ _ _
        targets   . . . . 1 1 0

    Delétang et al. (2023), arXiv:2207.02098, as Ruoss et al. (2023), arXiv:2305.16843, train encoders on it; there
    without ``^``. A deterministic context-free task.

    Chance: ``1 / num_symbols`` a symbol, ``num_symbols ** -length`` a word. Place alone: no more.

    Args:
        train_length: longest word trained on, at least 1; 40 published, 16 here for quick training.
        min_length: shortest word trained on, between 1 and ``train_length``.
        num_symbols: alphabet, at least 2; 2 as published.
    """
