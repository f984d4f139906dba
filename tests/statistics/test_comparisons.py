"""Comparisons on a task: scipy's test, one verdict, unchanged by other tasks; places and wins over tasks."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats
from support import only

from experiments.statistics.comparisons import (
    against,
    by_seed,
    effect,
    family,
    holm,
    improvement,
    over_tasks,
    standings,
)


def scored(kept: dict[str, list[float]], task: str = "copy", noise: float = 0.0) -> pd.DataFrame:
    """Scores of runs that keep these, one for each seed; NaN did not learn."""
    lines = [
        {"task": task, "metric": "token_accuracy", "series": series, "seed": seed, "kept": value, "noise": noise}
        | {"status": "did not learn" if math.isnan(value) else "ok", "in_range": 0.99, "up_to": 8}
        | {"kept_2": value, "kept_4": value, "kept_8": value, "reach": 2.0, "worst": -0.1, "best": 1.0}
        for series, values in kept.items()
        for seed, value in enumerate(values)
    ]
    return pd.DataFrame(lines)


def versus(table: pd.DataFrame, baseline: str) -> pd.DataFrame:
    parts = [against(part, family(part, baseline), baseline) for _, part in table.groupby("task")]
    return pd.concat(parts, ignore_index=True)


def standing(table: pd.DataFrame, baseline: str | None = None) -> pd.DataFrame:
    return standings(table, family(table, baseline))


FIVE = {
    "none": [0.20, 0.22, 0.19, 0.21, 0.20],
    "rope": [0.30, 0.33, 0.35, 0.31, 0.34],
    "alibi": [0.90, 0.88, 0.91, 0.93, 0.90],
    "learned": [0.21, 0.19, 0.20, 0.22, 0.20],
}


def test_comparison_is_scipys_welch_test() -> None:
    line = only(versus(scored(FIVE), "none"), series="rope")
    test = scipy_stats.ttest_ind(FIVE["rope"], FIVE["none"], equal_var=False)
    interval = test.confidence_interval(0.95)
    assert line["p"] == pytest.approx(test.pvalue)
    assert (line["low"], line["high"]) == pytest.approx((interval.low, interval.high))
    assert line["verdict"] == "better"


def test_seeds_are_not_paired_and_all_count() -> None:
    more = FIVE | {"none": [*FIVE["none"], 0.25, 0.15]}
    line = only(versus(scored(more), "none"), series="rope")
    assert (line["seeds"], line["baseline_seeds"]) == (5, 7)
    assert line["p"] == pytest.approx(scipy_stats.ttest_ind(more["rope"], more["none"], equal_var=False).pvalue)


def test_by_seed_two_series_are_compared_as_scipy_does() -> None:
    ours, theirs = [0.30, 0.33, math.nan, 0.35, 0.31, 0.34], [0.20, 0.24, 0.19, 0.24, math.nan, 0.25]
    one, other = (np.array([values[seed] for seed in (0, 1, 3, 5)]) for values in (ours, theirs))
    agree, test = by_seed(scored({"a": ours, "b": theirs}), "a", "b", 0.015)
    assert agree == pytest.approx(scipy_stats.pearsonr(one, other).statistic)
    known = scipy_stats.ttest_rel(one, other)
    interval = known.confidence_interval(0.985)
    expected = [(one - other).mean(), interval.low, interval.high, known.pvalue]
    assert [float(number[0]) for number in test[:4]] == pytest.approx(expected)
    assert math.isnan(by_seed(scored({"a": ours[:3], "b": theirs[:3]}), "a", "b", 0.05)[0])


def test_another_task_changes_no_verdict() -> None:
    alone = versus(scored(FIVE), "none")
    both = versus(pd.concat([scored(FIVE), scored(FIVE, "reverse")]), "none")
    pd.testing.assert_frame_equal(both[both["task"] == "copy"].reset_index(drop=True), alone)


def test_comparisons_with_the_baseline_share_half_of_the_level() -> None:
    kept = {"a": [0.2, 0.3, 0.25], "b": [0.3, 0.4, 0.36], "c": [0.28, 0.35, 0.3], "d": [0.25, 0.33, 0.3]}
    found = family(scored(kept | {"e": [0.5, 0.6, 0.4]}), "a")
    one, other = np.triu_indices(5, 1)
    expected = holm(found.p[one, other], np.where(one == 0, 1 / 4, 1 / 6))
    assert found.p_holm[one, other] == pytest.approx(expected)


def test_verdicts_and_places_never_disagree() -> None:
    random = np.random.default_rng(1)
    for _ in range(20):
        kept = {f"s{n}": list(random.normal(random.choice([0.3, 0.4, 0.5]), 0.04, 4)) for n in range(6)}
        verdicts = versus(scored(kept), "s0").set_index("series")["verdict"]
        places = standing(scored(kept), "s0").set_index("series")
        for series, verdict in verdicts.items():
            if verdict == "better":
                assert places.loc[series, "place_high"] < places.loc["s0", "place_high"]
                assert places.loc["s0", "place_low"] > places.loc[series, "place_low"]


def test_what_follows_from_two_verdicts_is_decided() -> None:
    kept = {"a": [0.9, 0.9, 0.901], "b": [0.5, 0.501, 0.5], "c": [0.1, 0.101, 0.1]}
    found = family(scored(kept))
    assert found.wins[0].tolist() == [False, True, True]
    assert found.p_holm[0, 2] <= max(found.p_holm[0, 1], found.p_holm[1, 2])


def test_weighted_holm_worked_by_hand() -> None:
    assert holm([0.01, 0.02, 0.04], [2, 1, 1]) == pytest.approx([0.02, 0.04, 0.04])
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


def test_small_differences_are_undecided() -> None:
    assert only(versus(scored(FIVE), "none"), series="learned")["verdict"] == "undecided"


def test_evaluation_noise_is_a_floor() -> None:
    exact = {"none": [0.5] * 5, "rope": [0.501] * 5}
    assert only(versus(scored(exact), "none"), series="rope")["verdict"] == "better"
    assert only(versus(scored(exact, noise=1e-4), "none"), series="rope")["verdict"] == "undecided"


@pytest.mark.parametrize(
    ("rope", "verdict"),
    [([0.5, 0.6], "fewer than 3 seeds"), ([math.nan] * 5, "did not learn")],
)
def test_no_comparison_says_why(rope: list[float], verdict: str) -> None:
    line = only(versus(scored(FIVE | {"rope": rope}), "none"), series="rope")
    assert line["verdict"] == verdict
    assert math.isnan(line["p"])


def test_a_baseline_without_a_score_says_so() -> None:
    verdict = only(versus(scored(FIVE | {"none": [math.nan] * 5}), "none"), series="rope")["verdict"]
    assert verdict == "none: did not learn"


def test_places_are_those_that_decided_pairs_leave_open() -> None:
    table = standing(scored(FIVE)).set_index("series")
    assert tuple(table.loc["alibi", ["place_low", "place_high"]]) == (1, 1)
    assert tuple(table.loc["rope", ["place_low", "place_high"]]) == (2, 2)
    assert tuple(table.loc["none", ["place_low", "place_high"]]) == (3, 4)


def test_series_that_did_not_learn_are_listed_without_a_place() -> None:
    line = only(standing(scored(FIVE | {"t5": [math.nan] * 4 + [0.5]})), series="t5")
    assert (line["seeds_learned"], line["seeds"]) == (1, 5)
    line = only(standing(scored(FIVE | {"t5": [math.nan] * 5})), series="t5")
    assert (line["seeds_learned"], line["status"]) == (0, "did not learn")
    assert math.isnan(line["place_low"])


def test_true_places_are_in_their_ranges() -> None:
    random = np.random.default_rng(0)
    truth = np.array([0.9, 0.8, 0.8, 0.5, 0.45, 0.2])
    missed = 0
    for _ in range(100):
        kept = {f"s{n}": list(random.normal(mean, 0.03, 5)) for n, mean in enumerate(truth)}
        table = standing(scored(kept)).set_index("series")
        for number, mean in enumerate(truth):
            best, worst = 1 + (truth > mean).sum(), len(truth) - (truth < mean).sum()
            line = table.loc[f"s{number}"]
            if line["place_low"] > worst or line["place_high"] < best:
                missed += 1
                break
    assert missed <= 0.05 * 100 + 3 * math.sqrt(100 * 0.05 * 0.95)


def test_a_win_counts_where_its_pair_is_compared() -> None:
    """One may follow from two others, on a task where the pair itself has no difference."""
    whole = family(scored(FIVE, "copy"), "none")
    lacking = whole.difference.copy()
    one, other = np.argwhere(whole.wins)[0]
    lacking[[one, other], [other, one]] = np.nan
    table = over_tasks([whole, whole._replace(difference=lacking)]).set_index(["first", "second"])
    pair = table.loc[(whole.names[one], whole.names[other])]
    assert (pair["tasks"], pair["wins"], pair["losses"]) == (1, 1, 0)


def test_wins_are_counted_over_tasks() -> None:
    table = over_tasks([family(scored(FIVE, task), "none") for task in ("copy", "reverse", "sort")])
    line = only(table, first="alibi", second="none")
    assert (line["tasks"], line["wins"], line["losses"]) == (3, 3, 0)
    assert line["difference"] == pytest.approx(0.70)
    assert only(table, first="none", second="learned")["wins"] == 0


def test_effect_is_hedges_and_improvement_is_mann_whitneys() -> None:
    ours, theirs = np.array([0.3, 0.5, 0.4]), np.array([0.1, 0.3, 0.2])
    pooled = math.sqrt((ours.var(ddof=1) + theirs.var(ddof=1)) / 2)
    assert effect(ours, theirs) == pytest.approx(0.2 / pooled * 0.7979, abs=1e-3)
    statistic = scipy_stats.mannwhitneyu(ours, theirs).statistic
    assert improvement(ours, theirs) == pytest.approx(statistic / 9)
    assert effect(np.ones(3), np.zeros(3)) == math.inf
