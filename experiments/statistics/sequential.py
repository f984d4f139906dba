"""More seeds until it is decided, without more false alarms: looks and weights that are declared before the first run.

Testing again after every added seed turns 5 % false alarms into 23 %. Here look k spends a share w_k of the level: the
sequential p is the least p_k / w_k of the looks done, so without a difference Pr(p ≤ u) ≤ Σ Pr(p_k ≤ w_k u) ≤ u,
whatever decided which series got more seeds. Holm's correction covers the comparisons of a task. Intervals are
repeated confidence intervals (Jennison and Turnbull 1989, doi 10.1111/j.2517-6161.1989.tb01437.x), valid at every
look. A sign test beside them assumes nothing about the distribution. `docs/statistics.md` has false alarms and power.
"""

from dataclasses import replace

import numpy as np
import pandas as pd

from experiments.statistics import comparisons
from experiments.statistics.comparisons import BETTER, EQUAL, OPEN, UNDECIDED, WORSE, Family, moments
from experiments.statistics.intervals import SIGNIFICANCE, Matrix, Vector
from experiments.statistics.rule import BEST, STATEMENTS, Rule
from experiments.statistics.scores import UNLEARNED

Counts = np.ndarray[tuple[int], np.dtype[np.int64]]
Pairs = tuple[Counts, Counts]
COLUMNS = ["task", "metric", "series", "against", "seeds", "seeds_learned", "difference", "low", "high", "p", "p_holm"]
COLUMNS += ["verdict", "next_look", "concerns"]


def decide(scores: pd.DataFrame, rule: Rule, first_seed: int = 0) -> pd.DataFrame:
    """Return what the runs so far decide, on every task on its own.

    A look is done for a series when all of its seeds up to there have ended. Runs that did not learn count as seeds and
    are left out of the means.

    Args:
        scores: of `scores.scores`, one metric for each task.
        rule: declared before the first run.
        first_seed: of the sweep.

    Returns:
        The columns `COLUMNS`: ``seeds`` (of the last look done), ``seeds_learned`` (runs with a score), ``difference``
        with its repeated confidence interval, ``p`` (sequential), ``p_holm`` (within the task), ``verdict``
        (``better``, ``worse``, ``equal``, ``open``, or ``undecided`` after all looks), ``next_look`` (seeds that it
        needs next; 0: none), ``concerns`` (task and series that need them). For ``best``, a series is ``worse`` if
        another beats it (``against``), and ``better`` if it beats all that are left.
    """
    parts = [_of_task(of_task, rule, first_seed) for _, of_task in scores.groupby(["task", "metric"])]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=COLUMNS)


def verdicts(
    scores: pd.DataFrame, declared: tuple[Rule, int] | None, baseline: str | None, *, waiting: bool = False
) -> Family:
    """Return the verdicts of a task: by the ``declared`` rule and its first seed, or of all seeds at once.

    ``waiting``: runs that were asked for have not ended; a declared rule says itself which comparisons are open.
    """
    if declared is None or scores.empty:
        return comparisons.family(scores, baseline, waiting=waiting)
    rule, first_seed = declared
    found = family(scores, rule if rule.question == BEST else replace(rule, question=str(baseline)), first_seed)
    if rule.question == STATEMENTS:  # no comparison of two series gets more seeds
        found = found._replace(open=np.full_like(found.open, waiting))
    return found


def family(scores: pd.DataFrame, rule: Rule, first_seed: int = 0) -> Family:
    """Return the verdicts of a task whose seeds were grown by a rule: those of `decide`, and what follows from them.

    Only the comparisons that the rule is about are tested: differences, intervals and runs are those of the last look.
    A rule that seeks the best tests none: what is sure is the set of those that may be it.
    """
    plain = comparisons.family(scores)
    size = (len(plain.names), len(plain.names))
    if rule.question == BEST:
        blank = np.full(size, np.nan)
        plain = plain._replace(difference=blank, low=blank, high=blank, p=blank, p_holm=blank)
        still = np.full(size, decide(scores, rule, first_seed)["verdict"].eq(OPEN).any())
        return plain._replace(wins=np.zeros(size, dtype=bool), open=still)
    better, equal, still = np.ones(size), plain.equal.copy(), plain.open.copy()
    difference, low, high, p, p_holm = np.full((5, *size), np.nan)
    order, runs, means = np.unique(scores["seed"]) - first_seed, plain.runs.copy(), plain.means.copy()
    for line in decide(scores, rule, first_seed).to_dict("records"):
        one, other = plain.names.index(line["series"]), plain.names.index(line["against"])
        seen = plain.values[order < line["seeds"]][:, [one, other]]
        known = ~np.isnan(seen)
        known = known & known.all(axis=1, keepdims=True) if rule.paired else known
        pair = [one, other], [other, one]
        runs[pair] = known.sum(axis=0)
        with np.errstate(invalid="ignore"):
            means[pair] = np.where(known, seen, 0).sum(axis=0) / known.sum(axis=0)
        p[pair], p_holm[pair] = line["p"], line["p_holm"]
        difference[pair] = line["difference"], -line["difference"]
        low[pair], high[pair] = (line["low"], -line["high"]), (line["high"], -line["low"])
        equal[pair], still[pair] = line["verdict"] == EQUAL, line["verdict"] == OPEN
        winner, loser = (other, one) if line["verdict"] == WORSE else (one, other)
        if line["verdict"] in (WORSE, BETTER):
            better[winner, loser] = line["p_holm"]
    better = comparisons.closure(better)
    plain = plain._replace(difference=difference, low=low, high=high, p=p, p_holm=p_holm)
    return plain._replace(wins=better < SIGNIFICANCE, equal=equal, open=still, runs=runs, means=means)


def wanted(decided: pd.DataFrame, rule: Rule) -> dict[tuple[str, str], int]:
    """Return (task, series) -> number of seeds that it should have; the baseline has as many as the most open one."""
    found: dict[tuple[str, str], int] = {}
    for concerned, needed in zip(decided["concerns"], decided["next_look"], strict=True):
        for key in concerned:
            found[key] = max(found.get(key, rule.looks[0]), needed)
    return found


def _of_task(scores: pd.DataFrame, rule: Rule, first_seed: int) -> pd.DataFrame:
    names, kept, noise = comparisons.by_series(scores)
    having = {str(name): set(part) for name, part in scores.groupby("series")["seed"]}
    done = np.array([looks_done(having[name], rule, first_seed) for name in names])
    others = [rule.question] if rule.question != BEST else names
    pairs = [(one, names.index(other)) for one in range(len(names)) for other in others if other in names]
    one, other = np.array([pair for pair in pairs if pair[0] != pair[1]], dtype=int).reshape(-1, 2).T
    delta = 0.0 if rule.question == BEST else rule.delta or 0.0
    table = tested(kept, noise, (one, other), done, np.unique(scores["seed"]) - first_seed, rule, delta)
    table = table.assign(series=[names[n] for n in one], against=[names[n] for n in other])
    table = table.assign(own=done[one], seeds_learned=(~np.isnan(kept)).sum(axis=0)[one])
    table = with_next_look(_best(table, rule) if rule.question == BEST else judged(table, rule), rule)
    task = str(scores["task"].iloc[0])
    with_it = [] if rule.question == BEST else [(task, rule.question)]
    concerns = pd.Series([{(task, series), *with_it} for series in table["series"]], table.index, dtype=object)
    return table.assign(task=task, metric=scores["metric"].iloc[0], concerns=concerns)[COLUMNS]


def tested(
    kept: Matrix, noise: Matrix, pairs: Pairs, done: Counts, order: Counts, rule: Rule, delta: Vector | float
) -> pd.DataFrame:
    """Compare pairs of columns at each look that is done for both, until they are equal.

    Args:
        kept: by each run, or any other value; seeds down, series across; NaN where a run has none.
        noise: variance of each that the evaluation alone causes.
        pairs: column of the first, and of the second, of each comparison.
        done: number of looks done, of each column.
        order: place of each line among the seeds; 0 is the first.
        rule: the looks.
        delta: within which the interval of a comparison must lie for the two to be equal.

    Returns:
        ``done`` (looks), ``difference``, ``low``, ``high``, ``equal``, ``p``, ``p_below``, ``better`` (the sign of the
        test that gave ``p``), a line for each comparison.
    """
    one, other = pairs
    both = np.minimum(done[one], done[other])
    p, p_below = np.ones((2, len(one)))
    difference, low, high = np.full((3, len(one)), np.nan)
    better, equal = np.zeros((2, len(one)), dtype=bool)
    looked = np.zeros(len(one), dtype=np.int64)
    for number, (look, weight) in enumerate(zip(rule.looks, rule.weights, strict=True), start=1):
        upto = order < look
        ours, floor, level = kept[upto], noise[upto], SIGNIFICANCE * weight
        if rule.paired:
            test = comparisons.paired(moments(ours[:, one] - ours[:, other], floor[:, one] + floor[:, other]), level)
        else:
            known = moments(ours, floor)
            test = comparisons.welch(known.take(one), known.take(other), level)
        on = (both >= number) & ~equal
        looked = np.where(on, number, looked)
        due = on & ~np.isnan(test.p)
        better = np.where(due & (test.p / weight < p), test.difference > 0, better)
        difference, low, high = np.where(due, test[:3], (difference, low, high))
        equal = (low > -delta) & (high < delta)
        least = np.minimum((p, p_below), np.array((test.p, test.p_below)) / weight)
        p, p_below = np.where(due, least, (p, p_below))
    table = pd.DataFrame({"done": looked, "difference": difference, "low": low, "high": high, "equal": equal})
    return table.assign(p=p, p_below=p_below, better=better)


def with_next_look(table: pd.DataFrame, rule: Rule) -> pd.DataFrame:
    """Add the seeds of the last look done, and those that an open comparison needs next (0: none); no p without test.

    What is not tested yet counts in Holm's correction, as a p of 1.
    """
    waits, untested = table["verdict"] == OPEN, table["difference"].isna()
    table = table.assign(**{name: table[name].mask(untested) for name in ("p", "p_holm")})
    next_look = [rule.looks[n] if waiting else 0 for n, waiting in zip(table["done"], waits, strict=True)]
    seeds = [rule.looks[n - 1] if n else 0 for n in table["done"]]
    # Whole numbers even of no lines: those of a task whose baseline has no run yet.
    return table.assign(next_look=np.array(next_look, dtype=int), seeds=np.array(seeds, dtype=int))


def looks_done(seeds: set[int], rule: Rule, first_seed: int) -> int:
    """Return how many looks some seeds cover."""
    return sum(seeds.issuperset(range(first_seed, first_seed + look)) for look in rule.looks)


def judged(table: pd.DataFrame, rule: Rule) -> pd.DataFrame:
    """Judge the comparisons of a family."""
    table = table.assign(p_holm=comparisons.holm(table["p"]))
    cases = {
        BETTER: (table["p_holm"] < SIGNIFICANCE) & table["better"],
        WORSE: table["p_holm"] < SIGNIFICANCE,
        EQUAL: table["equal"],
        UNLEARNED: table["done"].gt(0) & table["seeds_learned"].eq(0),
        UNDECIDED: table["done"] == len(rule.looks),
    }
    return table.assign(verdict=np.select(list(cases.values()), list(cases), OPEN))


def _best(table: pd.DataFrame, rule: Rule) -> pd.DataFrame:
    """Keep every series that none beats: with 95 % confidence the best is among them."""
    rivals = table["series"].nunique() - 1
    table = table.sort_values(["p_below", "difference"]).drop_duplicates("series").sort_values("series")
    table = table.assign(p=table["p_below"], p_holm=np.minimum(1, table["p_below"] * rivals), done=table["own"])
    beaten = table["p_holm"] < SIGNIFICANCE
    unlearned = table["done"].gt(0) & table["seeds_learned"].eq(0)
    cases = {
        UNLEARNED: unlearned,
        WORSE: beaten,
        BETTER: pd.Series((~beaten & ~unlearned).sum() == 1, table.index),
        UNDECIDED: table["done"] == len(rule.looks),
    }
    return table.assign(verdict=np.select(list(cases.values()), list(cases), OPEN))
