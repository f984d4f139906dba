"""Published findings put to the test: rules both ways, what decides nothing, malformed files, and those there are."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from support import ROOT, Command, read_page, write_run

import report
from experiments.plan.prepare import prepare
from experiments.plan.request import RunConfig
from experiments.rows import results, sweeps
from experiments.rows.row import Row
from experiments.runs import arguments, job, record, summary
from experiments.runs.outcome import Outcome
from experiments.statistics.rule import Rule
from experiments.statistics.statements import schema
from experiments.statistics.statements.compare import compare
from experiments.statistics.statements.schema import NOT_MEASURED, Statement
from experiments.statistics.statements.values import Measured
from experiments.statistics.statements.verdicts import Decided, decide

QUALITY = "length_extrapolation"
ROWS = {"experiment": "structure", "metric": "output_change"}
SETTING = dict.fromkeys(("checked", "there", "here", "expected"), "said")
FINDING = {"statement": "said", "source": "said", "setting": SETTING}


def measured(folder: Path, values: Mapping[str, Any], metric: str = "output_change", **changed: Any) -> None:
    """A run of each encoder for each of its values, a seed each: the one row that counts."""
    for encoder, of_seeds in values.items():
        for seed, value in enumerate(of_seeds):

            def rows(rows: list[Row], value: float = value) -> list[Row]:
                return [replace(rows[0], experiment="structure", metric=metric, condition="", value=value)]

            write_run(folder, encoder, seed, rows=rows, **changed)


def decided(folder: Path, *tests: dict[str, Any]) -> Decided:
    """What a finding with these tests comes to in a folder."""
    tests = tuple({"of": f"test {number}", "rows": ROWS, "unit": "share"} | test for number, test in enumerate(tests))
    numbers = {"numbers": "from memory"} if any("published" in test for test in tests) else {}
    content = {
        "name": folder.name,
        "parts": ["encoder=rope"],
        "statements": [FINDING | numbers | {"tests": list(tests)}],
    }
    place = folder / "statements"
    place.mkdir(exist_ok=True)
    (place / f"{folder.name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    (found,) = decide(schema.load(place), results.read(folder))
    return found


def of(*encoders: str) -> dict[str, Any]:
    return {encoder: {"encoder": encoder} for encoder in encoders}


HIGH, MIDDLE, LOW = (0.90, 0.92, 0.91), (0.50, 0.90, 0.95), (0.10, 0.13, 0.12)


@pytest.mark.parametrize(
    ("rule", "none", "rope", "verdict"),
    [
        ({"higher": [["none"], ["rope"]]}, HIGH, LOW, "holds"),
        ({"higher": [["none"], ["rope"]]}, LOW, HIGH, "fails"),
        ({"higher": [["none"], ["rope"]]}, HIGH, MIDDLE, "undecided"),
        ({"lower": [["none"], ["rope"]]}, LOW, HIGH, "holds"),
        ({"lower": [["none"], ["rope"]]}, HIGH, LOW, "fails"),
        ({"holds": {"none": "above 0.8", "rope": "below 0.2"}}, HIGH, LOW, "holds"),
        ({"holds": {"none": "above 0.8", "rope": "below 0.2"}}, HIGH, HIGH, "fails"),
        ({"holds": {"none": "above 0.8", "rope": "below 0.7"}}, HIGH, MIDDLE, "undecided"),
        ({"higher": [["none"], ["rope"]]}, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), "equal"),
    ],
)
def test_a_rule_comes_out_both_ways(
    tmp_path: Path, rule: dict[str, Any], none: tuple[float, ...], rope: tuple[float, ...], verdict: str
) -> None:
    measured(tmp_path, {"none": none, "rope": rope})
    found = decided(tmp_path, {"contestants": of("none", "rope"), "rule": rule, "published": {"none": 0.75}})
    assert found.verdict == verdict
    entry = found.outcomes[0].entries[0]
    assert (entry.published, entry.measured, entry.seeds) == (0.75, pytest.approx(sum(none) / 3), 3)


def test_pairs_between_groups_count_and_those_within_do_not(tmp_path: Path) -> None:
    measured(tmp_path, {"none": HIGH, "t5": (0.60, 0.62, 0.61), "rope": LOW, "alibi": (0.73, 0.75, 0.74)})
    contestants = {"contestants": of("none", "t5", "rope", "alibi")}
    assert decided(tmp_path, contestants | {"rule": {"higher": [["t5", "none", "alibi"], ["rope"]]}}).verdict == "holds"
    found = decided(tmp_path, contestants | {"rule": {"higher": [["none", "t5"], ["alibi", "rope"]]}})
    assert found.verdict == "fails"
    assert [each.comparison for each in found.outcomes[0].compared if each.verdict == "fails"] == [
        "t5 higher than alibi"
    ]


def test_a_finding_is_tested_at_the_corrected_level(tmp_path: Path) -> None:
    # Welch's p of one comparison is .011, and Holm's correction of ten such makes it .11.
    measured(tmp_path, {"none": (0.50, 0.51, 0.52), "rope": (0.54, 0.55, 0.56)})
    test = {"contestants": of("none", "rope"), "rule": {"higher": [["none"], ["rope"]]}}
    assert decided(tmp_path, test).verdict == "fails"
    found = decided(tmp_path, *[test] * 10)
    assert (found.verdict, {outcome.verdict for outcome in found.outcomes}) == ("undecided", {"undecided"})


def test_a_finding_passes_if_all_of_its_tests_do(tmp_path: Path) -> None:
    measured(tmp_path, {"none": HIGH, "rope": LOW})
    right = {"contestants": of("none", "rope"), "rule": {"higher": [["none"], ["rope"]]}}
    wrong, absent = right | {"rule": {"lower": [["none"], ["rope"]]}}, right | {"rows": ROWS | {"metric": "loss"}}
    assert decided(tmp_path, right, right).verdict == "holds"
    assert decided(tmp_path, right, wrong).verdict == "fails"
    found = decided(tmp_path, right, absent)
    assert (found.verdict, found.outcomes[1].verdict) == ("undecided", "not measured")
    assert found.outcomes[1].reason == "no rows of none, rope"


def test_what_planned_runs_may_decide_is_open(tmp_path: Path) -> None:
    measured(tmp_path, {"none": HIGH, "rope": MIDDLE, "t5": LOW})
    close, clear = (
        {"contestants": of("none", other), "rule": {"higher": [["none"], [other]]}} for other in ("rope", "t5")
    )
    absent = clear | {"rows": ROWS | {"metric": "loss"}}
    for asked, verdict in (((), "undecided"), (("rope-copy-seed3",), "open")):
        sweeps.write(tmp_path, sweeps.Sweep("python run.py -m x", asked))
        assert [decided(tmp_path, clear, each).verdict for each in (close, absent)] == [verdict, verdict]


def test_runs_that_did_not_learn_and_single_seeds_decide_nothing(tmp_path: Path) -> None:
    test = {"contestants": of("none", "rope"), "rule": {"higher": [["none"], ["rope"]]}}
    measured(tmp_path / "a", {"none": HIGH, "rope": LOW}, record={"converged": False})
    found = decided(tmp_path / "a", test)
    assert (found.verdict, found.outcomes[0].compared[0].verdict) == ("undecided", "did not learn")
    assert [entry.unlearned for entry in found.outcomes[0].entries] == [3, 3]
    assert decided(tmp_path / "a", test | {"even_if_not_learned": True}).verdict == "holds"
    measured(tmp_path / "b", {"none": HIGH[:1], "rope": LOW[:1]})
    assert decided(tmp_path / "b", test).outcomes[0].compared[0].verdict == "fewer than 3 seeds"


RULE = {"question": "statements", "looks": [3, 5], "weights": [0.5, 0.5], "delta": None, "first_seed": 0}


def test_looks_that_a_sweep_declared_decide_and_say_what_is_needed(tmp_path: Path) -> None:
    """A difference that is clear is decided at the first look; a tie is open there, and ends as equal or undecided."""
    tie = {"contestants": of("none", "t5"), "rule": {"higher": [["none"], ["t5"]]}}
    clear = {"contestants": of("none", "rope"), "rule": {"higher": [["none"], ["rope"]]}}
    measured(tmp_path, {"none": HIGH, "rope": LOW, "t5": (0.92, 0.90, 0.91)})
    sweeps.write(tmp_path, sweeps.Sweep("python run.py -m x", ("a",), RULE))
    found = decided(tmp_path, clear, tie | {"delta": 0.02})
    assert (found.verdict, [case.verdict for case in found.outcomes]) == ("open", ["holds", "open"])
    (first,), (second,) = (case.compared for case in found.outcomes)
    assert (first.seeds, first.next_look, second.verdict, second.next_look) == (3, 0, "open", 5)
    assert second.concerns == {("copy", "none"), ("copy", "t5")}
    for encoder, values in {"none": (0.91, 0.91), "t5": (0.91, 0.90)}.items():
        for seed, value in enumerate(values, start=3):
            of_run = partial(lambda rows, value: [_row(rows, value)], value=value)
            write_run(tmp_path, encoder, seed, rows=of_run)
    assert decided(tmp_path, clear, tie | {"delta": 0.02}).verdict == "equal"
    found = decided(tmp_path, clear, tie)
    assert (found.verdict, found.outcomes[1].compared[0].next_look) == ("undecided", 0)
    against = {"contestants": of("none", "rope"), "rule": {"lower": [["none"], ["rope"]]}}
    assert [one.next_look for case in decided(tmp_path, against, tie).outcomes for one in case.compared] == [0, 0]


@pytest.mark.parametrize(("ours", "theirs", "verdict"), [(0.7, 0.4, "holds"), (0.4, 0.7, "fails"), (0.5, 0.5, "equal")])
def test_holds_fails_and_equal_are_all_reached(ours: float, theirs: float, verdict: str) -> None:
    """Three deviations apart either way, or alike with a delta of one and a half: decided by 20 seeds."""
    random = np.random.default_rng(0)
    test = {"rule": {"higher": [["a"], ["b"]]}, "delta": 0.15}
    rule = Rule("statements")
    verdicts, wrong, repeats = [], {"holds": "fails", "fails": "holds", "equal": "holds"}[verdict], 60
    for _ in range(repeats):
        found = {
            name: Measured(pd.Series(random.normal(mean, 0.1, 20)), seeds=frozenset(range(20)))
            for name, mean in (("a", ours), ("b", theirs))
        }
        verdicts.append(compare([(test, found)], (rule, 0))[0][0].verdict)
    assert verdicts.count(verdict) >= 0.9 * repeats
    assert verdicts.count(wrong) <= 0.05 * repeats


def _row(rows: list[Row], value: float) -> Row:
    return replace(rows[0], experiment="structure", metric="output_change", condition="", value=value)


def test_a_finding_is_told_of_in_folders_made_for_it(tmp_path: Path) -> None:
    """Elsewhere, models are of another size and trained otherwise than it says."""
    test = {"contestants": of("none", "rope"), "rule": {"higher": [["none"], ["rope"]]}}
    measured(tmp_path / "one", {"none": HIGH})
    found = decided(tmp_path / "one", test)
    assert (found.verdict, found.outcomes[0].reason) == ("undecided", "no rows of rope")
    findings = schema.load(tmp_path / "one" / "statements")
    for name, told in (("other", False), ("one_gpu", True), ("once", False)):
        measured(tmp_path / name, {"none": HIGH, "rope": LOW})
        found = decide(findings, results.read(tmp_path / name))
        assert [each.verdict for each in found] == ["holds"] * told
    measured(tmp_path / "written", {"none": HIGH, "rope": LOW})
    sweeps.write(tmp_path / "written", sweeps.Sweep("python run.py -m +statements=one name=written", ("a",)))
    assert len(decide(findings, results.read(tmp_path / "written"))) == 1


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"name": "two"}, "one.yaml: name: 'two' is not that of its file, 'one'"),
        ({"parts": []}, "one.yaml: the key 'parts' of a file is missing"),
        ({"findings": {}}, "one.yaml: no key 'findings' of a file; known: name, parts, statements, times"),
        ({"statements": [{"statement": "x"}]}, "the key 'source' of a statement is missing"),
        ({"test": {"rules": 1}}, "test 'it': no key 'rules' of a test"),
        ({"test": {"rule": {"about": []}}}, "rule: {'about': []} is not one of higher, lower, holds"),
        ({"test": {"rule": {"higher": [["none", "rope"]]}}}, "rule: higher takes at least two groups"),
        ({"test": {"rule": {"higher": [["none"], ["none"]]}}}, "rule: higher names a contestant twice"),
        ({"test": {"rule": {"higher": [["none"], ["t5"]]}}}, "do not agree on rope, t5"),
        ({"test": {"ranked_over": []}}, "no key 'ranked_over' of a test"),
        ({"test": {"rule": {"holds": {"none": "about 3", "rope": "below 1"}}}}, "none of 'below X'"),
        ({"test": {"published": {"t5": 1}}}, "published: 't5' is none of the contestants none, rope"),
        ({"test": {"published": {"none": "much"}}}, "published: none: 'much' is not a number"),
        ({"test": {"rows": {"metric": "los"}}}, "metric 'los' is not known"),
        ({"test": {"take": "most"}}, "take: 'most' is none of"),
    ],
)
def test_a_malformed_file_is_one_line_of_the_report(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    changed: dict[str, Any],
    complaint: str,
) -> None:
    test = {"of": "it", "rows": ROWS, "unit": "x", "contestants": of("none", "rope")}
    test |= {"rule": {"higher": [["none"], ["rope"]]}} | changed.pop("test", {})
    content = {"name": "one", "parts": ["encoder=rope"], "statements": [FINDING | {"tests": [test]}]} | changed
    (tmp_path / "one.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(ValueError, match=re.escape(complaint)):
        schema.load(tmp_path)
    monkeypatch.setattr(schema, "load", partial(schema.load, tmp_path))
    write_run(tmp_path / "folder", "rope")
    assert report.main([str(tmp_path / "folder")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: one.yaml: ")
    assert complaint in error
    assert error.count("\n") == 1


def test_the_page_has_published_beside_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured(tmp_path, {"none": HIGH, "rope": LOW})
    decided(
        tmp_path,
        {"published": {"none": 0.75, "rope": 0.01}, "rule": {"higher": [["none"], ["rope"]]}},
        {"published": {"none": 0.75}, "rule": {"holds": {"none": "below 0.5"}}},
    )
    write_run(tmp_path, "t5", record={"status": "failed"})
    monkeypatch.setattr(schema, "load", partial(schema.load, tmp_path / "statements"))
    assert report.main([str(tmp_path)]) == 0
    pasted = (tmp_path / "report/report.md").read_text()
    assert pasted.startswith("# “said”: fails\n")
    assert "| test 1 | none below 0.5 | 3 | " in pasted
    page = read_page(tmp_path)
    line = page.tables[f"Published and measured, {tmp_path.name}"][1]
    assert "0.75 (share, from memory)" in line
    assert re.search(r": 0.910 \[0\.8\d+, 0\.9\d+\], 3 seeds", " ".join(line))
    compared = page.tables[f"Comparisons, {tmp_path.name}"][1]
    assert compared[:3] == ["test 0", "none higher than rope", "3"]
    assert compared[3].startswith("+0.793")
    assert compared[4:] == ["< 0.001", "holds"]
    assert "test 0: “none” higher than rope" in page.text
    assert page.tables[f"Comparisons, {tmp_path.name}"][2][1:3] == ["none below 0.5", "3"]
    assert "1 run of this folder failed or did not finish" in page.text
    numbers = pd.read_csv(tmp_path / "report" / "tables" / f"statement_{tmp_path.name}.csv")
    first = numbers.iloc[0]
    assert (first["tested"], first["contestant"], first["published"]) == ("test 0", "none", 0.75)
    assert (first["unit"], first["outcome"], first["verdict"]) == ("share", "holds", "fails")
    assert first["numbers"] == "from memory"


@pytest.mark.parametrize(
    ("made_for", "title"),
    [
        ([FINDING], "“said”: holds"),
        ([{"statement": "said", "source": "said"}] * 2, "“said”: holds"),
        ([{"statement": "said", "source": "said"}] * 3, "Of 3 published statements 3 hold"),
    ],
)
def test_a_page_opens_with_what_its_folder_was_made_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made_for: list[dict[str, Any]], title: str
) -> None:
    measured(tmp_path, {"none": HIGH, "rope": LOW})
    place = tmp_path / "statements"
    place.mkdir()
    for name, of_file in {"another": [{"statement": "another", "source": "said"}], tmp_path.name: made_for}.items():
        test = {"of": f"by {name}", "rows": ROWS, "unit": "share", "contestants": of("none", "rope")}
        test["rule"] = {"higher": [["none"], ["rope"]]}
        statements = [statement | {"tests": [test]} for statement in of_file]
        content = {"name": name, "parts": ["encoder=rope"], "statements": statements}
        (place / f"{name}.yaml").write_text(yaml.safe_dump(content))
    monkeypatch.setattr(schema, "load", partial(schema.load, place))
    if made_for != [FINDING]:  # any folder may have the name of a file of other statements
        assert report.main([str(tmp_path)]) == 0
        assert (tmp_path / "report/report.md").read_text().startswith("# “another”: holds\n")
        sweeps.write(tmp_path, sweeps.Sweep(f"python run.py -m +statements={tmp_path.name}", ("a",)))
    assert report.main([str(tmp_path)]) == 0
    text = read_page(tmp_path).text
    assert text.index(f"by {tmp_path.name}: ") < text.index("by another: ") < text.index("Structure, copy")
    pasted = (tmp_path / "report/report.md").read_text()
    assert pasted.startswith(f"# {title}\n")
    assert f"| by {tmp_path.name} | holds | none | " in pasted
    assert "by another" not in pasted


def test_a_folder_without_a_finding_says_nothing_of_any(tmp_path: Path) -> None:
    write_run(tmp_path, "rope")
    assert report.main([str(tmp_path)]) == 0
    assert "# Comparisons" not in (tmp_path / "report" / "report.md").read_text()


# ---- the files of the house ---------------------------------------------------------------------------

FINDINGS = [each for each in schema.load() if each.setting]


def test_each_finding_has_its_source_and_check() -> None:
    assert len(FINDINGS) >= 12
    for each in FINDINGS:
        assert all(
            "delta" in test or "-0.001" in str(test["rule"]) or "0.9 to 1.1" in str(test["rule"]) for test in each.tests
        )
        assert re.search(r"arXiv:\d{4}\.\d{5}", each.source)
        assert min(map(len, (each.statement, *map(each.setting.__getitem__, SETTING)))) > 20


def _lines(name: str) -> list[list[str]]:
    return arguments.expand([f"+statements={name}"], ROOT / "configs")


@pytest.mark.parametrize("each", FINDINGS, ids=lambda each: each.name)
def test_the_larger_scale_goes_with_every_part(command: Command, each: Statement) -> None:
    gpu = each.setting.get("gpu", "").split()
    # What belongs to one encoder, numbering or layout is no option of a part with another.
    assert {re.split("[.=]", word)[0] for word in gpu} <= {"model", "train", "task", "seed", "seeds", "device", QUALITY}
    if gpu:
        given = {word.partition("=")[0] for word in gpu}
        line = [word for word in _lines(each.name)[0] if word.partition("=")[0] not in given]
        first = [word if "[" in word else word.partition(",")[0] for word in line]
        done = command("--cfg", "job", *first, *gpu)
        assert done.code == 0, done.err


def test_half_of_the_heads_are_masked_at_either_scale(command: Command) -> None:
    (each,) = [each for each in FINDINGS if each.name == "jelassi_copy"]
    for options in ([], each.setting.get("gpu", "").split()):
        done = command("--cfg", "job", "encoder=none", "layout=hard_alibi", *options)
        assert done.code == 0, done.err
        config = yaml.safe_load(done.out)
        assert 2 * config["layout"]["masked_heads"] == config["model"]["num_heads"]


def _runs(name: str) -> Iterator[dict[str, str]]:
    """Every run of a sweep, as the options of its command line."""
    for line in _lines(name):
        options = [word.partition("=")[::2] for word in line]
        for values in itertools.product(*(re.split(r",(?![^\[]*\])", value) for _, value in options)):
            yield dict(zip((key for key, _ in options), values, strict=True))


SMALL: dict[str, dict[str, Any]] = {
    "length_extrapolation": {"samples": 2, "generated": 0},
    "context_use": {"samples": 1},
    "context_extension": {"samples": 1},
    "shift_sensitivity": {"samples": 1},
    "position_probe": {"samples": 16},
    "retrieval": {"samples": 2},
    "place_bias": {"samples": 2, "influenced": 2},
}


def small(config: RunConfig) -> RunConfig:
    """The same run with a small model, next to no training and few samples."""
    return replace(
        config,
        model=replace(config.model, model_dim=16),
        train=replace(config.train, steps=min(4, config.train.steps), rounds=1, curve_points=1),
        experiments={name: knobs | SMALL.get(name, {}) for name, knobs in config.experiments.items()},
    )


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda each: each.name)
def test_each_run_can_be_made_and_gives_what_is_compared(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finding: Statement
) -> None:
    prepared = []

    def run_small(config: RunConfig, **given: Any) -> Outcome:
        plan = prepare(config)
        prepared.append(config.run_id)
        return replace(record.run(small(config), **given), folder=plan.config.folder)

    monkeypatch.setattr(job, "run", run_small)
    monkeypatch.setattr(summary, "show", lambda outcome, brief: None)
    assert (schema.FOLDER / f"{finding.name}.yaml").read_text().startswith("# @package _global_\n# ")
    done = command("-m", f"+statements={finding.name}", "seed=0", "figures=false")
    assert done.code == 0, done.err
    assert len(set(prepared)) == sum(run["seed"] == "0" for run in _runs(finding.name))
    (found,) = decide([finding], results.read(tmp_path / "results" / finding.name))
    assert [outcome.reason for outcome in found.outcomes if outcome.verdict == NOT_MEASURED] == []


def test_the_list_of_results_has_each_folder_and_the_verdicts_of_the_findings() -> None:
    place = ROOT / "results"
    questions, published = (
        dict(re.findall(r"\| \[(\w+)\]\(\S+\) \|.*\| (.*) \|", part))
        for part in (place / "README.md").read_text().split("## Published findings")
    )
    assert {*questions, *published} == {path.parent.name for path in place.glob("*/runs.tar.xz")}
    ours = {each.name for each in FINDINGS} - set(published)
    assert {name for name in ours if "+statements=" not in questions[name]} == set()
    for name, verdict in published.items():
        title = (place / name / "report/report.md").read_text().splitlines()[0]
        assert title.endswith(f": {verdict.partition(' (')[0]}"), name
