"""Quality that a run keeps: by hand, unchanged by other lengths, and none for runs that did not learn."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from support import only, rows_of

from experiments.statistics.scores import scores


def judged(rows: pd.DataFrame, learned: bool | None = True) -> pd.DataFrame:
    return rows.assign(converged=pd.Series([learned] * len(rows), dtype=object), n=256)


def curve(**values: dict[int, list[float | None]]) -> pd.DataFrame:
    return judged(rows_of(values))


def test_quality_is_one_in_range_and_zero_at_the_best_guess() -> None:
    line = only(scores(curve(rope={16: [0.9], 32: [0.9], 64: [0.1], 128: [0.5]})), series="rope")
    assert [line[f"kept_{multiple}"] for multiple in (2, 4, 8)] == pytest.approx([1, 0, 0.5])
    assert line["kept"] == pytest.approx((1 + 0 + 0.5) / 3)
    assert (line["in_range"], line["up_to"], line["status"]) == (0.9, 8, "ok")


def test_bits_are_better_when_fewer() -> None:
    rows = judged(rows_of({"rope": {16: [2.0], 32: [3.0]}}, metric="bits_per_byte")).assign(chance=5.0)
    assert only(scores(rows), series="rope")["kept_2"] == pytest.approx(2 / 3)


def test_another_length_changes_nothing() -> None:
    few = {16: [0.9], 32: [0.6], 64: [0.4], 128: [0.2]}
    more = few | {20: [0.85], 48: [0.1], 96: [0.3], 256: [0.1]}
    one, other = (only(scores(curve(rope=values)), series="rope") for values in (few, more))
    assert {name: one[name] for name in ("kept_2", "kept_4", "kept_8", "kept")} == pytest.approx(
        {name: other[name] for name in ("kept_2", "kept_4", "kept_8", "kept")}
    )


def test_a_doubling_between_two_lengths_is_interpolated_over_its_logarithm() -> None:
    line = only(scores(curve(rope={16: [0.9], 24: [0.9], 40: [0.5]})), series="rope")
    share = math.log2(32 / 24) / math.log2(40 / 24)
    assert line["kept_2"] == pytest.approx(1 - share * 0.5)
    assert math.isnan(line["kept_4"])
    assert line["up_to"] == 2


def test_runs_that_did_not_learn_have_no_score() -> None:
    rows = judged(rows_of({"rope": {16: [0.3], 32: [0.3]}}), learned=False)
    line = only(scores(rows), series="rope")
    assert line["status"] == "did not learn"
    assert math.isnan(line["kept"])
    assert line["in_range"] == 0.3


@pytest.mark.parametrize(
    ("values", "status"),
    [
        ({16: [0.9], 32: [None]}, "unsupported"),
        ({16: [0.1], 32: [0.1]}, "no better than guessing in range"),
        ({16: [0.9], 32: [0.9], 64: [0.9]}, "ok"),
    ],
)
def test_status_says_why_there_is_none(values: dict[int, list[float | None]], status: str) -> None:
    assert only(scores(curve(rope=values)), series="rope")["status"] == status


def test_a_series_that_ends_earlier_than_the_task_keeps_nothing() -> None:
    rows = curve(rope={16: [0.9], 32: [0.5], 64: [0.4]}, learned={16: [0.9], 32: [0.5]})
    assert only(scores(rows), series="learned")["status"] == "not measured"


def test_noise_is_that_of_the_questions() -> None:
    line = only(scores(curve(rope={16: [1.0], 32: [0.5], 64: [0.5]})), series="rope")
    assert line["noise"] == pytest.approx(0.25 / 256 / 0.9**2 * (0.5**2 + 0.5**2), rel=0.01)
    assert line["best"] == pytest.approx(1)
