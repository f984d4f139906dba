"""Statistics over seeds, against numbers worked by hand and against scipy's own tests."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower
from support import only, rows_of, summary_of

from experiments.statistics.intervals import (
    NOT_SEPARABLE,
    compare,
    corrected,
    default_baseline,
    find_baseline,
    holm,
    in_words,
    paired,
    paired_columns,
    verdict,
)
from experiments.statistics.power import hedges, power, seeds_wanted


def test_interval_worked_by_hand() -> None:
    # Deviation of 1, 2, 3 is 1; t(0.975, 2) is 4.302653; 4.302653 / √3 = 2.484138.
    line = only(summary_of({"rope": {32: [1.0, 2.0, 3.0]}}))
    assert (line["mean"], line["median"], line["seeds"]) == (2.0, 2.0, 3)
    assert line["half_width"] == pytest.approx(2.484138, abs=1e-6)
    assert (line["low"], line["high"]) == pytest.approx((2 - 2.484138, 2 + 2.484138), abs=1e-6)
    assert line["chance"] == pytest.approx(0.1)


def test_interval_equals_scipys() -> None:
    values = np.random.default_rng(0).normal(0.7, 0.1, 7)
    line = only(summary_of({"rope": {32: list(values)}}))
    expected = scipy_stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (line["low"], line["high"]) == pytest.approx(tuple(expected))


def test_interval_is_not_cut_to_the_metrics_range() -> None:
    assert only(summary_of({"rope": {32: [0.9, 1.0, 1.0]}}))["high"] > 1


def test_one_seed_has_no_interval() -> None:
    line = only(summary_of({"rope": {32: [0.5]}}))
    assert line["mean"] == 0.5
    assert all(math.isnan(line[name]) for name in ("low", "high", "half_width"))


def test_equal_seeds_have_an_interval_of_zero_width() -> None:
    assert only(summary_of({"rope": {32: [0.5, 0.5, 0.5]}}))["half_width"] == 0


def test_seeds_without_a_value_are_counted_and_not_averaged() -> None:
    summary = summary_of({"learned": {16: [1.0, 0.8], 32: [0.6, None], 64: [None, None]}})
    partly, never = only(summary, eval_length=32), only(summary, eval_length=64)
    assert (partly["mean"], partly["seeds"], partly["unsupported"]) == (0.6, 1, 1)
    assert (never["seeds"], never["unsupported"]) == (0, 2)
    assert math.isnan(never["mean"])


def test_comparison_is_paired_by_seed() -> None:
    # The seeds differ by far more than the encoders do: unpaired, nothing could be seen.
    none, rope = [0.1, 0.5, 0.9, 0.3], [0.16, 0.54, 0.95, 0.35]
    line = only(compare(rows_of({"none": {32: [*none]}, "rope": {32: [*rope]}}), "none"))
    expected = scipy_stats.ttest_rel(rope, none)
    assert line["difference"] == pytest.approx(0.05)
    assert line["p"] == pytest.approx(expected.pvalue)
    assert (line["low"], line["high"]) == pytest.approx(tuple(expected.confidence_interval(0.95)))
    assert line["p"] < 0.05 < scipy_stats.ttest_ind(rope, none).pvalue
    assert line["pairs"] == 4


def test_comparison_averages_lengths_within_a_seed_first() -> None:
    rows = rows_of({"none": {32: [0.0, 0.2], 64: [0.2, 0.2]}, "rope": {32: [0.5, 0.6], 64: [0.5, 0.8]}})
    line = only(compare(rows, "none"))
    # (0.5 + 0.5)/2 - (0 + 0.2)/2 = 0.4 and (0.6 + 0.8)/2 - 0.2 = 0.5
    assert line["difference"] == pytest.approx(0.45)
    assert line["lengths"] == (32, 64)
    # deviation 0.1/√2, so half the interval is t(0.975, 1) · 0.05 = 12.7062 · 0.05
    assert line["high"] - line["difference"] == pytest.approx(0.63531, abs=1e-5)


def test_comparison_uses_only_seeds_and_lengths_that_both_have() -> None:
    none: dict[int, list[float | None]] = {32: [0.5, 0.5, 0.5], 64: [0.1, 0.1, 0.1]}
    rows = rows_of({"none": none, "learned": {32: [0.6, 0.7], 64: [None, None]}})
    line = only(compare(rows, "none"))
    assert (line["pairs"], line["lengths"]) == (2, (32,))
    assert line["difference"] == pytest.approx(0.15)


@pytest.mark.parametrize(
    ("ours", "theirs", "status"), [(None, 0.5, "unsupported"), (0.5, None, "baseline unsupported")]
)
def test_comparison_says_why_there_is_none(ours: float | None, theirs: float | None, status: str) -> None:
    line = only(compare(rows_of({"none": {32: [theirs, theirs]}, "learned": {32: [ours, ours]}}), "none"))
    assert (line["status"], line["pairs"]) == (status, 0)


def test_comparison_without_a_common_seed() -> None:
    rows = rows_of({"none": {32: [0.5]}, "rope": {32: [0.6]}})
    rows.loc[rows["series"] == "rope", "seed"] = 7
    assert only(compare(rows, "none"))["status"] == "no seed in common"


def test_no_difference_at_all_is_not_separable() -> None:
    found = paired(np.zeros(5))
    assert found == {"difference": 0.0, "low": 0.0, "high": 0.0, "deviation": 0.0, "p": 1.0}
    # 0.1 + 0.2 against 0.3: rounding that is the same for every seed is no certainty.
    assert paired(np.full(5, 0.1 + 0.2 - 0.3))["p"] == 1.0


@pytest.mark.parametrize("count", [2, 3, 6])
def test_differences_that_all_agree_are_judged_by_their_signs(count: int) -> None:
    # Accuracies of 1 against 0.75 in every seed: how much they vary is not known, only that all say the same.
    found = paired(np.full(count, 0.25))
    assert found["p"] == pytest.approx(scipy_stats.binomtest(count, count).pvalue)
    assert (found["difference"], found["low"], found["high"]) == (0.25, 0.25, 0.25)
    # 0.1 + 0.2 - 0.05 is not quite 0.25: that is no spread.
    assert paired(np.array([0.25, 0.1 + 0.2 - 0.05] * count))["deviation"] == 0


def test_one_pair_cannot_be_tested() -> None:
    assert math.isnan(paired(np.array([0.25]))["p"])


def test_columns_are_judged_one_by_one_and_without_their_gaps() -> None:
    values = np.random.default_rng(0).normal(0.1, 1, (6, 3))
    values[4:, 1], values[1:, 2] = np.nan, np.nan
    found = paired_columns(values)
    assert list(found["pairs"]) == [6, 4, 1]
    for column, count in ((0, 6), (1, 4)):
        expected = scipy_stats.ttest_1samp(values[:count, column], 0)
        assert found["p"][column] == pytest.approx(expected.pvalue)
        assert (found["low"][column], found["high"][column]) == pytest.approx(tuple(expected.confidence_interval()))
    assert math.isnan(found["p"][2])
    assert math.isnan(found["high"][2])


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 9, 12])
def test_interquartile_mean_is_scipys(count: int) -> None:
    values = np.random.default_rng(count).normal(size=count)
    line = only(summary_of({"rope": {32: [*values]}, "none": {32: [0.0, 1.0]}}), series="rope")
    assert line["iqm"] == pytest.approx(scipy_stats.trim_mean(values, 0.25))


def test_comparison_says_how_large_the_difference_is() -> None:
    none, rope = [0.1, 0.5, 0.9, 0.3], [0.6, 0.54, 0.95, 0.35]
    line = only(compare(rows_of({"none": {32: [*none]}, "rope": {32: [*rope]}}), "none"))
    assert line["deviation"] == pytest.approx(np.std(np.subtract(rope, none), ddof=1))
    # All 16 pairs of a seed of rope and one of none: 0.6 and 0.54 beat three each, 0.95 four, 0.35 two.
    assert line["improvement"] == pytest.approx(12 / 16)
    assert line["improvement"] == pytest.approx(scipy_stats.mannwhitneyu(rope, none).statistic / 16)
    spread = math.sqrt((np.var(none, ddof=1) + np.var(rope, ddof=1)) / 2)
    # Hedges' correction for 2 · (4 - 1) degrees of freedom is about 1 - 3 / (4 · 6 - 1).
    assert line["effect"] == pytest.approx((np.mean(rope) - np.mean(none)) / spread * (1 - 3 / 23), rel=5e-3)


def test_improvement_is_towards_fewer_bits() -> None:
    rows = rows_of({"none": {32: [2.0, 2.2]}, "rope": {32: [1.0, 2.1]}}, "bits_per_byte")
    assert only(compare(rows, "none"))["improvement"] == 0.75


def test_equal_seeds_are_an_infinite_effect_or_none() -> None:
    table = compare(rows_of({"none": {32: [0.5] * 3}, "rope": {32: [0.25] * 3}, "t5": {32: [0.5] * 3}}), "none")
    assert list(table["effect"]) == [-math.inf, 0]
    assert list(table["improvement"]) == [0, 0.5]


def test_what_is_not_separable_says_how_many_seeds_would_be() -> None:
    values = {"none": [0.1, 0.5, 0.9, 0.3], "rope": [0.5, 0.6, 1.0, 0.4], "same": [0.2, 0.6, 0.8, 0.2]}
    values["better"] = [0.4, 0.81, 1.2, 0.61]
    rows = rows_of({label: {32: [*of_label]} for label, of_label in values.items()})
    found = corrected(compare(rows, "none").assign(metric="token_accuracy")).set_index("series")
    assert list(found.loc[["better", "rope"], "verdict"]) == ["better", NOT_SEPARABLE]
    assert list(found["p_holm"]) == pytest.approx(holm(list(found["p"])))
    assert math.isnan(found.loc["better", "more_seeds"])
    assert math.isnan(found.loc["same", "more_seeds"]), "no difference at all: no number of seeds would do"
    # Differences 0.4, 0.1, 0.1, 0.1. Two are undecided, so the level is 0.05 / 2.
    wanted = seeds_wanted(0.175, 0.15, 4, 0.025)
    assert found.loc["rope", "more_seeds"] == wanted - 4
    assert wanted > 8


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (1.0, "; about 1 more would do"),
        (13.0, "; about 13 more would do"),
        (33.0, "; about 33 more would do"),
        (343.0, "; about 350 more would do"),
        (math.inf, "; a thousand would not do either"),
        (math.nan, ""),
    ],
)
def test_how_many_more_in_words(more: float, said: str) -> None:
    assert in_words(NOT_SEPARABLE, more) == NOT_SEPARABLE + said
    assert in_words("better", more) == "better"


def test_power_is_that_of_statsmodels() -> None:
    oracle = TTestPower()
    for standardised, pairs, level in ((0.5, 5, 0.05), (1.5, 3, 0.01), (-0.8, 10, 0.05), (4.0, 3, 0.001)):
        assert power(standardised, pairs, level) == pytest.approx(oracle.power(standardised, pairs, level), abs=1e-6)
    corrected_one = math.sqrt(scipy_stats.chi2.median(9) / 9)
    exactly = oracle.solve_power(effect_size=corrected_one, alpha=0.05, power=0.8)
    assert seeds_wanted(0.5, 0.5, 10, 0.05) == math.ceil(exactly)


def test_power_of_no_difference_is_the_level() -> None:
    assert power(0.0, 5, 0.05) == pytest.approx(0.05)


def test_two_seeds_or_no_spread_say_nothing_of_how_many_would_do() -> None:
    assert math.isnan(seeds_wanted(0.5, 0.1, 2, 0.05))
    assert math.isnan(seeds_wanted(0.5, 0.0, 5, 0.05))
    assert math.isnan(seeds_wanted(0.0, 0.1, 5, 0.05))
    assert math.isinf(seeds_wanted(0.001, 0.1, 5, 0.05))


@pytest.mark.parametrize(("degrees", "factor"), [(1, 0), (2, 0.5642), (4, 0.7979), (9, 0.9139)])
def test_hedges_correction(degrees: int, factor: float) -> None:
    assert hedges(degrees) == pytest.approx(factor, abs=1e-3)


def test_holm_worked_by_hand() -> None:
    # Sorted: 0.01·4 = 0.04, 0.02·3 = 0.06, 0.03·2 = 0.06, 0.04·1 → at least the one before, 0.06.
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    corrected = holm([0.01, math.nan, 0.02])
    assert corrected[0] == pytest.approx(0.02)
    assert math.isnan(corrected[1])
    assert holm([]) == []


def test_holm_is_statsmodels() -> None:
    p = list(np.random.default_rng(3).random(30) ** 3)
    assert holm(p) == pytest.approx(list(multipletests(p, method="holm")[1]))


@pytest.mark.parametrize(
    ("metric", "difference", "p", "said"),
    [
        ("token_accuracy", 0.1, 0.01, "better"),
        ("token_accuracy", -0.1, 0.01, "worse"),
        ("bits_per_byte", 0.1, 0.01, "worse"),
        ("bits_per_byte", -0.1, 0.01, "better"),
        ("token_accuracy", 0.1, 0.05, NOT_SEPARABLE),
        ("token_accuracy", 0.1, math.nan, NOT_SEPARABLE),
        ("outside_metric", 0.1, 0.01, "higher"),
    ],
)
def test_verdict(metric: str, difference: float, p: float, said: str) -> None:
    assert verdict(metric, difference, p) == said


def test_baseline_by_default_and_by_name() -> None:
    rows = rows_of({"rope": {32: [1.0]}, "none": {32: [1.0]}, "alibi": {32: [1.0]}})
    assert default_baseline(rows) == "none"
    assert default_baseline(rows[rows["series"] != "none"]) == "alibi"
    offset = rows.assign(positions="offset", series=rows["encoder"] + " · offset")
    both = pd.concat([offset, rows.assign(series=rows["encoder"] + " · sequential")])
    assert default_baseline(both) == "none · sequential"
    assert find_baseline(rows, "rope") == "rope"
    with pytest.raises(ValueError, match=r"no baseline named 'ropee'. Did you mean 'rope'\? Allowed: alibi; none"):
        find_baseline(rows, "ropee")
    several = rows.assign(series=rows["encoder"] + " · offset")
    assert find_baseline(several, "rope") == "rope · offset"
