"""The figures of the experiment `cost`, from rows alone."""

from __future__ import annotations

from typing import Any

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from experiments.figures import style as _style
from experiments.figures.panels import GREY, line, small_multiples, spread
from experiments.figures.style import Look
from experiments.rows.row import among, metric_of
from experiments.statistics.intervals import over_seeds

MEMORY = "peak_memory_mib"
PANELS = {
    "operations": {"relative_operations": "inference"},
    "time": {
        "relative_train_time": "training",
        "relative_inference_time": "inference",
        "relative_generation_time": "generation",
    },
    "memory": {"relative_train_peak_memory": "training", "relative_peak_memory": "inference"},
}
"""Title of a panel to what is drawn in it: metric to its word in the legend."""
STYLES: dict[str, dict[str, Any]] = {
    "training": {"marker": "o", "color": "#0173b2", "markersize": 6.5},
    "inference": {"marker": "D", "color": "#de8f05", "markersize": 4.5},
    "generation": {"marker": "^", "color": "#029e73", "markersize": 4.5},
}


def at_longest(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of one metric at the longest length it was measured at."""
    return rows[rows["sequence_length"] == rows["sequence_length"].max()]


def peak_memory(rows: pd.DataFrame, looks: dict[str, Look]) -> Figure | None:
    """Memory over length with the encoder and without, both axes logarithmic; None without a value."""
    rows = rows[(rows["metric"] == MEMORY) | rows["sequence_length"].isna()]
    valued = rows[(rows["metric"] == MEMORY) & (rows["status"] == "ok")]
    if valued.empty:
        return None
    summary = over_seeds(valued, ["label", "condition", "sequence_length"])
    lengths = sorted({int(length) for length in summary["sequence_length"]})
    low, high = summary["mean"].min() / 1.6, summary["mean"].max() * 1.6
    bare_style: dict[str, Any] = {"linewidth": 2.6, "alpha": 0.55}
    guide_style: dict[str, Any] = {"color": "#222222", "linewidth": 0.9, "linestyle": ":"}

    def draw(axes: Axes, label: str, look: Look) -> None:
        of_label = summary[summary["label"] == label]
        bare = of_label[of_label["condition"] != ""].sort_values("sequence_length")
        if len(bare):
            per_place = bare["mean"].iloc[-1] / bare["sequence_length"].iloc[-1]
            axes.plot(lengths, [per_place * length for length in lengths], **guide_style)
        line(axes, bare, "sequence_length", GREY, **bare_style)
        line(axes, of_label[of_label["condition"] == ""], "sequence_length", look.colour, linewidth=1.6, **_small(look))
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=10)
        axes.set_xlim(lengths[0] / 1.3, lengths[-1] * 1.3)
        axes.set_ylim(low, high)
        _ticks(axes, lengths)

    key = [
        Line2D([], [], color="#222222", linewidth=1.6, marker="o", markersize=4, label="with the encoder"),
        Line2D([], [], color=GREY, **bare_style, label="without"),
        Line2D([], [], **guide_style, label="in proportion to length"),
    ]
    metric = metric_of(MEMORY)
    what = {"title": metric.label, "x": "places"}
    return small_multiples(rows, looks, draw, **what, y=f"held at once ({metric.unit})", key=key)


def relative_cost(rows: pd.DataFrame, looks: dict[str, Look]) -> Figure | None:
    """A line a label, a panel each for operations, time and memory, on logarithmic axes; None without a value."""
    metrics = {metric: said for panel in PANELS.values() for metric, said in panel.items()}
    valued = rows[rows["metric"].isin(metrics) & (rows["status"] == "ok")]
    if valued.empty:
        return None
    at = pd.concat([at_longest(rows[rows["metric"] == metric]) for metric in metrics])
    means = over_seeds(at, ["label", "metric"]).set_index(["metric", "label"])["mean"]
    labels = among(looks, rows["label"])
    with _style.theme():
        figure = _style.figure(1.7 + 0.18 * len(labels))
        panels = figure.subplots(1, len(PANELS), sharey=True)
        for axes, (title, drawn) in zip(panels, PANELS.items(), strict=True):
            for metric, said in drawn.items():
                values = [means.get((metric, label), float("nan")) for label in labels]
                axes.plot(values, range(len(labels)), linestyle="none", markeredgewidth=0, **STYLES[said])
            axes.axvline(1, color="#666666", linewidth=1.0, zorder=1)
            axes.set_title(title, fontsize="medium")
            _ratio_axis(axes, means[means.index.isin(drawn, level="metric")])
            sns.despine(ax=axes, left=True)
        panels[0].set_yticks(range(len(labels)), labels, fontsize="small")
        panels[0].set_ylim(len(labels) - 0.4, -0.6)
        panels[1].set_xlabel("times that without the encoder")
        figure.suptitle(_style.title(rows, "cost of the encoder"), fontsize="large")
        handles = [Line2D([], [], linestyle="none", **style, label=said) for said, style in STYLES.items()]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    return figure


def _small(look: Look) -> dict[str, Any]:
    return look.marking() | {"markersize": 4}


def _ticks(axes: Axes, lengths: list[int]) -> None:
    """A tick at every length, numbers while there is room; round numbers upwards."""
    _style.ticks(axes.xaxis, lengths, spread(lengths, 4))
    axes.yaxis.set_major_locator(_rounded(axes.get_ylim()))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))


def _ratio_axis(axes: Axes, drawn: pd.Series[float]) -> None:
    """Logarithmic, at least from 0.8 to 2.2, with round numbers."""
    axes.set_xscale("log")
    axes.set_xlim(min(0.8, drawn.min() / 1.15), max(2.2, drawn.max() * 1.15))
    axes.xaxis.set_major_locator(_rounded(axes.get_xlim()))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))


def _rounded(limits: tuple[float, float]) -> LogLocator:
    """Powers of ten; 2 and 5 times them too where those would be few."""
    return LogLocator(10, subs=(1.0,) if limits[1] / limits[0] > 200 else (1.0, 2.0, 5.0))
