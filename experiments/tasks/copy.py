"""Copy a random word."""

from __future__ import annotations

import torch
from torch import Tensor

from experiments.tasks._task import tasks
from experiments.tasks._transduction import Transduction


@tasks.register("copy")
class Copy(Transduction):
    """Say a random word again: ``3 1 2 | 3 1 2``. Retrieval at one fixed distance; symbols may repeat."""

    def answer(self, word: Tensor) -> Tensor:
        return word

    def sources(self, length: int) -> Tensor:
        return torch.arange(length)
