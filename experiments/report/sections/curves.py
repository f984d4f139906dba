"""A task's curves: its main metric over lengths, one line for each series."""

import math
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from experiments.figures import style
from experiments.report.drawing import Axes, Line
from experiments.rows.row import metric_of

COLOURED = 6
"""Most series with a colour and a name in one picture."""
SEEDS = 20
"""Most runs of a series that are drawn one by one."""


def percent(metric: str) -> bool:
    """Whether a metric is a share, shown in per cent."""
    return metric_of(metric).bounds == (0, 1)


def learned_only(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of runs that learned their task, or of which that was not judged."""
    return rows[rows["converged"].ne(False)]


def coloured(ranked: Sequence[str], baseline: str | None, kinds: Mapping[str, str]) -> list[str]:
    """Return the series that have a colour: all of a few; else baseline, best, classic, best of each family."""
    if len(ranked) <= COLOURED:
        return list(ranked)
    best = {kinds[series]: series for series in reversed(ranked)}
    wanted = [baseline, ranked[0], *style.CLASSIC, *(one for one in ranked if one in best.values())]
    return list(dict.fromkeys(str(one) for one in wanted if one in ranked))[:COLOURED]


def lines(rows: pd.DataFrame, order: Iterable[str], shown: Sequence[str], kinds: Mapping[str, str]) -> list[Line]:
    """Return the line of each series in ``order``: values in per cent where they are shares."""
    found = []
    ranked = style.looks(rows[rows["series"].isin(shown)])
    solid = {kinds[series]: series for series in reversed([*ranked, *shown])}.values()
    scale = 100 if percent(str(rows["metric"].iloc[0])) else 1
    rows = rows.sort_values("eval_length").assign(value=rows["value"] * scale)
    of_series = {str(name): part for name, part in rows.groupby("series")}
    for series in (series for series in order if series in of_series):
        known = learned_only(of_series[series])
        mean = known.groupby("eval_length")["value"].mean()
        seeds: dict[bool, list[list[tuple[float, float]]]] = {True: [], False: []}
        runs = [run for _, run in of_series[series].groupby("run_id")] if series in shown else []
        for run in runs if len(runs) <= SEEDS else []:
            points = list(zip(run["eval_length"], run["value"], strict=True))
            seeds[run["converged"].iloc[0] is not False].append(points)
        kind = kinds[series]
        dashed = series in shown and series not in solid
        mean_points = list(zip(mean.index, mean, strict=True))
        found.append(Line(series, kind, mean_points, seeds[True], seeds[False], dashed, series in shown))
    return found


def axes(rows: pd.DataFrame) -> Axes:
    """Return the axes of these rows' metric and lengths."""
    scale = 100 if percent(str(rows["metric"].iloc[0])) else 1
    chance = rows.groupby("eval_length")["chance"].mean().dropna() * scale
    ticks = [0.0, 25.0, 50.0, 75.0, 100.0]
    if scale == 1:
        low, high = math.floor(rows["value"].min()), math.ceil(rows["value"].quantile(0.98))
        ticks = [float(tick) for tick in range(low, max(high, low + 1) + 1, max(1, (high - low) // 5))]
    lengths = sorted(int(length) for length in rows["eval_length"].unique())
    return Axes(lengths, int(rows["train_length"].max()), ticks, list(zip(chance.index, chance, strict=True)))
