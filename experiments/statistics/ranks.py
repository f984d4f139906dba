"""Many tasks: one score over all of them, ranks, and how much they depend on the choice of tasks and metric."""

from __future__ import annotations

import math
from typing import cast

import numpy as np
import pandas as pd
from scikit_posthocs import posthoc_nemenyi_friedman
from scipy.stats import friedmanchisquare, kendalltau, rankdata, studentized_range

from experiments.rows.quality import OVER_LENGTHS, main_quality
from experiments.rows.row import metric_of, whole
from experiments.statistics import bootstrap
from experiments.statistics.bootstrap import FEWEST_TASKS
from experiments.statistics.groups import letters
from experiments.statistics.intervals import CONFIDENCE, SIGNIFICANCE, Matrix, with_series
from experiments.statistics.power import improvement
from experiments.statistics.scores import matrix, scores

MEASURED_IN = 0.75
"""Share of the tasks that a series must have to be compared over tasks."""
LENGTHS = ("in range", "beyond", "twice")


def aggregate(rows: pd.DataFrame, baseline: str | None = None) -> pd.DataFrame:
    """Aggregate each series over all tasks: the interquartile mean of the scores of all runs.

    Args:
        rows: of all tasks, their main metric, at the lengths that count.
        baseline: a series to compute ``improvement`` against.

    Returns:
        ``series``, ``iqm``, ``low``, ``high`` (95 %, other seeds), ``tasks_low``, ``tasks_high`` (95 %, other tasks),
        ``mean``, ``median``, ``improvement`` (probability that one of its runs is better than one of the baseline's,
        mean over tasks), ``tasks``, ``runs``, ``status`` (``ok``, or why it is left out). Best first; intervals are
        those of `bootstrap`.
    """
    table = scores(rows)
    table = table[table.groupby(["task", "metric"])["score"].transform("count") > 0]
    series_names, tasks, left_out = _complete(table)
    parts = {task: part for task, part in table.groupby("task") if task in tasks}
    values = {task: matrix(part, series_names, "score") for task, part in parts.items()}
    seeds = {task: np.sort(part["seed"].unique()) for task, part in parts.items()}
    lines = []
    for place, series in enumerate(series_names):
        runs = {task: values[task][~np.isnan(values[task][:, place]), place] for task in tasks}
        own = {task: seeds[task][~np.isnan(values[task][:, place])] for task in tasks}
        pooled = np.concatenate(list(runs.values()))
        iqm = float(bootstrap.interquartile_mean(pooled[None, :])[0])
        line = {"series": series, "iqm": iqm, "mean": float(pooled.mean())}
        line |= {"median": float(np.median(pooled)), "tasks": len(tasks), "runs": len(pooled), "status": "ok"}
        line |= dict(zip(("low", "high"), bootstrap.over_seeds(runs, own), strict=True))
        line |= dict(zip(("tasks_low", "tasks_high"), bootstrap.over_tasks(runs), strict=True))
        if baseline in series_names:
            theirs = series_names.index(baseline)
            line["improvement"] = float(np.mean([_improvement(values[task], place, theirs) for task in tasks]))
        lines.append(line)
    lines += [
        {"series": series, "status": why} for series, why in left_out.items() if series in set(table["series"].unique())
    ]
    columns = ["series", "iqm", "low", "high", "tasks_low", "tasks_high", "mean", "median", "improvement"]
    found = pd.DataFrame(lines, columns=[*columns, "tasks", "runs", "status"])
    found[columns[1:]] = found[columns[1:]].astype(float)
    found[["tasks", "runs"]] = found[["tasks", "runs"]].astype(float).fillna(0).astype(int)
    return found.sort_values(["iqm", "series"], ascending=[False, True], ignore_index=True)


def _improvement(values: Matrix, ours: int, theirs: int) -> float:
    one, other = (values[~np.isnan(values[:, place]), place] for place in (ours, theirs))
    return improvement(one, other)


def _complete(table: pd.DataFrame) -> tuple[list[str], list[str], dict[str, str]]:
    """Return series and tasks that make a complete table, and why the others are left out.

    Series that lack too many tasks go first, then the tasks that one of the remaining series lacks.
    """
    has = table.assign(known=table["value"].notna()).pivot_table(
        index="series", columns="task", values="known", aggfunc="any", fill_value=False
    )
    has = has.astype(bool)
    enough = has.sum(axis=1) >= MEASURED_IN * len(has.columns)
    tasks = [str(task) for task in has.columns[has[enough].all(axis=0)]] if enough.any() else []
    left_out = {}
    for series in has.index[~enough]:
        reasons = set(table.loc[(table["series"] == series) & table["value"].isna(), "status"])
        why = f"measured in {has.loc[series].sum()} of {len(has.columns)} tasks"
        left_out[str(series)] = ", ".join([why, *sorted(reasons)])
    for task in sorted(set(has.columns) - set(tasks)):
        lacking = [str(series) for series in has.index[enough] if not has.loc[series, task]]
        left_out[str(task)] = f"not measured of {', '.join(lacking)}"
    return [str(series) for series in has.index[enough]], tasks, left_out


def common(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the tasks that most series have, to compare series that have few tasks.

    Returns:
        No rows where these are all tasks, or would add no series to the comparison over all tasks.
    """
    known = rows[rows["value"].notna()]
    share = known.groupby("task")["series"].nunique() / rows["series"].nunique()
    found = rows[rows["task"].isin(share.index[share >= MEASURED_IN])]
    if found.empty or found["task"].nunique() == rows["task"].nunique():
        return rows[:0]
    over = ranks(found)
    return found if len(over.columns) > 1 and set(over.index) - set(ranks(rows).index) else rows[:0]


def ranks(rows: pd.DataFrame) -> pd.DataFrame:
    """Return each series' rank in each task (1 is best, ties share the mean), for complete tasks and series.

    Args:
        rows: as for `aggregate`.

    Returns:
        A line for each series, a column for each task, by mean rank, then name. ``attrs["left_out"]`` maps series and
        tasks that are left out to the reason.
    """
    table = scores(rows)
    series_names, tasks, left_out = _complete(table)
    kept = table[table["series"].isin(series_names) & table["task"].isin(tasks)]
    better = {name: -1.0 if metric_of(name).higher_is_better is False else 1.0 for name in set(kept["metric"].unique())}
    oriented = kept.assign(value=kept["value"] * kept["metric"].map(better).astype(float))
    means = oriented.pivot_table(index="series", columns="task", values="value", aggfunc="mean")
    found = means.round(12).rank(ascending=False, method="average")
    found = found.loc[found.mean(axis=1).sort_values(kind="stable").index] if len(found.columns) else found
    found.attrs["left_out"] = left_out
    return found


def friedman(table: pd.DataFrame) -> dict[str, float]:
    """Apply Friedman's test and Nemenyi's critical difference of mean ranks (Demšar 2006, JMLR 7:1-30).

    Args:
        table: of `ranks`.

    Returns:
        ``statistic``, ``p``, ``critical_difference``, ``series``, ``tasks``; NaN below three series or two tasks.
    """
    count, tasks = table.shape
    found = {"statistic": math.nan, "p": math.nan, "critical_difference": math.nan}
    if count > 2 and tasks > 1:
        q = float(studentized_range.ppf(CONFIDENCE, count, np.inf)) / math.sqrt(2)
        found["critical_difference"] = q * math.sqrt(count * (count + 1) / (6 * tasks))
        if (table.nunique() == 1).all():  # all series tie in every task, and the test would divide by zero
            found |= {"statistic": 0.0, "p": 1.0}
        else:
            test = friedmanchisquare(*table.to_numpy())
            found |= {"statistic": float(test.statistic), "p": float(test.pvalue)}
    return found | {"series": count, "tasks": tasks}


def over_tasks(rows: pd.DataFrame) -> pd.DataFrame:
    """Return how much each series' place depends on the choice of tasks, and its group by Nemenyi's test.

    Tasks are resampled with replacement, and series placed by their mean rank each time.

    Args:
        rows: as for `aggregate`.

    Returns:
        ``series``, ``place`` (by mean rank, ties share the better), ``mean_rank``, ``place_low``, ``place_high`` (95 %
        of the samples), ``first``, ``top_three`` (share of the samples; these four NaN below `FEWEST_TASKS`), ``group``
        (letters; blank where Friedman's test finds nothing). Best first.
    """
    table = ranks(rows)
    columns = ["series", "place", "mean_rank", "place_low", "place_high", "first", "top_three", "group"]
    if table.empty:
        return pd.DataFrame(columns=columns)
    series_names, means = [str(series) for series in table.index], table.mean(axis=1)
    found = pd.DataFrame({"series": series_names, "mean_rank": means.to_numpy()})
    found["place"] = rankdata(found["mean_rank"].round(9), method="min").astype(int)
    found[["place_low", "place_high", "first", "top_three"]] = math.nan
    if len(table.columns) >= FEWEST_TASKS:
        tasks = sorted(table.columns)
        drawn = table[tasks].to_numpy()[:, bootstrap.draw_tasks(tasks, len(tasks))].mean(axis=2)
        places = rankdata(drawn.round(9), method="min", axis=0)
        ends = [SIGNIFICANCE / 2, (1 + CONFIDENCE) / 2]
        low, high = np.quantile(places, ends, axis=1, method="nearest")
        found["place_low"], found["place_high"] = low, high
        found["first"], found["top_three"] = (places == 1).mean(axis=1), (places <= 3).mean(axis=1)
    found["group"] = ""
    if friedman(table)["p"] < SIGNIFICANCE:
        apart = posthoc_nemenyi_friedman(table.to_numpy().T).to_numpy() < SIGNIFICANCE
        pairs = [(series_names[one], series_names[other]) for one, other in np.argwhere(np.triu(apart))]
        found["group"] = found["series"].map(letters(series_names, pairs))
    return found[columns]


def by_metric(rows: pd.DataFrame) -> pd.DataFrame:
    """Return places under every other choice of metric and lengths, and how well they agree.

    Args:
        rows: of all tasks, all experiments.

    Returns:
        ``metric`` (``main``: each task's own), ``lengths`` (``in range``: the longest in range; ``beyond``: all
        longer; ``twice`` the training length), ``series``, ``mean_rank``, ``place``, ``tasks``, ``agreement``
        (Kendall's τ-b of the mean ranks with those of ``main``, ``beyond``). Only choices with at least two series.
    """
    rows = with_series(rows)
    rows = whole(rows[rows["experiment"] == OVER_LENGTHS])
    judged = sorted(name for name in set(rows["metric"].unique()) if metric_of(name).higher_is_better is not None)
    main = main_quality(rows)
    kinds = {"main": main} | {
        name: rows[rows["metric"] == name] for name in judged if {name} != set(main["metric"].unique())
    }
    usual: pd.Series[float] | None = None
    parts = []
    for metric, of_metric in kinds.items():
        for lengths in LENGTHS:
            table = ranks(_at(of_metric, lengths))
            if len(table) < 2 or not len(table.columns):
                continue
            means = table.mean(axis=1)
            usual = means if (metric, lengths) == ("main", "beyond") else usual
            part = pd.DataFrame({"series": means.index, "mean_rank": means.to_numpy(), "metric": metric})
            part["place"] = rankdata(part["mean_rank"].round(9), method="min").astype(int)
            parts.append((means, part.assign(lengths=lengths, tasks=len(table.columns))))
    columns = ["metric", "lengths", "series", "mean_rank", "place", "tasks", "agreement"]
    tables = [part.assign(agreement=_agreement(means, usual)) for means, part in parts]
    return (pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=columns))[columns]


def _at(rows: pd.DataFrame, lengths: str) -> pd.DataFrame:
    if rows.empty:
        return rows
    if lengths == "beyond":
        return rows[rows["eval_length"] > rows["train_length"]]
    if lengths == "twice":
        return rows[rows["eval_length"] == 2 * rows["train_length"]]
    within = rows[rows["eval_length"] <= rows["train_length"]]
    return within[within["eval_length"] == within.groupby(["task", "series"])["eval_length"].transform("max")]


def _agreement(means: pd.Series[float], usual: pd.Series[float] | None) -> float:
    if usual is None or len(both := means.index.intersection(usual.index)) < 2:
        return math.nan
    if means[both].nunique() < 2 or usual[both].nunique() < 2:
        return math.nan
    return float(cast(float, kendalltau(means[both], usual[both]).statistic))
