"""Figure and table of heads between positional and symbolic."""

from functools import partial
from typing import Any

import pandas as pd

from experiments.figures import style, words
from experiments.figures.panels import by_task, chart
from experiments.figures.style import Chart, Look
from experiments.measures.attention_pattern.report import shown as attention_shown
from experiments.measures.head_roles import INITIAL, MAIN, NAME, OVERLAP, SYMBOLIC
from experiments.statistics.intervals import by_measurement

PANELS = 9
"""Most series that are drawn."""
CLEAR = 0.5
"""Score from which on a head is of a kind."""
CAPTION = (
    "Each head, by how far its weights stay with the symbols (right) or with the places (up) when tokens are permuted. "
    "Filled: trained; grey: before training. On the line the two kinds share all of a head's weights."
)


shown = partial(attention_shown, metrics=(MAIN, SYMBOLIC, OVERLAP))
"""A row for each run with the largest scores of its heads."""


def _figures(rows: pd.DataFrame, looks: dict[str, Look]) -> dict[str, Chart | None]:
    rows = rows[rows["status"] == "ok"]
    where = ["series", "run_id", "layer", "head"]
    table = rows.pivot_table(index=where, columns="metric", values="value", dropna=False).dropna(how="all")
    if MAIN not in table:
        return {}
    positional = table[MAIN].groupby("series").max().sort_values(ascending=False)
    chosen = style.chosen(looks, positional.index, PANELS)
    having = positional[positional > CLEAR]
    task = rows["task"].iloc[0]
    grows = f"a positional head grows with {words.brief(having.index, len(positional))}"
    title = f"{task}: {grows if len(having) else 'no head is mostly positional'}"
    caption = CAPTION + " Shown is the most positional of each family." * (len(chosen) < len(positional))
    how: dict[str, Any] = {"x": "symbolic", "y": "positional", "height": 1.3, "left": 0.4}
    figure, panels = chart(title, caption, list(chosen), **how)
    for axes, (series, look) in zip(panels, chosen.items(), strict=True):
        heads = table.loc[series]
        if INITIAL + MAIN in heads:
            axes.plot(heads[INITIAL + SYMBOLIC], heads[INITIAL + MAIN], "o", ms=2.2 * style.scale(), color=style.OTHER)
        axes.plot([0, 1], [1, 0], color=style.MUTED, linewidth=0.7 * style.scale(), zorder=1)
        axes.plot(heads[SYMBOLIC], heads[MAIN], "o", ms=3.2 * style.scale(), color=look.colour)
    panels[0].set(xlim=(-0.3, 1.05), ylim=(-0.3, 1.05))
    return {"head_roles": figure}


summarise = partial(by_measurement, experiment=NAME)
plot = partial(by_task, experiment=NAME, draw=_figures)
