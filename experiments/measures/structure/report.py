"""Figures and tables of untrained encoders."""

from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from experiments.figures.panels import by_task
from experiments.figures.style import Look
from experiments.measures.structure import NAME, figures
from experiments.rows.row import rows_of, whole
from experiments.statistics.intervals import by_measurement

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
CAPTIONS = {
    "heatmap": "Vector added to a token's embedding, by position (down) and dimension (across), before training. The "
    "title of a panel has the ends of its colour scale. First seed. Series without a panel add nothing.",
    "waves": "Single dimensions of the vector added to a token's embedding, over the position. First seed. Shaded: "
    "training sequences. Series without a panel add nothing.",
    "kernel": "Expected score between a query (down) and a key (across) of the same content, both by position; mean "
    "over heads, first layer, before training. The title of a panel has the ends of its colour scale. Dashed: the end "
    "of training sequences. Grey: masked, or no score. First seed. Cells are single positions, so waves shorter than "
    "two cells alias to longer ones.",
    "kernel_curve": "Expected score over distance (query minus key position), a line for each head, relative to the "
    "score at distance 0 (or the nearest); first layer, before training. The axis is logarithmic from 1 on; scales "
    "of scores differ among panels. Shaded: distances within training sequences. Means over queries and seeds.",
    "wavelengths": "Measured wavelength of each dimension that is a pure wave over positions. Dashed: the longest "
    "training sequence; waves above it never complete a period in training. Dimensions are those of the model where "
    "a vector is added, of a head where queries and keys are rotated. Means over seeds.",
    "entropy": "Entropy of the last query's attention when all content is alike, over the number of keys; mean over "
    "heads. Dotted: equal weights, ln(keys). Curves parallel to it stay diffuse at any length; flat ones attend to a "
    "fixed neighbourhood. Bands: 95 % interval over seeds. Shaded: training.",
}


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """Return mean, interval and number of seeds for each series, metric and condition. See `by_measurement`.

    Without the thousands of cells that pictures are made of; rows have them.
    """
    rows = rows_of(rows, NAME)
    return by_measurement(rows[~rows["metric"].isin(CELLS)])


def shown(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the table, one for each run and column, with the column's heading in ``head``.

    Of the shifts the one that changes scores most, of the lengths with something new the longest.
    """
    largest_first = rows.sort_values("value", ascending=False, kind="stable", na_position="last")
    shifted = largest_first[largest_first["metric"] == "score_shift_change"].groupby("run_id", sort=False).head(1)
    new = rows[rows["metric"] == "uncovered"]
    longest = new["sequence_length"] == new.groupby("run_id")["sequence_length"].transform("max")
    plain = whole(rows)
    columns = {
        "only distance counts (1 = yes)": plain[plain["metric"] == "translation_invariance"],
        "tells left from right": plain[plain["metric"] == "direction_awareness"],
        "change of scores when shifted": shifted.sort_index(),
        "half of attention within": plain[plain["metric"] == "half_life"],
        "99 % of attention within": plain[plain["metric"] == "window_99"],
        "growth of entropy (1 = diffuse)": plain[plain["metric"] == "entropy_growth"],
        "new at 4 × training": new[longest],
        "receptive field": plain[plain["metric"] == "receptive_field"],
    }
    table = pd.concat([part.assign(head=head) for head, part in columns.items()])
    return table.assign(value=table["value"].where(~(table["value"].abs() < NOISE), 0.0))


def _figures(rows: pd.DataFrame, looks: dict[str, Look]) -> dict[str, Figure]:
    valued = dict(list(rows[rows["status"] == "ok"].groupby("metric")))
    lengths = valued.get("train_positions", rows.head(0)).groupby("series")["value"]
    trained = {str(series): sorted(set(part)) for series, part in lengths}
    return {name: draw(valued[metric], looks, trained) for name, (metric, draw) in DRAWN.items() if metric in valued}


plot = partial(by_task, experiment=NAME, draw=_figures)
