"""The model of docs/your_own.md, and what ``check_model`` says of it and of models that get a hook wrong."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support import ROOT
from torch import Tensor

import pe_zoo
from pe_zoo import Geometry

GUIDE = (ROOT / "docs" / "your_own.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(?:python|text)\n(.*?)```", GUIDE, re.DOTALL)
SOURCE = next(block for block in BLOCKS if block.startswith("# my_model.py"))
CALL = next(block for block in BLOCKS if "check_model" in block)
PRINTED = BLOCKS[BLOCKS.index(CALL) + 1]
GEOMETRY = Geometry(model_dim=24, num_heads=2, num_layers=2, train_length=32, head_dim=8)


def model_of(source: str, name: str) -> tuple[Any, pe_zoo.Encoder, Callable[[Tensor], Tensor]]:
    scope: dict[str, Any] = {}
    exec(source, scope)
    torch.manual_seed(0)
    encoder = pe_zoo.build(name, GEOMETRY)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    model = scope["MyModel"](11, GEOMETRY, encoder).eval()

    def cached(tokens: Tensor) -> Tensor:
        cache: dict[int, Any] = {}
        return torch.cat([model(token, cache=cache) for token in tokens.split(1, -1)], 1)

    return model, encoder, cached


def faults(source: str, name: str) -> list[str]:
    model, encoder, cached = model_of(source, name)
    verdicts = pe_zoo.check_model(model, encoder, vocab_size=11, cached=cached)
    return [f"{verdict.sentence} {verdict.reason}" for verdict in verdicts if verdict.outcome == "FAILS"]


@pytest.mark.parametrize("name", pe_zoo.names())
def test_the_example_uses_every_encoder_rightly(name: str) -> None:
    assert faults(SOURCE, name) == []


def test_the_guide_shows_what_it_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both blocks are run as they stand."""
    (tmp_path / "my_model.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_model", raising=False)
    exec(CALL, {})
    monkeypatch.delitem(sys.modules, "my_model")
    assert capsys.readouterr().out == PRINTED


def test_a_model_that_never_rotates_passes_with_a_bias_alone() -> None:
    source = SOURCE.replace("            q, k = self.encoder.rotate(q, k, site)\n", "")
    assert faults(source, "alibi") == []
    assert faults(source, "rope") != []


@pytest.mark.parametrize(
    ("name", "before", "after", "fault"),
    [
        ("alibi", " * self.geometry.head_dim**-0.5", "", "sqrt"),
        ("alibi", "layer=layer", "layer=0", r"in layers \[0\]"),
        ("rope", "q, k = self.encoder.rotate(q, k, site)", "self.encoder.rotate(q, k, site)", "what it returns"),
        ("t5", "length, length, dtype=torch.bool).tril()", "length, length, dtype=torch.bool)", "look ahead"),
        ("t5", "scores.masked_fill(~mask, -torch.inf)", "scores.masked_fill(~mask, -9.0)", "not −inf"),
        ("alibi", "scores = self.encoder.score(q", "scores = self.encoder.score(0 * q", "sqrt"),
        ("learned", "self.encoder.embed(", "self.encoder.embed(0 * ", None),
        ("learned", "# once", "; stream = self.encoder.embed(stream, positions[rows])", "2 times"),
        ("fox", "x, k, v = (torch.cat", "_, k, v = (torch.cat", "keep x"),
        ("rope", "rows = slice(past, length)", "rows = slice(0, length - past)", "differ by"),
        (
            "sinusoidal",
            "tokens), positions[rows])",
            "tokens), torch.arange(float(tokens.shape[1])))",
            "positions change nothing",
        ),
    ],
)
def test_a_hook_used_wrongly_is_found(name: str, before: str, after: str, fault: str | None) -> None:
    assert before in SOURCE
    found = faults(SOURCE.replace(before, after), name)
    if fault is None:  # scaled embeddings are the model's own business
        assert found == []
    else:
        assert any(re.search(fault, each) for each in found), found


def test_a_cache_of_turned_keys_is_found() -> None:
    late = "            q, k = self.encoder.rotate(q, k, site)\n"
    early = "            cache[layer] = x, k, v\n"
    assert any("differ by" in each for each in faults(SOURCE.replace(early, "").replace(late, late + early), "rope"))


def test_what_is_not_asked_does_not_apply() -> None:
    model, encoder, _ = model_of(SOURCE, "none")
    outcomes = [verdict.outcome for verdict in pe_zoo.check_model(model, encoder, vocab_size=11)]
    assert outcomes.count("n/a") == 2
    blind = pe_zoo.check_model(lambda tokens: model(tokens), encoder, vocab_size=11)
    assert "takes no positions" in str(blind[-2])
