"""Statistics over seeds, against numbers worked by hand and against scipy's own tests."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats

from experiments._stats import (
    NOT_SEPARABLE,
    compare,
    default_baseline,
    find_baseline,
    holm,
    labelled,
    over_seeds,
    paired,
    verdict,
)
from experiments._table import Row, frame


def rows_of(values: dict[str, dict[int, list[float | None]]], metric: str = "token_accuracy") -> pd.DataFrame:
    """``{encoder: {eval_length: [value of seed 0, of seed 1, …]}}``; None is an unsupported measurement."""
    rows = [
        Row(
            run_id=f"{encoder}-{seed}",
            encoder=encoder,
            positions="sequential",
            task="copy",
            seed=seed,
            experiment="length_extrapolation",
            metric=metric,
            train_length=16,
            eval_length=length,
            value=math.nan if value is None else value,
            chance=0.1,
            status="unsupported" if value is None else "ok",
        )
        for encoder, of_length in values.items()
        for length, of_seed in of_length.items()
        for seed, value in enumerate(of_seed)
    ]
    return labelled(frame(rows))


def summary_of(values: dict[str, dict[int, list[float | None]]], metric: str = "token_accuracy") -> pd.DataFrame:
    return over_seeds(rows_of(values, metric), ["task", "metric", "label", "train_length", "eval_length"])


def only(table: pd.DataFrame, **where: Any) -> dict[Any, Any]:
    for column, value in where.items():
        table = table[table[column] == value]
    assert len(table) == 1
    return table.to_dict("records")[0]


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
    rows.loc[rows["label"] == "rope", "seed"] = 7
    assert only(compare(rows, "none"))["status"] == "no seed in common"


def test_no_difference_at_all_is_not_separable() -> None:
    found = paired(np.zeros(5))
    assert found == {"difference": 0.0, "low": 0.0, "high": 0.0, "p": 1.0}
    # 0.1 + 0.2 against 0.3: rounding that is the same for every seed is no certainty.
    assert paired(np.full(5, 0.1 + 0.2 - 0.3))["p"] == 1.0


def test_constant_difference_is_certain_from_two_seeds_on() -> None:
    assert paired(np.array([0.25, 0.25])) == {"difference": 0.25, "low": 0.25, "high": 0.25, "p": 0.0}
    assert math.isnan(paired(np.array([0.25]))["p"])


def test_holm_worked_by_hand() -> None:
    # Sorted: 0.01·4 = 0.04, 0.02·3 = 0.06, 0.03·2 = 0.06, 0.04·1 → at least the one before, 0.06.
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    corrected = holm([0.01, math.nan, 0.02])
    assert corrected[0] == pytest.approx(0.02)
    assert math.isnan(corrected[1])
    assert holm([]) == []


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
    assert default_baseline(rows[rows["label"] != "none"]) == "alibi"
    offset = rows.assign(positions="offset", label=rows["encoder"] + " · offset")
    both = pd.concat([offset, rows.assign(label=rows["encoder"] + " · sequential")])
    assert default_baseline(both) == "none · sequential"
    assert find_baseline(rows, "rope") == "rope"
    with pytest.raises(ValueError, match=r"no baseline named 'ropee'. Did you mean 'rope'\? Allowed: alibi; none"):
        find_baseline(rows, "ropee")
    several = rows.assign(label=rows["encoder"] + " · offset")
    assert find_baseline(several, "rope") == "rope · offset"
