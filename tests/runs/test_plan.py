"""``--plan``: what a command line would take, before anything is trained."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support import Command

from experiments.plan.plan import Plan
from experiments.plan.prepare import prepare
from experiments.rows import submission
from experiments.rows.read import ARCHIVE
from experiments.runs import forecast, launch, status, timing
from experiments.runs.timing import Speed, timed
from experiments.training.evaluate import Subject
from experiments.training.log import TrainLog

TINY = ["model=tiny", "train.steps=20", "train.rounds=1", "task.train_length=4", "experiment=length_extrapolation"]
TINY += ["length_extrapolation.multiples=[1,2]", "length_extrapolation.samples=16", "name=p"]


def test_a_plan_trains_nothing_and_status_shows_it(command: Command, tmp_path: Path) -> None:
    words = ["-m", *TINY, "encoder=none,rope", "seed=0,1"]
    planned = command(*words, "--plan")
    assert planned.code == 0, planned.err
    assert "4 runs, 0 of them finished before" in planned.out
    assert re.search("Estimated time: .* of it to start", planned.out)
    assert not (tmp_path / "results" / "p" / "runs").exists()
    assert "for 4 runs, workers added up, as --plan estimated" in status.text(tmp_path / "results" / "p")
    assert command(*words, "seed=0").code == 0
    again = command(*words, "--plan")
    assert "4 runs, 2 of them finished before" in again.out
    assert command(*words).code == 0
    assert "4 runs, 4 of them finished before" in command(*words, "--plan").out
    submission.pack(tmp_path / "results" / "p", tmp_path / "results" / "p" / ARCHIVE)
    shutil.rmtree(tmp_path / "results" / "p" / "runs")
    assert "4 runs, 4 of them finished before" in command(*words, "--plan").out, "packed runs are unpacked first"


def test_one_run_is_planned_too(command: Command) -> None:
    planned = command(*TINY, "--plan")
    assert planned.code == 0, planned.err
    assert "1 run, 0 of them finished before" in planned.out


def test_parts_that_an_option_makes_the_same_are_one(command: Command) -> None:
    """Of +sweep=ladder_gpu, parts differ in size, budget and seed alone."""
    same = ["model=tiny", "encoder=none", "seed=0", "train.tokens_per_parameter=null", "train.tokens_per_step=64"]
    planned = command("-m", "+sweep=ladder_gpu", *TINY, *same, "train.learning_rate=0.01", "--plan")
    assert "1 run, 0 of them finished before" in planned.out, planned.err


def test_a_rule_is_planned_to_its_first_look(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = ["encoder=none,rope", "seeds=until_decided", "against=none", "looks=[3,5]"]
    planned = command("-m", *TINY, *rule, "--plan")
    assert planned.code == 0, planned.err
    assert "6 runs, 0 of them finished before" in planned.out
    assert "the first look, 3 seeds; the last has 5: where all stay open to the end, 4 runs more, " in planned.out
    monkeypatch.setattr(launch, "ending", lambda folder: {})  # all have ended: none of them was timed
    assert "to the end, 4 runs more.\n" in command("-m", *TINY, *rule, "--plan").out


def test_a_number_of_seeds_takes_the_place_of_those_of_a_sweep(command: Command) -> None:
    for seeds, runs in ((["seeds=2"], 4), (["seeds=until_decided", "against=none"], 10)):
        planned = command("-m", "+sweep=hello", "encoder=none,rope", *seeds, "--plan", *TINY)
        assert f"{runs} runs, 0 of them finished before" in planned.out, planned.err


def test_what_cannot_be_run_is_refused(command: Command, tmp_path: Path) -> None:
    planned = command("-m", *TINY, "encoder=none,rope", "seeds=until_decided", "against=rop", "--plan")
    assert planned.code == 2
    assert planned.err.startswith("error: no encoder named 'rop' to compare with. Did you mean 'rope'?")
    planned = command(*TINY, "task.train_length=0", "--plan")
    assert planned.code == 2
    assert planned.err.startswith("error: task.train_length must")
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("wait", [1.1, 2.5])
def test_what_else_runs_here_is_told(command: Command, monkeypatch: pytest.MonkeyPatch, wait: float) -> None:
    monkeypatch.setattr(forecast, "timed", lambda config: Speed(5.0, 1.0, 0.5, 7.0, 0.0, 100.0, 1e6, wait))
    planned = command(*TINY, "--plan").out
    assert ("it takes about 2.5 times as long" in planned) == (wait == 2.5)


@pytest.mark.parametrize(("text", "told"), [(0.0, False), (150_000.0, False), (25_000.0, True)])
def test_how_often_a_text_is_read_is_told(
    command: Command, monkeypatch: pytest.MonkeyPatch, text: float, told: bool
) -> None:
    monkeypatch.setattr(forecast, "timed", lambda config: Speed(0.0, 1.0, 0.0, 0.0, 0.0, 5000.0, 1e6, 1.0, text))
    planned = command(*TINY, "train.steps=20", "--plan").out
    assert ("A run reads its text 4 times: of more text it would learn more." in planned) == told


@pytest.fixture
def configs(command: Command, monkeypatch: pytest.MonkeyPatch) -> list[forecast.RunConfig]:
    found: list[forecast.RunConfig] = []
    monkeypatch.setattr(forecast, "text", lambda configs, *_: (found.extend(configs), ("", 0.0))[1])
    assert command("-m", *TINY, "encoder=none,rope,alibi", "seed=0,1", "train.steps=20,40", "--plan").code == 0
    return found


def test_time_follows_from_the_speed_of_each_setting(
    configs: list[forecast.RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def speed(config: forecast.RunConfig) -> Speed:
        asked.append(config.name_measured)
        step = {"none": 1.0, "rope": 3.0}[config.name_measured]
        return Speed(
            preparing=5.0, step=step, check=0.5, measuring=7.0, beyond=0.0, tokens=100.0, parameters=1e6, wait=1.0
        )

    monkeypatch.setattr(forecast, "timed", speed)
    monkeypatch.setattr(forecast, "MOST_TIMED", 2)
    costs = dict(zip(map(str, configs), forecast.forecast(configs), strict=True))
    assert asked == ["none", "rope"], "two of three, each once"
    config = next(each for each in configs if each.name_measured == "none" and each.train.steps == 40)
    cost = costs[str(config)]
    other = next(each for each in configs if each.name_measured == "alibi" and each.train.steps == 40)
    assert costs[str(other)].training == 40 * 2.0 + 20 * 0.5, "the mean of those that were timed"
    assert (cost.tokens, cost.measuring, cost.repeated) == (4000.0, 12.0, 0.0)
    assert cost.training == 40 * 1.0 + 20 * 0.5, "a check every second step"
    assert cost.bytes == pytest.approx(4e6, rel=0.05), "the model's file"


def test_rounds_and_learning_rates_are_counted(
    configs: list[forecast.RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    def speed(config: forecast.RunConfig) -> Speed:
        return Speed(0.0, 1.0, 0.0, 2.0, 3.0 * config.tune, 10.0, 1.0, 1.0)

    monkeypatch.setattr(forecast, "timed", speed)
    (one, *_) = configs
    four = replace(one, train=replace(one.train, rounds=4))
    tuned = replace(one, tune=True, train=replace(one.train, learning_rates=[1e-3, 3e-3]))
    plain, rounds, rates = forecast.forecast([one, four, tuned])
    assert rounds.repeated == 3 * rounds.training == 3 * plain.training
    assert (rates.training, rates.measuring) == (2 * plain.training, 2.0 + 2 * 3.0)


def test_a_large_batch_is_timed_in_part(configs: list[forecast.RunConfig], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.runs.timing.SECONDS", 0.05)
    monkeypatch.setattr("experiments.runs.timing.OPERATIONS", 6 * 25_000 * 256)
    config = replace(configs[0], train=replace(configs[0].train, tokens_per_step=16_384))
    found = timed(config)
    size = 4  # whatever the lengths drawn, whole sequences of a full batch
    assert found.tokens == pytest.approx(16_384, abs=8 * size)
    assert found.step > 10 * timed(configs[0]).step, "64 times the tokens"


def test_what_does_not_grow_with_the_samples_is_not_multiplied(
    configs: list[forecast.RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]

    def attempt(name: str, subject: Subject, plan: Plan, log: TrainLog) -> None:
        now[0] += 20 + 0.1 * int(str(plan.config.experiments[name]["samples"]))

    monkeypatch.setattr("experiments.pipeline.attempt", attempt)
    for samples in (8, 16, 100, 256, 4096):
        knobs = {"length_extrapolation": {"samples": samples}}
        plan = prepare(replace(configs[0], experiments=knobs))
        seconds, _ = timing._measuring(plan, lambda: now[0])
        assert seconds == pytest.approx(20 + 0.1 * samples, rel=0.05)


def test_timing_ends_once_each_setting_has_one_and_patience_is_over(
    configs: list[forecast.RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def speed(config: forecast.RunConfig) -> Speed:
        asked.append((config.model.num_layers, config.name_measured))
        return Speed(0.0, config.model.num_layers, 0.0, 0.0, 0.0, 100.0, 1.0, 1.0)

    deep = [replace(each, model=replace(each.model, num_layers=9)) for each in configs]
    monkeypatch.setattr(forecast, "timed", speed)
    monkeypatch.setattr(forecast, "PATIENCE", 0.0)
    costs = forecast.forecast(configs + deep)[len(configs) :]
    assert [layers for layers, _ in asked] == [configs[0].model.num_layers, 9]
    assert [cost.training for cost in costs] == [9 * config.train.steps for config in deep]


def test_a_plan_tells_of_the_budget_and_of_a_missing_gpu(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "timed", lambda config: Speed(0.0, 86_400.0, 0.0, 0.0, 0.0, 100.0, 1e6, 1.0))
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    planned = command(*TINY, "--plan", "budget_minutes=1440").out
    assert "none was found here" in planned
    assert re.search("budget_minutes=1440 stops it before; the same command goes on, about 2[01] times", planned)
    assert "budget_minutes" not in command(*TINY, "--plan").out
