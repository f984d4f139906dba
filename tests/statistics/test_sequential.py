"""Seeds until it is decided: what is declared, what stops, false alarms, power, and an independent oracle."""

from __future__ import annotations

from typing import Any

import adastop
import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats
from simulation import NOISES, false_alarms, play, power
from support import only

from experiments.statistics.comparisons import against
from experiments.statistics.rule import Rule
from experiments.statistics.scores import UNLEARNED
from experiments.statistics.sequential import decide, family, wanted


def table_of(kept: dict[str, list[float]]) -> pd.DataFrame:
    lines = [
        {"task": "copy", "metric": "m", "series": series, "seed": seed, "kept": value, "noise": 0.0, "status": "ok"}
        for series, values in kept.items()
        for seed, value in enumerate(values)
    ]
    return pd.DataFrame(lines)


def draws(mean: float, seed: int, count: int = 20) -> list[float]:
    return list(np.random.default_rng(seed).normal(mean, 0.02, count))


@pytest.mark.parametrize(
    "given",
    [{"looks": (8, 5, 12, 20)}, {"weights": (0.5, 0.5)}, {"weights": (0.5,) * 4}, {"delta": -1.0}, {"looks": ()}],
)
def test_rules_that_mean_nothing_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(given))):
        Rule("none", **given)


def test_sequential_p_is_the_least_of_the_spent_ones() -> None:
    kept = {"none": draws(0.5, 0, 8), "rope": draws(0.52, 1, 8)}
    line = only(decide(table_of(kept), Rule("none")), series="rope")
    p = [
        scipy_stats.ttest_ind(kept["rope"][:n], kept["none"][:n], equal_var=False).pvalue / weight
        for n, weight in ((5, 0.25), (8, 0.20))
    ]
    assert line["p"] == pytest.approx(min(1, *p))
    assert line["seeds"] == 8


def test_paired_differences_are_those_of_the_seeds_of_both() -> None:
    """Seeds that lie far apart and agree: what no test of all runs tells apart, a declared paired one does."""
    kept = {"none": draws(0.5, 0, 5), "rope": []}
    kept["none"] = [value + 0.1 * seed for seed, value in enumerate(kept["none"])]
    kept["rope"] = [value + change for value, change in zip(kept["none"], draws(0.08, 1, 5), strict=True)]
    table = table_of(kept)
    assert only(decide(table, Rule("none")), series="rope")["verdict"] == "open"
    rule = Rule("none", paired=True)
    line, test = only(decide(table, rule), series="rope"), scipy_stats.ttest_rel(kept["rope"], kept["none"])
    ends = test.confidence_interval(1 - 0.05 * 0.25)
    assert line["verdict"] == "better"
    assert (line["p"], line["low"], line["high"]) == pytest.approx((test.pvalue / 0.25, ends.low, ends.high))
    table.loc[(table["series"] == "rope") & (table["seed"] == 2), ["kept", "status"]] = [np.nan, UNLEARNED]
    found = against(table, family(table, rule), "none")
    assert (found["seeds"].item(), found["baseline_seeds"].item()) == (4, 4)
    pairs = [1, 1, 0, 1, 1]
    differences = [one - other for one, other, both in zip(kept["rope"], kept["none"], pairs, strict=True) if both]
    assert found["difference"].item() == pytest.approx(np.mean(differences))


def test_clear_differences_stop_at_the_first_look() -> None:
    decided = decide(
        table_of({"none": draws(0.2, 0, 5), "rope": draws(0.9, 1, 5), "alibi": draws(0.2, 2, 5)}), Rule("none")
    )
    assert (only(decided, series="rope")["verdict"], only(decided, series="rope")["next_look"]) == ("better", 0)
    assert (only(decided, series="alibi")["verdict"], only(decided, series="alibi")["next_look"]) == ("open", 8)
    assert wanted(decided, Rule("none")) == {("copy", "rope"): 5, ("copy", "none"): 8, ("copy", "alibi"): 8}


def test_a_look_counts_when_all_of_its_seeds_have_ended() -> None:
    table = table_of({"none": draws(0.2, 0, 8), "rope": draws(0.9, 1, 8)})
    line = only(decide(table[(table["series"] == "none") | (table["seed"] != 4)], Rule("none")), series="rope")
    assert (line["seeds"], line["verdict"], line["next_look"]) == (0, "open", 5)


def test_a_task_without_the_baseline_yet_leaves_whole_numbers_of_seeds() -> None:
    """As where a sweep of a second task was interrupted: what is wanted of the first counts runs."""
    both = table_of({"none": draws(0.2, 0, 5), "rope": draws(0.2, 1, 5)})
    later = table_of({"rope": draws(0.5, 2, 5)}).assign(task="reverse")
    decided = decide(pd.concat([both, later]), Rule("none"))
    assert {type(seeds) for seeds in wanted(decided, Rule("none")).values()} <= {int, np.int64}
    assert decided["seeds"].dtype.kind == "i"


def test_a_series_that_did_not_learn_has_no_verdict_but_that() -> None:
    table = table_of({"none": draws(0.2, 0, 5), "mine": draws(0.9, 1, 5)})
    unlearned = table["series"] == "none"
    table = table.assign(
        kept=table["kept"].where(~unlearned, np.nan), status=table["status"].where(~unlearned, UNLEARNED)
    )
    found = family(table, Rule("mine"))
    assert only(against(table, found, "mine"), series="none")["verdict"] == UNLEARNED
    assert only(against(table, found, "none"), series="mine")["verdict"] == f"none: {UNLEARNED}"


def test_equal_within_delta_ends_a_tie() -> None:
    kept = {"none": draws(0.5, 0), "rope": draws(0.5, 1)}
    assert only(decide(table_of(kept), Rule("none", delta=0.05)), series="rope")["verdict"] == "equal"
    assert only(decide(table_of(kept), Rule("none")), series="rope")["verdict"] == "undecided"


def test_what_ended_as_equal_stays_so_when_more_seeds_come() -> None:
    """Seeds that another question asked for: the last look, alone, would call it undecided."""
    kept = {"none": draws(0.5, 0, 5) + [0.9, 0.1] * 4, "rope": draws(0.5, 1, 5) + [0.1, 0.9] * 4}
    few = only(decide(table_of({name: values[:5] for name, values in kept.items()}), Rule("none", delta=0.1)))
    many = only(decide(table_of(kept), Rule("none", delta=0.1)))
    assert few["verdict"] == "equal"
    assert {**many, "seeds_learned": 5} == few
    last = Rule("none", looks=(12,), weights=(0.25,), delta=0.1)
    assert only(decide(table_of(kept), last))["verdict"] == "undecided"


def test_a_series_that_never_learned_gets_no_more_seeds() -> None:
    table = table_of({"none": draws(0.2, 0, 5), "rope": draws(0.9, 1, 5)})
    table.loc[table["series"] == "rope", ["kept", "status"]] = [np.nan, "did not learn"]
    line = only(decide(table, Rule("none")), series="rope")
    assert (line["verdict"], line["next_look"]) == ("did not learn", 0)


def test_best_keeps_what_none_beats() -> None:
    kept = {
        name: draws(mean, n, 5) for n, (name, mean) in enumerate({"a": 0.9, "b": 0.895, "c": 0.5, "d": 0.2}.items())
    }
    decided = decide(table_of(kept), Rule("best")).set_index("series")["verdict"]
    assert dict(decided) == {"a": "open", "b": "open", "c": "worse", "d": "worse"}
    del kept["b"]
    assert only(decide(table_of(kept), Rule("best")), series="a")["verdict"] == "better"


def test_that_a_series_is_not_the_best_decides_no_pair() -> None:
    """Of all pairs together no error is bounded: only that none of those beaten is the best."""
    kept = {name: draws(mean, n, 5) for n, (name, mean) in enumerate({"a": 0.9, "b": 0.5, "c": 0.2}.items())}
    assert not family(table_of(kept), Rule("best")).wins.any()


def test_later_seeds_of_one_series_change_no_earlier_verdict() -> None:
    kept = {"none": draws(0.2, 0, 20), "rope": draws(0.3, 1, 5)}
    few = only(decide(table_of({"none": kept["none"][:5], "rope": kept["rope"]}), Rule("none")), series="rope")
    many = only(decide(table_of(kept), Rule("none")), series="rope")
    assert few == many


@pytest.mark.parametrize("noise", NOISES)
def test_false_alarms_stay_below_five_in_a_hundred(noise: str) -> None:
    repeats = 30
    assert false_alarms(noise, 6, repeats) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / repeats)


def test_differences_of_the_usual_size_are_decided() -> None:
    means, deviations = np.linspace(0.2, 0.9, 12), np.full(12, 0.03)
    found = power(means, deviations, Rule("s5"), repeats=20)
    assert found["decided"] > 0.9
    assert found["wrong"] <= 0.1
    assert found["runs"] < 12 * 12


def test_the_best_is_kept() -> None:
    random = np.random.default_rng(0)
    means = np.array([0.8, 0.78, 0.6, 0.5, 0.3])
    lost = 0
    for _ in range(30):
        decided, _ = play(random.normal(means[:, None], 0.03, (5, 20)), Rule("best"))
        lost += only(decided, series="s0")["verdict"] == "worse"
    assert lost <= 3


def test_adastop_agrees_in_direction() -> None:
    """Group-sequential permutation tests (Mathieu et al. 2023, arXiv 2306.10882) on the same values."""
    kept = {"none": draws(0.5, 0), "rope": draws(0.6, 1), "alibi": draws(0.4, 2), "t5": draws(0.5, 3)}
    pairs = np.array([[0, 1], [0, 2], [0, 3]])
    comparator = adastop.MultipleAgentsComparator(n=5, K=4, B=2000, comparisons=pairs, seed=0)
    names = list(kept)
    for look in range(4):
        comparator.partial_compare({name: np.array(kept[name][: 5 * look + 5]) for name in names}, verbose=False)
        if comparator.is_finished:
            break
    theirs = {names[pair[1]]: comparator.decisions[str(pair)] for pair in pairs}
    ours = decide(table_of(kept), Rule("none")).set_index("series")["verdict"]
    assert dict(ours) == {"rope": "better", "alibi": "worse", "t5": "undecided"}
    assert theirs == {"rope": "smaller", "alibi": "larger", "t5": "equal"}
