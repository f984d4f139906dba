"""Figures of permutation sensitivity, from rows alone."""

import textwrap
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.figures import style
from experiments.figures.panels import Grid, colour_bar, dot_panels, highest, line, small_multiples
from experiments.figures.style import Look
from experiments.measures.permutation_sensitivity import LAYERED, POSITIONS, SLOPES, TOKENS
from experiments.rows.row import metric_of
from experiments.statistics.intervals import errors

Looks = dict[str, Look]
Panels = dict[str, pd.DataFrame]
"""Title -> lines of a summary, by ``series`` and ``change``."""

MANY = 10
"""Series that can still be distinguished by their look in one panel."""
STAGES = {"initial_": "at initialisation", "": "trained"}
DASHED = (0, (3, 2))
KINDS = (TOKENS, POSITIONS)
OVER: dict[str, tuple[str, str, Any]] = {
    "index_displacement": ("#0173b2", "o", "-"),
    "neighbours_lost": ("#de8f05", "s", "--"),
}
FOLLOWED = dict(zip([(kind, name) for kind in KINDS for name in LAYERED], style.OTHER_COLOURS, strict=False))


def figures(rows: pd.DataFrame, summary: pd.DataFrame, looks: Looks, changes: list[str]) -> dict[str, Figure]:
    """Return every figure of one task's rows by the end of its stem; ``changes`` are named the gentlest first.

    The summary is of its measurements with a value, all sequences together, with a ``kind``, what is permuted, and a
    ``change``, the name of the change of order.
    """
    found: dict[str, Figure] = {}
    for stem, metrics, title in (
        ("quality_loss", {"quality_loss": ""}, "quality lost"),
        ("output_change", {f"{stage}output_change": f",\n{name}" for stage, name in STAGES.items()}, "output change"),
    ):
        parts = {
            f"{kind} permuted{stage}": summary[(summary["metric"] == metric) & (summary["kind"] == kind)]
            for kind in KINDS
            for metric, stage in metrics.items()
        }
        panels = {name: part for name, part in parts.items() if len(part)}
        names = [name for name in changes if any(name in set(part["change"]) for part in panels.values())]
        if panels:
            found[stem] = (_maps if len(looks) > MANY else _dots)(rows, panels, looks, names, title)
    slopes = summary[summary["metric"].isin(SLOPES.values())]
    for kind, stem in ((TOKENS, "damage"), (POSITIONS, "damage_positions")):
        if (slopes["kind"] == kind).any():
            found[stem] = _damage(rows, summary[summary["kind"] == kind], looks, f"damage by permuted {kind}")
    if len(slopes):
        found["sensitivity"] = _sensitivity(rows, slopes, looks)
    layers = summary[summary["metric"].isin([f"{stage}representation_change" for stage in STAGES])]
    if len(layers):
        found["representation_change"] = _layers(rows, layers, looks)
    return found


def _unit(panels: Panels) -> str:
    return metric_of(next(iter(panels.values()))["metric"].iloc[0]).unit


def _dots(rows: pd.DataFrame, panels: Panels, looks: Looks, names: list[str], title: str) -> Figure:
    with style.theme():
        figure, grid = dot_panels(names, list(panels), inches=max(0.26, 0.085 * len(looks)), sharex=True)
        width = 0.8 / len(looks)
        for axes, part in zip(grid, panels.values(), strict=True):
            for rank, (series, look) in enumerate(looks.items()):
                of_series = part[part["series"] == series].set_index("change").reindex(names)
                heights = np.arange(len(names)) + width * (rank + 0.5) - 0.4
                bars: dict[str, Any] = {"color": look.colour, "elinewidth": 1.1} | look.marking() | {"markersize": 5}
                axes.errorbar(of_series["mean"], heights, xerr=errors(of_series), linestyle="none", **bars)
            axes.axvline(0, color="#888888", linewidth=1, zorder=1)
            axes.set_xlabel(textwrap.fill(_unit(panels), 80 // len(panels)))
        figure.suptitle(style.title(rows, title), fontsize="large")
        if len(looks) > 1:
            style.legend(figure, style.handles(looks, lines=False))
    return figure


def _maps(rows: pd.DataFrame, panels: Panels, looks: Looks, names: list[str], title: str) -> Figure:
    tables = [
        part.pivot_table(index="series", columns="change", values="mean").reindex(list(looks), columns=names)
        for part in panels.values()
    ]
    lowest, highest = (np.nanmin([table.min().min() for table in tables]), max(table.max().max() for table in tables))
    scale, colours = Normalize(min(0.0, lowest), max(1e-12, highest)), colormaps["cividis_r"].with_extremes(bad="#ddd")
    with style.theme():
        grid = Grid(list(panels), x="", y="", columns=2, height=0.5 + 0.145 * len(looks))
        for axes, table in zip(grid, tables, strict=True):
            axes.imshow(table.to_numpy(), aspect="auto", cmap=colours, norm=scale)
            axes.set_yticks(range(len(looks)), list(looks), fontsize=7)
            axes.set_xticks(range(len(names)), names, fontsize=7, rotation=90)
            axes.grid(visible=False)
        figure = grid.finish(style.title(rows, title))
    colour_bar(figure, colours, scale, label=f"{_unit(panels)} (grey: not measured)")
    return figure


def _damage(rows: pd.DataFrame, summary: pd.DataFrame, looks: Looks, title: str) -> Figure:
    means = summary.pivot_table(index=["series", "change"], columns="metric", values="mean")
    lost = rows[(rows["metric"] == "quality_loss") & rows["series"].isin(summary["series"])]

    def draw(axes: Axes, series: str, _: Look) -> None:
        axes.axhline(0, color="#888888", linewidth=0.8, zorder=1)
        of_series = means[means.index.get_level_values("series") == series]
        for distance, (colour, marker, dash) in OVER.items():
            points = of_series.reindex(columns=[distance, "quality_loss"]).dropna()
            axes.plot(points[distance], points["quality_loss"], marker, color=colour, markersize=3.5)
            if len(points) and SLOPES[distance] in of_series:
                ends = np.array([0, points[distance].max()])
                axes.plot(ends, ends * of_series[SLOPES[distance]].max(), dash, color=colour, linewidth=1.1)

    key = [
        Line2D([], [], color=colour, marker=marker, linestyle=dash, label=f"over {metric_of(distance).label}")
        for distance, (colour, marker, dash) in OVER.items()
    ]
    return small_multiples(lost, looks, draw, title=title, x="distance (share)", y="quality lost", key=key)


def _sensitivity(rows: pd.DataFrame, slopes: pd.DataFrame, looks: Looks) -> Figure:
    with style.theme():
        figure, panels = dot_panels(list(looks), [f"over {metric_of(distance).label}" for distance in SLOPES])
        for axes, metric in zip(panels, SLOPES.values(), strict=True):
            for kind, shift in ((TOKENS, -0.17), (POSITIONS, 0.17)):
                part = slopes[(slopes["metric"] == metric) & (slopes["kind"] == kind)].set_index("series")
                part = part.reindex(list(looks))
                for place, look in enumerate(looks.values()):
                    line = part.iloc[[place]]
                    bar: dict[str, Any] = {"color": look.colour, "marker": "o", "markersize": 4.5}
                    bar["markerfacecolor"] = look.colour if kind == TOKENS else "white"
                    axes.errorbar(line["mean"], [place + shift], xerr=errors(line), **bar)
            axes.axvline(0, color="#888888", linewidth=1, zorder=1)
            axes.set_xlabel("quality lost per unit of distance")
        dot: dict[str, Any] = {"marker": "o", "linestyle": "", "color": "#333333"}
        faces = {TOKENS: "#333333", POSITIONS: "white"}
        figure.suptitle(style.title(rows, "sensitivity to order"), fontsize="large")
        key = [Line2D([], [], markerfacecolor=face, label=f"{kind} permuted", **dot) for kind, face in faces.items()]
        style.legend(figure, key)
    return figure


def _layers(rows: pd.DataFrame, summary: pd.DataFrame, looks: Looks) -> Figure:
    top = highest(summary)

    def draw(axes: Axes, series: str, _: Look) -> None:
        for (kind, name), colour in FOLLOWED.items():
            part = summary[(summary["series"] == series) & (summary["kind"] == kind) & (summary["change"] == name)]
            for stage in STAGES:
                dash = DASHED if stage else "-"
                of_stage = part[part["metric"] == f"{stage}representation_change"]
                line(axes, of_stage, "layer", colour, linestyle=dash, linewidth=1.5)
        axes.set_xticks(sorted(set(summary["layer"])))
        axes.set_ylim(0, 1.04 * top)

    changes = rows[rows["metric"].isin(set(summary["metric"]))]
    key = [Line2D([], [], color=colour, label=f"{kind}, {name}") for (kind, name), colour in FOLLOWED.items()]
    key.append(Line2D([], [], color="#333333", linestyle=DASHED, label="at initialisation"))
    what: dict[str, Any] = {"title": "change from layer to layer", "x": "layer", "y": "relative change"}
    return small_multiples(changes, looks, draw, **what, key=key)
