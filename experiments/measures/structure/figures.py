"""Figures of untrained encoders. They depend on no task."""

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, NullLocator

from experiments.figures import lines, style, words
from experiments.figures.panels import SHADES, boundary, chart, length_axis, picture, ticks, two_sided
from experiments.figures.style import Chart, Look

Looks = dict[str, Look]
PANELS = 6
"""Most encoders with a panel of their own."""
SAME = 1e-9
"""Relative difference that is put down to rounding."""


def heatmap(rows: pd.DataFrame, looks: Looks, trained: float) -> Chart:
    """Plot what is added to embeddings, position by dimension: first the sines, then the cosines; the first seed."""
    pictures = _pictures(rows, "dimension", looks)
    title = f"{words.brief(pictures, len(looks))} add{'s' * (len(pictures) == 1)} a vector to each token"
    caption = (
        "Vector added to a token's embedding before training, by position (down) and dimension: first the even ones, "
        "which are the sines where there are any, then the odd ones, the cosines. Blue: positive, orange: negative, on "
        "the scale of each panel (± in its title). First seed. Line: the end of training. Encoders without a panel add "
        "nothing."
    )
    limits = {name: float(np.nanmax(np.abs(cells.to_numpy()))) or 1.0 for name, cells in pictures.items()}
    names = [f"{name}, ± {limits[name]:.2g}" for name in pictures]
    how: dict[str, Any] = {"x": "even dimensions, then odd ones", "y": "position", "columns": 2, "height": 1.5}
    figure, panels = chart(title, caption, names, alike="y", **how)
    for axes, (name, cells) in zip(panels, pictures.items(), strict=True):
        ordered = cells[[*sorted(cells.columns)[::2], *sorted(cells.columns)[1::2]]]
        extent = (-0.5, len(ordered.columns) - 0.5, cells.index[-1] + 0.5, cells.index[0] - 0.5)
        picture(axes, ordered, two_sided(), -limits[name], limits[name], extent=extent)
        axes.axhline(trained, color=style.INK, linewidth=0.8 * style.scale(), linestyle=(0, (3, 2)))
        axes.set_xticks([])
    return figure


def waves(rows: pd.DataFrame, looks: Looks, trained: float) -> Chart:
    """Plot some dimensions of what is added, over position, of the first seed."""
    pictures = _pictures(rows, "dimension", looks)
    names = ", ".join(str(dimension) for dimension in sorted(set(rows["dimension"])))
    caption = (
        f"Dimensions {names} of the vector added to a token's embedding, over the position; later dimensions have "
        "thinner lines. First seed. Shaded: training. Encoders without a panel add nothing."
    )
    how: dict[str, Any] = {"x": "position", "y": "deviations of an embedding", "columns": 2, "height": 0.85}
    figure, panels = chart("Single dimensions of the added vector", caption, list(pictures), **how)
    for axes, (name, cells) in zip(panels, pictures.items(), strict=True):
        for place, (_, values) in enumerate(cells.items()):
            width = (1.8 - 0.5 * place) * style.scale()
            axes.plot(values.index, values, color=looks[name].colour, linewidth=max(0.5, width))
        axes.set_xlim(0, rows["position"].max())
        boundary(axes, trained)
    return figure


def kernel(rows: pd.DataFrame, looks: Looks, trained: float) -> Chart | None:
    """Plot the expected score of equal content, query by key, of the first seed; all panels have one scale."""
    values = rows.groupby("series")["value"]
    falls = (values.max() - values.min()).sort_values(ascending=False)
    flat = [series for series in looks if falls.get(series, math.nan) < SAME]
    falling = falls[falls >= SAME].index
    named = style.chosen(looks, falling, PANELS)
    pictures = _pictures(rows[rows["series"].isin(named)], "key", named)
    if not pictures:
        return None
    shown = {name: cells - np.nanmax(cells.to_numpy()) for name, cells in pictures.items()}
    typical = float(np.median([falls[name] for name in shown]))
    verb = "prefers" if len(falling) == 1 else "prefer"
    title = f"{words.brief(falling, len(looks))} {verb} some keys before any training"
    caption = (
        "Expected score between a query (down) and a key (across) of the same content, both by position, below the "
        "highest of its panel; mean over heads, first layer, before training, first seed. All panels have one scale, "
        f"from 0 (dark) to {typical:.2g} below (clear, and all that is lower); titles name the full fall. Line: the "
        "end of training. Keys ahead of a query are masked. Waves shorter than two cells look longer."
    )
    caption += f" The same score everywhere: {words.listed(flat)}." * bool(flat)
    caption += " Shown is the largest fall of each family." * (len(shown) + len(flat) < len(looks))
    names = [f"{name}, −{float(f'{falls[name]:.2g}'):,g}" for name in shown]
    figure, panels = chart(title, caption, names, x="key position", y="query position", height=1.36)
    for axes, cells in zip(panels, shown.values(), strict=True):
        half = (cells.index[1] - cells.index[0]) / 2
        extent = (cells.columns[0] - half, cells.columns[-1] + half, cells.index[-1] + half, cells.index[0] - half)
        picture(axes, cells, SHADES, -typical, 0.0, extent=extent)
        for rule in (axes.axvline, axes.axhline):
            rule(trained - 0.5, color=style.INK, linewidth=0.8 * style.scale(), linestyle=(0, (3, 2)))
    return figure


def kernel_curve(rows: pd.DataFrame, looks: Looks, trained: float) -> Chart | None:
    """Plot the expected score over distance, less that at the nearest, of each head or as the mean over heads."""
    heads = rows.groupby(["series", "head"])["value"]
    falls = (heads.max() - heads.min()).groupby("series").max().sort_values(ascending=False)
    shown = style.chosen(looks, falls[falls >= SAME].index, PANELS) or _some(rows, looks)
    rows = rows[rows["series"].isin(shown)]
    far, both_ways = int(rows["distance"].abs().max()), bool((rows["distance"] < 0).any())
    powers = [4**power for power in range(far.bit_length()) if 4**power <= far]
    caption = (
        "Expected score of a query and a key of the same content over their distance, less that at the nearest; mean "
        "over queries and seeds, first layer, before training. Thin: heads; thick: their mean. The axis of distances "
        "is logarithmic from 1 on. Shaded: distances within training."
    )
    caption += " Shown is the largest change of each family." * (len(shown) < len(looks))
    how: dict[str, Any] = {"x": "query minus key position (log scale)", "y": "score less that at 0", "alike": "x"}
    how |= {"height": 0.85, "columns": 2, "left": 0.4}
    figure, panels = chart("Expected score over distance", caption, list(shown), **how)
    for axes, (series, look) in zip(panels, shown.items(), strict=True):
        part = rows[rows["series"] == series]
        table = part.pivot_table(index="distance", columns="head", values="value").sort_index()
        table = table - table.loc[min(table.index, key=lambda distance: (abs(distance), -distance))]
        lines.together(axes, [table[head] for head in table], color=look.colour, linewidth=0.6, alpha=0.6)
        axes.plot(table.index, table.mean(axis=1), color=look.colour, linewidth=1.6 * style.scale())
        _value_axis(axes, table)
        axes.set_xscale("symlog", base=2, linthresh=1, linscale=1)
        axes.set_xlim(-far if both_ways else 0, far)
        ahead = [-power for power in powers if both_ways]
        ticks(axes.xaxis, [*ahead, 0, *powers], [*ahead[1::2], 0, *powers[1::2]])
        boundary(axes, trained - 1)
    return figure


def wavelengths(rows: pd.DataFrame, looks: Looks, trained: float) -> Chart:
    """Plot the wavelength of each dimension that is a wave, of each series."""
    means = rows.groupby(["series", "dimension"])["value"].mean()
    shown = style.chosen(looks, means.groupby("series").max().sort_values(ascending=False).index)
    long = (means > trained).groupby("series").mean()
    many = long[long > 0].index
    title = f"{words.brief(many, len(looks))} ha{'s' if len(many) == 1 else 've'} waves longer than training"
    title = title if len(many) else "Every wave is shorter than training"
    caption = (
        "Wavelength of each dimension that is a pure wave over positions. Line: the longest training sequence; waves "
        "above it never complete a period in training. Dimensions are those of the model where a vector is added, of a "
        "head where queries and keys are rotated. Mean over seeds."
    )
    caption += " Colour: the longest waves; grey: the others." * (len(shown) < rows["series"].nunique())
    figure, (axes,) = chart(title, caption, x="dimension, of all", y="wavelength (positions)", left=0.72, height=1.9)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.axhline(trained, color=style.MUTED, linewidth=0.8 * style.scale(), linestyle=(0, (3, 2)))
    rows = rows.assign(part=rows["dimension"] / (rows.groupby("series")["dimension"].transform("max") + 1))
    lines.name(axes, lines.draw(axes, rows, "part", shown, seeds=False))
    axes.xaxis.set_major_formatter("{x:.0%}")
    return figure


def entropy(rows: pd.DataFrame, looks: Looks, trained: float) -> Chart | None:
    """Plot the entropy of attention to content that is all alike, over the number of keys."""
    rows = rows[rows["head"].isna()]
    keys = sorted({int(length) for length in rows["sequence_length"]})
    longest = rows[rows["sequence_length"] == max(keys)].groupby("series")["value"].mean().sort_values()
    shown = style.chosen(looks, longest.index)
    caption = (
        "Entropy of the last query's attention when all content is alike, over the number of keys; mean over heads and "
        "seeds. Dotted: equal weights, ln(keys). Curves parallel to it stay diffuse at any length; flat ones attend to "
        "a fixed neighbourhood. Shaded: training."
    )
    caption += " Colour: the narrowest of each family; grey: the others." * (len(shown) < len(longest))
    local = longest[longest < math.log(max(keys)) - 1]
    title = (
        f"Attention stays local with {words.brief(local.index, len(longest))}" if len(local) else "Entropy of attention"
    )
    figure, (axes,) = chart(title, caption, x="keys", y="entropy (nats)", height=1.9)
    drawn = lines.draw(axes, rows.astype({"sequence_length": float}), "sequence_length", shown)
    length_axis(axes, keys)
    axes.plot(keys, np.log(keys), color=style.MUTED, linestyle=(0, (1, 2)), linewidth=1.1 * style.scale())
    axes.set_ylim(0, 1.06 * max(math.log(max(keys)), float(longest.max())))
    boundary(axes, trained)
    lines.name(axes, drawn)
    return figure


def _some(rows: pd.DataFrame, looks: Looks) -> Looks:
    here = set(rows["series"])
    return style.chosen(looks, [series for series in looks if series in here], PANELS)


def _pictures(rows: pd.DataFrame, across: str, looks: Looks) -> dict[str, pd.DataFrame]:
    rows = rows.sort_values("seed", kind="stable")
    rows = rows[rows["run_id"] == rows["series"].map(rows.groupby("series")["run_id"].first())]
    return {
        series: rows[rows["series"] == series].pivot_table(index="position", columns=across, values="value")
        for series in _some(rows, looks)
    }


def _value_axis(axes: Axes, values: pd.DataFrame) -> None:
    low, high = min(0.0, float(np.nanmin(values))), max(0.0, float(np.nanmax(values)))
    room = 0.06 * (high - low) if high - low > SAME else 1.0
    axes.set_ylim(low - room, high + room)
    axes.yaxis.set_major_locator(MaxNLocator(3))
