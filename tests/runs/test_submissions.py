"""Submissions: made from a sweep, read without executing them, verified by re-runs, refused where they do not hold."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import socket
import subprocess
import tarfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from support import ROOT, Command, examples, main_rows, read_page, write_run

import report
from experiments.rows import submission, sweeps
from experiments.rows.read import read_run
from experiments.rows.row import COORDINATES, Row
from experiments.runs import isolated, rounding, verify
from experiments.runs.declared import faults
from experiments.statistics.comparisons import effect
from experiments.statistics.rule import Rule

TINY = ("figures=false", "model=tiny", "train.steps=4", "train.rounds=1", "experiment=length_extrapolation")
TINY += ("length_extrapolation.samples=2", "length_extrapolation.multiples=[1,2]", "train.curve_points=2")
RULE = Rule("none", looks=(3, 5), weights=(0.5, 0.5))
THEIRS = "raise SystemExit('executed')"
MEANS = {"none": 0.3, "rope": 0.9, "alibi": 0.31}


def handed_in(command: Command, folder: Path) -> Path:
    """A sweep of an encoder of one's own, submitted."""
    (folder / "my_encoder.py").write_text(examples()["my_encoder"])
    done = command("-m", "plugin=my_encoder.py", "encoder=log_distance,none", "seeds=2", "name=mine", *TINY)
    assert done.code == 0, done.err
    assert report.main(["results/mine", "--submit", "ada"]) == 0
    return folder / "results" / "submissions" / "ada" / "mine"


def test_a_request_to_submit_that_cannot_be_met_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    submission.pack(sweep_of(tmp_path / "made", {"none": 3}, fixed=True), tmp_path / "runs.tar.xz")
    packed = tmp_path / "results" / "classic"
    packed.mkdir(parents=True)
    (tmp_path / "runs.tar.xz").rename(packed / "runs.tar.xz")
    for words in (["--submit", "ada"], ["--submit", "ada", "--licence", "none"], ["--submit"]):
        with suppress(SystemExit):
            assert report.main(["results/classic", *words]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert [path.name for path in packed.iterdir()] == ["runs.tar.xz"]


def test_from_an_own_encoder_to_a_verified_submission(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verify, "REPEATED", 1)
    place = handed_in(command, tmp_path)
    folder, *after = capfd.readouterr().out.splitlines()[-3:]
    assert folder == "results/submissions/ada/mine"
    assert all(folder in line for line in after)
    assert f"python run.py --verify {folder} --yes" in after[0]
    assert {path.name for path in place.iterdir()} == {"submission.json", "runs.tar.xz", "check.txt", "my_encoder.py"}
    found = submission.read(place)
    assert (found.who, found.name, found.licence, found.encoders) == ("ada", "mine", "MIT", ("log_distance",))

    done = command("--verify", str(place))
    assert done.code == 2
    assert f"executes {place / 'my_encoder.py'} by ada" in done.err
    assert not (place / "verified.json").exists()

    done = command("--verify", str(place), "--yes")
    assert done.code == 0, done.err
    signed = json.loads((place / "verified.json").read_text())
    assert signed["verdict"] == "1 of 1 re-run"
    assert " 0 fail" in signed["check"]
    assert list(signed["runs"].values()) == ["the same, bit for bit"]
    assert next(iter(signed["runs"])).startswith("log_distance-copy-seed"), "of the submitted encoder"
    assert json.loads((place / "badge.json").read_text())["message"] == "1 of 1 re-run"
    assert submission.read(place).verified == "1 of 1 re-run"
    assert not (tmp_path / "results" / "mine-rerun").exists(), "it was repeated elsewhere"

    said = (place / "check.txt").read_text()
    (place / "check.txt").write_text(said.replace("hold", "held"))
    assert "check.txt is not what the check prints here" in command("--verify", str(place), "--yes").out
    (place / "check.txt").write_text(said)
    repack(place, lambda folder: [alter(run) for run in folder.glob("runs/log_distance-*")])
    assert submission.read(place).verified == "", "what was verified was something else"
    done = command("--verify", str(place), "--yes")
    assert done.code == 1
    assert "rows differ" in done.out
    assert not (place / "verified.json").exists()
    assert not (place / "badge.json").exists()


def repack(place: Path, change: Callable[[Path], object]) -> None:
    """Change the runs of a submission behind its back."""
    with submission.unpacked(submission.read(place)) as folder:
        change(folder)
        submission.pack(folder, place / "runs.tar.xz")


def alter(run: Path) -> None:
    """Raise the quality of a run by a tenth, and its record with it."""
    text = (run / "rows.csv").read_text().splitlines()
    head = text[0].split(",")
    for number, line in enumerate(text[1:], start=1):
        cells = line.split(",")
        if cells[head.index("metric")] == "token_accuracy":
            cells[head.index("value")] = repr(float(cells[head.index("value")]) + 0.1)
        text[number] = ",".join(cells)
    (run / "rows.csv").write_text("\n".join(text) + "\n")
    signed(run)


def signed(run: Path) -> None:
    record = json.loads((run / "run.json").read_text())
    record["rows_sha256"] = hashlib.sha256((run / "rows.csv").read_bytes()).hexdigest()
    (run / "run.json").write_text(json.dumps(record))


# ---- what a sweep declared ---------------------------------------------------------------------------


def noise_of(encoder: str, seed: int) -> float:
    return float(np.random.default_rng([seed, len(encoder)]).normal(0, 0.02))


def lengths_only(encoder: str, seed: int) -> Callable[[list[Row]], list[Row]]:
    noise = noise_of(encoder, seed)

    def changed(rows: list[Row]) -> list[Row]:
        return [
            replace(row, value=0.95 if row.eval_length <= 16 else MEANS[encoder] + noise) for row in main_rows(rows)
        ]

    return changed


def sweep_of(
    folder: Path, seeds: dict[str, int], *, noted: dict[str, int] | None = None, fixed: bool = False, **config: Any
) -> Path:
    """A folder with so many seeds of each encoder, of which a sweep asked for ``noted``."""
    for encoder, count in seeds.items():
        for seed in range(count):
            run_id = f"{encoder}-copy-seed{seed}"
            signed(write_run(folder, encoder, seed, run_id=run_id, rows=lengths_only(encoder, seed), config=config))
    runs = tuple(f"{name}-copy-seed{seed}" for name, count in (noted or seeds).items() for seed in range(count))
    rule = None if fixed else asdict(RULE) | {"first_seed": 0}
    sweeps.write(folder, sweeps.Sweep(f"python run.py -m seeds={3 if fixed else 'until_decided'}", runs, rule))
    return folder


def test_looks_that_the_rule_asks_for_are_accepted(tmp_path: Path) -> None:
    """rope is decided at the first look; alibi is open, so it and the baseline get the second."""
    assert faults(sweep_of(tmp_path, {"none": 5, "rope": 3, "alibi": 5})) == []


@pytest.mark.parametrize(
    ("seeds", "series", "due"),
    [((5, 5, 5), "rope", 3), ((5, 3, 4), "alibi", 5), ((3, 3, 3), "none", 5), ((6, 3, 5), "none", 5)],
    ids=["a look too many", "a seed missing", "stopped while open", "beyond the looks"],
)
def test_other_looks_are_refused(tmp_path: Path, seeds: tuple[int, ...], series: str, due: int) -> None:
    having = dict(zip(("none", "rope", "alibi"), seeds, strict=True))
    found = {fault.partition(" ")[0]: fault for fault in faults(sweep_of(tmp_path, having))}
    listed = ", ".join(map(str, range(having[series])))
    told = f"has the seeds {listed}; the declared looks 3, 5 ask for {due} seeds from 0"
    assert found[series] == f"{series} on copy {told}"


def test_a_run_that_was_left_out_or_added_is_refused(tmp_path: Path) -> None:
    folder = sweep_of(tmp_path, {"none": 3, "rope": 3}, noted={"none": 3, "rope": 2}, fixed=True)
    assert faults(folder) == ["rope-copy-seed2 is beyond what the sweep declared"]
    shutil.rmtree(folder / "runs" / "none-copy-seed1")
    told = "1 of 5 runs are missing, such as none-copy-seed1; the same command resumes: python run.py -m seeds=3"
    assert faults(folder)[0] == told


def test_seeds_are_as_many_as_the_command_says(tmp_path: Path) -> None:
    assert faults(sweep_of(tmp_path / "a", {"none": 3, "rope": 3}, fixed=True)) == []
    assert "asks for 3 seeds from 0" in faults(sweep_of(tmp_path / "b", {"none": 2, "rope": 2}, fixed=True))[0]


def test_altered_rows_and_several_sweeps_are_refused(tmp_path: Path) -> None:
    folder = sweep_of(tmp_path, {"none": 3, "rope": 3}, fixed=True)
    with (folder / "runs" / "none-copy-seed0" / "rows.csv").open("a") as file:
        file.write((folder / "runs" / "none-copy-seed0" / "rows.csv").read_text().splitlines()[-1] + "\n")
    assert faults(folder) == ["none-copy-seed0: rows.csv is no longer what the run wrote"]
    sweeps.write(folder, sweeps.Sweep("python run.py -m seeds=5", ("none-copy-seed0",)))
    commands = faults(folder)[0].partition("noted here: ")[2].split("; ")
    assert sorted(commands) == ["python run.py -m seeds=3", "python run.py -m seeds=5"]


def test_a_plan_that_was_never_run_declares_nothing(tmp_path: Path) -> None:
    folder = sweep_of(tmp_path, {"none": 3, "rope": 3}, fixed=True)
    sweeps.write(folder, sweeps.Sweep("python run.py -m task=sort", ("none-sort-seed0",), None, 60.0, planned=True))
    assert faults(folder) == []


def test_archives_may_be_large(tmp_path: Path) -> None:
    place = tmp_path / "ada" / "mine"
    place.mkdir(parents=True)
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "runs" / "a" / "rows.csv").write_bytes(np.random.default_rng(0).bytes(1 << 17))
    with tarfile.open(place / "runs.tar.xz", "w:xz") as archive:
        archive.add(tmp_path / "runs", "runs")
    record = {"who": "ada", "name": "mine", "when": "now", "licence": "MIT", "encoders": ["none"], "files": []}
    (place / "submission.json").write_text(json.dumps(record))
    (place / "check.txt").touch()
    assert (place / "runs.tar.xz").stat().st_size > 1 << 16
    assert submission.read(place).who == "ada"
    with pytest.raises(ValueError, match=r"no submission in .*: name one of those in it: mine"):
        submission.read(tmp_path / "ada")


# ---- what may lie in a submission --------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A submission whose encoder must not be imported."""
    made_with = {"plugin": hashlib.sha256(THEIRS.encode()).hexdigest()}
    folder = sweep_of(tmp_path / "results" / "mine", {"none": 3, "rope": 3, "alibi": 3}, fixed=True, **made_with)
    found = tmp_path / "results" / "submissions" / "ada" / "mine"
    found.mkdir(parents=True)
    submission.pack(folder, found / "runs.tar.xz")
    (found / "theirs.py").write_text(THEIRS)
    record = {"who": "ada", "name": "mine", "when": "2026-11-25", "licence": "MIT", "encoders": ["alibi"]}
    (found / "submission.json").write_text(json.dumps(record | {"files": ["theirs.py"]}))
    (found / "check.txt").touch()
    assert submission.read(found).who == "ada"
    return found


@pytest.mark.parametrize(
    "changed",
    [
        *({"who": ""}, {"who": "../x"}, {"files": ["../theirs.py"]}, {"name": "a/b"}, {"encoders": []}),
        *({"who": "bob"}, {"name": "other"}, {"licence": "all mine"}),
    ],
)
def test_a_record_that_cannot_be_used_is_refused(place: Path, changed: dict[str, Any]) -> None:
    record = json.loads((place / "submission.json").read_text())
    (place / "submission.json").write_text(json.dumps(record | changed))
    with pytest.raises(ValueError, match=r"submission\.json|cannot be used|licence"):
        submission.read(place)


def test_a_file_that_the_runs_were_not_made_with_is_not_executed(command: Command, place: Path, tmp_path: Path) -> None:
    (place / "theirs.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')")
    done = command("--verify", str(place), "--yes")
    assert done.code == 1
    assert "not verified: theirs.py is not what the runs were made with" in done.out
    assert not (tmp_path / "executed").exists()


def test_other_files_and_links_are_refused(place: Path, tmp_path: Path) -> None:
    (place / "__pycache__").mkdir()
    with pytest.raises(ValueError, match="__pycache__ is no part"):
        submission.read(place)
    (place / "__pycache__").rmdir()
    (tmp_path / "secret").write_text("key")
    (place / "theirs.py").unlink()
    (place / "theirs.py").symlink_to(tmp_path / "secret")
    with pytest.raises(ValueError, match="leads out"):
        submission.read(place)


@pytest.mark.parametrize(
    "name", ["../out", "/etc/passwd", "runs/a/model.safetensors", "runs/a/b/rows.csv", "sweeps/x.py"]
)
def test_an_archive_holds_runs_and_sweeps_alone(place: Path, name: str) -> None:
    with tarfile.open(place / "runs.tar.xz", "w:xz") as archive:
        archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    with pytest.raises(ValueError, match="neither a run's file nor a sweep's"):
        submission.read(place)


def test_an_archive_has_no_links_and_is_not_huge(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    member = tarfile.TarInfo("runs/a/rows.csv")
    member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with tarfile.open(place / "runs.tar.xz", "w:xz") as archive:
        archive.addfile(member)
    with pytest.raises(ValueError, match="neither"):
        submission.read(place)
    with tarfile.open(place / "runs.tar.xz", "w:xz") as archive:
        archive.addfile(tarfile.TarInfo("runs"))
    monkeypatch.setattr(submission, "MOST_MEMBERS", 0)
    with pytest.raises(ValueError, match="submit fewer runs"):
        submission.read(place)


def test_the_same_runs_are_packed_to_the_same_bytes(tmp_path: Path) -> None:
    folder = sweep_of(tmp_path / "mine", {"none": 3}, fixed=True)
    submission.pack(folder, tmp_path / "one")
    os.utime(folder / "runs" / "none-copy-seed0" / "rows.csv", (0, 0))
    submission.pack(folder, tmp_path / "other")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_verify_refuses_in_one_line(command: Command, place: Path, tmp_path: Path) -> None:
    for given in ([str(tmp_path)], [], [str(place), "more"]):
        done = command("--verify", *given)
        assert (done.code, done.err.count("\n"), done.err[:7]) == (2, 1, "error: ")
    repack(place, lambda folder: shutil.rmtree(folder / "runs" / "rope-copy-seed1"))
    (place / "verified.json").write_text("{}")
    done = command("--verify", str(place))
    assert (done.code, done.out.count("\n")) == (1, 1)
    assert " runs are missing, such as rope-copy-seed1; the same command resumes: python run.py -m " in done.out
    assert not (place / "verified.json").exists()


# ---- equal runs, and the process that others' code runs in -------------------------------------------


def test_equal_hardware_is_held_to_the_last_bit_and_other_hardware_to_the_tolerance(tmp_path: Path) -> None:
    run = write_run(tmp_path, "none", 0, record={"processor": "A"})
    record, _, table = read_run(run, tmp_path)
    assert table is not None
    other = record | {"processor": "B"}
    judged = [
        m == "token_accuracy" and e == "length_extrapolation"
        for m, e in zip(table["metric"], table["experiment"], strict=True)
    ]

    def off(by: float) -> dict[str, list[Any]]:
        return table | {"value": [v + by * here for v, here in zip(table["value"], judged, strict=True)]}

    assert verify.equal((record, table), (other, table)) == "the same, bit for bit"
    assert verify.equal((record, table), (record, off(0.001))) is None
    assert "within the rounding" in str(verify.equal((record, table), (other, off(0.001))))
    assert "within the rounding" in str(verify.equal(({**record, "processor": None}, table), (record, off(0.001))))
    assert verify.equal((record, table), (other, off(0.06))) is None
    seeds = [rounding.judged(off(by)) for by in (-0.1, 0.1)]
    assert "within the rounding" in str(verify.equal((record, table), (other, off(0.14)), seeds))
    assert verify.equal((record, table), (other, off(0.16)), seeds) is None


def test_what_other_seeds_have_does_not_excuse_other_first_losses() -> None:
    loss = ("training", "loss", 16, "", *[80 if name == "step" else None for name in COORDINATES])
    quality = ("length_extrapolation", "token_accuracy", 32, "", *[None] * len(COORDINATES))
    first = {loss: (3.0, "ok"), quality: (0.5, "ok")}
    seed = {loss: (3.2, "ok"), quality: (0.8, "ok")}
    assert rounding.astray(first, seed, [seed]) == [loss]
    assert rounding.astray(first, first | {quality: (0.8, "ok")}) == [quality]
    assert rounding.astray(first, first | {quality: (0.8, "ok")}, [seed]) == []


def test_other_seeds_are_those_of_the_same_configuration(tmp_path: Path) -> None:
    run, _ = (write_run(tmp_path, "none", seed) for seed in (0, 1))
    write_run(tmp_path, "none", 2, config={"threads": 7})
    assert len(list(rounding.other_seeds(run))) == 1


@pytest.mark.parametrize("space", [True, False], ids=["namespace", "guard"])
def test_others_code_has_no_network_and_no_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, space: bool
) -> None:
    if space and not isolated.network_space():
        pytest.skip("this system gives no network namespace")
    if not space:
        monkeypatch.setattr(isolated, "network_space", lambda: None)
    monkeypatch.setenv("HF_TOKEN", "secret")
    with socket.create_server(("127.0.0.1", 0)) as server:
        script = tmp_path / "theirs.py"
        script.write_text(
            "import os, socket, sys\nprint(sys.argv[1:], os.environ.get('HF_TOKEN'))\n"
            f"socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 2)\nprint('connected')\n"
        )
        printed, code = isolated.run([str(script), "word"], tmp_path, 60)
        assert code == 1
        assert "['word'] None" in printed
        assert "connected" not in printed
        assert ("PermissionError" in printed) is not space
        socket.create_connection(server.getsockname(), 2).close()  # from here it can be reached


def test_others_code_has_a_time_limit(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time; time.sleep(60)")
    assert isolated.run([str(tmp_path / "slow.py")], tmp_path, 1) == ("stopped after 1 s", isolated.TIMED_OUT)


# ---- the board ---------------------------------------------------------------------------------------


def test_the_board_has_both_one_line_each_and_executes_nothing(place: Path, tmp_path: Path) -> None:
    """`place` has a file that ends the process if it is imported; its runs are none, rope and alibi."""
    ours = sweep_of(tmp_path / "results" / "ours", {"none": 3, "rope": 3}, fixed=True)
    assert report.main([str(ours)]) == 0
    head, *lines = read_page(ours).tables["Board"]
    assert head == [
        *("encoding", "submission", "tasks learned", "seeds", "mean kept, %", "against none", "against rope", "re-run")
    ]
    assert [(line[0], line[1], line[3], line[7]) for line in lines] == [
        ("rope", "", "3", ""),
        ("alibi", "ada/mine", "3", "no"),
        ("none", "", "3", ""),
    ]
    table = pd.read_csv(ours / "report" / "tables" / "board.csv").set_index("series")
    kept = {name: kept_of(name) for name in MEANS}
    for name in ("rope", "alibi"):
        assert table.loc[name, "none"] == pytest.approx(effect(kept[name], kept["none"]))
        assert table.loc[name, "kept"] == pytest.approx(kept[name].mean())
        assert table.loc[name, "low"] < kept[name].mean() < table.loc[name, "high"]
    low, mean, high = (100 * table.loc["rope", column] for column in ("low", "kept", "high"))
    assert lines[0][4:6] == [f"{mean:.0f} [{low:.0f}, {high:.0f}]", f"{table.loc['rope', 'none']:+.1f}"]
    assert f"| alibi | ada/mine | 1 of 1 | 3 | {lines[1][4].replace('[', chr(92) + '[')[:-1]}" in markdown_of(ours)
    assert not list((place).glob("runs")), "nothing is unpacked into the submission"

    digest = submission.read(place).digest
    (place / "verified.json").write_text(json.dumps({"submission": digest, "verdict": "3 of 3 re-run"}))
    (tmp_path / "results" / "submissions" / "bob" / "broken").mkdir(parents=True)
    (tmp_path / "results" / "submissions" / "bob" / "broken" / "submission.json").write_text("{}")
    assert report.main([str(ours)]) == 0
    assert read_page(ours).tables["Board"][2][7] == "3 of 3 re-run"
    assert "Not readable: bob/broken" in read_page(ours).text


def hand_in(folder: Path, place: Path) -> None:
    """Make a submission about ``rope`` of a folder of results."""
    place.mkdir(parents=True)
    submission.pack(folder, place / "runs.tar.xz")
    names = {"who": place.parent.name, "name": place.name}
    record = {"when": "2026-11-25", "licence": "MIT", "encoders": ["rope"], "files": []}
    (place / "submission.json").write_text(json.dumps(names | record))
    (place / "check.txt").touch()


def test_results_of_other_settings_stand_apart_and_say_why(place: Path, tmp_path: Path) -> None:
    folder = sweep_of(tmp_path / "quick", {"none": 3, "rope": 3}, fixed=True, train={"steps": 4})
    hand_in(folder, tmp_path / "results" / "submissions" / "bob" / "quick")
    ours = sweep_of(tmp_path / "results" / "ours", {"none": 3, "rope": 3}, fixed=True)
    assert report.main([str(ours)]) == 0
    tables = read_page(ours).tables
    assert [line[1] for line in tables["Board"][1:]] == ["", "ada/mine", ""]
    (apart,) = tables["Board: other settings, not ranked"][1:]
    assert (apart[0], apart[1], apart[-1]) == ("rope", "bob/quick", "train.steps")
    assert "bob/quick" in markdown_of(ours)


def markdown_of(folder: Path) -> str:
    return (folder / "report" / "report.md").read_text()


def kept_of(encoder: str) -> np.ndarray[Any, Any]:
    """Worked by hand: quality in range is 1, and at every longer length the same share of 0.95 less the guess."""
    values = np.array([MEANS[encoder] + noise_of(encoder, seed) for seed in range(3)])
    return (values - 0.1) / (0.95 - 0.1)


# ---- what an outsider's pull request meets -----------------------------------------------------------


def test_the_workflow_verifies_without_secrets_and_the_forms_are_well_formed() -> None:
    hub = ROOT / ".github"
    workflow = yaml.safe_load((hub / "workflows" / "submission.yml").read_text())
    trigger = workflow[True]  # YAML 1.1 reads `on` as true
    assert list(trigger) == ["pull_request"], "pull_request_target would hand secrets to code of others"
    assert workflow["permissions"] == {"contents": "read"}
    (job,) = workflow["jobs"].values()
    assert job["steps"][0]["with"]["persist-credentials"] is False
    (verifying,) = (step["run"] for step in job["steps"] if "--verify" in step.get("run", ""))
    subprocess.run(["bash", "-n"], input=verifying, text=True, check=True)
    assert "secrets." not in str(workflow)
    for form in (hub / "ISSUE_TEMPLATE").glob("*.yml"):
        content = yaml.safe_load(form.read_text())
        assert {"name", "description", "body"} <= set(content)
        fields = [field for field in content["body"] if field["type"] != "markdown"]
        assert all(field["type"] in ("input", "textarea") and field["attributes"]["label"] for field in fields)
        assert len({field["id"] for field in fields}) == len(fields) > 0
    assert "--verify" in (hub / "pull_request_template.md").read_text()


def test_what_is_submitted_is_committed_and_what_a_report_leaves_is_not(tmp_path: Path) -> None:
    shutil.copy(ROOT / ".gitignore", tmp_path)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    place = "results/submissions/ada/mine"
    kept = [f"{place}/{name}" for name in ("submission.json", "runs.tar.xz", "check.txt", "my.py", "verified.json")]
    left = [f"{place}/{name}" for name in ("runs/a/rows.csv", "report/index.html")]
    check = ["git", "-C", str(tmp_path), "check-ignore", *kept, *left]
    assert subprocess.run(check, capture_output=True, text=True).stdout.split() == left


def test_a_folder_that_was_submitted_stands_on_its_own_board_once(tmp_path: Path) -> None:
    ours = sweep_of(tmp_path / "results" / "ours", {"none": 3, "rope": 3}, fixed=True)
    hand_in(ours, tmp_path / "results" / "submissions" / "eve" / "ours")
    assert report.main([str(ours)]) == 0
    assert {tuple(line[:2]) for line in read_page(ours).tables["Board"][1:]} == {("rope", "eve/ours"), ("none", "")}
    assert len(read_page(ours).tables["Board"]) == 3
