"""Figures and table of attention sinks by layer."""

from functools import partial
from typing import Any

import pandas as pd

from experiments.figures import lines, style, words
from experiments.figures.panels import by_task, chart, columns_at, ticks
from experiments.figures.style import Chart, Look
from experiments.measures.attention_pattern.report import over_heads
from experiments.measures.attention_sinks import KURTOSIS, LARGEST, MAIN, NAME, VALUE_NORM
from experiments.rows.row import metric_of
from experiments.statistics.intervals import by_measurement

PANELS = {MAIN: "weight on the first token", VALUE_NORM: "norm of its values", KURTOSIS: "kurtosis of the stream"}
SINK = 0.3
"""Share of a layer's weight from which on the first token is called a sink; Gu et al. (2024), arXiv:2410.10781."""
CAPTION = (
    "At the training length, by layer (0 of the stream: embeddings). Weight: mean over heads and queries; norm: times "
    "that of other tokens' values; kurtosis: 3 for normal numbers. Thick: mean, thin: seeds."
)


def shown(rows: pd.DataFrame) -> pd.DataFrame:
    """Return, for each run, its layer with the largest value: at the training length and at the longest."""
    longest = float((rows["eval_length"] / rows["train_length"]).max())
    parts = []
    for metric in (MAIN, KURTOSIS, LARGEST):
        of_metric = rows[rows["metric"] == metric]
        if len(of_metric):
            largest = over_heads(of_metric, ["eval_length"], largest=True)
            parts += [(largest, multiple, metric_of(metric).label) for multiple in dict.fromkeys((1.0, longest))]
    return columns_at(parts)


def _figures(rows: pd.DataFrame, looks: dict[str, Look]) -> dict[str, Chart | None]:
    rows = rows[(rows["status"] == "ok") & (rows["eval_length"] == rows["train_length"])]
    first = rows[rows["metric"] == MAIN].groupby(["series", "layer"])["value"].mean().groupby("series").max()
    if first.empty:
        return {}
    first = first.sort_values(ascending=False)
    having, named = first[first > SINK], style.chosen(looks, first.index)
    task = rows["task"].iloc[0]
    title = f"{task}: the first token is no sink"
    if len(having):
        title = f"{task}: the first token is a sink with {words.brief(having.index, len(first))}"
    caption = CAPTION + " Colour: the largest weight of each family; grey: the others." * (len(named) < len(looks))
    how: dict[str, Any] = {"x": "layer", "height": 1.6, "alike": "", "key": named, "left": 0.42}
    figure, panels = chart(title, caption, list(PANELS.values()), **how)
    for axes, metric in zip(panels, PANELS, strict=True):
        part = rows[rows["metric"] == metric]
        lines.draw(axes, part, "layer", named)
        layers = sorted(set(part["layer"].astype(int)))
        ticks(axes.xaxis, layers, layers)
        axes.set_ylim(bottom=0)
    return {"attention_sinks": figure}


summarise = partial(by_measurement, experiment=NAME)
plot = partial(by_task, experiment=NAME, draw=_figures)
