"""The methods themselves, tried on made-up results whose truth is known: coverage, false alarms, power.

Seeds are fixed and every bound is four standard errors of the binomial count, so a method that keeps its promise
passes and one that is off by more than the simulation's own noise does not.
"""

from __future__ import annotations

import gc
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats

from experiments.statistics import bootstrap
from experiments.statistics.groups import _false_discoveries
from experiments.statistics.intervals import holm, paired_columns
from experiments.statistics.power import effect, improvement, power, seeds_wanted
from experiments.statistics.ranks import friedman

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

UNEQUAL = np.array([0.029, 0.031, 0.033, 0.177, 0.002, 0.022, 0.095, 0.01])
"""Deviations over seeds as they are met: of one encoder a hundred times those of another."""
EQUAL = np.array([0.05])


@pytest.fixture(autouse=True)
def _no_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    """statsmodels collects garbage at each correction, which takes a hundred times as long as the correction."""
    monkeypatch.setattr(gc, "collect", lambda *_: 0)


def source(*key: int) -> np.random.Generator:
    return np.random.default_rng(key)


def error(share: float, count: int) -> float:
    """Four standard errors of a share in so many trials."""
    return 4 * math.sqrt(share * (1 - share) / count)


def covers(low: Array, high: Array, truth: float) -> float:
    return float(np.mean((low <= truth) & (truth <= high)))


# ---- one series, and one pair -----------------------------------------------------------------------


def at_ceiling(source: np.random.Generator, shape: tuple[int, ...], share: float) -> Array:
    """1 in a share of the seeds, else about 0.6: a task that most seeds solve. Mean: 0.6 + 0.4 · share."""
    return np.where(source.random(shape) < share, 1.0, source.normal(0.6, 0.05, shape))


@pytest.mark.parametrize("seeds", [2, 3, 5, 10])
def test_intervals_cover_and_tests_alarm_as_often_as_they_say(seeds: int) -> None:
    count = 20_000
    found = paired_columns(source(1, seeds).normal(0, 0.1, (seeds, count)))
    assert covers(found["low"], found["high"], 0) == pytest.approx(0.95, abs=error(0.95, count))
    assert np.mean(found["p"] < 0.05) == pytest.approx(0.05, abs=error(0.05, count))


def test_percentiles_of_three_seeds_would_be_too_narrow() -> None:
    count = 2000
    values = source(2).normal(0, 0.1, (count, 3))
    drawn = values[:, source(3).integers(3, size=(1000, 3))].mean(axis=2)
    low, high = np.quantile(drawn, [0.025, 0.975], axis=1)
    assert covers(low, high, 0) == pytest.approx(0.75, abs=error(0.75, count))


@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize("share", [0.5, 0.8, 0.95])
def test_false_alarms_keep_the_level_when_most_seeds_solve(seeds: int, share: float) -> None:
    count = 20_000
    ours, theirs = (at_ceiling(source(4, seeds, part), (seeds, count), share) for part in (0, 1))
    assert np.mean(paired_columns(ours - theirs)["p"] < 0.05) <= 0.05 + error(0.05, count)


def test_three_seeds_do_not_cover_a_rare_failure() -> None:
    # All three solve it in 51 % of the cases, and then there is no spread to see.
    count = 20_000
    found = paired_columns(at_ceiling(source(5), (3, count), 0.8))
    assert covers(found["low"], found["high"], 0.92) <= 1 - 0.8**3 + error(0.5, count)


@pytest.mark.parametrize(("standardised", "seeds", "level"), [(1.0, 5, 0.05), (2.0, 3, 0.05), (2.0, 5, 0.005)])
def test_power_is_the_share_that_is_found(standardised: float, seeds: int, level: float) -> None:
    count = 20_000
    found = np.mean(paired_columns(source(6, seeds).normal(standardised, 1, (seeds, count)))["p"] < level)
    expected = power(standardised, seeds, level)
    assert 0.1 < expected < 0.9
    assert found == pytest.approx(expected, abs=error(expected, count))


@pytest.mark.parametrize(("seeds", "at_least"), [(3, 0.65), (5, 0.75), (10, 0.88)])
def test_more_seeds_are_right_to_the_order_of_magnitude(seeds: int, at_least: float) -> None:
    count = 1000
    wanted = next(number for number in range(2, 100) if power(1.0, number, 0.05) >= 0.8)
    assert wanted == 10
    pilots = source(7, seeds).normal(1, 1, (count, seeds))
    said = np.array([seeds_wanted(float(pilot.mean()), float(pilot.std(ddof=1)), seeds, 0.05) for pilot in pilots])
    assert np.mean((said >= wanted / 3.2) & (said <= 3.2 * wanted)) >= at_least
    for off in (said < wanted, said > wanted):  # too few as often as too many
        assert 0.38 < np.mean(off) < 0.58


def test_effect_and_improvement_are_right_on_average() -> None:
    count, seeds = 4000, 4
    ours, theirs = source(8).normal(0.8, 1, (count, seeds)), source(9).normal(0, 1, (count, seeds))
    for measure, truth in ((effect, 0.8), (improvement, scipy_stats.norm.cdf(0.8 / math.sqrt(2)))):
        found = np.array([measure(one, other) for one, other in zip(ours, theirs, strict=True)])
        assert found.mean() == pytest.approx(truth, abs=4 * found.std() / math.sqrt(count))


# ---- many series -----------------------------------------------------------------------------------


def made(seeds: int, means: Array, deviations: Array, count: int) -> Array:
    """Results, ``count`` times seeds times series; a seed is easier or harder for all series alike."""
    draw = source(10, seeds, len(means))
    common = draw.normal(0, 0.05, (count, seeds, 1))
    return means + common + np.resize(deviations, len(means)) * draw.normal(size=(count, seeds, len(means)))


def four_levels(labels: int) -> Array:
    return np.repeat([0.3, 0.45, 0.6, 0.9], -(-labels // 4))[:labels]


def told_apart(seeds: int, means: Array, deviations: Array, count: int) -> dict[str, dict[str, float]]:
    """Of each method for all pairs: tables with a mistake, expected share of false ones, share of true ones found."""
    values = made(seeds, means, deviations, count)
    one, other = np.triu_indices(len(means), 1)
    differences = (values[:, :, one] - values[:, :, other]).transpose(1, 0, 2).reshape(seeds, -1)
    p = paired_columns(differences)["p"].reshape(count, -1)
    rejected = {
        "holm": np.array([holm(list(line)) for line in p]) < 0.05,
        "groups": np.array([_false_discoveries(pd.Series(line)) for line in p]) < 0.05,
        "pooled": pooled(values, one, other),
    }
    equal = np.isclose(means[one], means[other])
    return {
        name: {
            "mistaken": float((found & equal).any(axis=1).mean()),
            "false": float(((found & equal).sum(axis=1) / np.maximum(1, found.sum(axis=1))).mean()),
            "power": float(found[:, ~equal].mean()) if not equal.all() else math.nan,
        }
        for name, found in rejected.items()
    }


def pooled(values: Array, one: Array, other: Array) -> Array:
    """Tukey's range test in blocks of seeds, with one deviation for all series: what groups do not go by."""
    seeds, labels = values.shape[1:]
    rest = values - values.mean(axis=1, keepdims=True) - values.mean(axis=2, keepdims=True)
    rest = rest + values.mean(axis=(1, 2), keepdims=True)
    degrees = (seeds - 1) * (labels - 1)
    deviation = np.sqrt((rest**2).sum(axis=(1, 2)) / degrees / seeds)
    means = values.mean(axis=1)
    critical = scipy_stats.studentized_range.ppf(0.95, labels, degrees)
    return np.abs(means[:, one] - means[:, other]) > critical * deviation[:, None]


@pytest.mark.parametrize("labels", [3, 11, 39])
@pytest.mark.parametrize("seeds", [3, 5])
def test_comparisons_with_a_baseline_keep_the_family_level(seeds: int, labels: int) -> None:
    count = 1000
    values = made(seeds, np.full(labels, 0.5), UNEQUAL, count)
    differences = (values[:, :, 1:] - values[:, :, :1]).transpose(1, 0, 2).reshape(seeds, -1)
    p = paired_columns(differences)["p"].reshape(count, -1)
    assert np.mean([min(holm(list(line))) < 0.05 for line in p]) <= 0.05 + error(0.05, count)


@pytest.mark.parametrize("deviations", [EQUAL, UNEQUAL])
@pytest.mark.parametrize("labels", [6, 20])
def test_groups_tell_no_equals_apart(labels: int, deviations: Array) -> None:
    count = 600
    found = told_apart(3, np.full(labels, 0.5), deviations, count)
    for method in ("groups", "holm"):
        assert found[method]["mistaken"] <= 0.05 + error(0.05, count)


@pytest.mark.parametrize("seeds", [3, 5])
def test_groups_keep_their_false_share_and_find_more_than_holm(seeds: int) -> None:
    count = 300
    found = told_apart(seeds, four_levels(20), UNEQUAL, count)
    assert found["groups"]["false"] <= 0.05 + error(0.05, count)
    assert found["holm"]["mistaken"] <= 0.05 + error(0.05, count)
    assert found["groups"]["power"] > found["holm"]["power"] + 0.3


def test_a_pooled_deviation_would_raise_false_alarms() -> None:
    assert told_apart(3, np.full(20, 0.5), EQUAL, 300)["pooled"]["mistaken"] <= 0.05 + error(0.05, 300)
    assert told_apart(3, np.full(20, 0.5), UNEQUAL, 300)["pooled"]["mistaken"] > 0.3


# ---- many tasks ------------------------------------------------------------------------------------


def over_seeds(tasks: int, seeds: int, deviations: Array, count: int) -> tuple[float, float]:
    """Coverage of the interval over seeds, and of the percentiles of the plain stratified bootstrap."""
    draw = source(11, tasks, seeds)
    shape = (20_000, tasks, seeds)
    means, spread = np.linspace(0.05, 0.95, tasks)[:, None], np.resize(deviations, tasks)[:, None]
    values = means + spread * draw.normal(size=shape)
    truth = float(bootstrap.interquartile_mean(values.reshape(len(values), -1)).mean())
    names = [f"task {number}" for number in range(tasks)]
    found = [
        bootstrap.over_seeds(dict(zip(names, runs, strict=True)), dict.fromkeys(names, np.arange(float(seeds))))
        for runs in values[:count]
    ]
    low, high = np.array(found).T
    plain = [
        np.concatenate([of_task[draw.integers(seeds, size=(500, seeds))] for of_task in runs], axis=1)
        for runs in values[:count]
    ]
    ends = np.array([np.quantile(bootstrap.interquartile_mean(drawn), [0.025, 0.975]) for drawn in plain]).T
    return covers(low, high, truth), covers(ends[0], ends[1], truth)


@pytest.mark.parametrize("deviations", [EQUAL, UNEQUAL])
@pytest.mark.parametrize(("tasks", "seeds"), [(1, 3), (5, 3), (10, 2), (10, 3), (10, 5)])
def test_intervals_over_seeds_of_many_tasks_cover(tasks: int, seeds: int, deviations: Array) -> None:
    count = 200
    ours, plain = over_seeds(tasks, seeds, deviations, count)
    assert ours >= 0.95 - error(0.95, count)
    assert ours > plain
    if seeds < 5:
        assert plain < 0.95 - 0.04


def over_tasks(tasks: int, count: int) -> float:
    """Coverage of the interval over tasks: of the interquartile mean of all tasks that there could be."""
    draw = source(12, tasks)

    def of_tasks(*shape: int) -> Array:
        return draw.beta(1.2, 1.2, (*shape[:-1], 1)) + 0.05 * draw.normal(size=shape)

    truth = float(scipy_stats.trim_mean(of_tasks(400_000, 1), 0.25)[0])
    found = [
        bootstrap.over_tasks({str(number): runs for number, runs in enumerate(values)})
        for values in of_tasks(count, tasks, 3)
    ]
    low, high = np.array(found).T
    return covers(low, high, truth)


@pytest.mark.parametrize("tasks", [5, 10, 20])
def test_intervals_over_tasks_nearly_cover(tasks: int) -> None:
    # Percentiles of so few tasks are a little too narrow: 92 to 94 %.
    count = 200
    assert over_tasks(tasks, count) >= 0.92 - error(0.92, count)


def ranked(tasks: int, shifts: Array, count: int) -> tuple[float, float, float]:
    """Shares: Friedman's test finds something; two equals told apart; of those that differ, how many are."""
    equal = np.isclose(shifts[:, None], shifts)[np.triu_indices(len(shifts), 1)]
    alarms, mistaken, found = 0, 0, 0.0
    for values in shifts + source(13, tasks).normal(size=(count, tasks, len(shifts))):
        table = pd.DataFrame(scipy_stats.rankdata(-values, axis=1).T)
        test, means = friedman(table), table.mean(axis=1).to_numpy()
        far = np.abs(means[:, None] - means)[np.triu_indices(len(shifts), 1)] > test["critical_difference"]
        far &= test["p"] < 0.05
        alarms += test["p"] < 0.05
        mistaken += bool((far & equal).any())
        found += float(far[~equal].mean()) if not equal.all() else math.nan
    return alarms / count, mistaken / count, found / count


def test_ranks_of_equals_are_told_apart_in_one_table_of_twenty() -> None:
    count = 300
    alarms, mistaken, _ = ranked(10, np.zeros(6), count)
    assert max(alarms, mistaken) <= 0.05 + error(0.05, count)
    assert alarms > 0.005, "a test that never alarms would pass too"


def test_ranks_that_differ_are_found() -> None:
    # Two deviations of a task apart: with ten tasks Nemenyi's test finds most of them, with five hardly any.
    shifts = np.array([2.0, 2.0, 2.0, 0.0, 0.0, 0.0])
    few, many = (ranked(tasks, shifts, 100) for tasks in (5, 20))
    assert max(few[1], many[1]) <= 0.05 + error(0.05, 100)
    assert few[2] < many[2]
    assert many[2] > 0.8
