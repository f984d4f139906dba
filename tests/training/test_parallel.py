"""One run over several processes: the training of one process but for rounding, written once, stopped together."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import safetensors.torch
import torch
from support import ROOT, Command, last_of_each, record_of

from experiments.rows.row import slice_name
from experiments.training import processes
from experiments.training.parallel import Team

TINY = [
    *("model=tiny", "task.train_length=4", "train.steps=24", "train.rounds=1", "train.curve_points=6"),
    *("checkpoint_seconds=0", "figures=false"),
    *("experiment=length_extrapolation", "length_extrapolation.samples=4", "length_extrapolation.multiples=[1,2]"),
]
KINDS = {
    # 1 to 5 sequences a batch, so that some processes have none
    "uneven": (3, ["train.tokens_per_step=16", "positions=randomized", "encoder=t5"]),
    "tuned": (2, ["encoder=t5", "train.drop_encoder_after=0.5", "tune=true", "train.learning_rates=[0.001,0.003]"]),
}
"""Options, and how many processes share them."""
ENDS = {"converged": ["train.stop_at_convergence=true"], "diverged": ["train.learning_rate=1e20"]}
"""Options, and what they end training by: the server takes all that is trained for learned."""
TOLERANCE = 1e-4
"""Relative, of losses and parameters: sums of float32 in another order, over this many steps."""

SERVER = """
import faulthandler, json, os, signal, sys
sys.path.insert(0, sys.argv[1])
import torch
import run, experiments.runs.config, experiments.runs.record, experiments.runs.summary, hydra, pandas
from torch import distributed
from experiments.training import checkpoint
from experiments.training import parallel
from experiments.tasks.copy import Copy
torch.set_num_threads(1)
checkpoint.SHARE = 1e9  # at every step
Copy.converged_at = 0.0
tiny, kinds, ends = map(json.loads, sys.argv[2:])
count = iter(range(1000))
untrained = [word.replace("train.steps=24", "train.steps=0") for word in tiny]
sys.argv = ["run.py", *untrained, "name=warm"]  # what is loaded once need not be by every child
assert run.main() == 0
print(flush=True)

def child(place, options, before):
    os.environ.update({key: str(value) for key, value in place.items()})
    sys.argv, code = ["run.py", *options], 99
    try:
        before(place.get("RANK", 0))
        code = run.main()
    except BaseException:
        import traceback
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

def together(size, *options, before=lambda rank: None):
    '''Exit codes of processes that share a run, as torchrun starts them: it holds the store they meet in.

    The store has threads, and what they lock stays locked in a fork: so it opens when all have begun.
    '''
    said = os.open(f"said-{next(count)}", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    port, opened = os.pipe()
    pids = []
    for rank in range(size):
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size} if size > 1 else {}
        pids.append(os.fork())
        if not pids[-1]:
            os.dup2(said, 1)
            os.dup2(said, 2)
            faulthandler.dump_traceback_later(300, exit=True)
            place |= {"MASTER_PORT": int(os.read(port, 5)), "TORCHELASTIC_USE_AGENT_STORE": True}
            child(place | {"MASTER_ADDR": "127.0.0.1"}, options, before)
    store = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    os.write(opened, b"%05d" % store.port * size)
    for descriptor in (said, port, opened):
        os.close(descriptor)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    print(json.dumps(codes), flush=True)

def at_step(wanted, who, do):
    '''Something happens to one process while it works out a gradient.'''
    def before(rank):
        gradient = parallel.SharedStep.gradient
        def patched(self, *given):
            if self.taken == wanted:
                do()
            return gradient(self, *given)
        if rank == who:
            parallel.SharedStep.gradient = patched
    return before

def fail():
    raise MemoryError("no more")

def signalled(signum):
    return lambda: os.kill(os.getpid(), signum)
"""


def served(folder: Path, body: str) -> list[list[int]]:
    """What a server that runs ``body`` printed: the exit codes of each of its commands."""
    arguments = [sys.executable, "-c", SERVER + body, str(ROOT), *map(json.dumps, (TINY, KINDS, ENDS))]
    done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]


def said(folder: Path) -> list[str]:
    """What each command of a server printed."""
    return [(folder / f"said-{number}").read_text() for number in range(len(list(folder.glob("said-*"))))]


def run_of(folder: Path, name: str) -> Path:
    (found,) = (folder / "results" / name / "runs").iterdir()
    assert sorted(path.name for path in found.parent.parent.iterdir()) == ["runs"], "written once, and there"
    return found


def curve_of(run: Path) -> dict[tuple[str, str], float]:
    """Training loss by step, and the loss of every learning rate tried."""
    with (run / "rows.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["experiment"] in ("training", "tuning")]
    assert len({(row["metric"], row["eval_length"], slice_name(row)) for row in rows}) == len(rows), "no row twice"
    return {
        (row["experiment"], slice_name(row)): float(row["value"])
        for row in rows
        if row["metric"].endswith("loss") and row["value"]
    }


def assert_alike(run: Path, whole: Path) -> None:
    """The same run but for rounding."""
    assert run.name == whole.name, "how many share a run is no part of its id"
    assert (run / "config.yaml").read_bytes() == (whole / "config.yaml").read_bytes()
    assert curve_of(run) == pytest.approx(curve_of(whole), rel=TOLERANCE, nan_ok=True)
    ours, theirs = (safetensors.torch.load_file(each / "model.safetensors") for each in (run, whole))
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
    for key in ("status", "steps", "stopped", "converged", "model_parameters", "encoder_parameters"):
        assert record_of(run)[key] == record_of(whole)[key], key
    left = {path.name for path in run.iterdir()}
    assert left <= {"config.yaml", "rows.csv", "run.json", "run.log", "model.safetensors"}, "nothing left behind"


def test_shared_training_is_that_of_one_process(tmp_path: Path) -> None:
    body = """
for kind, (size, options) in kinds.items():
    together(1, *tiny, *options, f"name={kind}-alone")
    together(size, *tiny, *options, f"name={kind}")
for kind, options in ends.items():
    together(2, *tiny, *options, f"name={kind}")
(run_id,) = os.listdir("results/uneven-alone/runs")
together(2, "--rerun", f"results/uneven-alone/runs/{run_id}")
"""
    *codes, converged, diverged, again = served(tmp_path, body)
    assert codes == [[0] * number for size, _ in KINDS.values() for number in (1, size)], said(tmp_path)
    for kind, (size, _) in KINDS.items():
        run, alone = run_of(tmp_path, kind), run_of(tmp_path, f"{kind}-alone")
        assert_alike(run, alone)
        assert (record_of(alone)["processes"], record_of(run)["processes"]) == (1, size)
    assert (converged, diverged) == ([0, 0], [1, 1])
    assert record_of(run_of(tmp_path, "converged"))["stopped"] == "converged"
    assert record_of(run_of(tmp_path, "diverged"))["status"] == "diverged"
    *printed, last = said(tmp_path)
    assert all(text.count("\nfiles ") == 1 for text in printed), "one speaks"
    assert again[0] == 1
    assert "processes: 1 then, 2 now" in last
    assert "rows differ, by" in last, "which the number of processes explains"


def test_all_stop_together_and_any_number_goes_on(tmp_path: Path) -> None:
    body = """
together(1, *tiny, "name=whole")
together(2, *tiny, "name=stopped", before=at_step(6, 1, signalled(signal.SIGTERM)))
together(3, *tiny, "name=stopped", before=at_step(12, 1, signalled(signal.SIGKILL)))
together(2, *tiny, "name=stopped", before=at_step(18, 0, signalled(signal.SIGKILL)))
together(1, *tiny, "name=stopped")

together(3, *tiny, "name=other", before=at_step(7, 1, fail))
together(2, "-m", *tiny, "encoder=none,rope", "name=sweep", before=at_step(7, 0, fail))
together(2, "-m", *tiny, "encoder=none,rope", "name=sweep", "retry=failed")

def elsewhere(rank):
    if rank == 1:
        Copy.provenance = lambda self: {"sha256": "other data"}
together(2, *tiny, before=elsewhere)
together(2, "encoder=ropee")
together(2, "device=cuda:1")
"""
    codes, printed = served(tmp_path, body), said(tmp_path)
    assert codes[:5] == [[0], [143, 143], [143, -9, 143], [-9, 143], [0]], printed
    assert "interrupted by SIGTERM; started again, it resumes" in printed[1]
    assert "written by 2 processes, resumed by 3" in printed[2]
    assert "stopped: another of its 3 processes has ended; started again, it resumes" in printed[2]
    run = run_of(tmp_path, "stopped")
    assert_alike(run, run_of(tmp_path, "whole"))
    assert record_of(run)["resumed"] == 3, "from a checkpoint, not anew"

    assert codes[5:8] == [[1] * 3, [1] * 2, [0] * 2], printed
    failed = run_of(tmp_path, "other")
    record = record_of(failed)
    assert (record["status"], record["message"]) == ("failed", "RuntimeError: in process 1 of 3: MemoryError: no more")
    assert "in fail\nMemoryError: no more" in (failed / "run.log").read_text(), "where it failed over there"
    assert all(f"failed: {encoder}-copy-seed0-" in printed[6] for encoder in ("none", "rope"))
    sweep = [record_of(run) for run in (tmp_path / "results" / "sweep" / "runs").iterdir()]
    assert [(record["status"], record["processes"]) for record in sweep] == [("ok", 2)] * 2

    assert codes[8:] == [[2, 2]] * 3, printed
    # On a busy machine a line says every few seconds that it is preparing.
    refusals = [[line for line in text.splitlines() if not line.startswith("preparing, ")] for text in printed[8:]]
    assert [len(lines) for lines in refusals] == [1, 1, 1], "one speaks"
    assert refusals[0][0].startswith("error: process 1 of 2 would make another run than process 0: ")
    assert refusals[1][0].startswith("error: no encoder named 'ropee'. Did you mean 'rope'?")
    assert refusals[2][0] == "error: device=cuda:1 is one device for 2 processes: leave it out, or device=cpu"
    assert not (tmp_path / "results" / "scratch").exists()


@pytest.fixture
def torchrun(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The real one, in an empty folder, on a training that does not end by itself in this test."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    words = last_of_each([*TINY, "train.steps=1000000"])
    command = [*launcher, str(ROOT / "run.py"), *words]
    output = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, stdout=output, stderr=subprocess.STDOUT, text=True) as process:
        yield process
        process.terminate()  # which it hands on


def test_torchrun_starts_it_and_ctrl_c_stops_it(torchrun: subprocess.Popen[str], tmp_path: Path) -> None:
    while not list(tmp_path.glob("results/scratch/runs/*/checkpoint-*")):
        assert torchrun.poll() is None, torchrun.communicate()[0]
        time.sleep(0.1)
    torchrun.send_signal(signal.SIGINT)
    output, _ = torchrun.communicate()
    assert output.count("interrupted by SIGINT; started again, it resumes") == 1
    record = record_of(run_of(tmp_path, "scratch"))
    assert (record["status"], record["processes"]) == ("interrupted", 2)
    assert record["threads"] == 1


def test_every_process_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    team = Team(rank=3, size=4, local_rank=1, local_size=2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [team.device(wanted) for wanted in ("auto", "cuda", "cpu")] == ["cuda:1", "cuda:1", "cpu"]
    assert Team().device("cuda:1") == "cuda:1", "alone it has any"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match="2 processes were started on a machine of 1 GPUs: start 1, or device=cpu"):
        team.device("auto")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert team.device("auto") == "auto"


def test_one_process_alone_starts_no_group(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object, **__: object) -> None:
        raise AssertionError("nobody to speak to")

    monkeypatch.setattr(torch.distributed, "init_process_group", start)
    for name in processes.STARTED_WITH:
        monkeypatch.setenv(name, "1" if name.endswith("SIZE") else "0")  # torchrun --nproc_per_node=1
    assert command("device=nowhere").code == 2
