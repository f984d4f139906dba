import numpy as np
from torch import Tensor

from experiments.tasks import Question, tasks
from pe_zoo._knobs import whole


@tasks.register("cycle_navigation")
class CycleNavigation(Question):
    """Walk on a circle of 5 places from 0 and name the last: ``2 2 1 2 | 3``. The order does not matter.

        tokens    ^ 2 2 1 2 |
        targets   . . . . . 3

    Length counts steps: back (0), none (1) or on (2). Delétang et al. (2023), arXiv:2207.02098: a regular task. After a
    few steps some places are likelier than others: see ``position_guess``.

    Chance: ``1 / cycle_length``. Best guess from position: 0.2 at length 16.

    Args:
        cycle_length: places on the circle, at least 2; 5 as published.
    """

    num_symbols = 3

    def __init__(self, *, train_length: int = 16, min_length: int = 1, cycle_length: int = 5) -> None:
        self.cycle_length = self.num_answers = whole("task.cycle_length", cycle_length, at_least=2)
        super().__init__(train_length=train_length, min_length=min_length)

    def solve(self, problems: Tensor) -> Tensor:
        return (problems - 1).sum(-1, keepdim=True) % self.cycle_length

    def answer_shares(self, length: int) -> list[float]:
        # A step's Fourier transform on the circle, to the power of the number of steps.
        step = (1 + 2 * np.cos(2 * np.pi * np.arange(self.cycle_length) / self.cycle_length)) / 3
        return np.fft.ifft(step**length).real.tolist()
