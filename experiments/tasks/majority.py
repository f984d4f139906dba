import torch
from torch import Generator, Tensor

from experiments.tasks import Question, shuffles, tasks


@tasks.register("majority")
class Majority(Question):
    """Name the more frequent of 0 and 1: ``0 1 1 | 1``. Counting; the order of the input does not matter.

        tokens    ^ 0 1 1 |
        targets   . . . . 1

    The number of ones is uniform over those that make no tie, and so is their arrangement: margins are wide and narrow
    alike, and either answer is as likely. Binary majority of Huang et al. (2024), arXiv:2410.02140, drawn as in their
    code; they also score an end token. ``mode`` with ``num_symbols=2`` draws uniform words, of narrow margins.

    Chance: ``1 / 2``. Best guess from position: no better.
    """

    def problems(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        """Draw any number of ones but half of the length, in any order."""
        counts = torch.arange(length + 1)
        counts = counts[2 * counts != length]
        ones = counts[torch.randint(len(counts), (batch_size, 1), generator=generator)]
        return (shuffles(batch_size, length, generator) < ones).long()

    def solve(self, problems: Tensor) -> Tensor:
        return (2 * problems.sum(-1, keepdim=True) > problems.shape[-1]).long()
