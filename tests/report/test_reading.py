"""What reads longer texts with the fewest bits: worked differences, and the section made from rows."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from experiments.report import build
from experiments.report.sections import reading
from experiments.rows import results as stored
from experiments.rows import rungs
from experiments.rows.results import Results
from experiments.rows.rungs import Rung

SMALL, LARGE = Rung(1e5, 5.0), Rung(1e6, 5.0)


def test_ways_are_compared_seed_by_seed_and_the_surest_size_orders_them() -> None:
    """By hand: differences of .1, .2, .3 have mean .2 and deviation .1; t(2) at 97.5 % is 4.303."""
    small = pd.DataFrame({"rope with a window": [1.0, 2.0, 3.0], "rope": [1.1, 2.2, 3.3], "fox": [0.9, 2.1, 2.7]})
    large = pd.DataFrame({"rope with a window": [1.0], "rope": [1.5], "fox": [0.6]})
    lines = reading.compared({SMALL: small, LARGE: large}, "rope with a window")
    assert list(lines["way"].unique()) == ["fox", "rope with a window", "rope"]
    (first, second) = lines[lines["way"] == "rope"].to_dict("records")
    assert first["difference"] == pytest.approx(0.2)
    assert first["high"] - first["difference"] == pytest.approx(4.302653 * 0.1 / 3**0.5)
    assert (first["seeds"], first["fewer"], first["mean"]) == (3, 0, pytest.approx(2.2))
    assert second["difference"] == pytest.approx(0.5)
    assert second["low"] != second["low"], "one seed has no interval"
    assert lines[lines["way"] == "fox"]["fewer"].tolist() == [2, 1]


def test_a_change_that_changes_nothing_has_no_line() -> None:
    table = pd.DataFrame({"none": [1.0, 2.0], "none with a window": [1.0, 2.0], "rope with a window": [1.0, 1.0]})
    table["rope"] = [2.0, 2.0]
    lines = reading.compared({SMALL: table}, "rope with a window")
    assert set(lines["way"]) == {"none", "rope", "rope with a window"}


def test_two_budgets_of_one_size_have_a_column_each() -> None:
    few = pd.DataFrame({"rope with a window": [1.0], "rope": [2.0]})
    lines = reading.compared({SMALL: few, Rung(1e5, 20.0): few / 2}, "rope with a window")
    cells = reading._cells(lines, "rope with a window")
    assert list(cells) == ["read by", "0.1M, 5 tokens a parameter, 1 seed", "0.1M, 20 tokens a parameter, 1 seed"]
    assert cells.iloc[0, 1:].tolist() == ["1.000", "0.500"]


@pytest.fixture(scope="module")
def shortlist() -> Results:
    return rungs.apart(stored.read(Path(__file__).parents[2] / "results" / "shortlist"))


def test_the_section_of_a_folder_of_sizes_says_who_needs_the_fewest_bits(shortlist: Results) -> None:
    opening = reading.told(shortlist)
    (section,) = opening.sections
    table = section.parts[0]
    assert isinstance(table, reading.Table)
    assert table.cells["read by"].iloc[0] == "rope with a window", "RoPE is what the methods extend"
    rows = shortlist.rows[(shortlist.rows["experiment"] == "context_extension") & shortlist.rows["part"].isna()]
    rows = rows[(rows["metric"] == "bits_per_byte") & (rows["eval_length"] == 512) & (rows["condition"] == "window")]
    means = rows[rows["encoder"] == "rope"].groupby("task")["value"].mean()
    shown = [float(cell) for cell in table.cells.iloc[0, 1:]]
    assert sorted(shown) == sorted(means.round(3)), "the first line has bits, and no difference from itself"
    assert opening.heading.startswith("At 4× the length and ")
    assert len(opening.findings) == 1
    seeds = shortlist.runs.groupby("task")["seed"].nunique()
    assert opening.task.endswith("(3.5M, 5 tokens a parameter)"), "the largest with the most seeds"
    assert seeds[opening.task] == seeds.max()
    page = build.build(shortlist, shortlist, build.tasks_of(shortlist), [])
    assert page.front is not None
    assert page.front.task[0] == opening.task, "the curve and the board are of what the heading is about"
    assert page.sections[0].title == section.title


def test_one_size_has_no_such_section(shortlist: Results) -> None:
    task = shortlist.runs["task"].iloc[0]
    one = replace(shortlist, rows=shortlist.rows[shortlist.rows["task"] == task])
    assert reading.told(one).sections == []


def test_without_a_window_on_what_is_extended_nothing_is_compared(shortlist: Results) -> None:
    plain = replace(shortlist, rows=shortlist.rows[shortlist.rows["condition"] != "window"])
    assert reading.told(plain).heading == ""
