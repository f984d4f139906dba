"""Figures of attention weight over distance: of one run by head, of many as maps."""

from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from experiments.figures import style
from experiments.figures.panels import Grid, colour_bar, small_multiples
from experiments.figures.style import Look
from experiments.measures.attention_pattern import INITIAL
from experiments.rows.row import metric_of

UNIFORM = "uniform weights"
MEAN = -1
"""In place of a head: the mean of a layer's heads."""
DOUBLINGS = 3


def histograms(rows: pd.DataFrame, metric: str) -> Figure:
    """Return a figure of one run: a panel for each head, with bars of weight over distance."""
    rows = rows[(rows["metric"].isin([metric, INITIAL + metric])) & (rows["status"] == "ok")]
    bins = _bins(rows)
    lows, places = [low for low, _ in bins], np.arange(len(bins))
    rows = rows.assign(head=rows["head"].fillna(MEAN))
    heads = {f"layer {layer}, head {head}": part for (layer, head), part in rows.groupby(["layer", "head"])}
    names = [name.replace(f"head {MEAN}", "mean of heads") for name in heads]
    in_layer = len(names) // rows["layer"].nunique()
    columns = next((count for count in (4, 3) if in_layer % count == 0), 4 if in_layer in (1, 2) else min(4, in_layer))
    with style.theme():
        grid = Grid(names, x="tokens back", y=metric_of(metric).unit, columns=columns, height=1.6)
        for axes, of_head in zip(grid, heads.values(), strict=True):
            now, before = (
                of_head[of_head["metric"] == name].set_index("distance").reindex(lows)
                for name in (metric, INITIAL + metric)
            )
            axes.bar(places, now["value"], width=0.8, color="#56b4e9", zorder=2)
            axes.plot(places, before["value"], "o", markersize=3.5, color="white", markeredgecolor="#333333", zorder=4)
            axes.stairs(now["chance"], np.arange(len(bins) + 1) - 0.5, color="#c44e00", linewidth=1.3, zorder=3)
            axes.grid(visible=False, axis="x")
            axes.set_ylim(0, 1)
            axes.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
            _distance_axis(axes, bins)
        key = [
            Patch(color="#56b4e9", label="weight"),
            Line2D([], [], color="white", marker="o", markeredgecolor="#333333", label="before training"),
            Line2D([], [], color="#c44e00", label=UNIFORM),
        ]
        return grid.finish(style.title(rows, "attention weight over distance"), key)


def lifts(rows: pd.DataFrame, metric: str, looks: dict[str, Look]) -> Figure:
    """Return a figure of many runs: a map for each series of weight relative to uniform weights."""
    valued = rows[(rows["metric"] == metric) & (rows["status"] == "ok")]
    valued = valued.assign(head=valued["head"].fillna(MEAN))
    bins = _bins(valued)
    colours = sns.color_palette("PuOr_r", as_cmap=True).with_extremes(bad="#d9d9d9")
    scale = Normalize(-DOUBLINGS, DOUBLINGS)

    def draw(axes: Axes, series: str, _: Look) -> None:
        axes.grid(visible=False)
        _distance_axis(axes, bins)
        of_series = valued[valued["series"] == series]
        if of_series.empty:
            axes.set_yticks([])
            return
        lift, layers = _lift(of_series, bins)
        axes.imshow(lift, aspect="auto", cmap=colours, norm=scale, interpolation="nearest")
        _layer_axis(axes, layers)

    figure = small_multiples(
        rows,
        looks,
        draw,
        title="attention weight over distance",
        x="tokens back",
        y="layer; a line for each head and seed",
        columns=4,
        height=1.5,
        sharey=False,
    )
    ticks: dict[float, str] = {t: f"{2**t}×" if t >= 0 else f"1/{2**-t}×" for t in range(-DOUBLINGS, DOUBLINGS + 1)}
    colour_bar(figure, colours, scale, ticks, extend="both", label=f"relative to {UNIFORM}")
    return figure


def _bins(rows: pd.DataFrame) -> list[tuple[int, int]]:
    last = rows["distance"] + rows["size"].fillna(1) - 1
    return sorted(set(zip(rows["distance"].astype(int), last.astype(int), strict=True)))


def _distance_axis(axes: Axes, bins: list[tuple[int, int]]) -> None:
    named = [f"{low}" if low == high else f"{low} to {high}" for low, high in bins]
    axes.set_xticks(range(len(bins)), [name.replace("-", "−") for name in named], rotation=90, fontsize="x-small")
    axes.set_xlim(-0.5, len(bins) - 0.5)


def _lift(rows: pd.DataFrame, bins: list[tuple[int, int]]) -> tuple[np.ndarray[Any, Any], list[int]]:
    """Return doublings over uniform weights, a line for each head and run, and the layer of each line."""
    weights, uniform = (
        rows.pivot_table(index=["layer", "head", "run_id"], columns="distance", values=name).reindex(
            columns=[low for low, _ in bins]
        )
        for name in ("value", "chance")
    )
    middles = np.array([abs(low + high) / 2 for low, high in bins])
    shares = weights.to_numpy()
    distance = np.nansum(shares * middles, 1) / np.maximum(np.nansum(shares, 1), 1e-300)
    layers = weights.index.get_level_values("layer").to_numpy()
    order = np.lexsort((distance, layers))
    with np.errstate(divide="ignore", invalid="ignore"):
        lift = np.log2(shares / uniform.to_numpy())
    return np.clip(lift, -DOUBLINGS, DOUBLINGS)[order], [int(layer) for layer in layers[order]]


def _layer_axis(axes: Axes, layers: list[int]) -> None:
    names = sorted(set(layers))
    for layer in names[1:]:
        axes.axhline(layers.index(layer) - 0.5, color="#222222", linewidth=0.8)
    numbered = names[:: -(-len(names) // 6)]
    middles = [layers.index(layer) + (layers.count(layer) - 1) / 2 for layer in numbered]
    axes.set_yticks(middles, [str(layer) for layer in numbered], fontsize="x-small")
