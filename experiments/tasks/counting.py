import torch
from torch import Generator, Tensor

from experiments.tasks import Problem, tasks
from pe_zoo._knobs import whole


@tasks.register("counting")
class Counting(Problem):
    """Count from one number to another and stop there: ``2 5 | 2 3 4 5 $``. A successor, and an end to be found.

        causal    tokens    ^ 2 5 | 2 3 4 5        bidirectional    ^ 2 5 | | | | |
                  targets   . . . 2 3 4 5 $                         . . . 2 3 4 5 $

    Length counts the numbers of the list; each is one token. The first is uniform over those that leave room for the
    list, so longer lists bring no new symbols. Count of Zhou et al. (2024), arXiv:2310.16028: start and end given, end
    token scored. The paper packs many lists into a sequence; here one stands alone.

    Chance: ``1 / (num_symbols + 1)`` a number, ``(num_symbols + 1) ** -(length + 1)`` a list. Best guess from position:
    0.0627 and 0.00415 at length 16.

    Args:
        num_symbols: how many numbers there are, from 0 on, at least 2 and ``train_length``; no list is longer.
    """

    def __init__(self, *, train_length: int = 16, min_length: int = 1, num_symbols: int = 256) -> None:
        self.num_symbols = whole("task.num_symbols", num_symbols, at_least=2)
        self.num_answers = num_symbols + 1
        self.limit = "num_symbols", num_symbols
        super().__init__(train_length=train_length, min_length=min_length)

    def problem_size(self, length: int) -> int:
        return 2

    def answer_size(self, length: int) -> int:
        return length + 1

    def problems(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        first = torch.randint(self.num_symbols - length + 1, (batch_size, 1), generator=generator)
        return torch.cat([first, first + length - 1], 1)

    def solve(self, problems: Tensor) -> Tensor:
        first, last = problems[:, :1], problems[0, 1]
        length = int(last - problems[0, 0]) + 1
        return torch.cat([first + torch.arange(length), torch.full_like(first, self.num_symbols)], 1)

    def position_guess(self, metric: str, length: int) -> float:
        """Guess any one start, and the end token, whose place the length gives away."""
        self.check_length(length)
        start = 1 / (self.num_symbols - length + 1)
        return start if metric == "exact_match" else (length * start + 1) / (length + 1)
