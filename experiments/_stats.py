"""What can be said over seeds, and what cannot: intervals and paired comparisons.

Intervals are Student's t over seeds: mean ± t(0.975, seeds - 1) · deviation / √seeds. They are not cut to the
metric's range. One seed has no interval.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.special import stdtr, stdtrit

from experiments._table import main_metric, metric_of

SIGNIFICANCE = 0.05
CONFIDENCE = 1 - SIGNIFICANCE
OVER_LENGTHS = "length_extrapolation"
"""The experiment that has a task's quality over lengths."""
NOT_SEPARABLE = "not separable with these seeds"


def labelled(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with a ``label``: the encoder, where none was given."""
    return rows if "label" in rows.columns else rows.assign(label=rows["encoder"])


def main_quality(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of each task's main metric over lengths, whole sequences' and not those of slices."""
    rows = rows[(rows["experiment"] == OVER_LENGTHS) & (rows["condition"] == "")]
    parts = [of_task[of_task["metric"] == main_metric(of_task["metric"])] for _, of_task in rows.groupby("task")]
    return pd.concat(parts) if parts else rows


def over_seeds(rows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Summary over seeds, one line a group.

    Args:
        rows: rows with the columns of `experiments._table.Row`.
        by: the columns that make a group; each holds one row a seed, else a seed's rows are averaged first.

    Returns:
        ``by``, then ``mean``, ``median``, ``low``, ``high``, ``half_width`` (NaN below two seeds), ``seeds`` (with a
        value), ``unsupported`` and ``diverged`` (seeds without one, and why), ``chance``. Sorted by ``by``.
    """
    by = list(by)
    valued = rows[rows["status"] == "ok"].groupby([*by, "seed"])["value"].mean()
    table = rows.groupby(by)[["chance"]].mean()
    spread = valued.groupby(level=by).agg(["mean", "median", "std", "count"]).reindex(table.index)
    table["seeds"] = spread["count"].fillna(0).astype(int)
    for status in ("unsupported", "diverged"):
        counts = rows[rows["status"] == status].groupby(by)["seed"].nunique()
        table[status] = counts.reindex(table.index).fillna(0).astype(int)
    table["mean"], table["median"] = spread["mean"], spread["median"]
    table["half_width"] = [
        half_width(deviation, count) for deviation, count in zip(spread["std"], table["seeds"], strict=True)
    ]
    table["low"], table["high"] = table["mean"] - table["half_width"], table["mean"] + table["half_width"]
    columns = ["mean", "median", "low", "high", "half_width", "seeds", "unsupported", "diverged", "chance"]
    return table[columns].reset_index()


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
    if count < 2:
        return math.nan
    return float(stdtrit(count - 1, (1 + CONFIDENCE) / 2)) * deviation / math.sqrt(count)


def default_baseline(rows: pd.DataFrame) -> str:
    """The label that the others are compared with: encoder ``none`` if it is there, else the first alphabetically.

    Of several with that encoder, one with plain sequential numbering goes first.
    """
    without = rows[rows["encoder"] == "none"]
    plain = without[without["positions"] == "sequential"]
    return str(min(next(set(part["label"]) for part in (plain, without, rows) if len(part))))


def find_baseline(rows: pd.DataFrame, wanted: str) -> str:
    """The label that is called ``wanted``, or the only one of the encoder called so.

    Raises:
        ValueError: there is none, or there are several; the message names the labels.
    """
    labels: list[str] = sorted(set(rows["label"]))
    of_encoder: list[str] = sorted(set(rows.loc[rows["encoder"] == wanted, "label"]))
    if wanted in labels:
        return wanted
    if len(of_encoder) == 1:
        return of_encoder[0]
    near = of_encoder or difflib.get_close_matches(wanted, labels, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"no baseline named {wanted!r}.{hint} Allowed: {'; '.join(labels)}")


def compare(rows: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """Each label against the baseline: the mean over lengths, paired by seed. One task, one metric.

    A pair is a seed that both have; the mean is over the lengths that both have for every pair, so a label that
    cannot be asked beyond some length is compared up to there. All differences equal and not zero leave a
    zero-width interval and p = 0: from two seeds on, there is no more to be said against it.

    Returns:
        ``label``, ``baseline``, ``lengths`` (tuple), ``pairs``, ``difference`` (label - baseline), ``low``, ``high``,
        ``p`` (two-sided paired t; NaN where nothing could be tested), ``status`` (``ok``, or why not compared).
    """
    table = rows.pivot_table(index="seed", columns=["label", "eval_length"], values="value", aggfunc="mean")
    names = table.columns.get_level_values("label")
    lines = []
    for label in sorted(set(rows["label"]) - {baseline}):
        line = {"label": label, "baseline": baseline, "lengths": (), "pairs": 0, "status": "ok"}
        line |= dict.fromkeys(("difference", "low", "high", "p"), math.nan)
        lines.append(line)
        parts = [table.loc[:, names == name].droplevel("label", axis=1).dropna(how="all") for name in (label, baseline)]
        absent = next((name for name, part in zip((label, baseline), parts, strict=True) if part.empty), None)
        if absent is not None:
            statuses = set(rows.loc[rows["label"] == absent, "status"])
            why = next(status for status in ("diverged", "unsupported", "ok") if status in statuses)
            line["status"] = why if absent == label else f"baseline {why}"
            continue
        seeds = parts[0].index.intersection(parts[1].index)
        ours, theirs = (part.loc[seeds].dropna(axis="columns") for part in parts)
        lengths = ours.columns.intersection(theirs.columns).sort_values()
        if not len(seeds) or not len(lengths):
            line["status"] = "no seed in common" if not len(seeds) else "no length in common"
            continue
        differences = ours[lengths].mean(axis=1) - theirs[lengths].mean(axis=1)
        line |= paired(differences.to_numpy()) | {"lengths": tuple(int(n) for n in lengths), "pairs": len(seeds)}
    columns = ["label", "baseline", "lengths", "pairs", "difference", "low", "high", "p", "status"]
    return pd.DataFrame(lines, columns=columns)


def paired(differences: np.ndarray[tuple[int], np.dtype[np.float64]]) -> dict[str, float]:
    """Mean of paired differences, its t interval, and the two-sided p that it is zero."""
    count = len(differences)
    mean = float(differences.mean())
    # Differences of equal means come out as a few 1e-17 that all agree: rounding must not read as certainty.
    if math.isclose(mean, 0.0, abs_tol=1e-12):
        mean = 0.0
    if count < 2:
        return {"difference": mean, "low": math.nan, "high": math.nan, "p": math.nan}
    deviation = float(differences.std(ddof=1))
    half = half_width(deviation, count)
    if mean == 0:
        p = 1.0
    elif deviation == 0:
        p = 0.0
    else:
        p = 2 * float(stdtr(count - 1, -abs(mean) / (deviation / math.sqrt(count))))
    return {"difference": mean, "low": mean - half, "high": mean + half, "p": p}


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
