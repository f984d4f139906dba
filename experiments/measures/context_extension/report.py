"""Figures of quality over length, of a trained model unchanged and changed without training."""

from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from experiments.figures.length_panels import columns_at, panels
from experiments.figures.panels import by_task
from experiments.measures.context_extension import AS_TRAINED, DROPPED, NAME, REPLACED, WINDOW
from experiments.rows.row import main_metric, metric_of
from experiments.statistics.intervals import by_measurement, with_series

QUALITIES = ("bits_per_byte", "token_accuracy", "exact_match")
CAPTIONS = {
    f"{NAME}_{metric}": "Quality over length, a panel for each trained model: as trained; with the named encoder in "
    "place of its own, extended to the length; with a window of the training length; and with its encoder dropped. "
    "No training after the change, except in lines that say fine-tuned. Bands: 95 % intervals over seeds. Dashed: the "
    "training length. Dotted, if within the panel: guessing without reading."
    + (" A line along a panel's top is at least as bad." * worse)
    for metric, worse in zip(QUALITIES, (1, 0, 0), strict=True)
}


def shown(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the table: the main metric at four times the training length, a column for each condition."""
    rows, lines = _by_line(rows)
    rows = rows[rows["metric"] == main_metric(rows["metric"].unique())]
    # A model without any possible replacement is listed as unsupported under each replacement.
    of_line = {line: [line] if line in (AS_TRAINED, WINDOW) else [line, REPLACED] for line in lines[:-1]}
    return columns_at([(rows[rows["line"].isin(conditions)], 4, line) for line, conditions in of_line.items()])


def _figures(rows: pd.DataFrame, _: object) -> dict[str, Figure]:
    rows, lines = _by_line(rows)
    figures = {}
    for metric in QUALITIES:
        of_metric = rows[rows["metric"] == metric]
        if (of_metric["status"] == "ok").any():
            title = f"{metric_of(metric).label}, beyond the training length"
            figures[f"{NAME}_{metric}"] = panels(of_metric, lines, title, "length measured")
    return figures


def _by_line(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    rows = with_series(rows)
    rows = rows.assign(line=rows["condition"].where(rows["condition"] != "", AS_TRAINED))
    others = set(rows["line"]) - {AS_TRAINED, WINDOW, DROPPED, REPLACED}
    return rows, [AS_TRAINED, *sorted(others), WINDOW, DROPPED]


summarise = partial(by_measurement, experiment=NAME)
plot = partial(by_task, experiment=NAME, draw=_figures)
