"""Lines of series: the mean, each seed thin, and the name beside it; series that are not named are grey."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from experiments.figures import style
from experiments.figures.panels import SMALL, wide
from experiments.figures.style import MUTED, OTHER, Look
from experiments.rows.row import is_share

SEEDS = 5
"""Most seeds that are drawn."""
MARKED = 12
"""Most points of a line that are marked."""


def draw(axes: Axes, rows: pd.DataFrame, x: str, named: Mapping[str, Look], *, seeds: bool = True) -> dict[str, Line2D]:
    """Draw the mean over seeds of each series over the column ``x``; return the lines of the series that are named.

    Those show up to `SEEDS` seeds, too; the others are thin and grey. Points without a value are left out.
    """
    scale, valued = style.scale(), rows[rows["status"] == "ok"]
    by_seed = valued.groupby(["series", "seed", x])["value"].mean()
    means = by_seed.groupby(["series", x]).mean()
    drawn = set(valued["series"])
    grey = [means[series].sort_index() for series in sorted(drawn - set(named))]
    together(axes, grey, color=OTHER, linewidth=0.7 * scale, zorder=1.5)
    found: dict[str, Line2D] = {}
    for series, look in ((series, look) for series, look in named.items() if series in drawn):
        mean = means[series].sort_index()
        of_seeds = [part.droplevel(0) for _, part in by_seed[series].groupby("seed")][:SEEDS]
        if seeds and len(of_seeds) > 1:
            together(axes, of_seeds, color=look.colour, linewidth=0.6 * scale, alpha=0.45, zorder=2)
        how: dict[str, Any] = {"color": look.colour, "linestyle": look.dash, "linewidth": 1.7 * scale, "zorder": 3}
        (found[series],) = axes.plot(mean.index, mean, **how)
        if len(mean) <= MARKED:
            dots(axes, mean.index, mean, 3.4, color=look.colour, zorder=3)
    return found


def together(axes: Axes, parts: Sequence["pd.Series[float]"], **how: Any) -> None:
    """Draw several lines of one look as one path, which makes a small file."""
    if not parts:
        return
    xs, ys = ([value for part in parts for value in (*column(part), np.nan)] for column in (lambda p: p.index, list))
    axes.plot(xs, ys, **how)


def dots(axes: Axes, xs: Any, ys: Any, size: float, **how: Any) -> None:
    """Draw round dots as one path, of lines without length."""
    points = np.repeat(np.column_stack([xs, ys]).astype(float), 3, axis=0)
    points[2::3] = np.nan
    points[1::3, 0] += 1e-9 * (np.ptp(points[::3, 0]) or 1.0) if len(points) else 0.0  # a PNG has no line of length 0
    axes.plot(*points.T, snap=False, solid_capstyle="round", linewidth=size * style.scale(), **how)


def value_axis(axes: Axes, rows: pd.DataFrame, x: str) -> None:
    """Let the axis span all shares, or else what was measured."""
    values = rows[rows["status"] == "ok"].groupby(["series", x])["value"]
    low, high = float(values.min().min()), float(values.max().max())
    share = is_share(str(rows["metric"].iloc[0]))
    room = 0.08 * (high - low or abs(high) or 1)  # all may have the same value
    axes.set_ylim(*((0, 1.03) if share else (low - room, high + room)))


def chance(axes: Axes, rows: pd.DataFrame, x: str, text: str = "guessing") -> None:
    """Draw the best guess without reading as a dotted line, named at its left end."""
    level = rows.groupby(x)["chance"].mean().dropna()
    low, high = axes.get_ylim()
    if len(level) and low <= level.iloc[0] <= high:
        axes.plot(level.index, level, color=MUTED, linestyle=(0, (1, 2)), linewidth=1.1 * style.scale(), zorder=1.6)
        high_up = level.iloc[0] > (low + 7 * high) / 8
        how: dict[str, Any] = {"fontsize": SMALL * style.scale(), "color": MUTED, "va": "top" if high_up else "bottom"}
        where = level.index[0], level.iloc[0]
        axes.annotate(text, where, (4, -3 if high_up else 2), textcoords="offset points", **how)


def name(axes: Axes, lines: Mapping[str, Line2D]) -> None:
    """Write each name where it is close to its line and free, at best along a flat stretch; far ones have a leader."""
    scale, _ = style.scale(), axes.viewLim  # which sets the limits
    tall, (low, high) = SMALL * scale * 1.1, axes.get_window_extent().get_points()
    paths = {key: _dense(axes, line) for key, line in lines.items()}
    others = [_dense(axes, line)[::3] for line in axes.get_lines() if line not in lines.values()]
    soft = np.concatenate([np.empty((0, 2)), *others])
    taken = [text.get_window_extent().get_points() for text in axes.texts]
    for key, own in paths.items():
        length = 72 * wide([key]) * scale
        grid = np.meshgrid(
            np.linspace(low[0] + length / 2 + 2, high[0] - length / 2, 40),
            np.linspace(low[1] + tall / 2 + 2, high[1] - tall / 2, 32),
        )
        boxes, half = np.stack([part.ravel() for part in grid], 1), np.array([length, tall]) / 2
        rest = np.concatenate([np.full((1, 2), -1e6), *(path for other, path in paths.items() if other != key)])
        near, far = _apart(boxes, half, own), _apart(boxes, half, rest)
        flat = (np.abs(own[None, :, 0] - boxes[:, None, 0]) < half[0]) & (
            np.abs(own[None, :, 1] - boxes[:, None, 1]) < half[1] + 6 * scale
        )
        crossed = (np.abs(soft[None] - boxes[:, None]) < half).all(-1).sum(1) if len(soft) else 0
        cost = near - 0.35 * length * flat.sum(1) / max(1, np.ptp(own[:, 0]) and len(own) * length / np.ptp(own[:, 0]))
        cost = cost + 2.0 * np.maximum(0, 7 * scale - far) + 0.6 * np.minimum(crossed, 25) + 60 * (near < 1.5 * scale)
        cost += 200.0 * (far < 1.5 * scale)
        # A name beside a stretch that several lines share names none of them.
        gaps = (np.maximum(np.abs(own[None] - boxes[:, None]) - half, 0) ** 2).sum(-1)
        shared = _apart(own, np.zeros(2), rest)[gaps.argmin(1)]
        cost += 6.0 * np.maximum(0, 6 * scale - shared)
        for (left, bottom), (right, top) in taken:
            middle, size = np.array([left + right, bottom + top]) / 2, np.array([right - left, top - bottom]) / 2
            cost = cost + 1e4 * (np.abs(boxes - middle) < half + size).all(1)
        best = boxes[int(np.argmin(cost))]
        taken.append(np.stack([best - half, best + half]))
        _write(axes, key, best, half, own, lines[key].get_color())


def _dense(axes: Axes, line: Line2D) -> np.ndarray[Any, Any]:
    """Return a line as points about three apart, in points of the figure."""
    points = line.get_transform().transform(np.column_stack([np.asarray(part, float) for part in line.get_data()]))
    points = points[np.isfinite(points).all(1)]
    if len(points) < 2:
        return points
    along = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(points, axis=0).T))])
    steps = np.linspace(0, along[-1], max(2, min(300, int(along[-1] / 3))))
    return np.stack([np.interp(steps, along, column) for column in points.T], 1)


def _apart(boxes: np.ndarray[Any, Any], half: np.ndarray[Any, Any], path: np.ndarray[Any, Any]) -> Any:
    """Return the distance of each box from a path."""
    gaps = np.maximum(np.abs(path[None] - boxes[:, None]) - half, 0)
    return np.sqrt((gaps**2).sum(-1)).min(1)


def _write(axes: Axes, text: str, centre: Any, half: Any, own: Any, colour: Any) -> None:
    scale = style.scale()
    to_data = axes.transData.inverted().transform
    how: dict[str, Any] = {"fontsize": SMALL * scale, "color": colour, "weight": "bold", "zorder": 4}
    axes.text(to_data(centre)[0], to_data(centre)[1], text, ha="center", va="center_baseline", **how)
    nearest = own[int(np.argmin(np.hypot(*(np.maximum(np.abs(own - centre) - half, 0)).T)))]
    edge = np.clip(nearest, centre - half, centre + half)
    if np.hypot(*(nearest - edge)) > 7 * scale:
        axes.plot(*to_data(np.stack([edge, nearest])).T, color=colour, linewidth=0.6 * scale, zorder=2.5)
