"""Layouts: which layers go without the encoder and what each head of a layer sees, held against loops."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from support import ROOT, Command
from torch import Tensor
from torch.nn import functional

import pe_zoo
from experiments.model.layout import Layout, visible
from experiments.model.transformer import Transformer
from experiments.plan.request import ModelConfig
from pe_zoo import Encoder, Geometry, Site

GEOMETRY = Geometry(model_dim=24, num_heads=4, num_layers=5, train_length=9)
VOCAB = 7
FILES = {path.stem: path for path in sorted((ROOT / "configs" / "layout").glob("*.yaml"))}

Sees = Callable[[int, int, int], bool]
"""Whether, in a layer and head, a query so many places after a key sees it (causally, within windows)."""

HALF, QUARTER = 5, 3  # of 9 places, rounded up
PUBLISHED: dict[str, tuple[list[int], Sees]] = {
    "uniform": ([0, 1, 2, 3, 4], lambda layer, head, back: True),
    "nope_every_4th": ([0, 1, 2, 4], lambda layer, head, back: True),
    "rnope_swa": ([0, 1, 2, 4], lambda layer, head, back: layer == 3 or back < HALF),
    "swan": ([1, 2, 3], lambda layer, head, back: layer in (0, 4) or back < QUARTER),
    "sliding_window": ([0, 1, 2, 3, 4], lambda layer, head, back: back < QUARTER),
    "hard_alibi": ([0, 1, 2, 3, 4], lambda layer, head, back: (back <= head) if head < 2 else True),
}
"""Of each file in configs/layout/, in the geometry above: the layers with the encoder, and who sees what."""


def layout_of(name: str) -> Layout:
    return Layout(**yaml.safe_load(FILES[name].read_text()))


def model_of(encoder: Encoder, layout: Layout, **options: Any) -> Transformer:
    return Transformer(VOCAB, encoder.geometry, encoder, layout=layout, **options).double().eval()


def some_tokens(batch: int = 2, length: int = 11) -> Tensor:
    return torch.randint(VOCAB, (batch, length))


class Notes(Encoder):
    """Writes down every layer that asks it, and the mask it is shown."""

    name = "notes"

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.sites: list[Site] = []

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        self.sites.append(site)
        return scores


@pytest.fixture
def masks(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[Tensor]]:
    """The mask of every layer, with the encoder or without, in each block of queries."""
    from experiments.model import transformer

    seen: dict[int, list[Tensor]] = {}
    attend = transformer.attend

    def noting(encoder: Encoder, q: Tensor, k: Tensor, v: Tensor, site: Site, attention: str, **others: Any) -> Tensor:
        seen.setdefault(site.layer, []).append(site.mask.expand(1, q.shape[1], -1, -1)[0])
        return attend(encoder, q, k, v, site, attention, **others)

    monkeypatch.setattr(transformer, "attend", noting)
    return seen


# ------------------------------------------------------------------------------------------------ who sees what


def test_every_file_is_held_against_a_loop() -> None:
    assert set(PUBLISHED) == set(FILES)


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("query_block", [4, 1024])
def test_masks_are_those_of_a_loop(name: str, causal: bool, query_block: int, masks: dict[int, list[Tensor]]) -> None:
    carrying, sees = PUBLISHED[name]
    length = 11
    encoder = Notes(GEOMETRY)
    model = model_of(encoder, layout_of(name), causal=causal, query_block=query_block, attention="plain")
    with torch.no_grad():
        # Windows go by place: positions that lie far apart, or backwards, change nothing.
        model(some_tokens(2, length), torch.stack([100.0 * torch.arange(length), -torch.arange(11.0)]))
    assert list(dict.fromkeys(site.layer for site in encoder.sites)) == carrying
    assert [layer for layer in range(5) if model.layout.carries(layer)] == carrying
    assert sorted(masks) == [0, 1, 2, 3, 4]
    for layer, blocks in masks.items():
        mask = torch.cat([functional.pad(block, (0, length - block.shape[-1])) for block in blocks], 1)
        assert mask.shape == (4, length, length)
        for head in range(4):
            for i in range(length):
                for j in range(length):
                    ahead = j > i
                    expected = not (ahead and causal) and sees(layer, head, abs(i - j))
                    assert mask[head, i, j].item() == expected, (layer, head, i, j)


def test_a_mask_is_no_larger_than_it_must_be() -> None:
    back = torch.arange(5)[:, None] - torch.arange(5)
    assert visible(back, (None, None), True).shape == (5, 5)
    assert visible(back, (2, 2), False).shape == (5, 5)
    assert visible(back, (1, None), True).shape == (1, 2, 5, 5)
    assert visible(back, (1, 2), True).dtype == torch.bool


def test_windows_of_a_layer_and_head() -> None:
    assert Layout().seen(0, GEOMETRY) == (None,) * 4
    assert Layout(window=3).seen(2, GEOMETRY) == (3,) * 4
    assert Layout(masked_heads=3).seen(0, GEOMETRY) == (1, 2, 3, None)
    assert Layout(masked_heads=3, window=2).seen(0, GEOMETRY) == (1, 2, 2, 2)
    assert Layout(window=3, window_on="carrying", skip_every=2).seen(1, GEOMETRY) == (None,) * 4
    for share, train_length, window in [(1.0, 9, 9), (0.5, 9, 5), (0.25, 8, 2), (0.07, 100, 7), (0.001, 9, 1)]:
        geometry = Geometry(model_dim=4, num_heads=1, num_layers=1, train_length=train_length)
        assert Layout(window_share=share).seen(0, geometry) == (window,)


@pytest.mark.parametrize(
    ("skip_every", "skip_at", "carrying"),
    [
        (2, None, [0, 2, 4]),
        (2, 2, [0, 2, 4]),
        (2, 1, [1, 3]),
        (3, None, [0, 1, 3, 4]),
        (3, 1, [1, 2, 4]),
        (3, 2, [0, 2, 3]),
        (9, 5, [0, 1, 2, 3]),
    ],
)
def test_which_layers_carry_the_encoder(skip_every: int, skip_at: int | None, carrying: list[int]) -> None:
    layout = Layout(skip_every=skip_every, skip_at=skip_at)
    layout.check(5, 4)
    assert [layer for layer in range(5) if layout.carries(layer)] == carrying


# ---------------------------------------------------------------------------------------------------- in a model


@pytest.mark.parametrize("attention", ["plain", "fused"])
def test_heads_of_their_own_windows_by_hand(attention: str) -> None:
    """One layer without an encoder, its attention written out as loops over heads, queries and keys."""
    geometry = Geometry(model_dim=6, num_heads=3, num_layers=1, train_length=8)
    layout = Layout(masked_heads=2, window=4)
    model, tokens = model_of(Encoder(geometry), layout, attention=attention), some_tokens(1, 6)
    windows = [1, 2, 4]
    layer: Any = model.layers[0]
    x = model.token_embedding(tokens)[0]
    q, k, v = layer.attention_in(layer.attention_norm(x)).detach().chunk(3, -1)
    mixed = torch.zeros(6, 6, dtype=torch.float64)
    for head, window in enumerate(windows):
        own = slice(2 * head, 2 * head + 2)
        for i in range(6):
            keys = [j for j in range(i + 1) if i - j < window]
            weights = [math.exp(float(q[i, own] @ k[j, own]) / math.sqrt(2)) for j in keys]
            for weight, j in zip(weights, keys, strict=True):
                mixed[i, own] += weight / sum(weights) * v[j, own]
    x = x + layer.attention_out(mixed)
    x = x + layer.ffn_out(functional.gelu(layer.ffn_in(layer.ffn_norm(x))))
    torch.testing.assert_close(model.hidden(tokens)[1][0], x, atol=1e-12, rtol=0)


@pytest.mark.parametrize("layout", ["rnope_swa", "swan", "hard_alibi"])
@pytest.mark.parametrize("name", pe_zoo.names())
def test_blocks_of_queries_and_the_fused_path_equal_the_whole(name: str, layout: str) -> None:
    plain = model_of(pe_zoo.build(name, GEOMETRY), layout_of(layout), attention="plain")
    state, tokens = plain.state_dict(), some_tokens()
    for positions in (torch.arange(11.0), torch.randint(1, 4, (2, 11)).cumsum(-1).float()):
        with torch.no_grad():
            whole = plain(tokens, positions)
            assert whole.isfinite().all()
            for options in ({"attention": "plain", "query_block": 3}, {"query_block": 4}, {}):
                other = model_of(pe_zoo.build(name, GEOMETRY), layout_of(layout), **options)
                other.load_state_dict(state)
                torch.testing.assert_close(other(tokens, positions), whole, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("name", ["uniform", "nope_every_4th", "rnope_swa", "swan", "sliding_window", "hard_alibi"])
def test_a_layout_trains_and_shows_in_the_model(name: str) -> None:
    state = model_of(pe_zoo.build("rope", GEOMETRY), Layout()).state_dict()
    tokens = some_tokens()
    logits = {}
    for which in ("uniform", name):
        model = model_of(pe_zoo.build("rope", GEOMETRY), layout_of(which))
        model.load_state_dict(state)
        logits[which] = model(tokens)
        logits[which].sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert torch.equal(logits["uniform"], logits[name]) == (name == "uniform")


# ------------------------------------------------------------------------------------------------------- refusals


WRONG: list[tuple[dict[str, Any], str]] = [
    *(({"skip_every": wrong}, r"layout\.skip_every") for wrong in (0, 1, -2, 1.5, True, "2")),
    ({"skip_every": 4}, r"changes nothing in a model of 3 layers; set model\.num_layers=4 or more"),
    ({"skip_every": 9, "skip_at": 5}, r"set model\.num_layers=5 or more"),
    ({"skip_at": 1}, r"layout\.skip_at=1 changes nothing without layout\.skip_every"),
    *(({"skip_every": 2, "skip_at": wrong}, r"layout\.skip_at") for wrong in (0, 3, 1.5, True, "1")),
    *(({"window": wrong}, r"layout\.window must") for wrong in (0, -1, 1.5, True, "2")),
    *(({"window_share": wrong}, r"layout\.window_share must") for wrong in (0, -1, 1.5, True, "2", math.nan)),
    ({"window": 3, "window_share": 0.5}, r"say the same twice; set one of them to null"),
    ({"window_on": "carying"}, r"layout\.window_on must be one of all, carrying.*Did you mean 'carrying'"),
    ({"window_on": "carrying"}, r"layout\.window_on=carrying changes nothing without"),
    ({"window_on": "carrying", "window": 3}, r"layout\.window_on=carrying changes nothing without"),
    ({"window_on": "carrying", "skip_every": 2}, r"layout\.window_on=carrying changes nothing without"),
    *(({"masked_heads": wrong}, r"layout\.masked_heads must") for wrong in (0, -1, 1.5, True, "2")),
    ({"masked_heads": 4}, r"leaves none of 4 heads free; set model\.num_heads=5 or more"),
]


@pytest.mark.parametrize(("given", "said"), WRONG, ids=str)
def test_an_impossible_layout_is_refused_in_one_line(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said) as refusal:
        Layout(**given).check(num_layers=3, num_heads=4)
    assert "\n" not in str(refusal.value)


def test_what_just_fits_is_allowed() -> None:
    for fine in (
        Layout(),
        Layout(skip_every=2),
        Layout(skip_every=3, window=1),
        Layout(skip_every=9, skip_at=3),
        Layout(masked_heads=3, window_share=1.0),
        Layout(skip_every=2, window_share=0.1, window_on="carrying"),
    ):
        fine.check(num_layers=3, num_heads=4)
    Layout(skip_every=2, skip_at=1).check(num_layers=2, num_heads=1)
    with pytest.raises(ValueError, match=r"leaves no layer with the encoder; set model\.num_layers=2"):
        Layout(skip_every=2, skip_at=1).check(num_layers=1, num_heads=1)


@pytest.mark.parametrize("name", FILES)
def test_a_layout_file_composes_or_says_what_to_set(name: str) -> None:
    model = ModelConfig()
    needs = {"nope_every_4th": "num_layers=4", "rnope_swa": "num_layers=4"}
    if name in needs:
        with pytest.raises(ValueError, match=f"set model.{needs[name]} or more"):
            layout_of(name).check(model.num_layers, model.num_heads)
        layout_of(name).check(4, model.num_heads)
    else:
        layout_of(name).check(model.num_layers, model.num_heads)


def test_a_layout_says_what_it_is() -> None:
    assert str(Layout()) == "uniform"
    assert str(Layout(skip_every=4)) == "skip_every=4"
    assert str(layout_of("rnope_swa")) == "skip_every=4, window_share=0.5, window_on=carrying"


@pytest.mark.parametrize("name", FILES)
def test_a_run_with_each_file(command: Command, tmp_path: Path, name: str) -> None:
    small = [
        "figures=false",
        "model=tiny",
        "train.steps=4",
        "train.rounds=1",
        "train.curve_points=1",
        "experiment=length_extrapolation",
    ]
    few = ["length_extrapolation.samples=2", "length_extrapolation.multiples=[1,2]", f"layout={name}"]
    refused = name in ("nope_every_4th", "rnope_swa", "swan", "hard_alibi")
    done = command(*small, *few, "model.num_layers=1" if name == "swan" else "seed=0")
    assert (done.code, done.err.count("\n")) == ((2, 1) if refused else (0, 0)), done.err
    if refused:
        assert "; set model.num_" in done.err
        done = command(*small, *few, "model.num_layers=4", "model.num_heads=4")
        assert done.code == 0, done.err
    (run,) = (tmp_path / "results" / "scratch" / "runs").iterdir()
    record = json.loads((run / "run.json").read_text())
    assert (record["status"], record["layout"]) == ("ok", str(layout_of(name)))
