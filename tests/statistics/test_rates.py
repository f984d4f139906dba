"""How much the order of the series depends on the learning rate."""

from __future__ import annotations

import pandas as pd
import pytest

from experiments.statistics.scores import by_rate
from experiments.statistics.transfer import of_rates

KEPT = {0.001: {"a": 0.9, "b": 0.6, "c": 0.3, "d": 0.1}, 0.003: {"a": 0.8, "b": 0.2, "c": 0.4, "d": 0.0}}


def rows(kept: dict[float, dict[str, float]], task: str = "copy") -> pd.DataFrame:
    """Rows of runs that have these values at twice their training length, of two seeds each."""
    return pd.DataFrame(
        [
            {"task": task, "metric": "token_accuracy", "series": series, "seed": seed, "train_length": 8}
            | {"eval_length": length, "learning_rate": rate, "value": value, "chance": 0.0, "n": 100, "status": "ok"}
            for rate, of_rate in kept.items()
            for series, beyond in of_rate.items()
            for seed in (0, 1)
            for length, value in ((8, 1.0), (16, beyond + 0.01 * seed))
        ]
    )


def test_tau_counts_pairs_in_another_order() -> None:
    (line,) = of_rates(by_rate(rows(KEPT))).to_dict("records")
    assert (line["first"], line["second"], line["encoders"], line["seeds"]) == (0.001, 0.003, 4, 2)
    assert line["tau"] == pytest.approx((5 - 1) / 6), "of six pairs, b and c alone change places"
    assert (line["decided"], line["kept"], line["decided_back"], line["kept_back"]) == (6, 5, 6, 5)


def test_a_pair_that_one_rate_does_not_tell_apart_counts_from_the_other() -> None:
    near = rows(KEPT)
    near.loc[near["series"].eq("b") & near["learning_rate"].eq(0.001) & near["seed"].eq(1), "value"] -= 0.5
    (line,) = of_rates(by_rate(near)).to_dict("records")
    assert line["decided"] < line["decided_back"] == 6


def test_only_series_that_learned_at_both_rates_count() -> None:
    (line,) = of_rates(by_rate(rows({0.001: KEPT[0.001], 0.003: {"a": 0.1, "b": 0.2, "d": 0.3}}))).to_dict("records")
    assert (line["encoders"], line["tau"]) == (3, pytest.approx(-1))
    assert of_rates(by_rate(rows({0.001: KEPT[0.001], 0.003: {"a": 0.1, "b": 0.2}}))).empty, "two are no order"


def test_every_task_and_pair_of_rates_is_a_line() -> None:
    three = KEPT | {0.01: KEPT[0.003]}
    found = of_rates(by_rate(pd.concat([rows(three), rows(KEPT, "text")])))
    assert [tuple(line) for line in found[["task", "first", "second"]].itertuples(index=False)] == [
        *(("copy", 0.001, 0.003), ("copy", 0.001, 0.01), ("copy", 0.003, 0.01)),
        ("text", 0.001, 0.003),
    ]
    assert found["tau"].tolist() == pytest.approx([4 / 6, 4 / 6, 1, 4 / 6])
    assert of_rates(by_rate(rows({0.001: KEPT[0.001]}))).empty


def test_what_each_seed_keeps_at_each_rate_is_a_line() -> None:
    found = by_rate(rows(KEPT)).set_index(["learning_rate", "series", "seed"])["kept"]
    assert len(found) == 2 * 4 * 2
    assert found[0.003, "b", 1] == pytest.approx(0.21)
    assert by_rate(rows(KEPT).iloc[:0]).empty
