"""Codes, kernel and properties of an untrained encoder."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import numpy as np
import torch

from experiments.measures.structure import NAME
from experiments.measures.structure.behaviour import CONTENTS, relative_distances
from experiments.measures.structure.kernel import count_up, exact, kernel
from experiments.measures.structure.numbers import numbers
from experiments.measures.structure.vectors import codes
from experiments.model.guest import Guest
from experiments.rows.row import Row
from experiments.training.evaluate import Subject
from pe_zoo import Encoder, Unsupported
from pe_zoo._knobs import Count, NotNegative, Several, whole
from pe_zoo._positions import plane_of

WAVES = (0, 10, 50, 100)
MAX_DIMENSIONS = 128
"""Most dimensions in the heat map, of a wider model evenly spaced pairs."""
MAX_DISTANCES = 64
"""Most distances on the curve, of a longer one all near ones and far ones at even ratios."""


def measure(
    subject: Subject,
    *,
    reach: Annotated[int, partial(whole, at_least=2)] = 4,
    max_positions: Annotated[int, partial(whole, at_least=2, at_most=10_000)] = 100,
    waves: Several[NotNegative] = WAVES,
    shifts: Several[Count] = (1, 10, 100, 1000),
    draws: Annotated[int, partial(whole, at_least=1, at_most=100_000)] = 16,
    kernel_cells: Annotated[int, partial(whole, at_least=2, at_most=1000)] = 32,
) -> list[Row]:
    """Measure the encoder as it was initialised: its codes, its kernel in the first layer, and numbers about both.

    Args:
        subject: a model, its task and its numbering. Its training does not matter.
        reach: positions and distances looked at, in training lengths, at least 2.
        max_positions: positions in the heat map and the waves, 2 to 10 000.
        waves: dimensions drawn as waves, each at least 0; of the default those that the model has.
        shifts: numbers added to all positions to see whether scores change, each at least 1.
        draws: random contents that a score is a mean over, 1 to 100 000.
        kernel_cells: most cells of the kernel's image per side, 2 to 1000.
    """
    if isinstance(subject.model, Guest):
        raise Unsupported("structure is that of an encoder of the zoo: leave checkpoint= out and name one")
    if (given := subject.model.encoder).axes > 1:
        raise Unsupported(f"structure looks at encoders of sequences; {given.name} takes {plane_of(given)}")
    encoder = exact((subject.initial() if subject.trained else subject.model).encoder)
    return [
        subject.row(NAME, "train_positions", value=float(encoder.geometry.train_length), n=1),
        *_codes(subject, encoder, max_positions, tuple(dict.fromkeys(waves))),
        *_kernel(subject, encoder, reach, draws, kernel_cells),
        *relative_distances(subject, NAME),
        *numbers(subject, reach=reach, shifts=tuple(dict.fromkeys(shifts)), draws=draws),
    ]


def _codes(subject: Subject, encoder: Encoder, size: int, waves: Sequence[int]) -> list[Row]:
    rows = []
    if encoder.overrides("embed") and encoder.max_length is not None and encoder.max_length < size:
        size = encoder.max_length
        rows.append(subject.cannot(NAME, "code", f"its table ends at {size} positions", position=size))
    try:
        found = codes(encoder, count_up(size))
    except Unsupported as reason:
        return [subject.cannot(NAME, "code", reason)]
    model_dim = encoder.geometry.model_dim
    # In pairs: where sine and cosine stand side by side, single ones would fall now on the one and now on the other.
    pairs = -(-model_dim // 2)
    firsts = 2 * np.linspace(0, pairs - 1, min(pairs, MAX_DIMENSIONS // 2)).round().astype(int)
    kept = [dimension for first in firsts.tolist() for dimension in (first, first + 1) if dimension < model_dim]
    for metric, dimensions in (("code", kept), ("wave", [d for d in waves if d < model_dim])):
        for position in range(size):
            for dimension in dimensions:
                value = found[position, dimension].item()
                rows.append(subject.row(NAME, metric, position=position, dimension=dimension, value=value, n=1))
    lacking = [d for d in waves if d >= model_dim and waves != WAVES]
    return rows + [subject.cannot(NAME, "wave", f"the model has {model_dim} dimensions", dimension=d) for d in lacking]


def _kernel(subject: Subject, encoder: Encoder, reach: int, draws: int, cells: int) -> list[Row]:
    rows, causal, train_length = [], subject.model.causal, encoder.geometry.train_length
    size = reach * train_length
    if encoder.max_length is not None and encoder.max_length < size:
        size = encoder.max_length
        why = f"its table ends at {size} positions"
        rows.append(subject.cannot(NAME, "kernel", why, position=size))
        rows.append(subject.cannot(NAME, "kernel_at", why, distance=size))
    try:
        found = kernel(encoder, count_up(size), subject.stream(CONTENTS), causal=causal, draws=draws)
    except Unsupported as reason:
        return [subject.cannot(NAME, metric, reason) for metric in ("kernel", "kernel_at")]
    image = found.mean(0)
    places = range(0, size, -(-size // cells))  # a whole step, so that equal distances lie on one diagonal
    for query in places:
        for key in places:
            if torch.isfinite(image[query, key]) and (key <= query or not causal):
                value = image[query, key].item()
                rows.append(subject.row(NAME, "kernel", position=query, key=key, value=value, n=len(found)))
    near_to_far = distances(size, train_length)
    for distance in near_to_far if causal else [*(-d for d in near_to_far[:0:-1]), *near_to_far]:
        for head, scores in enumerate(found.diagonal(-distance, -2, -1)):
            seen = scores[torch.isfinite(scores)]
            if len(seen):
                where = {"head": head, "distance": distance}
                rows.append(subject.row(NAME, "kernel_at", **where, value=seen.mean().item(), n=len(seen)))
    return rows


def distances(size: int, train_length: int) -> list[int]:
    """Return distances below ``size``: all, or of many the near ones, far ones at even ratios, and where training ends.

    >>> distances(4, 2)
    [0, 1, 2, 3]
    """
    if size <= MAX_DISTANCES:
        return list(range(size))
    half = MAX_DISTANCES // 2
    ratio = ((size - 1) / half) ** (1 / (MAX_DISTANCES - half - 1))
    far = {round(half * ratio**place) for place in range(MAX_DISTANCES - half)}
    return sorted({*range(half), *far, *(d for d in (train_length - 1, train_length) if d < size)})
