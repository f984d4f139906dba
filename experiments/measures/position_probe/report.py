"""Figures and tables of the errors of position probes."""

from functools import partial
from typing import Any

import pandas as pd

from experiments.figures import lines, style, words
from experiments.figures.panels import by_task, chart, spread, under_heads
from experiments.figures.style import Chart, Look
from experiments.measures.position_probe import INITIAL, MAIN, NAME, TOKENS
from experiments.statistics.intervals import by_measurement

MOST_LAYERS = 5
READABLE = 0.5
"""An error below this many places reads the place."""


def shown(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the table, with their column's heading in ``head``: layers, controls, constant guess."""
    layers = spread([int(layer) for layer in rows["layer"].dropna().unique()], MOST_LAYERS)
    of_main = rows[rows["metric"] == MAIN]
    plain = of_main[of_main["condition"] == ""]
    parts = [plain[plain["layer"] == layer].assign(head=f"layer {layer}") for layer in layers]
    untrained = rows[(rows["metric"] == INITIAL) & rows["layer"].isin(layers[-1:])]
    alone = of_main[of_main["condition"] == TOKENS]
    parts += [
        untrained.assign(head=f"layer {max(layers, default=0)}, untrained"),
        alone.assign(head=TOKENS),
        alone.assign(value=alone["chance"], head="best constant"),
    ]
    return under_heads(parts, rows)


def _over_layers(rows: pd.DataFrame, looks: dict[str, Look]) -> dict[str, Chart | None]:
    rows = rows[rows["status"] == "ok"]
    plain = rows[(rows["condition"] == "") & rows["layer"].notna()]
    if plain.empty:
        return {}
    plain = plain.assign(layer=plain["layer"].astype(int))
    trained = plain[plain["metric"] == MAIN]
    last = trained[trained["layer"] == trained["layer"].max()].groupby("series")["value"].mean().sort_values()
    named = style.chosen(looks, last.index)
    caption = (
        "Mean error, in places, of a linear probe that predicts the place of a token from its state before the first "
        "layer (0) and after each; held-out sequences of the training length. Dotted: a probe of the tokens alone, and "
        "the best constant guess. Thick: mean, thin: seeds."
    )
    caption += " Colour: the least error of each family; grey: the others." * (len(named) < len(looks))
    before = plain[plain["metric"] == INITIAL]
    panels = {"before training": before, "trained": trained} if len(before) else {"": trained}
    how: dict[str, Any] = {"x": "layer", "y": "mean error (places)", "key": named}
    figure, found = chart(_finding(rows, last), caption, list(panels), height=1.7, left=0.25, **how)
    controls = {"tokens alone": rows[rows["condition"] == TOKENS]["value"].mean(), "constant": rows["chance"].mean()}
    for axes, part in zip(found, panels.values(), strict=True):
        lines.draw(axes, part, "layer", named)
        for text, level in controls.items():
            above = level == max(controls.values())
            axes.axhline(level, color=style.MUTED, linestyle=(0, (1, 2)), linewidth=1.1 * style.scale())
            how = {"fontsize": 7 * style.scale(), "color": style.MUTED, "ha": "right", "textcoords": "offset points"}
            axes.annotate(text, (1, level), (0, 2 if above else -8), xycoords=("axes fraction", "data"), **how)
    found[0].set_ylim(0, 1.12 * max(plain["value"].max(), *controls.values()))
    found[0].set_xticks(sorted(set(plain["layer"])))
    return {MAIN: figure}


def _finding(rows: pd.DataFrame, last: "pd.Series[float]") -> str:
    task, reading = rows["task"].iloc[0], list(last[last < READABLE].index)
    if not reading:
        return f"{task}: the place of a token cannot be read exactly"
    return f"{task}: the place of a token can be read with {words.brief(reading, len(last))}"


summarise = partial(by_measurement, experiment=NAME)
plot = partial(by_task, experiment=NAME, draw=_over_layers)
