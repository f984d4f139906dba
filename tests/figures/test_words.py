"""Numbers as text: what is zero has no sign, and no digits of rounding."""

from __future__ import annotations

import math

import pytest

from experiments.figures import words


@pytest.mark.parametrize(
    ("value", "text"),
    [(-1.44e-09, "0"), (0.0, "0"), (-0.0, "0"), (3.33e-07, "3.33e-07"), (-0.5, "−0.5"), (2.353, "2.35")],
)
def test_a_measured_value_near_zero_is_zero(value: float, text: str) -> None:
    assert words.measured(value) == text
    assert words.measured(math.nan) == words.measured("none") == ""


def test_a_signed_zero_has_no_sign() -> None:
    assert words.signed(-0.0004, -0.0014, 0.0011, 3) == "0.000 [−0.001, +0.001]"
    assert words.fixed(-0.001) == "0.00"
    assert words.signed(-0.629, math.nan, math.nan, 3) == "−0.629"


def test_an_end_of_an_interval_that_is_not_zero_is_not_printed_so() -> None:
    assert words.signed(-9, -18, -0.3, 0) == "−9.0 [−18.0, −0.3]"
    assert words.signed(-9, -18, 0.3, 0) == "−9.0 [−18.0, +0.3]"
