"""What can be said over seeds, and what cannot: intervals and paired comparisons with a baseline.

Intervals are Student's t over seeds: mean ± t(0.975, seeds - 1) · deviation / √seeds. They are not cut to the
metric's range. One seed has no interval. A bootstrap of the three to ten values that there are is too narrow (of
three, a 95 % percentile interval covers the truth three times in four); over many tasks it does, see `_ranks`.

Of values at a bound these are too narrow too: where one seed in five fails a task that the others solve, every other
interval of three seeds has no width and misses the mean. Simulations: `tests/statistics/test_coverage.py`.

`_groups` compares all labels with one another.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.special import stdtr, stdtrit

from experiments.rows.row import main_metric, metric_of
from experiments.statistics.power import effect, improvement, seeds_wanted

SIGNIFICANCE = 0.05
Vector = np.ndarray[tuple[int], np.dtype[np.float64]]
Matrix = np.ndarray[tuple[int, int], np.dtype[np.float64]]
CONFIDENCE = 1 - SIGNIFICANCE
OVER_LENGTHS = "length_extrapolation"
"""The experiment that has a task's quality over lengths."""
NOT_SEPARABLE = "not separable with these seeds"
ROUNDING = 1e-12
"""What is no larger is the arithmetic's."""
COMPARED = [
    *("label", "baseline", "lengths", "pairs", "difference", "low", "high", "deviation", "effect", "improvement"),
    *("p", "status"),
]
"""Columns of `compare`."""


def labelled(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with a ``label``: the encoder, where none was given."""
    return rows if "label" in rows.columns else rows.assign(label=rows["encoder"])


def main_quality(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of each task's main metric over lengths, whole sequences' and not those of slices."""
    rows = rows[(rows["experiment"] == OVER_LENGTHS) & (rows["condition"] == "")]
    parts = [
        of_task[of_task["metric"] == main_metric(of_task["metric"].unique())] for _, of_task in rows.groupby("task")
    ]
    return pd.concat(parts) if parts else rows


def beyond(rows: pd.DataFrame) -> pd.DataFrame:
    """Each task's main metric at the lengths it was not trained on."""
    quality = main_quality(rows)
    return quality[quality["eval_length"] > quality["train_length"]]


def over_seeds(rows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Summary over seeds, one line a group.

    Args:
        rows: rows with the columns of `experiments.rows.row.Row`.
        by: the columns that make a group; each holds one row a seed, else a seed's rows are averaged first.

    Returns:
        ``by``, then ``mean``, ``median``, ``iqm`` (interquartile mean: of the values without the lowest and the
        highest quarter of them, rounded down; of up to three, the mean), ``low``, ``high``, ``half_width`` (of the
        mean's 95 % t interval; NaN below two seeds), ``seeds`` (with a value), ``unsupported`` and ``diverged``
        (seeds without one, and why), ``chance``. Sorted by ``by``.
    """
    by = list(by)
    groups = rows.groupby(by)
    table = groups[["chance"]].mean()
    # From here on by a group's number: there may be millions of rows, and a key is several texts.
    numbered = rows[["seed", "value"]].assign(group=groups.ngroup())
    valued = numbered[rows["status"] == "ok"].groupby(["group", "seed"])["value"].mean()
    valued = valued[valued.index.get_level_values("group") >= 0]  # a row that lacks a key is in no group
    every = range(len(table))
    spread = valued.groupby(level="group").agg(["mean", "median", "std", "count"]).reindex(every)
    for column in ("mean", "median", "std"):
        table[column] = spread[column].to_numpy()
    table["iqm"] = _iqm(valued).reindex(every).to_numpy()
    table["seeds"] = spread["count"].fillna(0).astype(int).to_numpy()
    for status in ("unsupported", "diverged"):
        counts = numbered[rows["status"] == status].groupby("group")["seed"].nunique()
        table[status] = counts.reindex(every).fillna(0).astype(int).to_numpy()
    table["half_width"] = half_widths(table["std"].to_numpy(), table["seeds"].to_numpy())
    table["low"], table["high"] = table["mean"] - table["half_width"], table["mean"] + table["half_width"]
    columns = ["mean", "median", "iqm", "low", "high", "half_width", "seeds", "unsupported", "diverged", "chance"]
    return table[columns].reset_index()


def _iqm(valued: pd.Series[float]) -> pd.Series[float]:
    """Interquartile mean of each group; all groups at once, for there may be thousands."""
    ordered = valued.sort_values(kind="stable")
    groups = ordered.groupby(level="group")
    place, count = groups.cumcount(), groups.transform("size")
    cut = count // 4
    return ordered[(place >= cut) & (place < count - cut)].groupby(level="group").mean()


def by_measurement(rows: pd.DataFrame) -> pd.DataFrame:
    """Each label's measurements over seeds, one line for each metric, length and condition.

    Args:
        rows: of one experiment; a ``label`` is taken to be the line of comparison, else the encoder is.

    Returns:
        ``task, metric, label, train_length, eval_length, condition``, then what `over_seeds` gives.
    """
    return over_seeds(labelled(rows), ["task", "metric", "label", "train_length", "eval_length", "condition"])


def half_width(deviation: float, count: int) -> float:
    """Half the t interval of a mean, from the sample deviation (n - 1) of ``count`` values; NaN below two."""
    return float(half_widths(np.array([deviation]), np.array([count]))[0])


def half_widths(deviations: Vector, counts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Vector:
    """`half_width` of many."""
    wide = stdtrit(np.maximum(counts - 1, 1), (1 + CONFIDENCE) / 2) * deviations / np.sqrt(np.maximum(counts, 1))
    return np.where(counts < 2, np.nan, wide)


def default_baseline(rows: pd.DataFrame) -> str:
    """The label that the others are compared with: encoder ``none`` if it is there, else the first alphabetically.

    Of several with that encoder, one with plain sequential numbering goes first.
    """
    without = rows[rows["encoder"] == "none"]
    plain = without[without["positions"] == "sequential"]
    return str(min(next(set(part["label"].unique()) for part in (plain, without, rows) if len(part))))


def find_baseline(rows: pd.DataFrame, wanted: str) -> str:
    """The label that is called ``wanted``, or the only one of the encoder called so.

    Raises:
        ValueError: there is none, or there are several; the message names the labels.
    """
    labels: list[str] = sorted(rows["label"].unique())
    of_encoder: list[str] = sorted(set(rows.loc[rows["encoder"] == wanted, "label"]))
    if wanted in labels:
        return wanted
    if len(of_encoder) == 1:
        return of_encoder[0]
    near = of_encoder or difflib.get_close_matches(wanted, labels, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"no baseline named {wanted!r}.{hint} Allowed: {'; '.join(labels)}")


def compare(rows: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """Each label against the baseline: the mean over lengths, paired by seed and input. One task, one metric.

    A pair is a seed that both have; the mean is over the lengths that both have for every pair, so a label that
    cannot be asked beyond some length is compared up to there. Means of a seed and length are over the same inputs.

    Returns:
        ``label``, ``baseline``, ``lengths`` (tuple), ``pairs``, ``difference`` (label - baseline), ``low``, ``high``
        (95 % t interval), ``deviation`` (of the paired differences), ``effect`` (Hedges' g_av: in deviations of a
        seed), ``improvement`` (probability that a seed of the label is better than one of the baseline; higher, of
        a metric that has no good side), ``p`` (two-sided, see `paired`; NaN where nothing could be tested),
        ``status`` (``ok``, or why not compared). `corrected` adds what depends on how many comparisons there are.
    """
    table = rows.pivot_table(index="seed", columns=["label", "eval_length"], values="value", aggfunc="mean")
    known = {name: pd.DataFrame(table[name]).dropna(how="all") for name in table.columns.unique("label")}
    less_is_better = len(rows) > 0 and metric_of(str(rows["metric"].iloc[0])).higher_is_better is False
    lines = []
    for label in sorted(set(rows["label"].unique()) - {baseline}):
        line = {"label": label, "baseline": baseline, "lengths": (), "pairs": 0, "status": "ok"}
        lines.append(line)
        absent = next((name for name in (label, baseline) if name not in known), None)
        if absent is not None:
            statuses = set(rows.loc[rows["label"] == absent, "status"])
            why = next(status for status in ("diverged", "unsupported", "ok") if status in statuses)
            line["status"] = why if absent == label else f"baseline {why}"
            continue
        seeds = known[label].index.intersection(known[baseline].index)
        ours, theirs = (known[name].loc[seeds].dropna(axis="columns") for name in (label, baseline))
        lengths = ours.columns.intersection(theirs.columns).sort_values()
        if not len(seeds) or not len(lengths):
            line["status"] = "no seed in common" if not len(seeds) else "no length in common"
            continue
        one, other = (part[lengths].mean(axis=1).to_numpy() for part in (ours, theirs))
        better = improvement(other, one) if less_is_better else improvement(one, other)
        line |= paired(one - other) | {"lengths": tuple(int(n) for n in lengths), "pairs": len(seeds)}
        line |= {"effect": effect(one, other), "improvement": better}
    return pd.DataFrame(lines, columns=COMPARED).astype(dict.fromkeys(COMPARED[4:11], float))


def corrected(comparisons: pd.DataFrame) -> pd.DataFrame:
    """What may be said of comparisons, given how many were made.

    Args:
        comparisons: of `compare`, all that are reported together, and their ``metric``.

    Returns:
        The same, with ``p_holm`` (Holm 1979), ``verdict`` (of `verdict`; the status where not compared) and
        ``more_seeds`` (of those not separable, how many more would find a difference as large as this one seems, with
        probability 0.8 and as many comparisons undecided; inf: more than a thousand; NaN: there is no telling).
    """
    table = comparisons.assign(p_holm=holm(list(comparisons["p"])))
    lines = table.to_dict("records")
    table["verdict"] = [
        verdict(line["metric"], line["difference"], line["p_holm"]) if line["status"] == "ok" else line["status"]
        for line in lines
    ]
    undecided = (table["p_holm"] >= SIGNIFICANCE).to_numpy()
    level = SIGNIFICANCE / max(1, undecided.sum())
    table["more_seeds"] = [
        seeds_wanted(line["difference"], line["deviation"], line["pairs"], level) - line["pairs"] if waits else math.nan
        for line, waits in zip(lines, undecided, strict=True)
    ]
    table["more_seeds"] = table["more_seeds"].clip(lower=1.0)
    return table


def in_words(verdict: str, more_seeds: float) -> str:
    """A verdict, and what it would take to be surer: ``not separable with these seeds; about 4 more would do``."""
    if verdict != NOT_SEPARABLE or math.isnan(more_seeds):
        return verdict
    if math.isinf(more_seeds):
        return f"{verdict}; a thousand would not do either"
    # More than two digits would promise more than a deviation from few seeds can keep.
    size = 10 ** max(0, math.floor(math.log10(more_seeds)) - 1)
    return f"{verdict}; about {math.ceil(more_seeds / size) * size:.0f} more would do"


def paired(differences: Vector) -> dict[str, float]:
    """Mean of paired differences, its t interval, their deviation, and the two-sided p that the mean is zero.

    p is that of the paired t test. Differences that are all the same and not zero leave nothing to measure the mean
    by, as do accuracies of 1 in every seed: there it is the exact sign test's, 2^(1 - n), which takes six seeds.

    Returns:
        ``difference``, ``low``, ``high``, ``deviation``, ``p``; all but the first NaN below two pairs.
    """
    return {name: float(column[0]) for name, column in paired_columns(differences[:, None]).items() if name != "pairs"}


def paired_columns(differences: Matrix) -> dict[str, Vector]:
    """What `paired` says of each column, and ``pairs``, its length without NaN.

    Args:
        differences: a line a pair, a column a comparison; NaN where there is no such pair.
    """
    count = (~np.isnan(differences)).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.nansum(differences, axis=0) / count
        deviation = np.sqrt(np.nansum((differences - mean) ** 2, axis=0) / (count - 1))
        # Differences of equal means come out as a few 1e-17 that all agree: rounding must not read as certainty.
        mean = np.where(np.abs(mean) <= ROUNDING, 0.0, mean)
        deviation = np.where(deviation <= ROUNDING * np.maximum(1, np.abs(mean)), 0.0, deviation)
        deviation = np.where(count > 1, deviation, np.nan)
        half = stdtrit(count - 1, (1 + CONFIDENCE) / 2) * deviation / np.sqrt(count)
        p = 2 * stdtr(count - 1, -np.abs(mean) / (deviation / np.sqrt(count)))
    p = np.select([count < 2, mean == 0, deviation == 0], [np.nan, 1.0, 2.0 ** (1 - count)], p)
    half = np.where(count > 1, half, np.nan)
    found = {"difference": mean, "low": mean - half, "high": mean + half, "deviation": deviation, "p": p}
    return found | {"pairs": count.astype(float)}


def holm(p: Sequence[float]) -> list[float]:
    """Holm's step-down correction: p values that allow for as many tests as were made. NaN was no test."""
    order = sorted((value, place) for place, value in enumerate(p) if not math.isnan(value))
    corrected = [math.nan] * len(p)
    largest = 0.0
    for rank, (value, place) in enumerate(order):
        largest = max(largest, min(1.0, value * (len(order) - rank)))
        corrected[place] = largest
    return corrected


def verdict(metric: str, difference: float, corrected: float) -> str:
    """``better``, ``worse``, or that these seeds cannot tell."""
    if math.isnan(corrected) or corrected >= SIGNIFICANCE:
        return NOT_SEPARABLE
    higher_is_better = metric_of(metric).higher_is_better
    if higher_is_better is None:
        return "higher" if difference > 0 else "lower"
    return "better" if (difference > 0) == higher_is_better else "worse"
