import torch
from torch import Generator, Tensor

from experiments.tasks import Batch, Task, ask, shuffles, tasks
from pe_zoo._knobs import whole

PLUS, MINUS, ONE, BEGIN, MARK, FIRST_VARIABLE = range(6)


@tasks.register("lego")
class Lego(Task):
    """Resolve variables assigned from one another in shuffled clauses: ``b - a  a + 1 | b a`` is ``- +``.

    The first variable of a chain is +1 or −1, each further one is the one before it or its negative. After a mark, the
    value of each is asked for at its name, in the order of the clauses:

        tokens    ^ c + b a - 1 b - a | c a b          (a = −1, b = −a, c = +b)
        targets   . . . . . . . . . . . + - +

    Length counts clauses. The position does not tell how far down the chain a variable is, and no answer is read:
    causal and bidirectional models get the same tokens. Each variable is as often +1 as −1. Zhang et al. (2022),
    arXiv:2206.04301, in the group of two elements. Departures: there a bidirectional model answers within the clauses,
    at the assigned variable; clauses also have ``=`` and ``;``; programs have 12 clauses, of whose chain the first 6
    are trained on, and there are 26 names.

    Chance: ``1 / 2`` a value, ``2 ** -length`` all of them. Best guess from position: no better.

    Args:
        num_variables: names to draw from, at least 2; a program cannot have more clauses.
    """

    def __init__(self, *, train_length: int = 6, min_length: int = 1, num_variables: int = 64) -> None:
        self.num_variables = whole("task.num_variables", num_variables, at_least=2)
        self.limit = "num_variables", num_variables
        self.set_lengths(train_length, min_length)
        self.vocab_size = FIRST_VARIABLE + num_variables

    def numbers(self, kind: str, size: int, *, causal: bool) -> Tensor:
        """Give a variable asked for the number of its assignment if ``coupled``; the two marks are 0."""
        if kind != "coupled":
            return super().numbers(kind, size, causal=causal)
        clauses = torch.arange(1, 3 * (size // 4) + 1)
        mark = torch.zeros(1, dtype=torch.long)
        return torch.cat([mark, clauses, mark, clauses[::3]])

    def sequence_length(self, length: int) -> int:
        return 4 * length + 2

    def sample(self, batch_size: int, length: int, generator: Generator, *, split: str, causal: bool) -> Batch:
        self.check_length(length)
        names = FIRST_VARIABLE + shuffles(batch_size, self.num_variables, generator)[:, :length]
        signs = torch.randint(2, (batch_size, length), generator=generator)
        sources = torch.cat([torch.full((batch_size, 1), ONE), names[:, :-1]], 1)
        order = shuffles(batch_size, length, generator)
        clauses = [part.gather(1, order) for part in (names, signs, sources)]
        values = (signs.cumsum(1) % 2).gather(1, order)
        mark = torch.full((batch_size, 1), MARK)
        return ask(torch.cat([torch.stack(clauses, -1).flatten(1), mark], 1), clauses[0], values, begin=BEGIN)

    def input_span(self, length: int) -> slice:
        return slice(1, 3 * length + 1)
