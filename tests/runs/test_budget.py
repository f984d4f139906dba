"""``budget_minutes=``: a sweep stops when its time is spent, and the same command resumes it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support import Command, record_of, runs_of, tally

from experiments.training.progress import Training

WORDS = ["-m", "name=b", "model=tiny", "encoder=none,rope", "train.steps=300", "train.rounds=1", "task.train_length=4"]
WORDS += ["experiment=length_extrapolation", "length_extrapolation.multiples=[1]"]


def test_a_sweep_stops_and_resumes(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Training.advance

    def slow(run: Training) -> None:
        time.sleep(0.05)
        step(run)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "advance", slow)
        stopped = command(*WORDS, "budget_minutes=0.1")
    assert stopped.code == 3, stopped.err
    assert "budget_minutes= is spent; the same command resumes" in stopped.err
    assert tally(stopped.out) == {"interrupted": 1, "not begun": 1}
    done = command(*WORDS, "budget_minutes=60")
    assert done.code == 0, done.err
    assert sorted(record_of(run)["resumed"] for run in runs_of(tmp_path, "b")) == [0, 1]
    assert command(*WORDS).out.count("finished before"), "the budget is no part of a run's id"
    assert len([*(tmp_path / "results" / "b" / "sweeps").iterdir()]) == 1, "nor of what was asked"


@pytest.mark.parametrize("minutes", ["0", "-1", "nan"])
def test_no_budget_is_refused(command: Command, minutes: str) -> None:
    refused = command(*WORDS, f"budget_minutes={minutes}")
    assert refused.code == 2
    assert refused.err.startswith("error: budget_minutes must")


def test_a_cluster_has_limits_of_its_own(command: Command) -> None:
    refused = command(*WORDS, "budget_minutes=1", "hydra/launcher=submitit_local")
    assert refused.code == 2
    assert "hydra/launcher=" in refused.err
