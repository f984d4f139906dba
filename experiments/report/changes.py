"""Which numbers changed between two tables of rows, and which are within noise."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import ttest_1samp, ttest_ind

from experiments import measures
from experiments.rows.row import OVER_LENGTHS, main_quality, metric_of
from experiments.statistics import intervals
from experiments.statistics.comparisons import holm

IN_RANGE, BEYOND = "in range", "beyond training"
SAME, NOISE, UNTOLD, NO_SPREAD = "identical", "within noise", "one seed: not testable", "no spread: not testable"
COLUMNS = [
    *("task", "series", "what", "metric", "ours", "theirs", "difference", "low", "high", "p", "p_holm"),
    *("seeds", "pairs", "by", "verdict"),
]
Key = tuple[str, str, str, str]
"""Task, series, what, metric."""


def compare(ours: pd.DataFrame, theirs: pd.DataFrame) -> pd.DataFrame:
    """Compare each number that both folders have of a task and series.

    Seeds that both have are paired: the same seed is the same data in the same order. With fewer than two in common,
    but two or more in each, the interval is Welch's for independent samples.

    Returns:
        the `COLUMNS`: ``what`` names the number, ``ours`` and ``theirs`` are means over the compared seeds,
        ``difference`` is ours minus theirs with its 95 % t interval (NaN where untested), ``p_holm`` is corrected for
        all lines, ``by`` is ``seed``, ``Welch`` or blank, and ``verdict`` says what changed or why it was not tested.
    """
    sides = [dict(_numbers(ours, theirs)), dict(_numbers(theirs, ours))]
    lines = [_line(key, sides[0][key], sides[1][key]) for key in sides[0] if key in sides[1]]
    table = pd.DataFrame(lines, columns=COLUMNS)
    table["p_holm"] = holm(table["p"])
    table["verdict"] = [
        line["verdict"] or _verdict(line["metric"], line["difference"], line["p_holm"])
        for line in table.to_dict("records")
    ]
    return table


def _numbers(rows: pd.DataFrame, others: pd.DataFrame) -> Iterator[tuple[Key, "pd.Series[float]"]]:
    """Yield (task, series, what, metric) and the number of each seed, at lengths that both folders measured."""
    theirs = main_quality(others)
    for (task, series), part in main_quality(rows).groupby(["task", "series"]):
        other = theirs[(theirs["task"] == task) & (theirs["series"] == series)]
        part = part[part["eval_length"].isin(_valued(part) & _valued(other)) & (part["status"] == "ok")]
        metric = str(part["metric"].iloc[0]) if len(part) else ""
        trained, named = part["eval_length"] <= part["train_length"], metric_of(metric).label
        inside = part[trained & (part["eval_length"] == part.loc[trained, "eval_length"].max())]
        for what, some in ((IN_RANGE, inside), (BEYOND, part[~trained])):
            if len(some):
                yield (str(task), str(series), f"{named}, {what}", metric), some.groupby("seed")["value"].mean()
    known = {entry.name for entry in measures.entries()} - {OVER_LENGTHS}
    for experiment in sorted(known & set(rows["experiment"])):
        shown = measures.report_of(experiment).shown(rows[rows["experiment"] == experiment])
        shown = shown[(shown["head"] != "") & (shown["status"] == "ok")]
        for key, some in shown.groupby(["task", "series", "head", "metric"]):
            task, series, head, metric = map(str, key)
            yield (task, series, f"{experiment}: {head}", metric), some.groupby("seed")["value"].mean()


def _valued(rows: pd.DataFrame) -> set[int]:
    """Return the lengths at which every seed that has any value has one."""
    table = rows[rows["status"] == "ok"].pivot_table(index="seed", columns="eval_length", values="value")
    return {int(length) for length in table.columns[table.notna().all()]}


def _line(key: Key, ours: "pd.Series[float]", theirs: "pd.Series[float]") -> dict[str, Any]:
    line: dict[str, Any] = dict(zip(("task", "series", "what", "metric"), key, strict=True))
    line |= {"seeds": f"{len(ours)} and {len(theirs)}", "pairs": 0, "by": "", "verdict": UNTOLD}
    line |= dict.fromkeys(("low", "high", "p"), math.nan)
    common, fewest = ours.index.intersection(theirs.index), min(len(ours), len(theirs))
    paired = len(common) > 1 or (len(common) == fewest == 1)
    identical = len(ours) == len(theirs) == len(common) and (ours == theirs.reindex(ours.index)).all()
    if paired:
        ours, theirs = ours.loc[common], theirs.loc[common]
    line |= {"ours": ours.mean(), "theirs": theirs.mean(), "difference": ours.mean() - theirs.mean()}
    line["pairs"] = len(common) if paired else 0
    if identical or min(len(ours), len(theirs)) < 2:
        return line | ({"verdict": SAME} if identical else {})
    spread = [ours - theirs] if paired else [ours, theirs]
    if max(map(np.ptp, spread)) <= intervals.ROUNDING:
        return line | {"verdict": NO_SPREAD}
    test = ttest_1samp(spread[0], 0) if paired else ttest_ind(ours, theirs, equal_var=False)
    interval = test.confidence_interval(intervals.CONFIDENCE)
    line |= {"low": interval.low, "high": interval.high, "p": float(test.pvalue)}
    return line | {"by": "seed" if paired else "Welch", "verdict": ""}


def _verdict(metric: str, difference: float, p: float) -> str:
    if math.isnan(p) or p >= intervals.SIGNIFICANCE:
        return NOISE
    higher_is_better = metric_of(metric).higher_is_better
    if higher_is_better is None:
        return "higher" if difference > 0 else "lower"
    return "better" if (difference > 0) == higher_is_better else "worse"
