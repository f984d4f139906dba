"""The comparison with other libraries: the same model, the same work, in turn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import nn

from experiments.model.streams import initialising
from experiments.peers import __main__ as command
from experiments.peers.models import OF_X_TRANSFORMERS, Contender, PlainTorch, contenders, logits_of, ours, peer_step
from experiments.peers.runs import (
    OURS,
    in_turn,
    ratio,
    steps_through_use,
    training_steps,
)
from experiments.training.step import next_token
from pe_zoo import Geometry

GEOMETRY = Geometry(model_dim=64, num_heads=2, num_layers=2, train_length=20)
ALL = [
    pytest.param(encoder, contender, id=f"{encoder}, {contender.name}")
    for encoder in OF_X_TRANSFORMERS
    for contender in contenders(encoder, GEOMETRY, 11)
    if not contender.autocast
]


@pytest.mark.parametrize(("encoder", "contender"), ALL)
def test_a_peer_is_a_causal_model_of_the_same_size_that_learns(encoder: str, contender: Contender) -> None:
    torch.manual_seed(0)
    model = contender.build().eval()
    sizes = [sum(p.numel() for p in m.parameters()) for m in (model, ours(encoder, GEOMETRY, 11))]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.08)
    tokens = torch.randint(11, (2, 20))
    other = tokens.clone()
    other[:, 12] = (other[:, 12] + 1) % 11
    with torch.no_grad():
        difference = (logits_of(model, tokens) - logits_of(model, other)).abs().amax((0, 2))
    assert difference[:12].max() < 1e-5
    assert difference[12:].min() > 1e-5
    step = peer_step(model, autocast=False)
    losses = [float(step(next_token(tokens))) for _ in range(8)]
    assert losses[-1] < losses[0]


def test_plain_torch_is_our_model_without_an_encoder() -> None:
    with initialising(0, "model"):
        model = ours("none", GEOMETRY, 11).eval()
    plain = PlainTorch(GEOMETRY, 11).eval()
    theirs, mine = list(plain.parameters()), list(model.parameters())
    assert sorted(p.shape for p in theirs) == sorted(p.shape for p in mine)
    named = dict(model.named_parameters())
    with torch.no_grad():
        plain.embedding.weight.copy_(named["token_embedding.weight"])
        for index, layer in enumerate(plain.layers):
            assert isinstance(layer, nn.ModuleDict)
            ffn = layer["ffn"]
            assert isinstance(ffn, nn.Sequential)
            for part, name in (
                (layer["norm"], "attention_norm"),
                (layer["mixed"], "attention_in"),
                (layer["out"], "attention_out"),
                (ffn[0], "ffn_norm"),
                (ffn[1], "ffn_in"),
                (ffn[3], "ffn_out"),
            ):
                part.weight.copy_(named[f"layers.{index}.{name}.weight"])
        plain.unembedding[0].weight.copy_(named["norm.weight"])
        plain.unembedding[1].weight.copy_(named["unembedding.weight"])
        tokens = torch.randint(11, (3, 20), generator=torch.Generator().manual_seed(1))
        torch.testing.assert_close(plain(tokens), model(tokens), atol=1e-5, rtol=1e-5)


def test_libraries_alternate_and_the_first_round_is_a_warm_up() -> None:
    done: list[str] = []
    does: dict[str, Callable[[], object]] = {name: lambda name=name: done.append(name) for name in ("a", "b")}
    seconds = in_turn(does, 2)
    assert done == ["a", "b"] * 3
    assert {name: len(taken) for name, taken in seconds.items()} == {"a": 2, "b": 2}
    assert ratio([2.0, 9.0, 30.0], [1.0, 3.0, 5.0]) == 3.0


def test_ours_comes_first_and_every_peer_after_it() -> None:
    does = training_steps("learned", GEOMETRY, 40)
    assert next(iter(does)) == OURS
    assert {name.partition(",")[0] for name in does} == {OURS, "x-transformers", "transformers"}
    assert len(does) == 2 + 2 * 3
    losses = [float(do()) for do in does.values()]  # type: ignore[arg-type]
    assert all(2 < loss < 8 for loss in losses)


def test_llama_trains_as_it_comes_and_through_use() -> None:
    does = steps_through_use("rope", GEOMETRY, 40)
    assert list(does) == ["transformers, as it comes", f"{OURS}, through use"]
    for do in does.values():
        losses = [float(do()) for _ in range(8)]  # type: ignore[arg-type]
        assert losses[-1] < losses[0]


def test_the_command_prints_a_line_for_each_and_writes_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--model-dim", "64", "--layers", "1", "--rounds", "1", "--encoders", "none"]
    given = ["--tokens", "40", "--lengths", "20", "--out", str(tmp_path / "found.csv")]
    assert command.main(["step", *small, *given]) == 0
    table = pd.read_csv(tmp_path / "found.csv")
    assert list(table.columns) == ["encoder", "length", "who", "milliseconds", "ratio"]
    assert (table["who"].iloc[0], table["ratio"].iloc[0]) == (OURS, 1.0)
    assert len(capsys.readouterr().out.splitlines()) == len(table) == 8
    assert command.main(["long", *small, "--lengths", "300"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--encoders", "ropee"], "no encoder named 'ropee'"),
        (["--rounds", "0"], "'0' is not a whole number above 0"),
        (["fly"], "invalid choice: 'fly'"),
        (["long", "--tokens", "9"], "--tokens has no effect on long: leave it out, or use step or hf"),
        (["long", "--compile"], "--compile has no effect on long: leave it out, or use step"),
    ],
)
def test_a_bad_request_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    error = capsys.readouterr().err
    assert ended.value.code == 2
    assert error.count("\n") == 1
    assert said in error
