"""Statistics over seeds: confidence intervals, and paired comparisons with a baseline.

Intervals are Student's t: mean ± t(0.975, seeds - 1) · deviation / √seeds. They are not cut to the metric's range, and
one seed has none. Percentile bootstraps are too narrow for three to ten values: with three, a 95 % interval covers
the truth three times in four. The t interval is too narrow as well where values sit at a bound: if one seed in five
fails a task that the others solve, half of the intervals of three seeds have no width and miss the mean.
`tests/statistics/test_coverage.py` has the simulations.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.special import stdtr, stdtrit
from statsmodels.stats.multitest import multipletests

from experiments.rows.row import coordinates_in, metric_of
from experiments.statistics.power import effect, improvement, seeds_wanted

SIGNIFICANCE = 0.05
Vector = np.ndarray[tuple[int], np.dtype[np.float64]]
Matrix = np.ndarray[tuple[int, int], np.dtype[np.float64]]
CONFIDENCE = 1 - SIGNIFICANCE
NOT_SEPARABLE = "not separable with these seeds"
ROUNDING = 1e-12
"""Largest difference that is put down to rounding."""
COMPARED = [
    *("series", "baseline", "lengths", "pairs", "difference", "low", "high", "deviation", "effect", "improvement"),
    *("p", "status"),
]
"""Columns of `compare`."""


def with_series(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with a ``series``, the encoder unless they have one."""
    return rows if "series" in rows.columns else rows.assign(series=rows["encoder"])


def over_seeds(rows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Summarise over seeds, one line for each group.

    Args:
        rows: rows with the columns of `experiments.rows.row.Row`.
        by: the columns that define a group. Several rows of a seed in one group are averaged first.

    Returns:
        ``by``, then ``mean``, ``median``, ``iqm`` (interquartile mean, quarters rounded down), ``low``, ``high``,
        ``half_width`` (of the mean's 95 % t interval; NaN below two seeds), ``seeds`` (with a value), ``unsupported``
        and ``diverged`` (seeds without one), ``chance``. Sorted by ``by``.
    """
    by = list(by)
    groups = rows.groupby(by, dropna=False)
    table = groups[["chance"]].mean()
    # Grouping by number is much faster than by several texts, and there may be millions of rows.
    numbered = rows[["seed", "value"]].assign(group=groups.ngroup())
    valued = numbered[rows["status"] == "ok"].groupby(["group", "seed"])["value"].mean()
    every = range(len(table))
    of_group = valued.groupby(level="group").agg(["mean", "median", "std", "count"]).reindex(every)
    for column in ("mean", "median", "std"):
        table[column] = of_group[column].to_numpy()
    table["iqm"] = _iqm(valued).reindex(every).to_numpy()
    table["seeds"] = of_group["count"].fillna(0).astype(int).to_numpy()
    for status in ("unsupported", "diverged"):
        counts = numbered[rows["status"] == status].groupby("group")["seed"].nunique()
        table[status] = counts.reindex(every).fillna(0).astype(int).to_numpy()
    table["half_width"] = half_widths(table["std"].to_numpy(), table["seeds"].to_numpy())
    table["low"], table["high"] = table["mean"] - table["half_width"], table["mean"] + table["half_width"]
    columns = ["mean", "median", "iqm", "low", "high", "half_width", "seeds", "unsupported", "diverged", "chance"]
    return table[columns].reset_index()


def _iqm(valued: pd.Series[float]) -> pd.Series[float]:
    """Return the interquartile mean of each group, all groups at once."""
    ordered = valued.sort_values(kind="stable")
    groups = ordered.groupby(level="group")
    place, count = groups.cumcount(), groups.transform("size")
    cut = count // 4
    return ordered[(place >= cut) & (place < count - cut)].groupby(level="group").mean()


def by_measurement(rows: pd.DataFrame, coordinates: Sequence[str] | None = None) -> pd.DataFrame:
    """Summarise each series' measurements over seeds, one line for each metric, length, condition and coordinates.

    Args:
        rows: of one experiment; a ``series`` is taken to be the line of comparison, else the encoder is.
        coordinates: columns of coordinates to keep; None: those that any of the rows has.

    Returns:
        ``task, metric, series, train_length, eval_length, condition`` and coordinates, then what `over_seeds` gives.
    """
    columns = ["task", "metric", "series", "train_length", "eval_length", "condition"]
    return over_seeds(with_series(rows), [*columns, *(coordinates_in(rows) if coordinates is None else coordinates)])


def half_width(deviation: float, count: int) -> float:
    """Return half the width of a mean's t interval, from the deviation (n - 1) of ``count`` values; NaN below two."""
    return float(half_widths(np.array([deviation]), np.array([count]))[0])


def half_widths(deviations: Vector, counts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Vector:
    """Return the `half_width` of many means."""
    wide = stdtrit(np.maximum(counts - 1, 1), (1 + CONFIDENCE) / 2) * deviations / np.sqrt(np.maximum(counts, 1))
    return np.where(counts < 2, np.nan, wide)


def default_baseline(rows: pd.DataFrame) -> str:
    """Return the series to compare with: encoder ``none``, with sequential numbering if possible, else the first."""
    without = rows[rows["encoder"] == "none"]
    plain = without[without["positions"] == "sequential"]
    return str(min(next(set(part["series"].unique()) for part in (plain, without, rows) if len(part))))


def find_baseline(rows: pd.DataFrame, wanted: str) -> str:
    """Return the series ``wanted``, or the only series of the encoder ``wanted``.

    Raises:
        ValueError: none or several match; the message names the series.
    """
    series_names: list[str] = sorted(rows["series"].unique())
    of_encoder: list[str] = sorted(set(rows.loc[rows["encoder"] == wanted, "series"]))
    if wanted in series_names:
        return wanted
    if len(of_encoder) == 1:
        return of_encoder[0]
    near = of_encoder or difflib.get_close_matches(wanted, series_names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"no baseline named {wanted!r}.{hint} Allowed: {'; '.join(series_names)}")


def compare(rows: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """Compare each series with the baseline: the mean over lengths, paired by seed. One task, one metric.

    A pair is a seed that both have. The mean is over the lengths that both have in every pair, so a series that does
    not support some length is compared up to there.

    Returns:
        ``series``, ``baseline``, ``lengths`` (tuple), ``pairs``, ``difference`` (series - baseline), ``low``, ``high``
        (95 % t interval), ``deviation`` (of the paired differences), ``effect`` (`power.effect`), ``improvement``
        (`power.improvement`, towards the metric's good side), ``p`` (`paired`; NaN where untested), ``status``
        (``ok``, or why there is no comparison).
    """
    table = rows.pivot_table(index="seed", columns=["series", "eval_length"], values="value", aggfunc="mean")
    known = {name: pd.DataFrame(table[name]).dropna(how="all") for name in table.columns.unique("series")}
    less_is_better = len(rows) > 0 and metric_of(str(rows["metric"].iloc[0])).higher_is_better is False
    lines = []
    for series in sorted(set(rows["series"].unique()) - {baseline}):
        line = {"series": series, "baseline": baseline, "lengths": (), "pairs": 0, "status": "ok"}
        lines.append(line)
        absent = next((name for name in (series, baseline) if name not in known), None)
        if absent is not None:
            statuses = set(rows.loc[rows["series"] == absent, "status"])
            why = next(status for status in ("diverged", "unsupported", "ok") if status in statuses)
            line["status"] = why if absent == series else f"baseline {why}"
            continue
        seeds = known[series].index.intersection(known[baseline].index)
        ours, theirs = (known[name].loc[seeds].dropna(axis="columns") for name in (series, baseline))
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
    """Add what depends on the number of comparisons.

    Args:
        comparisons: all that are reported together, as `compare` returns them, with their ``metric``.

    Returns:
        The comparisons with ``p_holm``, ``verdict`` (of `verdict`; the status where there is none) and ``more_seeds``
        (how many more would show the difference, see `seeds_wanted`; NaN where it is shown or cannot be estimated).
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
    """Return a verdict in words: ``not separable with these seeds; about 4 more would do``."""
    if verdict != NOT_SEPARABLE or math.isnan(more_seeds):
        return verdict
    if math.isinf(more_seeds):
        return f"{verdict}; a thousand would not do either"
    # More than two digits would promise more than a deviation from few seeds can keep.
    size = 10 ** max(0, math.floor(math.log10(more_seeds)) - 1)
    return f"{verdict}; about {math.ceil(more_seeds / size) * size:.0f} more would do"


def paired(differences: Vector) -> dict[str, float]:
    """Return the mean of paired differences, its t interval, their deviation, and the paired t test's p.

    Where all differences agree exactly, as accuracies of 1 against 0 do, p is the exact sign test's, 2^(1 - n).

    Returns:
        ``difference``, ``low``, ``high``, ``deviation``, ``p``; all but the first NaN below two pairs.
    """
    return {name: float(column[0]) for name, column in paired_columns(differences[:, None]).items() if name != "pairs"}


def paired_columns(differences: Matrix) -> dict[str, Vector]:
    """Apply `paired` to each column, which may have NaN, and count its ``pairs``."""
    count = (~np.isnan(differences)).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.nansum(differences, axis=0) / count
        deviation = np.sqrt(np.nansum((differences - mean) ** 2, axis=0) / (count - 1))
        # Equal means differ by a few 1e-17 in every seed: rounding must not look like a certain difference.
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
    """Return p values after Holm's correction; NaN was no test."""
    values = np.array(p, dtype=np.float64)
    tested = ~np.isnan(values)
    if tested.any():
        values[tested] = multipletests(values[tested], method="holm")[1]
    return [float(value) for value in values]


def verdict(metric: str, difference: float, corrected: float) -> str:
    """Return ``better``, ``worse`` or `NOT_SEPARABLE`; ``higher`` or ``lower`` of a metric without a good side."""
    if math.isnan(corrected) or corrected >= SIGNIFICANCE:
        return NOT_SEPARABLE
    higher_is_better = metric_of(metric).higher_is_better
    if higher_is_better is None:
        return "higher" if difference > 0 else "lower"
    return "better" if (difference > 0) == higher_is_better else "worse"
