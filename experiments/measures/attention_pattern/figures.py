"""Figures of attention over distance: of one run head by head, of many as maps. Rows only, no model."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from experiments.figures import style
from experiments.figures.style import Look
from experiments.measures.attention_pattern.dots import ALIKE, INITIAL, SMALL, legend
from experiments.rows.row import among, metric_of

MEAN = -1
"""In place of a head: the mean of a layer's heads."""
SHADES = 3
"""Doublings, and halvings, that the colours of a lift tell apart."""


def histograms(rows: pd.DataFrame, metric: str) -> Figure:
    """Of one run: a panel a layer and head, bars of weight over distance, and what no preference would give."""
    of_metric = rows[(rows["metric"].isin([metric, INITIAL + metric])) & (rows["status"] == "ok")]
    of_metric = of_metric.assign(head=of_metric["head"].fillna(MEAN))
    bins = _bins(of_metric)
    panels = list(dict.fromkeys(zip(of_metric["layer"], of_metric["head"], strict=True)))
    in_layer = len({head for _, head in panels})
    columns = min(len(panels), next((count for count in (4, 3) if in_layer % count == 0 or in_layer == 1), in_layer))
    columns = columns if columns <= 4 else 4
    height = -(-len(panels) // columns)
    with style.theme():
        figure = style.figure(1.5 + 1.25 * height)
        grid = figure.subplots(height, columns, sharex=True, sharey=True, squeeze=False).ravel()
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        for axes, (layer, head) in zip(grid, panels, strict=False):
            of_panel = of_metric[(of_metric["layer"] == layer) & (of_metric["head"] == head)]
            now, before = (
                of_panel[of_panel["metric"] == name].set_index("distance").reindex([low for low, _ in bins])
                for name in (metric, INITIAL + metric)
            )
            places = np.arange(len(bins))
            axes.bar(places, now["value"], width=0.8, color="#56b4e9", zorder=2)
            axes.plot(places, before["value"], "o", markersize=3.5, color="white", markeredgecolor="#333333", zorder=4)
            axes.stairs(now["chance"], np.arange(len(bins) + 1) - 0.5, color="#c44e00", linewidth=1.3, zorder=3)
            axes.set_title(
                f"layer {layer}, head {head}" if head != MEAN else f"layer {layer}, mean of heads", fontsize=9
            )
            axes.grid(visible=False, axis="x")
            axes.set_ylim(0, 1)
            axes.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
            _distance_axis(axes, bins)
            sns.despine(ax=axes)
        _lowest_labelled(grid, len(panels), columns)
        figure.supylabel(f"{metric_of(metric).label} ({metric_of(metric).unit})", fontsize="medium")
        figure.suptitle(style.title(rows, "where each head looks"), fontsize="large")
        legend(
            figure,
            [
                Patch(color="#56b4e9", label="weight"),
                Line2D([], [], color="white", marker="o", markeredgecolor="#333333", label="before training"),
                Line2D([], [], color="#c44e00", label=ALIKE),
            ],
        )
    return figure


def lifts(rows: pd.DataFrame, metric: str, looks: dict[str, Look]) -> Figure:
    """Of many runs: a panel a label, a line a head and seed, colours for the weight over that of no preference."""
    of_metric = rows[rows["metric"] == metric]
    of_metric = of_metric.assign(head=of_metric["head"].fillna(MEAN))
    bins = _bins(of_metric[of_metric["status"] == "ok"])
    labels = among(looks, rows["label"])
    columns = min(4, len(labels))
    height = -(-len(labels) // columns)
    colours = sns.color_palette("PuOr_r", as_cmap=True).with_extremes(bad="#d9d9d9")
    with style.theme():
        figure = style.figure(1.6 + 1.35 * height)
        grid = figure.subplots(height, columns, sharex=True, squeeze=False).ravel()
        picture = None
        for axes in grid[len(labels) :]:
            axes.set_axis_off()
        for axes, label in zip(grid, labels, strict=False):
            axes.set_title(textwrap.fill(label, 24), fontsize=8.5)
            axes.grid(visible=False)
            valued = of_metric[(of_metric["label"] == label) & (of_metric["status"] == "ok")]
            _distance_axis(axes, bins)
            if valued.empty:
                _say(axes, " or ".join(sorted(set(rows.loc[rows["label"] == label, "status"]) - {"ok"})))
                continue
            lift, layers = _lift(valued, bins)
            picture = axes.imshow(lift, aspect="auto", cmap=colours, vmin=-SHADES, vmax=SHADES, interpolation="nearest")
            _layer_axis(axes, layers)
        _lowest_labelled(grid, len(labels), columns)
        figure.supylabel("layer; a line each head and seed", fontsize="medium")
        figure.suptitle(style.title(rows, "where heads look"), fontsize="large")
        assert picture is not None
        ticks = range(-SHADES, SHADES + 1)
        bar = figure.colorbar(
            picture,
            ax=list(grid),
            location="top",
            extend="both",
            fraction=0.25 / figure.get_figheight(),
            pad=0.1 / figure.get_figheight(),
            aspect=40,
        )
        bar.set_ticks(list(ticks), labels=[f"{2**t}×" if t >= 0 else f"1/{2**-t}×" for t in ticks])
        bar.ax.tick_params(labelsize=8)
        bar.set_label(f"weight over that of {ALIKE}", fontsize=8.5)
    return figure


def _bins(rows: pd.DataFrame) -> list[tuple[int, int]]:
    """The ranges of distance that were measured, in ascending order."""
    last = rows["distance"] + rows["size"].fillna(1) - 1
    return sorted(set(zip(rows["distance"].astype(int), last.astype(int), strict=True)))


def _distance_axis(axes: Axes, bins: list[tuple[int, int]]) -> None:
    named = [f"{low}" if low == high else f"{low} to {high}" for low, high in bins]
    axes.set_xticks(range(len(bins)), [name.replace("-", "−") for name in named], rotation=90, fontsize=SMALL)
    axes.set_xlim(-0.5, len(bins) - 0.5)


def _lowest_labelled(grid: Any, count: int, columns: int) -> None:
    """A distance axis for the lowest panel of each column; above an empty place it needs no room of its own."""
    for place, axes in enumerate(grid[:count]):
        lowest, above_nothing = place >= count - columns, place + columns < len(grid)
        axes.tick_params(labelbottom=lowest)
        if lowest and above_nothing:
            for text in axes.get_xticklabels():
                text.set_in_layout(False)
        elif lowest:
            axes.set_xlabel("tokens back", fontsize=8.5)


def _lift(rows: pd.DataFrame, bins: list[tuple[int, int]]) -> tuple[np.ndarray[Any, Any], list[int]]:
    """Doublings over no preference, a line a head and run and a column a bin; and the layer of each line."""
    tables = [
        rows.pivot_table(index=["layer", "head", "run_id"], columns="distance", values=name).reindex(
            columns=[low for low, _ in bins]
        )
        for name in ("value", "chance")
    ]
    middles = np.array([abs(low + high) / 2 for low, high in bins])
    weights = tables[0].to_numpy()
    distance = np.nansum(weights * middles, 1) / np.maximum(np.nansum(weights, 1), 1e-300)
    layers = tables[0].index.get_level_values("layer").to_numpy()
    order = np.lexsort((distance, layers))
    with np.errstate(divide="ignore", invalid="ignore"):
        lift = np.log2(weights / tables[1].to_numpy())
    return np.clip(lift, -SHADES, SHADES)[order], [int(layer) for layer in layers[order]]


def _layer_axis(axes: Axes, layers: list[int]) -> None:
    """A tick amid each layer's lines, a rule between layers; at most six are named."""
    names = sorted(set(layers))
    for layer in names[1:]:
        axes.axhline(layers.index(layer) - 0.5, color="#222222", linewidth=0.8)
    named = names[:: -(-len(names) // 6)]
    axes.set_yticks(
        [layers.index(n) + (layers.count(n) - 1) / 2 for n in named], [f"{name}" for name in named], fontsize=SMALL
    )


def _say(axes: Axes, text: str) -> None:
    axes.text(0.5, 0.5, text, ha="center", va="center", fontsize=SMALL, color="#666666", transform=axes.transAxes)
    axes.set_yticks([])
