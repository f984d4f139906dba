"""Statements put to the test: rules, intervals, which rows decide, and that verdicts can come out either way."""

from __future__ import annotations

import math
import re
import shutil
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from scipy import stats as scipy_stats
from support import ROOT, Command, read_page, write_run, write_sweep

import pe_zoo
import report
from experiments.rows import results
from experiments.rows.row import METRICS, Row
from experiments.runs import arguments
from experiments.statistics.statements import schema
from experiments.statistics.statements.schema import thresholds
from experiments.statistics.statements.verdicts import Outcome, case_by_case, decide
from experiments.tasks import tasks

QUALITY = {"experiment": "length_extrapolation", "metric": "token_accuracy", "condition": ""}


def made(metric: str, *values: float, encoder: str = "rope", **more: Any) -> Any:
    """A change of a run's rows: those of one measurement in place of all."""

    def change(rows: list[Row]) -> list[Row]:
        first = replace(rows[0], experiment="structure", metric=metric, step=None, eval_length=16)
        return [replace(first, value=value, **more) for value in values]

    return change


@dataclass(frozen=True)
class Found:
    """What one test came to."""

    outcome: str
    reason: str
    measured: float
    low: float
    high: float
    seeds: int
    unlearned: int


def written(folder: Path, entry: dict[str, Any]) -> Path:
    """A folder of statements with one file."""
    folder.mkdir(exist_ok=True)
    content = {"name": "one", "parts": ["encoder=rope"], "statements": [entry]}
    (folder / "one.yaml").write_text(yaml.safe_dump(content, allow_unicode=True))
    return folder


def finding(folder: Path, **test: Any) -> Found:
    """What one test comes to."""
    entry = {"statement": "It is so", "source": "somebody", "tests": [{"of": "always", **test}]}
    (decided,) = decide(schema.load(written(folder / "statements", entry)), results.read(folder))
    (outcome,) = decided.outcomes
    (measured,) = outcome.entries
    return Found(
        outcome.verdict,
        outcome.reason or outcome.compared[0].verdict,
        measured.measured,
        measured.low,
        measured.high,
        measured.seeds,
        measured.unlearned,
    )


def values(folder: Path, encoder: str, *of_seeds: float, metric: str = "loss", **changed: Any) -> None:
    """A run for each value, with that one measurement."""
    for seed, value in enumerate(of_seeds):
        write_run(folder, encoder, seed, rows=made(metric, value), **changed)


@pytest.mark.parametrize(
    ("rule", "read"),
    [
        ("below 0.5", [("below 0.5", 0.5, -1)]),
        ("above 1e-6", [("above 1e-6", 1e-6, 1)]),
        ("above -1", [("above -1", -1.0, 1)]),
        ("within 6.28 to 6.29", [("above 6.28", 6.28, 1), ("below 6.29", 6.29, -1)]),
    ],
)
def test_a_rule_is_read_as_thresholds(rule: str, read: list[tuple[str, float, int]]) -> None:
    assert thresholds(rule) == read


@pytest.mark.parametrize("rule", ["about 3", "below", "below three", "within 1", "below 1 or so"])
def test_a_rule_that_means_nothing_is_refused(rule: str) -> None:
    with pytest.raises(ValueError, match="none of 'below X'"):
        thresholds(rule)


@pytest.mark.parametrize("rule", ["within 1.1 to 0.9", "within 1 to 1"])
def test_a_rule_that_nothing_meets_is_refused(rule: str) -> None:
    with pytest.raises(ValueError, match=rf"'{rule}' holds for nothing: the first bound must be below the second"):
        thresholds(rule)


LOSS = {"experiment": "structure", "metric": "loss"}


@pytest.mark.parametrize(
    ("rule", "verdict"),
    [
        ("below 2.6", "holds"),
        ("below 2.4", "fails"),
        ("above 2.4", "holds"),
        ("above 2.6", "fails"),
        ("within 2.4 to 2.6", "holds"),
        ("within 2.6 to 2.9", "fails"),
        ("within 2.1 to 2.51", "undecided"),
        ("below 2.51", "undecided"),
    ],
)
def test_a_threshold_is_met_missed_or_neither(tmp_path: Path, rule: str, verdict: str) -> None:
    values(tmp_path, "rope", 2.48, 2.50, 2.52)
    found = finding(tmp_path, rows=LOSS, rule=rule)
    assert (found.outcome, found.seeds) == (verdict, 3)
    # The interval of a mean that is bounded below is symmetric in the logarithm: t(.975, 2) = 4.3027 times .02 / √3.
    factor = math.exp(4.30265 * 0.02 / math.sqrt(3) / 2.5)
    assert (found.measured, found.low, found.high) == (
        pytest.approx(2.5),
        pytest.approx(2.5 / factor, rel=1e-5),
        pytest.approx(2.5 * factor, rel=1e-5),
    )


def test_p_is_that_of_welchs_test_corrected_within_the_statement(tmp_path: Path) -> None:
    values(tmp_path, "rope", 2.48, 2.50, 2.52)
    values(tmp_path, "none", 2.50, 2.56, 2.57, 2.58)
    contestants = {name: {"encoder": name} for name in ("none", "rope")}
    rule = {"of": "it", "rows": LOSS, "rule": {"higher": [["none"], ["rope"]]}, "contestants": contestants}
    other = {"of": "x", "rows": LOSS | {"encoder": "rope"}, "rule": "below 2.6"}
    entry = {"statement": "It is so", "source": "somebody", "tests": [rule, other]}
    (decided,) = decide(schema.load(written(tmp_path / "statements", entry)), results.read(tmp_path))
    pair, one = (case.compared[0] for case in decided.outcomes)
    p = scipy_stats.ttest_ind([2.48, 2.5, 2.52], [2.50, 2.56, 2.57, 2.58], equal_var=False).pvalue
    p_one = scipy_stats.ttest_1samp([2.48, 2.5, 2.52], 2.6).pvalue
    assert (pair.p_holm, one.p_holm) == (pytest.approx(max(p, 2 * p_one)), pytest.approx(2 * p_one))
    assert (pair.difference, one.difference) == (pytest.approx(0.0525), pytest.approx(0.1))


def test_equal_is_within_delta_and_exactly_alike_needs_none(tmp_path: Path) -> None:
    values(tmp_path, "rope", 2.48, 2.50, 2.52)
    values(tmp_path, "none", 2.49, 2.51, 2.50)
    contestants = {name: {"encoder": name} for name in ("none", "rope")}
    pair = {"rows": LOSS, "contestants": contestants, "rule": {"lower": [["none"], ["rope"]]}}
    for delta, verdict in ((0.2, "equal"), (0.01, "undecided")):
        entry = {"statement": "It is so", "source": "somebody", "tests": [{"of": "it", **pair, "delta": delta}]}
        (decided,) = decide(schema.load(written(tmp_path / "statements", entry)), results.read(tmp_path))
        assert decided.verdict == verdict
    values(tmp_path / "same", "rope", 1, 1, 1)
    assert finding(tmp_path / "same", rows=LOSS, rule="below 1").outcome == "equal"


def test_a_factor_multiplies_the_later_groups(tmp_path: Path) -> None:
    values(tmp_path, "rope", 2.48, 2.50, 2.52)
    values(tmp_path, "none", 2.69, 2.70, 2.71)
    contestants = {name: {"encoder": name} for name in ("none", "rope")}
    for factor, verdict in ((1.15, "holds"), (1.02, "fails")):
        test = {"of": "it", "rows": LOSS, "contestants": contestants, "rule": {"lower": [["none"], ["rope"]]}}
        entry = {"statement": "It is so", "source": "somebody", "tests": [test | {"factor": factor}]}
        (decided,) = decide(schema.load(written(tmp_path / "statements", entry)), results.read(tmp_path))
        assert decided.verdict == verdict
        assert decided.outcomes[0].compared[0].comparison == f"none lower than {factor} times rope"


def test_the_evaluations_noise_is_that_of_answers_and_of_nothing_else(tmp_path: Path) -> None:
    """Of 512 answers all may be right by chance; a share of variance that is 1 in every run is 1."""
    for metric, verdict in (("token_accuracy", "undecided"), ("translation_invariance", "holds")):
        values(tmp_path / metric, "rope", 1.0, 1.0, 1.0, metric=metric)
        rows = {"experiment": "structure", "metric": metric}
        assert finding(tmp_path / metric, rows=rows, rule="above 0.9999").outcome == verdict


def test_one_seed_decides_only_what_needs_no_training(tmp_path: Path) -> None:
    values(tmp_path / "a", "rope", 0.5)
    assert finding(tmp_path / "a", rows=LOSS, rule="below 0.6").reason == "fewer than 3 seeds"
    values(tmp_path / "b", "rope", 0.5, config={"train": None})
    assert finding(tmp_path / "b", rows=LOSS, rule="below 0.6").outcome == "holds"
    assert finding(tmp_path / "b", rows=LOSS, rule="below 0.4").outcome == "fails"


def test_runs_that_did_not_learn_are_left_out_and_counted(tmp_path: Path) -> None:
    values(tmp_path, "rope", 0.50, 0.51, 0.52)
    write_run(tmp_path, "rope", 3, rows=made("loss", 5.0), record={"converged": False})
    found = finding(tmp_path, rows=LOSS, rule="below 0.6")
    assert (found.outcome, found.seeds, found.unlearned) == ("holds", 3, 1)
    found = finding(tmp_path, rows=LOSS, rule="below 0.6", even_if_not_learned=True)
    assert (found.outcome, found.seeds, found.unlearned) == ("undecided", 4, 0)
    values(tmp_path / "b", "rope", 0.50, 0.51, 0.52, record={"converged": False})
    found = finding(tmp_path / "b", rows=LOSS, rule="below 0.6")
    assert (found.outcome, found.reason, found.unlearned) == ("undecided", "did not learn", 3)


def test_two_values_of_a_run_are_combined_within_it(tmp_path: Path) -> None:
    def two(rows: list[Row], ours: float, theirs: float) -> list[Row]:
        first = made("loss", ours)(rows)[0]
        return [first, replace(first, condition="shuffle", value=theirs)]

    for seed, (ours, theirs) in enumerate(((0.9, 0.5), (0.5, 0.1), (0.7, 0.3))):
        write_run(tmp_path, "none", seed, rows=partial(two, ours=ours, theirs=theirs))
        write_run(tmp_path, "rope", seed, rows=made("loss", theirs))
    rows = LOSS | {"encoder": "none", "condition": ""}
    found = finding(tmp_path, rows=rows, against={"condition": "shuffle"}, rule="above 0.3")
    assert (found.outcome, found.measured) == ("holds", pytest.approx(0.4))
    found = finding(tmp_path, rows=rows, against={"condition": "shuffle"}, **{"as": "ratio"}, rule="above 1")
    assert found.measured == pytest.approx((0.9 / 0.5 + 5 + 0.7 / 0.3) / 3)
    found = finding(tmp_path, rows=rows, against={"encoder": "rope"}, rule="above 0.3")
    assert (found.outcome, found.reason) == ("undecided", "against names other runs: make them contestants")


@pytest.mark.parametrize(("take", "value"), [("max", 3.0), ("min", 1.0), ("mean", 2.0), ("range", 2.0)])
def test_what_is_taken_of_a_seeds_rows(tmp_path: Path, take: str, value: float) -> None:
    write_run(tmp_path, rows=made("output_change", 1.0, 2.0, 3.0), config={"train": None})
    rows = {"experiment": "structure", "metric": "output_change"}
    assert finding(tmp_path, rows=rows, take=take, rule="below 9").measured == value
    found = finding(tmp_path, rows=rows, rule="below 9")
    assert (found.outcome, found.reason) == ("undecided", "several rows for a seed, and no take: blank at 16")


def test_a_mean_is_over_everything_or_there_is_none(tmp_path: Path) -> None:
    def hard_one_refused(rows: list[Row]) -> list[Row]:
        easy, hard = made("output_change", 0.9, math.nan)(rows)
        return [easy, replace(hard, status="unsupported")]

    write_run(tmp_path, rows=hard_one_refused, config={"train": None})
    rows = {"experiment": "structure", "metric": "output_change"}
    found = finding(tmp_path, rows=rows, take="mean", rule="above 0.8")
    assert (found.outcome, found.reason) == ("undecided", "no value: unsupported")
    assert finding(tmp_path, rows=rows, take="max", rule="above 0.8").outcome == "holds"


def test_a_statement_holds_for_one_numbering(tmp_path: Path) -> None:
    for seed in range(2):
        write_run(tmp_path, "rope", seed, rows=made("output_change", 0.9))
        randomized = made("output_change", 0.1, positions="randomized")
        config, record = {"positions": {"name": "randomized"}}, {"positions": "randomized"}
        write_run(tmp_path, "rope", seed, rows=randomized, run_id=f"r{seed}", config=config, record=record)
    rows = {"experiment": "structure", "metric": "output_change", "encoder": "rope"}
    assert finding(tmp_path, rows=rows, take="mean", rule="above 0.8").measured == 0.9
    named = rows | {"positions.name": "randomized"}
    assert finding(tmp_path, rows=named, take="mean", rule="above 0.8").measured == 0.1


def test_several_settings_make_no_number(tmp_path: Path) -> None:
    for seed, width in product(range(2), (64, 128)):
        config = {"model": {"model_dim": width}}
        write_run(tmp_path, "rope", seed, rows=made("output_change", 0.9), config=config, run_id=f"{width}-{seed}")
    found = finding(tmp_path, rows={"metric": "output_change"}, take="mean", rule="above 0.8")
    assert (found.outcome, found.seeds, "several settings" in found.reason) == ("undecided", 0, True)


def test_unsupported_is_a_measurement(tmp_path: Path) -> None:
    write_run(tmp_path, rows=made("output_change", math.nan, status="unsupported"), config={"train": None})
    rows = {"experiment": "structure", "metric": "output_change"}
    assert finding(tmp_path, rows=rows, take="unsupported", rule="above 0.99").outcome == "holds"
    found = finding(tmp_path, rows=rows, take="max", rule="above 0.99")
    assert (found.outcome, found.reason) == ("undecided", "no value: unsupported")


def test_a_table_is_compared_cell_by_cell(tmp_path: Path) -> None:
    def codes(rows: list[Row]) -> list[Row]:
        first = replace(rows[0], experiment="structure", metric="loss", eval_length=16)
        cells = {(0, 0): 0.0, (0, 1): 1.0, (1, 0): 0.8414, (1, 1): 0.5404}
        return [replace(first, position=p, dimension=d, value=v) for (p, d), v in cells.items()]

    write_run(tmp_path, rows=codes, config={"train": None})
    rows = {"experiment": "structure", "metric": "loss"}
    found = finding(tmp_path, rows=rows, table={0: [0.0, 1.0], 1: [0.8415, 0.5403]}, rule="below 2e-4")
    assert (found.outcome, found.measured) == ("holds", pytest.approx(1e-4))
    assert finding(tmp_path, rows=rows, table={1: [0.5403, 0.8415]}, rule="below 2e-4").outcome == "fails"
    assert finding(tmp_path, rows=rows, table={2: [0.9]}, rule="below 2e-4").outcome == "undecided"


def test_rows_are_chosen_by_slices_multiples_and_configuration(tmp_path: Path) -> None:
    def two(rows: list[Row]) -> list[Row]:
        first = replace(rows[0], experiment="structure", metric="output_change")
        sliced = [
            replace(first, condition=condition, layer=layer, value=value)
            for condition, layer, value in (("", None, 1.0), ("shuffle", 2, 2.0), ("", 2, 3.0))
        ]
        return [*sliced, replace(first, condition="shuffle", eval_length=64, value=4.0)]

    for causal in (True, False):
        config = {"train": None, "model": {"causal": causal}}
        write_run(tmp_path, rows=two, config=config, run_id=f"r{causal}")
    rows = {"experiment": "structure", "metric": "output_change", "model.causal": False}
    for chosen, value in (
        ({"condition": None, "layer": None}, 1.0),
        ({"condition": "shuffle", "layer": 2}, 2.0),
        ({"condition": None, "layer": [2, 3]}, 3.0),
        ({"condition": "shuffle", "multiple": 4}, 4.0),
    ):
        assert finding(tmp_path, rows=rows | chosen, rule="below 9").measured == value
    assert finding(tmp_path, rows=rows | {"layer": 7}, rule="below 9").outcome == "not measured"
    assert finding(tmp_path, rows=rows | {"head": 0}, rule="below 9").outcome == "not measured"
    del rows["model.causal"]
    found = finding(tmp_path, rows=rows, take="max", rule="below 9")
    assert (found.outcome, "several settings" in found.reason) == ("undecided", True)


@pytest.mark.parametrize(
    ("verdicts", "overall"),
    [
        (("holds", "holds"), "holds"),
        (("fails", "fails"), "fails"),
        (("holds", "fails"), "holds only if: case 0"),
        (("fails", "holds", "not measured", "holds"), "holds only if: case 1; case 3"),
        (("fails", "holds", "undecided", "holds"), "holds if: case 1; case 3 (undecided if: case 2)"),
        (("fails", "holds", "open", "undecided"), "holds if: case 1 (undecided if: case 3; open if: case 2)"),
        (("fails", "undecided"), "undecided"),
        (("fails", "undecided", "open"), "open"),
        (("holds", "undecided"), "undecided"),
        (("holds", "not measured"), "holds"),
        (("not measured", "not measured"), "not measured"),
        (("equal", "equal"), "equal"),
        (("equal", "fails"), "fails"),
        (("equal", "holds"), "holds only if: case 1"),
        (("equal", "undecided"), "undecided"),
    ],
)
def test_the_verdict_over_cases(verdicts: tuple[str, ...], overall: str) -> None:
    cases = tuple(Outcome({"of": f"case {i}"}, (), verdict, "") for i, verdict in enumerate(verdicts))
    assert case_by_case(cases) == overall


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"claim": "x"}, "no key 'claim' of a statement"),
        ({"tests": []}, "the key 'tests' of a statement is missing"),
        ({"setting": {"there": "x"}}, "the key 'checked' of a setting is missing"),
        ({"test": {"hold": "below 1"}}, "no key 'hold' of a test"),
        ({"test": {"rule": "below"}}, "none of 'below X'"),
        ({"test": {"rows": {"metric": "los"}}}, "metric 'los' is not known"),
        ({"test": {"take": "most"}}, "take: 'most'"),
        ({"test": {"as": "sum"}}, "as: 'sum'"),
        ({"test": {"table": {0: [1]}, "take": "max"}}, "without take and against"),
        ({"test": {"delta": 0}}, "delta: 0 must be above 0"),
        ({"numbers": "text"}, "nothing is published"),
        ({"test": {"published": {"": 1.5}}}, "numbers: '' is not one of text, code, data, from memory"),
    ],
)
def test_a_malformed_statement_is_refused_by_name(tmp_path: Path, changed: dict[str, Any], complaint: str) -> None:
    test = {"of": "it", "rows": {"metric": "loss"}, "rule": "below 1"} | changed.pop("test", {})
    entry = {"statement": "It is so", "source": "somebody", "tests": [test]} | changed
    with pytest.raises(ValueError, match=complaint) as refused:
        schema.load(written(tmp_path, entry))
    assert str(refused.value).startswith("one.yaml: ")
    assert "'It is so'" in str(refused.value)


def test_each_statement_has_a_source_and_known_metrics() -> None:
    statements = schema.load()
    assert len(statements) > 37
    assert len({each.statement for each in statements}) == len(statements)
    for each in statements:
        assert each.source
        assert each.tests
        for test in each.tests:
            assert test["rows"]["metric"] in METRICS


def test_the_page_has_a_line_a_case_and_counts_the_verdicts(tmp_path: Path) -> None:
    write_sweep(tmp_path, ("none", "sinusoidal", "rope"), 3)
    assert report.main([str(tmp_path)]) == 0
    page = read_page(tmp_path)
    assert "Published statements that these runs test: " in (tmp_path / "report" / "report.md").read_text()
    tested = [line[2] for line in page.tables["Published statements"]]
    assert "copy, against rope" in tested
    assert "copy, against learned" not in tested
    assert "copy, against rope: “none” higher than rope" in page.text
    assert "not measured here: python run.py -m +sweep=claims" in page.text
    assert (tmp_path / "report" / "tables" / "statements.csv").is_file()


def test_the_first_screen_says_what_becomes_of_a_claim_and_its_card_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_sweep(tmp_path, ("none", "sinusoidal", "rope"), 3)
    assert report.main([str(tmp_path)]) == 0
    measured = r"copy, sinusoidal: token accuracy, as a multiple of that at the training length [\d.]+ \[[\d., ]+\]"
    said = (
        rf"“Sinusoidal encodings extrapolate”: fails on {measured}; needed: above 0\.9 \(1 of its 3 cases measured\)\."
    )
    assert re.search(said, capsys.readouterr().out)
    missing = (
        "Not measured here: reverse, sinusoidal; text, sinusoidal (bits per byte at twice the length, as a multiple). "
        "All: docs/results.md, or python run.py -m +statements=length (--plan: how long)."
    )
    assert (tmp_path / "report/index.html").read_text().count(missing) == 1


def test_a_folder_that_decides_no_claim_says_nothing_of_claims(tmp_path: Path) -> None:
    write_run(tmp_path, "shaw", rows=lambda rows: [row for row in rows if row.experiment == "training"])
    assert report.main([str(tmp_path)]) == 0
    assert "Claims" not in read_page(tmp_path).text


def test_a_statement_that_cannot_be_read_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path, "rope")
    written(tmp_path / "statements", {"statement": "It is so", "source": "me", "test": []})
    monkeypatch.setattr(schema, "load", partial(schema.load, tmp_path / "statements"))
    assert report.main([str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: one.yaml: 'It is so': no key 'test'")
    assert said.count("\n") == 1


SWEEPS = sorted(path for path in (ROOT / "configs" / "sweep").glob("*.yaml") if "parts:" in path.read_text())


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_every_part_of_a_sweep_composes(command: Command, path: Path) -> None:
    """With the first of each list of values; a part is left out if each of its groups is set so in one before it."""
    text = path.read_text()
    assert text.startswith("# @package _global_\n# ")
    seen: set[tuple[str, ...]] = set()
    for line in arguments.expand([f"+sweep={path.stem}"], ROOT / "configs"):
        first = [word if "[" in word else word.partition(",")[0] for word in line]
        groups: dict[str, list[str]] = {}
        for word in first:
            groups.setdefault(re.split("[.=]", word)[0], []).append(word)
        if {*map(tuple, groups.values())} <= seen:
            continue
        seen |= {*map(tuple, groups.values())}
        done = command("--cfg", "job", *first)
        assert done.code == 0, done.err
        assert yaml.safe_load(done.out)["name"] == yaml.safe_load(text)["name"]


def test_a_sweep_of_parts_is_run_part_by_part(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [
        "encoder=none,rope seed=1 model=tiny experiment=structure",
        "encoder=alibi encoder.max_bias=4 model=tiny experiment=structure",
    ]
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    (tmp_path / "configs" / "sweep" / "two.yaml").write_text(yaml.safe_dump({"name": "two", "parts": parts}))
    monkeypatch.setattr("run.CONFIGS", tmp_path / "configs")
    assert command("-m", "+sweep=two").code == 0
    done = command("-m", "+sweep=two", "seed=7", "name=mine")
    assert done.code == 0, done.err
    found = {
        name: sorted(run.name for run in (tmp_path / "results" / name / "runs").iterdir()) for name in ("two", "mine")
    }
    assert [run.rpartition("-")[0] for run in found["two"]] == [
        "alibi-copy-seed0",
        "none-copy-seed1",
        "rope-copy-seed1",
    ]
    assert [run.rpartition("-")[0] for run in found["mine"]] == [
        "alibi-copy-seed7",
        "none-copy-seed7",
        "rope-copy-seed7",
    ]
    done = command("-m", "+sweep=two", "encoder=rope", "name=wrong")
    assert done.code == 2, "the second part has an option that rope has not"
    assert "encoder.max_bias" in done.err
    assert done.err.count("\n") == 1


def test_what_is_given_replaces_what_a_part_says() -> None:
    lines = arguments.expand(["+sweep=claims_untrained", "seed=7", "name=mine"], ROOT / "configs")
    assert len(lines) == len(yaml.safe_load((ROOT / "configs/sweep/claims_untrained.yaml").read_text())["parts"])
    for line in lines:
        assert line[:2] == ["seed=7", "name=mine"]
        assert len({argument.partition("=")[0] for argument in line}) == len(line)
    assert arguments.expand(["+sweep=classic"], ROOT / "configs") == [["+sweep=classic"]]
    assert arguments.expand(["encoder=rope"], ROOT / "configs") == [["encoder=rope"]]


def test_a_file_declares_how_seeds_are_added() -> None:
    def declared(*words: str) -> set[str]:
        lines = arguments.expand(list(words), ROOT / "configs")
        return {word for line in lines for word in line if word.partition("=")[0] in ("against", "looks", "weights")}

    grown = "seeds=until_decided"
    assert declared("+statements=haviv_probe", grown) == declared("+sweep=claims", grown) == {"against=statements"}
    assert declared("+statements=cho_coupled", grown, "looks=[5]") == {
        *("against=statements", "looks=[5]", "weights=[0.2, 0.15, 0.15, 0.2, 0.3]")
    }
    assert declared("+statements=cho_coupled") == declared("+sweep=claims") == set()


def test_every_part_goes_with_each_of_the_times(tmp_path: Path) -> None:
    content = {"name": "all", "parts": ["task=copy", "task=sort seed=1"], "times": ["encoder=none", "encoder=rope"]}
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "all.yaml").write_text(yaml.safe_dump(content))
    lines = arguments.expand(["+sweep=all", "encoder=t5"], tmp_path)
    assert lines == [
        ["encoder=t5", "name=all", "task=copy"],
        ["encoder=t5", "name=all", "task=copy"],
        ["encoder=t5", "name=all", "task=sort", "seed=1"],
        ["encoder=t5", "name=all", "task=sort", "seed=1"],
    ]
    whole = arguments.expand(["+sweep=all"], tmp_path)
    assert [line[-1] for line in whole if "task=copy" in line] == ["encoder=none", "encoder=rope"]
    assert arguments.expand(["+sweep=all"], tmp_path, ROOT / "configs") == whole, "a user's own folder"
    assert arguments.expand(["+sweep=tasks"], tmp_path, ROOT / "configs") != [["+sweep=tasks"]], "and ours"


def test_every_task_is_in_a_sweep_and_every_encoder_on_the_main_ones() -> None:
    sweeps = ("decided", "decided_more", "retrieval", "tasks", "bidirectional", "grid")
    lines = [line for sweep in sweeps for line in arguments.expand([f"+sweep={sweep}"], ROOT / "configs")]
    asked = [dict(word.split("=", 1) for word in line if "=" in word) for line in lines]
    assert {one["task"] for one in asked if "task" in one} == set(tasks.names())
    assert {one["task"] for one in asked if one["encoder"] == ",".join(pe_zoo.names())} == {
        *("copy", "text", "associative_recall", "reverse"),
        *("flip_flop", "selective_copy", "indirect_indexing", "passkey"),
    }


def test_all_encoders_are_a_list_of_runs(command: Command) -> None:
    lines = arguments.expand(["encoder=all", "seed=0,1"], ROOT / "configs")
    assert lines == [[f"encoder={','.join(pe_zoo.names())}", "seed=0,1"]]
    done = command("encoder=all")
    assert (done.code, done.err) == (2, "error: encoder=all is a list of runs: add -m to run them all\n")


def test_a_sweep_of_parts_wants_m(command: Command) -> None:
    done = command("+sweep=claims")
    assert (done.code, done.err) == (2, "error: +sweep=claims is a list of runs: add -m to run them all\n")
