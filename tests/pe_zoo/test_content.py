"""Encoders whose scores depend on content: hand-checked vectors, loops written from the papers, other libraries."""

from __future__ import annotations

import cmath
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import pe_zoo
from pe_zoo import Encoder, Geometry, Site

NAMES = ["cope", "dape", "dape_v2", "fox", "gape", "grape_a", "grape_ap", "relative_projection", "wall"]
HEADS, HEAD_DIM, LENGTH = 3, 4, 7


def golden(name: str) -> Any:
    return json.loads((Path(__file__).parent / "golden" / f"{name}.json").read_text(encoding="utf-8"))


def build(name: str, heads: int = HEADS, head_dim: int = HEAD_DIM, **knobs: Any) -> Encoder:
    """A float64 encoder of two layers; parameters are drawn anew, away from where some methods do nothing."""
    geometry = Geometry(model_dim=heads * head_dim, num_heads=heads, num_layers=2, train_length=16)
    encoder = pe_zoo.build(name, geometry, **knobs).double()
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return encoder


def set_to(encoder: Encoder, **values: Any) -> None:
    """Set parameters of all layers to the same."""
    with torch.no_grad():
        for name, value in values.items():
            getattr(encoder, name).copy_(torch.as_tensor(value, dtype=torch.float64))


def site_of(length: int = LENGTH, positions: Tensor | None = None, layer: int = 0, x: Tensor | None = None) -> Site:
    positions = torch.arange(float(length)) if positions is None else positions
    mask = torch.ones(length, length, dtype=torch.bool).tril()
    return Site(
        layer=layer,
        query_positions=positions,
        key_positions=positions,
        rows=slice(0, length),
        mask=mask,
        causal=True,
        x=x,
    )


def some(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def case(heads: int = HEADS, head_dim: int = HEAD_DIM, length: int = LENGTH) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scores, queries, keys and the layer's input of two samples, as attention would have them."""
    q, k = some(2, heads, length, head_dim), some(2, heads, length, head_dim)
    return q @ k.mT * head_dim**-0.5, q, k, some(2, length, heads * head_dim)


def added(encoder: Encoder, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
    """What the encoder adds to scores."""
    with torch.no_grad():
        return encoder.score(scores, q, k, site) - scores


def assert_lower(found: Tensor, expected: Any, tolerance: float = 1e-12) -> None:
    """Equal on and below the diagonal, all that a causal model sees."""
    expected = torch.as_tensor(expected, dtype=torch.float64)
    assert expected.shape == found.shape
    torch.testing.assert_close(found.tril(), expected.tril(), atol=tolerance, rtol=tolerance)
    assert expected.tril().abs().max() > 0.1, "nothing was compared"


def square(triangle: list[list[float]]) -> Tensor:
    """A lower triangle, row by row, as a matrix."""
    full = torch.zeros(len(triangle), len(triangle), dtype=torch.float64)
    for place, row in enumerate(triangle):
        full[place, : place + 1] = torch.tensor(row, dtype=torch.float64)
    return full


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))


def softplus(z: float) -> float:
    return math.log(1 + math.exp(z))


def dot(a: Tensor, b: Tensor) -> float:
    return sum(x * y for x, y in zip(a.tolist(), b.tolist(), strict=True))


# ----------------------------------------------------------------------------------------------------- all of them


@pytest.mark.parametrize("name", NAMES)
def test_each_layer_has_its_own_parameters(name: str) -> None:
    encoder = build(name)
    scores, q, k, x = case()
    before = [added(encoder, scores, q, k, site_of(layer=layer, x=x)) for layer in (0, 1)]
    assert (before[0] - before[1]).abs().max() > 1e-3
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter[1] += 0.5
    after = [added(encoder, scores, q, k, site_of(layer=layer, x=x)) for layer in (0, 1)]
    assert torch.equal(before[0], after[0])
    assert (before[1] - after[1]).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["fox", "grape_ap", "relative_projection", "wall"])
def test_who_reads_the_input_says_so_when_there_is_none(name: str) -> None:
    scores, q, k, _ = case()
    with pytest.raises(ValueError, match=rf"^{name} .*pass x") as refusal:
        build(name).score(scores, q, k, site_of())
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", ["cope", "fox"])
def test_who_counts_places_does_not_read_positions(name: str) -> None:
    encoder = build(name)
    scores, q, k, x = case()
    there = site_of(positions=torch.tensor([0.0, 2.5, 3, 100, 101, 5000, 5001]), x=x)
    assert torch.equal(added(encoder, scores, q, k, site_of(x=x)), added(encoder, scores, q, k, there))


# -------------------------------------------------------------------------------------------------------------- CoPE


def test_cope_counts_by_hand() -> None:
    table = golden("cope")
    encoder = build("cope", heads=1, head_dim=1, p_max=table["p_max"])
    assert_lower(encoder.counts(torch.zeros(4, 4).double(), site_of(4)), square(table["zero_scores_count"]))
    gates = square(table["gates"]) + torch.ones(4, 4).triu(1) / 2
    scores = torch.log(gates / (1 - gates))
    assert_lower(encoder.counts(scores, site_of(4)), square(table["count"]))
    set_to(encoder, embedding=torch.tensor(table["embedding"])[:, None])
    q = torch.tensor(table["query"]).double().view(1, 1, 4, 1)
    assert_lower(added(encoder, scores[None, None], q, q, site_of(4))[0, 0], square(table["added"]))


@pytest.mark.parametrize("p_max", [2, 4, 64])
def test_cope_by_a_loop(p_max: int) -> None:
    encoder = build("cope", p_max=p_max)
    scores, q, k, _ = case()
    for layer in (0, 1):
        table = encoder.embedding[layer].detach()
        expected = torch.zeros_like(scores)
        for b in range(2):
            for h in range(HEADS):
                for i in range(LENGTH):
                    for j in range(i + 1):
                        count = sum(sigmoid(scores[b, h, i, t].item()) for t in range(j, i + 1))
                        count = min(count, p_max - 1)
                        low, share = int(count), count - int(count)
                        high = min(low + 1, p_max - 1)
                        vector = (1 - share) * table[low] + share * table[high]
                        expected[b, h, i, j] = dot(q[b, h, i], vector)
        assert_lower(added(encoder, scores, q, k, site_of(layer=layer)), expected)


@pytest.mark.parametrize("p_max", [3, 16])
def test_cope_agrees_with_x_transformers(p_max: int) -> None:
    library = pytest.importorskip("x_transformers.x_transformers")
    theirs = library.CoPE(HEAD_DIM, HEADS, p_max).double()
    encoder = build("cope", p_max=p_max)
    theirs.pos_emb.data.copy_(encoder.embedding[0].detach())
    scores, q, k, _ = case(length=20)
    masked = scores.masked_fill(~site_of(20).mask, -torch.finfo(scores.dtype).max)
    with torch.no_grad():
        assert_lower(added(encoder, scores, q, k, site_of(20)), theirs(q, masked))
        leaking = theirs(q, scores)  # gates of keys ahead left in: the mistake that the mask is there for
    assert (added(encoder, scores, q, k, site_of(20)) - leaking).tril().abs().max() > 0.1


def test_cope_counts_the_past_alone_even_where_no_mask_says_so() -> None:
    """The reference function applies no mask; the order of the sequence still holds."""
    encoder = build("cope")
    scores, q, k, _ = case()
    with torch.no_grad():
        found = pe_zoo.scores(encoder, q, k)
        assert_lower(found, scores + added(encoder, scores, q, k, site_of()))
        last = pe_zoo.scores(encoder, q[:, :, -2:], k)
    torch.testing.assert_close(found[:, :, -2:], last, atol=1e-12, rtol=0)


def test_cope_counts_only_what_a_window_lets_it_see() -> None:
    encoder = build("cope")
    scores, *_ = case()
    whole = site_of()
    narrow = Site(**{**vars(whole), "mask": whole.mask.triu(-2)})
    counts = encoder.counts(scores, narrow)
    gates = scores.sigmoid()
    expected = gates[..., 6, 4] + gates[..., 6, 5] + gates[..., 6, 6]
    torch.testing.assert_close(counts[..., 6, 4], expected)
    torch.testing.assert_close(counts[..., 6, 0], expected)


def test_cope_starts_without_a_positional_signal() -> None:
    geometry = Geometry(model_dim=12, num_heads=3, num_layers=2, train_length=16)
    encoder = pe_zoo.build("cope", geometry).double()
    scores, q, k, _ = case()
    assert torch.equal(encoder.score(scores, q, k, site_of()), scores)
    assert encoder.embedding.shape == (2, 64, 4)


# --------------------------------------------------------------------------------------------------------------- FoX


def test_fox_gates_by_hand() -> None:
    table = golden("fox")
    encoder = build("fox", heads=1, head_dim=1)
    gates = torch.tensor(table["gates"], dtype=torch.float64)
    set_to(encoder, weight=1.0, bias=0.0)
    x = torch.log(gates / (1 - gates)).view(1, 4, 1)
    nothing = torch.zeros(1, 1, 4, 4).double()
    q = torch.zeros(1, 1, 4, 1).double()
    kept = added(encoder, nothing, q, q, site_of(4, x=x)).exp()
    assert_lower(kept[0, 0], square(table["kept"]))


def test_fox_by_a_loop() -> None:
    encoder = build("fox")
    scores, q, k, x = case()
    for layer in (0, 1):
        weight, bias = encoder.weight[layer].detach(), encoder.bias[layer].detach()
        expected = torch.zeros_like(scores)
        for b in range(2):
            for h in range(HEADS):
                for i in range(LENGTH):
                    for j in range(i + 1):
                        expected[b, h, i, j] = sum(
                            math.log(sigmoid(dot(weight[h], x[b, t]) + bias[h].item())) for t in range(j + 1, i + 1)
                        )
        assert_lower(added(encoder, scores, q, k, site_of(layer=layer, x=x)), expected)


def test_fox_agrees_with_x_transformers() -> None:
    library = pytest.importorskip("x_transformers.x_transformers")
    encoder = build("fox")
    theirs = library.DataDependentAlibi(HEADS * HEAD_DIM, HEADS).double()
    theirs.to_forget_gates[0].weight.data.copy_(encoder.weight[1].detach())
    theirs.to_forget_gates[0].bias.data.copy_(encoder.bias[1].detach())
    scores, q, k, x = case(length=30)
    with torch.no_grad():
        assert_lower(added(encoder, scores, q, k, site_of(30, layer=1, x=x)), theirs(x))


def test_fox_with_a_constant_gate_is_alibi() -> None:
    """log gate = −slope: the same weights under a causal mask, for official slopes of a head count that is odd."""
    alibi = build("alibi")
    slopes = torch.tensor([1 / 16, 1 / 256, 1 / 4]).double()
    encoder = build("fox")
    set_to(encoder, weight=0.0, bias=-torch.log(torch.expm1(slopes)))
    scores, q, k, x = case(length=50)
    site = site_of(50, x=x)
    assert_lower(added(encoder, scores, q, k, site), added(alibi, scores, q, k, site))
    weights = [
        e.score(scores, q, k, site).masked_fill(~site.mask, -torch.inf).softmax(-1).detach() for e in (encoder, alibi)
    ]
    torch.testing.assert_close(*weights, atol=1e-13, rtol=0)
    default = pe_zoo.build("fox", encoder.geometry)
    assert torch.equal(default.bias, torch.zeros(2, HEADS))
    set_to(encoder, bias=default.bias)
    slope = -added(encoder, scores, q, k, site)[0, 0, 1, 0].item()
    assert slope == pytest.approx(golden("fox")["slope_of_one_half"], abs=1e-6)


def test_cable_is_fox_with_its_gate_negated() -> None:
    encoder = build("fox")
    scores, q, k, x = case()
    weight, bias = -encoder.weight[0].detach(), -encoder.bias[0].detach()
    sums = torch.zeros(2, HEADS, LENGTH).double()
    for b in range(2):
        for h in range(HEADS):
            total = 0.0
            for t in range(LENGTH):
                total -= softplus(dot(weight[h], x[b, t]) + bias[h].item())
                sums[b, h, t] = total
    assert_lower(added(encoder, scores, q, k, site_of(x=x)), sums[..., :, None] - sums[..., None, :])


@pytest.mark.parametrize("initial_gate", [0.5, 0.9, 0.993])
def test_fox_starts_at_the_gate_it_was_asked_for(initial_gate: float) -> None:
    geometry = Geometry(model_dim=256, num_heads=64, num_layers=2, train_length=16)
    encoder = pe_zoo.build("fox", geometry, initial_gate=initial_gate)
    torch.testing.assert_close(encoder.bias.sigmoid(), torch.full((2, 64), initial_gate), atol=1e-6, rtol=0)
    assert encoder.weight.std().item() == pytest.approx(0.02, rel=0.03)


def test_fox_stays_exact_at_the_end_of_a_long_sequence() -> None:
    """In float32, sums of 30 000 gates alone would leave errors of a thousandth between neighbours."""
    length = 30_000
    encoder = build("fox", heads=1, head_dim=1).float()
    set_to(encoder, weight=0.0, bias=0.0)
    positions = torch.arange(float(length))
    q, k = torch.zeros(1, 1, 2, 1), torch.zeros(1, 1, length, 1)
    bias = pe_zoo.scores(encoder, q, k, positions, x=torch.zeros(1, length, 1))[0, 0].detach()
    near = torch.arange(9.0).flip(0) * math.log(2)
    torch.testing.assert_close(-bias[1, -9:], near, atol=2e-6, rtol=0)
    torch.testing.assert_close(-bias[0, -9:-1], near[1:], atol=2e-6, rtol=0)
    assert -bias[1, 0].item() == pytest.approx((length - 1) * math.log(2), rel=1e-6)


# ----------------------------------------------------------------------------------------------- relative projection


def test_relative_projection_by_hand() -> None:
    table = golden("relative_projection")
    encoder = build("relative_projection", heads=1, head_dim=2, rank=2, window=3)
    set_to(encoder, weight=torch.eye(2), curves=table["curves"])
    x = torch.tensor(table["x"]).double()[None]
    q = torch.zeros(1, 1, 4, 2).double()
    nothing = torch.zeros(1, 1, 4, 4).double()
    bias = added(encoder, nothing, q, q, site_of(4, x=x))[0, 0]
    assert_lower(bias, square(table["added"]))
    assert torch.equal(bias.triu(1), torch.zeros(4, 4).double())


@pytest.mark.parametrize("window", [1, 3, 50])
def test_relative_projection_by_a_loop(window: int) -> None:
    encoder = build("relative_projection", rank=2, window=window)
    scores, q, k, x = case()
    positions = torch.tensor([[0.0, 1, 1.5, 4, 4.75, 6, 30], [3.0, 3, 4, 5, 9, 11, 12]])
    for layer in (0, 1):
        weight, curves = encoder.weight[layer].detach(), encoder.curves[layer].detach()
        expected = torch.zeros_like(scores)
        for b in range(2):
            for h in range(HEADS):
                for i in range(LENGTH):
                    for j in range(LENGTH):
                        distance = (positions[b, i] - positions[b, j]).item()
                        if 0 <= distance < window:
                            expected[b, h, i, j] = sum(
                                dot(weight[h, r], x[b, i]) * curves[r, int(distance)].item() for r in range(2)
                            )
        found = added(encoder, scores, q, k, site_of(positions=positions, layer=layer, x=x))
        torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)
        assert expected.abs().max() > 0.1


@pytest.mark.parametrize("window", [4, 64])
def test_relative_projection_agrees_with_inkling(window: int) -> None:
    library = pytest.importorskip("transformers.models.inkling.modeling_inkling")
    encoder = build("relative_projection", rank=5, window=window)
    theirs = library.InklingRelativeLogits(5, window).double()
    theirs.proj.data.copy_(encoder.curves[1].detach())
    scores, q, k, x = case(length=20)
    places = torch.arange(20)
    with torch.no_grad():
        states = (x @ encoder.weight[1].flatten(0, 1).mT).unflatten(-1, (HEADS, 5))
        expected = theirs(states, places, places)
    found = added(encoder, scores, q, k, site_of(20, layer=1, x=x))
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)
    assert expected.abs().max() > 0.1


@pytest.mark.parametrize("window", [4, 64])
def test_relative_projection_agrees_with_x_transformers(window: int) -> None:
    library = pytest.importorskip("x_transformers.x_transformers")
    encoder = build("relative_projection", rank=5, window=window)
    theirs = library.RelativeProjPositionalBias(HEADS * HEAD_DIM, HEADS, 5, window).double()
    theirs.distance_bank.data.copy_(encoder.curves[0].detach())
    theirs.to_distance_weights[0].weight.data.copy_(encoder.weight[0].detach().flatten(0, 1))
    theirs.to_distance_weights[0].bias.data.zero_()
    scores, q, k, x = case(length=20)
    with torch.no_grad():
        expected = theirs(x)
    found = added(encoder, scores, q, k, site_of(20, x=x))
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize(("train_length", "window"), [(16, 16), (1024, 1024), (4096, 1024)])
def test_relative_projection_holds_no_distance_beyond_training(train_length: int, window: int) -> None:
    geometry = Geometry(model_dim=8, num_heads=2, num_layers=1, train_length=train_length)
    assert pe_zoo.build("relative_projection", geometry).curves.shape == (1, 16, window)


# ----------------------------------------------------------------------------------------------------------- GRAPE-A


def test_grape_a_gives_the_official_numbers() -> None:
    table = golden("grape_a")
    q, k = (torch.tensor(table[name], dtype=torch.float64)[None] for name in ("q", "k"))
    encoder = build("grape_a", heads=2, head_dim=2)
    set_to(encoder, omega=table["omega"], query_gate=table["v"], key_gate=table["u"])
    bias = added(encoder, torch.zeros(1, 2, 3, 3).double(), q, k, site_of(3))[0]
    for head in range(2):
        assert_lower(bias[head], square(table["added"][head]), 2e-6)


@pytest.mark.parametrize("gates", ["query_key", "query", "key"])
def test_grape_a_by_a_loop(gates: str) -> None:
    encoder = build("grape_a", gates=gates)
    scores, q, k, _ = case()
    positions = torch.tensor([[0.0, 1, 1.5, 4, 4.75, 6, 30], [3.0, 3, 4, 5, 9, 11, 12]])
    slopes = [1 / 16, 1 / 256, 1 / 4]

    def gate(direction: Tensor, y: Tensor) -> float:
        return softplus(dot(direction, y) / math.sqrt(dot(direction, direction)) / math.sqrt(HEAD_DIM))

    for layer in (0, 1):
        expected = torch.zeros_like(scores)
        for b in range(2):
            for h in range(HEADS):
                omega = softplus(encoder.omega[layer, h].item())
                for i in range(LENGTH):
                    for j in range(i + 1):
                        total = 0.0
                        if gates != "key":
                            total += gate(encoder.query_gate[layer, h].detach(), q[b, h, i])
                        if gates != "query":
                            total += gate(encoder.key_gate[layer, h].detach(), k[b, h, j])
                        distance = (positions[b, i] - positions[b, j]).item()
                        expected[b, h, i, j] = -omega * slopes[h] * total * distance
        assert_lower(added(encoder, scores, q, k, site_of(positions=positions, layer=layer)), expected)


def test_grape_a_of_silent_queries_and_keys_is_alibi() -> None:
    """softplus(0) twice is 2 ln 2, which omega can undo."""
    encoder, alibi = build("grape_a"), build("alibi")
    set_to(encoder, omega=math.log(math.expm1(1 / (2 * math.log(2)))))
    scores = case()[0]
    silent = torch.zeros(2, HEADS, LENGTH, HEAD_DIM).double()
    found, expected = (added(e, scores, silent, silent, site_of()) for e in (encoder, alibi))
    assert_lower(found, expected)


def test_grape_a_starts_with_omega_at_one() -> None:
    geometry = Geometry(model_dim=8, num_heads=2, num_layers=1, train_length=16)
    omega = torch.nn.functional.softplus(pe_zoo.build("grape_a", geometry).omega)
    torch.testing.assert_close(omega, torch.ones(1, 2))


# -------------------------------------------------------------------------------------------------------------- DAPE


@pytest.mark.parametrize("prior", ["linear", "logarithmic"])
def test_dape_gives_the_official_numbers(prior: str) -> None:
    table = golden("dape")
    encoder = build("dape", heads=2, head_dim=2, width=2, prior=prior)
    set_to(encoder, **{name: table[name] for name in ("w_in", "b_in", "w_out")})
    if prior == "logarithmic":
        set_to(encoder, **{name: torch.tensor(table[name], dtype=torch.float64).expm1().log() for name in ("p", "a")})
    scores = torch.stack([square(triangle) for triangle in table["scores"]])[None]
    q = torch.zeros(1, 2, 3, 2).double()
    with torch.no_grad():
        found = encoder.score(scores, q, q, site_of(3))[0]
    for head in range(2):
        assert_lower(found[head], square(table[prior][head]) - table["b_out"][head], 2e-6)


@pytest.mark.parametrize("prior", ["linear", "logarithmic"])
@pytest.mark.parametrize("causal", [True, False])
def test_dape_by_a_loop(prior: str, causal: bool) -> None:
    width, slopes = 5, [1 / 16, 1 / 256, 1 / 4]
    encoder = build("dape", width=width, prior=prior)
    scores, q, k, _ = case()
    positions = torch.tensor([[0.0, 1, 1.5, 4, 4.75, 6, 30], [3.0, 3, 4, 5, 9, 11, 12]])
    for layer in (0, 1):
        w_in, b_in, w_out = (getattr(encoder, name)[layer].detach() for name in ("w_in", "b_in", "w_out"))
        expected = torch.zeros_like(scores)
        for b in range(2):
            for i in range(LENGTH):
                for j in range(LENGTH):
                    distance = abs((positions[b, i] - positions[b, j]).item())
                    if prior == "linear":
                        bias = [-slope * distance for slope in slopes]
                    else:
                        p, a = ([softplus(raw) for raw in table[layer].tolist()] for table in (encoder.p, encoder.a))
                        bias = [-p[h] * math.log(1 + a[h] * distance) for h in range(HEADS)]
                    given = torch.tensor([*scores[b, :, i, j].tolist(), *bias], dtype=torch.float64)
                    hidden = [dot(w_in[w], given) + b_in[w].item() for w in range(width)]
                    hidden = [z if z > 0 else 0.01 * z for z in hidden]
                    for h in range(HEADS):
                        correction = sum(w_out[h, w].item() * hidden[w] for w in range(width))
                        expected[b, h, i, j] = bias[h] + correction
        site = Site(**{**vars(site_of(positions=positions, layer=layer)), "causal": causal})
        torch.testing.assert_close(added(encoder, scores, q, k, site), expected, atol=1e-12, rtol=1e-12)


def test_dape_with_a_silent_network_is_its_static_bias() -> None:
    scores, q, k, _ = case()
    linear, logarithmic = build("dape", prior="linear"), build("dape")
    for encoder in (linear, logarithmic):
        set_to(encoder, w_out=0.0)
    assert_lower(added(linear, scores, q, k, site_of()), added(build("alibi"), scores, q, k, site_of()))
    set_to(logarithmic, p=math.log(math.expm1(1.0)), a=math.log(math.expm1(1.0)))
    row = added(logarithmic, scores, q, k, site_of())[0, 0, 4, :5]
    expected = torch.tensor([-1.609438, -1.386294, -1.098612, -0.693147, 0.0]).double()
    torch.testing.assert_close(row, expected, atol=1e-6, rtol=0)


def test_dape_starts_where_the_official_code_does() -> None:
    geometry = Geometry(model_dim=64, num_heads=32, num_layers=8, train_length=16)
    encoder = pe_zoo.build("dape", geometry)
    p, a = (torch.nn.functional.softplus(raw).detach() for raw in (encoder.p, encoder.a))
    assert 0.0099 < p.min() < 0.1 < 1.9 < p.max() <= 2.0001
    assert 0.0099 < a.min() < 0.1 < 0.9 < a.max() <= 1.0001
    assert encoder.w_in.shape == (8, 32, 64)
    assert encoder.w_in.abs().max().item() == pytest.approx(64**-0.5, rel=0.01)
    assert encoder.b_in.abs().max().item() == pytest.approx(64**-0.5, rel=0.05)
    assert encoder.w_out.abs().max().item() == pytest.approx(32**-0.5, rel=0.01)


# ----------------------------------------------------------------------------------------------------------- DAPE V2


@pytest.mark.parametrize("prior", ["linear", "logarithmic"])
@pytest.mark.parametrize("neighbours", [0, 1, 2])
def test_dape_v2_by_torchs_convolution_of_one_row_at_a_time(prior: str, neighbours: int) -> None:
    encoder = build("dape_v2", width=5, prior=prior, neighbours=neighbours)
    scores, q, k, _ = case()
    site = site_of(layer=1)
    inward = torch.nn.Conv1d(2 * HEADS, 5, 2 * neighbours + 1, padding=neighbours).double()
    outward = torch.nn.Conv1d(5, HEADS, 2 * neighbours + 1, padding=neighbours, bias=False).double()
    inward.weight.data, inward.bias.data = encoder.w_in[1, :, :, 0].detach(), encoder.b_in[1].detach()  # type: ignore[union-attr]
    outward.weight.data = encoder.w_out[1, :, :, 0].detach()
    silent = build("dape", width=5, prior=prior)
    set_to(silent, w_out=0.0)
    if prior == "logarithmic":
        silent.p.data, silent.a.data = encoder.p.data, encoder.a.data
    bias = added(silent, torch.zeros_like(scores), q, k, site)
    found = added(encoder, scores, q, k, site)
    for row in range(LENGTH):  # of a text that ends with this query
        known = torch.cat([scores, bias], 1)[:, :, row, : row + 1]
        with torch.no_grad():
            expected = bias[:, :, row, : row + 1] + outward(torch.nn.functional.leaky_relu(inward(known)))
        torch.testing.assert_close(found[:, :, row, : row + 1], expected, atol=1e-12, rtol=1e-12)


def test_dape_v2_of_single_keys_is_dape() -> None:
    one, two = build("dape", width=5), build("dape_v2", width=5, neighbours=0)
    with torch.no_grad():
        for name in ("p", "a", "b_in"):
            getattr(two, name).copy_(getattr(one, name))
        for name in ("w_in", "w_out"):
            getattr(two, name).copy_(getattr(one, name)[..., None, None])
    scores, q, k, _ = case()
    assert_lower(added(two, scores, q, k, site_of()), added(one, scores, q, k, site_of()))


# ------------------------------------------------------------------------------------------------------- Wall


def open_gates(encoder: Encoder, gates: Tensor) -> Tensor:
    """Set weights and return the input at which a wall of one head has these gates, ``(length, head_dim)``."""
    set_to(encoder, weight=torch.eye(gates.shape[-1]).double(), bias=0.0)
    return gates.logit()[None]


def test_wall_gives_the_official_numbers() -> None:
    table = golden("wall")
    q, k, gates = (torch.tensor(table[name], dtype=torch.float64) for name in ("q", "k", "gates"))
    encoder = build("wall", heads=1, head_dim=2)
    site = site_of(4, x=open_gates(encoder, gates))
    with torch.no_grad():
        scores = encoder.score((q @ k.mT)[None, None], q[None, None], k[None, None], site)
    weights = scores.masked_fill(~site.mask, -math.inf).softmax(-1)[0, 0]
    assert_lower(weights, square(table["weights"]), 1e-6)


def test_wall_by_a_loop_past_its_own_chunks() -> None:
    encoder, length = build("wall"), 40
    scores, q, k, x = case(length=length)
    with torch.no_grad():
        found = encoder.score(scores, q, k, site_of(length, x=x, layer=1))[1, 2]
    weight, bias = encoder.weight[1].detach()[2 * HEAD_DIM :], encoder.bias[1].detach()[2 * HEAD_DIM :]
    for i in (0, 15, 16, 17, 31, 39):
        for j in range(i + 1):
            score = 0.0
            for n in range(HEAD_DIM):
                kept = 1.0
                for t in range(j + 1, i + 1):
                    kept *= sigmoid(dot(weight[n], x[1, t]) + bias[n].item())
                score += q[1, 2, i, n].item() * k[1, 2, j, n].item() * kept
            assert found[i, j].item() == pytest.approx(score / math.sqrt(HEAD_DIM), abs=1e-12)


def test_wall_of_equal_gates_in_a_head_fades_the_whole_product() -> None:
    encoder = build("wall", heads=1)
    scores, q, k, _ = case(heads=1)
    x = open_gates(encoder, torch.full((LENGTH, HEAD_DIM), 0.5).double()).expand(2, -1, -1)
    back = (torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)).clamp(min=0)
    with torch.no_grad():
        assert_lower(encoder.score(scores, q, k, site_of(x=x)), scores * 0.5**back)


def test_wall_forgets_a_long_text_without_an_overflow() -> None:
    encoder = build("wall", heads=1)
    x = open_gates(encoder, torch.full((3000, HEAD_DIM), 1e-3).double()).float()
    q, k = torch.randn(2, 1, 1, 3000, HEAD_DIM)
    with torch.no_grad():
        found = encoder.score(q @ k.mT, q, k, site_of(3000, x=x)).tril()
    assert found.isfinite().all()
    own = (q * k).sum(-1) * HEAD_DIM**-0.5
    torch.testing.assert_close(found.diagonal(dim1=-2, dim2=-1), own)


def test_wall_starts_almost_without_forgetting() -> None:
    encoder = pe_zoo.build("wall", Geometry(model_dim=8, num_heads=2, num_layers=1, train_length=8))
    assert torch.equal(encoder.bias, torch.full((1, 8), 8.0))  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------------- GRAPE-AP


def test_grape_ap_gives_the_official_numbers() -> None:
    table = golden("grape_ap")
    encoder = build("grape_ap", heads=1, head_dim=2, dim=2)
    # The official code turns clockwise: the same, with the halves of p exchanged.
    set_to(encoder, weight=torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    x = torch.tensor(table["p"], dtype=torch.float64)[None]
    q = torch.zeros(1, 1, 4, 2).double()
    bias = added(encoder, torch.zeros(1, 1, 4, 4).double(), q, q, site_of(4, x=x))[0, 0]
    torch.testing.assert_close(bias.tril(), square(table["bias"]), atol=1e-6, rtol=0)


def test_grape_ap_by_a_loop() -> None:
    encoder, slopes = build("grape_ap", dim=4), [1 / 16, 1 / 256, 1 / 4]
    scores, q, k, x = case()
    positions = torch.tensor([0.0, 1, 1.5, 4, 4.75, 6, 30])
    found = added(encoder, scores, q, k, site_of(positions=positions, x=x, layer=1))
    for h in range(HEADS):
        p = x[0] @ encoder.weight[1, h].detach().mT
        for i in range(LENGTH):
            for j in range(i + 1):
                total = 0.0
                for t in range(j + 1, i + 1):
                    size = math.sqrt(dot(p[t], p[t]) / 4)
                    turn = complex(math.cos(positions[t].item()), math.sin(positions[t].item()))
                    turned = [complex(p[t, c].item(), p[t, c + 2].item()) / size * turn for c in range(2)]
                    product = sum(
                        p[i, c].item() * turned[c].real + p[i, c + 2].item() * turned[c].imag for c in range(2)
                    )
                    total += math.log(sigmoid(product / 4))
                assert found[0, h, i, j].item() == pytest.approx(slopes[h] * total, abs=1e-12)


def test_grape_ap_refuses_half_a_pair() -> None:
    with pytest.raises(ValueError, match="grape_ap dim=3 must be even"):
        build("grape_ap", dim=3)


# -------------------------------------------------------------------------------------------------------------- TAPA


def test_tapa_by_hand() -> None:
    table = golden("tapa")
    encoder = build("tapa", heads=1)
    q, k = (torch.tensor(table[of]).double().expand(1, 1, 3, 4) for of in ("query", "key"))
    site = site_of(3, positions=torch.tensor(table["distances"]).float())
    found = encoder.score(torch.zeros(1, 1, 3, 3).double(), q, k, site)
    torch.testing.assert_close(found[0, 0, 0], torch.tensor(table["scores"]).double(), atol=1e-7, rtol=0)


@pytest.mark.parametrize(("alpha", "fraction", "dims"), [(0.1, 0.5, 2), (1.0, 0.8, 3), (0.3, 0.1, 1)])
def test_tapa_by_a_loop(alpha: float, fraction: float, dims: int) -> None:
    encoder = build("tapa", alpha=alpha, fraction=fraction)
    scores, q, k, _ = case()
    places = [0.0, 1.0, 1.5, 4.0, 4.75, 6.0, 30.0]
    found = encoder.score(scores, q, k, site_of(positions=torch.tensor(places)))
    for b in range(2):
        for h in range(HEADS):
            for i in range(LENGTH):
                for j in range(LENGTH):
                    amplitude = dot(q[b, h, i, :dims], k[b, h, j, :dims]) / math.sqrt(dims)
                    phase = dot(q[b, h, i, dims:], k[b, h, j, dims:]) / math.sqrt(HEAD_DIM - dims)
                    expected = amplitude * math.cos(2 * math.pi * abs(places[i] - places[j]) ** alpha * phase)
                    assert found[b, h, i, j].item() == pytest.approx(expected, abs=1e-12)


def test_tapa_needs_two_parts_of_a_head() -> None:
    with pytest.raises(ValueError, match=r"tapa splits heads .*head_dim of at least 2; got 1"):
        build("tapa", head_dim=1)


# -------------------------------------------------------------------------------------------------------------- GAPE


def test_gape_by_hand() -> None:
    """Of keys and queries that stand at one angle each, so that no rotation hides what the gates read."""
    table = golden("gape")
    encoder = build("gape", heads=1, head_dim=2)
    set_to(encoder, w_query=[1.0, 0.0], w_key=[1.0, 0.0], b_query=0.0, b_key=0.0, amplitude=0.0)
    q, k = (
        torch.stack([torch.tensor(table[of]).double().log(), torch.zeros(4).double()], -1)[None, None]
        for of in ("query", "key")
    )
    site = site_of(4)
    turned_q, turned_k = encoder.rotate(q, k, site)
    found = added(encoder, torch.zeros(1, 1, 4, 4).double(), turned_q, turned_k, site)[0, 0]
    mask = square(table["mask"])
    assert_lower(found, mask - mask.diagonal()[:, None], 1e-8)
    weights = found.masked_fill(~site.mask, -math.inf).softmax(-1)
    assert_lower(weights, mask.masked_fill(~site.mask, -math.inf).softmax(-1), 1e-8)


@pytest.mark.parametrize(("base", "fraction", "pairs"), [(10000.0, 1.0, 2), (50.0, 0.5, 1), (10000.0, 0.1, 1)])
def test_gape_by_a_loop(base: float, fraction: float, pairs: int) -> None:
    """The published score, term by term, gates of the queries and keys before any rotation."""
    encoder = build("gape", base=base, fraction=fraction)
    _, q, k, _ = case()
    positions = torch.tensor([[0.0, 1, 1.5, 4, 4.75, 6, 30], [3.0, 3, 4, 5, 9, 11, 12]])
    for layer in (0, 1):
        w_query, w_key = encoder.w_query[layer].detach(), encoder.w_key[layer].detach()
        b_query, b_key = encoder.b_query[layer].tolist(), encoder.b_key[layer].tolist()
        expected, of_query = torch.zeros(2, HEADS, LENGTH, LENGTH).double(), torch.zeros(2, HEADS, LENGTH).double()
        for b in range(2):
            for h in range(HEADS):
                amplitude = softplus(encoder.amplitude[layer, h].item())
                for i in range(LENGTH):
                    gate = softplus(dot(w_query[h], q[b, h, i]) + b_query[h])
                    here = positions[b, i].item()
                    of_query[b, h, i] = amplitude * gate * here / 16
                    for j in range(i + 1):
                        there = positions[b, j].item()
                        landmark = sigmoid(dot(w_key[h], k[b, h, j]) + b_key[h])
                        product = 0.0
                        for pair in range(HEAD_DIM // 2):
                            one = complex(*q[b, h, i, 2 * pair : 2 * pair + 2].tolist())
                            other = complex(*k[b, h, j, 2 * pair : 2 * pair + 2].tolist())
                            frequency = base ** (-2 * pair / HEAD_DIM) if pair < pairs else 0.0
                            product += (one * other.conjugate() * cmath.exp(1j * (here - there) * frequency)).real
                        mask = amplitude * gate * (there * (1 - landmark) / 16 + here * landmark / 16)
                        expected[b, h, i, j] = product / math.sqrt(HEAD_DIM) + mask
        with torch.no_grad():
            found = pe_zoo.scores(encoder, q, k, positions, layer)
        assert_lower(found, expected - of_query[..., None])
        there = [scores.masked_fill(~site_of().mask, -math.inf).softmax(-1) for scores in (found, expected)]
        torch.testing.assert_close(*there, atol=1e-12, rtol=0)


def test_gape_of_landmarks_alone_is_rope() -> None:
    encoder, rope = build("gape"), build("rope")
    set_to(encoder, w_key=0.0, b_key=60.0)
    _, q, k, _ = case()
    with torch.no_grad():
        torch.testing.assert_close(pe_zoo.scores(encoder, q, k), pe_zoo.scores(rope, q, k), atol=1e-12, rtol=0)


def test_gape_starts_with_gates_half_open() -> None:
    geometry = Geometry(model_dim=256, num_heads=64, num_layers=2, train_length=16)
    encoder: Any = pe_zoo.build("gape", geometry)
    assert not any(part.any() for part in (encoder.b_query, encoder.b_key, encoder.amplitude))
    assert encoder.w_query.std().item() == pytest.approx(0.5, rel=0.1)
    assert encoder.w_key.std().item() == pytest.approx(0.5, rel=0.1)
