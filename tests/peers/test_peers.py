"""The comparison with other libraries: the same model, the same work, in turn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from experiments.model.streams import initialising
from experiments.peers import __main__ as command
from experiments.peers.models import OF_X_TRANSFORMERS, Contender, PlainTorch, contenders, logits_of, ours, peer_step
from experiments.peers.runs import (
    OURS,
    in_turn,
    product_rates,
    ratio,
    step_operations,
    steps_through_use,
    training_steps,
    whole_runs,
)
from experiments.tasks import Batch
from experiments.tasks.copy import Copy
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


def test_operations_of_a_step_are_those_of_its_products() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    model = ours("none", GEOMETRY, 11)
    tokens = torch.randint(11, (3, 20))
    with FlopCounterMode(display=False) as counted, torch.no_grad():
        model.layers[0].attention = model.layers[1].attention = "plain"  # type: ignore[union-attr]
        model(tokens)
    assert step_operations(GEOMETRY, 11, 3, 20) == 3 * counted.get_total_flops()
    rates = product_rates(GEOMETRY, 3, 20, 1)
    assert set(rates) == {"float32", "bfloat16"}
    assert all(rate > 0 for rate in rates.values())


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


def test_a_whole_run_trains_and_answers() -> None:
    does = whole_runs("none", GEOMETRY, 2, 256)
    assert {name.partition(",")[0] for name in does} == {OURS, "x-transformers", "plain torch"}
    for do in (does[OURS], does["plain torch, fused attention"]):
        do()


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Every batch of words that is drawn to train on, from here on."""
    drawn: list[Tensor] = []
    sample = Copy.sample

    def note(task: Copy, *given: Any, split: str, causal: bool) -> Batch:
        batch = sample(task, *given, split=split, causal=causal)
        if split == "train":
            drawn.append(batch.tokens)
        return batch

    monkeypatch.setattr(Copy, "sample", note)
    return drawn


def test_a_peer_trains_on_the_batches_that_ours_trains_on(sampled: list[Tensor]) -> None:
    does = whole_runs("none", GEOMETRY, 8, 256)
    does[OURS]()
    mine = list(sampled)
    sampled.clear()
    does["plain torch, fused attention"]()
    assert len({batch.shape for batch in mine}) > 1
    assert [batch.tolist() for batch in sampled] == [batch.tolist() for batch in mine]


def test_a_whole_run_has_the_given_length_and_tokens(sampled: list[Tensor], capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--model-dim", "16", "--layers", "1", "--rounds", "1", "--encoders", "none", "--steps", "9"]
    assert command.main(["run", *small, "--lengths", "3", "--tokens", "50"]) == 0
    task = Copy(train_length=3)
    sizes = {task.sequence_length(length) for length in (1, 2, 3)}
    assert {batch.shape[1] for batch in sampled} == sizes
    assert {batch.shape for batch in sampled} == {(50 // size, size) for size in sizes}
    assert {line.split()[1] for line in capsys.readouterr().out.splitlines()} == {"3"}


def test_the_command_prints_a_line_for_each_and_writes_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--model-dim", "64", "--layers", "1", "--rounds", "1", "--encoders", "none"]
    given = ["--tokens", "40", "--lengths", "20", "--out", str(tmp_path / "found.csv")]
    assert command.main(["step", *small, *given]) == 0
    table = pd.read_csv(tmp_path / "found.csv")
    assert list(table.columns) == ["encoder", "length", "who", "milliseconds", "ratio", "share_of_product_rate"]
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
        (["--steps", "9"], "--steps has no effect on step: leave it out, or use run"),
        (["long", "--steps", "9"], "--steps has no effect on long: leave it out, or use run"),
        (["long", "--tokens", "9"], "--tokens has no effect on long: leave it out, or use step or run or hf"),
        (["long", "--compile"], "--compile has no effect on long: leave it out, or use step"),
        (["run", "--compile"], "--compile has no effect on run: leave it out, or use step"),
    ],
)
def test_a_bad_request_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    error = capsys.readouterr().err
    assert ended.value.code == 2
    assert error.count("\n") == 1
    assert said in error
