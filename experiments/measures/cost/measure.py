"""Parameters, operations, time and memory of a model with its encoder and without."""

from collections.abc import Callable
from functools import partial
from typing import Annotated

from experiments.measures.cost import NAME
from experiments.measures.cost.timing import Both, Trunks
from experiments.model.guest import Guest
from experiments.rows.row import Row
from experiments.training.evaluate import Subject
from pe_zoo import Unsupported
from pe_zoo._knobs import Count, Several, number, whole

MEMORY_MULTIPLES = (1, 2, 4, 8, 16)
MEBIBYTE = 2**20
RELATIVE = {
    "operations_per_token": "relative_operations",
    "train_tokens_per_second": "relative_train_time",
    "inference_tokens_per_second": "relative_inference_time",
    "generation_ms_per_token": "relative_generation_time",
    "peak_memory_mib": "relative_peak_memory",
    "train_peak_memory_mib": "relative_train_peak_memory",
}
"""Metric -> its ratio to the model without the encoder; for rates, the ratio of times."""


def measure(
    subject: Subject,
    *,
    multiples: Several[Count] = (1, 4, 16),
    memory_lengths: tuple[Annotated[int, partial(whole, at_least=2)], ...] = (),
    tokens_per_step: Count | None = None,
    seconds: Annotated[float, partial(number, at_least=0, at_most=3600)] = 0.5,
) -> list[Row]:
    """Measure the cost of the encoder in this model, as amounts and relative to the model without it.

    Args:
        subject: how its model is built, its task and its numbering. Its training does not matter.
        multiples: lengths at which operations are counted and inference is timed, in positions of the longest training
            sequence, each at least 1.
        memory_lengths: lengths at which memory is measured, in positions, each at least 2; empty: 1, 2, 4, 8 and 16
            longest training sequences.
        tokens_per_step: tokens in a training batch, at least 1; null: as many as ``train=quick`` has.
        seconds: time to repeat each timed quantity for, 0 to 3600; it is repeated at least three times.
    """
    if isinstance(subject.model, Guest):
        raise Unsupported("cost is that of an encoder in a model built here: leave checkpoint= out and name an encoder")
    trunks = Trunks(subject, tokens_per_step)
    size = trunks.models[0].geometry.train_length
    lengths = sorted({size * multiple for multiple in multiples})
    own, trunk = trunks.models[0].num_parameters()
    rows = [
        subject.row(NAME, "encoder_parameters", value=float(own), n=1),
        subject.row(NAME, "encoder_parameter_share", value=own / trunk, n=1),
    ]
    for length in lengths:
        rows += _compared(subject, "operations_per_token", length, partial(trunks.operations, length))
    for length in sorted(set(memory_lengths) or {size * multiple for multiple in MEMORY_MULTIPLES}):
        rows += _compared(subject, "peak_memory_mib", length, partial(trunks.forward_bytes, length), 1 / MEBIBYTE)
    rows += _compared(subject, "train_peak_memory_mib", size, trunks.training_bytes, 1 / MEBIBYTE)
    for length in lengths:
        infer, generate = (
            partial(take, length, seconds) for take in (trunks.inference_seconds, trunks.generation_seconds)
        )
        rows += _compared(subject, "inference_tokens_per_second", length, infer, None)
        rows += _compared(subject, "generation_ms_per_token", length, generate, 1000)
    train = partial(trunks.training_seconds, seconds)
    return rows + _compared(subject, "train_tokens_per_second", size, train, None)


def _compared(
    subject: Subject, metric: str, length: int, take: Callable[[], Both], factor: float | None = 1
) -> list[Row]:
    """Return the rows of one quantity times ``factor`` (None: its inverse, a rate): with, without, and the ratio."""
    try:
        found = take()
    except Unsupported as reason:
        return [subject.cannot(NAME, name, reason, sequence_length=length) for name in (metric, RELATIVE[metric])]
    ours, bare = (1 / amount if factor is None else factor * amount for amount in (found.with_encoder, found.without))
    return [
        subject.row(NAME, name, condition=condition, sequence_length=length, value=value, n=found.n)
        for name, condition, value in (
            (metric, "", ours),
            (metric, "without encoder", bare),
            (RELATIVE[metric], "", found.ratio),
        )
    ]
