import torch
from torch import Generator

from experiments.tasks import Batch, Grid, tasks
from pe_zoo._knobs import whole


@tasks.register("above")
class Above(Grid):
    """Name the symbol of the cell above, for every cell of a random grid below the first row. Only the place matters.

        tokens     ^  3 1  7 0        positions of a grid   (0,0)  (1,1) (1,2)  (2,1) (2,2)
        targets    .  . .  3 1

    The cell is one row away whatever the side; in reading order it is as far away as the side is long, so that no
    distance trained on is right at another resolution.

    Chance: ``1 / num_symbols`` a cell, ``num_symbols ** -(length * (length - 1))`` a grid. Best guess from position: no
    better.

    Args:
        train_length: largest side of a grid trained on, at least 2.
        min_length: smallest side trained on, between 2 and ``train_length``.
        num_symbols: size of the alphabet, at least 2.
    """

    shortest = 2

    def __init__(self, *, train_length: int = 8, min_length: int = 2, num_symbols: int = 10) -> None:
        self.set_lengths(train_length, min_length)
        self.num_symbols = self.num_answers = whole("task.num_symbols", num_symbols, at_least=2)
        self.vocab_size = num_symbols + 1

    def answer_size(self, length: int) -> int:
        return length * (length - 1)

    def sample(self, batch_size: int, length: int, generator: Generator, *, split: str, causal: bool) -> Batch:
        self.check_length(length)
        cells = torch.randint(self.num_symbols, (batch_size, length**2), generator=generator)
        tokens = torch.cat([torch.full((batch_size, 1), self.num_symbols), cells], 1)
        return Batch(tokens, tokens.roll(length, 1), counted=torch.arange(1 + length**2) > length)

    def input_span(self, length: int) -> slice:
        """All rows but the last, whose answers stand in the row before."""
        return slice(1, 1 + length * (length - 1))
