"""`seeds=` on a device where a stack is faster: every run is what it is alone, and nothing is lost on the way."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from support import Command, record_of

from experiments.model.layout import Layout
from experiments.plan.request import ModelConfig, RunConfig
from experiments.runs import job, lease, seeds
from experiments.runs.options import HANDLING, PARCEL
from experiments.training.config import TrainConfig
from experiments.training.interruption import Interrupted
from experiments.training.stacked import StackedStep

TINY = [
    *("model=tiny", "task.train_length=4", "task.min_length=4"),
    *("train.steps=12", "train.rounds=1", "train.curve_points=3", "checkpoint_seconds=0"),
    *("experiment=length_extrapolation", "length_extrapolation.samples=4", "length_extrapolation.multiples=[1,2]"),
    *("seed=3", "seeds=3", "figures=false"),
]
KINDS = {
    "plain": ["encoder=rope"],
    "randomized": ["positions=randomized", "encoder=t5"],
    "dropped": ["encoder=learned", "train.drop_encoder_after=0.5"],
    "stops": [
        *("encoder=alibi", "task.train_length=1", "task.min_length=1", "task.num_symbols=2"),
        *("train.stop_at_convergence=true", "train.steps=60", "train.curve_points=20", "train.learning_rate=0.01"),
    ],
}
OPTIONS = {
    kind: [*(word for word in TINY if word.partition("=")[0] not in {own.partition("=")[0] for own in words}), *words]
    for kind, words in KINDS.items()
}
MESSAGE = "ignore:There is a performance drop"


def pretend(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """As on a GPU; what is returned gains the number of seeds of every stacked step."""
    taken: list[int] = []
    step = StackedStep.__call__

    def counted(self: StackedStep, *given: Any) -> torch.Tensor:
        taken.append(len(self.steps))
        return step(self, *given)

    monkeypatch.setattr(StackedStep, "__call__", counted)
    monkeypatch.setattr(seeds, "pays", lambda configs: len(configs) > 1)
    return taken


def stop_at_fifth_step(patch: pytest.MonkeyPatch, taken: list[int]) -> None:
    """Ctrl-C when so many stacked steps have been ``taken``."""
    step = StackedStep.__call__

    def stopping(self: StackedStep, *given: Any) -> torch.Tensor:
        if len(taken) == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return step(self, *given)

    patch.setattr(StackedStep, "__call__", stopping)


def runs_in(folder: Path, name: str = "scratch") -> list[Path]:
    return sorted((folder / "results" / name / "runs").iterdir())


def assert_alike(run: Path, other: Path) -> None:
    """The same rows but for rounding, and the same record but for times."""
    assert run.name == other.name
    rows, others = (pd.read_csv(folder / "rows.csv") for folder in (run, other))
    pd.testing.assert_frame_equal(rows, others, rtol=1e-3, atol=1e-5)
    for key in ("status", "steps", "stopped", "in_range", "converged", "resumed", "config"):
        assert record_of(run).get(key) == record_of(other).get(key), key
    assert not list(run.glob("checkpoint*"))


@pytest.mark.filterwarnings(MESSAGE)
@pytest.mark.parametrize("kind", KINDS)
def test_each_seed_is_what_it_is_alone(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    assert command(*OPTIONS[kind], "name=alone").code == 0
    with monkeypatch.context() as patch:
        taken = pretend(patch)
        assert command(*OPTIONS[kind], "name=together").code == 0
    assert set(taken) == {3}
    for run, other in zip(runs_in(tmp_path, "together"), runs_in(tmp_path, "alone"), strict=True):
        assert_alike(run, other)
        assert (record_of(run)["seeds_together"], record_of(other)["seeds_together"]) == (3, 1)
    if kind == "stops":
        stops = {(record_of(run)["stopped"], record_of(run)["steps"]) for run in runs_in(tmp_path, "together")}
        assert len(stops) > 1
        assert "converged" in {stopped for stopped, _ in stops}


@pytest.mark.filterwarnings(MESSAGE)
def test_stopped_seeds_resume_together_and_ended_ones_stay(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command(*TINY, "encoder=rope", "name=alone").code == 0
    taken = pretend(monkeypatch)
    with monkeypatch.context() as patch:
        stop_at_fifth_step(patch, taken)
        stopped = command(*TINY, "encoder=rope")
    assert (stopped.code, len(taken)) == (130, 6)
    assert "resumes where this one stopped" in stopped.err
    assert all(list(run.glob("checkpoint*")) for run in runs_in(tmp_path))
    assert command(*TINY, "encoder=rope").code == 0
    assert len(taken) == 12
    for run, other in zip(runs_in(tmp_path), runs_in(tmp_path, "alone"), strict=True):
        assert record_of(run)["resumed"] == 1
        pd.testing.assert_frame_equal(
            pd.read_csv(run / "rows.csv"), pd.read_csv(other / "rows.csv"), rtol=1e-3, atol=1e-5
        )
    assert command(*TINY, "encoder=rope").code == 0
    assert len(taken) == 12
    assert command(*TINY, "encoder=rope", "force=true").code == 0
    assert len(taken) == 24


@pytest.mark.filterwarnings(MESSAGE)
def test_forced_and_stopped_they_go_on_together(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = pretend(monkeypatch)
    assert command(*TINY, "encoder=rope").code == 0
    ended = [(run / "rows.csv").read_bytes() for run in runs_in(tmp_path)]
    taken.clear()
    with monkeypatch.context() as patch:
        stop_at_fifth_step(patch, taken)
        assert command(*TINY, "encoder=rope", "force=true").code == 130
    assert command(*TINY, "encoder=rope", "force=true").code == 0
    assert len(taken) == 12, "no step was taken twice"
    assert [record_of(run)["resumed"] for run in runs_in(tmp_path)] == [1, 1, 1]
    assert [(run / "rows.csv").read_bytes() for run in runs_in(tmp_path)] == ended


@pytest.mark.filterwarnings(MESSAGE)
def test_of_seeds_together_foreign_and_changed_runs_stay(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is not what was written, the last is taken over meanwhile."""
    assert command(*TINY).code == 0
    first, *others = runs_in(tmp_path)
    (first / "rows.csv").write_text("mine")
    for run in others:
        shutil.rmtree(run)
    taken = pretend(monkeypatch)
    step, theirs = StackedStep.__call__, ExitStack()

    def overtaking(self: StackedStep, *given: Any) -> torch.Tensor:
        if len(taken) == 5:
            lock = runs_in(tmp_path)[-1] / lease.LOCK
            lock.rename(tmp_path / "removed")
            theirs.enter_context(lease.acquire(lock.parent))
        return step(self, *given)

    monkeypatch.setattr(StackedStep, "__call__", overtaking)
    with theirs:
        done = command(*TINY)
    assert done.code == 2
    assert set(taken) == {2}
    assert "3 runs: 1 refused, 1 done, 1 running elsewhere" in done.out
    assert (first / "rows.csv").read_text() == "mine"
    assert f"{first.name}: rows.csv is no longer what the run wrote" in done.err
    assert record_of(others[0])["seeds_together"] == 2
    assert not (others[1] / "run.json").exists()


@pytest.mark.filterwarnings(MESSAGE)
def test_one_that_diverges_is_its_own_affair(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)
    step = StackedStep.__call__

    def poisoned(self: StackedStep, *given: Any) -> torch.Tensor:
        losses = step(self, *given)
        return losses + torch.tensor([0.0, torch.nan, 0.0])

    monkeypatch.setattr(StackedStep, "__call__", poisoned)
    assert command(*TINY, "encoder=rope").code == 1
    assert [record_of(run)["status"] for run in runs_in(tmp_path)] == ["ok", "diverged", "ok"]


@pytest.mark.filterwarnings(MESSAGE)
def test_what_cannot_be_stacked_is_run_one_after_another(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pretend(monkeypatch)

    def refuse(self: StackedStep, *_: Any) -> None:
        raise RuntimeError("vmap: that does not work")

    monkeypatch.setattr(StackedStep, "__init__", refuse)
    assert command(*TINY, "encoder=rope").code == 0
    assert "3 seeds cannot be trained together; training in turn: vmap: that does not work" in caplog.text
    assert [record_of(run)["seeds_together"] for run in runs_in(tmp_path)] == [1, 1, 1]


def config(**changed: Any) -> RunConfig:
    given: dict[str, Any] = {
        "encoder": {"name": "rope"},
        "task": {"name": "copy"},
        "positions": {"name": "sequential"},
        "layout": Layout(),
        "model": ModelConfig(),
        "train": TrainConfig(),
        "experiments": {"length_extrapolation": {}},
        "seed": 0,
        "name": "scratch",
    }
    return RunConfig(**(given | changed))


def test_a_stack_pays_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for there in (True, False):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda there=there: there)
        assert seeds.pays([config(), config(seed=1)]) is there
    assert seeds.pays([config(device="cuda:1"), config(device="cuda:1", seed=1)])
    assert not seeds.pays([config(device="cuda")])
    assert not seeds.pays([config(device="cuda", tune=True)] * 2)
    assert not seeds.pays([config(device="cuda", train=TrainConfig(steps=0))] * 2)
    assert not seeds.pays([config(device="cpu")] * 2)


def test_a_worker_forwards_a_signal_to_whoever_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm's warning before the time limit, after which the job is requeued."""
    forwarded: list[int] = []

    def stopped(*_: object, **__: object) -> bool:
        raise Interrupted(signal.SIGUSR2)

    monkeypatch.setattr(seeds, "pays", lambda _: True)
    monkeypatch.setattr(seeds, "train_together", stopped)
    asked = job.Job([config(), config(seed=1)], dict.fromkeys(HANDLING))
    parcel = job.Parcel(asked, [], sender=("elsewhere", 1))
    before = signal.signal(signal.SIGUSR2, lambda signum, _: forwarded.append(signum))
    try:
        assert job.work({PARCEL: parcel.packed()}) == []
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert forwarded == [signal.SIGUSR2]


def test_seeds_whose_batches_have_different_lengths_train_in_turn(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = pretend(monkeypatch)
    several = [word for word in TINY if not word.startswith("task.min_length")]
    assert command(*several, "encoder=rope").code == 0
    assert taken == []
    assert [record_of(run)["seeds_together"] for run in runs_in(tmp_path)] == [1, 1, 1]
