"""Figures of quality over length, and of loss over position."""

from functools import partial

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.figures import style
from experiments.figures.panels import by_task, shades, small_multiples
from experiments.figures.style import Look
from experiments.measures.length_extrapolation import GENERATED, NAME, POSITION_LOSS
from experiments.rows.row import among, metric_of
from experiments.statistics.intervals import by_measurement, over_seeds

QUALITIES = ("bits_per_byte", "token_accuracy", "exact_match", f"{GENERATED}token_accuracy")


def _figures(rows: pd.DataFrame, looks: dict[str, Look]) -> dict[str, Figure]:
    by_metric = dict(list(rows.groupby("metric")))
    drawn = {metric: _over_length(by_metric[metric], looks) for metric in QUALITIES if metric in by_metric}
    of_position = by_metric.get(POSITION_LOSS, rows.head(0))
    if (of_position["status"] == "ok").any():
        drawn[POSITION_LOSS] = _over_position(of_position, looks)
    return drawn


def _over_length(rows: pd.DataFrame, looks: dict[str, Look]) -> Figure:
    summary = summarise(rows)
    metric = metric_of(summary["metric"].iloc[0])
    train_lengths = sorted(set(summary["train_length"]))
    with style.theme():
        figure = style.figure(4.0)
        axes = figure.subplots()
        style.length_axis(axes, sorted(set(summary["eval_length"])), train_lengths)
        for train_length in train_lengths:
            style.boundary(axes, train_length, f"trained up to {train_length}")
        style.curves(axes, summary, "eval_length", looks)
        chance = summary.groupby("eval_length")["chance"].mean().dropna()
        if len(chance):
            axes.plot(chance.index, chance, color="#888888", linestyle=":", linewidth=1.2, zorder=1.5)
            start, up = (float(chance.index[0]), float(chance.iloc[0])), bool(metric.higher_is_better)
            style.note(axes, "guessing without reading", start, (0, 3 if up else -3), va="bottom" if up else "top")
        axes.set_ylim(*((-0.02, 1.02) if metric.higher_is_better else (0, None)))
        axes.set_xlabel("length measured")
        axes.set_ylabel(f"{metric.label} ({metric.unit})")
        axes.set_title(style.title(rows, metric.label), pad=20)
        sns.despine(ax=axes)
        shown = {series: looks[series] for series in among(looks, rows["series"])}
        style.legend(figure, style.handles(shown, _ends(summary)))
    return figure


def _ends(summary: pd.DataFrame) -> dict[str, str]:
    notes = {}
    for series, group in summary.groupby("series"):
        parts = []
        for status in ("unsupported", "diverged"):
            lacking = group[group[status] > 0]
            if len(lacking):
                count = "" if (lacking["seeds"] == 0).all() else f"{lacking[status].max()} of its seeds "
                start = "" if len(lacking) == len(group) else f" from {lacking['eval_length'].min()}"
                parts.append(f"{count}{status}{start}")
        if parts:
            notes[str(series)] = "; ".join(parts)
    return notes


def _over_position(rows: pd.DataFrame, looks: dict[str, Look]) -> Figure:
    rows = rows[rows["position"].notna()]
    last = rows["position"].astype(int) + rows["size"].fillna(1).astype(int) - 1
    rows = rows.assign(last=last, middle=(rows["position"].astype(int) + last) / 2)
    summary = over_seeds(rows, ["series", "eval_length", "middle"])
    lengths, furthest = sorted(set(rows["eval_length"])), int(last.max())
    colours = shades(lengths)
    within = rows[rows["eval_length"] == rows["train_length"]]
    ends = within["last"].groupby(within["series"]).max()
    ticks = [2**power for power in range(0, furthest.bit_length() + 1, 2) if 2**power <= furthest]
    top = 1.05 * float(summary["mean"].max())

    def draw(axes: Axes, series: str, _: Look) -> None:
        of_series = summary[(summary["series"] == series) & (summary["seeds"] > 0)]
        for length in lengths:
            line = of_series[of_series["eval_length"] == length].sort_values("middle")
            axes.plot(line["middle"], line["mean"], color=colours[length], linewidth=1.5)
        style.length_axis(axes, ticks, [])
        axes.set_xlim(0.9, furthest * 1.1)
        axes.set_ylim(0, top)
        if series in ends:
            style.boundary(axes, ends[series])

    metric = metric_of(POSITION_LOSS)
    key = [Line2D([], [], color=colours[length], linewidth=2, label=f"length {length}") for length in lengths]
    return small_multiples(rows, looks, draw, title=metric.label, x="position", y=f"loss ({metric.unit})", key=key)


summarise = partial(by_measurement, experiment=NAME)
plot = partial(by_task, experiment=NAME, draw=_figures)
