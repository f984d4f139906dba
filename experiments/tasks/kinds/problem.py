"""Tasks that set a problem and ask for its solution; those with one answer."""

from typing import ClassVar

import torch
from torch import Generator, Tensor

from experiments.tasks.kinds.task import Batch, Task, ask


class Problem(Task):
    """A random problem, a mark, and its solution.

        causal        tokens    ^ 3 + 9 | 2        bidirectional    ^ 3 + 9 | |
        (addition)    targets   . . . . 2 1                         . . . . 2 1

    The solution's length is not predicted (no end token is scored). Teacher-forced exact match equals free-running
    greedy exact match. A subclass sets ``num_symbols`` and ``num_answers``, draws problems and solves them.
    """

    num_symbols: int = 2
    """Problems are made of the tokens from 0 up to this number."""
    reads_answers: ClassVar[bool] = True
    """Whether a causal model reads its answers; otherwise marks stand in their place."""

    def __init__(self, *, train_length: int = 16, min_length: int = 1) -> None:
        self.set_lengths(train_length, min_length)
        self._begin = max(self.num_symbols, self.num_answers)
        self._mark = self._begin + 1
        self.vocab_size = self._mark + 1

    def problem_size(self, length: int) -> int:
        """Return how many symbols a problem of a length has."""
        return length

    def problems(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        """Draw problems, ``(batch, problem_size)`` int64: by default, uniform words."""
        return torch.randint(self.num_symbols, (batch_size, length), generator=generator)

    def solve(self, problems: Tensor) -> Tensor:
        """Return the solutions, ``(batch, answer_size)``."""
        raise NotImplementedError

    def draw(self, batch_size: int, length: int, generator: Generator) -> tuple[Tensor, Tensor]:
        problems = self.problems(batch_size, length, generator)
        return problems, self.solve(problems)

    def numbered(self, kind: str, length: int) -> tuple[Tensor, int, Tensor] | None:
        """Return the numbers of a problem's symbols, of the mark and of the solution's; None where there are none."""
        return None

    def delimiters(self) -> list[int]:
        """Return the tokens that end a segment for ``positions=segments``: the mark."""
        return [self._mark]

    def numbers(self, kind: str, size: int, *, causal: bool) -> Tensor:
        if kind == "segments":
            return torch.tensor(self.delimiters())
        # Sequences grow evenly with length; of some tasks, by two symbols with every second length.
        shortest, longer = self.sequence_length(1), self.sequence_length(3)
        numbered = self.numbered(kind, 1 + 2 * (size - shortest) // (longer - shortest))
        if numbered is None:
            return super().numbers(kind, size, causal=causal)
        problem, mark, solution = numbered
        shown = torch.cat([torch.tensor([mark]), solution[:-1]]) if causal and self.reads_answers else solution
        return torch.cat([torch.zeros(1, dtype=torch.long), problem, shown])

    def sequence_length(self, length: int) -> int:
        return 1 + self.problem_size(length) + self.answer_size(length)

    def sample(self, batch_size: int, length: int, generator: Generator, *, split: str, causal: bool) -> Batch:
        self.check_length(length)
        return self.posed(*self.draw(batch_size, length, generator), causal=causal)

    def posed(self, problems: Tensor, solutions: Tensor, *, causal: bool) -> Batch:
        """Return sequences of problems, the mark, and solutions."""
        shown = torch.full_like(solutions, self._mark)
        if causal and self.reads_answers:
            shown = torch.cat([shown[:, :1], solutions[:, :-1]], 1)
        return ask(problems, shown, solutions, begin=self._begin)

    def input_span(self, length: int) -> slice:
        return slice(1, 1 + self.problem_size(length))


class Question(Problem):
    """A word, a mark, and one symbol as the answer, asked for at the mark.

        tokens    ^ 3 1 3 |
        targets   . . . . 3

    Causal and bidirectional models get the same tokens. Exact match would be token accuracy again and is not reported.
    A subclass whose answers are not equally likely says how likely each is.
    """

    metrics = ("token_accuracy",)

    def answer_size(self, length: int) -> int:
        return 1

    def answer_shares(self, length: int) -> list[float]:
        """Return the probability of each answer over the words of a length."""
        return [1 / self.num_answers] * self.num_answers

    def numbered(self, kind: str, length: int) -> tuple[Tensor, int, Tensor] | None:
        if kind != "abacus":
            return None
        return torch.arange(1, length + 1), 0, torch.zeros(1, dtype=torch.long)

    def position_guess(self, metric: str, length: int) -> float:
        return max(self.answer_shares(length))
