"""Does a comparison transfer? Rankings of two sizes, training budgets or learning rates; how each encoder scales.

A rung is a size of trunk and a number of training tokens. Rankings of two rungs are compared by Kendall's τ (1938;
tau-b), and by how many of the best `TOP` they share. Their intervals are over seeds: each mean is drawn again from the
t distribution of its seeds, without what a seed does to all encoders alike, and 95 % of the draws lie within. Noise
only lowers an agreement, so an interval may lie below the value itself. An encoder's scaling is a power law of the
quality in bits, fitted for each seed over sizes; its interval is that of a mean over seeds.
"""

from itertools import combinations, pairwise

import numpy as np
import pandas as pd
from scipy import stats

from experiments.statistics.intervals import Matrix, Vector, half_width

TOP = 3
"""Places whose holders are compared."""
DRAWS = 1000
LEAST = 3
"""Encoders that two rungs share, for their rankings to be compared; sizes, for a power law to be fitted."""
PAIR = ["task", "multiple", "axis", "at", "first", "second", "encoders", "seeds", "tau", "tau_low", "tau_high"]
PAIR += ["top", "top_low", "top_high", "decided", "kept", "reversed"]
RATES = ["task", "first", "second", "encoders", "seeds", "tau", "tau_low", "tau_high", "decided", "kept"]
RATES += ["decided_back", "kept_back"]
LAW = ["task", "multiple", "budget", "encoder", "sizes", "seeds", "exponent", "low", "high", "at_one_million"]


def compared(rungs: pd.DataFrame) -> pd.DataFrame:
    """Compare the rankings of rungs that differ in size or in budget: of neighbours, and of the first with all others.

    Args:
        rungs: one line for each run and multiple of the training length: ``task``, ``multiple``, ``parameters``,
            ``budget`` (tokens for each parameter), ``encoder``, ``seed`` and ``value``, of which more is worse.

    Returns:
        ``task``, ``multiple``, ``axis`` (``size`` or ``budget``), ``at`` (the value of the other axis), ``first`` and
        ``second`` (values of this one), how many encoders and seeds both have, ``tau`` and ``top`` (share of the best
        `TOP`) with their intervals, ``decided`` (pairs of encoders that the first rung tells apart, each by itself at
        95 %), ``kept`` and ``reversed`` (of these, those that the second has in the same or the other order, whether
        or not it tells them apart).
    """
    found = []
    axes = {"size": ("parameters", "budget"), "budget": ("budget", "parameters")}
    for (task, multiple), part in rungs.groupby(["task", "multiple"]):
        for axis, (varied, fixed) in axes.items():
            for at, of_one in part.groupby(fixed):
                values = sorted(of_one[varied].unique())
                for first, second in [*pairwise(values), *((values[0], other) for other in values[2:])]:
                    tables = [_table(of_one[of_one[varied] == value]) for value in (first, second)]
                    if agreement := _compare(*tables):
                        found.append([task, multiple, axis, at, first, second, *agreement])
    return pd.DataFrame(found, columns=PAIR)


def of_rates(kept: pd.DataFrame) -> pd.DataFrame:
    """Compare the rankings at each two learning rates.

    Args:
        kept: what each run keeps at each rate, see `scores.by_rate`.

    Returns:
        As `compared`; ``decided_back`` and ``kept_back`` count the pairs that the second rate tells apart.
    """
    found = []
    for task, part in kept.rename(columns={"series": "encoder", "kept": "value"}).groupby("task"):
        tables = {rate: _table(of_rate) for rate, of_rate in part.groupby("learning_rate")}
        for first, second in combinations(tables, 2):
            there, back = (_compare(tables[one], tables[other]) for one, other in ((first, second), (second, first)))
            if there and back:
                line, reverse = (dict(zip(PAIR[-len(numbers) :], numbers, strict=True)) for numbers in (there, back))
                line |= {"decided_back": reverse["decided"], "kept_back": reverse["kept"]}
                found.append({"task": task, "first": first, "second": second, **line})
    return pd.DataFrame(found, columns=RATES)


def _table(rung: pd.DataFrame) -> pd.DataFrame:
    """Return encoders by seeds without a gap: seeds that every encoder has, or encoders that have every seed."""
    table = rung.pivot_table(index="encoder", columns="seed", values="value")
    return max(table.dropna(axis=1), table.dropna(), key=lambda whole: whole.size)


def _compare(first: pd.DataFrame, second: pd.DataFrame) -> list[float] | None:
    names, seeds = first.index.intersection(second.index), min(first.shape[1], second.shape[1])
    if len(names) < LEAST:
        return None
    one, two = (table.loc[names].to_numpy(dtype=float) for table in (first, second))
    before, after = one.mean(1).round(8), two.mean(1).round(8)  # sums of the same numbers differ by rounding
    drawn = list(zip(_draws(one), _draws(two), strict=True)) if seeds > 1 else []
    numbers = [float(len(names)), float(seeds)]
    for measure in (_tau, _shared):
        every = [measure(*means) for means in drawn] or [np.nan]
        numbers += [measure(before, after), *np.percentile(every, [2.5, 97.5])]
    pairs = [pair for pair in combinations(range(len(names)), 2) if _differ(one[pair[0]] - one[pair[1]])]
    signs = [(before[i] - before[j]) * (after[i] - after[j]) for i, j in pairs]
    return [*numbers, len(pairs), sum(sign > 0 for sign in signs), sum(sign < 0 for sign in signs)]


def _tau(first: Vector, second: Vector) -> float:
    return float(stats.kendalltau(first, second).statistic)


def _shared(first: Vector, second: Vector) -> float:
    best = [set(np.argsort(values, kind="stable")[:TOP].tolist()) for values in (first, second)]
    return len(best[0] & best[1]) / TOP


def _draws(values: Matrix) -> Matrix:
    """Return means over seeds as they may be, ``(DRAWS, encoders)``."""
    seeds = values.shape[1]
    own = values - values.mean(0)
    error = own.std(1, ddof=1) / np.sqrt(seeds)
    return own.mean(1) + error * np.random.default_rng(0).standard_t(seeds - 1, (DRAWS, len(values)))


def _differ(differences: Vector) -> bool:
    return abs(differences.mean()) > half_width(pd.Series(differences))  # False where there is but one seed


def laws(rungs: pd.DataFrame) -> pd.DataFrame:
    """Fit bits = a · parameters^(-exponent) to each encoder over the sizes of a budget, for each seed by itself.

    Args:
        rungs: as `compared` takes them, of tasks whose values are bits.

    Returns:
        ``task``, ``multiple``, ``budget``, ``encoder``, how many sizes and seeds, the mean ``exponent`` with its 95 %
        interval (NaN below two seeds), and what the fit says of a million parameters.
    """
    found = []
    for (task, multiple, budget, encoder), part in rungs.groupby(["task", "multiple", "budget", "encoder"]):
        table = part.pivot_table(index="parameters", columns="seed", values="value").dropna(axis=1)
        if len(table) < LEAST or table.empty or (table <= 0).any(axis=None):
            continue
        sizes = np.log(table.index.to_numpy(dtype=float) / 1e6)
        slopes, heights = np.polyfit(sizes, np.log(table.to_numpy(dtype=float)), 1)
        mean, half = -slopes.mean(), half_width(pd.Series(slopes))
        at = float(np.exp(heights.mean()))
        found.append([task, multiple, budget, encoder, *table.shape, mean, mean - half, mean + half, at])
    return pd.DataFrame(found, columns=LAW)
