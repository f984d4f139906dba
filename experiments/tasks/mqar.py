import math

import torch
from torch import Generator

from experiments.tasks import Batch, Task, shuffles, tasks
from pe_zoo._knobs import number, whole


@tasks.register("mqar")
class MQAR(Task):
    """Recall the value of each key where the key comes again, among noise. Retrieval by content at many distances.

        tokens    ^ a 6 b 4 b 5 a b
        targets             4   6       (slots=1)

    Multi-query associative recall as drawn by Arora et al. (2023), arXiv:2312.04927, §4.1, and their code: pairs of a
    key and a value, all different; then ``slots`` times as many pairs of places, where each key comes once more. Early
    places are likelier than late ones, by a power law, and noise of any key or value fills the rest. Only repeated keys
    are scored. Length counts pairs. No answer is read: causal and bidirectional models get the same tokens. Departures:
    there 8192 tokens, half of them keys; here keys repeat in uniform order, at the same places in all sequences of a
    batch. ``associative_recall`` has neither gaps nor noise.

    Chance: ``1 / num_values`` a value, ``num_values ** -length`` all of them. Best guess from position: 0.0156 and
    6.56e-08 at length 4.

    Args:
        num_keys: number of keys, at least 2, ``train_length`` and any other length asked for.
        num_values: number of values, likewise; none is a key.
        slots: pairs of places after the pairs, for each of them, at least 1; 7 makes 4 pairs a sequence of 64.
        power: of the law of gaps, ``gap ** (power - 1)``, in (0, 1]; 1: all gaps are equally likely.
    """

    def __init__(
        self,
        *,
        train_length: int = 4,
        min_length: int = 1,
        num_keys: int = 64,
        num_values: int = 64,
        slots: int = 7,
        power: float = 0.01,
    ) -> None:
        self.num_keys = whole("task.num_keys", num_keys, at_least=2)
        self.num_values = self.num_answers = whole("task.num_values", num_values, at_least=2)
        self.slots = whole("task.slots", slots, at_least=1)
        self.power = number("task.power", power, above=0, at_most=1)
        self.limit = min(("num_keys", num_keys), ("num_values", num_values), key=lambda knob: knob[1])
        self.set_lengths(train_length, min_length)
        self.vocab_size = num_keys + num_values + 1

    def sequence_length(self, length: int) -> int:
        return 1 + 2 * length * (1 + self.slots)

    def sample(self, batch_size: int, length: int, generator: Generator, *, split: str, causal: bool) -> Batch:
        self.check_length(length)
        keys = shuffles(batch_size, self.num_keys, generator)[:, :length]
        values = self.num_keys + shuffles(batch_size, self.num_values, generator)[:, :length]
        slots = torch.arange(1, self.slots * length + 1, dtype=torch.float64) ** (self.power - 1)
        asked = 2 * torch.multinomial(slots, length, generator=generator)
        order = shuffles(batch_size, length, generator)
        rest = torch.randint(self.vocab_size - 1, (batch_size, 2 * len(slots)), generator=generator)
        answers = rest.clone()
        rest[:, asked], answers[:, asked] = keys.gather(1, order), values.gather(1, order)
        begin = torch.full((batch_size, 1), self.vocab_size - 1)
        pairs = torch.cat([begin, torch.stack([keys, values], -1).flatten(1)], 1)
        counted = torch.zeros(self.sequence_length(length), dtype=torch.bool)
        counted[pairs.shape[1] + asked] = True
        return Batch(torch.cat([pairs, rest], 1), torch.cat([pairs, answers], 1), counted)

    def input_span(self, length: int) -> slice:
        return slice(1, 2 * length + 1)

    def position_guess(self, metric: str, length: int) -> float:
        if metric == "exact_match" and length <= self.num_values:
            return 1 / math.perm(self.num_values, length)
        return self.chance(metric, length)
