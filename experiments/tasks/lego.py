"""Resolve variables that were assigned from one another."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from experiments.tasks.kinds.program import Program
from experiments.tasks.kinds.task import Batch, tasks
from pe_zoo import Unsupported
from pe_zoo._knobs import whole

PLUS, MINUS, ONE, BEGIN, MARK, FIRST_VARIABLE = range(6)


@tasks.register("lego")
class Lego(Program):
    """Resolve variables assigned from one another in shuffled clauses: ``b - a  a + 1 | b a`` is ``- +``.

    The first variable of a chain is +1 or −1, each further one is the one before it or its negative. What each is
    worth is asked for at its name, after a mark, in the order of the clauses:

        tokens    ^ c + b a - 1 b - a | c a b          (a = −1, b = −a, c = +b)
        targets   . . . . . . . . . . . + - +

    The place says nothing of how far down the chain a variable is, and no answer is read anywhere, so that causal and
    bidirectional models get the same tokens. Each variable is as often +1 as −1. Whoever reads only the clause of a
    variable knows the first one's value and no other.

    Zhang et al. (2022), arXiv:2206.04301, in the group of two elements. Departures: there a bidirectional model
    answers within the clauses, at the assigned variable, where a causal one could not know; clauses have ``=`` and
    ``;`` besides; programs have 12 clauses, of whose chain the first 6 are trained on, and there are 26 names.

    Chance: ``1 / 2`` a value, ``2 ** -length`` all of them. Place alone: no more.

    Args:
        train_length: most clauses trained on, from 1 to ``num_variables``.
        min_length: fewest clauses trained on, between 1 and ``train_length``.
        num_variables: names to draw from, at least 2; a program cannot have more clauses.
    """

    def __init__(self, *, train_length: int = 6, min_length: int = 1, num_variables: int = 64) -> None:
        super().__init__(train_length, min_length)
        self.num_variables = whole("task.num_variables", num_variables, at_least=2)
        if train_length > num_variables:
            raise ValueError(
                f"task.train_length={train_length} exceeds task.num_variables={num_variables}; lower the one or raise "
                f"the other"
            )
        self.vocab_size = FIRST_VARIABLE + num_variables

    def numbers(self, kind: str, size: int, *, causal: bool) -> Tensor:
        """``coupled``: a variable asked for has the number of where it was assigned; the two marks are 0."""
        if kind != "coupled":
            return super().numbers(kind, size, causal=causal)
        clauses = torch.arange(1, 3 * (size // 4) + 1)
        mark = torch.zeros(1, dtype=torch.long)
        return torch.cat([mark, clauses, mark, clauses[::3]])

    def sequence_length(self, length: int) -> int:
        return 4 * length + 2

    def sample(self, batch_size: int, length: int, generator: Generator, *, split: str, causal: bool) -> Batch:
        if not 1 <= length <= self.num_variables:
            raise Unsupported(
                f"task=lego has 1 to {self.num_variables} clauses (task.num_variables); got a length of {length}"
            )
        names = FIRST_VARIABLE + _shuffles(batch_size, self.num_variables, generator)[:, :length]
        signs = torch.randint(2, (batch_size, length), generator=generator)
        sources = torch.cat([torch.full((batch_size, 1), ONE), names[:, :-1]], 1)
        order = _shuffles(batch_size, length, generator)
        clauses = [part.gather(1, order) for part in (names, signs, sources)]
        values = (signs.cumsum(1) % 2).gather(1, order)
        begin, mark = (torch.full((batch_size, 1), token) for token in (BEGIN, MARK))
        program = torch.cat([begin, torch.stack(clauses, -1).flatten(1), mark], 1)
        return Batch(
            torch.cat([program, clauses[0]], 1),
            torch.cat([program, values], 1),
            counted=torch.arange(4 * length + 2) > 3 * length + 1,
        )

    def input_span(self, length: int) -> slice:
        return slice(1, 3 * length + 1)

    def chance(self, metric: str, length: int) -> float:
        return 0.5 ** (length if metric == "exact_match" else 1)


def _shuffles(batch_size: int, size: int, generator: Generator) -> Tensor:
    """Independent permutations, ``(batch, size)``."""
    # Double precision: in single, equal keys would favour the order before the shuffle.
    return torch.rand(batch_size, size, generator=generator, dtype=torch.float64).argsort(-1)
