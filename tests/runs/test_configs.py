"""The files in configs/ compose, name what is registered, and say what their defaults say in code."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
import yaml
from support import ROOT, Command

import pe_zoo
from experiments.measures.length_extrapolation import measure as length_extrapolation
from experiments.model.layout import Layout
from experiments.plan.request import ModelConfig
from experiments.runs import arguments
from experiments.tasks import tasks
from experiments.training.config import TrainConfig

CONFIGS = ROOT / "configs"
GROUPS = ("encoder", "layout", "model", "train")
FILES = [path for group in GROUPS for path in sorted((CONFIGS / group).glob("*.yaml"))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}={path.stem}")
def test_every_choice_composes_and_says_why_it_is_there(command: Command, path: Path) -> None:
    done = command("--cfg", "job", f"{path.parent.name}={path.stem}")
    assert done.code == 0, done.err
    composed = yaml.safe_load(done.out)
    if path.parent.name == "encoder":
        assert composed["encoder"]["name"] in pe_zoo.names()
        assert path.stem not in pe_zoo.names(), "a variant must not hide a registered encoder"
    assert path.read_text().startswith("# ")


@pytest.mark.parametrize(
    ("file", "default"),
    [("model/small", ModelConfig()), ("train/quick", TrainConfig()), ("layout/uniform", Layout())],
    ids=["model", "train", "layout"],
)
def test_the_default_files_repeat_the_defaults_in_code(file: str, default: object) -> None:
    assert yaml.safe_load((CONFIGS / f"{file}.yaml").read_text()) == asdict(default)  # type: ignore[call-overload]


SWEEPS = sorted(path for path in (CONFIGS / "sweep").glob("*.yaml") if "\nparts:" not in path.read_text())


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_every_sweep_names_its_folder_and_known_contestants(command: Command, path: Path) -> None:
    text = path.read_text()
    assert text.startswith("# @package _global_\n"), "Hydra reads the package from the first line alone"
    sweep = yaml.safe_load(text)
    assert sweep["name"] == path.stem
    encoders = sweep["hydra"]["sweeper"]["params"]["encoder"].split(",")
    variants = {file.stem for file in (CONFIGS / "encoder").glob("*.yaml")}
    assert set(encoders) <= {*pe_zoo.names(), *variants}
    assert command("--cfg", "job", f"+sweep={path.stem}").code == 0


def test_no_shipped_sweep_takes_trained_lengths_for_longer_ones() -> None:
    """As where a task draws one symbol less for an even length, and 1.5 times 3 is 4."""
    for path in sorted((CONFIGS / "sweep").glob("*.yaml")):
        for line in arguments.expand([f"+sweep={path.stem}"], CONFIGS):
            asked = dict(word.split("=", 1) for word in line if "=" in word)
            multiples = yaml.safe_load(asked.get("length_extrapolation.multiples", "[]"))
            knobs = {key[5:]: yaml.safe_load(value) for key, value in asked.items() if key.startswith("task.")}
            name = asked.get("task", "copy")
            if not multiples or name == "text":
                continue
            task = tasks.build(name, **knobs)
            trained = task.sequence_length(task.train_length)
            for length in length_extrapolation.lengths(task.train_length, multiples):
                assert length <= task.train_length or task.sequence_length(length) > trained, (path.stem, line)
