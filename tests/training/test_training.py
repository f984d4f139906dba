"""When training ends: after all steps, after fewer, or once the task is learned; and what is recorded of it."""

from __future__ import annotations

import copy
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from support import Command, record_of, run_of
from torch import Generator

import pe_zoo
from experiments.model.streams import initialising
from experiments.model.transformer import Transformer
from experiments.tasks import Batch, tasks
from experiments.tasks.copy import Copy
from experiments.training.config import TrainConfig
from experiments.training.log import TrainLog
from experiments.training.loop import train
from experiments.training.progress import Training
from experiments.training.step import Step
from pe_zoo import Geometry

SEQUENTIAL = pe_zoo.numberings.build("sequential")
QUICK = [
    "figures=false",
    "model=tiny",
    "task.train_length=4",
    "experiment=length_extrapolation",
    "length_extrapolation.samples=4",
]


class Judged(Copy):
    """Counts as learned from the given check on, whatever the answers; remembers which lengths were drawn."""

    def __init__(self, learned_at: int) -> None:
        super().__init__(train_length=4, num_symbols=4)
        self.learned_at, self.seen, self.drawn = learned_at, list[dict[str, float]](), set[tuple[str, int]]()

    def has_converged(self, quality: dict[str, float]) -> bool:
        self.seen += [] if any(each is quality for each in self.seen) else [quality]
        return next(place for place, each in enumerate(self.seen, 1) if each is quality) >= self.learned_at

    def sample(self, batch_size: int, length: int, generator: Generator, *, split: str, causal: bool) -> Batch:
        self.drawn.add((split, length))
        return super().sample(batch_size, length, generator, split=split, causal=causal)


def model_of(name: str = "rope") -> Transformer:
    geometry = Geometry(model_dim=16, num_heads=2, num_layers=1, train_length=9)
    task = tasks.build("copy", train_length=4, num_symbols=4)
    with initialising(0, "model"):
        return Transformer(task.vocab_size, geometry, pe_zoo.build(name, geometry))


def trained(task: Copy | None = None, **options: Any) -> tuple[Transformer, TrainLog]:
    config = TrainConfig(**{"steps": 12, "rounds": 1, "tokens_per_step": 64, "curve_points": 4} | options)
    config.check()
    model = model_of()
    task = task or Copy(train_length=4, num_symbols=4)
    return model, train(model, task, SEQUENTIAL, config, seed=0)


def test_all_steps_are_taken_unless_told_otherwise() -> None:
    _, log = trained()
    assert (log.steps, log.stopped, [point[0] for point in log.points]) == (12, "steps", [3, 6, 9, 12])


def test_rounds_are_repeated_until_the_task_is_learned() -> None:
    _, once = trained(Judged(learned_at=4), rounds=None)
    assert (once.steps, once.stopped) == (12, "steps"), "learned by the end of the first round"
    _, log = trained(Judged(learned_at=6), rounds=None)
    assert (log.steps, log.stopped) == (24, "steps"), "learned within the second, which is taken to its end"
    assert [point[0] for point in log.points] == [3, 6, 9, 12, 15, 18, 21, 24]
    assert log.points[:4] == once.points, "the first round is that of a single one"
    for rounds, steps in ((None, 48), (3, 36)):
        _, log = trained(Judged(learned_at=99), rounds=rounds)
        assert (log.steps, log.stopped, log.status) == (steps, "steps", "ok")
    step = Step(model_of(), TrainConfig(steps=12))
    shares = [step.share_of_peak(done) for done in range(48)]
    assert shares == shares[:12] * 4
    assert shares[0] < shares[2] > shares[3] > shares[11]
    _, log = trained(Judged(learned_at=99), rounds=None, steps=13)
    assert [point[0] for point in log.points[:10]] == [3, 6, 9, 12, 13, 16, 19, 22, 25, 26]


def test_a_second_round_resumes_as_if_uninterrupted() -> None:
    task, config = Judged(learned_at=99), TrainConfig(steps=6, rounds=2, tokens_per_step=64, curve_points=2)
    runs = [Training(Step(model_of().train(), config), task, SEQUENTIAL, seed=0) for _ in range(2)]
    for _ in range(8):
        runs[0].advance()
    runs[1].restore(copy.deepcopy(runs[0].state()))
    for run in runs:
        for _ in range(4):
            run.advance()
    for ours, theirs in zip(*(run.step.model.parameters() for run in runs), strict=True):
        assert torch.equal(ours, theirs)


def test_max_steps_cuts_the_same_training_short() -> None:
    _, whole = trained()
    model, cut = trained(max_steps=7)
    assert (cut.steps, cut.stopped, [point[0] for point in cut.points]) == (7, "max_steps", [3, 6, 7])
    assert cut.points[:2] == whole.points[:2], "same data, same learning rates, same answers"
    _, shorter = trained(steps=7)
    assert shorter.points[1] != cut.points[1], "a schedule of seven steps is another one"
    full, short = (Step(model, TrainConfig(steps=12, max_steps=steps)) for steps in (None, 7))
    assert [full.share_of_peak(step) for step in range(12)] == [short.share_of_peak(step) for step in range(12)]


def test_each_seed_draws_the_lengths_of_its_batches_whatever_the_encoder() -> None:
    def drawn(name: str, seed: int) -> list[int]:
        step = Step(model_of(name), TrainConfig(tokens_per_step=64))
        run = Training(step, Copy(train_length=4, num_symbols=4), pe_zoo.numberings.build("sequential"), seed)
        return [run.draw()[0].tokens.shape[1] for _ in range(200)]

    first = drawn("none", 1)
    assert first == drawn("rope", 1) != drawn("none", 2)
    assert {first.count(size) > 30 for size in (3, 5, 7, 9)} == {True}


def test_training_ends_at_the_second_check_running_that_counts_as_learned() -> None:
    task = Judged(learned_at=1)
    _, log = trained(task, stop_at_convergence=True)
    assert (log.steps, log.stopped, log.status) == (6, "converged", "ok")
    assert [point[0] for point in log.points] == [3, 6]
    assert {length for _, length in task.drawn} <= {1, 2, 3, 4}, "nothing longer is looked at"
    assert {length for split, length in task.drawn if split == "validation"} == {4}
    _, log = trained(Judged(learned_at=2))
    assert (log.steps, log.stopped) == (12, "steps"), "not unless asked to"
    _, log = trained(Judged(learned_at=99), stop_at_convergence=True)
    assert (log.steps, log.stopped) == (12, "steps")
    _, log = trained(Judged(learned_at=4), stop_at_convergence=True)
    assert (log.steps, log.stopped) == (12, "steps"), "nothing was saved"
    _, log = trained(Judged(learned_at=3), stop_at_convergence=True)
    assert (log.steps, log.stopped) == (12, "steps"), "once may be luck"
    _, log = trained(Judged(learned_at=2), stop_at_convergence=True, max_steps=9)
    assert (log.steps, log.stopped) == (9, "max_steps")


def test_after_a_drop_only_the_encoderless_model_counts() -> None:
    model, log = trained(Judged(learned_at=1), stop_at_convergence=True, drop_encoder_after=0.5)
    assert (log.steps, log.stopped) == (9, "converged")
    assert model.encoder_dropped
    model, log = trained(Judged(learned_at=1), stop_at_convergence=True, drop_encoder_after=0.25)
    assert (log.steps, log.stopped) == (6, "converged"), (
        "dropped after the third step, which was checked after the drop"
    )
    assert model.encoder_dropped


def test_what_diverges_was_not_stopped() -> None:
    model = model_of()
    with torch.no_grad():
        model.unembedding.weight.fill_(torch.nan)
    config = TrainConfig(steps=12, tokens_per_step=64, curve_points=4, stop_at_convergence=True)
    log = train(model, Judged(learned_at=1), SEQUENTIAL, config, seed=0)
    assert (log.status, log.steps, log.stopped) == ("diverged", 3, None)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"max_steps": 0}, r"train\.max_steps must be a whole number of at least 1; got 0"),
    ({"max_steps": True}, r"train\.max_steps must be a whole number"),
    ({"max_steps": 12}, r"train\.max_steps=12 changes nothing unless below train\.steps=12"),
    ({"steps": 0, "max_steps": 1}, r"train\.max_steps=1 changes nothing unless below train\.steps=0"),
    ({"max_steps": 5, "drop_encoder_after": 0.5}, r"would drop the encoder after 6 steps, but train\.max_steps=5"),
    (
        {"max_steps": 6, "drop_encoder_after": 0.5, "recalibration_learning_rate": 0.1},
        r"changes nothing where no step follows the drop",
    ),
    ({"rounds": 0}, r"train\.rounds must be a whole number of at least 1; got 0"),
    ({"rounds": 2, "max_steps": 5}, r"train\.rounds=2 does not go with train\.max_steps"),
    ({"rounds": 4, "drop_encoder_after": 0.5}, r"train\.rounds=4 does not go with train\.drop_encoder_after"),
    ({"stop_at_convergence": 1}, r"train\.stop_at_convergence must be true or false; got 1"),
    ({"stop_at_convergence": True, "curve_points": 1}, r"no two in-range checks come before the last of 12 steps"),
    ({"stop_at_convergence": True, "steps": 0}, r"no two in-range checks come before the last of 0 steps"),
    ({"stop_at_convergence": True, "max_steps": 3}, r"no two in-range checks come before the last of 3 steps"),
    (
        {"stop_at_convergence": True, "drop_encoder_after": 0.8},
        r"no two in-range checks come before the last of 12 steps",
    ),
]


@pytest.mark.parametrize(("options", "said"), REFUSED, ids=lambda value: str(value)[:60])
def test_what_would_change_nothing_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        TrainConfig(**{"steps": 12, "curve_points": 4} | options).check()


def test_what_just_changes_something_is_not() -> None:
    for options in (
        {"max_steps": 11},
        {"max_steps": 6, "drop_encoder_after": 0.5},
        {"stop_at_convergence": True, "max_steps": 7},
        {"stop_at_convergence": True, "drop_encoder_after": 0.5},
    ):
        TrainConfig(**{"steps": 12, "curve_points": 4} | options).check()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "steps", "stopped"),
    [
        ([], 48, "steps"),
        (["train.rounds=1"], 12, "steps"),
        (["train.max_steps=5"], 5, "max_steps"),
        (["train.steps=0"], None, None),
    ],
    ids=["all", "once", "some", "none"],
)
def test_the_record_says_how_many_steps_and_what_ended_them(
    command: Command, tmp_path: Path, options: list[str], steps: int | None, stopped: str | None
) -> None:
    done = command(*QUICK, "train.steps=12", "train.curve_points=4", *options)
    assert done.code == 0, done.err
    record = record_of(run_of(tmp_path))
    assert (record["steps"], record["stopped"], record["tuning"]) == (steps, stopped, None)
    assert ("ended after 5 steps by train.max_steps" in done.out) == (stopped == "max_steps")


def test_a_run_that_is_learned_stops_there_and_says_so(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Copy, "converged_at", 0.0)
    done = command(*QUICK, "train.steps=12", "train.curve_points=4", "train.stop_at_convergence=true")
    assert done.code == 0, done.err
    record = record_of(run_of(tmp_path))
    assert (record["steps"], record["stopped"], record["converged"]) == (6, "converged", True)
    assert "ended after 6 steps by convergence" in done.out


def test_the_log_of_another_release_is_read() -> None:
    """A run that an update interrupts resumes."""
    facts = asdict(TrainLog(steps=3)) | {"together": 1}
    del facts["during"]
    assert TrainLog.load(facts) == TrainLog(steps=3)
