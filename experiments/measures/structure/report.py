"""Figures and tables of untrained encoders."""

import math

import pandas as pd

from experiments.figures import style
from experiments.figures.style import Chart
from experiments.measures.structure import NAME, figures
from experiments.rows.row import rows_of, whole
from experiments.statistics.intervals import by_measurement, with_series

NOISE = 1e-12
CELLS = ("code", "wave", "kernel")
DRAWN = {
    "heatmap": ("code", figures.heatmap),
    "waves": ("wave", figures.waves),
    "kernel": ("kernel", figures.kernel),
    "kernel_curve": ("kernel_at", figures.kernel_curve),
    "wavelengths": ("wavelength", figures.wavelengths),
    "entropy": ("attention_entropy", figures.entropy),
}
MEANINGS = {
    "code alone: only distance counts (1 = yes)": "Share of the variance of the scores of equal tokens that lies "
    "between distances. 1: such a score depends on the distance alone.",
    "tells left from right (0 = no)": "Change of an untrained bidirectional model's output when its input is reversed, "
    "relative to that output. 0: left and right are alike.",
    "with tokens: scores change in a shift (0 = no)": "Largest change of a score of random tokens when all positions "
    "are shifted by the same number, relative to the largest score.",
    "half of attention within, tokens": "The nearest tokens, the query's own included, that get half of the last "
    "query's attention if all tokens are alike.",
    "99 % of attention within, tokens": "The same for 99 %.",
    "attention spreads with length (1 = evenly)": "Growth of the entropy of that attention with the logarithm of the "
    "length, up to 8 training lengths. 1: over all tokens; 0: it stays on as many.",
    "share never seen, at 4 × training": "Share of the codes, rotations and scores of a sequence of 4 training lengths "
    "that lie outside the range of those in training.",
    "receptive field, tokens": "The last tokens that hold 99 % of what an untrained model's last output depends on, by "
    "its gradient.",
}
"""Heading of each column of the table -> what its numbers mean."""


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """Return mean, interval and number of seeds for each series, metric and condition. See `by_measurement`.

    Without the thousands of cells that pictures are made of; rows have them.
    """
    rows = rows_of(rows, NAME)
    return by_measurement(rows[~rows["metric"].isin(CELLS)])


def shown(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the table, one for each run and column, with its heading in ``head`` and its ``meaning``.

    Of the shifts the one that changes scores most, of the lengths with something new the longest.
    """
    largest_first = rows.sort_values("value", ascending=False, kind="stable", na_position="last")
    shifted = largest_first[largest_first["metric"] == "score_shift_change"].groupby("run_id", sort=False).head(1)
    new = rows[rows["metric"] == "uncovered"]
    longest = new["sequence_length"] == new.groupby("run_id")["sequence_length"].transform("max")
    plain = whole(rows)
    of_column = [
        plain[plain["metric"] == "translation_invariance"],
        plain[plain["metric"] == "direction_awareness"],
        shifted.sort_index(),
        *(plain[plain["metric"] == metric] for metric in ("half_life", "window_99", "entropy_growth")),
        new[longest],
        plain[plain["metric"] == "receptive_field"],
    ]
    columns = dict(zip(MEANINGS, of_column, strict=True))
    table = pd.concat([part.assign(head=head, meaning=MEANINGS[head]) for head, part in columns.items()])
    return table.assign(value=table["value"].where(~(table["value"].abs() < NOISE), 0.0))


def plot(rows: pd.DataFrame) -> dict[str, Chart]:
    """Return the figures by name, of the first task that was measured: an encoder is the same for all."""
    rows = with_series(rows_of(rows, NAME))
    rows = rows[(rows["status"] == "ok") & (rows["task"] == rows["task"].min())]
    valued, looks = dict(list(rows.groupby("metric"))), style.looks(rows)
    trained = float(valued["train_positions"]["value"].max()) if "train_positions" in valued else math.nan
    with style.theme():
        drawn = {
            name: draw(valued[metric], looks, trained) for name, (metric, draw) in DRAWN.items() if metric in valued
        }
    return {name: figure for name, figure in drawn.items() if figure is not None}
