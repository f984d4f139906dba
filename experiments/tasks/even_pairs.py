from torch import Tensor

from experiments.tasks import Question, tasks


@tasks.register("even_pairs")
class EvenPairs(Question):
    """Tell whether 01 and 10 occur an odd number of times together: ``0 1 1 0 0 | 0``. So: do first and last differ?

        tokens    ^ 0 1 1 0 0 |
        targets   . . . . . . 0

    Delétang et al. (2023), arXiv:2207.02098: a regular task.

    Chance: ``1 / 2``. Best guess from position: no better.
    """

    def solve(self, problems: Tensor) -> Tensor:
        return (problems[:, :1] != problems[:, -1:]).long()

    def answer_shares(self, length: int) -> list[float]:
        return [1.0, 0.0] if length == 1 else [0.5, 0.5]
