"""Static biases and Fourier features: hand-checked vectors, loops written from the papers, other libraries."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import pe_zoo
from pe_zoo import Encoder, Geometry, Site

POSITIONS = torch.tensor([0.0, 1.0, 2.5, 7.0, 40.0, 41.0])
"""Increasing, not all whole, near and far."""


def golden(name: str) -> Any:
    return json.loads((Path(__file__).parent / "golden" / f"{name}.json").read_text(encoding="utf-8"))


def build(
    name: str, heads: int = 2, train_length: int = 16, *, layers: int = 2, head_dim: int = 4, **knobs: Any
) -> Any:
    """A float64 encoder; Any, because tests set its parameters by name."""
    geometry = Geometry(model_dim=heads * head_dim, num_heads=heads, num_layers=layers, train_length=train_length)
    return pe_zoo.build(name, geometry, **knobs).double()


def bias_of(encoder: Encoder, positions: Tensor = POSITIONS, layer: int = 0) -> Tensor:
    """What the encoder adds to scores of zero: ``(heads, query, key)``, float64."""
    nothing = torch.zeros(1, encoder.geometry.num_heads, len(positions), encoder.geometry.head_dim, dtype=torch.float64)
    return pe_zoo.scores(encoder, nothing, nothing, positions, layer, causal=False)[0].detach()


def exact(values: Any) -> Tensor:
    """Numbers in float64, which a way through float32 would round."""
    return torch.as_tensor(values, dtype=torch.float64)


def set_to(parameter: Tensor, values: Any) -> None:
    with torch.no_grad():
        parameter.copy_(exact(values).reshape(parameter.shape))


def by_a_loop(heads: int, positions: Tensor, term: Callable[[int, float, float], float]) -> Tensor:
    """``term(head, query, key)`` for each head and each two positions."""
    places = positions.tolist()
    rows = [[[term(h, q, k) for k in places] for q in places] for h in range(heads)]
    return exact(rows)


def close(found: Tensor, expected: Any, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(found.detach().double(), exact(expected).detach(), atol=tolerance, rtol=tolerance)


# ---------------------------------------------------------------------------------------------------- sandwich


def test_sandwich_products_and_ratios_are_the_published_ones() -> None:
    table = golden("sandwich")
    positions = 2000 - torch.tensor([*table["distances"], 0.0])
    close(bias_of(build("sandwich", 1), positions)[0, -1, :-1], exact(table["products"]) / 8, 1e-9)
    close(bias_of(build("sandwich", 4), positions)[:, -1, :-1], table["four_heads"], 1e-9)


@pytest.mark.parametrize(("heads", "knobs"), [(1, {}), (3, {}), (4, {"dim": 6, "base": 50.0, "max_ratio": 3.0})])
def test_sandwich_by_a_loop_over_vectors(heads: int, knobs: dict[str, Any]) -> None:
    dim, base, max_ratio = knobs.get("dim", 128), knobs.get("base", 1e4), knobs.get("max_ratio", 8.0)

    def vector(p: float) -> list[float]:
        angles = [p / base ** (2 * i / dim) for i in range(dim // 2)]
        return [math.sin(a) for a in angles] + [math.cos(a) for a in angles]

    def term(h: int, q: float, k: float) -> float:
        return sum(a * b for a, b in zip(vector(q), vector(k), strict=True)) * heads / (max_ratio * (h + 1))

    close(bias_of(build("sandwich", heads, **knobs)), by_a_loop(heads, POSITIONS, term), 1e-9)


def test_sandwich_is_the_inner_product_of_our_sinusoidal_vectors() -> None:
    sinusoidal = build("sinusoidal", 1, head_dim=128)
    vectors = sinusoidal.embed(torch.zeros(1, len(POSITIONS), 128).double(), POSITIONS)[0]
    close(bias_of(build("sandwich", 2))[1], vectors @ vectors.mT / 8)


# ------------------------------------------------------------------------------------------------------ KERPLE


def kerple_log(amplitude: Any, rate: Any) -> Any:
    encoder = build("kerple_log", len(amplitude))
    set_to(encoder.log_amplitude, exact(amplitude).log())
    set_to(encoder.log_rate, exact(rate).log())
    return encoder


def kerple_power(amplitude: Any, exponent: Any) -> Any:
    encoder = build("kerple_power", len(amplitude))
    set_to(encoder.log_amplitude, exact(amplitude).log())
    set_to(encoder.exponent_logit, (exact(exponent) / 2).logit())
    return encoder


def test_kerple_is_the_official_one() -> None:
    table = golden("kerple")
    for encoder, expected in (
        (kerple_log(table["log"]["amplitude"], table["log"]["rate"]), table["log"]["bias"]),
        (kerple_power(table["power"]["amplitude"], table["power"]["exponent"]), table["power"]["bias"]),
    ):
        close(bias_of(encoder, torch.arange(6.0))[:, -1].flip(-1), expected, 1e-9)


def test_kerple_log_by_a_loop() -> None:
    p, a = [0.3, 1.7, 0.02], [0.9, 0.01, 3.0]
    expected = by_a_loop(3, POSITIONS, lambda h, m, n: -p[h] * math.log(1 + a[h] * abs(m - n)))
    close(bias_of(kerple_log(p, a)), expected)


def test_kerple_power_by_a_loop() -> None:
    a, p = [0.3, 1.7, 0.02], [0.9, 0.01, 1.99]
    expected = by_a_loop(3, POSITIONS, lambda h, m, n: -a[h] * abs(m - n) ** p[h] if m != n else 0.0)
    close(bias_of(kerple_power(a, p)), expected)


def test_kerple_power_of_exponent_one_is_alibi() -> None:
    slopes = golden("alibi")["slopes"]["8"]
    close(bias_of(kerple_power(slopes, 8 * [1.0])), bias_of(build("alibi", 8)))
    assert (bias_of(kerple_power(slopes, 8 * [1.1])) - bias_of(build("alibi", 8))).abs().max() > 0.1


@pytest.mark.parametrize("name", ["kerple_log", "kerple_power"])
def test_kerple_starts_where_the_official_code_does(name: str) -> None:
    """Uniform in (0, 2) and (0, 1), as the numbers themselves and not as their logarithms."""
    encoder = build(name, 4096, head_dim=1)
    amplitude = encoder.log_amplitude.exp()
    other = encoder.log_rate.exp() if name == "kerple_log" else 2 * encoder.exponent_logit.sigmoid()
    limits = (2, 1) if name == "kerple_log" else (1, 2)
    for number, limit in zip((amplitude, other), limits, strict=True):
        assert 0.01 - 1e-6 <= number.min() <= number.max() <= limit
        quartiles = number.detach().quantile(exact([0.25, 0.5, 0.75])) / limit
        close(quartiles, [0.25, 0.5, 0.75], 0.05)


@pytest.mark.parametrize("name", ["kerple_log", "kerple_power"])
def test_kerple_keeps_its_signs_wherever_its_parameters_go(name: str) -> None:
    encoder = build(name, 3)
    for parameter in encoder.parameters():
        set_to(parameter, [-9.0, 0.0, 9.0])
    bias = bias_of(encoder, torch.arange(5.0))
    assert (bias[:, -1, :-1] < 0).all()
    assert (bias[:, -1].diff() > 0).all(), "a nearer key has a higher score"


# -------------------------------------------------------------------------------------------------------- FIRE


def fire(table: Any) -> Any:
    encoder = build("fire", len(table["out"]), init_limit=table["limit"], hidden_dim=3)
    set_to(encoder.log_c, 2 * [math.log(table["c"])])
    for layer in range(2):
        set_to(encoder.hidden[layer].weight, table["hidden"])
        set_to(encoder.hidden[layer].bias, table["hidden_bias"])
        set_to(encoder.out[layer].weight, table["out"])
    return encoder


def test_fire_is_the_published_code() -> None:
    table = golden("fire")
    bias = bias_of(fire(table), torch.arange(8.0))
    for head, rows in enumerate(table["bias"]):
        for query, expected in zip(table["queries"], rows, strict=True):
            close(bias[head, query, : query + 1], expected, 1e-9)


def site_of(positions: Tensor, layer: int = 0) -> Site:
    length = positions.shape[-1]
    return Site(
        layer=layer,
        query_positions=positions,
        key_positions=positions,
        rows=slice(0, length),
        mask=torch.ones(length, length, dtype=torch.bool),
        causal=True,
    )


def test_fire_shares_are_distance_over_position_on_a_log_scale() -> None:
    encoder = build("fire", init_limit=512)
    for query, key, share in golden("fire")["shares"]:
        found = encoder.share(site_of(torch.tensor([float(key), float(query)])), torch.float64)[1, 0]
        assert found.item() == pytest.approx(share, abs=1e-6)


@pytest.mark.parametrize("shared", [False, True])
def test_fire_by_a_loop_with_the_parameters_of_its_layer(shared: bool) -> None:
    encoder = build("fire", 3, 16, hidden_dim=5, shared=shared)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    for layer in range(2):
        own = 0 if shared else layer
        c, limit = encoder.log_c[own].exp().item(), 4 * encoder.log_stretch[own].exp().item()
        w, b = encoder.hidden[own].weight[:, 0].tolist(), encoder.hidden[own].bias.tolist()
        v = encoder.out[own].weight.tolist()

        def term(h: int, q: float, k: float, c=c, limit=limit, w=w, b=b, v=v) -> float:  # type: ignore[no-untyped-def]
            share = math.log(c * abs(q - k) + 1) / (math.log(c * max(limit, q) + 1) + 1e-6)
            return sum(v[h][n] * max(0.0, w[n] * share + b[n]) for n in range(5))

        close(bias_of(encoder, layer=layer), by_a_loop(3, POSITIONS, term))


def test_fire_starts_at_the_published_numbers() -> None:
    encoder = build("fire", train_length=2048)
    assert encoder.log_c.exp().tolist() == pytest.approx([0.1, 0.1])
    assert encoder.init_limit * encoder.log_stretch.exp()[0].item() == 512
    assert build("fire", train_length=3).init_limit == 1
    assert [p.shape[0] for p in build("fire", shared=True).parameters()][:2] == [1, 1]


def test_fire_meets_no_new_number_at_a_greater_length() -> None:
    """Progressive interpolation: every share lies in [0, 1], and the first key's is 1 beyond the limit."""
    shares = build("fire", train_length=16).share(site_of(torch.arange(300.0)), torch.float64).detach().tril()
    assert shares.min() == 0
    assert 1 - 1e-5 < shares.max() < 1
    close(shares[5:, 0], torch.ones(295), 1e-5)


# ----------------------------------------------------------------------------------------------- dynamic bias


@pytest.mark.parametrize("seen", ["linear", "log"])
def test_dynamic_bias_comes_out_as_written_down(seen: str) -> None:
    table = golden("dynamic_bias")
    encoder = build("dynamic_bias", input=seen, hidden_dim=2)
    for layer, weight in zip(encoder.mlps[0], table["weights"], strict=True):
        set_to(layer.weight, weight)
    for layer, bias in zip(encoder.mlps[0], table["biases"], strict=False):
        set_to(layer.bias, bias)
    positions = torch.tensor([0.0, *(-float(distance) for distance in table["distances"])])
    close(bias_of(encoder, positions)[:, 0, 1:], table[seen], 1e-9)


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("seen", ["linear", "log"])
def test_dynamic_bias_agrees_with_x_transformers(seen: str, depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    library = pytest.importorskip("x_transformers.x_transformers")
    theirs = library.DynamicPositionBias(6, heads=3, depth=depth, log_distance=seen == "log").double()
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)  # the library counts distances in float32
    linears = [module for module in theirs.modules() if isinstance(module, torch.nn.Linear)]
    set_to(linears[-1].bias, torch.zeros(3))
    encoder = build("dynamic_bias", 3, input=seen, hidden_dim=6, depth=depth)
    for ours, their in zip(encoder.mlps[0], linears, strict=True):
        for own, other in zip(ours.parameters(), their.parameters(), strict=False):
            set_to(own, other.detach())
    close(bias_of(encoder, torch.arange(20.0)), theirs(20, 20))
    close(bias_of(encoder, torch.arange(20.0))[:, -4:], theirs(4, 20))
    # The library's network alone takes distances that are no whole numbers.
    distance = (POSITIONS[:, None] - POSITIONS)[..., None].double()
    found = distance.sign() * torch.log(distance.abs() + 1) if seen == "log" else distance
    for block in theirs.mlp:
        found = block(found)
    close(bias_of(encoder), found.movedim(-1, 0))


def test_dynamic_bias_sees_the_logarithm_that_swin_does() -> None:
    """Swin V2's table over a window of 7 is ours at distances scaled to ±8, in another base."""
    library = pytest.importorskip("transformers.models.swinv2.modeling_swinv2")
    config = pytest.importorskip("transformers").Swinv2Config()
    theirs = library.Swinv2SelfAttention(config, dim=6, num_heads=2, window_size=7).relative_coords_table
    distance = 8 / 6 * torch.arange(-6.0, 7.0)
    found = build("dynamic_bias").seen(distance)[:, 0] / math.log(8)
    torch.testing.assert_close(found, theirs[0, :, 0, 0], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("seen", ["linear", "log", "fourier"])
@pytest.mark.parametrize("shared", [False, True])
def test_dynamic_bias_by_a_loop_with_the_parameters_of_its_layer(seen: str, shared: bool) -> None:
    frequencies = {"num_frequencies": 3} if seen == "fourier" else {}
    encoder = build("dynamic_bias", 3, input=seen, hidden_dim=4, depth=2, shared=shared, **frequencies)
    for layer in range(2):
        mlp = encoder.mlps[0 if shared else layer]

        def term(h: int, q: float, k: float, mlp: Any = mlp) -> float:
            n = q - k
            angles = [n / 10000 ** (i / 3) for i in range(3)]
            values = {
                "linear": [n],
                "log": [math.copysign(math.log(1 + abs(n)), n)],
                "fourier": [math.cos(a) for a in angles] + [math.sin(a) for a in angles],
            }[seen]
            for linear in (mlp[0], mlp[1]):
                rows = zip(linear.weight.tolist(), linear.bias.tolist(), strict=True)
                sums = [sum(w * v for w, v in zip(row, values, strict=True)) + b for row, b in rows]
                values = [s / (1 + math.exp(-s)) for s in sums]
            return sum(w * v for w, v in zip(mlp[2].weight[h].tolist(), values, strict=True))

        close(bias_of(encoder, layer=layer), by_a_loop(3, POSITIONS, term))
    assert torch.equal(bias_of(encoder, layer=0), bias_of(encoder, layer=1)) == shared


# ----------------------------------------------------------------------------------------------------- Fourier


def vectors(encoder: Encoder, positions: Tensor) -> Tensor:
    """What ``embed`` adds, ``(length, model_dim)``, float64."""
    nothing = torch.zeros(1, len(positions), encoder.geometry.model_dim, dtype=torch.float64)
    return encoder.embed(nothing, positions)[0].detach()


def test_learnable_fourier_is_algorithm_1() -> None:
    table = golden("fourier")["learnable"]
    encoder = build("learnable_fourier", 1, head_dim=3, num_features=4, hidden_dim=2)
    for name in ("frequency", "hidden", "hidden_bias", "out", "out_bias"):
        set_to(getattr(encoder, name), table[name])
    close(vectors(encoder, torch.tensor(table["positions"])), table["vectors"], 1e-8)


def test_learnable_fourier_by_a_loop() -> None:
    encoder = build("learnable_fourier", num_features=6, hidden_dim=5)
    with torch.no_grad():
        encoder.hidden_bias.normal_()
        encoder.out_bias.normal_()
    found = vectors(encoder, POSITIONS)
    for row, p in enumerate(POSITIONS.tolist()):
        angles = [p * w for w in encoder.frequency.tolist()]
        features = [f / math.sqrt(6) for f in [*map(math.cos, angles), *map(math.sin, angles)]]
        hidden = []
        for weights, bias in zip(encoder.hidden.tolist(), encoder.hidden_bias.tolist(), strict=True):
            s = sum(w * f for w, f in zip(weights, features, strict=True)) + bias
            hidden.append(s * (1 + math.erf(s / math.sqrt(2))) / 2)
        for column in range(8):
            weights = encoder.out[column].tolist()
            expected = sum(w * h for w, h in zip(weights, hidden, strict=True)) + encoder.out_bias[column].item()
            assert found[row, column].item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("gamma", [3.0, 10.0])
def test_learnable_fourier_starts_as_a_gaussian_kernel(gamma: float) -> None:
    """1/gamma is the standard deviation, not the variance, and not its square."""
    features = build("learnable_fourier", gamma=gamma, num_features=20_000).features(torch.arange(4.0) * gamma)
    kernel = 2 * features[0] @ features.mT
    close(kernel, [math.exp(-(distance**2) / 2) for distance in range(4)], 0.03)


def test_learnable_fourier_starts_near_the_scale_of_tokens() -> None:
    spread = vectors(build("learnable_fourier", 8, head_dim=16), 20 * torch.arange(50.0)).std().item()
    assert 0.3 < spread < 1.5


def test_random_fourier_is_the_official_mapping() -> None:
    table = golden("fourier")["random"]
    encoder = build("random_fourier", 1, table["train_length"], head_dim=6, scale=1.0)
    with torch.no_grad():
        encoder.drawn_steps.copy_((exact(table["B"]) * 2**40).long())
    close(
        vectors(encoder, torch.tensor(table["positions"])),
        torch.cat([torch.tensor(table["cosines"]), torch.tensor(table["sines"])], -1),
        1e-6,
    )


def test_random_fourier_by_a_loop() -> None:
    encoder = build("random_fourier", 2, 100, scale=7.0)
    found = vectors(encoder, POSITIONS)
    for row, p in enumerate(POSITIONS.tolist()):
        for i, steps in enumerate(encoder.drawn_steps.tolist()):
            angle = 2 * math.pi * 7.0 * (steps / 2**40) * p / 100
            assert found[row, i].item() == pytest.approx(math.cos(angle), abs=1e-12)
            assert found[row, 4 + i].item() == pytest.approx(math.sin(angle), abs=1e-12)


@pytest.mark.parametrize("scale", [2.0, 10.0])
def test_random_fourier_is_a_gaussian_kernel(scale: float) -> None:
    found = vectors(build("random_fourier", 1, 100, head_dim=20_000, scale=scale), torch.arange(5.0) + 40)
    kernel = found[0] @ found.mT / 10_000
    close(kernel, [math.exp(-2 * (math.pi * scale * distance / 100) ** 2) for distance in range(5)], 0.03)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_random_fourier_frequencies_survive_a_change_of_dtype(dtype: torch.dtype) -> None:
    """They are drawn once: another dtype, and the way through a saved state, must not make them others."""
    encoder, other = build("random_fourier"), build("random_fourier")
    before = vectors(encoder, 1000 * POSITIONS)
    assert (vectors(other, 1000 * POSITIONS) - before).abs().max() > 0.1, "each construction draws its own"
    encoder.to(dtype)
    assert torch.equal(vectors(encoder, 1000 * POSITIONS), before)
    other.to(dtype).load_state_dict(encoder.state_dict())
    assert torch.equal(vectors(other.double(), 1000 * POSITIONS), before)


def test_random_fourier_frequencies_are_normal() -> None:
    drawn = build("random_fourier", 1, 100, head_dim=20_000, scale=10.0).frequencies() / (2 * math.pi * 10 / 100)
    quartiles = drawn.quantile(exact([0.25, 0.5, 0.75]))
    close(quartiles, [-0.67449, 0, 0.67449], 0.03)
    assert not list(build("random_fourier").parameters())
