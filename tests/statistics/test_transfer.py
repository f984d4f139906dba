"""Does a ranking transfer: worked cases, the interval against noise, and the section made from rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support import write_run

from experiments.report.sections import transfer as section
from experiments.rows.results import load
from experiments.rows.row import Row
from experiments.statistics import transfer
from experiments.statistics.transfer import laws

ENCODERS = ["a", "b", "c", "d", "e"]


def rung(
    values: list[float], parameters: float, budget: float = 5.0, noise: float = 0.0, seeds: int = 3
) -> pd.DataFrame:
    random, found = np.random.default_rng([int(parameters), int(budget)]), []
    for seed in range(seeds):
        shared = random.normal()  # what a seed does to all encoders alike
        for encoder, value in zip(ENCODERS, values, strict=False):
            line = {"task": "text", "multiple": 1, "parameters": parameters, "budget": budget, "encoder": encoder}
            found.append(line | {"seed": seed, "value": value + shared + noise * random.normal()})
    return pd.DataFrame(found)


def compared(*rungs: pd.DataFrame) -> pd.Series:
    (line,) = transfer.compared(pd.concat(rungs)).to_dict("records")
    return pd.Series(line)


def test_the_same_order_transfers_whatever_a_seed_does_to_all() -> None:
    found = compared(rung([1, 2, 3, 4, 5], 1e5), rung([10, 11, 15, 18, 19], 1e6))
    assert (found["axis"], found["first"], found["second"]) == ("size", 1e5, 1e6)
    assert found[["tau", "tau_low", "tau_high", "top", "top_low"]].tolist() == pytest.approx([1, 1, 1, 1, 1])
    assert found[["encoders", "seeds", "decided", "kept", "reversed"]].tolist() == [5, 3, 10, 10, 0]


def test_orders_worked_by_hand() -> None:
    found = compared(rung([1, 2, 3, 4, 5], 1e5), rung([5, 4, 3, 2, 1], 1e6))
    assert [found[each] for each in ("tau", "top", "kept", "reversed")] == pytest.approx([-1, 1 / 3, 0, 10])
    found = compared(rung([1, 2, 3, 4, 5], 1e5), rung([2, 1, 3, 4, 5], 1e6))
    assert found["tau"] == pytest.approx(8 / 10), "one of ten pairs reversed"
    assert (found["top"], found["kept"], found["reversed"]) == (1, 9, 1)


def test_means_that_differ_by_rounding_alone_share_a_place() -> None:
    lines = [rung([1, 2, 3], 1e6), rung([1, 2, 3], 1e5)]
    lines[1]["value"] = [0.1, 0.3, 1.0, 0.2, 0.2, 1.0, 0.3, 0.1, 1.0]
    assert compared(*lines)["tau"] == pytest.approx(2 / 6**0.5), "two of three pairs are in order, one is a tie"


def test_what_seeds_do_not_tell_apart_is_not_decided_and_has_a_wide_interval() -> None:
    noisy = [rung([1, 2, 3, 4, 5], size, noise=3.0, seeds=4) for size in (1e5, 1e6)]
    found = compared(*noisy)
    assert found["tau_high"] - found["tau_low"] > 0.8
    assert found["decided"] <= 3


def test_budgets_are_an_axis_of_their_own_and_rungs_without_a_neighbour_are_left_out() -> None:
    rungs = [rung([1, 2, 3, 4, 5], 1e5, budget) for budget in (5, 20)] + [rung([1, 2, 3, 4, 5], 1e6, 20)]
    found = transfer.compared(pd.concat(rungs))
    told = found[["axis", "at", "first", "second"]].to_numpy().tolist()
    assert told == [["size", 20, 1e5, 1e6], ["budget", 1e5, 5, 20]]
    assert transfer.compared(rungs[0]).empty
    assert transfer.compared(pd.concat([rung([1, 2], 1e5), rung([1, 2], 1e6)])).empty, "two encoders are no ranking"


def test_the_first_rung_is_compared_with_all_others_and_each_other_with_the_next() -> None:
    found = transfer.compared(pd.concat([rung([1, 2, 3, 4, 5], size) for size in (1e5, 1e6, 1e7, 1e8)]))
    told = set(zip(found["first"], found["second"], strict=True))
    assert told == {(1e5, 1e6), (1e5, 1e7), (1e5, 1e8), (1e6, 1e7), (1e7, 1e8)}


def test_a_gap_costs_the_fewest_values_and_one_seed_has_no_interval() -> None:
    whole, first = rung([1, 2, 3, 4, 5], 1e6), rung([1, 2, 3, 4, 5], 1e5)
    found = compared(first[(first["encoder"] != "a") | (first["seed"] == 0)], whole)
    assert (found["encoders"], found["seeds"]) == (4, 3), "12 values without the encoder that has one seed, 5 with it"
    found = compared(first[(first["encoder"] == "a") | (first["seed"] == 0)], whole)
    assert (found["encoders"], found["seeds"]) == (5, 1), "5 values of the first seed, 3 of the encoder that has all"
    found = compared(rung([1, 2, 3, 4, 5], 1e5, seeds=1), rung([1, 2, 3, 4, 5], 1e6, seeds=1))
    assert (found["tau"], found["decided"]) == (pytest.approx(1), 0)
    assert np.isnan(found["tau_low"])


def test_a_power_law_is_found_and_its_interval_is_that_over_seeds() -> None:
    lines = []
    for seed, exponent in enumerate((0.10, 0.12, 0.14)):
        for size in (1e5, 1e6, 1e7):
            line = {"task": "text", "multiple": 1, "parameters": size, "budget": 5.0, "encoder": "a", "seed": seed}
            lines.append(line | {"value": 2.0 * (size / 1e6) ** -exponent})
    (found,) = laws(pd.DataFrame(lines)).to_dict("records")
    assert (found["sizes"], found["seeds"]) == (3, 3)
    assert found["exponent"] == pytest.approx(0.12)
    assert found["at_one_million"] == pytest.approx(2.0)
    half = 4.302653 * 0.02 / np.sqrt(3)  # Student's t, two degrees of freedom
    assert (found["low"], found["high"]) == (pytest.approx(0.12 - half), pytest.approx(0.12 + half))
    assert laws(pd.DataFrame([line for line in lines if line["parameters"] < 1e7])).empty, "two sizes are no fit"


def test_the_section_says_what_rows_say(tmp_path: Path) -> None:
    for layers, width in ((3, 64), (4, 112), (6, 192)):
        model = {"num_layers": layers, "model_dim": width, "ffn_multiple": 4}
        parameters = layers * 12 * width**2
        for place, encoder in enumerate(("none", "rope", "alibi", "t5")):
            for seed in range(3):

                def bits(rows: list[Row], value: float = 3 + place / 10 + seed / 100 - layers / 5) -> list[Row]:
                    kept = [row for row in rows if row.experiment == "length_extrapolation" and row.position is None]
                    kept = [row for row in kept if row.metric == "token_accuracy"]
                    return [replace(row, metric="bits_per_byte", value=value, chance=5.0) for row in kept]

                config = {"model": model, "train": {"steps": round(5 * parameters / 1000), "tokens_per_step": 1000}}
                run_id = f"{encoder}-text-seed{seed}-{layers}"
                write_run(tmp_path, encoder, seed, task="text", rows=bits, config=config, run_id=run_id)
    told = section.told(load(tmp_path))
    assert told.heading == "All 6 pairs that 0.15M parameters tell apart keep their order at 2.7M, at 4× the length"
    assert told.findings[0].head.startswith("Kendall's τ 1.00")
    assert told.findings[0].small == "In range 1.00 [1.00, 1.00], 6 of 6 pairs. 3 seeds."
    (found,) = told.sections
    assert found.title == "Does this transfer?"
    said = found.paragraphs[0]
    assert len(found.paragraphs) == 2, "in range and at 4×"
    assert said.startswith("text, in range, 5 tokens a parameter: from 0.15M to 2.7M parameters the ranking of 4 ")
    assert "encoders has Kendall's τ 1.00" in said
    assert "Of 6 pairs that the smaller size tells apart, 6 keep their order and 0 reverse it." in said
    pairs, scaling = found.parts
    assert len(pairs.data) == 6, "two steps in size and both at once, in range and at 4×"
    assert set(scaling.data["encoder"]) == {"none", "rope", "alibi", "t5"}
    assert (scaling.data["budget"] == 5).all()


def test_sizes_that_were_trained_for_as_many_tokens_are_compared_too(tmp_path: Path) -> None:
    """As by `model.model_dim=64,128`, where no two sizes have as many tokens for each parameter."""
    for width in (64, 128):
        for place, encoder in enumerate(("none", "rope", "alibi", "t5")):
            for seed in range(3):

                def right(rows: list[Row], value: float = 0.3 + place / 10 + seed / 100) -> list[Row]:
                    kept = [row for row in rows if row.experiment == "length_extrapolation" and row.position is None]
                    return [replace(row, value=value) for row in kept if row.metric == "token_accuracy"]

                model = {"num_layers": 3, "model_dim": width, "ffn_multiple": 4}
                config = {"model": model, "train": {"steps": 2000, "tokens_per_step": 256}}
                write_run(tmp_path, encoder, seed, rows=right, config=config, run_id=f"{encoder}-{width}-{seed}")
    told = section.told(load(tmp_path))
    assert told.heading == "All 6 pairs that 0.15M parameters tell apart keep their order at 0.59M, at 4× the length"
    (found,) = told.sections
    assert found.paragraphs[0].startswith("copy, in range, 512,000 tokens: from 0.15M to 0.59M parameters the ranking")
    (pairs, *_) = found.parts
    assert set(pairs.cells["both with"]) == {"512,000 tokens"}
