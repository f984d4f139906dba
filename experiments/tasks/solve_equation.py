import torch
from torch import Generator, Tensor

from experiments.tasks import Question, tasks
from pe_zoo._knobs import whole


@tasks.register("solve_equation")
class SolveEquation(Question):
    """Solve an equation with brackets for x, modulo 5: ``( x - 2 ) = 4 | 1``.

        tokens    ^ 7 9 6 2 8 10 4 |
        targets   . . . . . . .  . 1

    An expression is a digit (3, -3, (3) or (-3), whichever fills the room), or the sum or difference of two in
    brackets; their lengths are uniform over those possible. x stands for the first digit from a uniform place on. There
    is one solution, and all digits are equally likely. After the digits come + (5), - (6), brackets (7, 8), x (9) and =
    (10). Length counts symbols. Delétang et al. (2023), arXiv:2207.02098: a deterministic context-free task.

    Chance: ``1 / modulus``. Best guess from position: no better.

    Args:
        modulus: there are as many digits, at least 2; 5 as published.
    """

    shortest = 3

    def __init__(self, *, train_length: int = 16, min_length: int = 3, modulus: int = 5) -> None:
        self.modulus = self.num_answers = whole("task.modulus", modulus, at_least=2)
        self.num_symbols = modulus + 6
        super().__init__(train_length=train_length, min_length=min_length)

    def draw(self, batch_size: int, length: int, generator: Generator) -> tuple[Tensor, Tensor]:
        size, x, equals = length - 2, self.modulus + 4, self.modulus + 5
        words, signs = self._expressions(batch_size, size, generator)
        values = (words * signs).sum(1, keepdim=True) % self.modulus
        starts = torch.randint(size, (batch_size, 1), generator=generator)
        further = (torch.arange(size) - starts) % size
        chosen = further.masked_fill(signs == 0, size).argmin(1, keepdim=True)
        solutions = words.gather(1, chosen)
        return torch.cat([words.scatter(1, chosen, x), torch.full_like(values, equals), values], 1), solutions

    def _expressions(self, batch_size: int, size: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Draw expressions, ``(batch, size)``, and the sign that each digit counts with, 0 where there is none."""
        digits = torch.randint(self.modulus, (batch_size, size), generator=generator)
        # One draw for each place, of which each split takes two: that of its opening bracket and of its operator.
        draws = torch.rand(batch_size, size, generator=generator, dtype=torch.float64)
        # Lists: brackets are nested differently in each expression, and of short ones a batch holds few.
        expressions = [self._bracketed(*drawn) for drawn in zip(digits.tolist(), draws.tolist(), strict=True)]
        words, signs = zip(*expressions, strict=True)
        return torch.tensor(words), torch.tensor(signs)

    def _bracketed(self, word: list[int], draws: list[float]) -> tuple[list[int], list[int]]:
        """Put brackets and operators among the digits, in place."""
        plus, minus, opening, closing = range(self.modulus, self.modulus + 4)
        signs = [0] * len(word)
        pending = [(0, len(word), 1)]
        while pending:
            start, room, sign = pending.pop()
            if room >= 3:
                word[start], word[start + room - 1] = opening, closing
            if room <= 4:
                digit = start + (room >= 3)
                if room % 2 == 0:
                    word[digit] = minus
                    digit, sign = digit + 1, -sign
                signs[digit] = sign
                continue
            left = 1 + int(draws[start] * (room - 4))
            operator = start + 1 + left
            added = draws[operator] < 0.5
            word[operator] = plus if added else minus
            pending += [(start + 1, left, sign), (operator + 1, room - left - 3, sign if added else -sign)]
        return word, signs
