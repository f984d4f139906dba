"""Intervals over seeds: by hand, inside the bounds, absent where they would mislead, and as wide as they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats
from simulation import NOISES, coverage
from support import only, rows_of, summary_of

from experiments.rows.row import metric_of
from experiments.statistics.comparisons import holm
from experiments.statistics.intervals import bounded, over_seeds

FREE = (-math.inf, math.inf)


def test_without_bounds_it_is_students() -> None:
    values = np.array([0.2, 0.5, 0.4, 0.9])
    expected = scipy_stats.t.interval(0.95, 3, values.mean(), scipy_stats.sem(values))
    assert bounded(values, FREE) == pytest.approx(expected)


def test_share_is_worked_on_the_logit_scale() -> None:
    values = np.array([0.90, 0.94, 0.98])
    mean, error = 0.94, 0.04 / math.sqrt(3)
    half = 4.302652729911275 * error / (mean * (1 - mean))
    ends = [1 / (1 + math.exp(-(math.log(mean / (1 - mean)) + sign * half))) for sign in (-1, 1)]
    assert bounded(values, (0.0, 1.0)) == pytest.approx(ends)


@pytest.mark.parametrize("metric", ["far_context_gain", "free_running_gap"])
def test_a_difference_may_be_below_zero(metric: str) -> None:
    low, high = bounded(np.array([-0.002, -0.001, 0.001]), metric_of(metric).bounds)
    assert -0.01 < low < -0.001 < 0.001 < high < 0.01


def test_a_length_is_not_below_zero() -> None:
    low, _ = bounded(np.array([1.0, 1.0, 2.0]), metric_of("effective_length").bounds)
    assert low > 0


@pytest.mark.parametrize(("values", "bounds"), [([0.95, 0.99, 0.9], (0, 1)), ([0.01, 0.3, 0.02], (0, math.inf))])
def test_interval_stays_inside_the_bounds(values: list[float], bounds: tuple[float, float]) -> None:
    low, high = bounded(np.array(values), bounds)
    assert bounds[0] < low < np.mean(values) < high < bounds[1]


def test_two_seeds_have_no_interval() -> None:
    assert np.isnan(bounded(np.array([0.2, 0.4]), (0, 1))).all()
    assert math.isnan(only(summary_of({"rope": {32: [0.2, 0.4]}}), series="rope")["low"])


def test_two_clusters_have_no_interval() -> None:
    assert np.isnan(bounded(np.array([0.95, 0.96, 0.94, 0.95, 0.31]), (0, 1))).all()
    assert math.isnan(only(summary_of({"rope": {32: [0.95, 0.96, 0.94, 0.95, 0.31]}}), series="rope")["low"])


def test_two_clusters_of_many_seeds_have_one_that_covers_their_mean() -> None:
    draw, covered = np.random.default_rng(0), []
    for _ in range(300):
        values = np.where(draw.random(12) < 0.2, 0.3, 0.9) + draw.normal(0, 0.02, 12)
        low, high = bounded(values.clip(0, 1), (0, 1))
        covered.append(low <= 0.78 <= high)
    assert 0.87 < np.mean(covered) < 0.96


def test_seeds_at_the_bound_keep_the_evaluations_noise() -> None:
    certain = bounded(np.ones(5), (0, 1))
    noisy = bounded(np.ones(5), (0, 1), noise=0.5 / 256**2)
    assert certain[1] - certain[0] < 1e-6
    assert noisy[0] < 0.999 < noisy[1] == 1, "an interval contains its mean"


def test_table_agrees_with_one_series_at_a_time() -> None:
    values = {"rope": [0.7, 0.8, 0.75], "none": [0.1, 0.2, 0.12]}
    table = summary_of({name: {32: list(seeds)} for name, seeds in values.items()})
    for name, seeds in values.items():
        line = only(table, series=name)
        assert (line["low"], line["high"]) == pytest.approx(bounded(np.array(seeds), (0, 1)))


def test_seeds_without_a_value_are_counted_and_not_averaged() -> None:
    line = only(summary_of({"rope": {32: [0.4, None, 0.6, 0.5]}}), series="rope")
    assert (line["mean"], line["seeds"], line["unsupported"]) == (pytest.approx(0.5), 3, 1)


def test_several_rows_of_a_seed_are_averaged_first() -> None:
    rows = rows_of({"rope": {32: [0.2, 0.6, 0.4], 64: [0.4, 0.8, 0.6]}})
    line = only(over_seeds(rows, ["metric", "series"]), series="rope")
    assert (line["mean"], line["seeds"]) == (pytest.approx(0.5), 3)


@pytest.mark.parametrize("seeds", [3, 5, 8])
@pytest.mark.parametrize("noise", NOISES)
def test_intervals_cover_as_often_as_they_say(noise: str, seeds: int) -> None:
    covered, shown = coverage(noise, seeds)
    chance = 2 * math.sqrt(0.05 * 0.95 / (2000 * shown))
    assert (0.90 if seeds == 3 else 0.93) - chance < covered < 0.97 + chance


def test_holm_worked_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, math.nan, 0.005]) == pytest.approx([0.03, 0.06, 0.06, math.nan, 0.02], nan_ok=True)
    assert holm([0.9, 0.8]) == pytest.approx([1, 1])
