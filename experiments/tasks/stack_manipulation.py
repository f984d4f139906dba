"""Push to a stack, pop from it, and say what is left."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from experiments.tasks.kinds.chomsky import Ended
from experiments.tasks.kinds.task import tasks

POP, PUSH_0, END = 2, 3, 2


@tasks.register("stack_manipulation")
class StackManipulation(Ended):
    """Say the stack that is left, from the top, after some pushes and pops: ``0 1 POP PUSH0`` to ``0 0 END``.

        tokens    ^ 0 1 2 3 _ _ _ _ _
        targets   . . . . . 0 0 2 0 0

    A stack of 0s and 1s from the bottom, then actions (2: pop, 3: push 0, 4: push 1); popping an empty stack does
    nothing. How many symbols are stack is uniform from 1 up to all but one. 2 ends the answer, 0 fills the blanks.

    Delétang et al. (2023), arXiv:2207.02098, as Ruoss et al. (2023), arXiv:2305.16843, train encoders on it; there
    without ``^``, and accuracy is over the symbols up to the end, here over all blanks. A deterministic
    context-free task.

    Chance: ``1 / 3`` a symbol, ``3 ** -(length + 1)`` an answer. Place alone: 0.626 and 0.00581 at length 16.

    Args:
        train_length: longest word trained on, stack and actions, at least 1; 40 published, 16 here for quick training.
        min_length: shortest word trained on, between 1 and ``train_length``.
    """

    def __init__(self, *, train_length: int = 16, min_length: int = 1) -> None:
        super().__init__(train_length=train_length, min_length=min_length, num_symbols=5)
        self.num_answers = 3

    def words(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        sizes = torch.randint(1, max(2, length), (batch_size, 1), generator=generator)
        stacks = torch.randint(2, (batch_size, length), generator=generator)
        actions = torch.randint(POP, 5, (batch_size, length), generator=generator)
        return torch.where(torch.arange(length) < sizes, stacks, actions)

    def answer(self, word: Tensor) -> Tensor:
        length = word.shape[1]
        # The first symbols are pushes like any other. A pop of the empty stack moves the ground, not the height.
        walked = torch.where(word == POP, -1, 1).cumsum(1)
        heights = walked - walked.cummin(1).values.clamp(max=0)
        lowest_from_here = heights.flip(1).cummin(1).values.flip(1)
        stays = (word != POP) & (lowest_from_here == heights)
        places = torch.where(stays, heights[:, -1:] - heights, length + 1)
        answer = torch.zeros(len(word), length + 2, dtype=torch.long).scatter_(1, places, word % PUSH_0)
        return answer[:, :-1].scatter(1, heights[:, -1:], END)

    def position_guess(self, metric: str, length: int) -> float:
        """From how high the stack is in the end; what it holds is as likely as its complement."""
        heights = final_heights(length)
        if metric == "exact_match":
            return float((heights * 0.5 ** np.arange(length + 1)).max())
        lower = np.cumsum(heights) - heights
        zero = lower + (1 - lower - heights) / 2
        return float(np.maximum(zero, heights).mean())


@lru_cache
def final_heights(length: int) -> NDArray[np.float64]:
    """Probability of each height, from 0 to ``length``, of the stack that a word of a length leaves."""
    heights = np.zeros(length + 1)
    if length == 1:
        heights[1] = 1
    for size in range(1, length):
        heights[size] += 1 / (length - 1)
        popped = np.append(heights[1:], 0) / 3
        popped[0] += heights[0] / 3
        heights = popped + np.append(0, heights[:-1]) * 2 / 3
    return heights
