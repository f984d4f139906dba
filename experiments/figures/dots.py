"""Dots in rows: a row for each series, the mean over seeds as a dot or ring, and each seed where there are few rows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from experiments.figures import lines, style
from experiments.figures.panels import chart, wide
from experiments.figures.style import MUTED, Chart, Look

SEEDED = 16
"""Most rows whose seeds are drawn one by one."""


def panels(
    title: str, caption: str, names: Sequence[str], titles: Sequence[str], **how: Any
) -> tuple[Chart, list[Axes]]:
    """Return a `chart` of panels side by side with a row for each name, the first on top."""
    size = 0.17 if len(names) <= SEEDED else 0.14
    settings: dict[str, Any] = {"left": min(2.4, wide(names) + 0.08), "columns": len(titles), "gap": 0.15, "alike": "y"}
    caption += " Small dots: seeds." * (len(names) <= SEEDED)
    figure, found = chart(title, caption, titles, **settings | {"height": size * len(names)} | how)
    # Every second row is shaded to tell it from its neighbours; one row alone would look like a bar.
    rows = np.repeat(np.arange(0, len(names), 2) if len(names) > 1 else [], 3).astype(float)
    rows[2::3] = np.nan
    band: dict[str, Any] = style.SHADE | {"linewidth": 72 * size * style.scale(), "solid_capstyle": "butt"}
    for axes in found:
        axes.plot([0, 1, np.nan] * (len(rows) // 3), rows, transform=axes.get_yaxis_transform(), **band)
        axes.grid(visible=False, axis="y")
    found[0].set_yticks(range(len(names)), names)
    found[0].set_ylim(len(names) - 0.5, -0.5)
    return figure, found


def draw(
    axes: Axes,
    rows: pd.DataFrame,
    order: Sequence[str],
    looks: Mapping[str, Look],
    *,
    by: str = "series",
    ring: bool = False,
    shift: float = 0.0,
) -> None:
    """Draw the values of rows beside their names, in the column ``by``; ``shift`` moves them down by parts of a row."""
    rows, scale = rows[(rows["status"] == "ok") & rows[by].isin(order)], style.scale()
    seeds = rows.groupby([*{"series": 0, by: 0, "seed": 0}])["value"].mean().reset_index()
    seeds["height"] = seeds[by].map({name: height + shift for height, name in enumerate(order)})
    coloured = seeds["series"].map(lambda series: (looks[series].family, looks[series].colour))
    for (_, colour), alike in seeds.groupby(coloured):
        means = alike.groupby("height")["value"].mean()
        if len(order) <= SEEDED and alike["seed"].nunique() > 1:
            lines.dots(axes, alike["value"], alike["height"], 1.6, color=colour, alpha=0.6)
        if ring:
            edge: dict[str, Any] = {"color": colour, "marker": "o", "linestyle": "", "markersize": 3.6 * scale}
            axes.plot(means, means.index, markerfacecolor="none", markeredgewidth=0.8 * scale, **edge)
        else:
            lines.dots(axes, means, means.index, 4.2, color=colour)


def reference(axes: Axes, at: float) -> None:
    """Draw a line from top to bottom."""
    axes.axvline(at, color=MUTED, linewidth=0.7 * style.scale(), zorder=1)
