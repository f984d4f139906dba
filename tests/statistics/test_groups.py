"""All series against one another: letters, corrections, and what becomes of seeds and lengths that are lacking."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats
from support import rows_of

from experiments.statistics.groups import _pairs, letters, ranking
from experiments.statistics.scores import scores

VALUES: dict[str, dict[int, list[float | None]]] = {
    "alibi": {32: [0.90, 0.91, 0.92], 64: [0.80, 0.81, 0.82]},
    "t5": {32: [0.89, 0.92, 0.915], 64: [0.80, 0.80, 0.83]},
    "none": {32: [0.50, 0.51, 0.52], 64: [0.40, 0.41, 0.43]},
    "rope": {32: [0.20, 0.22, 0.21], 64: [0.11, 0.10, 0.12]},
}


def pairs(rows: pd.DataFrame) -> pd.DataFrame:
    """Every two series of one task, in the order of the ranking."""
    ranked = ranking(rows)
    return _pairs(scores(rows), list(ranked.loc[ranked["status"] == "ok", "series"]))


def test_letters_worked_by_hand() -> None:
    # a–b–c in a row, the ends apart; d apart from all.
    apart = [("a", "c"), ("a", "d"), ("b", "d"), ("c", "d")]
    assert letters(["a", "b", "c", "d"], apart) == {"a": "a", "b": "ab", "c": "b", "d": "c"}
    assert letters(["a", "b"], []) == {"a": "a", "b": "a"}
    assert letters([], []) == {}


@pytest.mark.parametrize("seed", range(20))
def test_two_share_a_letter_exactly_if_they_are_not_apart(seed: int) -> None:
    source = random.Random(seed)
    labels = [f"label {number}" for number in range(source.randint(1, 14))]
    apart = [pair for pair in itertools.combinations(labels, 2) if source.random() < 0.5]
    found = letters(labels, apart)
    for one, other in itertools.combinations(labels, 2):
        assert bool(set(found[one]) & set(found[other])) == ((one, other) not in apart)
    assert "a" in found[labels[0]]
    every = sorted(set("".join(found.values())))
    for letter in every:  # none of them could be left out
        without = {label: set(text) - {letter} for label, text in found.items()}
        lost = [label for label in labels if not without[label]]
        lost += [
            pair[0]
            for pair in itertools.combinations(labels, 2)
            if pair not in apart and not without[pair[0]] & without[pair[1]]
        ]
        assert lost


def test_letters_go_on_beyond_the_alphabet() -> None:
    labels = [str(number) for number in range(54)]
    found = letters(labels, itertools.combinations(labels, 2))
    assert [found[labels[place]] for place in (0, 25, 26, 51, 52, 53)] == ["a", "z", "A", "Z", "(53)", "(54)"]


def test_ranking_groups_what_seeds_cannot_tell_apart() -> None:
    table = ranking(rows_of(VALUES)).set_index("series")
    assert list(table.index) == ["alibi", "t5", "none", "rope"]
    assert table["group"].to_dict() == {"alibi": "a", "t5": "a", "none": "b", "rope": "c"}
    assert table.loc["alibi", "mean"] == pytest.approx(0.86)
    assert (table.loc["t5", "rank_low"], table.loc["t5", "rank_high"]) == (1, 2)
    # chance is 0.1: (0.86 - 0.1) / 0.9
    assert table.loc["alibi", "score"] == pytest.approx(0.76 / 0.9)
    expected = scipy_stats.ttest_1samp([0.85, 0.86, 0.87], 0).confidence_interval()
    assert (table.loc["alibi", "low"], table.loc["alibi", "high"]) == pytest.approx(tuple(expected))


def test_fewer_bits_rank_first() -> None:
    assert list(ranking(rows_of(VALUES, "bits_per_byte"))["series"]) == ["rope", "none", "t5", "alibi"]


def test_pairs_are_scipys_tests_and_corrections() -> None:
    table = pairs(rows_of(VALUES)).set_index(["first", "second"])
    assert len(table) == 6
    alibi, rope = (np.mean([VALUES[name][32], VALUES[name][64]], axis=0) for name in ("alibi", "rope"))  # type: ignore[arg-type]
    expected = scipy_stats.ttest_rel(alibi, rope)
    line = table.loc[("alibi", "rope")]
    assert line["p"] == pytest.approx(expected.pvalue)
    assert (line["low"], line["high"]) == pytest.approx(tuple(expected.confidence_interval()))
    assert list(table["p_groups"]) == pytest.approx(list(scipy_stats.false_discovery_control(table["p"])))


def test_order_of_rows_and_other_tasks_change_nothing() -> None:
    rows = rows_of(VALUES)
    other = rows_of({name: {32: [0.1, 0.3, 0.2]} for name in VALUES}).assign(task="sort")
    shuffled = pd.concat([other, rows]).sample(frac=1, random_state=1)
    found = ranking(shuffled)
    pd.testing.assert_frame_equal(found[found["task"] == "copy"].reset_index(drop=True), ranking(rows))


def test_one_seed_ranks_and_groups_nothing() -> None:
    one = {name: {length: seeds[:1] for length, seeds in lengths.items()} for name, lengths in VALUES.items()}
    table = ranking(rows_of(one))
    assert list(table["rank"]) == [1, 2, 3, 4]
    assert set(table["group"]) == {""}
    assert table[["low", "high"]].isna().all(axis=None)
    assert list(table["rank_high"]) == [4] * 4


def test_series_that_lack_a_length_are_not_ranked_by_the_others() -> None:
    rows = rows_of(VALUES | {"learned": {32: [0.99, 0.99, 0.99], 64: [None, None, None]}})
    table = ranking(rows).set_index("series")
    assert table.index[-1] == "learned"
    assert (table.loc["learned", "status"], table.loc["learned", "group"]) == ("unsupported", "")
    assert math.isnan(table.loc["learned", "rank"])
    assert table.loc["t5", "rank_high"] == 2


def test_a_length_that_few_series_have_does_not_count() -> None:
    rows = rows_of(VALUES | {"alibi": VALUES["alibi"] | {128: [0.1, 0.1, 0.1]}})
    assert set(scores(rows)["lengths"]) == {2}
    assert ranking(rows).set_index("series").loc["alibi", "mean"] == pytest.approx(0.86)


def test_seeds_that_differ_are_paired_where_they_can_be() -> None:
    rows = rows_of(VALUES)
    rows = rows[~((rows["series"] == "rope") & (rows["seed"] == 0))]
    table = pairs(rows).set_index(["first", "second"])
    assert table.loc[("none", "rope"), "pairs"] == 2
    assert table.loc[("alibi", "t5"), "pairs"] == 3
    apart = rows.assign(seed=rows["seed"] + 10 * (rows["series"] == "rope"))
    assert ranking(apart).set_index("series")["group"].to_dict()["rope"] == ""


def test_places_go_by_the_seeds_in_common_and_not_by_the_means() -> None:
    """One has two good seeds that the other lacks; of the three that both have, all are worse."""
    one, other = [0.500, 0.501, 0.499, 0.99, 0.99], [0.600, 0.602, 0.598, None, None]
    table = ranking(rows_of({"one": {32: one}, "other": {32: other}})).set_index("series")
    assert table["mean"].idxmax() == "one"
    assert table.loc["one", ["rank_low", "rank_high"]].tolist() == [2, 2]
    assert table.loc["other", ["rank_low", "rank_high"]].tolist() == [1, 1]


def test_equal_values_are_one_group_and_one_rank() -> None:
    table = ranking(rows_of({name: {32: [1.0, 1.0, 1.0]} for name in ("none", "rope", "t5")}))
    assert list(table["rank"]) == [2, 2, 2]
    assert set(table["group"]) == {"a"}


def test_a_single_series_has_a_rank_and_no_group() -> None:
    table = ranking(rows_of({"none": {32: [0.4, 0.5]}}))
    assert list(table["rank"]) == [1]
    assert list(table["group"]) == [""]
    assert pairs(rows_of({"none": {32: [0.4, 0.5]}})).empty


def test_no_rows_make_no_lines() -> None:
    rows = rows_of(VALUES).iloc[:0]
    assert ranking(rows).empty
