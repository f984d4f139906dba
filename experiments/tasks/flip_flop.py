import torch
from torch import Generator

from experiments.tasks import Batch, Task, tasks
from pe_zoo._knobs import number

WRITE, IGNORE, READ, BEGIN, HIDDEN = range(2, 7)


@tasks.register("flip_flop")
class FlipFlop(Task):
    """Read back the bit that was written last: ``w 1 i 0 r 1 i 0 r 1``. Retrieval from the latest of many candidates.

        tokens   ^ w 1 i 0 r 1 i 0 r          bidirectional    ^ w 1 i 0 r ? i 0 r
        targets            1       1                                     1       1

    Length counts instructions: write a bit, ignore one, or read; the first is a write and the last a read. Flip-flop
    language FFL(p) of Liu et al. (2023), arXiv:2306.00946: p is the share of ignores, the rest are half writes and half
    reads, and bits are uniform. As in its clean mode, only reads are trained on and scored; the glitch rate is 1 minus
    their accuracy. There 256 instructions with p = 0.8 are trained on, and 0.98 and 0.1 tested; here test sequences
    have the p of training. The sequences of a batch read at the same places.

    Chance: ``1 / 2``. Best guess from position: no better.

    Args:
        ignores: share of the instructions that are to be ignored, in [0, 1]; 0.8 in the paper.
    """

    drawn = "lengths by seed, some inputs held out, of one draw"
    metrics = ("token_accuracy",)
    shortest = 2
    vocab_size = HIDDEN + 1

    def __init__(self, *, train_length: int = 32, min_length: int = 2, ignores: float = 0.8) -> None:
        self.set_lengths(train_length, min_length)
        self.ignores = number("task.ignores", ignores, at_least=0, at_most=1)

    def sequence_length(self, length: int) -> int:
        return 2 * length

    def sample(self, batch_size: int, length: int, generator: Generator, *, split: str, causal: bool) -> Batch:
        self.check_length(length)
        # Which instructions are reads, (length,) bool, and which are writes, (batch, length).
        reads = torch.rand(length, generator=generator) < (1 - self.ignores) / 2
        reads[0], reads[-1] = False, True
        writes = torch.rand(batch_size, length, generator=generator) < (1 - self.ignores) / (1 + self.ignores)
        writes[:, 0] = True
        writes &= ~reads
        bits = torch.randint(2, (batch_size, length), generator=generator)
        latest = torch.where(writes, torch.arange(length), 0).cummax(-1).values
        bits = torch.where(reads, bits.gather(1, latest), bits)
        instructions = torch.where(reads, READ, torch.where(writes, WRITE, IGNORE))
        shown = bits if causal else bits.masked_fill(reads, HIDDEN)
        begin = torch.full((batch_size, 1), BEGIN)
        tokens = torch.cat([begin, torch.stack([instructions, shown], -1).flatten(1)[:, :-1]], 1)
        targets = torch.stack([instructions, bits], -1).flatten(1)
        return Batch(tokens, targets, counted=torch.stack([torch.zeros_like(reads), reads], -1).flatten())

    def input_span(self, length: int) -> slice:
        """Return all but the last read, whose answer depends on all of it."""
        return slice(1, 2 * length - 1)
