"""Length extrapolation in one number: the reach, and the area under the curve."""

from __future__ import annotations

import math
from itertools import groupby, takewhile
from operator import itemgetter

import numpy as np
import pandas as pd

from experiments.rows.row import metric_of
from experiments.statistics.intervals import half_width, paired

KEEPS = 0.9
"""Share of the in-range quality that must be kept."""
COMPARED = ["series", "baseline", "pairs", "difference", "low", "high", "p", "compared_up_to"]


def reach(summary: pd.DataFrame) -> pd.DataFrame:
    """Return the longest length up to which each series keeps at least `KEEPS` of its in-range quality.

    Args:
        summary: as `intervals.over_seeds` returns it, of one task and its main metric, by series and ``eval_length``.

    Returns:
        ``series``, ``in_range`` (mean at the longest length measured in range), ``in_range_half_width`` (of its 95 % t
        interval), ``reach`` (NaN where nothing was measured in range), ``multiple`` (reach in training lengths),
        ``longest`` (length measured), ``train_length``.
    """
    lines = []
    ordered = summary.sort_values(["series", "eval_length"]).to_dict("records")
    for series, group in groupby(ordered, key=itemgetter("series")):
        measured = list(group)
        train_length = int(measured[0]["train_length"])
        inside = [at for at in measured if at["eval_length"] <= train_length and at["seeds"] > 0]
        in_range, half = (float(inside[-1][name]) if inside else math.nan for name in ("mean", "half_width"))
        higher_is_better = metric_of(str(measured[0]["metric"])).higher_is_better
        reached = float(train_length) if inside else math.nan
        for at in (at for at in measured if at["eval_length"] > train_length):
            least = KEEPS - 1e-9  # so that 0.72 counts as 90 % of 0.8 in floating point
            if not (at["mean"] >= least * in_range if higher_is_better else in_range >= least * at["mean"]):
                break
            reached = float(at["eval_length"])
        line = {"series": series, "in_range": in_range, "in_range_half_width": half, "reach": reached}
        line |= {"multiple": reached / train_length, "longest": int(measured[-1]["eval_length"])}
        lines.append(line | {"train_length": train_length})
    columns = ["series", "in_range", "in_range_half_width", "reach", "multiple", "longest", "train_length"]
    return pd.DataFrame(lines, columns=columns)


def area(curves: pd.DataFrame) -> pd.Series[float]:
    """Return the mean of each curve over log2 of the length, by the trapezoid rule: every doubling counts the same.

    Args:
        curves: a line for each curve, a column for each length, ascending, at least two.
    """
    widths = np.diff(np.log2(curves.columns.to_numpy(dtype=float)))
    values = curves.to_numpy(dtype=float)
    return pd.Series((values[:, 1:] + values[:, :-1]) / 2 @ widths / widths.sum(), index=curves.index)


def beyond(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return each series' curves from the training length on: a line for each seed, a column for each length.

    Seeds without any value are left out. The curves end before the first length at which one of the other seeds has
    no value, so all seeds of a series cover the same lengths. There is no column without a value at the
    training length.

    Args:
        rows: of one task and metric.
    """
    known = rows.assign(value=rows["value"].where(rows["status"] == "ok"))
    table = known.groupby(["series", "seed", "eval_length"])["value"].mean().unstack("eval_length").sort_index(axis=1)
    trained = {str(series): int(length) for series, length in known.groupby("series")["train_length"].first().items()}
    measured: dict[str, set[int]] = {}
    for series, length in known[["series", "eval_length"]].drop_duplicates().itertuples(index=False):
        measured.setdefault(str(series), set()).add(int(length))
    values, lengths, seeds = table.to_numpy(), table.columns.astype(int), table.index.get_level_values("seed")
    found = {}
    for series, places in table.groupby(
        level="series"
    ).indices.items():  # a table of all is read faster than many small
        kept = places[~np.isnan(values[places]).all(axis=1)]
        whole = ~np.isnan(values[kept]).any(axis=0)
        candidates = [n for n, at in enumerate(lengths) if at >= trained[str(series)] and at in measured[str(series)]]
        upto = list(takewhile(whole.__getitem__, candidates))
        columns = upto if upto and lengths[upto[0]] == trained[str(series)] else []
        # The last digit of a sum depends on the memory layout of its terms.
        part = np.ascontiguousarray(values[np.ix_(kept, columns)])
        found[str(series)] = pd.DataFrame(part, index=seeds[kept], columns=lengths[columns], copy=False)
    return found


def areas(rows: pd.DataFrame) -> pd.DataFrame:
    """Return each series' `area` beyond its training length: of each seed, then over seeds.

    Args:
        rows: one task and metric, labelled, including the training length.

    Returns:
        ``series``, ``area`` (NaN where nothing longer was measured, or not the training length), ``area_half_width``
        (of the 95 % t interval), ``area_seeds``, ``area_up_to`` (last length, in training lengths).
    """
    lines = []
    for series, curves in beyond(rows).items():
        line = {
            "series": series,
            "area": math.nan,
            "area_half_width": math.nan,
            "area_seeds": 0,
            "area_up_to": math.nan,
        }
        if len(curves.columns) > 1:
            of_seed = area(curves)
            line |= {"area": float(of_seed.mean()), "area_seeds": len(of_seed)}
            line |= {"area_half_width": half_width(float(of_seed.std()), len(of_seed))}
            line |= {"area_up_to": int(curves.columns[-1]) / int(curves.columns[0])}
        lines.append(line)
    return pd.DataFrame(lines, columns=["series", "area", "area_half_width", "area_seeds", "area_up_to"])


def compare_areas(rows: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """Compare each series' area with the baseline's, paired by seed, over the lengths that both have.

    Args:
        rows: as for `areas`.
        baseline: one of the series.

    Returns:
        ``series``, ``baseline``, ``pairs``, ``difference``, ``low``, ``high``, ``p`` (paired t test),
        ``compared_up_to`` (last common length, in training lengths); NaN without common seeds or longer lengths.
    """
    curves = beyond(rows)
    theirs = curves[baseline]
    lines = []
    for series in sorted(set(curves) - {baseline}):
        ours = curves[series]
        seeds, lengths = ours.index.intersection(theirs.index), ours.columns.intersection(theirs.columns)
        line = {"series": series, "baseline": baseline, "pairs": 0} | dict.fromkeys(COMPARED[3:], math.nan)
        if len(seeds) and len(lengths) > 1 and ours.columns[0] == theirs.columns[0]:
            differences = area(ours.loc[seeds, lengths]) - area(theirs.loc[seeds, lengths])
            line |= paired(np.array(differences, dtype=np.float64)) | {"pairs": len(seeds)}
            line |= {"compared_up_to": int(lengths[-1]) / int(lengths[0])}
        lines.append(line)
    return pd.DataFrame(lines, columns=COMPARED)
