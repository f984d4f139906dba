import torch
from torch import Generator, Tensor

from experiments.tasks import Question, tasks

HOLE, FILLER = 2, 3


@tasks.register("missing_duplicate")
class MissingDuplicate(Question):
    """Name the symbol that is missing (2) from a repeated binary word: ``0 1 1 0 2 1 | 1``.

        tokens    ^ 0 1 1 0 2 1 |
        targets   . . . . . . . 1

    Any of the places may miss its symbol. Odd lengths end in a 3. ``missing_duplicate_string`` of Delétang et al.
    (2023), arXiv:2207.02098: a context-sensitive task.

    Chance: ``1 / 2``. Best guess from position: no better.
    """

    shortest = 2
    num_symbols = 4

    def __init__(self, *, train_length: int = 16, min_length: int = 2) -> None:
        super().__init__(train_length=train_length, min_length=min_length)

    def problems(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        word = torch.randint(2, (batch_size, length // 2), generator=generator)
        filler = torch.full((batch_size, length % 2), FILLER)
        hole = torch.randint(length // 2 * 2, (batch_size, 1), generator=generator)
        return torch.cat([word, word, filler], 1).scatter_(1, hole, HOLE)

    def solve(self, problems: Tensor) -> Tensor:
        half = problems.shape[1] // 2
        hole = (problems == HOLE).long().argmax(1, keepdim=True)
        return problems.gather(1, (hole + half) % (2 * half))

    def numbered(self, kind: str, length: int) -> tuple[Tensor, int, Tensor] | None:
        """Count both words from 1 if ``coupled``, so that a symbol and its duplicate share a number; all else is 0."""
        if kind != "coupled":
            return super().numbered(kind, length)
        word, zeros = torch.arange(1, length // 2 + 1), torch.zeros(length % 2 + 1, dtype=torch.long)
        return torch.cat([word, word, zeros[1:]]), 0, zeros[:1]
