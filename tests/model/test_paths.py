"""Faster arithmetic and kernels, each against plain float32 attention."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import pe_zoo
from experiments.model import precision as _paths
from experiments.model.attention import Past
from experiments.model.layout import Layout
from experiments.model.precision import AUTO, BFLOAT16, FLOAT32, fused_pays, resolved
from experiments.model.streams import initialising
from experiments.model.transformer import Transformer
from experiments.tasks import Batch
from experiments.training.config import TrainConfig
from experiments.training.step import Step
from pe_zoo import Encoder, Geometry, Site

GEOMETRY = Geometry(model_dim=32, num_heads=2, num_layers=2, train_length=24)
CPU = torch.device("cpu")


def model_of(name: str, attention: str = "fused") -> Transformer:
    with initialising(0, "model"):
        return Transformer(11, GEOMETRY, pe_zoo.build(name, GEOMETRY), attention=attention)


def tokens() -> Tensor:
    return torch.randint(11, (3, 24), generator=torch.Generator().manual_seed(1))


def loss_and_gradient(model: Transformer, positions: Tensor | None = None) -> tuple[Tensor, dict[str, Tensor]]:
    model.zero_grad()
    logits = model(tokens(), positions)
    loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens()[:, 1:].flatten())
    loss.backward()
    return loss.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@contextmanager
def limits(few: int, short: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_paths, "FEW", few)
        patch.setattr(_paths, "SHORT", short)
        yield


@pytest.mark.parametrize("name", pe_zoo.names())
def test_kernel_and_products_train_alike(name: str) -> None:
    with limits(few=0, short=24):
        by_products, gradient = loss_and_gradient(model_of(name).double())
    with limits(few=0, short=23):
        by_kernel, other = loss_and_gradient(model_of(name).double())
    assert abs(by_products - by_kernel) < 1e-12
    assert gradient.keys() == other.keys()
    for key, value in gradient.items():
        torch.testing.assert_close(value, other[key], atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("short", [0, 24], ids=["kernel", "products"])
@pytest.mark.parametrize("name", pe_zoo.names())
def test_bfloat16_products_hardly_turn_the_gradient(name: str, short: int) -> None:
    # Far from 0, where positions held in bfloat16 would be 64 places apart.
    positions = torch.arange(24.0) + (0 if pe_zoo.build(name, GEOMETRY).max_length else 10_000)
    exact, gradient = loss_and_gradient(model_of(name), positions)
    halves = model_of(name)
    halves.train_in(torch.bfloat16)
    with limits(few=0, short=short):
        loss, other = loss_and_gradient(halves, positions)
    assert loss != exact
    assert abs(loss - exact) < 0.01 * exact
    whole, turned = (torch.cat([part[key].flatten() for key in sorted(gradient)]) for part in (gradient, other))
    assert whole.dtype == turned.dtype == torch.float32
    least = 0.99 if name == "tapa" else 0.999  # a product times 2π is a phase there, its rounding with it
    assert functional.cosine_similarity(whole, turned, 0) > least


def test_evaluation_is_in_float32_whatever_training_is_in() -> None:
    model, halves = model_of("rope").eval(), model_of("rope")
    halves.train_in(torch.bfloat16)
    assert torch.equal(model(tokens()), halves.eval()(tokens()))
    assert not torch.equal(model(tokens()), halves.train()(tokens()))


class Notes(Encoder):
    """Notes what its hooks are given."""

    seen: list[tuple[str, torch.dtype]]

    def rotate(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        assert site.x is not None
        self.seen += [("rotate", part.dtype) for part in (q, k, site.x, site.key_positions)]
        return q, k

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        self.seen += [("score", part.dtype) for part in (scores, q, k)]
        return scores

    def mix(self, scores: Tensor, v: Tensor, site: Site) -> Tensor:
        self.seen += [("mix", part.dtype) for part in (scores, v)]
        return super().mix(scores, v, site)


def test_an_encoder_is_given_float32_always() -> None:
    encoder = Notes(GEOMETRY)
    encoder.seen = []
    model = Transformer(11, GEOMETRY, encoder)
    model.train_in(torch.bfloat16)
    loss_and_gradient(model)
    assert {hook for hook, _ in encoder.seen} == {"rotate", "score", "mix"}
    assert {dtype for _, dtype in encoder.seen} == {torch.float32}


def test_bfloat16_is_taken_where_it_is_native_and_the_model_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    for native in (True, False):
        monkeypatch.setattr(_paths, "_multiplies_bfloat16", lambda native=native: native)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda native=native: not native)
        assert resolved(AUTO, "cpu", 128) == (BFLOAT16 if native else FLOAT32)
        assert resolved(AUTO, "cuda:1", 128) == (FLOAT32 if native else BFLOAT16)
        assert resolved(AUTO, "cpu", 127) == resolved(AUTO, "cuda", 127) == FLOAT32
        assert resolved(BFLOAT16, "cpu", 16) == BFLOAT16
        assert resolved(FLOAT32, "cpu", 128) == FLOAT32


@pytest.mark.parametrize(
    ("batch_size", "length", "fused"),
    [(127, 32, True), (128, 32, False), (128, 64, False), (128, 65, True)],
)
def test_long_sequences_and_small_batches_go_to_the_kernel(batch_size: int, length: int, fused: bool) -> None:
    heads = torch.zeros(batch_size, 2, length, 4)
    assert fused_pays(heads, heads) is fused
    with torch.no_grad():
        assert fused_pays(heads, heads)


@pytest.mark.parametrize("precision", [FLOAT32, BFLOAT16])
def test_a_step_is_taken_in_the_precision_asked_for(precision: str) -> None:
    model = model_of("alibi")
    step = Step(model, TrainConfig(precision=precision, steps=20, learning_rate=0.01))
    batch = Batch(tokens(), tokens(), torch.ones(24, dtype=torch.bool))
    losses = [float(step(batch)) for _ in range(20)]
    assert losses[-1] < 0.9 * losses[0]
    kept: list[Any] = [*model.parameters(), *(s["exp_avg"] for s in step.optimizer.state.values())]
    assert {part.dtype for part in kept} == {torch.float32}
    assert step.dtype == (torch.bfloat16 if precision == BFLOAT16 else None)


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(ValueError, match=r"train\.precision must be one of auto, float32, bfloat16; got 'half'"):
        TrainConfig(precision="half").check()


# ------------------------------------------------------------------------------------------ reading long sequences


LAYOUTS = {"all keys": Layout(), "a window": Layout(window=3), "windows of heads": Layout(masked_heads=1)}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", pe_zoo.names())
def test_a_long_sequence_is_read_as_the_plain_path_reads_it(name: str, layout: str) -> None:
    """However many queries at once, from the first or after what was read before, near or far apart."""
    geometry = Geometry(model_dim=16, num_heads=2, num_layers=2, train_length=8)
    encoder = pe_zoo.build(name, geometry)
    tokens = torch.randint(11, (2, 23), generator=torch.Generator().manual_seed(1))
    models = [
        Transformer(11, geometry, encoder, layout=LAYOUTS[layout], query_block=block, attention=attention).double()
        for attention, block in (("plain", 1024), ("fused", 1024), ("fused", 4), ("plain", 4))
    ]
    for positions in (torch.arange(23.0), 5 + torch.randint(1, 4, (23,)).cumsum(0).float()):
        whole = models[0](tokens, positions).detach()
        for model in models[1:]:
            model.load_state_dict(models[0].state_dict())
            pasts = [Past(23) for _ in model.layers]
            with torch.no_grad():
                found = model.eval()(tokens, positions)
                parts = [model(tokens[:, :9], positions[:9], pasts), model(tokens[:, 9:], positions, pasts)]
            torch.testing.assert_close(found, whole, atol=1e-9, rtol=0)
            torch.testing.assert_close(torch.cat(parts, 1), whole, atol=1e-9, rtol=0)


@pytest.mark.parametrize(("name", "by_row"), [("alibi", True), ("fire", False), ("rope", True), ("xpos", False)])
def test_what_is_the_same_for_all_queries_is_asked_once(
    name: str, by_row: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    geometry = Geometry(model_dim=16, num_heads=2, num_layers=1, train_length=8)
    asked: list[int] = []
    kind = pe_zoo.get(name)
    for hook in ("rotate", "score"):
        if kind.overrides(hook):
            real = getattr(kind, hook)

            def noting(self: Encoder, *given: Any, real: Any = real) -> Any:
                asked.append(given[-1].mask.numel())
                return real(self, *given)

            monkeypatch.setattr(kind, hook, noting)
    with torch.no_grad():
        Transformer(11, geometry, pe_zoo.build(name, geometry), query_block=4)(torch.zeros(1, 32, dtype=torch.long))
    assert (len(asked) == 1) == by_row
    assert max(asked) <= 4 * 32
