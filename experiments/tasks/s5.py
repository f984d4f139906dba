import itertools
from functools import cache

import torch
from torch import Generator, Tensor

from experiments.tasks import Batch, Task, ask, tasks
from pe_zoo._knobs import one_of

Permutation = tuple[int, ...]

PAIRS: dict[str, tuple[Permutation, Permutation]] = {
    "s5": ((1, 0, 2, 3, 4), (1, 2, 3, 4, 0)),
    "a5": ((1, 2, 0, 3, 4), (1, 2, 3, 4, 0)),
    "a4_x_z5": ((1, 0, 3, 2, 4, 5, 6, 7, 8), (1, 2, 0, 3, 5, 6, 7, 8, 4)),
    "z60": (tuple(range(60)), (*range(1, 60), 0)),
    "s3": ((1, 0, 2), (1, 2, 0)),
}
"""Two elements of each group that generate it. Where it is cyclic: stay, and one step on."""


@tasks.register("s5")
class S5(Task):
    """Multiply permutations: give the product of a sequence after each of its elements. State tracking.

    Elements of a group are numbered, in S5 the 120 arrangements of five things in alphabetical order. The answer at a
    place is the product up to it, the first factor being the first to act:

        tokens    ^ 24 24 33     24 swaps the first two things, 33 moves all in a circle
        targets   . 24  0 33     0 leaves all as they are

    No answer is read, and later elements do not help: a bidirectional model gets the same tokens. No Transformer of
    fixed depth does this at all lengths in S5 or A5, unless TC⁰ = NC¹; in the other groups, which are solvable, some
    do. Merrill et al. (2024), arXiv:2404.08819; Liu et al. (2023), arXiv:2210.10749. Departures: sequences are drawn
    afresh, not from a file of distinct ones; S3 and pairs of generators are this bench's own.

    Chance: ``1 / 120`` a product, ``120 ** -length`` all of them. Best guess from position: 0.193 and 0.00391 at length
    8.

    Args:
        group: ``s5``, ``a5``, ``a4_x_z5``, ``z60`` or ``s3``.
        generators: what is multiplied: ``all`` elements (as published), or a ``pair`` that generates them, in S5 a swap
            and a cycle of all five, whose short words can be memorised.
    """

    def __init__(
        self, *, train_length: int = 8, min_length: int = 1, group: str = "s5", generators: str = "pair"
    ) -> None:
        self.set_lengths(train_length, min_length)
        self._table = products(one_of("task.group", group, PAIRS))
        order = self.num_answers = len(self._table)
        one_of("task.generators", generators, ("all", "pair"))
        self._factors = torch.arange(order)
        if generators == "pair":
            self._factors = torch.tensor([elements(group).index(element) for element in PAIRS[group]])
        self.vocab_size = order + 1

    def sample(self, batch_size: int, length: int, generator: Generator, *, split: str, causal: bool) -> Batch:
        self.check_length(length)
        drawn = torch.randint(len(self._factors), (batch_size, length), generator=generator)
        states = word = self._factors[drawn]
        reach = 1
        while reach < length:
            states = torch.cat([states[:, :reach], self._table[states[:, :-reach], states[:, reach:]]], 1)
            reach *= 2
        return ask(word[:, :0], word, states, begin=len(self._table))

    def position_guess(self, metric: str, length: int) -> float:
        """Guess the likeliest state at each place; whole answers are as many as words, and equally likely."""
        if metric == "exact_match":
            return float(len(self._factors)) ** -length
        steps = torch.zeros(self._table.shape, dtype=torch.float64)
        steps.scatter_add_(1, self._table[:, self._factors], torch.full_like(steps, 1 / len(self._factors)))
        shares = steps[0]
        likeliest = [shares.max()]
        for _ in range(length - 1):
            shares = shares @ steps
            likeliest.append(shares.max())
        return max(self.chance(metric, length), float(torch.stack(likeliest).mean()))


@cache
def elements(group: str) -> list[Permutation]:
    """Return all elements of a group, the neutral one first; of a product, permutations of disjoint sets."""
    factors = [_factor(name[0], int(name[1:])) for name in group.split("_x_")]
    return [
        tuple(point + sum(map(len, parts[:place])) for place, part in enumerate(parts) for point in part)
        for parts in itertools.product(*factors)
    ]


def _factor(kind: str, degree: int) -> list[Permutation]:
    if kind == "z":
        return [(*range(step, degree), *range(step)) for step in range(degree)]

    def swaps(word: Permutation) -> int:
        return sum(one > other for one, other in itertools.combinations(word, 2))

    return [word for word in itertools.permutations(range(degree)) if kind == "s" or swaps(word) % 2 == 0]


@cache
def products(group: str) -> Tensor:
    """Return the multiplication table, ``(order, order)`` int64: at ``[i, j]``, element i and then element j."""
    every = elements(group)
    number = {element: place for place, element in enumerate(every)}
    return torch.tensor([[number[tuple(then[point] for point in first)] for then in every] for first in every])
