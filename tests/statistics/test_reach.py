"""How far quality holds beyond the training length: reach and area, against numbers worked by hand."""

from __future__ import annotations

import math

import pytest
from scipy import stats as scipy_stats
from support import only, rows_of, summary_of

from experiments.figures.style import renderings
from experiments.measures.length_extrapolation import report as length_extrapolation
from experiments.report.sections.reach import of_one_run
from experiments.statistics.reach import areas, compare_areas, reach


def test_reach_stops_at_the_first_length_that_does_not_hold() -> None:
    table = reach(summary_of({"none": {8: [1.0], 16: [0.8], 32: [0.72], 64: [0.7], 128: [0.8]}}))
    line = only(table)
    assert (line["in_range"], line["reach"], line["multiple"], line["longest"]) == (0.8, 32, 2.0, 128)


def test_reach_where_lower_is_better() -> None:
    line = only(reach(summary_of({"none": {16: [1.8], 32: [1.99], 64: [2.01]}}, "bits_per_byte")))
    assert line["reach"] == 32  # 1.8 / 0.9 = 2


def test_reach_of_a_series_that_cannot_be_asked_further() -> None:
    values: dict[str, dict[int, list[float | None]]] = {"learned": {16: [0.9], 32: [None]}, "rope": {32: [0.9]}}
    table = reach(summary_of(values))
    assert only(table, series="learned")["reach"] == 16
    assert math.isnan(only(table, series="rope")["reach"])


def test_area_worked_by_hand() -> None:
    # Doublings: (1 + .8)/2 = .9 and (.8 + .4)/2 = .6, mean .75; lengths in range do not count.
    line = only(areas(rows_of({"none": {8: [0.1], 16: [1.0], 32: [0.8], 64: [0.4]}})))
    assert (line["area"], line["area_seeds"], line["area_up_to"]) == (pytest.approx(0.75), 1, 4.0)
    assert math.isnan(line["area_half_width"])


def test_area_weighs_every_doubling_the_same() -> None:
    early = only(areas(rows_of({"none": {16: [1.0], 32: [0.0], 64: [0.0], 128: [0.0]}})))["area"]
    late = only(areas(rows_of({"none": {16: [1.0], 32: [1.0], 64: [1.0], 128: [0.0]}})))["area"]
    assert (early, late) == (pytest.approx(0.5 / 3), pytest.approx(2.5 / 3))
    # Measured between them too, on the straight line from one to the other, nothing changes.
    finer: dict[int, list[float | None]] = {16: [1.0], 32: [0.8], 64: [0.4]}
    between = rows_of({"none": finer | {45: [0.8 - 0.4 * math.log2(45 / 32)]}})
    assert only(areas(between))["area"] == pytest.approx(0.75)


def test_area_is_taken_of_each_seed_first() -> None:
    # Areas .75, .65 and .70: deviation .05, t(0.975, 2)/√3 = 2.484138.
    values: dict[int, list[float | None]] = {16: [1.0, 0.8, 1.0], 32: [0.8, 0.7, 0.7], 64: [0.4, 0.4, 0.4]}
    line = only(areas(rows_of({"none": values})))
    assert (line["area"], line["area_seeds"]) == (pytest.approx(0.7), 3)
    assert line["area_half_width"] == pytest.approx(2.484138 * 0.05, abs=1e-6)


def test_area_of_bits_is_their_mean() -> None:
    line = only(areas(rows_of({"none": {16: [1.0], 32: [2.0], 64: [4.0]}}, "bits_per_byte")))
    assert line["area"] == pytest.approx((1.5 + 3.0) / 2)


def test_area_ends_where_the_series_does() -> None:
    values: dict[str, dict[int, list[float | None]]] = {
        "learned": {16: [1.0, 1.0], 32: [0.6, 0.4], 64: [None, None], 128: [None, None]},
        "one seed ends": {16: [1.0, 1.0], 32: [0.6, 0.4], 64: [0.4, None], 128: [0.2, 0.2]},
        "at once": {16: [1.0, 1.0], 32: [None, None]},
        "untrained length": {32: [0.6, 0.4], 64: [0.6, 0.4]},
    }
    table = areas(rows_of(values))
    for label in ("learned", "one seed ends"):
        line = only(table, series=label)
        assert (line["area"], line["area_up_to"], line["area_seeds"]) == (pytest.approx(0.75), 2.0, 2)
    for label in ("at once", "untrained length"):
        line = only(table, series=label)
        assert math.isnan(line["area"])
        assert (math.isnan(line["area_up_to"]), line["area_seeds"]) == (True, 0)


def test_a_seed_without_any_value_is_left_out_of_the_area() -> None:
    line = only(areas(rows_of({"none": {16: [1.0, None], 32: [0.5, None]}})))
    assert (line["area"], line["area_seeds"], line["area_up_to"]) == (pytest.approx(0.75), 1, 2.0)


def test_areas_are_compared_over_the_lengths_that_both_have() -> None:
    none: dict[int, list[float | None]] = {16: [1.0, 1.0], 32: [0.5, 0.7], 64: [0.0, 0.0]}
    rows = rows_of({"none": none, "learned": {16: [1.0, 1.0], 32: [0.6, 1.0], 64: [None, None]}, "rope": none})
    table = compare_areas(rows, "none")
    line = only(table, series="learned")
    # Up to twice the length: .80 and 1.00 against .75 and .85, so .05 and .15; deviation .1/√2.
    assert (line["difference"], line["pairs"], line["compared_up_to"]) == (pytest.approx(0.1), 2, 2.0)
    assert line["p"] == pytest.approx(scipy_stats.ttest_1samp([0.05, 0.15], 0).pvalue)
    assert line["high"] - line["difference"] == pytest.approx(12.7062 * 0.05, abs=1e-5)
    line = only(table, series="rope")
    assert (line["difference"], line["compared_up_to"]) == (0, 4.0)


def test_areas_without_anything_in_common_are_not_compared() -> None:
    none: dict[int, list[float | None]] = {16: [1.0], 32: [0.5]}
    rows = rows_of({"none": none, "at once": {16: [1.0], 32: [None]}, "longer": {16: [1.0], 32: [0.5]}})
    rows.loc[rows["series"] == "longer", "train_length"] = 32
    for line in compare_areas(rows, "none").to_dict("records"):
        assert (line["pairs"], math.isnan(line["difference"]), math.isnan(line["p"])) == (0, True, True)


# ------------------------------------------------------------------------------------------------------- in words


def test_reach_and_area_of_one_run_in_words() -> None:
    said = of_one_run(rows_of({"none": {16: [1.0], 32: [0.9], 64: [0.4]}}))
    assert said.startswith("reach ×2: at least 90% of the token accuracy in range; area 0.800: its mean from ×1 to ×4,")
    said = of_one_run(rows_of({"none": {16: [1.8], 32: [1.9]}}, "bits_per_byte"))
    assert said.startswith("reach ×2 or more: no more than 1.11 times the bits per byte in range; area 1.850:")
    ended = of_one_run(rows_of({"learned": {16: [1.0], 32: [0.6], 64: [None]}}))
    assert "reach ×1:" in ended
    assert "area 0.800 (up to ×2):" in ended
    assert "area unsupported:" in of_one_run(rows_of({"learned": {16: [1.0], 32: [None]}}))


@pytest.mark.parametrize("values", [{8: [1.0], 16: [1.0]}, {16: [None], 32: [None]}, {32: [1.0]}])
def test_nothing_is_said_of_what_was_not_measured(values: dict[int, list[float | None]]) -> None:
    assert of_one_run(rows_of({"none": values})) == ""


@pytest.mark.parametrize("lengths", [[16], [2], [64], [64, 128]])
def test_the_training_length_is_in_every_figure(lengths: list[int]) -> None:
    rows = rows_of({"none": {length: [0.5] for length in lengths}}, "generated_token_accuracy")
    (figure,) = length_extrapolation.plot(rows).values()
    low, high = figure.axes[0].get_xlim()
    assert low < 16 < high
    assert renderings(figure, ["png"])["png"]  # a layout without room for the axes is a warning, which is an error here
