"""The search for a learning rate: what it is judged on, what it keeps, and what it leaves behind."""

from __future__ import annotations

import csv
import json
import math
import weakref
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from support import Command
from torch import Generator, Tensor

import pe_zoo
from experiments.model.layout import Layout
from experiments.model.streams import initialising
from experiments.model.transformer import Transformer
from experiments.plan.request import ModelConfig, RunConfig
from experiments.tasks import Batch, Task, tasks
from experiments.tasks.copy import Copy
from experiments.training import tune as _tune
from experiments.training.config import TUNED_RATES, TrainConfig
from experiments.training.log import TrainLog, Tuning
from experiments.training.loop import train
from experiments.training.tune import check_tuning, held_out, loss_on, tune
from pe_zoo import Geometry

SEQUENTIAL = pe_zoo.numberings.build("sequential")
TRAIN = TrainConfig(steps=8, rounds=1, tokens_per_step=64, curve_points=2, learning_rates=[3e-3, 1e-4])
QUICK = [
    *("figures=false", "model=tiny", "task.train_length=4", "train.steps=8", "train.curve_points=2"),
    *("experiment=length_extrapolation", "length_extrapolation.samples=4", "length_extrapolation.multiples=[1,2]"),
]


class Noted(Copy):
    """Remembers what was drawn."""

    def __init__(self, **knobs: Any) -> None:
        super().__init__(**knobs)
        self.drawn: list[tuple[str, int]] = []

    def sample(self, batch_size: int, length: int, generator: Generator, *, split: str, causal: bool) -> Batch:
        self.drawn.append((split, length))
        return super().sample(batch_size, length, generator, split=split, causal=causal)


def build(name: str = "rope") -> Transformer:
    geometry = Geometry(model_dim=16, num_heads=2, num_layers=1, train_length=9)
    with initialising(0, "model"):
        return Transformer(tasks.build("copy", train_length=4).vocab_size, geometry, pe_zoo.build(name, geometry))


def search(task: Task, config: TrainConfig = TRAIN, name: str = "rope") -> tuple[Transformer, TrainLog, Tuning]:
    model, log = tune(partial(build, name), task, SEQUENTIAL, config, seed=0)
    assert log.tuning is not None
    return model, log, log.tuning


def runs_of(folder: Path, name: str = "scratch") -> list[Path]:
    return sorted((folder / "results" / name / "runs").iterdir())


def rows_of(run: Path) -> list[dict[str, str]]:
    with (run / "rows.csv").open(newline="") as file:
        return list(csv.DictReader(file))


# ------------------------------------------------------------------------------------------ what it is judged on


def test_it_is_judged_on_held_out_data_of_the_lengths_trained_on() -> None:
    task = Noted(train_length=40, min_length=3)
    questions = held_out(task, SEQUENTIAL, 0, causal=True)
    assert {split for split, _ in task.drawn} == {"validation"}
    lengths = [length for _, length in task.drawn]
    assert (min(lengths), max(lengths)) == (3, 40)
    assert len(set(lengths)) == _tune.HELD_OUT_LENGTHS
    assert sum(len(batch.tokens) * int(batch.counted.sum()) for batch, _ in questions) >= 4096
    again = held_out(Noted(train_length=40, min_length=3), SEQUENTIAL, 0, causal=True)
    other = held_out(Noted(train_length=40, min_length=3), SEQUENTIAL, 1, causal=True)
    same = [torch.equal(a.tokens, b.tokens) for (a, _), (b, _) in zip(questions, again, strict=True)]
    assert all(same)
    assert not all(torch.equal(a.tokens, b.tokens) for (a, _), (b, _) in zip(questions, other, strict=True))


def test_every_task_has_validation_data_of_every_length() -> None:
    for name in tasks.names():
        task = tasks.build(name)
        questions = held_out(task, SEQUENTIAL, 0, causal=True)
        assert sum(len(batch.tokens) * int(batch.counted.sum()) for batch, _ in questions) >= 4096, name


def test_the_loss_is_the_mean_over_counted_tokens() -> None:
    model, task = build(), Copy(train_length=4)
    questions = held_out(task, SEQUENTIAL, 0, causal=True)
    nats: list[Tensor] = []
    with torch.no_grad():
        for batch, positions in questions:
            logs = model(batch.tokens, positions).log_softmax(-1)
            nats.append(-logs.gather(-1, batch.targets[..., None])[..., 0][:, batch.counted].flatten())
    assert loss_on(model, questions) == pytest.approx(torch.cat(nats).double().mean().item(), rel=1e-6)
    model.unembedding.weight.data.fill_(math.nan)
    assert loss_on(model, questions) == math.inf


# ------------------------------------------------------------------------------------------------ what it keeps


def test_the_model_of_the_lowest_loss_is_kept_unchanged() -> None:
    questions = held_out(Copy(train_length=4), SEQUENTIAL, 0, causal=True)
    alone = {}
    for rate in (1e-4, 3e-3):
        alone[rate] = build()
        train(alone[rate], Copy(train_length=4), SEQUENTIAL, replace(TRAIN, learning_rate=rate), seed=0)
    losses = {rate: loss_on(model, questions) for rate, model in alone.items()}
    model, log, tuning = search(Copy(train_length=4))
    assert dict(zip(tuning.rates, tuning.losses, strict=True)) == losses, "as a training by itself has it"
    assert tuning.rates == [1e-4, 3e-3]
    assert tuning.chosen == 3e-3
    assert losses[3e-3] < losses[1e-4], "or the test says little"
    for name, tensor in alone[3e-3].state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor)
    assert (log.steps, log.stopped) == (8, "steps")
    assert log.seconds < tuning.seconds


def test_tuning_sees_no_longer_lengths_and_one_data_order() -> None:
    task = Noted(train_length=4)
    search(task)
    assert {length for _, length in task.drawn} == {1, 2, 3, 4}
    trained = [length for split, length in task.drawn if split == "train"]
    half = len(trained) // 2
    assert trained[:half] == trained[half:]
    assert half >= 8, "more where inputs are held out"


def test_the_lower_of_two_equal_rates_and_the_edges() -> None:
    def chosen(*losses: float) -> tuple[float | None, bool]:
        tuning = Tuning([0.1, 0.2, 0.3][: len(losses)], list(losses), 1, 1.0)
        return tuning.chosen, tuning.at_edge

    assert chosen(2.0, 1.0, 1.0) == (0.2, False)
    assert chosen(1.0, 2.0, 3.0) == (0.1, True)
    assert chosen(3.0, math.inf, 1.0) == (0.3, True)
    assert chosen(math.inf, math.inf, math.inf) == (None, False)


def test_a_diverging_rate_loses_and_if_all_do_the_run_does() -> None:
    _, log, tuning = search(Copy(train_length=4), replace(TRAIN, learning_rates=[1e-3, 1e30]))
    assert (tuning.chosen, tuning.losses[1], log.status) == (1e-3, math.inf, "ok")
    assert tuning.record()["losses"][1] is None
    _, log, tuning = search(Copy(train_length=4), replace(TRAIN, learning_rates=[1e30, 1e32]))
    assert (tuning.chosen, tuning.at_edge, log.status, log.stopped) == (None, False, "diverged", None)


def test_no_more_than_two_models_are_held_at_a_time() -> None:
    alive: list[weakref.ref[Transformer]] = []
    most = 0

    def counted() -> Transformer:
        nonlocal most
        model = build()
        alive.append(weakref.ref(model))
        most = max(most, sum(reference() is not None for reference in alive))
        return model

    config = replace(TRAIN, steps=2, learning_rates=[1e-4, 3e-4, 1e-3, 3e-3])
    tune(counted, Copy(train_length=4), SEQUENTIAL, config, seed=0)
    assert (len(alive), most) == (4, 2)


# ------------------------------------------------------------------------------------- what it leaves behind


def test_a_tuned_run_records_its_search_and_is_another_run(command: Command, tmp_path: Path) -> None:
    done = command(*QUICK, "encoder=alibi", "tune=true", "train.learning_rates=[0.003,0.0001]")
    assert done.code == 0, done.err
    (run,) = runs_of(tmp_path)
    record = json.loads((run / "run.json").read_text())
    tuning = record["tuning"]
    assert (tuning["grid"], tuning["chosen"], tuning["at_edge"]) == ([0.0001, 0.003], 0.003, True)
    assert tuning["seconds"] > record["train_seconds"] > 0
    assert "learning rate 0.003 of 0.0001, 0.003 in" in done.out
    rows = [row for row in rows_of(run) if row["experiment"] == "tuning"]
    assert [row["learning_rate"] for row in rows] == ["0.0001", "0.003"]
    assert [float(row["value"]) for row in rows] == pytest.approx(tuning["losses"], rel=1e-8)
    assert {(row["metric"], row["status"], row["eval_length"]) for row in rows} == {("validation_loss", "ok", "4")}
    assert all(int(row["n"]) >= 4096 for row in rows)
    told = yaml.safe_load((run / "config.yaml").read_text())["train"]
    assert (told["learning_rate"], told["learning_rates"]) == ("tuned", [0.0001, 0.003])

    command(*QUICK, "encoder=alibi", "train.learning_rate=0.003", "name=alone")
    (alone,) = runs_of(tmp_path, "alone")
    assert alone.name != run.name
    assert (alone / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()
    measured = [
        [(row["eval_length"], row["metric"], row["value"]) for row in rows_of(place) if row["experiment"] != "tuning"]
        for place in (run, alone)
    ]
    assert measured[0] == measured[1], "what is measured is the very model of that rate"


def test_each_rate_that_learned_is_measured_beyond(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Copy, "converged_at", 0.0)
    done = command(*QUICK, "encoder=alibi", "tune=true", "train.learning_rates=[0.003,0.0001,1e30]")
    assert done.code == 0, done.err
    (run,) = runs_of(tmp_path)
    measured: dict[str, list[tuple[str, str]]] = {}
    for row in rows_of(run):
        if row["metric"] == "token_accuracy" and row["experiment"] in ("tuning", "length_extrapolation"):
            measured.setdefault(row["learning_rate"], []).append((row["eval_length"], row["value"]))
    assert set(measured) == {"", "0.0001", "0.003"}, "not of the rate that diverged"
    assert measured["0.003"] == measured[""] != measured["0.0001"], "the chosen rate, as it is measured anyway"
    assert [length for length, _ in measured["0.0001"]] == ["4", "8"]


def test_a_search_in_which_all_diverge_is_a_diverged_run(command: Command, tmp_path: Path) -> None:
    done = command(*QUICK, "encoder=none", "tune=true", "train.learning_rates=[1e30,1e32]")
    assert done.code == 1
    (run,) = runs_of(tmp_path)
    record = json.loads((run / "run.json").read_text())
    assert (record["status"], record["tuning"]["chosen"], record["tuning"]["losses"]) == ("diverged", None, [None] * 2)
    assert "1e+30, 1e+32" in record["message"]
    assert {row["status"] for row in rows_of(run) if row["experiment"] != "training"} == {"diverged"}


def test_the_id_goes_by_the_grid_and_not_by_its_order() -> None:
    def run_id(tuned: bool, grid: list[float] | None = None) -> str:
        return RunConfig(
            encoder={"name": "rope"},
            task={"name": "copy"},
            positions={"name": "sequential"},
            layout=Layout(),
            model=ModelConfig(),
            train=TrainConfig(learning_rates=grid),
            experiments={"length_extrapolation": {}},
            seed=0,
            name="scratch",
            tune=tuned,
        ).run_id

    assert run_id(True) == run_id(True, list(TUNED_RATES)) == run_id(True, list(reversed(TUNED_RATES)))
    assert len({run_id(False), run_id(True), run_id(True, [1e-3])}) == 3


REFUSED: list[tuple[bool, dict[str, Any], str]] = [
    (False, {"learning_rates": [1e-3]}, r"train\.learning_rates=\[0\.001\] changes nothing without tune=true; add it"),
    (False, {"learning_rates": []}, r"changes nothing without tune=true"),
    (True, {"learning_rates": []}, r"train\.learning_rates must be different rates, at least one; got \[\]"),
    (True, {"learning_rates": [1e-3, 0.001]}, r"must be different rates, at least one; got \[0\.001, 0\.001\]"),
    (True, {"learning_rates": [1e-3, 0.0]}, r"train\.learning_rates must be a finite number above 0; got 0\.0"),
    (True, {"learning_rates": [-1.0]}, r"train\.learning_rates must be a finite number above 0; got -1\.0"),
    (True, {"learning_rates": [math.inf]}, r"train\.learning_rates must be a finite number above 0; got inf"),
    (True, {"learning_rate": 0.01}, r"train\.learning_rate=0\.01 changes nothing with tune=true; put it among"),
    (True, {"stop_at_convergence": True}, r"train\.stop_at_convergence=true ends some sooner; leave one out"),
]


@pytest.mark.parametrize(("wanted", "options", "said"), REFUSED, ids=lambda value: str(value)[:60])
def test_what_would_change_nothing_is_refused(wanted: bool, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_tuning(wanted, TrainConfig(**options), trains=True)


def test_nothing_to_tune_where_nothing_is_trained(command: Command, tmp_path: Path) -> None:
    for line in (["train.steps=0"], ["experiment=structure"]):
        done = command("model=tiny", "tune=true", *line)
        assert done.code == 2
        assert done.err.startswith("error: tune=true changes nothing where nothing is trained")
        assert done.err.count("\n") == 1
    assert not list(tmp_path.iterdir())
