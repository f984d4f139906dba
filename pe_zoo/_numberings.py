"""Numberings: which numbers the positions of a sequence get. Data, made outside the model.

A numbering multiplies with every encoder and is never a second copy of one. Each sample gets a draw of
its own, shared by all layers and by queries and keys.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Generator, Tensor

from pe_zoo._encoder import Unsupported
from pe_zoo._knobs import whole
from pe_zoo._registry import Registry


class Numbering:
    """How positions are assigned, in training and in evaluation. Keyword-only arguments are knobs."""

    name: ClassVar[str]

    def train(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        """Positions of a training batch: ``(length,)`` or ``(batch, length)``, float32."""
        raise NotImplementedError

    def evaluate(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        """Positions of an evaluation batch: drawn as in training unless a method says otherwise."""
        return self.train(batch_size, length, generator)

    def highest(self, length: int) -> int:
        """The highest position that training at a length can draw: an encoder must reach it."""
        raise NotImplementedError


numberings: Registry[Numbering] = Registry("numbering", Numbering)


def count_up(length: int) -> Tensor:
    """0, 1, 2, … as ``(length,)`` float32, which is exact up to 16 777 216.

    >>> count_up(3)
    tensor([0., 1., 2.])
    """
    return torch.arange(length, dtype=torch.float32)


@numberings.register("sequential")
class Sequential(Numbering):
    """0, 1, 2, …: the usual one."""

    def train(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        return count_up(length)

    def highest(self, length: int) -> int:
        return length - 1


@numberings.register("offset")
class Offset(Numbering):
    """A random start: each training sample counts up from an offset of its own.
    SHAPE, Kiyono et al. (2021), arXiv:2109.05644, §3.

        positions = k + (0, 1, 2, …),      k ~ U{0 … num_offsets − 1}

    Args:
        num_offsets: how many starts there are, at least 1; 500 as published.
        evaluate_at: the start in evaluation, at least 0.

    Departures: the official code evaluates at ``num_offsets``, a start that training never drew; here it
    is 0 unless asked.
    """

    def __init__(self, *, num_offsets: int = 500, evaluate_at: int = 0) -> None:
        self.num_offsets = whole("offset num_offsets", num_offsets, at_least=1)
        self.evaluate_at = whole("offset evaluate_at", evaluate_at, at_least=0)

    def train(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        starts = torch.randint(self.num_offsets, (batch_size, 1), generator=generator)
        return starts + count_up(length)

    def evaluate(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        return self.evaluate_at + count_up(length)

    def highest(self, length: int) -> int:
        return self.num_offsets - 1 + length - 1


@numberings.register("randomized")
class Randomized(Numbering):
    """Numbers drawn without replacement from a long range and sorted, also in evaluation.
    Ruoss et al. (2023), arXiv:2305.16843, §3.

        positions = sorted sample of ``length`` numbers out of {0 … limit − 1}

    Args:
        limit: size of the range, at least the longest length evaluated; 2048 as published.

    Departures: a draw per sample, shared by all layers; the official code draws once per batch, and for
    some of its encoders anew in each layer.
    """

    def __init__(self, *, limit: int = 2048) -> None:
        self.limit = whole("randomized limit", limit, at_least=1)

    def train(self, batch_size: int, length: int, generator: Generator) -> Tensor:
        if length > self.limit:
            raise Unsupported(
                f"randomized draws {length} different positions out of limit={self.limit}; set positions.limit higher"
            )
        keys = torch.rand(batch_size, self.limit, generator=generator)
        return keys.topk(length, dim=-1, sorted=False).indices.sort(-1).values.float()

    def highest(self, length: int) -> int:
        return self.limit - 1
