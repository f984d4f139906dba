import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn import functional

from experiments.tasks import Hinted, tasks
from pe_zoo._knobs import one_of, true_or_false, whole


@tasks.register("addition")
class Addition(Hinted):
    """Add two numbers of equal length with carries: ``3 5 + 9 0 | 2 6 0``, which is 53 + 9 = 062.

        causal    tokens    ^ 3 5 + 9 0 | 2 6        bidirectional    ^ 3 5 + 9 0 | | |
                  targets   . . . . . . 2 6 0                         . . . . . . 2 6 0

    Length counts the digits of each number. The sum always has one digit more, which may be 0. Both numbers are uniform
    over those of the length. Digits are written least significant first everywhere (``reverse=all``, as McLeish et al.
    (2024), arXiv:2405.17399, §3), in the sum alone (``answer``, as Cho et al. (2024), arXiv:2405.20671, §3), or nowhere
    (``neither``). ``positions=coupled`` numbers digits by their significance from 1 on; ``+`` is 0, and the mark stands
    one step before the sum's first digit. ``positions=abacus`` counts within each number as it is written. Both papers
    also add numbers of different lengths.

    Chance: ``1 / base`` a digit, ``base ** -(length + 1)`` a sum. Best guess from position: 0.144 and 1e-08 at length
    8.

    Args:
        base: of the numbers, at least 2.
        reverse: what is written least significant digit first, ``all``, ``answer`` or ``neither``.
        zero_padded: whether a number may begin with zeros, so that shorter ones are among them; else its leading digit
            is not 0 unless it is the only one.
        index_hints: longest length whose digits may have a token for their significance before them, as ``a 3 b 5 + a 9
            b 0 | a 2 b 6 c 0``, at least ``train_length``; 0: no such hints.
    """

    def __init__(
        self,
        *,
        train_length: int = 8,
        min_length: int = 1,
        base: int = 10,
        reverse: str = "all",
        zero_padded: bool = True,
        index_hints: int = 0,
    ) -> None:
        self.base = self.num_answers = whole("task.base", base, at_least=2)
        self.num_symbols = base + 1
        self.reverse = one_of("task.reverse", reverse, ("all", "answer", "neither"))
        self.zero_padded = true_or_false("task.zero_padded", zero_padded)
        super().__init__(train_length=train_length, min_length=min_length, index_hints=index_hints)

    def problem_size(self, length: int) -> int:
        return 2 * length + 1

    def answer_size(self, length: int) -> int:
        return length + 1

    def problems(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        digits = torch.randint(self.base, (batch_size, 2, length), generator=generator)
        leading = torch.randint(self._lowest(length), self.base, (batch_size, 2), generator=generator)
        digits[:, :, -1 if self.reverse == "all" else 0] = leading
        return torch.cat([digits[:, 0], torch.full((batch_size, 1), self.base), digits[:, 1]], 1)

    def solve(self, problems: Tensor) -> Tensor:
        length = problems.shape[1] // 2
        sums = problems[:, :length] + problems[:, length + 1 :]
        digits = carried(sums if self.reverse == "all" else sums.flip(-1), self.base)
        return digits.flip(-1) if self.reverse == "neither" else digits

    def delimiters(self) -> list[int]:
        """Return the tokens that end a number: plus and the mark."""
        return [self.base, *super().delimiters()]

    def numbered(self, kind: str, length: int) -> tuple[Tensor, int, Tensor] | None:
        number, total = torch.arange(1, length + 1), torch.arange(1, length + 2)
        plus, mark = torch.zeros(1, dtype=torch.long), 0
        if kind == "coupled":
            number = number if self.reverse == "all" else number.flip(0)
            if self.reverse == "neither":
                total, mark = total.flip(0), length + 2
        elif kind != "abacus":
            return None
        return torch.cat([number, plus, number]), mark, total

    def position_guess(self, metric: str, length: int) -> float:
        lowest = self._lowest(length)
        if metric == "exact_match":
            # The likeliest sum, lowest number plus highest, is that of every first number with one second.
            return float(self.base) ** (1 - length) / (self.base - lowest)
        # Of the sum's places, only those that the leading digits make are not uniform.
        carries = (1 - float(self.base) ** (1 - length)) / 2
        leading = np.ones(self.base - lowest) / (self.base - lowest)
        pairs = np.zeros(2 * self.base)
        pairs[2 * lowest : -1] = np.convolve(leading, leading)
        sums = ((1 - carries) * pairs + carries * np.roll(pairs, 1)).reshape(2, self.base)
        return float((length - 1) / self.base + sums.sum(0).max() + sums.sum(1).max()) / (length + 1)

    def _lowest(self, length: int) -> int:
        return 0 if self.zero_padded or length == 1 else 1


def carried(sums: Tensor, base: int) -> Tensor:
    """Carry sums of two digits, least significant first: ``(batch, length)`` to the digits of the whole, one more.

    >>> carried(torch.tensor([[15, 9, 3]]), 10)
    tensor([[5, 0, 4, 0]])
    """
    # A sum of base − 1 passes its carry on: the nearest lower place with another sum decides.
    deciding = torch.where(sums == base - 1, 0, torch.arange(sums.shape[-1])).cummax(-1).values
    carry = (sums.gather(-1, deciding) >= base).long()
    return (functional.pad(sums, (0, 1)) + functional.pad(carry, (1, 0))) % base
