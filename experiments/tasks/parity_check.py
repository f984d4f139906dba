from torch import Tensor

from experiments.tasks.kinds.problem import Question
from experiments.tasks.kinds.task import tasks


@tasks.register("parity_check")
class ParityCheck(Question):
    """Tell whether the number of 1s is odd: ``1 0 1 0 1 | 1``. The order of the input does not matter.

        tokens    ^ 1 0 1 0 1 |
        targets   . . . . . . 1

    Delétang et al. (2023), arXiv:2207.02098: a regular task.

    Chance: ``1 / 2``. Best guess from position: no better.
    """

    def solve(self, problems: Tensor) -> Tensor:
        return problems.sum(-1, keepdim=True) % 2
