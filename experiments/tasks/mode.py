import torch
from torch import Generator, Tensor

from experiments.tasks import Question, tasks
from pe_zoo._knobs import whole


@tasks.register("mode")
class Mode(Question):
    """Name the most frequent symbol of a random word: ``3 1 3 | 3``. Counting; the order of the input does not matter.

    The control for order sensitivity: a loss from shuffling the word is the model's own. Words are uniform over those
    in which one symbol is more frequent than any other; each symbol is the answer as often as any other. A task of Zhou
    et al. (2024), arXiv:2310.16028; alphabet and words are this bench's own.

    Chance: ``1 / num_symbols``. Best guess from position: no better.

    Args:
        num_symbols: size of the alphabet, at least 2.
    """

    def __init__(self, *, train_length: int = 16, min_length: int = 1, num_symbols: int = 5) -> None:
        self.num_symbols = self.num_answers = whole("task.num_symbols", num_symbols, at_least=2)
        super().__init__(train_length=train_length, min_length=min_length)

    def problems(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        """Draw uniformly from the words with one most frequent symbol; those without are drawn again."""
        words: list[Tensor] = []
        at_once = missing = batch_size
        while missing > 0:
            drawn = super().problems(at_once, length, generator)
            words.append(drawn[has_mode(drawn)])
            missing -= len(words[-1])
            at_once *= 2  # of a large alphabet few short words have one
        return torch.cat(words)[:batch_size]

    def solve(self, problems: Tensor) -> Tensor:
        return problems.mode(-1, keepdim=True).values


def has_mode(words: Tensor) -> Tensor:
    """Return whether one symbol is more frequent than any other: ``(batch, length)`` to ``(batch,)`` bool.

    >>> has_mode(torch.tensor([[3, 1, 3], [3, 1, 2]]))
    tensor([ True, False])
    """
    ordered = words.sort(-1).values
    runs = torch.zeros_like(words)
    runs[:, 1:] = (ordered.diff() != 0).cumsum(-1)
    lengths = torch.zeros_like(words).scatter_add_(1, runs, torch.ones_like(words))
    return (lengths == lengths.amax(-1, keepdim=True)).sum(-1) == 1
