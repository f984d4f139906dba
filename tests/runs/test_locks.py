"""One worker to a run: who holds it, who may take over, and that many at once do every run once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, TINY, Command, record_of, run_of

from experiments.runs import lease, record
from experiments.runs.lease import Held, Holder, held, holder
from experiments.training.checkpoint import Checkpoints


def lock_of(folder: Path, who: Holder, *, seconds_ago: float = 0.0) -> Path:
    path = folder / f"{lease.PREFIX}000003"
    path.write_text(json.dumps(asdict(who)))
    os.utime(path, (time.time() - seconds_ago,) * 2)
    return path


@pytest.fixture
def me(tmp_path: Path) -> Holder:
    with held(tmp_path):
        found = holder(tmp_path)
    assert found is not None
    assert (found.pid, found.is_gone) == (os.getpid(), False)
    assert holder(tmp_path) is None
    assert not list(tmp_path.iterdir()), "nothing is left of it"
    return found


def test_a_live_holder_is_named_and_left_alone(tmp_path: Path, me: Holder) -> None:
    with held(tmp_path), pytest.raises(Held, match=rf"is being run by process {os.getpid()} on "), held(tmp_path):
        pass
    lock = lock_of(tmp_path, replace(me, machine="another", pid=1, host="far"), seconds_ago=lease.STALE_SECONDS / 2)
    with pytest.raises(Held, match="process 1 on far"), held(tmp_path):
        pass
    assert lock.exists()


def test_the_dead_hold_nothing(tmp_path: Path, me: Holder) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    gone = [replace(me, pid=ended.pid), replace(me, machine="another")]
    if me.born is not None:
        gone.append(replace(me, born=me.born - 1))  # its number was given to another process
    for who in gone:
        lock_of(tmp_path, who, seconds_ago=2 * lease.STALE_SECONDS if who.machine == "another" else 0)
        assert holder(tmp_path) is None
        with held(tmp_path):
            found = holder(tmp_path)
            assert found is not None
            assert found.token != who.token
        assert not list(tmp_path.iterdir())


def test_a_process_that_stands_still_is_not_gone(tmp_path: Path, me: Holder) -> None:
    """Stopped by Ctrl-Z, it does not refresh its lock; that it goes on can be seen here all the same."""
    if me.born is None:
        pytest.skip("this system does not tell when a process began")
    lock_of(tmp_path, me, seconds_ago=2 * lease.STALE_SECONDS)
    with pytest.raises(Held, match=f"process {os.getpid()}"), held(tmp_path):
        pass


def test_who_takes_over_says_what_is_known(tmp_path: Path, me: Holder, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "pe_zoo")
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for who, said in (
        (replace(me, pid=ended.pid), "has gone"),
        (replace(me, machine="far"), "showed no life for 60 s"),
    ):
        lock_of(tmp_path, who, seconds_ago=2 * lease.STALE_SECONDS)
        with held(tmp_path):
            assert f"takes over from {who}, which {said}" in caplog.text


def test_whoever_was_taken_over_finds_out_and_takes_no_lock_away(tmp_path: Path, me: Holder) -> None:
    with held(tmp_path) as lock:
        lock.check()
        other = lock_of(tmp_path, replace(me, machine="another", pid=1, host="far"))
        with pytest.raises(Held, match="was taken over by process 1 on far"):
            lock.check()
    assert set(tmp_path.iterdir()) == {lock.path, other}, "they are the successor's to take away"
    with pytest.raises(Held), held(tmp_path):
        pass
    for path in (other, lock.path):
        path.unlink()
    with held(tmp_path) as lock:
        lock.path.unlink()  # by a successor that has ended
        with pytest.raises(Held, match="was taken over by another worker"):
            lock.check()
        lock.path.write_text(json.dumps(asdict(replace(me, host="far"))))  # of one that began after that
        with pytest.raises(Held, match="on far"):
            lock.check()
    assert lock.path.exists()


@pytest.mark.parametrize("ended", [False, True], ids=["at work", "ended"])
def test_a_run_that_was_taken_over_writes_nothing_more(
    command: Command, tmp_path: Path, me: Holder, monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    before: dict[str, bytes] = {}

    def overtaken(*_: object) -> list[object]:
        run = run_of(tmp_path)
        if ended:
            for path in run.glob(f"{lease.PREFIX}*"):
                path.unlink()
        else:
            lock_of(run, replace(me, machine="another", pid=1, host="far"))
        (run / "run.json").write_text('{"status": "theirs"}')
        before.update((path.name, path.read_bytes()) for path in run.iterdir() if path.name != "run.log")
        return []

    monkeypatch.setattr(record, "training_rows", overtaken)
    done = command(*TINY)
    assert done.code == 0
    who = "another worker" if ended else "process 1 on far"
    assert f"was taken over by {who}: left to it" in done.out
    run = run_of(tmp_path)
    assert before
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.name != "run.log"} == before


def test_no_checkpoint_of_a_run_that_was_taken_over(
    command: Command, tmp_path: Path, me: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is a signal that comes then forgotten."""
    boundary = Checkpoints.boundary

    def overtaken(self: Checkpoints, *given: Any) -> None:
        if not list(self.folder.glob(f"{lease.PREFIX}000003")):
            lock_of(self.folder, replace(me, machine="another", pid=1, host="far"))
            os.kill(os.getpid(), signal.SIGTERM)
        boundary(self, *given)

    monkeypatch.setattr(Checkpoints, "boundary", overtaken)
    done = command("-m", *TINY, "seed=0,1")
    assert done.code == 143
    assert "was taken over by process 1 on far: left to it" in done.out
    run = run_of(tmp_path)
    assert not list(run.glob("checkpoint-*"))
    assert record_of(run)["status"] == "running"


def test_a_damaged_lock_holds_as_long_as_it_is_fresh(tmp_path: Path) -> None:
    path = tmp_path / f"{lease.PREFIX}000000"
    path.write_bytes(b"\xff{")
    with pytest.raises(Held, match="another worker"), held(tmp_path):
        pass
    os.utime(path, (time.time() - 2 * lease.STALE_SECONDS,) * 2)
    with held(tmp_path):
        pass


def test_of_two_successors_one_wins(tmp_path: Path, me: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    lock_of(tmp_path, replace(me, machine="another"), seconds_ago=2 * lease.STALE_SECONDS)
    link = os.link

    def overtaken(source: str, target: Path) -> None:
        monkeypatch.setattr(os, "link", link)
        Path(target).write_text(json.dumps(asdict(replace(me, host="faster"))))
        link(source, target)

    monkeypatch.setattr(os, "link", overtaken)
    with pytest.raises(Held, match="on faster"), held(tmp_path):
        pass


def test_a_run_that_is_held_is_left_to_its_holder(command: Command, tmp_path: Path) -> None:
    command(*TINY, "force=true")
    run = run_of(tmp_path)
    (run / "run.json").unlink()
    with held(run):
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
for worker in range(16):
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
def test_sixteen_at_once_do_every_run_once(tmp_path: Path) -> None:
    sweep = ["-m", *TINY, "encoder=none,rope", "seed=0,1,2", "name=sweep"]
    done = subprocess.run(
        [sys.executable, "-c", SERVER, str(ROOT), *sweep], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    said = [(tmp_path / f"out{worker}").read_text() for worker in range(16)]
    assert done.stdout.split() == ["0"] * 16, "\n".join(said)
    runs = list((tmp_path / "results" / "sweep" / "runs").iterdir())
    assert len(runs) == 6
    assert sum(text.count("\nfiles: ") for text in said) == 6, "each was shown by one worker"
    assert {record_of(run)["status"] for run in runs} == {"ok"}
