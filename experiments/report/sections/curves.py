"""A task's curves: its main metric over lengths, one line for each series."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from experiments.figures import style
from experiments.report.drawing import Axes, Line, Point
from experiments.rows.row import is_share
from experiments.statistics.intervals import over_seeds

COLOURED = 6
"""Most series with a colour and a name in one picture."""
STEPS, TICKS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0), 5
"""Steps between the ticks of values that are no shares, and how many they span at most."""
SEEDS = 8
"""Most runs of a series that are drawn one by one; of more, their interval is."""


def learned_only(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of runs that learned their task, or of which that was not judged."""
    return rows[rows["converged"].ne(False)]


def coloured(
    ranked: Sequence[str], baseline: str | None, kinds: Mapping[str, str], first: Sequence[str] = ()
) -> list[str]:
    """Return the series that have a colour: all of a few; else baseline, best, first, classic, best of each family."""
    if len(ranked) <= COLOURED:
        return list(ranked)
    best = {kinds[series]: series for series in reversed(ranked)}
    wanted = [baseline, ranked[0], *first, *style.CLASSIC, *(one for one in ranked if one in best.values())]
    return list(dict.fromkeys(str(one) for one in wanted if one in ranked))[:COLOURED]


def lines(rows: pd.DataFrame, order: Iterable[str], shown: Sequence[str], kinds: Mapping[str, str]) -> list[Line]:
    """Return the line of each series in ``order``: values in per cent where they are shares.

    Of a family's lines the first one is whole, the others are dashed in turn, as in figures.
    """
    found = []
    ranked = style.looks(rows[rows["series"].isin(shown)])
    of_family: dict[str, list[str]] = {}
    for series in dict.fromkeys([*ranked, *shown]):
        of_family.setdefault(kinds[series], []).append(series)
    scale = 100 if is_share(str(rows["metric"].iloc[0])) else 1
    of_series = {str(name): part for name, part in rows.groupby("series")}

    def mean(part: pd.DataFrame) -> list[Point]:
        means = scale * part.groupby("eval_length")["value"].mean()
        return list(zip(means.index, means, strict=True))

    for series in (series for series in order if series in of_series):
        known, lost = learned_only(of_series[series]), of_series[series][of_series[series]["converged"].eq(False)]
        line = Line(series, kinds[series], mean(known), coloured=series in shown)
        if line.coloured:
            ends = over_seeds(known, ["eval_length"]) if len(known) else known.assign(low=[], high=[])
            few = of_series[series]["run_id"].nunique() <= SEEDS
            if few or bool(ends["low"].isna().any()):  # seeds that have no interval are shown, however many
                seeds, unlearned = ([mean(run) for _, run in part.groupby("run_id")] for part in (known, lost))
                line = replace(line, seeds=seeds, unlearned=unlearned)
            else:
                band = list(zip(ends["eval_length"], scale * ends["low"], scale * ends["high"], strict=True))
                line = replace(line, band=band, unlearned=[mean(lost)] if len(lost) else [])
        found.append(replace(line, dash=of_family[kinds[series]].index(series) if line.coloured else 0))
    return found


def legend(lines: Iterable[Line]) -> str:
    """Say what the curves have beside their means."""
    known = [line for line in lines if line.coloured]
    said = {"thick: mean": any(line.mean for line in known), "thin: seeds": any(line.seeds for line in known)}
    said["band: 95 % interval"] = any(line.band for line in known)
    said["ring: did not learn"] = any(line.unlearned for line in known)
    return ", ".join(text for text, there in said.items() if there)


def axes(rows: pd.DataFrame) -> Axes:
    """Return the axes of these rows' metric and lengths."""
    scale = 100 if is_share(str(rows["metric"].iloc[0])) else 1
    chance = rows.groupby("eval_length")["chance"].mean().dropna() * scale
    ticks = [0.0, 25.0, 50.0, 75.0, 100.0]
    if scale == 1:
        low, high = rows["value"].min(), rows["value"].quantile(0.98)
        step = next((step for step in STEPS if high - low <= TICKS * step), STEPS[-1])
        first = math.floor(low / step)
        ticks = [round(step * tick, 1) for tick in range(first, max(math.ceil(high / step), first + 1) + 1)]
    lengths = sorted(int(length) for length in rows["eval_length"].unique())
    return Axes(lengths, int(rows["train_length"].max()), ticks, list(zip(chance.index, chance, strict=True)))
