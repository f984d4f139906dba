"""Tasks on a square grid: their lengths are its sides, and their places have a row and a column."""

import math

import torch
from torch import Tensor

from experiments.tasks.kinds.task import Task


class Grid(Task):
    """A begin token, the cells of a square grid row by row, and ``marks`` behind them.

    A length is the grid's side, so that longer means finer: ``length_extrapolation`` is resolution extrapolation.
    ``positions=grid`` numbers the cells by row and column, any other numbering all places one after another.
    """

    marks: int = 0

    def sequence_length(self, length: int) -> int:
        return 1 + length**2 + self.marks

    def numbers(self, kind: str, size: int, *, causal: bool) -> Tensor:
        """Return row and column of each place, ``(size, 2)`` int64, from 1; 0 and 0 of what is no cell."""
        if kind != "grid":
            return super().numbers(kind, size, causal=causal)
        # Measures may ask for sizes that are no whole grid: the last row is then cut.
        cells = max(0, size - 1 - self.marks)
        side = max(1, math.isqrt(max(0, cells - 1)) + 1)
        place = torch.arange(cells)
        numbered = torch.stack([1 + place // side, 1 + place % side], -1)
        return torch.cat([numbered.new_zeros(1, 2), numbered, numbered.new_zeros(self.marks, 2)])[:size]
