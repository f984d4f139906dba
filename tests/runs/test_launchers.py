"""A sweep in workers is the sweep: every run once, the same rows, one tally; what is lost is named and made up for."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from support import ROOT, SHORT, TINY, Command, at_work, ended, record_of, runs_of, start, tally, two_at_work, until

from experiments.model.layout import Layout
from experiments.plan.request import RESULTS, ModelConfig, RunConfig
from experiments.runs import config, job, launch, pool
from experiments.runs.options import HANDLING, PARCEL
from experiments.runs.outcome import Outcome
from experiments.training.config import TrainConfig
from experiments.training.interruption import Interrupted

SWEEP = """# @package _global_
name: parted
times: [seed=0, seed=1]
parts: [encoder=none, "encoder=slow_to_go,breaks"]
"""


def assert_alike(folder: Path, name: str, other: str) -> None:
    """The runs of another sweep are here too, and the same."""
    theirs = runs_of(folder, other)
    assert theirs
    for same in theirs:
        run = folder / "results" / name / "runs" / same.name
        for file in ("rows.csv", "model.safetensors", "config.yaml"):
            assert (run / file).read_bytes() == (same / file).read_bytes(), f"{run.name}: {file}"
        assert not [path for path in run.iterdir() if path.name.startswith((".", "checkpoint"))], "left behind"


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    """A sweep in parts, beside ours."""
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    (tmp_path / "configs" / "sweep" / "parted.yaml").write_text(SWEEP)
    return tmp_path / "configs"


@pytest.mark.timeout(1800)
def test_a_sweep_in_workers(tmp_path: Path, configs: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its story: a worker is killed, then all are told to stop, then it is done, and is as one run after another."""
    sweep = [*SHORT, "plugin=slow.py", "+sweep=parted"]
    with start(tmp_path, *sweep, "workers=2") as process:
        killed = two_at_work(tmp_path, "parted", process)
        os.kill(min(killed.values()), signal.SIGKILL)
        stopped = ended(process)
    assert stopped.returncode == 1, stopped.stderr
    assert "6 runs to workers" in stopped.stdout
    assert tally(stopped.stdout) == {"done": 2, "failed": 1, "interrupted": 2, "not begun": 1}
    assert all(run.name in stopped.stdout for run in killed)
    assert "RuntimeError: planted" in stopped.stdout
    assert "a worker was lost" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    until(lambda: not at_work(tmp_path, "parted"), "the other worker to end")

    saved = set(tmp_path.rglob("checkpoint-*"))
    with start(tmp_path, *sweep, "workers=2") as process:
        until(lambda: len(set(tmp_path.rglob("checkpoint-*")) - saved) > 1, "both to save their progress again")
        two_at_work(tmp_path, "parted", process)
        os.killpg(process.pid, signal.SIGTERM)  # as ``timeout`` does: workers and their server, too
        stopped = ended(process)
    assert stopped.returncode == 143, stopped.stderr
    assert tally(stopped.stdout) == {"finished before": 2, "failed before": 1, "interrupted": 2, "not begun": 1}
    assert "the same command resumes" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    until(lambda: not at_work(tmp_path, "parted"), "the workers to end")

    (tmp_path / "go").touch()
    there = set(tmp_path.iterdir())
    monkeypatch.setattr("run.CONFIGS", configs)
    found = command("-m", *sweep, "workers=1")
    assert found.code == 1, found.err
    assert tally(found.out) == {"finished before": 2, "failed before": 1, "done": 2, "failed": 1}
    assert found.out.count(" on copy, seed ") == 2, "each is shown when it has ended"
    assert set(tmp_path.iterdir()) == there, "something was left"
    records = [record_of(run) for run in runs_of(tmp_path, "parted")]
    assert len(records) == 6
    assert {record["threads"] for record in records} == {1}
    assert all(record_of(run)["resumed"] for run in killed)
    notes = [json.loads(note.read_text()) for note in (tmp_path / "results" / "parted" / "sweeps").glob("*.json")]
    last = [note for note in notes if note["command"].endswith("workers=1")]
    assert sorted(run for note in last for run in note["runs"]) == [run.name for run in runs_of(tmp_path, "parted")]

    assert command("-m", *SHORT, "plugin=slow.py", "encoder=none,slow_to_go", "seed=0,1", "name=alone").code == 0
    assert_alike(tmp_path, "parted", "alone")


def test_what_is_refused_does_not_stop_the_rest(command: Command) -> None:
    words = [*TINY, "encoder=none", "task.train_length=4,100000000", "workers=2"]
    found = command("-m", *words)
    assert found.code == 2, found.err
    assert tally(found.out) == {"done": 1, "refused": 1}
    assert found.err.count("error: ") == 1
    assert "not enough memory" in found.err


def test_a_run_that_was_about_to_go_on_is_not_called_unbegun(tmp_path: Path) -> None:
    assert launch._from_folder(tmp_path, None).status == "not begun"
    (tmp_path / "checkpoint-000001-0.safetensors").touch()
    assert launch._from_folder(tmp_path, None).status == "interrupted"


def test_a_worker_without_the_files_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [])
    runs = [tmp_path / "runs" / name for name in ("a", "b")]
    for asked in ([], runs):
        parcel = job.Parcel(job.Job([], {}), ["-m"], asked, folder=str(tmp_path / "elsewhere"))
        refused = job.work({PARCEL: parcel.packed()})
        assert {outcome.status for outcome in refused} == {"refused"}
        assert [outcome.folder for outcome in refused] == (asked or [RESULTS]), "each run is refused once"
        assert "workers need the file system that the sweep was started on" in refused[0].message


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["hydra/launcher=ray"], "hydra/launcher=ray is for the runs of a sweep: add -m"),
        (["-m", "hydra/launcher=rya"], "no hydra/launcher named 'rya'. Did you mean 'ray'?"),
        (["-m", "hydra/launcher=nowhere"], "hydra/launcher=nowhere is not installed here: pip install 'pe-zoo[none]'"),
        (["-m", "workers=two"], "workers=two: a whole number is needed"),
        (["-m", "workers=0"], "workers must be a whole number of at least 1"),
        (["workers=2"], "workers=2 is for the runs of a sweep: add -m"),
        (["-m", "workers=2", "name=../elsewhere"], "name='../elsewhere' must be a plain folder name"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_a_bad_request_is_one_line(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.setitem(config.LAUNCHERS, "nowhere", "none")
    found = command(*words)
    assert found.code == 2
    assert found.err.startswith(f"error: {said}")
    assert found.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_worker_takes_up_no_run_after_one_that_was_stopped(tmp_path: Path) -> None:
    """Its worker alone is told to stop: the sweep ends, and the run has saved its progress."""
    sweep = [*SHORT, "plugin=slow.py", "encoder=slow_to_go", "seed=0,1,2,3", "workers=2", "name=parted"]
    with start(tmp_path, *sweep) as process:
        working = two_at_work(tmp_path, "parted", process)
        os.kill(min(working.values()), signal.SIGTERM)
        stopped = ended(process)
    assert stopped.returncode == 1, stopped.stderr
    assert tally(stopped.stdout) == {"interrupted": 2, "not begun": 2}
    until(lambda: not at_work(tmp_path, "parted"), "the workers to end")


def test_workers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    sweep = [*SHORT, "plugin=slow.py", "encoder=slow_to_go", "seed=0,1", "workers=2", "name=parted"]
    with start(tmp_path, *sweep) as process:
        two_at_work(tmp_path, "parted", process)
        process.kill()
        ended(process)
    until(lambda: not at_work(tmp_path, "parted"), "the workers to end", seconds=60)


def test_cores_are_those_of_the_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert pool.cores() == 8
    for quota, cores in {"max 100000": 8, "250000 100000": 2, "50000 100000": 1}.items():
        (tmp_path / "cpu.max").write_text(quota)
        assert pool.cores() == cores


def test_the_time_left_counts_no_run_that_was_half_done_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "time", SimpleNamespace(monotonic=lambda: 100.0))
    folders = [tmp_path / name for name in "abc"]
    swept = launch.Launch(None, None)  # type: ignore[arg-type]
    swept._before = dict.fromkeys(folders)
    for folder, resumed in zip(folders, (700, 0), strict=False):
        folder.mkdir()
        (folder / "run.json").write_text(json.dumps({"run_id": folder.name, "resumed": resumed}))
        swept._add(Outcome("ok", folder.name, folder))
        assert ("left" in swept._progress(0.0)) == (not resumed)
    assert swept._progress(0.0) == "2 of 3 runs done in 1 min 40 s, about 1 min 40 s left"


def test_a_worker_forwards_a_signal_to_whoever_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm's warning before the time limit, after which the job is requeued."""
    forwarded: list[int] = []

    def stopped(*_: object, **__: object) -> Outcome:
        raise Interrupted(signal.SIGUSR2)

    monkeypatch.setattr(job, "run", stopped)
    asked = RunConfig(
        encoder={"name": "rope"},
        task={"name": "copy"},
        positions={"name": "sequential"},
        layout=Layout(),
        model=ModelConfig(),
        train=TrainConfig(),
        experiments={},
        seed=0,
        name="scratch",
    )
    parcel = job.Parcel(job.Job([asked], dict.fromkeys(HANDLING)), [], sender=("elsewhere", 1))
    before = signal.signal(signal.SIGUSR2, lambda signum, _: forwarded.append(signum))
    try:
        assert job.work({PARCEL: parcel.packed()}) == []
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert forwarded == [signal.SIGUSR2]
