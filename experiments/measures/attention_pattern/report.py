"""Figures and table of attention weights over distance and of each head's scores."""

from functools import partial
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.figures import style
from experiments.figures.panels import by_task, dot_panels, why_empty
from experiments.figures.style import Look
from experiments.measures.attention_pattern import DISTANCE, ENTROPY, FIRST, INDUCTION, INITIAL, MAIN, MASS, NAME
from experiments.measures.attention_pattern.distances import UNIFORM, histograms, lifts
from experiments.rows.row import COORDINATES, among, metric_of
from experiments.statistics.intervals import by_measurement, errors, over_seeds, with_series

SCORES = (MAIN, INDUCTION, FIRST)
CAPTIONS = {
    "attention_histogram": "Share of each head's weight at each distance, in tokens (negative: ahead). Bars: mean over "
    "queries and sequences; circles: before training; line: uniform weights on all visible keys. A preference stands "
    "out from the line. Models of many heads have one panel for each layer.",
    "attention_lift": "Weight at each distance, in tokens (negative: ahead), relative to uniform weights on all "
    "visible keys. A panel for each series, a line for each head and seed, by layer and by mean distance. White: no "
    "preference; the ends of the scale include all beyond them. Grey: no such distance.",
    "attention_heads": "The most pronounced head. Large: the largest of all heads, mean over seeds; bars: 95 % t "
    "interval, not cut to the axis; hollow: before training; small dots: every head and seed; vertical strokes: that "
    "head with uniform weights. For one series, a line for each layer.",
    "attention_spread": "How widely heads attend. Large: mean over heads and seeds; bars: 95 % interval over seeds; "
    "hollow: before training; small dots: every head and seed; vertical strokes: uniform weights. For one series, a "
    "line for each layer.",
}


def over_heads(rows: pd.DataFrame, by: list[str], *, largest: bool) -> pd.DataFrame:
    """Return one row for each run: the largest of its heads' rows of one metric, or their mean. Without coordinates.

    The rows have a ``series``; ``by`` are columns that make groups within a run. A run without a value keeps one row
    with its status.
    """
    parts = []
    for _, group in rows.groupby([*by, "series", "run_id"], sort=False):
        valued = group[group["status"] == "ok"]
        if valued.empty:
            parts.append(group.head(1))
        elif largest:
            parts.append(valued.loc[[valued["value"].idxmax()]])
        else:
            parts.append(valued.head(1).assign(value=valued["value"].mean(), chance=valued["chance"].mean()))
    found = pd.concat(parts) if parts else rows.head(0)
    return found.assign(condition="", **dict.fromkeys(COORDINATES, None))


def dots(rows: pd.DataFrame, metrics: list[str], looks: dict[str, Look], *, largest: bool) -> Figure:
    """Return a figure with a panel for each metric and a line for each series, or each layer of a single series."""
    series_names = among(looks, rows["series"])
    if len(series_names) == 1:
        rows = rows[rows["layer"].notna()]
        rows = rows.assign(line="layer " + rows["layer"].astype(str))
        look_of = {f"layer {layer}": looks[series_names[0]] for layer in sorted(set(rows["layer"]))}
    else:
        rows, look_of = rows.assign(line=rows["series"]), {series: looks[series] for series in series_names}
    with style.theme():
        figure, panels = dot_panels(list(look_of), [metric_of(metric).label for metric in metrics])
        for axes, metric in zip(panels, metrics, strict=True):
            _panel(axes, rows, metric, look_of, largest=largest)
            axes.set_xlabel(metric_of(metric).unit, fontsize="small")
        text = "the most pronounced heads" if largest else "how widely heads attend"
        figure.suptitle(style.title(rows, text), fontsize="large")
        grey: dict[str, Any] = {"color": "#555555", "linestyle": ""}
        key = [
            Line2D([], [], marker="o", markersize=7, label="largest head" if largest else "mean of heads", **grey),
            Line2D([], [], marker="o", markersize=6, markerfacecolor="white", label="before training", **grey),
            Line2D([], [], marker=".", markersize=4, alpha=0.6, label="each head and seed", **grey),
            Line2D([], [], marker="|", markersize=10, label=UNIFORM, **grey),
        ]
        style.legend(figure, key)
    return figure


def _panel(axes: Axes, rows: pd.DataFrame, metric: str, looks: dict[str, Look], *, largest: bool) -> None:
    found = {}
    for name in (metric, INITIAL + metric):
        best = over_heads(rows[rows["metric"] == name], ["line"], largest=largest)
        found[name] = {line["line"]: line for line in over_seeds(best, ["line"]).to_dict("records")}
    for place, (line, look) in enumerate(looks.items()):
        of_line = rows[(rows["metric"] == metric) & (rows["line"] == line) & (rows["status"] == "ok")]["value"]
        axes.plot(of_line, [place] * len(of_line), ".", color=look.colour, alpha=0.35, markersize=3.5, zorder=2)
        now, before = found[metric].get(line), found[INITIAL + metric].get(line)
        if now is None or not now["seeds"]:
            why = why_empty(rows[(rows["line"] == line) & (rows["status"] != "ok")])
            where = axes.get_yaxis_transform()
            axes.text(0.02, place, why, fontsize="small", color="#666666", va="center", transform=where)
            continue
        axes.plot(now["chance"], place, "|", color="#555555", markersize=10, zorder=2)
        if before is not None:
            hollow = {**look.marking(), "markerfacecolor": "white", "markeredgecolor": look.colour}
            hollow |= {"markersize": 5, "markeredgewidth": 1.1, "fillstyle": "full"}
            axes.plot(before["mean"], place, linestyle="none", zorder=3, **hollow)
        bar: dict[str, Any] = {"color": look.colour, "linestyle": "", "elinewidth": 1.1, **look.marking()}
        axes.errorbar([now["mean"]], [place], xerr=errors(pd.DataFrame([now])), zorder=4, **bar)
    if metric_of(metric).unit.startswith("share"):
        axes.set_xlim(-0.04, 1.04)
        axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    else:
        axes.set_xlim(left=0)


def shown(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each run with the largest score of its heads and their mean distance; before training too."""
    parts = []
    for metric in (*SCORES, DISTANCE):
        for stage in ("", INITIAL):
            of_metric = with_series(rows[rows["metric"] == f"{stage}{metric}"])
            if len(of_metric):
                head = f"{metric_of(f'{stage}{metric}').label}{', largest' if metric in SCORES else ''}"
                parts.append(over_heads(of_metric, [], largest=metric in SCORES).assign(head=head))
    return pd.concat(parts, ignore_index=True) if parts else rows.assign(head="")


def _figures(rows: pd.DataFrame, looks: dict[str, Look]) -> dict[str, Figure]:
    drawn = {}
    valued = set(rows.loc[rows["status"] == "ok", "metric"])
    if MASS in valued and rows["run_id"].nunique() == 1:
        drawn["attention_histogram"] = histograms(rows, MASS)
    elif MASS in valued:
        drawn["attention_lift"] = lifts(rows, MASS, looks)
    for name, metrics in (("attention_heads", SCORES), ("attention_spread", (DISTANCE, ENTROPY))):
        if measured := [metric for metric in metrics if metric in valued]:
            drawn[name] = dots(rows, measured, looks, largest=metrics is SCORES)
    return drawn


summarise = partial(by_measurement, experiment=NAME)
plot = partial(by_task, experiment=NAME, draw=_figures)
