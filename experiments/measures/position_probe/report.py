"""Figures and tables of the errors of position probes."""

from functools import partial
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from experiments.figures.panels import GREY, by_task, highest, line, small_multiples, spread, under_heads
from experiments.figures.style import Look
from experiments.measures.position_probe import INITIAL, MAIN, NAME, SHUFFLED, TOKENS
from experiments.rows.row import metric_of
from experiments.statistics.intervals import by_measurement, over_seeds

MOST_LAYERS = 5
CAPTIONS = {
    "probe_error": "Mean absolute error, in places, of a linear probe that predicts the place of a token from its "
    "state before the first layer (0) and after each; held-out sequences of the training length. Solid: trained. "
    "Dashed: before training. Grey: probes of tokens alone, of the trained states with shuffled labels, and the best "
    "constant guess. Bands: 95 % intervals over seeds.",
}


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


def _over_layers(rows: pd.DataFrame, looks: dict[str, Look]) -> dict[str, Figure]:
    if not (rows["status"] == "ok").any():
        return {}
    layered = over_seeds(rows[rows["layer"].notna()], ["series", "metric", "condition", "layer"])
    alone = over_seeds(rows[rows["condition"] == TOKENS], ["series"]).set_index("series")["mean"]
    constant = rows.groupby("series")["chance"].mean()
    top = max(highest(layered), alone.max(), constant.max())
    tokens_style: dict[str, Any] = {"color": GREY, "linewidth": 1.2, "linestyle": "-."}
    constant_style: dict[str, Any] = {"color": GREY, "linewidth": 1.0, "linestyle": (0, (1, 1.5))}

    def draw(axes: Axes, series: str, look: Look) -> None:
        of_series = layered[layered["series"] == series]
        for condition, metric, colour, style in (
            (SHUFFLED, MAIN, GREY, {"linewidth": 1.0, "marker": "x", "markersize": 4}),
            ("", INITIAL, look.colour, {"linewidth": 1.4, "linestyle": (0, (3, 2))}),
            ("", MAIN, look.colour, {"linewidth": 1.8, **look.marking(), "markersize": 5}),
        ):
            part = of_series[(of_series["condition"] == condition) & (of_series["metric"] == metric)]
            line(axes, part, "layer", colour, **style)
        if series in alone.index and alone.notna()[series]:
            axes.axhline(alone[series], **tokens_style)
        if constant.notna()[series]:
            axes.axhline(constant[series], **constant_style)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6, min_n_ticks=1))
        axes.set_ylim(-0.03 * top, 1.04 * top)

    key = [
        Line2D([], [], color="#222222", linewidth=1.8, marker="o", markersize=5, label="trained"),
        Line2D([], [], color="#222222", linewidth=1.4, linestyle=(0, (3, 2)), label="before training"),
        Line2D([], [], **tokens_style, label=TOKENS),
        Line2D([], [], color=GREY, linewidth=1.0, marker="x", markersize=4, label=SHUFFLED),
        Line2D([], [], **constant_style, label="best constant guess"),
    ]
    metric = metric_of(MAIN)
    what = {"title": "error of a linear probe for places", "x": "layer"}
    return {MAIN: small_multiples(rows, looks, draw, **what, y=f"mean error ({metric.unit})", key=key)}


summarise = partial(by_measurement, experiment=NAME)
plot = partial(by_task, experiment=NAME, draw=_over_layers)
