"""How far quality holds beyond the training length: the reach, and the area under the curve."""

from __future__ import annotations

import math
from itertools import groupby, takewhile
from operator import itemgetter

import numpy as np
import pandas as pd

from experiments.rows.row import metric_of
from experiments.statistics.intervals import half_width, paired

KEEPS = 0.9
"""Share of the in-range quality from which a length counts as mastered."""
COMPARED = ["label", "baseline", "pairs", "difference", "low", "high", "p", "compared_up_to"]


def reach(summary: pd.DataFrame) -> pd.DataFrame:
    """How far each label keeps its quality: up to which length it holds `KEEPS` of what it has in range.

    Args:
        summary: of `_stats.over_seeds`, one task and its main metric, one line for each label and ``eval_length``.

    Returns:
        ``label``, ``in_range`` (mean at the longest length measured that was trained on) and ``in_range_half_width``
        (of its 95 % t interval), ``reach`` (longest length up to which every measured length holds; NaN where nothing
        was measured in range), ``multiple`` (of the training length), ``longest`` (measured), ``train_length``.
    """
    lines = []
    ordered = summary.sort_values(["label", "eval_length"]).to_dict("records")
    for label, group in groupby(ordered, key=itemgetter("label")):
        measured = list(group)
        train_length = int(measured[0]["train_length"])
        inside = [at for at in measured if at["eval_length"] <= train_length and at["seeds"] > 0]
        in_range, half = (float(inside[-1][name]) if inside else math.nan for name in ("mean", "half_width"))
        higher_is_better = metric_of(str(measured[0]["metric"])).higher_is_better
        held = float(train_length) if inside else math.nan
        for at in (at for at in measured if at["eval_length"] > train_length):
            least = KEEPS - 1e-9  # 0.72 of 0.8 is 90 %, whatever floats make of it
            if not (at["mean"] >= least * in_range if higher_is_better else in_range >= least * at["mean"]):
                break
            held = float(at["eval_length"])
        line = {"label": label, "in_range": in_range, "in_range_half_width": half, "reach": held}
        line |= {"multiple": held / train_length, "longest": int(measured[-1]["eval_length"])}
        lines.append(line | {"train_length": train_length})
    columns = ["label", "in_range", "in_range_half_width", "reach", "multiple", "longest", "train_length"]
    return pd.DataFrame(lines, columns=columns)


def area(curves: pd.DataFrame) -> pd.Series[float]:
    """The mean of each curve over log2 of the length: the area under it, divided by its width.

    Trapezoid rule; over the logarithm, a doubling counts the same wherever it is.

    Args:
        curves: a line a curve, a column a length, ascending, two at least.
    """
    widths = np.diff(np.log2(curves.columns.to_numpy(dtype=float)))
    values = curves.to_numpy(dtype=float)
    return pd.Series((values[:, 1:] + values[:, :-1]) / 2 @ widths / widths.sum(), index=curves.index)


def beyond(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Label -> its curves beyond its training length: a line a seed, a column a length, the first of them trained.

    Seeds without any value are left out. The curves end before the first length at which one of the others has none
    (it cannot be asked there, or diverges): all seeds of a label are taken over the same lengths. Without a value at
    the training length there is no column.

    Args:
        rows: of one task and metric.
    """
    known = rows.assign(value=rows["value"].where(rows["status"] == "ok"))
    table = known.groupby(["label", "seed", "eval_length"])["value"].mean().unstack("eval_length").sort_index(axis=1)
    trained = {str(label): int(length) for label, length in known.groupby("label")["train_length"].first().items()}
    asked: dict[str, set[int]] = {}
    for label, length in known[["label", "eval_length"]].drop_duplicates().itertuples(index=False):
        asked.setdefault(str(label), set()).add(int(length))
    values, lengths, seeds = table.to_numpy(), table.columns.astype(int), table.index.get_level_values("seed")
    found = {}
    for label, places in table.groupby(level="label").indices.items():  # a table of all is read faster than many small
        kept = places[~np.isnan(values[places]).all(axis=1)]
        whole = ~np.isnan(values[kept]).any(axis=0)
        candidates = [n for n, at in enumerate(lengths) if at >= trained[str(label)] and at in asked[str(label)]]
        upto = list(takewhile(whole.__getitem__, candidates))
        columns = upto if upto and lengths[upto[0]] == trained[str(label)] else []
        # The last digit of a sum hangs on how its numbers lie in memory.
        part = np.ascontiguousarray(values[np.ix_(kept, columns)])
        found[str(label)] = pd.DataFrame(part, index=seeds[kept], columns=lengths[columns], copy=False)
    return found


def areas(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean quality beyond the training length, every doubling weighing the same: of each seed, then over seeds.

    Args:
        rows: one task and metric, labelled, the training length among their lengths.

    Returns:
        ``label``, ``area`` (NaN where nothing was measured beyond, or not the training length itself),
        ``area_half_width`` (of the 95 % t interval; NaN below two seeds), ``area_seeds``, ``area_up_to`` (where it
        ends, in training lengths).
    """
    lines = []
    for label, curves in beyond(rows).items():
        line = {"label": label, "area": math.nan, "area_half_width": math.nan, "area_seeds": 0, "area_up_to": math.nan}
        if len(curves.columns) > 1:
            of_seed = area(curves)
            line |= {"area": float(of_seed.mean()), "area_seeds": len(of_seed)}
            line |= {"area_half_width": half_width(float(of_seed.std()), len(of_seed))}
            line |= {"area_up_to": int(curves.columns[-1]) / int(curves.columns[0])}
        lines.append(line)
    return pd.DataFrame(lines, columns=["label", "area", "area_half_width", "area_seeds", "area_up_to"])


def compare_areas(rows: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """Each label's area less the baseline's, paired by seed, over the lengths that both have and no others.

    Args:
        rows: as for `areas`.
        baseline: one of the labels.

    Returns:
        ``label``, ``baseline``, ``pairs``, ``difference``, ``low``, ``high``, ``p`` (two-sided paired t),
        ``compared_up_to`` (where the common lengths end, in training lengths); NaN where there is no seed, or no
        length beyond, in common.
    """
    curves = beyond(rows)
    theirs = curves[baseline]
    lines = []
    for label in sorted(set(curves) - {baseline}):
        ours = curves[label]
        seeds, lengths = ours.index.intersection(theirs.index), ours.columns.intersection(theirs.columns)
        line = {"label": label, "baseline": baseline, "pairs": 0} | dict.fromkeys(COMPARED[3:], math.nan)
        if len(seeds) and len(lengths) > 1 and ours.columns[0] == theirs.columns[0]:
            differences = area(ours.loc[seeds, lengths]) - area(theirs.loc[seeds, lengths])
            line |= paired(np.array(differences, dtype=np.float64)) | {"pairs": len(seeds)}
            line |= {"compared_up_to": int(lengths[-1]) / int(lengths[0])}
        lines.append(line)
    return pd.DataFrame(lines, columns=COMPARED)
