"""Controls with as many parameters: how wide the trunk becomes, what is refused, and the series of the control."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from support import Command

from experiments.model.layout import Layout
from experiments.plan.plan import Plan
from experiments.plan.prepare import prepare
from experiments.plan.refusal import BadRequest
from experiments.plan.request import ModelConfig, RunConfig
from experiments.rows import results as _results
from experiments.training.config import TrainConfig

QUICK = [
    "model=tiny",
    "figures=false",
    "task.train_length=4",
    "train.steps=2",
    "train.rounds=1",
    "experiment=length_extrapolation",
]
QUICK += ["length_extrapolation.samples=4", "length_extrapolation.multiples=[1,2]"]


def plan_of(encoder: str, as_many_as: str | None, **model: Any) -> Plan:
    return prepare(
        RunConfig(
            encoder={"name": encoder},
            task={"name": "copy", "train_length": 8},
            positions={"name": "sequential"},
            layout=Layout(),
            model=ModelConfig(**{"model_dim": 32, "num_heads": 2, "num_layers": 3, "as_many_as": as_many_as} | model),
            train=TrainConfig(),
            experiments={},
            seed=0,
            name="controls",
        )
    )


def parameters(plan: Plan) -> int:
    return sum(p.numel() for p in plan.model().parameters())


@pytest.mark.parametrize(("own", "other"), [("none", "learned"), ("t5", "learned"), ("rope", "t5"), ("alibi", "path")])
def test_the_trunk_makes_up_for_what_the_other_encoder_adds(own: str, other: str) -> None:
    control, encoder = parameters(plan_of(own, other)), parameters(plan_of(other, None))
    assert 0 <= control - encoder < 3 * 2 * 32, "less than one hidden unit a layer too many"
    assert control > parameters(plan_of(own, None))


def test_all_layers_are_widened_alike_and_by_nothing_else() -> None:
    plain, wide = (plan_of("none", other).model() for other in (None, "learned"))
    for layer, plain_layer in zip(wide.layers, plain.layers, strict=True):
        assert layer.ffn_in.out_features == layer.ffn_out.in_features == wide.layers[0].ffn_in.out_features
        assert layer.ffn_in.out_features > plain_layer.ffn_in.out_features == 128
    sizes = [
        {name: tuple(p.shape) for name, p in model.named_parameters() if ".ffn_" not in name or "norm" in name}
        for model in (plain, wide)
    ]
    assert sizes[0] == sizes[1]


def test_the_random_state_of_the_trunk_goes_by_the_seed_alone() -> None:
    first, second = (plan_of("none", "learned").model().state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    plan = plan_of("none", "t5")
    assert all(torch.equal(a, b) for a, b in zip(plan.model().parameters(), plan.model().parameters(), strict=True))


@pytest.mark.parametrize(
    ("own", "other", "said"),
    [
        ("none", "lerned", r"no encoder named 'lerned'\. Did you mean 'learned'\?"),
        (
            "none",
            "rope",
            r"model\.as_many_as=rope changes nothing: rope has 0 parameters here, encoder=none 0; ",
        ),
        ("learned", "learned", r"changes nothing"),
        ("learned", "t5", r"changes nothing: t5 has \d+ parameters here, encoder=learned \d+; name an"),
    ],
)
def test_what_there_is_nothing_to_make_up_for_is_refused(own: str, other: str, said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        plan_of(own, other)


def test_a_control_has_its_own_series(command: Command, tmp_path: Path) -> None:
    for line in (["encoder=none"], ["encoder=learned"], ["encoder=rope"], ["encoder=t5"]):
        assert command(*QUICK, *line).code == 0
    done = command(*QUICK, "encoder=none", "model.as_many_as=learned")
    assert done.code == 0, done.err
    results = _results.read(tmp_path / "results" / "scratch")
    assert sorted(results.runs["series"]) == ["learned", "none", "none · model.as_many_as=learned", "rope", "t5"]
    totals = results.runs.set_index("series")[["model_parameters", "encoder_parameters"]].sum(axis=1)
    assert 0 <= totals["none · model.as_many_as=learned"] - totals["learned"] < 2 * 2 * 32
    (control,) = results.runs.loc[results.runs["series"].str.contains("as_many_as"), "run_id"]
    record = json.loads((tmp_path / "results" / "scratch" / "runs" / control / "run.json").read_text())
    assert record["encoder_parameters"] == 0


def test_a_control_of_an_encoder_of_a_file_is_named_by_it(command: Command, tmp_path: Path) -> None:
    source = (
        "import torch\nfrom pe_zoo import register\nfrom pe_zoo.t5 import T5\n\n\n@register('own_t5')\nclass Own(T5):\n"
        "    'Mine.'\n\n    def __init__(self, geometry):\n        super().__init__(geometry)\n"
        "        self.start = float(torch.tensor(0.5).expm1().log())  # a number, which the meta device has none of\n"
    )
    (tmp_path / "mine.py").write_text(source, encoding="utf-8")
    assert command("-m", *QUICK, "plugin=mine.py", "encoder=own_t5,none").code == 0
    done = command("-m", *QUICK, "plugin=mine.py", "encoder=none", "model.as_many_as=own_t5", "seed=0,1")
    assert done.code == 0, done.err
    assert "none on copy, seed 1, with as many parameters as own_t5: " in done.out
    series = _results.read(tmp_path / "results" / "scratch").runs["series"]
    assert {*series} == {"none", "none · model.as_many_as=own_t5", "own_t5"}
