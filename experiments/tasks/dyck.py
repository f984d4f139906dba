import numpy as np
import torch
from torch import Generator, Tensor

from experiments.tasks import Batch, Task, ask, tasks
from pe_zoo._knobs import whole


@tasks.register("dyck")
class Dyck(Task):
    """Name after every bracket which one may close next: ``( [ ] ) (`` to ``) ] ) ^ )``. Nesting, of bounded depth.

        tokens   ^ ( [ ] ) (
        targets    ) ] ) ^ )

    Length counts brackets. The answer is the one closing bracket that is legal, or the begin token where nothing is
    open and the word may end. Words are prefixes of words of Dyck-(k, m), with k kinds of brackets and at most m open
    at a time, drawn as by Hewitt et al. (2020), arXiv:2010.07515: where both are legal, a bracket is opened or closed
    with equal probability, and kinds are uniform. Yao et al. (2021), arXiv:2105.11115, ask a language model the same at
    every place; here the answer is the training target. Half of the answers are easy: they close the bracket just
    opened.

    Chance: ``1 / (kinds + 1)``. Best guess from position: 0.424 at length 32.

    Args:
        kinds: of brackets, at least 1; 2 to 128 in the papers.
        max_depth: brackets that may be open at a time, at least 1; 3 to 20 in the papers.
    """

    metrics = ("token_accuracy",)

    def __init__(self, *, train_length: int = 32, min_length: int = 1, kinds: int = 2, max_depth: int = 3) -> None:
        self.set_lengths(train_length, min_length)
        self.kinds = whole("task.kinds", kinds, at_least=1)
        self.max_depth = whole("task.max_depth", max_depth, at_least=1)
        self.num_answers = kinds + 1
        self._begin = 2 * kinds
        self.vocab_size = self._begin + 1

    def sample(self, batch_size: int, length: int, generator: Generator, *, split: str, causal: bool) -> Batch:
        self.check_length(length)
        self.check_causal(causal)
        depth = self.depths(batch_size, length, generator)
        kinds = torch.randint(self.kinds, (batch_size, length), generator=generator)
        begin = torch.full((batch_size, 1), self._begin)
        opened = depth.diff(prepend=torch.zeros_like(begin)) > 0
        closing = torch.where(depth > 0, self.kinds + kinds.gather(1, innermost(depth, opened)), self._begin)
        # A bracket that closes is the one that could, one place before.
        brackets = torch.where(opened, kinds, torch.cat([begin, closing[:, :-1]], 1))
        return ask(closing[:, :0], brackets, closing, begin=self._begin)

    def depths(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        """Draw the open brackets at each place, ``(batch, length)`` int64: a fair walk folded to 0 … ``max_depth``."""
        walk = (2 * torch.randint(2, (batch_size, length), generator=generator) - 1).cumsum(-1)
        return self.max_depth - (walk % (2 * self.max_depth) - self.max_depth).abs()

    def input_span(self, length: int) -> slice:
        """Return the first three quarters; the last quarter is scored."""
        return slice(1, 1 + max(1, 3 * length // 4))

    def position_guess(self, metric: str, length: int) -> float:
        """Guess the likelier at each place: that nothing is open, or one of the kinds."""
        places = np.arange(1, length + 1)[:, None]
        # A fair walk round a circle of 2m places is back where it began: by its Fourier series.
        turns = np.cos(np.pi * np.arange(2 * self.max_depth) / self.max_depth)
        empty = (turns**places).mean(1)
        return float(np.maximum(empty, (1 - empty) / self.kinds).mean())


def innermost(depth: Tensor, opened: Tensor) -> Tensor:
    """Return the place of the innermost open bracket at each place; any where none is open.

    >>> innermost(torch.tensor([[1, 2, 1, 2]]), torch.tensor([[True, True, False, True]]))
    tensor([[0, 1, 0, 3]])
    """
    # Among the places of one depth, in their order, the latest that was opened. The first of them was.
    order = depth.argsort(dim=-1, stable=True)
    ranks = torch.arange(depth.shape[1])
    latest = torch.where(opened.gather(1, order), ranks, 0).cummax(-1).values
    return torch.empty_like(depth).scatter_(1, order, order.gather(1, latest))
