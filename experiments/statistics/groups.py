"""All series of a task against one another, and the letters of those that are not separable.

Differences between two series are the paired t tests of all pairs, each with its own deviation, since one encoder's
seeds may differ by .001 where another's differ by .2. Of the differences that letters show, at most 5 % are expected to
be false (Benjamini and Hochberg 1995), as in Williams, Jones and Tukey 1999 (doi 10.3102/10769986024001042); with 39
series and three seeds, Holm's correction finds 3 of 100 true differences of the usual size. ``p_holm`` has it.
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
    """Rank the series of every task, best first, with the letters of their groups.

    Series that share a letter are not separable with these seeds.

    Args:
        rows: of any number of tasks and metrics, at the lengths that count.
        significance: share of false differences allowed among those shown.

    Returns:
        ``task``, ``metric``, ``rank`` (1 is best, ties share the mean), ``rank_low``, ``rank_high`` (places that the
        differences leave open), ``series``, ``mean``, ``low``, ``high``, ``half_width`` (95 % t interval), ``score``
        (mean, normalised by chance), ``seeds``, ``lengths``, ``group`` (letters; blank where nothing was tested),
        ``status`` (``ok``, or why there is no score). By task and metric, then rank.
    """
    parts = [_ranked(part, significance) for _, part in scores(rows).groupby(["task", "metric"])]
    columns = ["task", "metric", "rank", "rank_low", "rank_high", "series", "mean", "low", "high", "half_width"]
    columns += ["score", "seeds", "lengths", "group", "status"]
    return (pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns))[columns]


def _places(table: pd.DataFrame) -> pd.DataFrame:
    """Return the series of one task and metric that have a score, best first, with mean and interval."""
    ascending = metric_of(str(table["metric"].iloc[0])).higher_is_better is False
    valued = table.dropna(subset="value").groupby("series")
    found = pd.DataFrame({"mean": valued["value"].mean(), "seeds": valued["value"].count()})
    found["deviation"] = valued["value"].std()
    found["score"], found["lengths"] = valued["score"].mean(), valued["lengths"].max()
    # Means that differ by rounding alone tie.
    found["rank"] = found["mean"].round(12).rank(ascending=ascending, method="average")
    critical = stdtrit(found["seeds"] - 1.0, (1 + CONFIDENCE) / 2)
    found["half_width"] = (critical * found["deviation"] / np.sqrt(found["seeds"])).where(found["seeds"] > 1)
    found["low"], found["high"] = found["mean"] - found["half_width"], found["mean"] + found["half_width"]
    return found.sort_values("rank", kind="stable")


def _pairs(table: pd.DataFrame, series_names: list[str]) -> pd.DataFrame:
    """Compare all pairs of series of one task and metric, paired by seed.

    Args:
        table: of `scores`.
        series_names: by rank, so that ``first`` is no worse than ``second``.

    Returns:
        The columns `PAIRED`; ``p_groups`` is Benjamini and Hochberg's. NaN below two common seeds.
    """
    values = matrix(table, series_names)
    one, other = np.triu_indices(len(series_names), 1)
    found = pd.DataFrame(paired_columns(values[:, one] - values[:, other]))
    names = np.array(series_names, dtype=object)
    found["first"], found["second"] = names[one], names[other]
    found["pairs"] = found["pairs"].astype(int)
    found["p_holm"], found["p_groups"] = holm(list(found["p"])), _false_discoveries(found["p"])
    return found[PAIRED]


def _ranked(table: pd.DataFrame, significance: float) -> pd.DataFrame:
    """Rank the series of one task and metric."""
    places = _places(table)
    compared = _pairs(table, list(places.index))
    tested = compared.dropna(subset="p")
    apart = tested[tested["p_groups"] < significance]
    with_a_test = {*tested["first"], *tested["second"]}
    known = [str(series) for series in places.index if series in with_a_test]
    places["group"] = pd.Series(letters(known, zip(apart["first"], apart["second"], strict=True)), dtype=object)
    # With unequal seeds, the means may differ one way and the common seeds the other.
    higher = (apart["difference"] > 0) != (metric_of(str(table["metric"].iloc[0])).higher_is_better is False)
    beats = apart["first"].where(higher, apart["second"]).value_counts()
    beaten = apart["second"].where(higher, apart["first"]).value_counts()
    places["rank_low"] = 1.0 + beaten.reindex(places.index, fill_value=0)
    places["rank_high"] = float(len(places)) - beats.reindex(places.index, fill_value=0)
    places["status"] = "ok"
    without = table[~table["series"].isin(places.index)].groupby("series")["status"].min().to_frame()
    without = without.assign(seeds=0, lengths=0)
    found = pd.concat([places, without]) if len(without) else places
    found["group"] = found["group"].fillna("")
    return found.rename_axis("series").reset_index().assign(task=table["task"].iloc[0], metric=table["metric"].iloc[0])


def _false_discoveries(p: pd.Series[float]) -> pd.Series[float]:
    """Return p values after Benjamini and Hochberg's correction; NaN was no test."""
    tested = p.dropna()
    adjusted = false_discovery_control(tested.clip(0, 1)) if len(tested) else tested
    return pd.Series(adjusted, index=tested.index, dtype=float).reindex(p.index)


def letters(series_names: Sequence[str], apart: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return a compact letter display (Piepho 2004): two series share a letter exactly if they are not apart.

    A letter grows greedily from the best pair that shares none yet, in polynomial time.

    Args:
        series_names: in the order of the ranking.
        apart: pairs that differ.

    Returns:
        series -> its letters: ``a`` to ``z``, ``A`` to ``Z``, then numbers in brackets.
    """
    place = {series: number for number, series in enumerate(series_names)}
    pairs = list(combinations(range(len(series_names)), 2))
    together = np.ones((len(series_names), len(series_names)), dtype=bool)
    for better, worse in apart:
        one, other = place[better], place[worse]
        together[one, other] = together[other, one] = False
    shared = np.zeros((len(series_names), len(series_names)), dtype=bool)
    cliques: list[list[int]] = []
    for one, other in [(n, n) for n in range(len(series_names))] + pairs:
        if shared[one, other] or not together[one, other]:
            continue
        clique = sorted({one, other})
        allowed = np.logical_and.reduce(together[clique])
        allowed[clique] = False
        # Prefer the series with the most pairs left to cover, then the better placed.
        gain = (~shared[:, clique]).sum(axis=1)
        while allowed.any():
            chosen = int(np.where(allowed, gain, -1).argmax())
            clique.append(chosen)
            allowed &= together[chosen]
            allowed[chosen] = False
            gain += ~shared[:, chosen]
        shared[np.ix_(clique, clique)] = True
        cliques.append(sorted(clique))
    found = {str(series): "" for series in series_names}
    for number, clique in enumerate(_needed(cliques, len(series_names))):
        letter = ALPHABET[number] if number < len(ALPHABET) else f"({number + 1})"
        for member in clique:
            found[series_names[member]] += letter
    return found


def _needed(cliques: list[list[int]], count: int) -> list[list[int]]:
    """Drop letters whose pairs all share another letter."""
    shared = np.zeros((count, count), dtype=int)
    for clique in cliques:
        shared[np.ix_(clique, clique)] += 1
    kept = sorted(cliques)
    for clique in sorted(cliques, key=len):
        block = np.ix_(clique, clique)
        if (shared[block] > 1).all():
            shared[block] -= 1
            kept.remove(clique)
    return kept
