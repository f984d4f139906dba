"""Tasks that hide symbols in noise and ask for them at the end: selective_copy, passkey."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from experiments.tasks.kinds.task import Batch, Task
from experiments.tasks.kinds.transduction import asked
from pe_zoo import Unsupported
from pe_zoo._knobs import whole


class Hidden(Task):
    """A text that holds symbols among noise, a mark, and those symbols in their order.

        causal         tokens    ^ _ 3 _ _ 1 _ | 3          bidirectional    ^ _ 3 _ _ 1 _ | |
                       targets                 3 1                                         3 1

    ``length`` counts the noise. How many symbols are hidden is fixed, so that a longer sequence asks for as much,
    from further away.

    Args:
        train_length: most noise trained on, at least 1.
        min_length: least noise trained on, between 1 and ``train_length``.
        num_symbols: alphabet of what is hidden, at least 2.
        num_hidden: symbols hidden.
        num_noise: kinds of noise.
    """

    def __init__(
        self, train_length: int, min_length: int, *, num_symbols: int, num_hidden: int, num_noise: int
    ) -> None:
        self.set_lengths(train_length, min_length)
        self.num_symbols = whole("task.num_symbols", num_symbols, at_least=2)
        self.num_hidden = num_hidden
        self._begin, self._mark, self._noise = num_symbols, num_symbols + 1, num_symbols + 2
        self.vocab_size = self._noise + num_noise

    def text_length(self, length: int) -> int:
        """Places of a text that holds so much noise."""
        raise NotImplementedError

    def text(self, hidden: Tensor, length: int, generator: Generator) -> Tensor:
        """Hide symbols, ``(batch, num_hidden)``, among ``length`` of noise: ``(batch, text_length)``."""
        raise NotImplementedError

    def sequence_length(self, length: int) -> int:
        return 1 + self.text_length(length) + self.num_hidden

    def sample(self, batch_size: int, length: int, generator: Generator, *, split: str, causal: bool) -> Batch:
        if length < 1:
            raise Unsupported(f"task={self.name} hides symbols in noise of at least length 1; got {length}")
        hidden = torch.randint(self.num_symbols, (batch_size, self.num_hidden), generator=generator)
        text = self.text(hidden, length, generator)
        return asked(text, hidden, begin=self._begin, mark=self._mark, causal=causal)

    def input_span(self, length: int) -> slice:
        return slice(1, 1 + self.text_length(length))

    def chance(self, metric: str, length: int) -> float:
        return float(self.num_symbols) ** -(self.num_hidden if metric == "exact_match" else 1)
