"""What does the encoder cost: in parameters, operations, time and memory, at the training length and beyond?

The same model is measured with its encoder and without it, in turn and in one process, so that what comes of the
machine falls on both; ratios are of medians. Nothing needs to be trained. Tokens are random, since cost does not
depend on what they say; positions are those of the run's numbering.

Parameters and operations are counted, the same on every machine. Operations are those of the plain path: 2·m·n·k for a
matrix product, one for each number that anything else makes. Seconds are those of this machine with the paths that the
model takes on it. Memory is what tensors hold at once beyond the model itself: on a CPU counted storage by storage,
the same each time, without what a kernel takes and gives back within one operation and what an allocator keeps of
what was freed; on a GPU what its allocator says is in use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from experiments.measures.cost.timing import Both
    from experiments.rows.row import Row
    from experiments.training.evaluate import Subject

NAME = "cost"
NEEDS_TRAINING = False
MAIN = "relative_train_time"

WITHOUT = "without encoder"
MEMORY_MULTIPLES = (1, 2, 4, 8, 16)
"""Training lengths at which memory is measured unless told otherwise."""
MEBIBYTE = 2**20

RELATIVE = {
    "operations_per_token": "relative_operations",
    "train_tokens_per_second": "relative_train_time",
    "inference_tokens_per_second": "relative_inference_time",
    "generation_ms_per_token": "relative_generation_time",
    "peak_memory_mib": "relative_peak_memory",
    "train_peak_memory_mib": "relative_train_peak_memory",
}
"""Metric to how often as much it is as without the encoder: of rates, how often as long it takes."""

CAPTIONS = {
    "peak_memory": (
        "Memory held at once by a forward pass over one sequence without gradients, beyond the model itself, over the "
        "length of the sequence in positions. Grey: the same model without the encoder. Dotted: growth in proportion "
        "to the length, through the longest measured without the encoder. Lines are steeper as long as all queries are "
        "handled at once, and end where the encoder can do no more."
    ),
    "relative_cost": (
        "What each takes with the encoder, in multiples of what it takes without: 1 is free. Training at the training "
        "length, the rest at the longest length it was measured at. Means over seeds; nothing where the encoder cannot."
    ),
}


def check(
    *, multiples: Iterable[int], memory_lengths: Iterable[int], tokens_per_step: int | None, seconds: float
) -> None:
    """Refuse knobs out of range."""
    from pe_zoo._knobs import number, whole

    if not list(multiples):
        raise ValueError("cost.multiples is empty; give at least one, such as [1]")
    for multiple in multiples:
        whole("cost.multiples", multiple, at_least=1)
    for length in memory_lengths:
        whole("cost.memory_lengths", length, at_least=2)
    if tokens_per_step is not None:
        whole("cost.tokens_per_step", tokens_per_step, at_least=1)
    number("cost.seconds", seconds, at_least=0, at_most=3600)


def measure(
    subject: Subject,
    *,
    multiples: tuple[int, ...] = (1, 4, 16),
    memory_lengths: tuple[int, ...] = (),
    tokens_per_step: int | None = None,
    seconds: float = 0.5,
) -> list[Row]:
    """What the encoder costs in this very trunk, as amounts and relative to the trunk without an encoder.

    Args:
        subject: how its model is built, its task and its numbering. Its training does not matter.
        multiples: lengths at which operations are counted and reading is timed, in positions of the longest training
            sequence, each at least 1.
        memory_lengths: lengths at which memory is measured, in positions, each at least 2; empty: 1, 2, 4, 8 and 16
            longest training sequences.
        tokens_per_step: tokens in a training batch, at least 1; null: as many as ``train=quick`` has.
        seconds: how long each quantity that is timed is repeated, in all, 0 to 3600; three times at least.
    """
    from functools import partial

    from experiments.measures.cost.timing import Trunks

    trunks = Trunks(subject, tokens_per_step)
    size = trunks.models[0].geometry.train_length
    lengths = sorted({size * multiple for multiple in multiples})
    held_at = sorted(set(memory_lengths) or {size * multiple for multiple in MEMORY_MULTIPLES})
    own, trunk = trunks.models[0].num_parameters()
    rows = [
        subject.row(NAME, "encoder_parameters", value=float(own), n=1),
        subject.row(NAME, "encoder_parameter_share", value=own / trunk, n=1),
    ]
    for length in lengths:
        rows += _measured(subject, "operations_per_token", length, partial(trunks.operations, length))
    for length in held_at:
        rows += _measured(subject, "peak_memory_mib", length, partial(trunks.forward_bytes, length), 1 / MEBIBYTE)
    rows += _measured(subject, "train_peak_memory_mib", size, trunks.training_bytes, 1 / MEBIBYTE)
    for length in lengths:
        read, write = (partial(take, length, seconds) for take in (trunks.inference_seconds, trunks.generation_seconds))
        rows += _measured(subject, "inference_tokens_per_second", length, read, None)
        rows += _measured(subject, "generation_ms_per_token", length, write, 1000)
    train = partial(trunks.training_seconds, seconds)
    return rows + _measured(subject, "train_tokens_per_second", size, train, None)


def _measured(
    subject: Subject, metric: str, places: int, take: Callable[[], Both], factor: float | None = 1
) -> list[Row]:
    """The rows of one quantity at one length: with the encoder, without, and the ratio.

    Args:
        subject: whose rows.
        metric: of the amounts.
        places: the length.
        take: measures; may raise `Unsupported`.
        factor: from what was measured to the metric's unit; None: what is asked for is a rate, one by it.
    """
    from pe_zoo import Unsupported

    try:
        found = take()
    except Unsupported as reason:
        return [subject.cannot(NAME, name, reason, sequence_length=places) for name in (metric, RELATIVE[metric])]
    ours, bare = (1 / amount if factor is None else factor * amount for amount in (found.with_encoder, found.without))
    return [
        subject.row(NAME, metric, sequence_length=places, value=ours, n=found.n),
        subject.row(NAME, metric, condition=WITHOUT, sequence_length=places, value=bare, n=found.n),
        subject.row(NAME, RELATIVE[metric], sequence_length=places, value=found.ratio, n=found.n),
    ]


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean, interval and number of seeds for each label, metric and condition. See `_stats.by_measurement`."""
    from experiments.rows.row import rows_of
    from experiments.statistics.intervals import by_measurement

    return by_measurement(rows_of(rows, NAME))


def shown(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the report's table, with their column's heading in ``head``: each at the longest length measured."""
    from experiments.figures.panels import under_heads
    from experiments.measures.cost.figures import at_longest

    plain = rows[rows["condition"] == ""]
    parts = [plain[plain["metric"] == "encoder_parameters"].assign(head="parameters")]
    for metric, said, unit in (
        ("relative_operations", "operations", ", × without"),
        ("relative_train_time", "training time", ", × without"),
        ("relative_train_peak_memory", "training memory", ", × without"),
        ("relative_inference_time", "inference time", ", × without"),
        ("relative_generation_time", "generation time", ", × without"),
        ("peak_memory_mib", "memory", ", MiB"),
        ("relative_peak_memory", "memory", ", × without"),
    ):
        at = at_longest(plain[plain["metric"] == metric])
        parts += [part.assign(head=f"{said} at {length:.0f}{unit}") for length, part in at.groupby("sequence_length")]
    return under_heads(parts, rows)


def plot(rows: pd.DataFrame) -> dict[str, Figure]:
    """Memory over length, a panel a label, and everything relative to the trunk without: stem -> figure, for each task.

    Args:
        rows: of this experiment, of one run or of many.
    """
    from experiments.figures.style import looks, slug
    from experiments.measures.cost import figures as figures
    from experiments.rows.row import rows_of
    from experiments.statistics.intervals import labelled

    rows = labelled(rows_of(rows, NAME))
    found = {}
    for task, of_task in rows.groupby("task"):
        for name, draw in (("peak_memory", figures.peak_memory), ("relative_cost", figures.relative_cost)):
            figure = draw(of_task, looks(of_task))
            if figure is not None:
                found[f"{slug(str(task))}_{name}"] = figure
    return found
