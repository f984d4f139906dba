"""A run that was cut off goes on and ends bit for bit as if it had not been; a damaged checkpoint is not believed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support import ROOT, TINY, Command, record_of, run_of

from experiments.training import checkpoint, loop
from experiments.training.checkpoint import Checkpoints
from experiments.training.interruption import Interrupted
from experiments.training.log import TrainLog

LONGER = [word.replace("train.steps=9", "train.steps=150") for word in TINY]
KINDS = {
    "plain": [],
    "randomized": ["positions=randomized", "encoder=t5"],
    "dropped": ["encoder=rope", "train.drop_encoder_after=0.5"],
    "tuned": ["tune=true", "train.learning_rates=[0.001,0.003]"],
    "measured on the way": ["length_extrapolation.during=[0.3,5]"],
}
STOPS = {
    "plain": [1, 3, 8],
    "randomized": [2, 5],
    "dropped": [4, 7],
    "tuned": [3, 8, 12, 16],
    "measured on the way": [3, 7],
}
KILLS = int(os.environ.get("PE_ZOO_KILLS", "8"))


def assert_same(run: Path, other: Path) -> None:
    for name in ("rows.csv", "model.safetensors", "config.yaml"):
        assert (run / name).read_bytes() == (other / name).read_bytes(), name
    timed = {"train_seconds", "measure_seconds", "tokens_per_second", "started", "finished", "resumed", "command"}
    timed |= {"tuning"} if record_of(run)["tuning"] else set()
    assert {k: v for k, v in record_of(run).items() if k not in timed} == {
        k: v for k, v in record_of(other).items() if k not in timed
    }
    assert not [path for path in run.iterdir() if path.name.startswith((".", "checkpoint"))], "left behind"


@pytest.fixture
def stop_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Plays Ctrl-C at the given boundary from now on; 0: never."""
    boundary, wanted = Checkpoints.boundary, [0]

    def counted(self: Checkpoints, *given: Any) -> None:
        wanted[0] -= 1
        if wanted[0] == 0:
            os.kill(os.getpid(), signal.SIGINT)
        boundary(self, *given)

    monkeypatch.setattr(Checkpoints, "boundary", counted)
    return lambda at: wanted.__setitem__(0, at)


@pytest.mark.parametrize("kind", KINDS)
def test_stopped_in_training_it_ends_as_if_it_had_not_been(
    command: Command, tmp_path: Path, kind: str, stop_at: Callable[[int], None]
) -> None:
    options = [*TINY, *KINDS[kind]]
    assert command(*options, "name=whole").code == 0
    whole = run_of(tmp_path, "whole")
    for place in STOPS[kind]:
        stop_at(place)
        stopped = command(*options, f"name=at{place}")
        assert stopped.code == 130
        assert "started again, it resumes" in stopped.err
        run = run_of(tmp_path, f"at{place}")
        assert record_of(run)["status"] == "interrupted"
        assert list(run.glob("checkpoint-*"))
        stop_at(0)
        assert command(*options, f"name=at{place}").code == 0
        assert record_of(run)["resumed"] == 1
        assert_same(run, whole)


def test_stopped_twice_and_while_measuring(
    command: Command, tmp_path: Path, stop_at: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [*TINY, "encoder=rope", "train.drop_encoder_after=0.5"]
    command(*options, "name=whole")
    for place in (3, 2):  # the second one is counted from where it goes on
        stop_at(place)
        assert command(*options).code == 130
    stop_at(0)
    run = run_of(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(TrainLog, "rows", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
        assert command(*options).code == 143
    assert record_of(run)["message"] == "interrupted by SIGTERM"

    def trained(*_: object, **__: object) -> None:
        raise AssertionError("it was trained already")

    monkeypatch.setattr(loop, "train", trained)
    assert command(*options).code == 0
    assert record_of(run)["resumed"] == 3
    assert_same(run, run_of(tmp_path, "whole"))


@pytest.mark.parametrize("damage", ["empty", "truncated", "garbage", "other torch"])
def test_a_damaged_checkpoint_is_passed_over_and_said(
    command: Command, tmp_path: Path, stop_at: Callable[[int], None], damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    command(*TINY, "name=whole")
    monkeypatch.setattr(checkpoint, "SHARE", 1e9)  # at every step
    stop_at(6)
    assert command(*TINY).code == 130
    run = run_of(tmp_path)
    kept = sorted(run.glob("checkpoint-*"))
    assert len(kept) == checkpoint.KEPT
    whole = kept[-1].read_bytes()
    spoiled = {"empty": b"", "truncated": whole[:-9], "garbage": os.urandom(99)}
    if damage in spoiled:
        kept[-1].write_bytes(spoiled[damage])
    else:
        monkeypatch.setattr(torch, "__version__", "0.0")
    stop_at(0)
    assert command(*TINY).code == 0
    log = (run / "run.log").read_text()
    monkeypatch.undo()
    if damage in spoiled:
        assert f"{kept[-1].name} is damaged and not used" in log
        assert f"resumed from {kept[0].name.rpartition('-')[0]}" in log, "the one before is sound"
    else:
        assert "it was made with another torch" in log
        assert record_of(run)["resumed"] == 0
    for name in ("rows.csv", "model.safetensors"):
        assert (run / name).read_bytes() == (run_of(tmp_path, "whole") / name).read_bytes()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


DAMAGES: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "rows cut short": ("rows.csv", lambda data: data[:-20]),
    "line ends of another system": ("rows.csv", lambda data: data.replace(b"\n", b"\r\n")),
    "record cut short": ("run.json", lambda data: data[:-20]),
    "record nested": ("run.json", lambda data: b"[" * 100_000),
}


def test_changed_files_are_not_replaced_without_force(command: Command, tmp_path: Path) -> None:
    command(*TINY)
    run = run_of(tmp_path)
    sound = {name: (run / name).read_bytes() for name in ("rows.csv", "run.json")}
    (run / "my notes").mkdir()
    for file in ("notes.md", "my notes/rows.csv", "checkpoint-best.safetensors", ".hidden"):
        (run / file).write_text("mine")
    for file, damage in DAMAGES.values():
        (run / file).write_bytes(damage(sound[file]))
        before = contents(run)
        done = command(*TINY)
        assert (done.code, done.err.count("\n")) == (2, 1), done.err
        assert f"{run.name}: {file} " in done.err
        assert "force=true" in done.err
        assert contents(run) == before
        (run / file).write_bytes(sound[file])
    (run / "rows.csv").unlink()
    done = command("-m", *TINY, "seed=0,1")
    assert done.code == 2
    assert "2 runs: 1 refused, 1 done" in done.out
    assert "rows.csv cannot be read (No such file or directory)" in done.err
    assert command(*TINY, "force=true").code == 0
    assert (run / "rows.csv").read_bytes() == sound["rows.csv"]
    after = contents(run)
    assert {name for name, data in after.items() if data == b"mine"} == {
        *("notes.md", "my notes/rows.csv", "checkpoint-best.safetensors", ".hidden")
    }


def test_what_a_kill_left_of_an_unfinished_run_is_cleared_up(command: Command, tmp_path: Path) -> None:
    command(*TINY)
    run = run_of(tmp_path)
    names = {path.name for path in run.iterdir()}
    rows, record = (run / "rows.csv").read_bytes(), record_of(run) | {"status": "running"}
    (run / "run.json").write_text(json.dumps(record))
    (run / "rows.csv").write_bytes(rows[:-20])
    (run / ".figures.abcd1234").mkdir()
    for name in (".rows.csv.abcd_123", ".run.json.abcd1234", f".checkpoint-000001-{'0' * 64}.safetensors.abcd1234"):
        (run / name).touch()
    for name in (".lock", ".lock-holder"):
        (run / name).touch()
    (run / "notes.md").write_text("mine")
    assert command(*TINY).code == 0
    assert (run / "rows.csv").read_bytes() == rows
    assert {path.name for path in run.iterdir()} == names | {"notes.md"}


def test_a_forced_run_that_was_stopped_goes_on(
    command: Command, tmp_path: Path, stop_at: Callable[[int], None]
) -> None:
    command(*TINY, "name=whole")
    whole = run_of(tmp_path, "whole")
    assert command(*TINY).code == 0
    run = run_of(tmp_path)
    stop_at(6)
    stopped = command(*TINY, "force=true")
    assert stopped.code == 130
    assert "resumes where this one stopped" in stopped.err
    stop_at(0)
    assert command(*TINY, "force=true").code == 0
    assert record_of(run)["resumed"] == 1
    assert_same(run, whole)
    assert command(*TINY, "force=true").code == 0
    assert record_of(run)["resumed"] == 0, "what has ended begins anew"


def test_a_signal_waits_where_it_must() -> None:
    from experiments.training.interruption import Interruption

    interruption = Interruption()
    with interruption.listening():
        with interruption.deferred():
            os.kill(os.getpid(), signal.SIGTERM)
            assert interruption.signum == signal.SIGTERM
        with pytest.raises(Interrupted, match="SIGTERM") as stopped:
            interruption.check()
    assert stopped.value.exit_code == 143
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_second_signal_ends_at_once_unless_it_comes_with_the_first(tmp_path: Path) -> None:
    script = tmp_path / "stops.py"
    script.write_text(
        "import os, signal, sys, time\n"
        "from experiments.training.interruption import Interrupted, Interruption\n"
        "with Interruption().listening():\n"
        "    try:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    except Interrupted:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        time.sleep(1.1)\n"
        "        print('saved', flush=True)\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        print('still there')\n"
    )
    done = subprocess.run(
        [sys.executable, script],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        text=True,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (-signal.SIGINT, "saved\n"), done.stderr


SERVER = """
import os, random, sys, time
sys.path.insert(0, sys.argv[1])
import torch
import run, experiments.runs.config, experiments.runs.record, experiments.runs.summary, hydra, pandas
from experiments.training import checkpoint
from experiments.runs.outcome import Recording
torch.set_num_threads(1)
checkpoint.SHARE = 1e9  # at every step, so that kills come while one is written
kills, options = int(sys.argv[2]), sys.argv[3:]
begin = Recording.make

def child():
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        sys.argv = ["run.py", *options]
        sys.stdout = sys.stderr = open(os.devnull, "w")
        Recording.make = lambda *given: (os.write(writing, b"."), begin(*given))[1]
        code = 99
        try:
            code = run.main()
        finally:
            os._exit(code)
    os.close(writing)
    begun = os.read(reading, 1)  # nothing once all is done
    os.close(reading)
    return pid, begun

moments, cut = random.Random(0), 0
for _ in range(kills):
    pid, begun = child()
    if begun:
        time.sleep(moments.uniform(0, 16 / kills))
        os.kill(pid, 9)
    cut += os.waitpid(pid, 0)[1] == 9
code = os.waitstatus_to_exitcode(os.waitpid(child()[0], 0)[1])
print(cut, code)
"""


@pytest.mark.timeout(1800)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_sweep_killed_at_random_loses_and_doubles_nothing(command: Command, tmp_path: Path) -> None:
    """``PE_ZOO_KILLS`` says how often; with 100 and more every run is compared, not some."""
    sweep = ["-m", *LONGER, "encoder=rope,t5", "seed=0,1,2", "name=sweep", "workers=1"]
    done = subprocess.run(
        [sys.executable, "-c", SERVER, str(ROOT), str(KILLS), *sweep],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    cut, code = map(int, done.stdout.split())
    assert code == 0
    assert cut >= KILLS // 3, "too few came while a run was under way"
    runs = sorted((tmp_path / "results" / "sweep" / "runs").iterdir())
    assert len(runs) == 6
    assert sum(record_of(run)["resumed"] for run in runs), "some went on from a checkpoint"
    some = random.Random(1).sample(runs, 2) if KILLS < 100 else runs
    for run in some:
        encoder, _, seed, _ = run.name.split("-")
        command(*LONGER, f"encoder={encoder}", f"seed={seed[4:]}", f"name=whole-{run.name}")
        assert_same(run, run_of(tmp_path, f"whole-{run.name}"))
