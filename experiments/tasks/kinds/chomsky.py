"""How the tasks of the Chomsky hierarchy ask for a word: a blank for each symbol of it."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from experiments.tasks.kinds.task import Batch, Task
from experiments.tasks.kinds.transduction import Transduction
from pe_zoo import Unsupported


class Blanks(Transduction):
    """A word, then a blank for each symbol of its answer.

        tokens       ^ 0 1 1 _ _ _
        targets      . . . . 1 1 0      (reverse_string)

    The blanks are those of Delétang et al. (2023), arXiv:2207.02098, and Ruoss et al. (2023), arXiv:2305.16843, who
    ask so of networks without a causal mask. No symbol of the answer is ever read, so that causal and bidirectional
    models get the same tokens, and nothing is teacher-forced.

    Args:
        train_length: longest word trained on, at least ``shortest``.
        min_length: shortest word trained on, between ``shortest`` and ``train_length``.
        num_symbols: alphabet of the words, at least 2.
    """

    num_answers: int
    """An answer's symbols are the tokens from 0 up to this number."""

    def __init__(self, *, train_length: int = 16, min_length: int = 1, num_symbols: int = 2) -> None:
        super().__init__(train_length=train_length, min_length=min_length, num_symbols=num_symbols)
        self.num_answers = num_symbols

    def words(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        """Draw words, ``(batch, length)`` int64: uniform over all there are."""
        return torch.randint(self.num_symbols, (batch_size, length), generator=generator)

    def answer_length(self, length: int) -> int:
        """Symbols of the answer to a word of a length."""
        return length

    def numbers(self, kind: str, size: int, *, causal: bool) -> Tensor:
        return super().numbers(kind, size, causal=False)

    def sequence_length(self, length: int) -> int:
        return 1 + length + self.answer_length(length)

    def sample(self, batch_size: int, length: int, generator: Generator, *, split: str, causal: bool) -> Batch:
        if length < self.shortest:
            raise Unsupported(f"task={self.name} answers words of at least {self.shortest} symbols; got {length}")
        word = self.words(batch_size, length, generator)
        begin = torch.full((batch_size, 1), self._begin)
        blanks = torch.full((batch_size, self.answer_length(length)), self._mark)
        tokens = torch.cat([begin, word, blanks], 1)
        targets = torch.cat([begin, word, self.answer(word)], 1)
        return Batch(tokens, targets, counted=torch.arange(tokens.shape[1]) > length)

    def chance(self, metric: str, length: int) -> float:
        return float(self.num_answers) ** -(self.answer_length(length) if metric == "exact_match" else 1)


class Ended(Blanks):
    """An answer of a length that only the word tells: 2 ends it, and 0 fills what is left of the blanks.

    The published accuracy is over the symbols up to the end. Which places these are differs from word to word; here
    all places are scored, as they are trained on there and here. Read accuracy against ``position_guess``.
    """

    def answer_length(self, length: int) -> int:
        return length + 1

    def numbers(self, kind: str, size: int, *, causal: bool) -> Tensor:
        return Task.numbers(self, kind, size, causal=causal)
