"""Figure and table of what distant text is worth."""

from functools import partial

import pandas as pd

from experiments.figures import dots, words
from experiments.figures.panels import by_task, columns_at
from experiments.figures.style import Chart, Look
from experiments.measures.context_use import CONTENT, GAIN, NAME, QUALITY, SEPARATE, SLIDING
from experiments.statistics.intervals import by_measurement

GAINS = {GAIN: "all of it", CONTENT: "its content"}
HELPS = 0.01
"""Bits per byte from which on distant text is said to help."""
CAPTION = (
    "Bits per byte that distant text saves in the longest windows; right of the line: it helps. All of it: against a "
    "context cut to the training length. Its content: against distant text replaced by other text. All encoders, the "
    "largest gain on top."
)


def shown(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the table: bits at one and four times the training length, and gains at four times it."""
    quality = rows[rows["metric"] == QUALITY]
    parts = [
        (quality[quality["condition"] == condition], multiple, condition)
        for multiple in (1, 4)
        for condition in (SEPARATE, SLIDING)
    ]
    gains = ((GAIN, "gain from far context"), (CONTENT, "gain from its content"))
    return columns_at([*parts, *((rows[rows["metric"] == metric], 4, name) for metric, name in gains)])


def _figures(rows: pd.DataFrame, looks: dict[str, Look]) -> dict[str, Chart | None]:
    rows = rows[rows["metric"].isin(GAINS) & (rows["status"] == "ok")]
    rows = rows[rows["eval_length"] == rows["eval_length"].max()]
    gain = rows[rows["metric"] == GAIN].groupby("series")["value"].mean().sort_values(ascending=False)
    if gain.empty:
        return {}
    title = f"{rows['task'].iloc[0]}: text beyond the training length helps "
    title += words.brief(gain[gain > HELPS].index, len(gain)) if (gain > HELPS).any() else "no encoder"
    if len(gain) == 1:
        title = f"{rows['task'].iloc[0]}: text beyond the training length {_one(rows)}"
    how = {"y": f"bits per byte saved in windows of {int(rows['eval_length'].max())}", "alike": "xy"}
    figure, panels = dots.panels(title, CAPTION, list(gain.index), list(GAINS.values()), **how)
    for axes, metric in zip(panels, GAINS, strict=True):
        dots.draw(axes, rows[rows["metric"] == metric], list(gain.index), looks)
        dots.reference(axes, 0)
    return {NAME: figure}


def _one(rows: pd.DataFrame) -> str:
    """Say of one model what distant text does to it, and what its content is worth."""
    means = rows.groupby("metric")["value"].mean()
    gain, content = (float(means.get(name, 0.0)) for name in (GAIN, CONTENT))
    text = f"{'saves' if gain > HELPS else 'costs' if gain < -HELPS else 'changes'} {abs(gain):.2f} bits per byte"
    return f"{text}; its content saves {content:.2f}" if content > HELPS else f"{text}; its content is not used"


summarise = partial(by_measurement, experiment=NAME)
plot = partial(by_task, experiment=NAME, draw=_figures)
