"""One worker to a run: who holds it, what the death of a worker frees, and that many at once do every run once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, TINY, Command, record_of, run_of

from experiments.runs import lease
from experiments.runs.lease import RunLocked, acquire, holder
from experiments.training.checkpoint import Checkpoints
from experiments.training.log import TrainLog

HOLD = """
import sys, time
from pathlib import Path
from experiments.runs.lease import acquire
with acquire(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def other(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock of ``tmp_path``."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def replace_lock(folder: Path) -> None:
    """What happens when somebody removes a lock by hand and another worker starts."""
    (folder / lease.LOCK).rename(folder / "removed")  # so that its inode is not used again
    (folder / lease.LOCK).touch()
    (folder / lease.HOLDER).write_text("process 1 on far")


def test_the_holder_is_named_and_nothing_is_left_of_a_lock(tmp_path: Path) -> None:
    assert holder(tmp_path) is None
    with acquire(tmp_path) as check_lease:
        check_lease()
        found = holder(tmp_path)
        assert found is not None
        assert f"process {os.getpid()} on " in found
        with pytest.raises(RunLocked, match=rf"process {os.getpid()} on "), acquire(tmp_path):
            pass
        check_lease()
    assert holder(tmp_path) is None
    assert not list(tmp_path.iterdir())


def test_a_stopped_process_keeps_its_lock_and_a_killed_one_does_not(
    tmp_path: Path, other: subprocess.Popen[str]
) -> None:
    other.send_signal(signal.SIGSTOP)
    assert f"process {other.pid} on " in str(holder(tmp_path))
    with pytest.raises(RunLocked, match=f"process {other.pid} on "), acquire(tmp_path):
        pass
    other.kill()
    other.wait()
    assert (tmp_path / lease.HOLDER).is_file()
    assert holder(tmp_path) is None
    with acquire(tmp_path) as check_lease:
        check_lease()
    assert not list(tmp_path.iterdir())


def test_a_look_at_a_lock_keeps_nobody_from_it(tmp_path: Path) -> None:
    """A worker that starts while `holder` probes the lock waits for it."""
    script = "import sys, time\nfrom pathlib import Path\nfrom experiments.runs.lease import holder\n"
    script += "end = time.time() + 3\nprint(flush=True)\nwhile time.time() < end: holder(Path(sys.argv[1]))"
    (tmp_path / lease.LOCK).touch()
    process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    for _ in range(20):
        with acquire(tmp_path):
            pass
        (tmp_path / lease.LOCK).touch()
    process.kill()
    process.communicate()


@pytest.mark.parametrize("content", [b"", b"\xff{"])
def test_a_damaged_name_holds_nothing_and_stops_nothing(tmp_path: Path, content: bytes) -> None:
    for name in (lease.LOCK, lease.HOLDER):
        (tmp_path / name).write_bytes(content)
    assert holder(tmp_path) is None
    with acquire(tmp_path):
        (tmp_path / lease.HOLDER).write_bytes(content)
        assert holder(tmp_path) == "another worker"


def test_whoever_lost_a_lock_finds_out_and_takes_none_away(tmp_path: Path) -> None:
    with acquire(tmp_path) as check_lease:
        replace_lock(tmp_path)
        with pytest.raises(RunLocked, match="process 1 on far"):
            check_lease()
    assert (tmp_path / lease.LOCK).exists(), "it is the other worker's"
    (tmp_path / lease.LOCK).unlink()
    with acquire(tmp_path) as check_lease:
        (tmp_path / lease.LOCK).unlink()
        with pytest.raises(RunLocked):
            check_lease()


def test_a_run_without_its_lock_writes_nothing_more(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before: dict[str, bytes] = {}

    def overtaken(*_: object) -> list[object]:
        run = run_of(tmp_path)
        replace_lock(run)
        (run / "run.json").write_text('{"status": "theirs"}')
        before.update((path.name, path.read_bytes()) for path in run.iterdir() if path.name != "run.log")
        return []

    monkeypatch.setattr(TrainLog, "rows", overtaken)
    done = command(*TINY)
    assert done.code == 0
    assert "process 1 on far" in done.out
    run = run_of(tmp_path)
    assert before
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.name != "run.log"} == before


def test_a_run_without_its_lock_writes_no_checkpoint(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal that comes then still stops the sweep."""
    boundary = Checkpoints.boundary

    def overtaken(self: Checkpoints, *given: Any) -> None:
        if not (self.folder / "removed").exists():
            replace_lock(self.folder)
            os.kill(os.getpid(), signal.SIGTERM)
        boundary(self, *given)

    monkeypatch.setattr(Checkpoints, "boundary", overtaken)
    done = command("-m", *TINY, "seed=0,1")
    assert done.code == 143
    assert "process 1 on far" in done.out
    run = run_of(tmp_path)
    assert not list(run.glob("checkpoint-*"))
    assert record_of(run)["status"] == "running"


def test_a_run_that_is_held_is_left_to_its_holder(command: Command, tmp_path: Path) -> None:
    command(*TINY, "force=true")
    run = run_of(tmp_path)
    (run / "run.json").unlink()
    with acquire(run):
        done = command(*TINY)
    assert done.code == 0
    assert f"is being run by process {os.getpid()} on" in done.out
    assert not (run / "run.json").exists()
    assert command(*TINY).code == 0
    assert record_of(run)["status"] == "ok"


SERVER = """
import os, sys
sys.path.insert(0, sys.argv[1])
import torch
import run, experiments.runs.config, experiments.runs.record, experiments.runs.summary, hydra, pandas
torch.set_num_threads(1)
options, pids = sys.argv[2:], []
for worker in range(8):
    pid = os.fork()
    if pid == 0:
        sys.argv = ["run.py", *options]
        file = os.open(f"out{worker}", os.O_CREAT | os.O_WRONLY)
        os.dup2(file, 1), os.dup2(file, 2)
        code = 99
        try:
            code = run.main()
            sys.stdout.flush()
        finally:
            os._exit(code)
    pids.append(pid)
print(*(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_eight_at_once_do_every_run_once(tmp_path: Path) -> None:
    sweep = ["-m", *TINY, "encoder=none,rope", "seed=0,1", "name=sweep"]
    done = subprocess.run(
        [sys.executable, "-c", SERVER, str(ROOT), *sweep], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    said = [(tmp_path / f"out{worker}").read_text() for worker in range(8)]
    assert done.stdout.split() == ["0"] * 8, "\n".join(said)
    runs = list((tmp_path / "results" / "sweep" / "runs").iterdir())
    assert len(runs) == 4
    shown = [line for text in said for line in text.splitlines() if " on copy, seed " in line]
    assert sum("finished before" not in line for line in shown) == 4, "each was done by one worker"
    assert {record_of(run)["status"] for run in runs} == {"ok"}
