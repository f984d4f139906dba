"""Figures and tables of untrained encoders."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from experiments.figures.style import looks, slug
from experiments.measures.structure import NAME, figures
from experiments.rows.row import rows_of, whole
from experiments.statistics.intervals import by_measurement, with_series

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


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean, interval and number of seeds for each series, metric and condition. See `by_measurement`.

    Without the thousands of cells that pictures are made of; rows have them.
    """
    rows = rows_of(rows, NAME)
    return by_measurement(rows[~rows["metric"].isin(CELLS)])


def shown(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the report's table, with a column ``head``: what the table's column is called.

    Of the shifts the one that changes scores most, of the lengths with something new the longest, a row a run each.
    """
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
    drawn = {
        "heatmap": figures.heatmap,
        "waves": figures.waves,
        "kernel": figures.kernel,
        "kernel_curve": figures.kernel_curve,
        "wavelengths": figures.wavelengths,
        "entropy": figures.entropy,
    }
    rows = with_series(rows_of(rows, NAME))
    found = {}
    for task, of_task in rows.groupby("task"):
        for name, draw in drawn.items():
            figure = draw(of_task, looks(of_task))
            if figure is not None:
                found[f"{slug(str(task))}_{name}"] = figure
    return found
