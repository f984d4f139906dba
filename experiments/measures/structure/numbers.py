"""Rows of numbers about an untrained encoder."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor

from experiments.measures.structure import NAME, behaviour, kernel, vectors
from experiments.measures.structure.kernel import count_up
from experiments.model.transformer import Transformer
from experiments.rows.row import Row
from experiments.training.evaluate import Subject
from pe_zoo import Encoder, Unsupported

LENGTHS = (1, 2, 4, 8)
LONGER = (2, 4)
NEAR = 16
OFFSETS = (1, 2, 4, 8, 16, 32)
"""Shifts, in positions, for which a linear map is fitted."""
LONG = 10_000
"""Positions among which codes should still differ, far beyond any length here."""
FAR = 1_000_000
ROUNDED = {"float32": torch.float32, "bfloat16": torch.bfloat16}

Where = dict[str, Any]
Found = float | Tensor | tuple[float, int] | list[tuple[Where, float]]
"""A value; values of the heads, ``(heads,)``; a value and its n; or values by place."""


def numbers(subject: Subject, *, reach: int, shifts: tuple[int, ...], draws: int) -> list[Row]:
    """Return all numbers of the untrained encoder as rows; ``docs/rows.md`` defines them.

    Positions are 0, 1, 2, … whatever the numbering, but for ``uncovered``. Everything is float64 on the CPU, but for
    ``receptive_field``; parameters are those of layer 0. ``reach`` is in training lengths.
    """
    model = subject.initial().to("cpu").requires_grad_(False)
    it = Untrained(subject, model, kernel.exact(model.encoder), reach * model.geometry.train_length, draws)
    return [*_of_kernel(it, shifts), *_of_weights(it), *_of_model(it), *_of_codes(it), *_of_waves(it)]


@dataclass(frozen=True, eq=False)
class Untrained:
    """An untrained model, its encoder in float64, and the number of positions and contents to examine it with."""

    subject: Subject
    model: Transformer
    encoder: Encoder
    length: int
    draws: int

    def rows(self, metric: str, n: int, compute: Callable[..., Found], *arguments: Any, **where: Any) -> list[Row]:
        try:
            found = compute(*arguments)
        except Unsupported as reason:
            return [self.subject.cannot(NAME, metric, reason, **where)]
        if isinstance(found, tuple):
            found, n = found
        if isinstance(found, Tensor):
            found = [({}, found.mean().item()), *(({"head": head}, value.item()) for head, value in enumerate(found))]
        return [
            self.subject.row(NAME, metric, **where, **more, value=float(value), n=n)
            if math.isfinite(value)
            else self.subject.cannot(NAME, metric, f"the value is {value}", **where, **more)
            for more, value in (found if isinstance(found, list) else [({}, found)])
        ]

    @property
    def train_length(self) -> int:
        return self.encoder.geometry.train_length

    @cached_property
    def kernel(self) -> Tensor:
        return self._kernel(self.length)

    @cached_property
    def curve(self) -> Tensor:
        return kernel.curve(self.kernel)

    def weights(self, length: int) -> Tensor:
        expected = self._kernel(length, queries=1)
        return kernel.kernel_weights(self.encoder, expected, count_up(length), causal=self.model.causal)[:, 0]

    def codes(self, positions: Tensor) -> Tensor:
        return vectors.codes(self.encoder, positions)

    def _kernel(self, length: int, queries: int | None = None) -> Tensor:
        how: dict[str, Any] = {"causal": self.model.causal, "draws": self.draws, "queries": queries}
        return kernel.kernel(self.encoder, count_up(length), self.subject.stream(behaviour.CONTENTS), **how)


def _of_kernel(it: Untrained, shifts: tuple[int, ...]) -> Iterator[Row]:
    def invariance() -> Tensor:
        return kernel.translation_invariance(it.kernel, causal=it.model.causal)

    def falling(within: int) -> float:
        return kernel.falling_steps(it.curve, within).mean().item()

    yield from it.rows("translation_invariance", it.length, invariance)
    yield from it.rows("monotonicity", it.length - 1, lambda: kernel.falling_steps(it.curve))
    near = {"condition": "within", "size": NEAR}
    yield from it.rows("monotonicity", min(it.length - 1, NEAR), falling, NEAR, **near)
    yield from it.rows("rank_correlation", it.length, lambda: kernel.rank_correlation(it.curve))
    for shift in shifts:
        arguments = (behaviour.score_shift_change, it.subject, it.encoder, shift)
        yield from it.rows("score_shift_change", it.train_length, *arguments, shift=shift)


def _of_weights(it: Untrained) -> Iterator[Row]:
    lengths = [multiple * it.train_length for multiple in LENGTHS]
    weights = cache(it.weights)  # needed several times, and slow for some encoders

    def window(share: float) -> Tensor:
        return kernel.window(weights(it.length), share)

    def entropy(length: int) -> Tensor:
        return kernel.entropy(weights(length))

    def growth() -> Tensor:
        return kernel.slope(lengths, torch.stack([entropy(length) for length in lengths]))

    yield from it.rows("half_life", it.length, window, 0.5)
    yield from it.rows("window_99", it.length, window, 0.99)
    for length in lengths:
        yield from it.rows("attention_entropy", length, entropy, length, sequence_length=length)
    yield from it.rows("entropy_growth", len(lengths), growth)


def _of_model(it: Untrained) -> Iterator[Row]:
    yield from it.rows("direction_awareness", behaviour.SEQUENCES, behaviour.direction_awareness, it.subject, it.model)
    for keys in (multiple * it.train_length for multiple in LONGER):
        arguments = (behaviour.uncovered, it.subject, it.encoder, keys, it.draws)
        yield from it.rows("uncovered", 0, *arguments, sequence_length=keys)
    yield from it.rows(
        "receptive_field", behaviour.SEQUENCES, behaviour.receptive_field, it.subject, it.model, it.length
    )


def _of_codes(it: Untrained) -> Iterator[Row]:
    def residual(fitted: Tensor, tried: Tensor, k: int) -> float:
        """‖Φ M − Φ shifted‖ / ‖Φ shifted‖; 0 where all codes are 0."""
        off, shifted = it.codes(tried) @ maps(fitted)[k] - it.codes(tried + k), it.codes(tried + k)
        return (off.norm() / shifted.norm()).item() if shifted.norm() > 0 else 0.0

    @cache
    def maps(fitted: Tensor) -> dict[int, Tensor]:
        shifted = [it.codes(fitted + k) for k in OFFSETS]
        return dict(zip(OFFSETS, vectors.shift_maps(it.codes(fitted), shifted), strict=True))

    def collisions(below: int, dtype: torch.dtype) -> int:
        return vectors.collisions(it.codes(count_up(below)), dtype)

    def largest(positions: Tensor) -> float:
        return it.codes(positions).abs().max().item()

    if not it.encoder.overrides("embed"):
        for metric in ("shift_map_residual", "code_collisions", "code_range"):
            yield from it.rows(metric, 0, largest, count_up(1))
        return
    size = 4 * it.encoder.geometry.model_dim
    first, even = count_up(size), 2 * count_up(size)
    # Held out are the odd positions and not the next ones: slow sinusoids are so alike over a few hundred positions
    # that float64 cannot decide which map would hold far away, though one does.
    for condition, fitted, tried in (("", first, first), ("held out", even, even + 1)):
        for k in OFFSETS:
            yield from it.rows("shift_map_residual", size, residual, fitted, tried, k, condition=condition, shift=k)
    for below in sorted({it.length, LONG}):
        pairs = below * (below - 1) // 2
        for name, dtype in ROUNDED.items():
            where = {"condition": name, "sequence_length": below}
            yield from it.rows("code_collisions", pairs, collisions, below, dtype, **where)
    inside, beyond = count_up(it.length).split([it.train_length, it.length - it.train_length])
    yield from it.rows("code_range", len(inside), largest, inside, condition="within training")
    yield from it.rows("code_range", len(beyond), largest, beyond, condition="beyond training")
    yield from it.rows("code_range", 1, largest, torch.tensor([FAR], dtype=torch.float64), position=FAR)


def _of_waves(it: Untrained) -> Iterator[Row]:
    dim = it.encoder.geometry.model_dim

    def error(way: str) -> float:
        found = vectors.frequencies(it.codes(count_up(it.length)))
        return vectors.frequency_errors(vectors.base_of(found), dim)[way]

    yield from it.rows("wavelength", it.length, _wavelengths, it)
    for way in vectors.WAYS if it.encoder.overrides("embed") else ("",):
        yield from it.rows("frequency_error", dim // 2, error, way, condition=way)


def _wavelengths(it: Untrained) -> list[tuple[Where, float]]:
    adds, rotates = it.encoder.overrides("embed"), it.encoder.overrides("rotate")
    if not adds and not rotates:
        raise Unsupported(f"{it.encoder.name} adds no vectors and rotates no queries")
    of_dimensions: list[tuple[Where, Tensor]] = []
    if adds:
        of_dimensions.append(({}, vectors.frequencies(it.codes(count_up(it.length)))))
    if rotates:
        queries = behaviour.rotated(it.encoder, count_up(it.length).unsqueeze(0), causal=it.model.causal)[0]
        heads = torch.stack([vectors.frequencies(query) for query in queries])
        done = {"condition": "turned"} if adds else {}  # codes and heads both count their dimensions from 0
        alike = torch.allclose(heads, heads[:1].expand_as(heads), rtol=vectors.SAME, atol=0, equal_nan=True)
        of_dimensions += [(done, heads[0])] if alike else [(done | {"head": h}, f) for h, f in enumerate(heads)]
    found = [
        (where | {"dimension": dimension}, 2 * math.pi / frequency)
        for where, frequencies in of_dimensions
        for dimension, frequency in enumerate(frequencies.tolist())
        if not math.isnan(frequency)
    ]
    if not found:
        raise Unsupported(f"no component of {it.encoder.name} is a pure sinusoid of the position")
    return found
