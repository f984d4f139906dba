from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from experiments.tasks import Ended, tasks

POP, PUSH_0, END = 2, 3, 2


@tasks.register("stack_manipulation")
class StackManipulation(Ended):
    """Write the stack that is left, from the top, after pushes and pops: ``0 1 POP PUSH0`` to ``0 0 END``.

        tokens    ^ 0 1 2 3 _ _ _ _ _
        targets   . . . . . 0 0 2 0 0

    A stack of 0s and 1s from the bottom, then actions (2: pop, 3: push 0, 4: push 1); popping an empty stack does
    nothing. The stack's size is uniform from 1 up to all but one. 2 ends the answer, 0 fills the blanks. Delétang et
    al. (2023), arXiv:2207.02098: a deterministic context-free task.

    Chance: ``1 / 3`` a symbol, ``3 ** -(length + 1)`` an answer. Best guess from position: 0.626 and 0.00581 at length
    16.
    """

    def __init__(self, *, train_length: int = 16, min_length: int = 1) -> None:
        super().__init__(train_length=train_length, min_length=min_length, num_symbols=5)

    def problems(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        sizes = torch.randint(1, max(2, length), (batch_size, 1), generator=generator)
        stacks = torch.randint(2, (batch_size, length), generator=generator)
        actions = torch.randint(POP, 5, (batch_size, length), generator=generator)
        return torch.where(torch.arange(length) < sizes, stacks, actions)

    def solve(self, problems: Tensor) -> Tensor:
        length = problems.shape[1]
        # The first symbols are pushes like any other. A pop of the empty stack moves the ground, not the height.
        walked = torch.where(problems == POP, -1, 1).cumsum(1)
        heights = walked - walked.cummin(1).values.clamp(max=0)
        lowest_from_here = heights.flip(1).cummin(1).values.flip(1)
        stays = (problems != POP) & (lowest_from_here == heights)
        places = torch.where(stays, heights[:, -1:] - heights, length + 1)
        answer = torch.zeros(len(problems), length + 2, dtype=torch.long).scatter_(1, places, problems % PUSH_0)
        return answer[:, :-1].scatter(1, heights[:, -1:], END)

    def position_guess(self, metric: str, length: int) -> float:
        """Guess from the final height of the stack; its content is as likely as its complement."""
        heights = final_heights(length)
        if metric == "exact_match":
            return float((heights * 0.5 ** np.arange(length + 1)).max())
        lower = np.cumsum(heights) - heights
        zero = lower + (1 - lower - heights) / 2
        return float(np.maximum(zero, heights).mean())


@lru_cache
def final_heights(length: int) -> NDArray[np.float64]:
    """Return the probability of each final height of the stack, from 0 to ``length``."""
    heights = np.zeros(length + 1)
    if length == 1:
        heights[1] = 1
    for size in range(1, length):
        heights[size] += 1 / (length - 1)
        popped = np.append(heights[1:], 0) / 3
        popped[0] += heights[0] / 3
        heights = popped + np.append(0, heights[:-1]) * 2 / 3
    return heights
