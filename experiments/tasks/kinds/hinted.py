"""Problems with hints of place before the symbols that belong together: addition, and problems solved in steps."""

import torch
from torch import Generator, Tensor

from experiments.tasks.kinds.problem import Problem
from experiments.tasks.kinds.task import Batch
from pe_zoo._knobs import true_or_false, whole


class Hinted(Problem):
    """A problem in which each number of ``positions=coupled`` may be a token instead, before the symbols that have it.

        causal    tokens    ^ c 3 d 5 + c 9 d 0 | c 2 d 6 e      bidirectional    ^ c 3 d 5 + c 9 d 0 | c | d | e
                  targets                         2   6   0                                             2   6   0

    Index hints of Zhou et al. (2023), arXiv:2310.16028, §5: consecutive ones, of which the first is uniform, so that
    training knows all that a longer problem needs. Departures: there the model also writes the hints of its answer;
    here they are given and not scored.

    Args:
        index_hints: longest length there are hints for, at least ``train_length``; 0: no hints.
    """

    def __init__(self, *, train_length: int, min_length: int, index_hints: int) -> None:
        self.index_hints = whole("task.index_hints", index_hints, at_least=0)
        if index_hints:
            self.limit = "index_hints", index_hints
        super().__init__(train_length=train_length, min_length=min_length)
        self._first_hint = self.vocab_size
        self.vocab_size += index_hints + self.answer_size(1) - 1 if index_hints else 0

    def _fresh(self, length: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the numbers of a problem's symbols, which of them a hint precedes, and those of the solution's."""
        numbered = self.numbered("coupled", length)
        assert numbered is not None
        problem, _, solution = numbered
        before = torch.cat([torch.zeros(1, dtype=torch.long), problem[:-1]])
        return problem, (problem > 0) & (problem != before), solution

    def sequence_length(self, length: int) -> int:
        hints = int(self._fresh(length)[1].sum()) + self.answer_size(length) if self.index_hints else 0
        return super().sequence_length(length) + hints

    def input_span(self, length: int) -> slice:
        if not self.index_hints:
            return super().input_span(length)
        return slice(1, self.sequence_length(length) - 2 * self.answer_size(length))

    def numbers(self, kind: str, size: int, *, causal: bool) -> Tensor:
        if self.index_hints:
            raise ValueError(f"task={self.name} has hints in place of {kind} positions; leave one of the two out")
        return super().numbers(kind, size, causal=causal)

    def sample(self, batch_size: int, length: int, generator: Generator, *, split: str, causal: bool) -> Batch:
        if not self.index_hints:
            return super().sample(batch_size, length, generator, split=split, causal=causal)
        self.check_length(length)
        problems, solutions = self.draw(batch_size, length, generator)
        first = torch.randint(self.index_hints - length + 1, (batch_size, 1), generator=generator)
        numbers, fresh, answers = self._fresh(length)
        hints, asked = (self._first_hint - 1 + first + of for of in (numbers, answers))
        kept = torch.stack([fresh, torch.ones_like(fresh)], -1).flatten()
        problems = torch.stack([hints, problems], -1).flatten(1)[:, kept]
        begin, mark = (torch.full((batch_size, 1), token) for token in (self._begin, self._mark))
        shown = solutions if causal else mark.expand_as(solutions)
        answered = torch.stack([asked, shown], -1).flatten(1)[:, :-1]
        tokens = torch.cat([begin, problems, mark, answered], 1)
        targets, counted = tokens.clone(), torch.zeros(tokens.shape[1], dtype=torch.bool)
        counted[1 - 2 * solutions.shape[1] :: 2] = True
        targets[:, counted] = solutions
        return Batch(tokens, targets, counted)


class Stepwise(Hinted):
    """A problem that is worked out from left to right; asks for its last value, or for the value after each step.

    Args:
        scratchpad: whether the values after all steps are asked for, the result being the last.
    """

    def __init__(self, *, train_length: int, min_length: int, scratchpad: bool, index_hints: int) -> None:
        self.scratchpad = true_or_false("task.scratchpad", scratchpad)
        super().__init__(train_length=train_length, min_length=min_length, index_hints=index_hints)
        if index_hints and not scratchpad:
            raise ValueError(f"task.index_hints={index_hints} needs the scratchpad: set task.scratchpad=true")
        if not scratchpad:  # of one answer, exact match would be token accuracy again
            self.metrics = ("token_accuracy",)  # type: ignore[misc]  # the one kind of task where a knob decides

    def values(self, problems: Tensor) -> Tensor:
        """Return the value after each step: ``(batch, problem_size)`` to ``(batch, length)``."""
        raise NotImplementedError

    def answer_size(self, length: int) -> int:
        return length if self.scratchpad else 1

    def solve(self, problems: Tensor) -> Tensor:
        values = self.values(problems)
        return values if self.scratchpad else values[:, -1:]
