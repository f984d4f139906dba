"""What is an encoder before any training, as a picture and as numbers?

Nothing is trained and no data is read: the encoder is looked at as it was initialised. What it adds to the token
embeddings is shown as it is. What it does to attention is shown as the score between a query and a key of the same
content, a mean over random contents, so that position alone makes the differences. The numbers say which properties
follow: whether only distance counts, how far a query sees, and what is new to the model beyond its training length.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from torch import Tensor

    from experiments.rows.row import Row
    from experiments.training.evaluate import Subject
    from pe_zoo import Encoder

NAME = "structure"
NEEDS_TRAINING = False
MAIN = "translation_invariance"

WAVES = (0, 10, 50, 100)
MAX_DIMENSIONS = 128
"""Of a wider model, so many dimensions are kept for the heat map, in pairs."""
MAX_DISTANCES = 64
"""Of more distances, so many are kept for the curve; near ones all, far ones at even ratios."""
NOISE = 1e-12
"""A number in the table below this is rounding."""

CELLS = ("code", "wave", "kernel")

CAPTIONS = {
    "heatmap": "What is added to a token's embedding, by position (down) and dimension (across), before training. "
    "Of several panels each has a colour scale of its own, whose ends are in its title. First seed. "
    "Labels without a panel add nothing to the embeddings.",
    "waves": "Some dimensions of what is added to a token's embedding, over the position. First seed. Shaded: where "
    "training sequences lie. Labels without a panel add nothing to the embeddings.",
    "kernel": "Expected score between a query (down) and a key (across) of the same content, both by position, mean "
    "over heads; first layer, before training. Of several panels each has a colour scale of its own, from the lowest "
    "to the highest score in its title. Dashed: where training sequences end. Grey: not seen, or no score. First seed. "
    "A cell is one position, not the mean of those it stands for: waves shorter than two cells show as longer ones.",
    "kernel_curve": "Expected score over the distance from query to key (query minus key position), a line a head, "
    "less the score at distance 0 (or at the nearest there is); first layer, before training. The distance axis is "
    "logarithmic from 1 on, the scales of scores differ from panel to panel. Lines that coincide lie thin on thick. "
    "Shaded: distances within training sequences. Means over queries and seeds.",
    "wavelengths": "Measured wavelength of each dimension that is a pure wave over positions, in positions. Line: the "
    "longest training sequence. What lies above it never completes a period in training. Means over seeds. Dimensions "
    "are those of the model where a vector is added, of a head where queries and keys are turned.",
    "entropy": "Entropy of what the last query attends to when all content is alike, in nats, over the number of keys; "
    "mean over heads. Dotted: equal weight on every key, ln(keys). A line beside it stays as diffuse at any length, a "
    "flat one looks at a fixed neighbourhood. Lines: means over seeds; bands: 95 % t interval, not cut to the axis. "
    "Shaded: training.",
}


def check(
    *, reach: int, max_positions: int, waves: Iterable[int], shifts: Iterable[int], draws: int, kernel_cells: int
) -> None:
    """Refuse knobs out of range."""
    from pe_zoo._knobs import whole

    whole("structure.reach", reach, at_least=2)
    whole("structure.max_positions", max_positions, at_least=2, at_most=10_000)
    for knob, values, least in (("waves", waves, 0), ("shifts", shifts, 1)):
        if not list(values):
            raise ValueError(f"structure.{knob} is empty; give at least one, such as [{least}]")
        for value in values:
            whole(f"structure.{knob}", value, at_least=least)
    whole("structure.draws", draws, at_least=1, at_most=100_000)
    whole("structure.kernel_cells", kernel_cells, at_least=2, at_most=1000)


def measure(
    subject: Subject,
    *,
    reach: int = 4,
    max_positions: int = 100,
    waves: tuple[int, ...] = WAVES,
    shifts: tuple[int, ...] = (1, 10, 100, 1000),
    draws: int = 16,
    kernel_cells: int = 32,
) -> list[Row]:
    """The encoder as it was initialised: its codes, its kernel in the first layer, and numbers about both.

    Args:
        subject: a model, its task and its numbering. Its training does not matter.
        reach: positions and distances looked at, in training lengths, at least 2.
        max_positions: positions in the heat map and the waves, 2 to 10 000.
        waves: dimensions drawn as waves, each at least 0; of the default those that the model has.
        shifts: how far all positions are moved to see whether scores change, each at least 1.
        draws: random contents that a score is a mean over, 1 to 100 000.
        kernel_cells: cells of the kernel's image a side, at most so many, 2 to 1000.
    """
    from experiments.measures.structure.kernel import exact
    from experiments.measures.structure.numbers import numbers

    encoder = exact((subject.initial() if subject.trained else subject.model).encoder)
    return [
        subject.row(NAME, "train_positions", value=float(encoder.geometry.train_length), n=1),
        *_codes(subject, encoder, max_positions, waves),
        *_kernel(subject, encoder, reach, draws, kernel_cells),
        *numbers(subject, reach=reach, shifts=tuple(dict.fromkeys(shifts)), draws=draws),
    ]


def _codes(subject: Subject, encoder: Encoder, max_positions: int, waves: Sequence[int]) -> list[Row]:
    """What is added to token embeddings: metrics ``code`` and, for some dimensions, ``wave``."""
    import torch

    from experiments.measures.structure.kernel import codes
    from pe_zoo import Unsupported

    if not encoder.overrides("embed"):
        return [subject.cannot(NAME, "code", "it adds no vector to the token embeddings")]
    rows = []
    size = max_positions
    if encoder.max_length is not None and encoder.max_length < size:
        size = encoder.max_length
        rows.append(subject.cannot(NAME, "code", f"its table ends at {size} positions", position=size))
    try:
        found = codes(encoder, torch.arange(size, dtype=torch.float64))
    except Unsupported as reason:
        return [subject.cannot(NAME, "code", reason)]
    model_dim = encoder.geometry.model_dim
    # In pairs: where sine and cosine stand side by side, single ones would fall now on the one and now on the other.
    pairs = evenly(-(-model_dim // 2), MAX_DIMENSIONS // 2)
    kept = [dimension for pair in pairs for dimension in (2 * pair, 2 * pair + 1) if dimension < model_dim]
    drawn = {"code": kept, "wave": [d for d in dict.fromkeys(waves) if d < model_dim]}
    for metric, dimensions in drawn.items():
        for position in range(size):
            for dimension in dimensions:
                value = found[position, dimension].item()
                rows.append(subject.row(NAME, metric, position=position, dimension=dimension, value=value, n=1))
    if tuple(waves) != WAVES:
        rows += [
            subject.cannot(NAME, "wave", f"the model has {model_dim} dimensions", dimension=d)
            for d in dict.fromkeys(waves)
            if d >= model_dim
        ]
    return rows


def _kernel(subject: Subject, encoder: Encoder, reach: int, draws: int, cells: int) -> list[Row]:
    """The expected score as an image, metric ``kernel``, and over the distance, metric ``kernel_at``."""
    import torch

    from experiments.measures.structure.kernel import kernel
    from pe_zoo import Unsupported

    rows, causal = [], subject.model.causal
    size = reach * encoder.geometry.train_length
    if encoder.max_length is not None and encoder.max_length < size:
        size = encoder.max_length
        why = f"its table ends at {size} positions"
        rows.append(subject.cannot(NAME, "kernel", why, position=size))
        rows.append(subject.cannot(NAME, "kernel_at", why, distance=size))
    positions = torch.arange(size, dtype=torch.float64)
    try:
        found = kernel(encoder, positions, subject.stream("structure/kernel"), causal=causal, draws=draws)
    except Unsupported as reason:
        return [subject.cannot(NAME, metric, reason) for metric in ("kernel", "kernel_at")]
    image = found.mean(0)
    places = range(0, size, -(-size // cells))  # a whole step, so that equal distances lie on one diagonal
    for query in places:
        for key in places:
            if torch.isfinite(image[query, key]) and (key <= query or not causal):
                value = image[query, key].item()
                rows.append(subject.row(NAME, "kernel", position=query, key=key, value=value, n=len(found)))
    near_to_far = distances(size, encoder.geometry.train_length)
    for distance in near_to_far if causal else [*(-d for d in near_to_far[:0:-1]), *near_to_far]:
        for head, curve in enumerate(at_distance(found, distance)):
            if torch.isfinite(curve).any():
                seen = curve[torch.isfinite(curve)]
                where = {"head": head, "distance": distance}
                rows.append(subject.row(NAME, "kernel_at", **where, value=seen.mean().item(), n=len(seen)))
    return rows


def at_distance(kernel: Tensor, distance: int) -> Tensor:
    """The kernel between places that lie a distance apart: ``(heads, query, key)`` to ``(heads, pairs)``."""
    return kernel.diagonal(-distance, -2, -1)


def evenly(size: int, most: int) -> list[int]:
    """The first and the last of ``size`` places and some evenly between, no more than ``most``.

    >>> evenly(9, 5)
    [0, 2, 4, 6, 8]
    """
    count = min(size, most)
    return [round(place * (size - 1) / max(1, count - 1)) for place in range(count)]


def distances(size: int, train_length: int) -> list[int]:
    """Distances below ``size``: all, or of many the near ones, far ones at even ratios, and those where training ends.

    >>> distances(4, 2)
    [0, 1, 2, 3]
    """
    if size <= MAX_DISTANCES:
        return list(range(size))
    half = MAX_DISTANCES // 2
    ratio = ((size - 1) / half) ** (1 / (MAX_DISTANCES - half - 1))
    far = {round(half * ratio**place) for place in range(MAX_DISTANCES - half)}
    return sorted({*range(half), *far, *(d for d in (train_length - 1, train_length) if d < size)})


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean, interval and number of seeds for each label, metric and condition. See `_stats.by_measurement`.

    Without the thousands of cells that pictures are made of; rows have them.
    """
    from experiments.rows.row import rows_of
    from experiments.statistics.intervals import by_measurement

    rows = rows_of(rows, NAME)
    return by_measurement(rows[~rows["metric"].isin(CELLS)])


def shown(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the report's table, with a column ``head``: what the table's column is called.

    Of the shifts the one that changes scores most, of the lengths with something new the longest, a row a run each.
    """
    import pandas as pd

    from experiments.rows.row import whole

    plain = whole(rows)
    columns = {
        "only distance counts (1 = yes)": plain[plain["metric"] == "translation_invariance"],
        "tells left from right": plain[plain["metric"] == "direction_awareness"],
        "change of scores when shifted": _largest_shift(rows),
        "half of attention within": plain[plain["metric"] == "half_life"],
        "99 % of attention within": plain[plain["metric"] == "window_99"],
        "growth of entropy (1 = diffuse)": plain[plain["metric"] == "entropy_growth"],
        "new at 4 × training": _longest(rows),
        "receptive field": plain[plain["metric"] == "receptive_field"],
    }
    table = pd.concat([part.assign(head=head) for head, part in columns.items()])
    return table.assign(value=table["value"].where(~(table["value"].abs() < NOISE), 0.0))


def _largest_shift(rows: pd.DataFrame) -> pd.DataFrame:
    shifted = rows[rows["metric"] == "score_shift_change"]
    largest_first = shifted.sort_values("value", ascending=False, kind="stable", na_position="last")
    return largest_first.groupby("run_id", sort=False).head(1).sort_index()


def _longest(rows: pd.DataFrame) -> pd.DataFrame:
    new = rows[rows["metric"] == "uncovered"]
    if new.empty:
        return new
    longest = new.groupby("run_id")["sequence_length"].transform("max")
    return new[new["sequence_length"] == longest]


def plot(rows: pd.DataFrame) -> dict[str, Figure]:
    """Codes, waves, kernels, wavelengths and entropies: stem -> figure, for each task.

    Args:
        rows: of this experiment, of one run or of many.
    """
    from experiments.figures.style import looks, slug
    from experiments.measures.structure import figures as figures
    from experiments.rows.row import rows_of
    from experiments.statistics.intervals import labelled

    drawn = {
        "heatmap": figures.heatmap,
        "waves": figures.waves,
        "kernel": figures.kernel,
        "kernel_curve": figures.kernel_curve,
        "wavelengths": figures.wavelengths,
        "entropy": figures.entropy,
    }
    rows = labelled(rows_of(rows, NAME))
    found = {}
    for task, of_task in rows.groupby("task"):
        for name, draw in drawn.items():
            figure = draw(of_task, looks(of_task))
            if figure is not None:
                found[f"{slug(str(task))}_{name}"] = figure
    return found
