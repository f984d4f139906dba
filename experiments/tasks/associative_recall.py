"""Say what each of many keys was paired with."""

from __future__ import annotations

import torch
from torch import Generator

from experiments.tasks.kinds.task import Batch, Task, tasks
from pe_zoo import Unsupported
from pe_zoo._knobs import whole


@tasks.register("associative_recall")
class AssociativeRecall(Task):
    """Say the value that each key was paired with: ``a 7 b 3 c 7 | b c a`` to ``3 7 7``. Retrieval by content.

        tokens   ^ a 7 b 3 c 7 b c a
        targets                3 7 7

    The keys of a sequence are distinct and each is asked for once, in an order that is uniform over all there are.
    Values are independent and uniform. An answer is asked for at its key and read nowhere, so that causal and
    bidirectional models get the same tokens. Multi-query associative recall of Arora et al. (2023), arXiv:2312.04927:
    there queries stand among random tokens, after gaps that follow a power law, the values of a sequence are distinct,
    and half of 8192 tokens are keys and half values; here queries follow one another, without gaps.

    Chance: ``1 / num_values`` a value, ``num_values ** -length`` all of them. Place alone: no more.

    Args:
        train_length: most pairs trained on, at least 1.
        min_length: fewest pairs trained on, between 1 and ``train_length``.
        num_keys: alphabet of the keys, at least 2, ``train_length`` and any other length asked for.
        num_values: alphabet of the values, at least 2; none is a key.
    """

    def __init__(self, *, train_length: int = 8, min_length: int = 1, num_keys: int = 64, num_values: int = 64) -> None:
        self.set_lengths(train_length, min_length)
        self.num_keys = whole("task.num_keys", num_keys, at_least=2)
        if train_length > num_keys:
            raise ValueError(
                f"task.train_length={train_length} exceeds task.num_keys={num_keys}, all keys being distinct; lower "
                f"the one or raise the other"
            )
        self.num_values = whole("task.num_values", num_values, at_least=2)
        self._begin = num_keys + num_values
        self.vocab_size = self._begin + 1

    def sequence_length(self, length: int) -> int:
        return 3 * length + 1

    def sample(self, batch_size: int, length: int, generator: Generator, *, split: str, causal: bool) -> Batch:
        if not 1 <= length <= self.num_keys:
            raise Unsupported(
                f"task=associative_recall has 1 to {self.num_keys} pairs, all keys being distinct (task.num_keys); "
                f"got a length of {length}"
            )
        # Double precision: in single, equal keys would favour the order of the alphabet.
        dealt = torch.rand(batch_size, self.num_keys, generator=generator, dtype=torch.float64)
        keys = dealt.argsort(-1)[:, :length]
        values = self.num_keys + torch.randint(self.num_values, (batch_size, length), generator=generator)
        order = torch.rand(batch_size, length, generator=generator, dtype=torch.float64).argsort(-1)
        begin = torch.full((batch_size, 1), self._begin)
        pairs = torch.stack([keys, values], -1).flatten(1)
        tokens = torch.cat([begin, pairs, keys.gather(1, order)], 1)
        targets = torch.cat([begin, pairs, values.gather(1, order)], 1)
        return Batch(tokens, targets, counted=torch.arange(tokens.shape[1]) > 2 * length)

    def input_span(self, length: int) -> slice:
        return slice(1, 2 * length + 1)

    def chance(self, metric: str, length: int) -> float:
        return float(self.num_values) ** -(length if metric == "exact_match" else 1)
