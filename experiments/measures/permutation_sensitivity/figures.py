"""The figures of permutation sensitivity, from rows alone: a few series side by side, many as a map or one by one."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.figures import style
from experiments.figures.style import Look
from experiments.measures.permutation_sensitivity import DISTANCES, LAYERED, POSITIONS, SLOPES, TOKENS
from experiments.measures.permutation_sensitivity.changes import change_names, order
from experiments.rows.row import metric_of

MANY = 10
"""Series that can still be told apart by their look in one panel."""
STAGES = {"initial_": "at initialisation", "": "trained"}


@dataclass(frozen=True)
class Drawn:
    """What every figure of one task is made from: its rows, their summary, and how each series looks."""

    rows: pd.DataFrame
    summary: pd.DataFrame
    looks: dict[str, Look]

    @cached_property
    def order(self) -> list[str]:
        """The changes of order, the gentlest first."""
        return order(self.rows)

    def of(self, metric: str) -> pd.DataFrame:
        """The lines with a value of a metric, with the name of their change of order in ``change``."""
        found = self.summary[(self.summary["metric"] == metric) & (self.summary["seeds"] > 0)]
        found = found[found["part"].isna()]
        return found.assign(change=change_names(found))

    @property
    def many(self) -> bool:
        return len(self.looks) > MANY

    def finish(self, figure: Figure, text: str, *, legend: bool, lines: bool = False) -> Figure:
        figure.suptitle(style.title(self.rows, text), fontsize="large")
        if legend:
            style.legend(figure, style.handles(self.looks, lines=lines))
        return figure


@dataclass(frozen=True)
class Panel:
    """One panel of dots or colours: rows of a summary, the column that tells them apart, its values in order, a title.

    Args:
        rows: of one metric.
        by: the column.
        keys: its values, in order.
        names: what each is called.
        title: of the panel.
    """

    rows: pd.DataFrame
    by: str
    keys: list[Any]
    names: list[str]
    title: str


def figures(rows: pd.DataFrame, summary: pd.DataFrame) -> dict[str, Figure]:
    """Every figure of one task's rows by the end of its stem.

    Args:
        rows: of one task, with a ``series``.
        summary: of `permutation_sensitivity.summarise`.
    """
    drawn = Drawn(rows, summary, style.looks(rows))
    found: dict[str, Figure] = {}
    with style.theme():
        losses = _by_condition(drawn, ("quality_loss",))
        if losses:
            found["quality_loss"] = _panels(drawn, losses, metric_of("quality_loss").unit, "quality lost")
        changes = _by_condition(drawn, ("initial_output_change", "output_change"))
        if changes:
            found["output_change"] = _panels(
                drawn, changes, "relative to the untouched output", "change of the outputs"
            )
        for kind, stem in ((TOKENS, "damage"), (POSITIONS, "damage_positions")):
            if _has_slopes(drawn, kind):
                found[stem] = _damage(drawn, kind)
        if any(len(drawn.of(metric)) for metric in SLOPES.values()):
            found["sensitivity"] = _sensitivity(drawn)
        if any(len(drawn.of(f"{stage}representation_change")) for stage in STAGES):
            found["representation_change"] = _layers(drawn)
    return found


def _kind(change: str) -> str:
    return POSITIONS if change.startswith(f"{POSITIONS}: ") else TOKENS


def _by_condition(drawn: Drawn, metrics: Sequence[str]) -> list[Panel]:
    panels = []
    stages = {"initial_": ", at initialisation", "": ", trained"} if len(metrics) > 1 else {"": ""}
    for kind in (TOKENS, POSITIONS):
        for metric in metrics:
            rows = drawn.of(metric)
            changes = [c for c in drawn.order if c in set(rows["change"]) and _kind(c) == kind]
            if changes:
                stage = stages["initial_" if metric.startswith("initial_") else ""]
                names = [change.removeprefix(f"{POSITIONS}: ") for change in changes]
                panels.append(Panel(rows, "change", changes, names, f"{kind} permuted{stage}"))
    return panels


def _panels(drawn: Drawn, panels: list[Panel], unit: str, text: str) -> Figure:
    return _maps(drawn, panels, unit, text) if drawn.many else _dots(drawn, panels, unit, text)


def _dots(drawn: Drawn, panels: list[Panel], unit: str, text: str) -> Figure:
    """A line of dots for each change of order, a dot a series with its interval over seeds; panels side by side."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.names))
    width = 0.8 / len(drawn.looks)
    figure = style.figure(1.4 + len(names) * max(0.26, 0.085 * len(drawn.looks)))
    columns = figure.subplots(1, len(panels), sharey=True, sharex=True, squeeze=False)[0]
    for axes, panel in zip(columns, panels, strict=True):
        for rank, (series, look) in enumerate(drawn.looks.items()):
            of_series = panel.rows[panel.rows["series"] == series].set_index(panel.by)
            of_series = of_series.reindex(panel.keys).dropna(subset=["mean"])
            places = [names.index(panel.names[panel.keys.index(key)]) for key in of_series.index]
            axes.errorbar(
                of_series["mean"],
                [place + width * (rank + 0.5) - 0.4 for place in places],
                xerr=of_series["half_width"].fillna(0.0),
                color=look.colour,
                linestyle="none",
                elinewidth=1.1,
                **look.marking() | {"markersize": 5},
            )
        for place in range(0, len(names), 2):
            axes.axhspan(place - 0.5, place + 0.5, color="#f4f4f0", zorder=0)
        axes.axvline(0, color="#888888", linewidth=1, zorder=1)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        axes.set_title(panel.title.replace(", ", ",\n"), fontsize="medium")
        axes.set_xlabel(textwrap.fill(unit, 80 // len(panels)))
        sns.despine(ax=axes, left=True)
    return drawn.finish(figure, text, legend=len(drawn.looks) > 1)


def _maps(drawn: Drawn, panels: list[Panel], unit: str, text: str, columns: int = 2) -> Figure:
    """Series down, conditions across, the mean as a colour; what has none is grey."""
    series_names = list(drawn.looks)
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure = style.figure(1.2 + rows * (0.9 + 0.145 * len(series_names)))
    grid = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    values = [
        panel.rows.pivot_table(index="series", columns=panel.by, values="mean").reindex(
            series_names, columns=panel.keys
        )
        for panel in panels
    ]
    low = min(0.0, *(float(np.nanmin(table.to_numpy())) for table in values))
    high = max(1e-12, *(float(np.nanmax(table.to_numpy())) for table in values))
    colours = colormaps["cividis_r"].with_extremes(bad="#dddddd")
    drawing: Any = None
    for axes, panel, table in zip(grid, panels, values, strict=False):
        drawing = axes.imshow(table.to_numpy(), aspect="auto", cmap=colours, vmin=low, vmax=high)
        axes.set_yticks(range(len(series_names)), series_names, fontsize=7)
        axes.set_xticks(
            range(len(panel.names)), panel.names, fontsize=7, rotation=90 if max(map(len, panel.names)) > 2 else 0
        )
        axes.set_title(panel.title if columns < 3 else "\n".join(panel.title.rsplit(", ", 1)), fontsize="small")
        axes.grid(visible=False)
        sns.despine(ax=axes, left=True, bottom=True)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    figure.colorbar(
        drawing, ax=list(grid), label=f"{unit} (grey: not measured)", location="bottom", aspect=50, pad=0.01
    )
    return drawn.finish(figure, text, legend=False)


# ---- damage over distance ------------------------------------------------------------------------


def _has_slopes(drawn: Drawn, kind: str) -> bool:
    return any((drawn.of(metric)["condition"] == kind).any() for metric in SLOPES.values())


def _points(drawn: Drawn, kind: str, distance: str) -> pd.DataFrame:
    """``series, x, y`` of every change of order of a kind: means over seeds."""
    far, lost = (drawn.of(metric).set_index(["series", "change"])["mean"] for metric in (distance, "quality_loss"))
    table = pd.DataFrame({"x": far, "y": lost}).dropna().reset_index()
    return table[table["change"].map(_kind) == kind]


def _slope(drawn: Drawn, kind: str, distance: str, series: str) -> float:
    table = drawn.of(SLOPES[distance])
    found = table[(table["condition"] == kind) & (table["series"] == series)]["mean"]
    return float(found.iloc[0]) if len(found) else math.nan


def _damage(drawn: Drawn, kind: str) -> Figure:
    """Quality lost over both distances, with the slopes: a panel a distance, or, of many series, a panel a series."""
    text = f"damage by permuted {kind}"
    return _damage_of_each(drawn, kind, text) if drawn.many else _damage_together(drawn, kind, text)


def _damage_together(drawn: Drawn, kind: str, text: str) -> Figure:
    figure = style.figure(3.6)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, distance in zip(panels, DISTANCES, strict=True):
        points = _points(drawn, kind, distance)
        for series, look in drawn.looks.items():
            of_series = points[points["series"] == series]
            axes.plot(of_series["x"], of_series["y"], color=look.colour, linestyle="none", **_small(look))
            end = float(points["x"].max()) * 1.04 if len(points) else 1.0
            slope = _slope(drawn, kind, distance, series)
            axes.plot([0, end], [0, end * slope], color=look.colour, linestyle=look.dash, linewidth=1.4, zorder=1.5)
        axes.axhline(0, color="#888888", linewidth=1, zorder=1)
        axes.set_xlim(left=0)
        axes.set_xlabel(f"{metric_of(distance).label} ({metric_of(distance).unit})")
        sns.despine(ax=axes)
    panels[0].set_ylabel("quality lost")
    return drawn.finish(figure, text, legend=True, lines=True)


def _small(look: Look) -> dict[str, Any]:
    return look.marking() | {"markersize": 5}


def _damage_of_each(drawn: Drawn, kind: str, text: str) -> Figure:
    """Small multiples: a panel a series, both distances on one axis, since both are shares."""
    colours = {"index_displacement": ("#0173b2", "o", "-"), "neighbours_lost": ("#de8f05", "s", "--")}
    points = {distance: _points(drawn, kind, distance) for distance in DISTANCES}
    figure, panels = _multiples(drawn)
    for axes, series in zip(panels, drawn.looks, strict=False):
        for distance, (colour, marker, dash) in colours.items():
            of_series = points[distance][points[distance]["series"] == series]
            axes.plot(of_series["x"], of_series["y"], marker, color=colour, markersize=3.5)
            slope, end = _slope(drawn, kind, distance, series), of_series["x"].max()
            axes.plot([0, end], [0, end * slope], dash, color=colour, linewidth=1.1)
    handles = [
        panels[0].plot([], [], marker=m, linestyle=d, color=c, label=f"over {metric_of(name).label}")[0]
        for name, (c, m, d) in colours.items()
    ]
    figure.supylabel("quality lost", fontsize="medium")
    what = "horizontal: distance from the untouched order, a share from 0 to 1"
    figure.legend(handles=handles, title=what, loc="outside lower center", ncols=2, frameon=False)
    return drawn.finish(figure, text, legend=False)


def _multiples(drawn: Drawn) -> tuple[Figure, list[Axes]]:
    columns = 5
    rows = -(-len(drawn.looks) // columns)
    figure = style.figure(1.2 + 1.15 * rows)
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for axes in panels[len(drawn.looks) :]:
        axes.set_axis_off()
    for axes, series in zip(panels, drawn.looks, strict=False):
        axes.set_title(textwrap.fill(series, 20), fontsize=7.5, pad=2)
        axes.tick_params(labelsize=7)
        axes.axhline(0, color="#888888", linewidth=0.8, zorder=1)
        sns.despine(ax=axes)
    for axes in panels[max(0, len(drawn.looks) - columns) : len(drawn.looks)]:
        axes.tick_params(labelbottom=True)
    return figure, list(panels)


def _sensitivity(drawn: Drawn) -> Figure:
    """A panel a distance, a line a series: filled where tokens were permuted, hollow where positions were."""
    series_names = list(drawn.looks)
    figure = style.figure(1.5 + 0.24 * len(series_names))
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (distance, metric) in zip(panels, SLOPES.items(), strict=True):
        table = drawn.of(metric)
        for kind, shift, hollow in ((TOKENS, -0.17, False), (POSITIONS, 0.17, True)):
            of_kind = {line["series"]: line for line in table[table["condition"] == kind].to_dict("records")}
            for place, (series, look) in enumerate(drawn.looks.items()):
                if series in of_kind:
                    line = of_kind[series]
                    axes.errorbar(
                        line["mean"],
                        place + shift,
                        xerr=0.0 if math.isnan(line["half_width"]) else line["half_width"],
                        color=look.colour,
                        marker="o",
                        markersize=4.5,
                        markerfacecolor="white" if hollow else look.colour,
                        markeredgecolor=look.colour,
                    )
        for place in range(0, len(series_names), 2):
            axes.axhspan(place - 0.5, place + 0.5, color="#f4f4f0", zorder=0)
        axes.axvline(0, color="#888888", linewidth=1, zorder=1)
        axes.set_yticks(range(len(series_names)), series_names, fontsize="small")
        axes.set_ylim(len(series_names) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        axes.set_title(f"over {metric_of(distance).label}", fontsize="medium")
        axes.set_xlabel("quality lost per unit of distance")
        sns.despine(ax=axes, left=True)
    kinds = [
        panels[0].plot([], [], "o", color="#333333", markerfacecolor=face, label=f"{kind} permuted")[0]
        for kind, face in ((TOKENS, "#333333"), (POSITIONS, "white"))
    ]
    figure.legend(handles=kinds, loc="outside lower center", ncols=2, frameon=False)
    return drawn.finish(figure, "sensitivity to order", legend=False)


# ---- layer by layer ------------------------------------------------------------------------------


def _layers(drawn: Drawn) -> Figure:
    """A line a series over layers, a panel for each change of order and stage; a map where there are many series."""
    panels = []
    for stage, said in STAGES.items():
        table = drawn.of(f"{stage}representation_change")
        for condition in (*LAYERED, *(f"{POSITIONS}: {name}" for name in LAYERED)):
            followed = table[table["condition"] == condition]
            layers = sorted(set(followed["layer"]))
            if layers:
                title = f"{_kind(condition)}, {condition.removeprefix(f'{POSITIONS}: ')}"
                panels.append(Panel(followed, "layer", layers, [*map(str, layers)], f"{title}, {said}"))
    columns = max(1, len(panels) // len({panel.title.rpartition(", ")[2] for panel in panels}))
    if drawn.many:
        return _maps(drawn, panels, "change relative to the untouched", "change from layer to layer", columns)
    rows = -(-len(panels) // columns)
    figure = style.figure(0.9 + 1.9 * rows)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axes, panel in zip(grid.ravel(), panels, strict=True):
        style.curves(axes, panel.rows, "layer", drawn.looks)
        axes.set_title("\n".join(panel.title.rsplit(", ", 1)), fontsize="small")
        axes.set_xticks(range(len(panel.keys)))
        sns.despine(ax=axes)
    grid[0, 0].set_ylim(bottom=0)  # after all are drawn: shared limits that are set do not grow any more
    for axes in grid[-1]:
        axes.set_xlabel("layer")
    figure.supylabel("change relative to the untouched", fontsize="medium")
    return drawn.finish(figure, "change from layer to layer", legend=True, lines=True)
