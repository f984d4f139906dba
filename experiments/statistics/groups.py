"""All labels of a task against one another, and the letters that say which of them cannot be told apart.

With 39 labels there are 741 pairs, and of three seeds no correction that forbids a single mistake among them leaves
anything to see (Holm finds 3 of 100 true differences of the size that is usual here). So groups allow mistakes, as
ranked lists of states do (Williams, Jones and Tukey 1999, doi 10.3102/10769986024001042): of the pairs that they tell
apart, 5 % at most are expected to be false, by Benjamini and Hochberg (1995) on the paired t tests of all pairs. Each
pair has its own deviation. One pooled over labels, as in Tukey's range test, would find more and be wrong: one label's
seeds differ by .001 where another's differ by .2, and then up to one table in two has a difference where there is none.
``p_holm`` is there for who wants no mistake at all. Simulations of both: `tests/statistics/test_coverage.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

import numpy as np
import pandas as pd
from scipy.special import stdtrit
from scipy.stats import false_discovery_control

from experiments.rows.row import metric_of
from experiments.statistics.intervals import CONFIDENCE, SIGNIFICANCE, holm, paired_columns
from experiments.statistics.scores import matrix, scores

PAIRED = ["first", "second", "pairs", "difference", "low", "high", "p", "p_holm", "p_groups"]
ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def ranking(rows: pd.DataFrame, significance: float = SIGNIFICANCE) -> pd.DataFrame:
    """Every label's place in every task, best first, with the letters of its groups.

    Labels that share a letter are not separable with these seeds. Of the pairs that share none, 5 % at most are
    expected not to differ.

    Args:
        rows: of any number of tasks and metrics, at the lengths that are to count (`_stats.beyond`).
        significance: share of false ones allowed among the differences claimed.

    Returns:
        ``task``, ``metric``, ``rank`` (1 is best, ties share the mean; NaN where there is no score), ``rank_low``,
        ``rank_high`` (one more than there are labels told apart as better; all less those told apart as worse),
        ``label``, ``mean``, ``low``, ``high``, ``half_width`` (95 % t interval; NaN below two seeds), ``score`` (mean,
        normalised by chance), ``seeds``, ``lengths``, ``group`` (letters, ``a`` the best label's; blank where nothing
        could be tested), ``status`` (``ok``, or why there is no score). By task and metric, then rank, those without
        last.
    """
    parts = [_ranked(part, significance) for _, part in scores(rows).groupby(["task", "metric"])]
    columns = ["task", "metric", "rank", "rank_low", "rank_high", "label", "mean", "low", "high", "half_width"]
    columns += ["score", "seeds", "lengths", "group", "status"]
    return (pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns))[columns]


def _places(table: pd.DataFrame) -> pd.DataFrame:
    """Labels of one task and metric that have a score, best first: rank, mean, interval, seeds."""
    ascending = metric_of(str(table["metric"].iloc[0])).higher_is_better is False
    valued = table.dropna(subset="value").groupby("label")
    found = pd.DataFrame({"mean": valued["value"].mean(), "seeds": valued["value"].count()})
    found["deviation"] = valued["value"].std()
    found["score"], found["lengths"] = valued["score"].mean(), valued["lengths"].max()
    # Means that differ by the arithmetic's rounding alone are a tie.
    found["rank"] = found["mean"].round(12).rank(ascending=ascending, method="average")
    critical = stdtrit(found["seeds"] - 1.0, (1 + CONFIDENCE) / 2)
    found["half_width"] = (critical * found["deviation"] / np.sqrt(found["seeds"])).where(found["seeds"] > 1)
    found["low"], found["high"] = found["mean"] - found["half_width"], found["mean"] + found["half_width"]
    return found.sort_values("rank", kind="stable")


def _pairs(table: pd.DataFrame, labels: list[str]) -> pd.DataFrame:
    """Every label against every other, paired by seed: all pairs of one task and metric.

    Args:
        table: of `scores`, one task and metric.
        labels: by rank, so that ``first`` is no worse than ``second``.

    Returns:
        ``first``, ``second``, ``pairs`` (seeds in common), ``difference`` (first - second, in the metric's unit),
        ``low``, ``high`` (95 % t interval of this pair alone), ``p`` (two-sided, as in `_stats.paired`), ``p_holm``,
        ``p_groups`` (Benjamini and Hochberg's; what letters go by). NaN below two seeds in common.
    """
    values = matrix(table, labels)
    one, other = np.triu_indices(len(labels), 1)
    found = pd.DataFrame(paired_columns(values[:, one] - values[:, other]))
    names = np.array(labels, dtype=object)
    found["first"], found["second"] = names[one], names[other]
    found["pairs"] = found["pairs"].astype(int)
    found["p_holm"], found["p_groups"] = holm(list(found["p"])), _false_discoveries(found["p"])
    return found[PAIRED]


def _ranked(table: pd.DataFrame, significance: float) -> pd.DataFrame:
    """`ranking` of one task and metric."""
    places = _places(table)
    compared = _pairs(table, list(places.index))
    tested = compared.dropna(subset="p")
    apart = tested[tested["p_groups"] < significance]
    with_a_test = {*tested["first"], *tested["second"]}
    known = [str(label) for label in places.index if label in with_a_test]
    places["group"] = pd.Series(letters(known, zip(apart["first"], apart["second"], strict=True)), dtype=object)
    # Of unequal seeds the mean may be on one side and the difference of the seeds in common on the other.
    higher = (apart["difference"] > 0) != (metric_of(str(table["metric"].iloc[0])).higher_is_better is False)
    beats = apart["first"].where(higher, apart["second"]).value_counts()
    beaten = apart["second"].where(higher, apart["first"]).value_counts()
    places["rank_low"] = 1.0 + beaten.reindex(places.index, fill_value=0)
    places["rank_high"] = float(len(places)) - beats.reindex(places.index, fill_value=0)
    places["status"] = "ok"
    without = table[~table["label"].isin(places.index)].groupby("label")["status"].min().to_frame()
    without = without.assign(seeds=0, lengths=0)
    found = pd.concat([places, without]) if len(without) else places
    found["group"] = found["group"].fillna("")
    return found.rename_axis("label").reset_index().assign(task=table["task"].iloc[0], metric=table["metric"].iloc[0])


def _false_discoveries(p: pd.Series[float]) -> pd.Series[float]:
    """Benjamini and Hochberg's correction. NaN was no test."""
    tested = p.dropna()
    adjusted = false_discovery_control(tested.clip(0, 1)) if len(tested) else tested
    return pd.Series(adjusted, index=tested.index, dtype=float).reindex(p.index)


def letters(labels: Sequence[str], apart: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Compact letter display (Piepho 2004): two labels share a letter exactly if they are not told apart.

    A letter is grown from the best pair that has none in common yet, by every label, in order, that is apart from
    none of its own; so it takes time polynomial in the number of labels, which inserting and absorbing does not, and
    few letters, if not always the fewest (Gramm et al. 2007, doi 10.1016/j.csda.2006.09.035).

    Args:
        labels: in the order of the ranking; the first has an ``a``.
        apart: pairs that are told apart.

    Returns:
        label -> its letters: ``a`` to ``z``, ``A`` to ``Z``, then numbers in brackets.
    """
    place = {label: number for number, label in enumerate(labels)}
    pairs = list(combinations(range(len(labels)), 2))
    together = np.ones((len(labels), len(labels)), dtype=bool)
    for better, worse in apart:
        one, other = place[better], place[worse]
        together[one, other] = together[other, one] = False
    shared = np.zeros((len(labels), len(labels)), dtype=bool)
    cliques: list[list[int]] = []
    for one, other in [(n, n) for n in range(len(labels))] + pairs:
        if shared[one, other] or not together[one, other]:
            continue
        clique = sorted({one, other})
        allowed = np.logical_and.reduce(together[clique])
        allowed[clique] = False
        # First what has most to share that is not shared yet, then the better placed.
        gain = (~shared[:, clique]).sum(axis=1)
        while allowed.any():
            chosen = int(np.where(allowed, gain, -1).argmax())
            clique.append(chosen)
            allowed &= together[chosen]
            allowed[chosen] = False
            gain += ~shared[:, chosen]
        shared[np.ix_(clique, clique)] = True
        cliques.append(sorted(clique))
    found = {str(label): "" for label in labels}
    for number, clique in enumerate(_needed(cliques, len(labels))):
        letter = ALPHABET[number] if number < len(ALPHABET) else f"({number + 1})"
        for member in clique:
            found[labels[member]] += letter
    return found


def _needed(cliques: list[list[int]], labels: int) -> list[list[int]]:
    """Those without which some two would share nothing: later ones may have made an earlier one superfluous."""
    shared = np.zeros((labels, labels), dtype=int)
    for clique in cliques:
        shared[np.ix_(clique, clique)] += 1
    kept = sorted(cliques)
    for clique in sorted(cliques, key=len):
        block = np.ix_(clique, clique)
        if (shared[block] > 1).all():
            shared[block] -= 1
            kept.remove(clique)
    return kept
