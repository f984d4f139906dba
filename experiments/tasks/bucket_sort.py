from experiments.tasks.kinds.task import tasks
from experiments.tasks.kinds.transduction import Blanks
from experiments.tasks.sort import Sort


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
