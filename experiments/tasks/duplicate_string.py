import torch
from torch import Tensor

from experiments.tasks import Blanks, tasks


@tasks.register("duplicate_string")
class DuplicateString(Blanks):
    """Write a random word twice, at blanks: ``0 1 _ _ _ _`` to ``0 1 0 1``. Retrieval at two distances, set by length.

        tokens    ^ 0 1 _ _ _ _
        targets   . . . 0 1 0 1

    Delétang et al. (2023), arXiv:2207.02098: a context-sensitive task. ``positions=coupled`` gives both copies the
    word's numbers; ``abacus`` counts through the two.

    Chance: ``1 / num_symbols`` a symbol, ``num_symbols ** -(2 * length)`` an answer. Best guess from position: 0.5 and
    1.53e-05 at length 16.
    """

    def solve(self, problems: Tensor) -> Tensor:
        return problems.repeat(1, 2)

    def answer_size(self, length: int) -> int:
        return 2 * length

    def numbered(self, kind: str, length: int) -> tuple[Tensor, int, Tensor] | None:
        word = torch.arange(1, length + 1)
        answers = {"coupled": word.repeat(2), "abacus": torch.arange(1, 2 * length + 1)}
        return (word, 0, answers[kind]) if kind in answers else None

    def position_guess(self, metric: str, length: int) -> float:
        """Guess any word twice: the second half repeats the first."""
        return float(self.num_symbols) ** -length if metric == "exact_match" else self.chance(metric, length)
