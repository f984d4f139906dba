"""Tasks that turn a random word into another of the same length: copy, reverse, sort."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from experiments.tasks.kinds.task import Batch, Task
from pe_zoo import Unsupported
from pe_zoo._knobs import whole


class Transduction(Task):
    """A random word, a mark, its answer.

        causal         tokens    ^ 3 1 2 | 2 1          bidirectional    ^ 3 1 2 | | |
        (reverse)      targets         . 2 1 3                                   2 1 3

    The answer's length is not predicted (no end token is scored), so that quality speaks of order and
    content alone. Teacher-forced exact match equals free-running greedy exact match: up to the first
    wrong token both have read the same.

    Args:
        train_length: longest word trained on, at least 1.
        min_length: shortest word trained on, between 1 and ``train_length``.
        num_symbols: alphabet, at least 2.
    """

    def __init__(self, *, train_length: int = 16, min_length: int = 1, num_symbols: int = 10) -> None:
        self.set_lengths(train_length, min_length)
        self.num_symbols = whole("task.num_symbols", num_symbols, at_least=2)
        self.vocab_size = num_symbols + 2
        self._begin, self._mark = num_symbols, num_symbols + 1

    def words(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        """Draw words, ``(batch, length)`` int64: uniform over all there are."""
        return torch.randint(self.num_symbols, (batch_size, length), generator=generator)

    def answer(self, word: Tensor) -> Tensor:
        """The answer to each word: ``(batch, length)`` to the same shape."""
        raise NotImplementedError

    def sources(self, length: int) -> Tensor | None:
        """Which symbol of the word each symbol of the answer repeats, ``(length,)`` from 0; None where it depends."""
        return None

    def numbers(self, kind: str, size: int, *, causal: bool) -> Tensor:
        length = size // 2
        word = torch.arange(1, length + 1)
        sources = word - 1 if kind == "abacus" else self.sources(length)
        if kind not in ("abacus", "coupled") or sources is None:
            return super().numbers(kind, size, causal=causal)
        answer = sources + 1
        # The mark stands where the symbol before the answer's first would: one step before it.
        step = self.sources(2) if kind == "coupled" else torch.arange(2)
        assert step is not None
        shown = torch.cat([answer[:1] - step.diff(), answer[:-1]]) if causal else answer
        return torch.cat([torch.zeros(1, dtype=torch.long), word, shown])

    def sequence_length(self, length: int) -> int:
        return 2 * length + 1

    def sample(self, batch_size: int, length: int, generator: Generator, *, split: str, causal: bool) -> Batch:
        if length < 1:
            raise Unsupported(f"task={self.name} answers words of at least 1 symbol; got {length}")
        word = self.words(batch_size, length, generator)
        return asked(word, self.answer(word), begin=self._begin, mark=self._mark, causal=causal)

    def input_span(self, length: int) -> slice:
        return slice(1, length + 1)

    def chance(self, metric: str, length: int) -> float:
        return float(self.num_symbols) ** -(length if metric == "exact_match" else 1)


def asked(word: Tensor, answer: Tensor, *, begin: int, mark: int, causal: bool) -> Batch:
    """Words, ``(batch, length)``, and their answers, asked for after a mark; see ``Transduction``."""
    first = torch.full_like(word[:, :1], begin)
    marks = torch.full_like(answer, mark)
    shown = torch.cat([marks[:, :1], answer[:, :-1]], 1) if causal else marks
    tokens = torch.cat([first, word, shown], 1)
    targets = torch.cat([first, word, answer], 1)
    return Batch(tokens, targets, counted=torch.arange(tokens.shape[1]) > word.shape[1])
