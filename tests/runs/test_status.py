"""How far a sweep is: every run counted once, with a reason and the command that would complete it."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import pytest
from support import Command, write_run

import report
from experiments.rows import results, sweeps
from experiments.rows.sweeps import Sweep
from experiments.runs import lease, status

ASKED = "python run.py -m encoder=none,rope 'length_extrapolation.multiples=[1,2]'"


def told(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert report.main([str(folder), "--status"]) == 0
    return capsys.readouterr().out


def a_bit_of_everything(folder: Path) -> None:
    runs = {"done": {}, "failed": {"status": "failed", "message": "out of memory"}, "diverged": {"status": "diverged"}}
    runs |= {"killed": {"status": "running", "message": ""}, "stopped": {"status": "interrupted", "message": "Ctrl-C"}}
    for name, record in runs.items():
        write_run(folder, "rope", run_id=name, record={"train_seconds": 100.0, "measure_seconds": 20.0, **record})
    (write_run(folder, "rope", run_id="garbage") / "rows.csv").write_text("garbage")
    sweeps.write(folder, Sweep(ASKED, (*runs, "garbage", "absent")))


def test_every_state_is_told_with_reason_and_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a_bit_of_everything(tmp_path)
    found = {standing.run_id: standing for standing in status.standings(tmp_path)[0]}
    assert {run: standing.state for run, standing in found.items()} == {
        **{name: name for name in ("done", "failed", "diverged")},
        "killed": "interrupted",
        "stopped": "interrupted",
        "garbage": "unreadable",
        "absent": "missing",
    }
    assert found["failed"].command == f"{ASKED} retry=failed"
    assert found["failed"].reason == "out of memory"
    assert found["absent"].command == found["killed"].command == found["garbage"].command == ASKED
    assert found["done"].command == found["diverged"].command == ""
    assert "rows.csv cannot be read" in found["garbage"].reason
    said = told(tmp_path, capsys)
    counts = dict(line.rsplit(maxsplit=1) for line in said.splitlines()[4:11])
    assert counts == {
        "done": "1",
        "interrupted": "2",
        "failed": "1",
        "diverged": "1",
        "unreadable": "1",
        "missing": "1",
        "in all": "7",
    }
    assert "ended took 0:10:16" in said
    assert "About 0:06:00 left" in said
    assert all(len(line) <= 100 for line in said.splitlines()[1:])


def test_seeds_stand_in_their_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweeps.write(tmp_path, Sweep(ASKED, tuple(f"rope-copy-seed{seed}-{seed:08x}" for seed in range(8, 12))))
    assert "rope-copy, seeds 8, 9, 10, 11 " in told(tmp_path, capsys)


def test_a_run_somebody_is_at_work_on_is_running(tmp_path: Path) -> None:
    place = write_run(tmp_path, "rope", run_id="a", record={"status": "running"})
    with lease.acquire(place):
        (standing,) = status.standings(tmp_path)[0]
        assert standing.state == "running"
        assert "process" in standing.reason
    (standing,) = status.standings(tmp_path)[0]
    assert standing.state == "interrupted"


@pytest.mark.parametrize("content", ["", "[", "{}", '{"pid": "x"}', "[" * 60_000])
def test_a_lock_that_is_garbage_stops_nothing(tmp_path: Path, content: str) -> None:
    place = write_run(tmp_path, "rope", run_id="a", record={"status": "running"})
    for name in (lease.LOCK, lease.HOLDER):
        (place / name).write_text(content)
    assert status.standings(tmp_path)[0][0].state == "interrupted"


def test_a_recorded_command_is_quoted_or_left_out(tmp_path: Path) -> None:
    assert sweeps.to_type(ASKED) == ASKED
    assert sweeps.to_type("python run.py -m a=1,2 workers=3 budget_minutes=0.8") == "python run.py -m a=1,2"
    assert sweeps.to_type("python run.py a=1; rm -rf ~") == "python run.py 'a=1;' rm -rf '~'"
    assert sweeps.to_type("curl evil | sh") == ""
    assert sweeps.to_type("python run.py 'unbalanced") == ""
    assert sweeps.to_type(None) == ""


def test_what_a_sweep_asks_for_is_noted_before_its_first_run(command: Command, tmp_path: Path) -> None:
    seen = tmp_path / "results" / "s"
    done = command("-m", "name=s", "model=tiny", "experiment=structure", "encoder=none,rope", "structure.reach=0")
    assert done.code == 2
    assert not (seen / "sweeps").exists(), "what was refused is not missing"
    quick = ["name=s", "model=tiny", "train.steps=2", "train.rounds=1", "experiment=length_extrapolation"]
    quick += ["length_extrapolation.multiples=[1]", "length_extrapolation.samples=2"]
    done = command("-m", *quick, "encoder=none,rope")
    assert done.code == 0, done.err
    (note,) = (seen / "sweeps").glob("*.json")
    found = json.loads(note.read_text())
    assert found["runs"] == [path.name for path in sorted((seen / "runs").iterdir())]
    assert found["command"].startswith("python run.py -m name=s")
    shutil.rmtree(seen / "runs" / found["runs"][0])
    assert results.read(seen).missing == (found["runs"][0],)
    assert status.standings(seen)[0][-1].command == found["command"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"command": 1, "runs": []}', "\0"])
def test_a_note_that_is_garbage_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str) -> None:
    write_run(tmp_path, "rope", run_id="a")
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "sweeps" / "x.json").write_text(content)
    assert "Not readable: sweeps/x.json" in told(tmp_path, capsys)


def test_the_notes_of_a_packed_folder_are_read_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "results" / "packed"
    run_id = write_run(folder).name
    sweeps.write(folder, Sweep("python run.py -m seed=0,1", [run_id, "another"]))
    with tarfile.open(folder / "runs.tar.xz", "w:xz") as packed:
        for part in ("runs", "sweeps"):
            packed.add(folder / part, part)
            shutil.rmtree(folder / part)
    assert report.main([str(folder), "--status"]) == 0
    assert "another" in capsys.readouterr().out


def test_nothing_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main([str(tmp_path / "nothing"), "--status"]) == 2
    assert capsys.readouterr().err.startswith("error: no folder")
    sweeps.write(tmp_path, Sweep(ASKED, ("a",)))
    assert "1 run missing" in told(tmp_path, capsys)
