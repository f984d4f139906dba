from experiments.tasks.kinds.task import tasks
from experiments.tasks.kinds.transduction import Blanks
from experiments.tasks.reverse import Reverse


@tasks.register("reverse_string")
class ReverseString(Blanks, Reverse):
    """Reverse a random word, at blanks: ``0 1 1 _ _ _`` to ``1 1 0``. ``reverse`` without teacher forcing.

        tokens    ^ 0 1 1 _ _ _
        targets   . . . . 1 1 0

    Delétang et al. (2023), arXiv:2207.02098: a deterministic context-free task.

    Chance: ``1 / num_symbols`` a symbol, ``num_symbols ** -length`` a word. Best guess from position: no better.
    """
