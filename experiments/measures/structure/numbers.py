"""What an encoder is before any training, in numbers: see `structure` for the question, `numbers` for the answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

import torch
from torch import Tensor

from experiments.measures.structure import codes as of_codes
from experiments.measures.structure import kernel_numbers as shapes
from experiments.measures.structure import model_numbers as action
from experiments.measures.structure.kernel import codes, exact, kernel, kernel_weights
from experiments.model.transformer import Transformer
from experiments.rows.row import Row
from experiments.training.evaluate import Subject
from pe_zoo import Encoder, Unsupported

NAME = "structure"
LENGTHS = (1, 2, 4, 8)
"""Training lengths at which the entropy of attention is taken."""
LONGER = (2, 4)
"""Training lengths at which is counted what training did not cover."""

Where = dict[str, Any]
"""Condition and coordinates of a row."""
Values = list[tuple[Where, float]]


def numbers(subject: Subject, *, reach: int, shifts: tuple[int, ...], draws: int) -> list[Row]:
    """Everything that can be said of the untrained encoder in numbers, as rows; see ``results/README.md``.

    Positions are 0, 1, 2, … whatever the numbering, but for ``uncovered``. Everything is float64 on the CPU, but for
    ``receptive_field``; parameters are those of layer 0. Kernel and weights are those of `kernel`.

    Args:
        subject: only its task's lengths, its model as it was initialised, and its numbering are asked.
        reach: training lengths looked at, at least 2.
        shifts: by how much all positions go up, each above 0.
        draws: contents that a kernel is a mean over, at least 1.
    """
    model = subject.initial().to("cpu").requires_grad_(False)
    it = Structure(subject, model, reach * model.geometry.train_length, draws)
    return [
        *_of_kernel(it),
        *_of_shifts(it, shifts),
        *_of_weights(it),
        *_of_models(it),
        *of_codes.rows(it),
        *of_codes.frequency_rows(it),
    ]


@dataclass(frozen=True, eq=False)
class Structure:
    """An encoder under the glass, and the rows of what is found.

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


def _of_kernel(it: Structure) -> list[Row]:

    return [
        *it.rows(
            "translation_invariance",
            lambda: by_head(shapes.translation_invariance(it.kernel, causal=it.model.causal)),
            n=it.length,
        ),
        *it.rows("monotonicity", lambda: by_head(shapes.falling_steps(it.curve)), n=it.length - 1),
        *it.row(
            "monotonicity",
            lambda: shapes.falling_steps(it.curve, shapes.LOCAL).mean().item(),
            n=min(it.length - 1, shapes.LOCAL),
            condition="within",
            size=shapes.LOCAL,
        ),
        *it.rows("rank_correlation", lambda: by_head(shapes.rank_correlation(it.curve)), n=it.length),
    ]


def _of_shifts(it: Structure, shifts: tuple[int, ...]) -> list[Row]:
    def changed(shift: int) -> float:
        return action.score_shift_change(
            it.encoder, shift, it.subject.stream("structure/shift"), causal=it.model.causal
        )

    return [
        row
        for shift in shifts
        for row in it.row("score_shift_change", partial(changed, shift), n=it.train_length, shift=shift)
    ]


def _of_weights(it: Structure) -> list[Row]:
    lengths = [multiple * it.train_length for multiple in LENGTHS]
    weights = cache(it.weights)  # asked for several times, and slow for some encoders

    def windows(share: float) -> Values:
        return by_head(shapes.window(weights(it.length), share))

    def entropies(keys: int) -> Values:
        return by_head(shapes.entropy(weights(keys)), sequence_length=keys)

    def slopes() -> Values:
        return by_head(shapes.slope(lengths, torch.stack([shapes.entropy(weights(keys)) for keys in lengths])))

    rows = it.rows("half_life", partial(windows, 0.5), n=it.length)
    rows += it.rows("window_99", partial(windows, 0.99), n=it.length)
    for keys in lengths:
        rows += it.rows("attention_entropy", partial(entropies, keys), n=keys, asked=({"sequence_length": keys},))
    return rows + it.rows("entropy_growth", slopes, n=len(lengths))


def _of_models(it: Structure) -> list[Row]:
    rows = it.row("direction_awareness", lambda: action.direction_awareness(it.subject, it.model), n=action.SEQUENCES)
    for keys in (multiple * it.train_length for multiple in LONGER):
        try:
            share, cells = action.uncovered(it.subject, it.encoder, keys, it.draws)
        except Unsupported as reason:
            rows.append(it.subject.cannot(NAME, "uncovered", reason, sequence_length=keys))
        else:
            rows.append(it.subject.row(NAME, "uncovered", sequence_length=keys, value=share, n=cells))
    return rows + it.row(
        "receptive_field", lambda: action.receptive_field(it.subject, it.model, it.length), n=action.SEQUENCES
    )
