from dataclasses import replace

import torch
from torch import Generator, Tensor

from experiments.tasks import Batch, Placed, Task, ask, shuffles, tasks
from pe_zoo._knobs import whole


@tasks.register("associative_recall")
class AssociativeRecall(Task):
    """Recall the value that each key was paired with: ``a 7 b 3 c 7 | b c a`` to ``3 7 7``. Retrieval by content.

        tokens   ^ a 7 b 3 c 7 b c a
        targets                3 7 7

    Length counts pairs. The keys of a sequence are distinct, and each is asked for once, in uniform order. Values are
    independent and uniform. No answer is read: causal and bidirectional models get the same tokens. Multi-query
    associative recall of Arora et al. (2023), arXiv:2312.04927. Departures: there queries stand among random tokens,
    after gaps that follow a power law, values are distinct, and half of 8192 tokens are keys.

    Chance: ``1 / num_values`` a value, ``num_values ** -length`` all of them. Best guess from position: no better.

    Args:
        num_keys: number of keys, at least 2, ``train_length`` and any other length asked for.
        num_values: number of values, at least 2; none is a key.
    """

    def __init__(self, *, train_length: int = 8, min_length: int = 1, num_keys: int = 64, num_values: int = 64) -> None:
        self.num_keys = whole("task.num_keys", num_keys, at_least=2)
        self.num_values = self.num_answers = whole("task.num_values", num_values, at_least=2)
        self.limit = "num_keys", num_keys
        self.set_lengths(train_length, min_length)
        self.vocab_size = num_keys + num_values + 1

    def sequence_length(self, length: int) -> int:
        return 3 * length + 1

    def sample(self, batch_size: int, length: int, generator: Generator, *, split: str, causal: bool) -> Batch:
        self.check_length(length)
        keys, values = self._pairs(batch_size, length, generator)
        return self._asked(keys, values, shuffles(batch_size, length, generator))

    def places(self, length: int) -> int:
        return length

    def placed(
        self, place: int, batch_size: int, length: int, generator: Generator, *, causal: bool, other: int | None = None
    ) -> Placed:
        """Draw questions whose first query asks for the pair at a place; that query alone is scored.

        The distractor is another pair.
        """
        self.check_length(length)
        keys, values = self._pairs(batch_size, length, generator)
        later = 1 + shuffles(batch_size, length - 1, generator)
        taken = [place] if other is None else [place, other]  # by the first pairs drawn, in this order
        free = [at for at in range(length) if at not in taken]
        moved = torch.tensor([*taken, *free]).argsort()  # which pair stands at each place
        order = moved.argsort()[torch.cat([torch.zeros_like(later[:, :1]), later], 1)]
        batch = self._asked(keys[:, moved], values[:, moved], order)
        first = batch.counted & (batch.counted.cumsum(0) == 1)
        decoys = None if other is None else torch.where(first, values[:, 1:2], batch.targets)
        return Placed(replace(batch, counted=first), decoys)

    def _pairs(self, batch_size: int, length: int, generator: Generator) -> tuple[Tensor, Tensor]:
        keys = shuffles(batch_size, self.num_keys, generator)[:, :length]
        return keys, self.num_keys + torch.randint(self.num_values, (batch_size, length), generator=generator)

    def _asked(self, keys: Tensor, values: Tensor, order: Tensor) -> Batch:
        pairs = torch.stack([keys, values], -1).flatten(1)
        return ask(pairs, keys.gather(1, order), values.gather(1, order), begin=self.num_keys + self.num_values)

    def input_span(self, length: int) -> slice:
        return slice(1, 2 * length + 1)
