"""Copy the symbols that are not noise."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from experiments.tasks.kinds.hidden import Hidden
from experiments.tasks.kinds.task import tasks
from pe_zoo._knobs import whole


@tasks.register("selective_copy")
class SelectiveCopy(Hidden):
    """Say the symbols again that stand among noise: ``_ 3 _ _ 1 _ | 3 1``. Retrieval at distances that the input sets.

    Symbols are uniform and may repeat; every choice of their places is as likely as any other. Length counts noise.
    Selective copying of Gu & Dao (2023), arXiv:2312.00752, §4.1.1 and App. E.1: 16 symbols in 4096 places there, of a
    vocabulary of 16 with the noise. Their generator was not published; that of the copying task in S4's code, with
    ``variable=true``, draws as this one does, and asks at a mark for each symbol. So are bidirectional models asked
    here; a causal one reads its answer as it goes.

    Chance: ``1 / num_symbols`` a symbol, ``num_symbols ** -num_copied`` all of them. Place alone: no more.

    Args:
        train_length: most noise trained on, at least 1.
        min_length: least noise trained on, between 1 and ``train_length``.
        num_symbols: alphabet, at least 2.
        num_copied: symbols to copy, at least 1.
    """

    def __init__(
        self, *, train_length: int = 16, min_length: int = 1, num_symbols: int = 10, num_copied: int = 8
    ) -> None:
        super().__init__(
            train_length,
            min_length,
            num_symbols=num_symbols,
            num_hidden=whole("task.num_copied", num_copied, at_least=1),
            num_noise=1,
        )

    def text_length(self, length: int) -> int:
        return length + self.num_hidden

    def text(self, hidden: Tensor, length: int, generator: Generator) -> Tensor:
        batch_size, num_hidden = hidden.shape
        # Double precision: in single, equal keys would favour early places.
        keys = torch.rand(batch_size, length + num_hidden, generator=generator, dtype=torch.float64)
        places = keys.argsort(-1)[:, :num_hidden].sort(-1).values
        return torch.full(keys.shape, self._noise).scatter_(1, places, hidden)
