import torch
from torch import Generator

from experiments.tasks import Batch, Task, shuffles, tasks
from pe_zoo._knobs import whole


@tasks.register("indirect_indexing")
class IndirectIndexing(Task):
    """Name the symbol that stands some places before or after another one. Found by content, then by distance.

        tokens    ^ 3 1 4 1 -1 3 +2 4 -2
        targets              3    4    3

    The symbols of a word differ. Each of them is then asked about once, in uniform order: the symbol and an offset,
    uniform over those of at most ``max_offset`` places that stay within the word. Length counts the symbols of the
    word. No answer is read: causal and bidirectional models get the same tokens. Indirect indexing of Gopalakrishnan et
    al. (2025), arXiv:2509.10534. Departures: there one symbol is asked about, and letters make the word; here longer
    words bring no new offset.

    Chance: ``1 / num_symbols``. Best guess from position: no better. Any other symbol of the word is right once in
    ``length - 1``.

    Args:
        num_symbols: size of the alphabet, at least 2, ``train_length`` and any other length asked for.
        max_offset: most places from one symbol to the other, at least 1.
    """

    metrics = ("token_accuracy",)
    shortest = 2

    def __init__(
        self, *, train_length: int = 8, min_length: int = 2, num_symbols: int = 64, max_offset: int = 4
    ) -> None:
        self.num_answers = whole("task.num_symbols", num_symbols, at_least=2)
        self.max_offset = whole("task.max_offset", max_offset, at_least=1)
        self.limit = "num_symbols", num_symbols
        self.set_lengths(train_length, min_length)
        self.vocab_size = num_symbols + 2 * max_offset + 1

    def sequence_length(self, length: int) -> int:
        return 3 * length + 1

    def sample(self, batch_size: int, length: int, generator: Generator, *, split: str, causal: bool) -> Batch:
        self.check_length(length)
        word = shuffles(batch_size, self.num_answers, generator)[:, :length]
        steps = torch.arange(length) - torch.arange(length)[:, None]
        within = (steps != 0) & (steps.abs() <= self.max_offset)
        target = torch.multinomial(within.double(), batch_size, replacement=True, generator=generator).T
        offset = target - torch.arange(length)
        tokens = self.num_answers + self.max_offset + offset - (offset > 0).long()  # there is no offset of 0
        order = shuffles(batch_size, length, generator)
        source, offset, answer = (of.gather(1, order) for of in (word, tokens, word.gather(1, target)))
        begin = torch.full((batch_size, 1), self.vocab_size - 1)
        read, right = (torch.stack([source, last], -1).flatten(1) for last in (offset, answer))
        counted = torch.zeros(self.sequence_length(length), dtype=torch.bool)
        counted[length + 2 :: 2] = True
        return Batch(torch.cat([begin, word, read], 1), torch.cat([begin, word, right], 1), counted)

    def input_span(self, length: int) -> slice:
        return slice(1, length + 1)
