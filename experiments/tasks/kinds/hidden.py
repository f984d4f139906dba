"""Tasks that hide symbols in noise and ask for them at the end: selective_copy, passkey."""

import torch
from torch import Generator, Tensor

from experiments.tasks.kinds.problem import Problem
from pe_zoo._knobs import whole


class Hidden(Problem):
    """A text that holds symbols among noise, a mark, and those symbols in their order.

        causal         tokens    ^ _ 3 _ _ 1 _ | 3          bidirectional    ^ _ 3 _ _ 1 _ | |
                       targets                 3 1                                         3 1

    ``length`` counts the noise; a longer sequence hides as many symbols.

    Args:
        num_symbols: size of the alphabet of the hidden symbols, at least 2.
    """

    num_hidden: int
    """Symbols to hide; a subclass sets it first."""
    num_noise: int = 1
    """Kinds of noise."""

    def __init__(self, *, train_length: int, min_length: int, num_symbols: int) -> None:
        self.num_symbols = self.num_answers = whole("task.num_symbols", num_symbols, at_least=2)
        super().__init__(train_length=train_length, min_length=min_length)
        self._noise = self.vocab_size
        self.vocab_size += self.num_noise

    def text(self, hidden: Tensor, length: int, generator: Generator) -> Tensor:
        """Hide symbols, ``(batch, num_hidden)``, among ``length`` of noise: ``(batch, problem_size)``."""
        raise NotImplementedError

    def draw(self, batch_size: int, length: int, generator: Generator) -> tuple[Tensor, Tensor]:
        hidden = torch.randint(self.num_symbols, (batch_size, self.num_hidden), generator=generator)
        return self.text(hidden, length, generator), hidden

    def problem_size(self, length: int) -> int:
        return length + self.num_hidden

    def answer_size(self, length: int) -> int:
        return self.num_hidden
