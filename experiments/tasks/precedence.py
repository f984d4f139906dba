import torch
from torch import Generator, Tensor

from experiments.tasks import Question, shuffles, tasks
from pe_zoo._knobs import whole


@tasks.register("precedence")
class Precedence(Question):
    """Name the first of 0 and 1 in a word: ``4 1 2 0 3 | 1``. Only the order of the input matters.

    All words of a length are arrangements of the same symbols, each as likely as any other: one 0, one 1, and fillers
    dealt in turn from the rest of the alphabet. A model that does not see order is right half of the time.

    Chance: ``1 / 2``. Best guess from position: no better.

    Args:
        num_symbols: size of the alphabet, at least 3: the two asked about, and kinds of filler.
    """

    shortest = 2

    def __init__(self, *, train_length: int = 16, min_length: int = 2, num_symbols: int = 10) -> None:
        self.num_symbols = whole("task.num_symbols", num_symbols, at_least=3)
        super().__init__(train_length=train_length, min_length=min_length)

    def problems(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        fillers = 2 + torch.arange(length - 2) % (self.num_symbols - 2)
        symbols = torch.cat([torch.arange(2), fillers])
        return symbols[shuffles(batch_size, length, generator)]

    def solve(self, problems: Tensor) -> Tensor:
        first_0, first_1 = ((problems == symbol).long().argmax(-1, keepdim=True) for symbol in (0, 1))
        return (first_1 < first_0).long()
