"""Trackers are told how a run goes, if asked for; what they make of it is read back, and none can break a run."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from accelerate import tracking
from support import Command
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from experiments.rows.row import slice_name
from experiments.runs import tracker as _tracker
from experiments.training import checkpoint
from experiments.training.interruption import Interrupted

TINY = [
    *(
        "model=tiny",
        "task.train_length=4",
        "train.steps=9",
        "train.rounds=1",
        "train.curve_points=3",
        "checkpoint_seconds=0",
    ),
    *("experiment=length_extrapolation", "length_extrapolation.samples=4", "length_extrapolation.multiples=[1,2]"),
]


def run_of(folder: Path, name: str = "scratch") -> Path:
    (found,) = (folder / "results" / name / "runs").iterdir()
    return found


def rows_of(run: Path, experiment: str, metric: str) -> dict[str, float]:
    """Condition, or length where there is none -> value."""
    with (run / "rows.csv").open(newline="") as file:
        return {
            slice_name(row) or row["eval_length"]: float(row["value"])
            for row in csv.DictReader(file)
            if (row["experiment"], row["metric"]) == (experiment, metric)
        }


class Noting(tracking.GeneralTracker):  # type: ignore[misc]
    """Keeps what it is told; raises at its ``fails``-th call."""

    name = "noting"
    requires_logging_directory = False
    main_process_only = False
    tracker = None
    made: list[Noting]
    fails = 0

    def __init__(self, project: str) -> None:
        self.project, self.calls, self.config, self.told = project, 0, {}, list[tuple[int, dict[str, float]]]()
        self.made.append(self)

    def _call(self) -> None:
        self.calls += 1
        if self.calls == self.fails:
            raise OSError("no such server")

    def start(self) -> None:
        self._call()

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self._call()
        self.config = values

    def log(self, values: dict[str, float], step: int | None = None, **_: object) -> None:
        self._call()
        assert step is not None
        self.told.append((step, values))

    def finish(self) -> None:
        self._call()


@pytest.fixture
def noting(monkeypatch: pytest.MonkeyPatch) -> type[Noting]:
    monkeypatch.setitem(tracking.LOGGER_TYPE_TO_CLASS, "noting", Noting)
    monkeypatch.setattr(Noting, "made", [], raising=False)
    return Noting


def test_tensorboard_files_hold_the_curve_and_the_results(command: Command, tmp_path: Path) -> None:
    assert command(*TINY, "name=without").code == 0
    assert command(*TINY, "tracker=tensorboard").code == 0
    run = run_of(tmp_path)
    assert run.name == run_of(tmp_path, "without").name, "it changes no result"
    assert (run / "rows.csv").read_bytes() == (run_of(tmp_path, "without") / "rows.csv").read_bytes()
    assert not (tmp_path / "results" / "without" / "trackers").exists(), "off unless asked for"
    assert {path.name for path in tmp_path.iterdir()} == {"results"}
    events = EventAccumulator(str(tmp_path / "results" / "scratch" / "trackers" / run.name)).Reload()
    read = {tag: {event.step: event.value for event in events.Scalars(tag)} for tag in events.Tags()["scalars"]}
    for tag, metric in (("loss", "loss"), ("in_range_token_accuracy", "token_accuracy")):
        written = rows_of(run, "training", metric)
        assert {f"step={step}": value for step, value in read[tag].items()} == pytest.approx(written), tag
    assert list(read["learning_rate"]) == list(read["tokens_per_second"]) == [3, 6, 9]
    for length, value in rows_of(run, "length_extrapolation", "token_accuracy").items():
        assert read[f"length_extrapolation/token_accuracy/length_{length}"] == {9: pytest.approx(value)}


@pytest.mark.parametrize("call", [1, 4, 7], ids=["to start", "to log", "to finish"])
def test_one_that_raises_is_left_out_and_the_run_goes_on(
    command: Command, noting: type[Noting], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    monkeypatch.setattr(noting, "fails", call)
    assert command(*TINY, "tracker=noting").code == 0
    run = run_of(tmp_path)
    said = (run / "run.log").read_text()
    assert said.count("tracker noting failed and is dropped: OSError: no such server") == 1
    (tracker,) = noting.made
    assert tracker.calls == call, "it is not asked again"
    assert (run / "rows.csv").is_file()
    assert not list(run.glob("checkpoint-*")), "the run ended as any other"


def test_it_is_told_the_configuration_and_every_rate_of_a_search(
    command: Command, noting: type[Noting], tmp_path: Path
) -> None:
    search = ["tune=true", "train.learning_rates=[0.001,0.003]", "encoder=rope", "encoder.base=500"]
    assert command(*TINY, *search, "tracker=[noting,noting]").code == 0
    (tracker,) = noting.made
    assert tracker.project == tracker.config["run_id"] == run_of(tmp_path).name
    assert (tracker.config["encoder.base"], tracker.config["train.steps"], tracker.config["seed"]) == (500.0, 9, 0)
    assert {type(value) for value in tracker.config.values()} <= {str, int, float, bool}
    losses = [(step, name) for step, values in tracker.told for name in values if name.endswith("loss")]
    slow, fast = "learning_rate_0.001/loss", "learning_rate_0.003/loss"
    assert losses == [(3, slow), (6, slow), (9, slow), (12, fast), (15, fast), (18, fast)], "steps rise"


def test_gone_on_from_a_checkpoint_it_is_told_the_whole_curve(
    command: Command, noting: type[Noting], monkeypatch: pytest.MonkeyPatch
) -> None:
    boundary: Callable[..., None] = checkpoint.Checkpoints.boundary
    left = [7]

    def stopping(self: checkpoint.Checkpoints, *given: Any) -> None:
        left[0] -= 1
        boundary(self, *given)
        if left[0] == 0:
            raise Interrupted(2)

    monkeypatch.setattr(checkpoint, "SHARE", 1e9)
    monkeypatch.setattr(checkpoint.Checkpoints, "boundary", stopping)
    assert command(*TINY, "tracker=noting").code == 130
    assert command(*TINY, "tracker=noting").code == 0
    first, second = ([step for step, values in tracker.told if "loss" in values] for tracker in noting.made)
    assert (first, second) == ([3, 6], [3, 6, 9])


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("tensorbord", r"no tracker named 'tensorbord'\. Did you mean 'tensorboard'\? Nearest of "),
        (["tensorboard", "wandb"], "tracker=wandb needs the package wandb, which is not installed: pip install wandb"),
        (3, "tracker=3 must be a name or a list of names, or null"),
    ],
)
def test_a_mistake_is_said(monkeypatch: pytest.MonkeyPatch, asked: object, said: str) -> None:
    monkeypatch.setattr(tracking, "get_available_trackers", lambda: ["tensorboard"])
    with pytest.raises(ValueError, match=said):
        _tracker.known_trackers(asked)


def test_the_library_is_needed_by_who_asks_for_it(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "accelerate", None)
    said = "error: tracker=tensorboard needs the package accelerate: pip install 'pe-zoo[trackers]'\n"
    done = command(*TINY, "tracker=tensorboard")
    assert (done.code, done.err) == (2, said)
    assert not (tmp_path / "results").exists(), "said before anything is written"
    assert _tracker.known_trackers(None) == _tracker.known_trackers([]) == ()


def test_files_go_into_the_results_folder_by_default(
    noting: type[Noting], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import os

    seen: list[str | None] = []
    monkeypatch.setattr(_tracker, "Trackers", lambda *_: seen.append(os.environ.get("WANDB_DIR")) or noting("x"))
    monkeypatch.setattr(_tracker, "place_of", lambda _: tmp_path)
    for told in (None, "/elsewhere"):
        monkeypatch.delenv("WANDB_DIR", raising=False) if told is None else monkeypatch.setenv("WANDB_DIR", told)
        with _tracker.tracking(["wandb"], None):  # type: ignore[arg-type]
            pass
        assert os.environ.get("WANDB_DIR") == told, "as it was"
    assert seen == [str(tmp_path), "/elsewhere"]
