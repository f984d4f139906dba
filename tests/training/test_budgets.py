"""``train.tokens_per_parameter``: as many steps as the trunk's size asks for, and no part of an id itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from support import ROOT, Command

from experiments.plan.request import ModelConfig
from experiments.training.config import TrainConfig

RUNGS = {"150k": 0.147e6, "600k": 0.602e6, "2500k": 2.65e6, "10m": 9.83e6, "30m": 31.5e6, "base": 84.9e6}


def rung(name: str) -> ModelConfig:
    given = yaml.safe_load((ROOT / "configs" / "model" / f"{name}.yaml").read_text())
    given.pop("defaults", None)
    return ModelConfig(**given)


def test_the_rungs_grow_in_depth_and_width_together() -> None:
    models = [rung(name) for name in RUNGS]
    for model, parameters in zip(models, RUNGS.values(), strict=True):
        assert model.layer_parameters == pytest.approx(parameters, rel=0.01)
    for shape in ("model_dim", "num_layers"):
        sizes = [getattr(model, shape) for model in models]
        assert sizes == sorted(set(sizes))
    assert {model.model_dim // model.num_heads for model in models[3:]} == {64}


@pytest.mark.parametrize("name", ["150k", "10m"])
def test_steps_follow_from_the_budget(name: str) -> None:
    model = rung(name)
    found = TrainConfig(tokens_per_parameter=5, tokens_per_step=2048).laid_out(model.layer_parameters)
    assert found.tokens_per_parameter is None
    assert found.steps * 2048 == pytest.approx(5 * model.layer_parameters, abs=1024)
    assert TrainConfig(steps=7).laid_out(10**6).steps == 7


def test_a_run_is_that_of_its_steps(command: Command, tmp_path: Path) -> None:
    words = ["model=tiny", "task.train_length=4", "train.rounds=1", "train.tokens_per_step=4096", "name=b", "--plan"]
    words += ["experiment=length_extrapolation", "length_extrapolation.multiples=[1]"]
    assert command(*words, "train.tokens_per_parameter=5").code == 0
    assert command(*words, "train.steps=30").code == 0, "5 · 24 576 / 4096"
    notes = [yaml.safe_load(path.read_text())["runs"] for path in (tmp_path / "results/b/sweeps").iterdir()]
    assert len(notes) == 2
    assert notes[0] == notes[1]


@pytest.mark.parametrize("value", ["0", "-5"])
def test_no_tokens_are_refused(command: Command, value: str) -> None:
    refused = command(f"train.tokens_per_parameter={value}", "task.train_length=4")
    assert refused.code == 2
    assert refused.err.startswith("error: train.tokens_per_parameter must")
