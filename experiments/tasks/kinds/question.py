"""Tasks that ask for one symbol after a word: mode, precedence."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from experiments.tasks.kinds.task import Batch, Task
from pe_zoo import Unsupported


class Question(Task):
    """A word, a mark, and one symbol as the answer, asked for at the mark.

        tokens    ^ 3 1 3 |
        targets   . . . . 3

    The answer is read nowhere, so that causal and bidirectional models get the same tokens. One symbol is
    the whole answer: exact match would be token accuracy again, and is not reported.

    A subclass draws words and answers them. Where its answers are not equally likely it says how likely each is,
    so that what the majority class gets at a length is on record.

    Args:
        train_length: longest word trained on, at least ``shortest``.
        min_length: shortest word trained on, between ``shortest`` and ``train_length``.
        num_symbols: alphabet of the words.
        num_answers: the answer is one of the tokens from 0 up to this number; they may be symbols of the word.
    """

    metrics = ("token_accuracy",)

    def __init__(self, train_length: int, min_length: int, *, num_symbols: int, num_answers: int) -> None:
        self.set_lengths(train_length, min_length)
        self.num_symbols = num_symbols
        self.num_answers = num_answers
        self._begin = max(num_symbols, num_answers)
        self._mark = self._begin + 1
        self.vocab_size = self._mark + 1

    def words(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        """Draw words, ``(batch, length)`` int64: uniform over all there are."""
        return torch.randint(self.num_symbols, (batch_size, length), generator=generator)

    def answer(self, words: Tensor) -> Tensor:
        """The answer to each word: ``(batch, length)`` to ``(batch,)``."""
        raise NotImplementedError

    def answer_shares(self, length: int) -> list[float]:
        """Probability of each answer over the words of a length."""
        return [1 / self.num_answers] * self.num_answers

    def numbers(self, kind: str, size: int, *, causal: bool) -> Tensor:
        """``abacus`` counts within the word and leaves the two marks at 0; no place repeats another."""
        if kind != "abacus":
            return super().numbers(kind, size, causal=causal)
        numbers = torch.arange(size)
        numbers[-1] = 0
        return numbers

    def sequence_length(self, length: int) -> int:
        return length + 2

    def sample(self, batch_size: int, length: int, generator: Generator, *, split: str, causal: bool) -> Batch:
        if length < self.shortest:
            raise Unsupported(f"task={self.name} asks of words of at least {self.shortest} symbols; got {length}")
        words = self.words(batch_size, length, generator)
        begin = torch.full((batch_size, 1), self._begin)
        tokens = torch.cat([begin, words, torch.full((batch_size, 1), self._mark)], 1)
        targets = torch.cat([begin, words, self.answer(words).unsqueeze(1)], 1)
        return Batch(tokens, targets, counted=torch.arange(length + 2) > length)

    def input_span(self, length: int) -> slice:
        return slice(1, length + 1)

    def chance(self, metric: str, length: int) -> float:
        return 1 / self.num_answers

    def position_guess(self, metric: str, length: int) -> float:
        """The likeliest answer, always."""
        return max(self.answer_shares(length))
