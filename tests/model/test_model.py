"""The model and its training step: one trunk for every encoder, the same from the same seed."""

from __future__ import annotations

import copy
import csv
import math
import re
from functools import partial
from pathlib import Path

import pytest
import torch
from support import Command
from torch import Tensor
from torch.nn import functional

import experiments
import pe_zoo
from experiments.model.attention import attend
from experiments.model.layout import Layout
from experiments.model.streams import initialising, number_for, stream
from experiments.model.temperature import LAWS, Temperature
from experiments.model.transformer import Transformer
from experiments.tasks import Batch, tasks
from experiments.training.config import TrainConfig
from experiments.training.evaluate import evaluate, in_chunks
from experiments.training.loop import train
from experiments.training.progress import check_in_range
from experiments.training.step import Step, make_train_step
from pe_zoo import Encoder, Geometry, Site
from pe_zoo._contract.bench import site_of

GEOMETRY = Geometry(model_dim=16, num_heads=2, num_layers=3, train_length=8)
VOCAB = 7
everyone = pytest.mark.parametrize("name", pe_zoo.names())


def model_of(
    name: str = "rope", geometry: Geometry = GEOMETRY, *, causal: bool = True, **options: object
) -> Transformer:
    return Transformer(VOCAB, geometry, pe_zoo.build(name, geometry), causal=causal, **options)  # type: ignore[arg-type]


def some_tokens(batch: int = 2, length: int = 6) -> Tensor:
    return torch.randint(VOCAB, (batch, length))


def whole_site(length: int) -> Site:
    """Of a causal layer that sees the whole text."""
    x = torch.randn(2, length, GEOMETRY.model_dim, dtype=torch.float64)
    return site_of(torch.arange(float(length)), True, x)


class Spy(Encoder):
    """Remembers where it was asked, and turns every score around."""

    name = "spy"

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.sites: list[Site] = []

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        self.sites.append(site)
        return -scores


# ----------------------------------------------------------------------------------------------------- shapes


@everyone
def test_positions_in_whole_numbers_are_as_good_as_in_floats(name: str) -> None:
    model, tokens = model_of(name), some_tokens()
    assert torch.equal(model(tokens, torch.arange(6)), model(tokens, torch.arange(6.0)))


@everyone
@pytest.mark.parametrize("causal", [True, False])
def test_shapes(name: str, causal: bool) -> None:
    if pe_zoo.build(name, GEOMETRY).causal_only and not causal:
        with pytest.raises(ValueError, match=r"set model\.causal=true"):
            model_of(name, causal=causal)
        return
    model = model_of(name, causal=causal)
    for batch, length in ((1, 1), (2, 6), (3, 20)):
        tokens = some_tokens(batch, length)
        assert model(tokens).shape == (batch, length, VOCAB)
        hidden = model.hidden(tokens)
        assert [tuple(h.shape) for h in hidden] == [(batch, length, 16)] * 4
    assert experiments.Transformer is Transformer
    assert experiments.make_train_step is make_train_step


@everyone
def test_positions_count_up_from_0_unless_given(name: str) -> None:
    model, tokens = model_of(name), some_tokens()
    assert torch.equal(model(tokens), model(tokens, torch.arange(6.0)))
    torch.testing.assert_close(model(tokens), model(tokens, torch.arange(6.0).expand(2, 6)))
    with pytest.raises(ValueError, match=r"positions of shape \(5,\) for tokens of shape \(2, 6\)"):
        model(tokens, torch.arange(5.0))
    with pytest.raises(ValueError, match="give \\(length,\\) or"):
        model(tokens, torch.arange(6.0).expand(3, 6))


def test_a_model_and_an_encoder_of_different_sizes_do_not_fit() -> None:
    other = Geometry(model_dim=16, num_heads=4, num_layers=3, train_length=8)
    with pytest.raises(ValueError, match="the encoder was built for") as refusal:
        Transformer(VOCAB, GEOMETRY, pe_zoo.build("alibi", other))
    assert "num_heads=4" in str(refusal.value)
    assert "num_heads=2" in str(refusal.value)


def test_logits_by_hand() -> None:
    """One layer, without an encoder, written out."""
    geometry = Geometry(model_dim=4, num_heads=2, num_layers=1, train_length=8)
    model, tokens = model_of("none", geometry).double(), some_tokens(1, 3)
    p = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def norm(x: Tensor, weight: Tensor) -> Tensor:
        return (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + 1e-5).sqrt() * weight

    x = p["token_embedding.weight"][tokens[0]]
    qkv = norm(x, p["layers.0.attention_norm.weight"]) @ p["layers.0.attention_in.weight"].T
    mixed = torch.zeros(3, 4, dtype=torch.float64)
    for head in range(2):
        q, k, v = (qkv[:, 4 * part + 2 * head : 4 * part + 2 * head + 2] for part in range(3))
        for i in range(3):
            weights = torch.tensor(
                [math.exp(float(q[i] @ k[j]) / math.sqrt(2)) for j in range(i + 1)], dtype=torch.float64
            )
            mixed[i, 2 * head : 2 * head + 2] = (weights / weights.sum()) @ v[: i + 1]
    x = x + mixed @ p["layers.0.attention_out.weight"].T
    inner = functional.gelu(norm(x, p["layers.0.ffn_norm.weight"]) @ p["layers.0.ffn_in.weight"].T)
    x = x + inner @ p["layers.0.ffn_out.weight"].T
    torch.testing.assert_close(
        model(tokens)[0], norm(x, p["norm.weight"]) @ p["unembedding.weight"].T, atol=1e-12, rtol=0
    )


@pytest.mark.parametrize("attention", ["plain", "fused"])
def test_scores_are_scaled_by_the_geometry_not_by_rotate(attention: str) -> None:
    class Widens(Encoder):
        name = "widens"

        def rotate(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor]:
            return torch.cat([q, 0 * q], -1), torch.cat([k, k], -1)

    model = Transformer(VOCAB, GEOMETRY, Widens(GEOMETRY), attention=attention).double()
    bare = Transformer(VOCAB, GEOMETRY, Encoder(GEOMETRY), attention=attention).double()
    bare.load_state_dict(model.state_dict())
    tokens = some_tokens()
    torch.testing.assert_close(model(tokens), bare(tokens), atol=1e-12, rtol=0)


# ------------------------------------------------------------------------------------------------ initial state


@everyone
def test_the_trunk_starts_the_same_for_every_encoder(name: str) -> None:
    before = torch.random.get_rng_state()
    trunks = []
    for which in ("none", name):
        encoder = pe_zoo.build(which, GEOMETRY)
        torch.manual_seed(5)
        state = torch.random.get_rng_state()
        with initialising(3, "trunk"):
            model = Transformer(VOCAB, GEOMETRY, encoder)
        assert torch.equal(torch.random.get_rng_state(), state), "the global state is as before"
        trunks.append(model.trunk_parameters())
    assert [n for n, _ in trunks[0]] == [n for n, _ in trunks[1]]
    for (_, one), (_, other) in zip(*trunks, strict=True):
        assert torch.equal(one, other)
    with initialising(4, "trunk"):
        changed = model_of("none").trunk_parameters()
    assert not torch.equal(trunks[0][0][1], changed[0][1])
    torch.random.set_rng_state(before)


def test_token_embeddings_have_unit_variance() -> None:
    weight = Transformer(500, GEOMETRY, pe_zoo.build("none", GEOMETRY)).token_embedding.weight
    assert weight.std().item() == pytest.approx(1, rel=0.05)


def test_streams_of_different_purposes_differ_and_repeat() -> None:
    assert number_for(0, "data") != number_for(0, "positions") != number_for(1, "data")
    assert number_for(1, "1/data") != number_for(11, "/data")
    draws = [
        torch.rand(3, generator=stream(seed, purpose)) for seed, purpose in ((0, "a"), (0, "a"), (0, "b"), (1, "a"))
    ]
    assert torch.equal(draws[0], draws[1])
    assert len({tuple(d.tolist()) for d in draws}) == 3
    before = torch.random.get_rng_state()
    stream(0, "a")
    assert torch.equal(torch.random.get_rng_state(), before)


# ------------------------------------------------------------------------------------------------------ layout


def sees(model: Transformer, length: int) -> Tensor:
    """Which inputs each output depends on: ``(length, length)`` bool."""
    seen: list[Tensor] = []
    hook = model.token_embedding.register_forward_hook(lambda module, args, output: seen.append(output))
    logits = model(some_tokens(1, length))
    hook.remove()
    rows = [
        torch.autograd.grad(logits[0, i].pow(2).sum(), seen[0], retain_graph=True)[0][0].abs().sum(-1)
        for i in range(length)
    ]
    return torch.stack(rows) > 0


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("attention", ["plain", "fused"])
@pytest.mark.parametrize("window", [None, 1, 2, 4, 100])
def test_a_window_hides_what_is_further_away(window: int | None, attention: str, causal: bool) -> None:
    geometry = Geometry(model_dim=8, num_heads=2, num_layers=1, train_length=8)
    model = model_of("rope", geometry, causal=causal, layout=Layout(window=window), attention=attention).double()
    expected = [[abs(i - j) < (window or 99) and (j <= i or not causal) for j in range(7)] for i in range(7)]
    assert sees(model, 7).tolist() == expected


def test_a_window_reaches_further_with_every_layer() -> None:
    model = model_of("rope", layout=Layout(window=2)).double()
    assert sees(model, 8).tolist() == [[0 <= i - j <= 3 for j in range(8)] for i in range(8)]


@pytest.mark.parametrize(("skip_every", "carrying"), [(None, [0, 1, 2]), (2, [0, 2]), (3, [0, 1])])
def test_layers_that_are_skipped_go_without_the_encoder(skip_every: int | None, carrying: list[int]) -> None:
    encoder = Spy(GEOMETRY)
    model = Transformer(VOCAB, GEOMETRY, encoder, layout=Layout(skip_every=skip_every))
    model(some_tokens())
    assert [site.layer for site in encoder.sites] == carrying
    assert [layer for layer in range(3) if model.layout.carries(layer)] == carrying


def test_a_layer_that_is_skipped_is_as_without_an_encoder() -> None:
    geometry = Geometry(model_dim=16, num_heads=2, num_layers=2, train_length=8)
    layout = Layout(skip_every=2)
    relative, bare = model_of("alibi", geometry, layout=layout).double(), model_of("none", geometry).double()
    bare.load_state_dict(relative.state_dict(), strict=False)
    tokens = some_tokens()
    stream_in = relative.hidden(tokens)[1]
    positions = torch.arange(6.0)
    after = relative.layers[1](stream_in, positions, pe_zoo.build("none", geometry))
    assert torch.equal(after, relative.hidden(tokens)[2])
    assert not torch.allclose(bare.hidden(tokens)[1], stream_in)


def test_what_an_encoder_is_told_of_its_place() -> None:
    encoder = Spy(GEOMETRY)
    model = Transformer(VOCAB, GEOMETRY, encoder, query_block=4, layout=Layout(window=3))
    positions = torch.tensor([[0.0, 2.0, 3.0, 7.0, 8.0, 9.0], [1.0, 2.0, 4.0, 5.0, 10.0, 20.0]])
    with torch.no_grad():
        model(some_tokens(), positions)
    first, second = encoder.sites[:2]
    assert (first.rows, second.rows, first.layer, first.causal) == (slice(0, 4), slice(4, 6), 0, True)
    assert torch.equal(second.query_positions, positions[:, 4:])
    assert torch.equal(second.key_positions, positions)
    assert second.mask.tolist() == [[False, False, True, True, True, False], [False, False, False, True, True, True]]
    assert second.distance.shape == (2, 1, 2, 6)
    assert second.distance[1, 0, 1].tolist() == [19, 18, 16, 15, 10, 0]
    assert second.x is not None
    assert second.x.shape == (2, 6, 16)
    torch.testing.assert_close(second.x.mean(-1), torch.zeros(2, 6), atol=1e-5, rtol=0)


# ------------------------------------------------------------------------------------------------- temperature


def lower_rows(*seen: int, keys: int) -> Tensor:
    """A mask whose rows see so many keys."""
    return torch.arange(keys) < torch.tensor(seen)[:, None]


def test_the_temperature_of_llama_4() -> None:
    places = (0, 8190, 8191, 16382, 65535, 1048575)
    law = Temperature("llama4", GEOMETRY, floor=8192)
    factors = law(lower_rows(*(place + 1 for place in places), keys=1048576))
    assert factors.shape == (6, 1)
    assert factors[:, 0].tolist() == pytest.approx([1, 1, 1.0693, 1.0693, 1.2197, 1.4860], abs=5e-5)
    tied = Temperature("llama4", GEOMETRY)(lower_rows(7, 8, 15, 16, keys=16))
    assert tied[:, 0].tolist() == pytest.approx([1, *(1 + 0.1 * math.log(1 + step) for step in (1, 1, 2))])


def test_the_logarithmic_temperatures() -> None:
    geometry = Geometry(model_dim=16, num_heads=2, num_layers=1, train_length=8)
    mask = lower_rows(1, 2, 8, 64, keys=64)
    assert Temperature("log_n", geometry)(mask)[:, 0].tolist() == pytest.approx([0, 1 / 3, 1, 2])
    law = Temperature("scalable_softmax", geometry)
    with torch.no_grad():
        law.s.copy_(torch.tensor([0.5, -2.0]))
    expected = [[s * math.log(n) for n in (1, 2, 8, 64)] for s in (0.5, -2.0)]
    torch.testing.assert_close(law(mask)[..., 0], torch.tensor(expected))
    # Masks of each head: how many keys there are to see goes by head.
    by_head = torch.stack([lower_rows(1, 2, keys=4), lower_rows(1, 4, keys=4)]).unsqueeze(0)
    expected = [[0, 0.5 * math.log(2)], [0, -2 * math.log(4)]]
    torch.testing.assert_close(law(by_head)[..., 0], torch.tensor([expected]))
    # SSMax starts at 0.168 where training sequences have 1024 tokens.
    long = Geometry(model_dim=16, num_heads=2, num_layers=1, train_length=1024)
    assert Temperature("scalable_softmax", long).s.tolist() == pytest.approx([0.168, 0.168], abs=5e-4)
    one = Geometry(model_dim=16, num_heads=2, num_layers=1, train_length=1)
    assert all(Temperature(name, one)(mask).isfinite().all() for name in LAWS)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("causal", [True, False])
def test_a_temperature_by_hand(law: str, causal: bool) -> None:
    """One layer without an encoder, one head masked: attention and factors written out."""
    geometry = Geometry(model_dim=4, num_heads=2, num_layers=1, train_length=3)
    model = model_of("none", geometry, causal=causal, temperature=law, layout=Layout(masked_heads=1)).double()
    layer, tokens = model.layers[0], some_tokens(1, 5)
    if law == "mistral_large4":
        with torch.no_grad():
            layer.temperature.s.fill_(0.5), layer.temperature.b.fill_(-2.0)  # type: ignore[union-attr, operator]
    x = model.token_embedding(tokens)[0]
    qkv = layer.attention_in(layer.attention_norm(x)).detach()  # type: ignore[operator]
    mixed = torch.zeros(5, 4, dtype=torch.float64)
    for head in range(2):
        q, k, v = (qkv[:, 4 * part + 2 * head : 4 * part + 2 * head + 2] for part in range(3))
        for i in range(5):
            keys = [i] if head == 0 else list(range(i + 1 if causal else 5))
            n = len(keys)
            factor = {
                "llama4": 1 + 0.1 * math.log(1 + n // 3),
                "log_n": math.log(n) / math.log(3),
                "scalable_softmax": math.log(n) * 3 / (math.log(1) + math.log(2) + math.log(3)),
                "inkling": 1 + 0.1 * math.log(max(n / 3, 1)),
                "mistral_large4": 0.5 * math.log(n) - 2,
            }[law]
            weights = [math.exp(factor * float(q[i] @ k[j]) / math.sqrt(2)) for j in keys]
            for weight, j in zip(weights, keys, strict=True):
                mixed[i, 2 * head : 2 * head + 2] += weight / sum(weights) * v[j]
    x = x + layer.attention_out(mixed)  # type: ignore[operator]
    x = x + layer.ffn_out(functional.gelu(layer.ffn_in(layer.ffn_norm(x))))  # type: ignore[operator]
    torch.testing.assert_close(model.hidden(tokens)[1][0], x, atol=1e-6, rtol=0)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", ["none", "rope", "t5"])
def test_a_temperature_in_blocks_and_fused_equals_the_whole(law: str, name: str) -> None:
    plain = model_of(name, attention="plain", temperature=law).double().eval()
    tokens = some_tokens(2, 11)
    for layer in plain.layers:
        if law == "mistral_large4":
            torch.nn.init.normal_(layer.temperature.s)  # type: ignore[union-attr, arg-type]
    with torch.no_grad():
        whole = plain(tokens)
        assert not torch.allclose(whole, without_temperature(plain)(tokens))
        for options in ({"attention": "plain", "query_block": 3}, {"query_block": 4}, {}):
            other = model_of(name, temperature=law, **options).double().eval()
            other.load_state_dict(plain.state_dict())
            torch.testing.assert_close(other(tokens), whole, atol=1e-10, rtol=0)


def without_temperature(model: Transformer) -> Transformer:
    twin = copy.deepcopy(model)
    for layer in twin.layers:
        layer.temperature = None
    return twin


@pytest.mark.parametrize("law", LAWS)
def test_a_temperature_leaves_the_rest_of_the_trunk_as_it_is(law: str) -> None:
    models = []
    for chosen in (None, law):
        with initialising(3, "trunk"):
            models.append(model_of("none", temperature=chosen))
    plain, sharpened = (dict(model.named_parameters()) for model in models)
    learned = {"scalable_softmax": "s", "mistral_large4": "sb"}.get(law, "")
    assert set(sharpened) - set(plain) == {f"layers.{i}.temperature.{one}" for i in range(3) for one in learned}
    assert all(torch.equal(parameter, sharpened[name]) for name, parameter in plain.items())
    assert {name for name, _ in models[1].trunk_parameters()} == set(sharpened), "it belongs to the trunk"


def test_the_trained_temperature_is_trained_and_does_not_decay() -> None:
    model, tokens = model_of("rope", temperature="scalable_softmax"), some_tokens(4, 8)
    before = [p.detach().clone() for name, p in model.named_parameters() if name.endswith("temperature.s")]
    step = Step(model, TrainConfig(weight_decay=0.5))
    decayed = {id(p) for group in step.optimizer.param_groups if group["weight_decay"] for p in group["params"]}
    after = [p for name, p in model.named_parameters() if name.endswith("temperature.s")]
    step(Batch(tokens, tokens, torch.ones(8, dtype=torch.bool)))
    assert [tuple(s.shape) for s in after] == [(2,)] * 3
    assert not any(id(s) in decayed for s in after)
    assert not any(torch.equal(new, old) for new, old in zip(after, before, strict=True))


@pytest.mark.parametrize("attention", ["plain", "fused"])
def test_the_temperature_of_inkling_multiplies_biases_too(attention: str) -> None:
    encoder, site = pe_zoo.build("alibi", GEOMETRY), whole_site(9)
    q, k, v = torch.randn(3, 2, GEOMETRY.num_heads, 9, GEOMETRY.head_dim, dtype=torch.float64)
    tau = Temperature("inkling", GEOMETRY, floor=2)(site.mask)
    assert tau[:, 0].tolist() == pytest.approx([1, 1, *(1 + 0.1 * math.log(n / 2) for n in range(3, 10))])
    with torch.no_grad():
        scores = (pe_zoo.raw_scores(encoder, q, k, site) * tau).masked_fill(~site.mask, -torch.inf)
        found = attend(encoder, q, k, v, site, attention, sharpen=tau.double())
    torch.testing.assert_close(found, scores.softmax(-1) @ v, atol=1e-7, rtol=0)


# ------------------------------------------------------------------------------------------------------- sinks


@pytest.mark.parametrize("attention", ["plain", "fused"])
@pytest.mark.parametrize("name", ["none", "rope", "alibi", "fox"])
def test_sinks_are_those_of_gpt_oss(name: str, attention: str) -> None:
    library = pytest.importorskip("transformers.models.gpt_oss.modeling_gpt_oss")
    encoder, site = pe_zoo.build(name, GEOMETRY).double(), whole_site(7)
    heads, dim, mask = GEOMETRY.num_heads, GEOMETRY.head_dim, site.mask
    q, k, v = torch.randn(3, 2, heads, 7, dim, dtype=torch.float64)
    sinks = torch.nn.Parameter(torch.linspace(-1, 3, heads).double())
    module = torch.nn.Module()
    module.sinks, module.num_key_value_groups, module.training = sinks, 1, False  # type: ignore[assignment]
    with torch.no_grad():
        turned = encoder.rotate(q, k, site)
        bias = encoder.score(torch.zeros(2, heads, 7, 7).double(), *turned, site)
        bias = bias.masked_fill(~mask, -torch.inf)
        expected, _ = library.eager_attention_forward(module, *turned, v, bias, scaling=dim**-0.5, dropout=0.0)
        found = attend(encoder, q, k, v, site, attention, sinks=sinks)
    torch.testing.assert_close(found.transpose(1, 2), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", ["none", "rope", "t5", "shaw", "stick_breaking"])
def test_sinks_in_blocks_cached_and_fused_equal_the_whole(name: str) -> None:
    plain = model_of(name, attention="plain", sinks=True).double().eval()
    for layer in plain.layers:
        torch.nn.init.normal_(layer.sinks)  # type: ignore[arg-type]
    tokens = some_tokens(2, 11)
    with torch.no_grad():
        whole = plain(tokens)
        for options in ({"attention": "plain", "query_block": 3}, {"query_block": 4}, {}):
            other = model_of(name, sinks=True, **options).double().eval()
            other.load_state_dict(plain.state_dict())
            torch.testing.assert_close(other(tokens), whole, atol=1e-10, rtol=0)
        shares = plain.attention(tokens)[0].sum(-1)
        assert (shares < 1).all(), "the sink takes its share"


def test_sinks_start_alike_are_trained_and_do_not_decay() -> None:
    with initialising(3, "trunk"):
        plain = dict(model_of("rope").named_parameters())
    with initialising(3, "trunk"):
        model = model_of("rope", sinks=True)
    named = dict(model.named_parameters())
    assert set(named) - set(plain) == {f"layers.{i}.sinks" for i in range(3)}
    assert all(torch.equal(parameter, named[name]) for name, parameter in plain.items())
    step, tokens = Step(model, TrainConfig(weight_decay=0.5)), some_tokens(4, 8)
    decayed = {id(p) for group in step.optimizer.param_groups if group["weight_decay"] for p in group["params"]}
    step(Batch(tokens, tokens, torch.ones(8, dtype=torch.bool)))
    for layer in model.layers:
        assert layer.sinks.abs().min() > 0  # type: ignore[union-attr, operator]
        assert id(layer.sinks) not in decayed


def test_a_temperature_on_the_layers_that_go_without_the_encoder() -> None:
    model = model_of("rope", temperature="log_n", temperature_on="skipping", layout=Layout(skip_every=2))
    assert [layer.temperature is not None for layer in model.layers] == [False, True, False]
    assert all(layer.temperature is not None for layer in model_of("rope", temperature="log_n").layers)
    assert all(layer.temperature is None for layer in model_of("rope").layers)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"temperature": "logn"},
            "one of inkling, llama4, log_n, mistral_large4, scalable_softmax; got 'logn'. Did you mean 'log_n'",
        ),
        ({"temperature": "log_n", "temperature_on": "skiping"}, "temperature_on must be one of all, skipping"),
        ({"temperature": "log_n", "temperature_on": "skipping"}, "changes nothing without a temperature and layers"),
        ({"temperature_on": "skipping", "layout": Layout(skip_every=2)}, "changes nothing without a temperature"),
        ({"temperature_floor": 8}, "temperature_floor=8 changes nothing without model.temperature=inkling or llama4"),
        (
            {"temperature": "log_n", "temperature_floor": 8},
            "changes nothing without model.temperature=inkling or llama4",
        ),
        ({"temperature": "llama4", "temperature_floor": 0}, "model.temperature_floor must be a whole number"),
        ({"temperature": "llama4", "temperature_floor": 1.5}, "model.temperature_floor must be a whole number"),
    ],
    ids=str,
)
def test_a_temperature_that_cannot_be_or_cannot_show_is_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)) as refusal:
        model_of("rope", **options)  # type: ignore[arg-type]
    assert "\n" not in str(refusal.value)


# ---------------------------------------------------------------------------------------- an encoder that is dropped


class Everywhere(Encoder):
    """Does something at every hook, and counts how often it is asked."""

    name = "everywhere"

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.asked = 0
        self.weight = torch.nn.Parameter(torch.ones(geometry.model_dim))

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        self.asked += 1
        return x + positions.unsqueeze(-1) * self.weight

    def rotate(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        self.asked += 1
        return 2 * q, k

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        self.asked += 1
        return scores - site.distance

    def mix(self, scores: Tensor, v: Tensor, site: Site) -> Tensor:
        self.asked += 1
        return 3 * scores.softmax(-1) @ v


def test_a_dropped_encoder_leaves_the_trunk_as_without_one() -> None:
    encoder = Everywhere(GEOMETRY)
    model = Transformer(VOCAB, GEOMETRY, encoder)
    bare = Transformer(VOCAB, GEOMETRY, Encoder(GEOMETRY))
    bare.load_state_dict({name: p for name, p in model.state_dict().items() if not name.startswith("encoder.")})
    tokens = some_tokens()
    before = model(tokens)
    assert encoder.asked == 1 + 3 * 3
    assert not torch.allclose(before, bare(tokens))
    model.drop_encoder()
    for positions in (None, 1000 * torch.arange(6.0)):
        assert torch.equal(model(tokens, positions), bare(tokens))
        with torch.no_grad():
            assert torch.equal(model(tokens, positions), bare(tokens))
    assert encoder.asked == 1 + 3 * 3, "asked after the drop"
    assert set(model.state_dict()) == {*bare.state_dict(), "encoder.weight"}, "its parameters stay"


def test_without_its_table_a_model_takes_any_length() -> None:
    geometry = Geometry(model_dim=8, num_heads=1, num_layers=1, train_length=8)
    model = Transformer(VOCAB, geometry, pe_zoo.build("learned", geometry, num_rows=8))
    with pytest.raises(pe_zoo.Unsupported):
        model(some_tokens(1, 9))
    model.drop_encoder()
    assert model(some_tokens(1, 9)).isfinite().all()


def test_training_drops_the_encoder_after_its_share_and_for_good() -> None:
    task = tasks.build("copy", train_length=4, num_symbols=4)
    geometry = Geometry(model_dim=16, num_heads=2, num_layers=1, train_length=9)
    numbering = pe_zoo.numberings.build("sequential")

    def trained(share: float | None) -> tuple[Transformer, list[int], list[Tensor]]:
        encoder, asked, weights = Everywhere(geometry), [], []
        with initialising(0, "model"):
            model = Transformer(task.vocab_size, geometry, encoder)

        def note(*_: object) -> None:
            asked.append(encoder.asked)
            weights.append(encoder.weight.detach().clone())

        model.register_forward_hook(note)
        config = TrainConfig(steps=8, rounds=1, tokens_per_step=64, curve_points=2, drop_encoder_after=share)
        log = train(model, task, numbering, config, seed=0)
        assert [point[0] for point in log.points] == [4, 8]
        check_in_range(model, task, numbering, stream(0, "checks"))
        return model, asked, weights

    # Ten calls: four steps and a check, four steps and a check, and one more; each asks all four hooks once.
    assert trained(None)[1] == [4 * call for call in range(1, 12)]
    model, asked, weights = trained(0.5)
    assert asked == [4, 8, 12, 16, *[16] * 7], "the check after the fourth step is already without"
    assert model.encoder_dropped
    assert not torch.equal(weights[0], weights[3]), "trained until then"
    assert all(torch.equal(weight, weights[4]) for weight in weights[4:]), "at rest from then on, decay included"
    assert trained(1.0)[1] == [4 * call for call in range(1, 10)] + [36, 36], "the last check and all that follows"
    assert trained(0.01)[1] == [4] + [4] * 10, "one step at least is trained with it"


def rates_of(config: TrainConfig) -> list[float]:
    step, tokens, rates = Step(model_of("none"), config), some_tokens(), []
    for _ in range(config.steps):
        rates.append(step.optimizer.param_groups[0]["lr"])
        step(Batch(tokens, tokens, torch.ones(6, dtype=torch.bool)))
    return rates


def test_the_learning_rate_schedule_restarts_after_the_drop() -> None:
    whole = rates_of(TrainConfig(steps=10, warmup=0.2, learning_rate=0.01))
    short = rates_of(TrainConfig(steps=5, warmup=0.2, learning_rate=0.01))
    part = {"steps": 15, "warmup": 0.2, "learning_rate": 0.01, "drop_encoder_after": 2 / 3}
    assert rates_of(TrainConfig(**part)) == pytest.approx([*whole, *short])
    higher = rates_of(TrainConfig(**part, recalibration_learning_rate=0.03))
    assert higher == pytest.approx([*whole, *(3 * rate for rate in short)])
    assert rates_of(TrainConfig(steps=10, warmup=0.2, learning_rate=0.01, drop_encoder_after=1.0)) == whole


def test_when_the_encoder_is_dropped() -> None:
    for share, steps, after in [(None, 10, None), (0.875, 16, 14), (1.0, 7, 7), (0.5, 3, 2), (0.001, 3, 1)]:
        assert TrainConfig(steps=steps, drop_encoder_after=share).drop_step == after
    for wrong in (0, 0.0, -0.5, 1.01, 2, math.nan, "0.5", True):
        with pytest.raises(ValueError, match=r"train\.drop_encoder_after must .* above 0 and at most 1"):
            TrainConfig(drop_encoder_after=wrong).check()  # type: ignore[arg-type]
    for wrong in (0, -1.0, math.inf):
        with pytest.raises(ValueError, match=r"train\.recalibration_learning_rate must"):
            TrainConfig(drop_encoder_after=0.5, recalibration_learning_rate=wrong).check()
    for share in (None, 1.0):
        with pytest.raises(ValueError, match=r"set train\.drop_encoder_after below 1"):
            TrainConfig(drop_encoder_after=share, recalibration_learning_rate=0.1).check()
    TrainConfig(drop_encoder_after=0.5, recalibration_learning_rate=0.1).check()


def test_a_run_whose_encoder_is_dropped_is_evaluated_without_it(command: Command, tmp_path: Path) -> None:
    few = ["length_extrapolation.samples=4", "length_extrapolation.multiples=[1,2]", "experiment=length_extrapolation"]
    asked = [
        "figures=false",
        "model=tiny",
        "train.steps=6",
        "train.curve_points=2",
        *few,
        "encoder=learned",
        "encoder.num_rows=33",
    ]
    statuses = {}
    for name, more in {"kept": [], "dropped": ["train.drop_encoder_after=0.5"]}.items():
        done = command(*asked, *more, f"name={name}")
        assert done.code == 0, done.err
        (run,) = (tmp_path / "results" / name / "runs").iterdir()
        with (run / "rows.csv").open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["experiment"] == "length_extrapolation"]
        statuses[name] = {row["status"] for row in rows if row["eval_length"] == "32"}
    assert statuses == {"kept": {"unsupported"}, "dropped": {"ok"}}


# ---------------------------------------------------------------------------------------------------- training


@everyone
def test_encoder_parameters_embeddings_and_norms_do_not_decay(name: str) -> None:
    model = model_of(name)
    decay = {}
    for group in Step(model, TrainConfig(weight_decay=0.5)).optimizer.param_groups:
        decay.update({id(p): group["weight_decay"] for p in group["params"]})
    named = dict(model.named_parameters())
    assert set(decay) == {id(p) for p in named.values()}, "every parameter is trained"
    decayed = {parameter_name for parameter_name, p in named.items() if decay[id(p)] > 0}
    matrices = {
        f"layers.{i}.{part}.weight" for i in range(3) for part in ("attention_in", "attention_out", "ffn_in", "ffn_out")
    }
    assert decayed == {*matrices, "unembedding.weight"}
    assert {id(p) for p in model.encoder.parameters()}.isdisjoint(id(p) for _, p in model.trunk_parameters())
    assert len(model.trunk_parameters()) + len(list(model.encoder.parameters())) == len(named)


@everyone
def test_a_train_step_lowers_the_loss_and_is_the_trainers(name: str) -> None:
    model, tokens = model_of(name), some_tokens(4, 8)
    twin, positions = copy.deepcopy(model), torch.arange(8.0)
    with torch.no_grad():
        logits = model(tokens)
        by_hand = functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    step = make_train_step(model, tokens)
    targets = torch.cat([tokens[:, 1:], torch.zeros(4, 1, dtype=torch.long)], 1)
    trainers = Step(twin, TrainConfig())
    losses = []
    for _ in range(15):
        losses.append(float(step()))
        assert losses[-1] == float(trainers(Batch(tokens, targets, torch.arange(8) < 7), positions))
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(one, other)
    assert losses[0] == pytest.approx(by_hand.item(), abs=1e-5)
    assert losses[-1] < losses[0] - 0.01


def test_the_learning_rate_warms_up_and_falls_to_nothing() -> None:
    model = model_of("none")
    step = Step(model, TrainConfig(steps=20, warmup=0.25, learning_rate=0.5))
    tokens = some_tokens()
    batch = Batch(tokens, tokens, torch.ones(6, dtype=torch.bool))
    rates = []
    for _ in range(20):
        rates.append(step.optimizer.param_groups[0]["lr"])
        step(batch)
    assert rates[0] > 0
    assert max(rates) == pytest.approx(0.5)
    assert rates.index(max(rates)) == 5
    assert rates[:6] == sorted(rates[:6])
    assert rates[5:] == sorted(rates[5:], reverse=True)
    assert rates[-1] < 0.02


def test_gradients_are_clipped() -> None:
    model = model_of("none")
    tokens = some_tokens()
    Step(model, TrainConfig(gradient_clip=1e-3, weight_decay=0.0))(
        Batch(tokens, tokens, torch.ones(6, dtype=torch.bool))
    )
    norm = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()
    assert norm.item() == pytest.approx(1e-3, rel=1e-2)


@pytest.mark.parametrize(
    "numbering", [name for name in pe_zoo.numberings.names() if pe_zoo.numberings.get(name).axes == 1]
)
def test_training_repeats_on_data_independent_of_the_encoder(numbering: str) -> None:
    task = tasks.build("copy", train_length=4, num_symbols=4)
    config = TrainConfig(steps=8, rounds=1, tokens_per_step=64, curve_points=2)
    geometry = Geometry(model_dim=16, num_heads=2, num_layers=1, train_length=9)
    states, read = [], []
    for name, seed in (("rope", 0), ("rope", 0), ("rope", 1), ("alibi", 0)):
        with initialising(seed, "model"):
            model = Transformer(task.vocab_size, geometry, pe_zoo.build(name, geometry))
        batches: list[Tensor] = []
        model.token_embedding.register_forward_hook(
            lambda module, args, output, batches=batches: batches.append(args[0].clone())
        )
        bound = pe_zoo.numberings.build(numbering).bound(partial(task.numbers, causal=True))
        log = train(model, task, bound, config, seed=seed)
        assert log.status == "ok"
        assert [point[0] for point in log.points] == [4, 8]
        states.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
        read.append(batches)
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])
    assert all(torch.equal(a, b) for a, b in zip(read[0], read[3], strict=True))
    assert not all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(read[0], read[2], strict=False))


def test_a_loss_that_is_no_number_ends_the_training_and_says_so() -> None:
    task = tasks.build("copy", train_length=4)
    geometry = Geometry(model_dim=8, num_heads=1, num_layers=1, train_length=9)
    model = Transformer(task.vocab_size, geometry, pe_zoo.build("none", geometry))
    with torch.no_grad():
        model.unembedding.weight.fill_(math.nan)
    log = train(
        model,
        task,
        pe_zoo.numberings.build("sequential"),
        TrainConfig(steps=10, tokens_per_step=64, curve_points=5),
        seed=0,
    )
    assert (log.status, log.points[-1][0]) == ("diverged", 2)
    assert math.isnan(log.final_loss)


# -------------------------------------------------------------------------------------------------- evaluation


def test_evaluation_scores_what_counts_and_changes_no_model() -> None:
    model = model_of("rope").train()
    tokens, targets = some_tokens(5, 6), some_tokens(5, 6)
    counted = torch.tensor([False, True, False, True, True, False])
    scored = evaluate(model, Batch(tokens, targets, counted), torch.arange(6.0))
    with torch.no_grad():
        logits = model(tokens)
    assert model.training
    assert all(p.grad is None for p in model.parameters())
    assert (scored.n("exact_match"), scored.n("token_accuracy")) == (5, 15)
    assert torch.equal(scored.correct, (logits.argmax(-1) == targets)[:, counted])
    nats = -logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0][:, counted]
    torch.testing.assert_close(scored.nats, nats)
    quality = scored.quality()
    assert quality["token_accuracy"] == pytest.approx(scored.correct.double().mean().item())
    assert quality["exact_match"] == sum(all(row) for row in scored.correct.tolist()) / 5
    assert quality["bits_per_byte"] == pytest.approx(nats.mean().item() / math.log(2), rel=1e-5)
    assert (scored.n("exact_match"), scored.n("token_accuracy")) == (5, 15)


def test_evaluation_in_chunks_equals_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokens = model_of("rope"), some_tokens(7, 6)
    for positions in (torch.arange(6.0), torch.rand(7, 6).cumsum(-1)):
        whole = in_chunks(model, tokens, positions, model)
        monkeypatch.setattr("experiments.training.evaluate.CHUNK_TOKENS", 13)
        parts = in_chunks(model, tokens, positions, model)
        torch.testing.assert_close(parts, whole, atol=1e-5, rtol=0)
        monkeypatch.setattr("experiments.training.evaluate.beside", 3)
        assert torch.equal(in_chunks(model, tokens, positions, model), parts), "on several cores"
        monkeypatch.undo()
