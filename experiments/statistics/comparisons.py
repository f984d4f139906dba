"""Which series is better on a task: against one baseline, and the places that each may have.

A run counts once, by the quality that it keeps (see `scores`). Two series are compared by Welch's test of all their
runs. Seeds are not paired: on the runs of 2026-11-22 the same seed of two encoders agrees no better than two seeds do
(intraclass correlation -.01 to .12). A deviation below the evaluation's own noise is raised to it: five times 1.000 of
1024 questions is not a deviation of 0.

All pairs of a task are one family with Holm's correction, in which the comparisons with the baseline share half of the
level (Bretz et al. 2009, doi 10.1002/sim.3495): one verdict for each pair, whatever asks for it, and another task
changes none. What follows from two verdicts (a beats b, and b beats c) is decided as well.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import gammaln, stdtr, stdtrit

from experiments.statistics.intervals import SIGNIFICANCE, Matrix, Vector, bounded
from experiments.statistics.rule import FEWEST
from experiments.statistics.scores import KEPT, NOT_MEASURED, UNLEARNED

BETTER, WORSE, EQUAL = "better", "worse", "equal"
OPEN, UNDECIDED = "open", "undecided"
"""Of a comparison that decides nothing: runs that may decide it are planned, or all planned runs are in."""
TOO_FEW = f"fewer than {FEWEST} seeds"
Truth = np.ndarray[tuple[int, int], np.dtype[np.bool_]]
STANDING = ["task", "metric", "series", "place", "place_low", "place_high", "kept", "low", "high", "in_range", *KEPT]
STANDING += ["up_to", "reach", "seeds", "seeds_learned", "status"]
AGAINST = ["task", "metric", "series", "baseline", "seeds", "baseline_seeds", "mean", "baseline_mean"]
AGAINST += ["difference", "low", "high", "effect", "improvement", "p", "p_holm", "verdict"]


class Moments(NamedTuple):
    """Mean kept, variance of the mean (NaN below `FEWEST` runs) and number of runs, of many series."""

    mean: Vector
    variance: Vector
    runs: Vector

    def take(self, places: np.ndarray[tuple[int], np.dtype[np.int64]]) -> "Moments":
        """Return those of the series at some places."""
        return Moments(*(values[places] for values in self))


class Test(NamedTuple):
    """A t test of each pair: difference, its interval, p on two sides and on one (the first is lower)."""

    difference: Vector
    low: Vector
    high: Vector
    p: Vector
    p_below: Vector


class Family(NamedTuple):
    """All pairs of a task's series as matrices: line less column; NaN where a pair could not be tested.

    Args:
        values: what each run keeps, seeds down, series across.
        difference: of the means.
        low, high: ends of its 95 % interval before correction.
        p: of Welch's test.
        wins: whether the series of the line is better than that of the column.
        equal: whether they differ by less than a declared difference.
        open: whether runs that may decide it are planned.
        runs: of the series of the line, with a score, that the comparison with that of the column rests on.
        means: of what these keep.
    """

    names: list[str]
    values: Matrix
    difference: Matrix
    low: Matrix
    high: Matrix
    p: Matrix
    p_holm: Matrix
    wins: Truth
    equal: Truth
    open: Truth
    runs: Matrix
    means: Matrix


def by_series(scores: pd.DataFrame) -> tuple[list[str], Matrix, Matrix]:
    """Return the series of one task, what they keep and its noise: seeds down, series across; NaN without a score."""
    names, column = np.unique(scores["series"].to_numpy(dtype=str), return_inverse=True)
    seeds, line = np.unique(scores["seed"].to_numpy(), return_inverse=True)
    tables = np.full((2, len(seeds), len(names)), np.nan)
    known = (scores["status"] == "ok").to_numpy()
    for table, name in zip(tables, ("kept", "noise"), strict=True):
        table[line[known], column[known]] = scores[name].to_numpy(dtype=float)[known]
    return [str(name) for name in names], tables[0], tables[1]


def moments(kept: Matrix, noise: Matrix) -> Moments:
    """Return the moments of the columns of `by_series`."""
    known = ~np.isnan(kept)
    count = known.sum(axis=0).astype(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(known, kept, 0).sum(axis=0) / count
        spread = np.where(known, (kept - mean) ** 2, 0).sum(axis=0) / (count - 1)
        floor = np.where(known, noise, 0).sum(axis=0) / count
        variance = np.maximum(np.maximum(spread, floor), 1e-24) / count
    return Moments(mean, np.where(count < FEWEST, np.nan, variance), count)


def welch(ours: Moments, theirs: Moments, level: float = SIGNIFICANCE) -> Test:
    """Compare series with as many others, one by one, by Welch's (1947) test; intervals have 1 - ``level``."""
    variance = ours.variance + theirs.variance
    degrees = variance**2 / (ours.variance**2 / (ours.runs - 1) + theirs.variance**2 / (theirs.runs - 1))
    return _of_t(ours.mean - theirs.mean, variance, degrees, level)


def paired(less: Moments, level: float = SIGNIFICANCE) -> Test:
    """Test differences by seed, of which ``less`` are the moments, against 0."""
    return _of_t(less.mean, less.variance, less.runs - 1, level)


def _of_t(difference: Vector, variance: Vector, degrees: Vector, level: float) -> Test:
    half = stdtrit(degrees, 1 - level / 2) * np.sqrt(variance)
    below, above = (stdtr(degrees, sign * difference / np.sqrt(variance)) for sign in (1, -1))
    return Test(difference, difference - half, difference + half, 2 * np.minimum(below, above), below)


def family(scores: pd.DataFrame, baseline: str | None = None, *, waiting: bool = False) -> Family:
    """Test all pairs of the series of one task and metric; comparisons with ``baseline`` share half of the level.

    ``waiting``: runs that were asked for have not ended.
    """
    names, kept, noise = by_series(scores)
    known = moments(kept, noise)
    one, other = np.triu_indices(len(names), 1)
    test = welch(known.take(one), known.take(other))
    share = np.ones(len(one))
    if baseline in names:
        asked = (one == names.index(baseline)) | (other == names.index(baseline))
        share = np.where(asked, 1 / max(1, asked.sum()), 1 / max(1, (~asked).sum()))

    def square(first: Vector, second: Vector) -> Matrix:
        matrix = np.full((len(names), len(names)), np.nan)
        matrix[one, other], matrix[other, one] = first, second
        return matrix

    difference, p = square(test.difference, -test.difference), square(test.p, test.p)
    low, high = square(test.low, -test.high), square(test.high, -test.low)
    corrected = holm(test.p, share)
    better = closure(np.where((difference > 0) & ~np.isnan(p), square(corrected, corrected), 1.0))
    p_holm = np.where(np.isnan(p), np.nan, np.minimum(better, better.T))
    runs, means = (np.repeat(each[:, None], len(names), axis=1) for each in (known.runs, known.mean))
    wins, equal, still = better < SIGNIFICANCE, np.zeros(p.shape, dtype=bool), np.full(p.shape, waiting)
    return Family(names, kept, difference, low, high, p, p_holm, wins, equal, still, runs, means)


def closure(better: Matrix) -> Matrix:
    """Return p values of "the line is better than the column" that also follow from a chain of others."""
    for place in range(len(better)):
        better = np.minimum(better, np.maximum(better[:, [place]], better[[place], :]))
    return better


def against(scores: pd.DataFrame, found: Family, baseline: str) -> pd.DataFrame:
    """Return the comparisons of each series of one task and metric with the baseline.

    Returns:
        The columns `AGAINST`: ``seeds`` and ``baseline_seeds`` (runs that were compared), ``mean`` and
        ``baseline_mean`` (of what they keep), ``difference`` (series less baseline) with its interval, ``effect``
        (`effect`), ``improvement`` (`improvement`), ``p``, ``p_holm``, ``verdict`` (``better``, ``worse``, ``equal``,
        ``open``, ``undecided``, or the reason why there is none).
    """
    if baseline not in found.names:
        return pd.DataFrame(columns=AGAINST)
    base = found.names.index(baseline)
    values = [column[~np.isnan(column)] for column in found.values.T]
    lines = []
    for place, series in enumerate(found.names):
        if place == base:
            continue
        line: dict[str, object] = {"series": series, "seeds": int(found.runs[place, base])}
        line["baseline_seeds"] = int(found.runs[base, place])
        line |= {"mean": found.means[place, base], "baseline_mean": found.means[base, place]}
        line |= {name: getattr(found, name)[place, base] for name in ("difference", "low", "high", "p", "p_holm")}
        line |= {"effect": effect(values[place], values[base]), "improvement": improvement(values[place], values[base])}
        if not len(values[place]) or not len(values[base]):
            own = reason(scores, series)
            line["verdict"] = f"{baseline}: {reason(scores, baseline)}" if len(values[place]) else own
        elif found.wins[place, base] or found.wins[base, place]:
            line["verdict"] = BETTER if found.wins[place, base] else WORSE
        elif found.equal[place, base] or found.open[place, base]:
            line["verdict"] = EQUAL if found.equal[place, base] else OPEN
        else:
            few = min(len(values[place]), len(values[base])) < FEWEST
            line["verdict"] = TOO_FEW if few else UNDECIDED
        lines.append(line)
    table = pd.DataFrame(lines, columns=AGAINST)
    return table.assign(task=scores["task"].iloc[0], metric=scores["metric"].iloc[0], baseline=baseline)


def by_seed(scores: pd.DataFrame, one: str, other: str, level: float) -> tuple[float, Test]:
    """Return the correlation of two series over the seeds of both, NaN below `FEWEST`, and the test that pairs these.

    For the reader, beside a test that pairs no seeds: close relatives agree by seed, and others do not.
    """
    names, kept, noise = by_series(scores[scores["series"].isin([one, other])])
    ours, theirs = (kept[:, [names.index(name)]] for name in (one, other))
    both = ~np.isnan(ours) & ~np.isnan(theirs)
    test = paired(moments(ours - theirs, noise.sum(axis=1, keepdims=True)), level)
    if both.sum() < FEWEST or not min(ours[both].std(), theirs[both].std()):
        return math.nan, test
    return float(np.corrcoef(ours[both], theirs[both])[0, 1]), test


def reason(scores: pd.DataFrame, series: str) -> str:
    """Return the commonest reason why a series has no score on a task."""
    statuses = scores.loc[scores["series"] == series, "status"]
    return str(statuses.mode().iloc[0]) if len(statuses) else NOT_MEASURED


def standings(scores: pd.DataFrame, found: Family) -> pd.DataFrame:
    """Return mean kept and range of places of each series of one task.

    The places of a series lie between 1 + the number of series that are better and the number of series less those that
    are worse, so with 95 % confidence all true places of the task are in their ranges (Mogstad, Romano, Shaikh and
    Wilhelm 2024, doi 10.1093/restud/rdad006, in the pairwise form: joint resampling gave the same ranges on the
    runs of 2026-11-22).

    Returns:
        The columns `STANDING`, best first: ``place`` (by mean kept, ties share the mean), ``place_low``,
        ``place_high``, ``kept`` with its 95 % interval, means of ``in_range`` and ``kept_…``, median ``reach``,
        ``seeds``, ``seeds_learned`` (that learned the task in range), ``status`` (``ok``, or why nothing is kept).
    """
    if scores.empty:
        return pd.DataFrame(columns=STANDING)
    groups = scores.groupby("series")
    table = groups[["kept", "in_range", *KEPT]].mean()
    table["up_to"], table["reach"], table["seeds"] = groups["up_to"].first(), groups["reach"].median(), groups.size()
    table["seeds_learned"] = scores["status"].ne(UNLEARNED).groupby(scores["series"]).sum()
    valued = {str(name): part for name, part in scores[scores["status"] == "ok"].groupby("series")}
    ends = {name: interval(part) for name, part in valued.items()}
    table[["low", "high"]] = [ends.get(str(name), (math.nan, math.nan)) for name in table.index]
    table["place"] = table["kept"].round(12).rank(ascending=False, method="average")
    table["place_low"] = pd.Series(1.0 + found.wins.sum(axis=0), found.names)
    table["place_high"] = pd.Series(len(valued) - found.wins.sum(axis=1), found.names)
    table.loc[table["kept"].isna(), ["place_low", "place_high"]] = np.nan
    table["status"] = ["ok" if name in valued else reason(scores, str(name)) for name in table.index]
    table = table.reset_index().assign(task=scores["task"].iloc[0], metric=scores["metric"].iloc[0])
    return table.sort_values(["place", "series"], ignore_index=True)[STANDING]


def over_tasks(families: Iterable[Family]) -> pd.DataFrame:
    """Compare all pairs of series over tasks, from the family of each.

    Returns:
        ``first``, ``second``, ``tasks`` (where they are compared), ``wins`` and ``losses`` of the first (decided within
        the task), ``difference`` (of the means, mean over the tasks), ``low``, ``high`` (its 95 % t interval over
        tasks; NaN below `FEWEST`). Both orders of each pair are listed.
    """
    parts = []
    for found in families:
        one, other = np.nonzero(~np.isnan(found.difference))
        names = np.array(found.names, dtype=object)
        pairs = {"first": names[one], "second": names[other], "difference": found.difference[one, other]}
        parts.append(pd.DataFrame(pairs | {"wins": found.wins[one, other], "losses": found.wins[other, one]}))
    groups = pd.concat(parts).groupby(["first", "second"])
    table = groups.agg(tasks=("wins", "size"), wins=("wins", "sum"), losses=("losses", "sum"))
    mean, tasks = groups["difference"].mean(), table["tasks"]
    half = groups["difference"].sem() * stdtrit(tasks.clip(2) - 1, 1 - SIGNIFICANCE / 2).where(tasks >= FEWEST)
    return table.assign(difference=mean, low=mean - half, high=mean + half).reset_index()


def interval(scores: pd.DataFrame) -> tuple[float, float]:
    """Return the 95 % interval of one series' mean; NaN for few runs, or runs in two clusters."""
    bounds = float(scores["worst"].min()), float(scores["best"].max())
    return bounded(scores["kept"].to_numpy(dtype=float), bounds, float(scores["noise"].mean()))


def holm(p: Iterable[float], shares: Iterable[float] | None = None) -> Vector:
    """Return p values after Holm's (1979) correction; NaN was no test. ``shares`` of the level are relative."""
    values = np.array(list(p), dtype=np.float64)
    weights = np.ones(len(values)) if shares is None else np.array(list(shares), dtype=np.float64)
    tested = np.flatnonzero(~np.isnan(values))
    order = tested[np.argsort(values[tested] / weights[tested], kind="stable")]
    left = weights[order][::-1].cumsum()[::-1]
    values[order] = np.minimum(1, np.maximum.accumulate(values[order] / weights[order] * left))
    return values


def effect(ours: Vector, theirs: Vector) -> float:
    """Return Hedges' g_av: the difference of two means in deviations of one seed (doi 10.3389/fpsyg.2013.00863).

    The deviation is the root mean square of the two; Hedges' (1981) correction is Γ(df/2) / (√(df/2) Γ((df - 1)/2)).

    Returns:
        NaN below two values; ±inf where the means differ and neither has a deviation.
    """
    if min(len(ours), len(theirs)) < 2:
        return math.nan
    difference = float(ours.mean() - theirs.mean())
    deviation = math.sqrt((float(ours.var(ddof=1)) + float(theirs.var(ddof=1))) / 2)
    if abs(difference) <= 1e-12:
        return 0.0
    if deviation <= 1e-12:
        return math.copysign(math.inf, difference)
    half = (len(ours) + len(theirs) - 2) / 2
    return difference / deviation * math.exp(gammaln(half) - gammaln(half - 0.5)) / math.sqrt(half)


def improvement(ours: Vector, theirs: Vector) -> float:
    """Return the probability that a value of ours is higher than one of theirs, ties half (arXiv 2108.13264)."""
    if not len(ours) or not len(theirs):
        return math.nan
    return float((np.sign(np.subtract.outer(ours, theirs)) + 1).mean() / 2)
