import torch
from torch import Generator, Tensor

from experiments.tasks import Hidden, Placed, tasks
from pe_zoo import Unsupported
from pe_zoo._knobs import whole


@tasks.register("passkey")
class Passkey(Hidden):
    """Find the digits that stood after a mark, somewhere in a text of filler: ``a b | 7 3 a b c | 7 3``.

    One mark stands for *the pass key is*, before the digits and again at the end, where they are asked for. The filler
    repeats a few symbols in turn, and starts again after the digits. All places of the key are equally likely. Length
    counts filler. Passkey retrieval of Mohtashami & Jaggi (2023), arXiv:2305.16300, in symbols: there a pretrained
    model reads English in which five sentences repeat, and the key, up to 50000, is given twice.

    Chance: ``1 / num_symbols`` a digit, ``num_symbols ** -num_digits`` a key. Best guess from position: no better.

    Args:
        num_symbols: number of digits to choose from, at least 2.
        num_digits: digits of a key, at least 1.
        num_fillers: kinds of filler, at least 1.
    """

    def __init__(
        self,
        *,
        train_length: int = 32,
        min_length: int = 1,
        num_symbols: int = 10,
        num_digits: int = 5,
        num_fillers: int = 5,
    ) -> None:
        self.num_hidden = whole("task.num_digits", num_digits, at_least=1)
        self.num_noise = whole("task.num_fillers", num_fillers, at_least=1)
        super().__init__(train_length=train_length, min_length=min_length, num_symbols=num_symbols)

    def problem_size(self, length: int) -> int:
        return length + 1 + self.num_hidden

    def text(self, hidden: Tensor, length: int, generator: Generator) -> Tensor:
        return self._around(hidden, length, torch.randint(length + 1, (len(hidden), 1), generator=generator))

    def places(self, length: int) -> int:
        return length + 1

    def placed(
        self, place: int, batch_size: int, length: int, generator: Generator, *, causal: bool, other: int | None = None
    ) -> Placed:
        self.check_length(length)
        if other is not None:
            raise Unsupported(f"task={self.name} has one key, and no other in its stead")
        hidden = torch.randint(self.num_symbols, (batch_size, self.num_hidden), generator=generator)
        return Placed(self.posed(self._around(hidden, length, torch.tensor(place)), hidden, causal=causal))

    def _around(self, hidden: Tensor, length: int, depth: Tensor) -> Tensor:
        """Put keys into filler, after as many symbols of it as ``depth``, ``(batch, 1)`` or one number, says."""
        batch_size, num_hidden = hidden.shape
        since = (torch.arange(length + 1 + num_hidden) - depth).expand(batch_size, -1)
        filler = self._noise + torch.where(since < 0, since + depth, since - 1 - num_hidden) % self.num_noise
        key = torch.cat([torch.full((batch_size, 1), self._mark), hidden], 1).gather(1, since.clamp(0, num_hidden))
        return torch.where((since >= 0) & (since <= num_hidden), key, filler)
