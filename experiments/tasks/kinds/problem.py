"""Tasks that set a problem and ask for its solution, which need not be as long: addition, counting, parity, …."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from experiments.tasks.kinds.task import Batch, Task
from pe_zoo import Unsupported
from pe_zoo._knobs import true_or_false


class Problem(Task):
    """A random problem, a mark, its solution.

        causal        tokens    ^ 3 + 9 | 2        bidirectional    ^ 3 + 9 | |
        (addition)    targets   . . . . 2 1                         . . . . 2 1

    Teacher-forced exact match equals free-running greedy exact match: up to the first wrong token both have
    read the same.

    Args:
        train_length: longest problem trained on, at least 1.
        min_length: shortest problem trained on, between 1 and ``train_length``.
        num_symbols: tokens that problems and solutions are made of.
        num_answers: solutions are made of the tokens from 0 up to this number.
    """

    def __init__(self, train_length: int, min_length: int, *, num_symbols: int, num_answers: int) -> None:
        self.set_lengths(train_length, min_length)
        self.num_answers = num_answers
        self._begin, self._mark = num_symbols, num_symbols + 1
        self.vocab_size = num_symbols + 2

    def problem_size(self, length: int) -> int:
        """Symbols of a problem of a length."""
        return length

    def solution_size(self, length: int) -> int:
        """Symbols of its solution."""
        raise NotImplementedError

    def problems(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        """Draw problems, ``(batch, problem_size)`` int64."""
        raise NotImplementedError

    def solve(self, problems: Tensor) -> Tensor:
        """Their solutions, ``(batch, solution_size)``."""
        raise NotImplementedError

    def numbered(self, kind: str, length: int) -> tuple[Tensor, int, Tensor] | None:
        """The numbers of a problem's symbols, of the mark and of the solution's; None where there are none."""
        return None

    def numbers(self, kind: str, size: int, *, causal: bool) -> Tensor:
        # Sequences grow by as much with every step in length.
        first, second = self.sequence_length(1), self.sequence_length(2)
        numbered = self.numbered(kind, 1 + (size - first) // (second - first))
        if numbered is None:
            return super().numbers(kind, size, causal=causal)
        problem, mark, solution = numbered
        shown = torch.cat([torch.tensor([mark]), solution[:-1]]) if causal else solution
        return torch.cat([torch.zeros(1, dtype=torch.long), problem, shown])

    def sequence_length(self, length: int) -> int:
        return 1 + self.problem_size(length) + self.solution_size(length)

    def sample(self, batch_size: int, length: int, generator: Generator, *, split: str, causal: bool) -> Batch:
        if length < 1:
            raise Unsupported(f"task={self.name} has problems of length 1 and more; got {length}")
        problems = self.problems(batch_size, length, generator)
        solutions = self.solve(problems)
        begin = torch.full((batch_size, 1), self._begin)
        marks = torch.full_like(solutions, self._mark)
        shown = torch.cat([marks[:, :1], solutions[:, :-1]], 1) if causal else marks
        tokens = torch.cat([begin, problems, shown], 1)
        targets = torch.cat([begin, problems, solutions], 1)
        return Batch(tokens, targets, counted=torch.arange(tokens.shape[1]) > problems.shape[1])

    def input_span(self, length: int) -> slice:
        return slice(1, 1 + self.problem_size(length))

    def chance(self, metric: str, length: int) -> float:
        return float(self.num_answers) ** -(self.solution_size(length) if metric == "exact_match" else 1)


class Stepwise(Problem):
    """A problem that is worked out from left to right, asked for its last value or for the value after each step.

    A subclass says what the values are.

    Args:
        train_length: most steps trained on, at least 1.
        min_length: fewest steps trained on, between 1 and ``train_length``.
        scratchpad: whether the values after all steps are asked for, the result being the last.
        num_symbols: as in ``Problem``.
        num_answers: as in ``Problem``.
    """

    def __init__(
        self, train_length: int, min_length: int, *, scratchpad: bool, num_symbols: int, num_answers: int
    ) -> None:
        super().__init__(train_length, min_length, num_symbols=num_symbols, num_answers=num_answers)
        self.scratchpad = true_or_false("task.scratchpad", scratchpad)
        if not scratchpad:
            # Of one answer, exact match would be token accuracy again.
            self.metrics = ("token_accuracy",)  # type: ignore[misc]  # the one kind of task where a knob decides

    def values(self, problems: Tensor) -> Tensor:
        """The value after each step: ``(batch, problem_size)`` to ``(batch, length)``."""
        raise NotImplementedError

    def solution_size(self, length: int) -> int:
        return length if self.scratchpad else 1

    def solve(self, problems: Tensor) -> Tensor:
        values = self.values(problems)
        return values if self.scratchpad else values[:, -1:]
