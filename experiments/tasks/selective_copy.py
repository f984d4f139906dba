import torch
from torch import Generator, Tensor

from experiments.tasks import Hidden, shuffles, tasks
from pe_zoo._knobs import whole


@tasks.register("selective_copy")
class SelectiveCopy(Hidden):
    """Copy the symbols that stand among noise: ``_ 3 _ _ 1 _ | 3 1``. Retrieval at distances that the input sets.

    Symbols are uniform and may repeat; every choice of their places is as likely as any other. Length counts noise.
    Selective copying of Gu & Dao (2023), arXiv:2312.00752, §4.1.1 and App. E.1: 16 symbols in 4096 places there, of a
    vocabulary of 16 with the noise. Their generator was not published; that of S4's copying task with ``variable=true``
    draws as this one does, and asks at a mark for each symbol, as bidirectional models are asked here.

    Chance: ``1 / num_symbols`` a symbol, ``num_symbols ** -num_copied`` all of them. Best guess from position: no
    better.

    Args:
        num_symbols: size of the alphabet, at least 2.
        num_copied: symbols to copy, at least 1.
    """

    def __init__(
        self, *, train_length: int = 16, min_length: int = 1, num_symbols: int = 10, num_copied: int = 8
    ) -> None:
        self.num_hidden = whole("task.num_copied", num_copied, at_least=1)
        super().__init__(train_length=train_length, min_length=min_length, num_symbols=num_symbols)

    def text(self, hidden: Tensor, length: int, generator: Generator) -> Tensor:
        batch_size, num_hidden = hidden.shape
        places = shuffles(batch_size, length + num_hidden, generator)
        return torch.full(places.shape, self._noise).scatter_(1, places[:, :num_hidden].sort(-1).values, hidden)
