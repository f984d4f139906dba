import hashlib
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn import functional

from experiments.tasks import Batch, Grid, ask, tasks

SIDE, LEVELS, DIGITS = 8, 17, 10
SPLITS = {"train": slice(0, 1197), "validation": slice(1197, 1497), "test": slice(1497, 1797)}
"""Of the images in an order drawn once: six tenths are trained on, and a tenth and a half validated."""


@tasks.register("digits")
class Digits(Grid):
    """Name the digit in an image, whose pixels are the cells of a grid; finer grids show the same images enlarged.

    The 1797 handwritten digits that come with scikit-learn (``pip install 'pe_zoo[digits]'``): 8 × 8 pixels of 17
    levels, each a token, row by row, and a mark that asks. They are trained on at that resolution; at another one they
    are interpolated bilinearly and rounded to the same levels. A sixth of them is validated on and another one tested
    on, drawn once for all seeds.

    Chance: ``1 / 10``. Best guess from position: 0.12 at 8, the share of the commonest digit of the test images.

    Args:
        train_length: side of the images trained on, at least 2; 8 is the pixels' own.
        min_length: smallest side trained on, between 2 and ``train_length``.
    """

    metrics = ("token_accuracy",)
    converged_at = 0.9
    shortest = 2
    own_split = True
    marks = 1
    num_answers = DIGITS

    def __init__(self, *, train_length: int = 8, min_length: int = 8) -> None:
        self.set_lengths(train_length, min_length)
        self._images, self._digits = _data()
        self.vocab_size = LEVELS + 2

    def answer_size(self, length: int) -> int:
        return 1

    def sample(self, batch_size: int, length: int, generator: Generator, *, split: str, causal: bool) -> Batch:
        self.check_length(length)
        part = range(len(self._images))[SPLITS[split]]
        drawn = part.start + torch.randint(len(part), (batch_size,), generator=generator)
        pixels = self._images[drawn]
        if length != SIDE:
            size = (length, length)
            pixels = functional.interpolate(pixels.unsqueeze(1), size, mode="bilinear", antialias=True).squeeze(1)
        mark = torch.full((batch_size, 1), LEVELS + 1)
        return ask(pixels.flatten(1).round().long(), mark, self._digits[drawn, None], begin=LEVELS)

    def input_span(self, length: int) -> slice:
        return slice(1, 1 + length**2)

    def position_guess(self, metric: str, length: int) -> float:
        return float(self._digits[SPLITS["test"]].bincount().max()) / len(self._digits[SPLITS["test"]])

    @classmethod
    def data_sha256(cls, **knobs: Any) -> str:
        images, digits = _data()
        return hashlib.sha256(images.numpy().tobytes() + digits.numpy().tobytes()).hexdigest()

    def provenance(self) -> dict[str, Any]:
        parts = {name: len(range(len(self._images))[part]) for name, part in SPLITS.items()}
        return {"source": "sklearn.datasets.load_digits", "images": parts, "sha256": self.data_sha256()}


@cache
def _data() -> tuple[Tensor, Tensor]:
    """Images ``(1797, 8, 8)`` float32 and their digits ``(1797,)`` int64, in an order drawn once."""
    try:
        loaded = import_module("sklearn.datasets").load_digits()
    except ImportError as error:
        raise ValueError('task=digits needs the package scikit-learn: pip install "pe_zoo[digits]"') from error
    order = torch.randperm(len(loaded.target), generator=Generator().manual_seed(0))
    return torch.tensor(loaded.images, dtype=torch.float32)[order], torch.tensor(loaded.target).long()[order]
