"""Sort a word without being shown any of it sorted."""

from __future__ import annotations

from experiments.tasks.kinds.chomsky import Blanks
from experiments.tasks.kinds.task import tasks
from experiments.tasks.sort import Sort


@tasks.register("bucket_sort")
class BucketSort(Blanks, Sort):
    """Say a random word in ascending order, at blanks: ``3 1 2 _ _ _`` to ``1 2 3``. ``sort`` without teacher forcing.

        tokens    ^ 3 1 2 _ _ _
        targets   . . . . 1 2 3

    Delétang et al. (2023), arXiv:2207.02098, as Ruoss et al. (2023), arXiv:2305.16843, train encoders on it; there
    without ``^``. A context-sensitive task. Of few symbols the place alone tells most, and more the longer the
    word: read per-token accuracy against ``position_guess``.

    Chance: ``1 / num_symbols`` a symbol, ``num_symbols ** -length`` a word. Place alone: 0.66 and 0.00441 at length 16.

    Args:
        train_length: longest word trained on, at least 1; 40 published, 16 here for quick training.
        min_length: shortest word trained on, between 1 and ``train_length``.
        num_symbols: alphabet, at least 2; 5 as published.
    """

    def __init__(self, *, train_length: int = 16, min_length: int = 1, num_symbols: int = 5) -> None:
        super().__init__(train_length=train_length, min_length=min_length, num_symbols=num_symbols)
