import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor

from experiments.tasks import Stepwise, tasks
from pe_zoo._knobs import one_of, whole

OPERATORS = {"+": np.add, "-": np.subtract, "*": np.multiply}


@tasks.register("modular_arithmetic")
class ModularArithmetic(Stepwise):
    """Evaluate an expression from left to right, modulo 5: ``2 + 4 * 3 | 3``. State tracking.

        scratchpad=true    tokens    ^ 2 + 4 * 3 | 2 1        scratchpad=false    ^ 2 + 4 * 3 |
                           targets   . . . . . . 2 1 3                            . . . . . . 3

    Length counts operands. Operators have no precedence: (2 + 4) · 3. The scratchpad holds the value after each
    operand, the first included; a bidirectional model is asked for all of them at once. Operands and operators are
    uniform. After Delétang et al. (2023), arXiv:2207.02098, where a product comes before sums and there is no
    scratchpad. ``positions=coupled`` gives an operand, the operator before it and the value after it one number.

    Chance: ``1 / modulus`` a value, ``modulus ** -length`` all of them. Best guess from position: 0.267 and 2.17e-06 at
    length 16.

    Args:
        modulus: operands and values are the numbers below it, at least 2.
        operators: those that occur, ``+``, ``+-`` or ``+-*``.
        scratchpad: whether the value after each operand is asked for, not the last alone.
        index_hints: longest length whose steps may have a token for their place before them, in the scratchpad too, at
            least ``train_length``; 0: no such hints.
    """

    def __init__(
        self,
        *,
        train_length: int = 16,
        min_length: int = 1,
        modulus: int = 5,
        operators: str = "+-*",
        scratchpad: bool = True,
        index_hints: int = 0,
    ) -> None:
        self.modulus = self.num_answers = whole("task.modulus", modulus, at_least=2)
        self.num_symbols = modulus + len(one_of("task.operators", operators, ("+", "+-", "+-*")))
        lengths = {"train_length": train_length, "min_length": min_length}
        super().__init__(**lengths, scratchpad=scratchpad, index_hints=index_hints)
        numbers = np.arange(modulus)
        tables = np.stack([OPERATORS[operator].outer(numbers, numbers) % modulus for operator in operators])
        self._table = torch.from_numpy(tables)
        # How likely each value is to follow each: a row for the value before.
        self._steps: npt.NDArray[np.float64] = np.eye(modulus)[tables].mean((0, 2))

    def problem_size(self, length: int) -> int:
        return 2 * length - 1

    def problems(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        symbols = torch.randint(self.modulus, (batch_size, 2 * length - 1), generator=generator)
        operators = torch.randint(len(self._table), (batch_size, length - 1), generator=generator)
        symbols[:, 1::2] = self.modulus + operators
        return symbols

    def values(self, problems: Tensor) -> Tensor:
        operands, operators = problems[:, ::2], problems[:, 1::2] - self.modulus
        values = [operands[:, 0]]
        for operator, operand in zip(operators.unbind(1), operands[:, 1:].unbind(1), strict=True):
            values.append(self._table[operator, values[-1], operand])
        return torch.stack(values, 1)

    def numbered(self, kind: str, length: int) -> tuple[Tensor, int, Tensor] | None:
        if kind != "coupled" or not self.scratchpad:
            return None
        return torch.arange(3, 2 * length + 2) // 2, 0, torch.arange(1, length + 1)

    def position_guess(self, metric: str, length: int) -> float:
        """Guess the likeliest value after each step of a Markov chain: multiplication makes zeros."""
        shares = paths = np.full(self.modulus, 1 / self.modulus)
        tops = [shares.max()]
        for _ in range(length - 1):
            shares, paths = shares @ self._steps, (paths[:, None] * self._steps).max(0)
            tops.append(shares.max())
        if metric == "exact_match" and self.scratchpad:
            best = paths.max()
        else:
            best = np.mean(tops) if self.scratchpad else tops[-1]
        return max(float(best), self.chance(metric, length))  # equal ones stay equal under rounding
