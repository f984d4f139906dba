"""Figures of bits per byte over the length of windows, with distant text and without."""

from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from experiments.figures.length_panels import columns_at, panels
from experiments.figures.panels import by_task
from experiments.measures.context_use import CONTENT, CUT, GAIN, KEPT, NAME, QUALITY, REPLACED, SEPARATE, SLIDING
from experiments.statistics.intervals import by_measurement

CONDITIONS = (KEPT, CUT, REPLACED, SEPARATE, SLIDING)
CAPTIONS = {
    NAME: "Bits per byte over the length of windows; lower is better. Kept, cut and replaced predict the same tokens: "
    "after the whole window, after only its last part, as long as in training, and with all before that part replaced "
    "by other text. Separate and sliding windows predict all tokens of some stretches. The gap from cut down to kept "
    "is the gain from distant text. Bands: 95 % intervals over seeds. Dashed: the training length. Dotted, if within "
    "the panel: guessing by how often each token occurs. A line along a panel's top is at least as bad.",
}


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


def _figures(rows: pd.DataFrame, _: object) -> dict[str, Figure]:
    rows = rows[(rows["metric"] == QUALITY) & rows["condition"].isin(CONDITIONS)]
    if not (rows["status"] == "ok").any():
        return {}
    return {NAME: panels(rows.assign(line=rows["condition"]), CONDITIONS, "use of context", "length of windows")}


summarise = partial(by_measurement, experiment=NAME)
plot = partial(by_task, experiment=NAME, draw=_figures)
