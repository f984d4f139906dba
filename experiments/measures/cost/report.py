"""Figures of memory over length, and of cost relative to the model without the encoder."""

from functools import partial
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from experiments.figures import style
from experiments.figures.panels import GREY, by_task, dot_panels, line, small_multiples, under_heads
from experiments.figures.style import Look
from experiments.measures.cost import NAME
from experiments.rows.row import among, metric_of
from experiments.statistics.intervals import by_measurement, over_seeds

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
STYLES: dict[str, dict[str, Any]] = {
    "training": {"marker": "o", "color": "#0173b2", "markersize": 6.5},
    "inference": {"marker": "D", "color": "#de8f05", "markersize": 4.5},
    "generation": {"marker": "^", "color": "#029e73", "markersize": 4.5},
}
HEADS = {
    "relative_operations": "operations at {}, × without",
    "relative_train_time": "training time at {}, × without",
    "relative_train_peak_memory": "training memory at {}, × without",
    "relative_inference_time": "inference time at {}, × without",
    "relative_generation_time": "generation time at {}, × without",
    "peak_memory_mib": "memory at {}, MiB",
    "relative_peak_memory": "memory at {}, × without",
}
CAPTIONS = {
    "peak_memory": "Peak memory of a forward pass over one sequence without gradients, beyond the model itself, over "
    "the length of the sequence in positions. Grey: the same model without the encoder. Dotted: growth in proportion "
    "to the length, through the longest length measured without the encoder. Lines are steeper while all queries are "
    "computed at once, and end where the encoder supports no longer sequence.",
    "relative_cost": "Cost with the encoder in multiples of the cost without it: 1 is free. Training at the training "
    "length, the others at the longest length measured. Means over seeds; blank where the encoder is unsupported.",
}


def shown(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the table, with their column's heading in ``head``: each at the longest length measured."""
    plain = rows[rows["condition"] == ""]
    parts = [plain[plain["metric"] == "encoder_parameters"].assign(head="parameters")]
    for metric, head in HEADS.items():
        at = _at_longest(plain[plain["metric"] == metric])
        parts += [part.assign(head=head.format(length)) for length, part in at.groupby("sequence_length")]
    return under_heads(parts, rows)


def _at_longest(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["sequence_length"] == rows["sequence_length"].max()]


def _peak_memory(rows: pd.DataFrame, looks: dict[str, Look]) -> Figure | None:
    rows = rows[(rows["metric"] == MEMORY) | rows["sequence_length"].isna()]
    valued = rows[(rows["metric"] == MEMORY) & (rows["status"] == "ok")]
    if valued.empty:
        return None
    summary = over_seeds(valued, ["series", "condition", "sequence_length"])
    lengths = sorted({int(length) for length in summary["sequence_length"]})
    low, high = summary["mean"].min() / 1.6, summary["mean"].max() * 1.6
    bare_style: dict[str, Any] = {"linewidth": 2.6, "alpha": 0.55}
    guide_style: dict[str, Any] = {"color": "#222222", "linewidth": 0.9, "linestyle": ":"}

    def draw(axes: Axes, series: str, look: Look) -> None:
        of_series = summary[summary["series"] == series]
        ours, bare = of_series[of_series["condition"] == ""], of_series[of_series["condition"] != ""]
        if len(bare):
            longest = bare.sort_values("sequence_length").iloc[-1]
            slope = float(longest["mean"] / longest["sequence_length"])
            axes.plot(lengths, [slope * length for length in lengths], **guide_style)
        line(axes, bare, "sequence_length", GREY, **bare_style)
        line(axes, ours, "sequence_length", look.colour, linewidth=1.6, **look.marking() | {"markersize": 4})
        style.length_axis(axes, lengths, [])
        axes.set_xlim(lengths[0] / 1.3, lengths[-1] * 1.3)
        axes.set_yscale("log", base=10)
        axes.set_ylim(low, high)
        _number(axes.yaxis, low, high)

    key = [
        Line2D([], [], color="#222222", linewidth=1.6, marker="o", markersize=4, label="with the encoder"),
        Line2D([], [], color=GREY, **bare_style, label="without"),
        Line2D([], [], **guide_style, label="in proportion to length"),
    ]
    metric = metric_of(MEMORY)
    what = {"title": metric.label, "x": "positions", "y": f"peak memory ({metric.unit})"}
    return small_multiples(rows, looks, draw, **what, key=key)


def _relative_cost(rows: pd.DataFrame, looks: dict[str, Look]) -> Figure | None:
    metrics = [metric for drawn in PANELS.values() for metric in drawn]
    if not (rows["metric"].isin(metrics) & (rows["status"] == "ok")).any():
        return None
    at = pd.concat([_at_longest(rows[rows["metric"] == metric]) for metric in metrics])
    means = over_seeds(at, ["series", "metric"]).set_index(["metric", "series"])["mean"]
    series_names = among(looks, rows["series"])
    with style.theme():
        figure, panels = dot_panels(series_names, list(PANELS), inches=0.18)
        for axes, drawn in zip(panels, PANELS.values(), strict=True):
            for metric, name in drawn.items():
                values = [means.get((metric, series), float("nan")) for series in series_names]
                axes.plot(values, range(len(series_names)), linestyle="none", markeredgewidth=0, **STYLES[name])
            axes.axvline(1, color="#666666", linewidth=1.0, zorder=1)
            of_panel = means[means.index.isin(drawn, level="metric")]
            low, high = min(0.8, of_panel.min() / 1.15), max(2.2, of_panel.max() * 1.15)
            axes.set_xscale("log")
            axes.set_xlim(low, high)
            _number(axes.xaxis, low, high)
        panels[1].set_xlabel("multiple of the cost without the encoder")
        figure.suptitle(style.title(rows, "cost of the encoder"), fontsize="large")
        style.legend(figure, [Line2D([], [], linestyle="none", **how, label=name) for name, how in STYLES.items()])
    return figure


def _number(axis: Any, low: float, high: float) -> None:
    axis.set_major_locator(LogLocator(10, subs=(1.0,) if high / low > 200 else (1.0, 2.0, 5.0)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))


summarise = partial(by_measurement, experiment=NAME)
plot = partial(
    by_task,
    experiment=NAME,
    draw=lambda of_task, looks: {draw.__name__[1:]: draw(of_task, looks) for draw in (_peak_memory, _relative_cost)},
)
