"""An untrained encoder being examined, and how its findings become rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from experiments.measures.structure import NAME
from experiments.measures.structure import kernel_numbers as shapes
from experiments.measures.structure import model_numbers as action
from experiments.measures.structure.kernel import codes, exact, kernel, kernel_weights
from experiments.model.transformer import Transformer
from experiments.rows.row import Row
from experiments.training.evaluate import Subject
from pe_zoo import Encoder, Unsupported

Where = dict[str, Any]
"""Condition and coordinates of a row."""
Values = list[tuple[Where, float]]


@dataclass(frozen=True, eq=False)
class Structure:
    """An untrained encoder, its kernel, weights and codes, and the rows of each number.

    Args:
        subject: whose it is.
        model: untrained, on the CPU.
        length: positions looked at.
        draws: contents that a kernel is a mean over.
    """

    subject: Subject
    model: Transformer
    length: int
    draws: int

    @cached_property
    def encoder(self) -> Encoder:
        """In float64."""
        return exact(self.model.encoder)

    @property
    def train_length(self) -> int:
        """Training positions."""
        return self.model.geometry.train_length

    @cached_property
    def kernel(self) -> Tensor:
        """``(heads, length, length)``, as the model has it."""
        return self._kernel(self.length, causal=self.model.causal)

    @cached_property
    def curve(self) -> Tensor:
        """The kernel over distance, ``(heads, length)``."""
        return shapes.curve(self.kernel)

    def weights(self, length: int) -> Tensor:
        """What the last query of a sequence attends to, ``(heads, length)``."""
        causal = self.model.causal
        expected = self._kernel(length, causal=causal, queries=1)
        return kernel_weights(self.encoder, expected, count_up(length), causal=causal)[:, 0]

    def codes(self, positions: Tensor) -> Tensor:
        """What is added at these positions, ``(positions, model_dim)``."""
        if not self.encoder.overrides("embed"):
            raise Unsupported(f"{self.encoder.name} adds no vectors to the embeddings")
        return codes(self.encoder, positions)

    def rows(self, metric: str, measure: Callable[[], Values], *, n: int, asked: Iterable[Where] = ({},)) -> list[Row]:
        """The rows of a measurement; of what the encoder cannot do, one for each place that was asked."""
        try:
            values = measure()
        except Unsupported as reason:
            return [self.subject.cannot(NAME, metric, reason, **where) for where in asked]
        return [
            self.subject.row(NAME, metric, **where, value=float(value), n=n)
            if math.isfinite(value)
            else self.subject.cannot(NAME, metric, f"the value came out as {value}", **where)
            for where, value in values
        ]

    def row(self, metric: str, measure: Callable[[], float], *, n: int, **where: Any) -> list[Row]:
        """The one row of a measurement."""
        return self.rows(metric, lambda: [(where, measure())], n=n, asked=(where,))

    def _kernel(self, length: int, *, causal: bool, queries: int | None = None) -> Tensor:
        contents = self.subject.stream(action.CONTENTS)
        positions = count_up(length)
        return kernel(self.encoder, positions, contents, causal=causal, draws=self.draws, queries=queries)


def count_up(length: int) -> Tensor:
    """0, 1, 2, … as ``(length,)`` float64."""
    return torch.arange(length, dtype=torch.float64)


def by_head(values: Tensor, **where: Any) -> Values:
    """The mean over heads, then each head's own."""
    heads = [({**where, "head": head}, value.item()) for head, value in enumerate(values)]
    return [(where, values.mean().item()), *heads]
