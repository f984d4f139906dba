"""Rotations that read the layer's input, or mix frequencies: official numbers, loops written from the papers."""

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
from pe_zoo._contract import bench

HEADS, HEAD_DIM, LENGTH = 3, 8, 7
PLACES = [0.0, 1.0, 1.5, 4.0, 4.75, 6.0, 30.0]


def golden(name: str) -> Any:
    return json.loads((Path(__file__).parent / "golden" / f"{name}.json").read_text(encoding="utf-8"))


def build(name: str, heads: int = HEADS, head_dim: int = HEAD_DIM, train_length: int = 16, **knobs: Any) -> Any:
    """A float64 encoder of two layers, with random parameters."""
    geometry = Geometry(model_dim=heads * head_dim, num_heads=heads, num_layers=2, train_length=train_length)
    encoder = pe_zoo.build(name, geometry, **knobs).double()
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return encoder


def site_of(x: Tensor | None, length: int = LENGTH, layer: int = 0, places: list[float] | None = None) -> Site:
    positions = torch.arange(float(length)) if places is None else torch.tensor(places)
    return bench.site_of(positions, True, x, layer=layer)


def draw(length: int = LENGTH) -> tuple[Tensor, Tensor, Tensor]:
    q, k = torch.randn(2, 1, HEADS, length, HEAD_DIM, dtype=torch.float64)
    return q, k, torch.randn(1, length, HEADS * HEAD_DIM, dtype=torch.float64)


def products(encoder: Encoder, q: Tensor, k: Tensor, site: Site) -> Tensor:
    with torch.no_grad():
        q, k = encoder.rotate(q, k, site)
    return q @ k.mT


def by_a_loop(q: Tensor, k: Tensor, angle: Tensor) -> Tensor:
    """Products of pairs (i, i + head_dim/2), turned as complex numbers by ``(heads, length, pairs)`` angles."""
    found = torch.zeros(1, HEADS, LENGTH, LENGTH, dtype=torch.float64)
    half = HEAD_DIM // 2
    for h in range(HEADS):
        for i in range(LENGTH):
            for j in range(LENGTH):
                for pair in range(half):
                    here, there = (complex(*y[0, h, t, pair::half].tolist()) for y, t in ((q, i), (k, j)))
                    here *= cmath.exp(1j * angle[h, i, pair].item())
                    there *= cmath.exp(1j * angle[h, j, pair].item())
                    found[0, h, i, j] += (here * there.conjugate()).real
    return found


def check_loop(encoder: Encoder, angle: Tensor, q: Tensor, k: Tensor, site: Site) -> None:
    torch.testing.assert_close(products(encoder, q, k, site), by_a_loop(q, k, angle), atol=1e-11, rtol=0)
    assert (products(encoder, q, k, site) - q @ k.mT).abs().max() > 0.1, "nothing was rotated"


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))


def dot(a: Tensor, b: Tensor) -> float:
    return sum(x * y for x, y in zip(a.tolist(), b.tolist(), strict=True))


@pytest.mark.parametrize("name", ["carope", "grape_m", "mla_rope", "repo"])
def test_who_reads_the_input_says_so_when_there_is_none(name: str) -> None:
    q, k, _ = draw()
    with pytest.raises(ValueError, match=rf"^{name} .*pass x"):
        build(name).rotate(q, k, site_of(None))


# ----------------------------------------------------------------------------------------------------------- GRAPE-M


def test_grape_m_gives_the_official_numbers() -> None:
    table = golden("grape_m")
    geometry = Geometry(model_dim=4, num_heads=1, num_layers=1, train_length=4)
    encoder: Any = pe_zoo.build("grape_m", geometry).double()
    assert encoder.bias.item() == pytest.approx(table["bias_at_start"], abs=1e-4)
    with torch.no_grad():
        encoder.weight.copy_(torch.tensor([[[1.0], [0], [0], [0]]]))
        encoder.bias.zero_()
    x = torch.zeros(1, 4, 4).double()
    x[0, :, 0] = torch.tensor(table["gate_inputs"])
    # The official code turns clockwise: the same, with the halves exchanged.
    q = torch.tensor(table["query"]).double()[[2, 3, 0, 1]].expand(1, 1, 4, 4)
    with torch.no_grad():
        found = encoder.rotate(q, q, site_of(x, 4))[0][0, 0][:, [2, 3, 0, 1]]
    torch.testing.assert_close(found, torch.tensor(table["rotated"]).double(), atol=2e-6, rtol=0)


@pytest.mark.parametrize("per_head", [False, True])
def test_grape_m_by_a_loop(per_head: bool) -> None:
    encoder = build("grape_m", per_head=per_head)
    q, k, x = draw()
    angle = torch.zeros(HEADS, LENGTH, HEAD_DIM // 2, dtype=torch.float64)
    for h in range(HEADS):
        head, phase = h if per_head else 0, 0.0
        for t in range(LENGTH):
            for pair in range(HEAD_DIM // 2):
                angle[h, t, pair] = phase * math.exp(encoder.log_frequency[1, pair].item())
            phase += sigmoid((dot(x[0, t], encoder.weight[1, :, head]) + encoder.bias[1, head].item()) / 16)
    check_loop(encoder, angle, q, k, site_of(x, layer=1))


# -------------------------------------------------------------------------------------------------------------- RePo


def test_repo_by_a_loop() -> None:
    encoder = build("repo")
    q, k, x = draw()
    angle = torch.zeros(HEADS, LENGTH, HEAD_DIM // 2, dtype=torch.float64)
    for t in range(LENGTH):
        hidden = []
        for unit in range(3):
            gate = dot(x[0, t], encoder.w_gate[1, :, unit])
            hidden.append(gate * sigmoid(gate) * dot(x[0, t], encoder.w_content[1, :, unit]))
        for h in range(HEADS):
            place = sum(hidden[unit] * encoder.w_out[1, unit, h].item() for unit in range(3))
            for pair in range(HEAD_DIM // 2):
                angle[h, t, pair] = place * 10000 ** (-2 * pair / HEAD_DIM)
    check_loop(encoder, angle, q, k, site_of(x, layer=1))


def test_repo_of_places_that_the_input_tells_is_rope() -> None:
    encoder, length = build("repo", heads=1, width=1), 7
    rope = pe_zoo.build("rope", encoder.geometry, pairing="half")
    x = torch.zeros(1, length, HEAD_DIM, dtype=torch.float64)
    x[0, :, 0], x[0, :, 1] = 20.0, torch.arange(length) / 20  # silu(20) is 20 to 1e-8
    with torch.no_grad():
        for parameter, index in ((encoder.w_gate, 0), (encoder.w_content, 1), (encoder.w_out, 0)):
            parameter.zero_()[:, index, 0] = 1
    q, k = torch.randn(2, 1, 1, length, HEAD_DIM, dtype=torch.float64)
    torch.testing.assert_close(
        products(encoder, q, k, site_of(x)), products(rope, q, k, site_of(None)), atol=1e-6, rtol=0
    )


# ------------------------------------------------------------------------------------------------------------ CARoPE


def test_carope_angles_by_hand() -> None:
    table = golden("carope")
    encoder = build("carope", heads=1)
    x, unit = torch.zeros(1, 3, HEAD_DIM).double(), torch.zeros(1, 1, 3, HEAD_DIM).double()
    unit[..., : HEAD_DIM // 2] = 1
    turned = encoder.rotate(unit, unit, site_of(x, 3))[0][0, 0, 2].detach()
    found = torch.atan2(turned[HEAD_DIM // 2 :], turned[: HEAD_DIM // 2])
    torch.testing.assert_close(found, torch.tensor(table["angles"]).double(), atol=1e-6, rtol=0)


def test_carope_by_a_loop() -> None:
    encoder = build("carope")
    q, k, x = draw()
    angle = torch.zeros(HEADS, LENGTH, HEAD_DIM // 2, dtype=torch.float64)
    for h in range(HEADS):
        for t in range(LENGTH):
            for pair in range(HEAD_DIM // 2):
                before = angle[h, t - 1, pair].item() if t else 0.0
                base = 1 / (math.log(1 + math.exp(dot(x[0, t], encoder.weight[1, :, h]))) + 1)
                angle[h, t, pair] = before + base ** (pair + 1)
    check_loop(encoder, angle, q, k, site_of(x, layer=1))


# ---------------------------------------------------------------------------------------------------------- MLA RoPE


@pytest.mark.parametrize("scale", ["joint", "head"])
def test_mla_rope_by_a_loop(scale: str) -> None:
    encoder = build("mla_rope", rotary_dim=6, scale=scale)
    q, k, x = draw()
    found = products(encoder, q, k, site_of(x, layer=1, places=PLACES)) / math.sqrt(HEAD_DIM)
    for h in range(HEADS):
        for i in range(LENGTH):
            for j in range(LENGTH):
                score = dot(q[0, h, i], k[0, h, j])
                here, there = encoder.w_q[1, h] @ x[0, i], encoder.w_k[1] @ x[0, j]
                for pair in range(3):
                    theta = 10000 ** (-2 * pair / 6)
                    one = complex(*here[2 * pair : 2 * pair + 2].tolist()) * cmath.exp(1j * PLACES[i] * theta)
                    other = complex(*there[2 * pair : 2 * pair + 2].tolist()) * cmath.exp(1j * PLACES[j] * theta)
                    score += (one * other.conjugate()).real
                width = HEAD_DIM + 6 if scale == "joint" else HEAD_DIM
                assert found[0, h, i, j].item() == pytest.approx(score / math.sqrt(width), abs=1e-11)


def test_mla_rope_agrees_with_deepseek_v3() -> None:
    library = pytest.importorskip("transformers.models.deepseek_v3.modeling_deepseek_v3")
    configuration = library.DeepseekV3Config(
        hidden_size=HEADS * HEAD_DIM,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        q_lora_rank=None,
        kv_lora_rank=5,
        qk_nope_head_dim=HEAD_DIM,
        qk_rope_head_dim=4,
        v_head_dim=HEAD_DIM,
        num_hidden_layers=1,
        attn_implementation="eager",
    )
    theirs = library.DeepseekV3Attention(configuration, 0).double().eval()
    rotation = library.DeepseekV3RotaryEmbedding(configuration)
    x, places = torch.randn(1, LENGTH, HEADS * HEAD_DIM).double(), torch.arange(LENGTH)[None]
    mask = torch.full((LENGTH, LENGTH), -math.inf, dtype=torch.float64).triu(1)[None, None]
    encoder = build("mla_rope", rotary_dim=4)
    with torch.no_grad():
        expected = theirs(x, rotation(x, places), mask)[1]
        by_head = theirs.q_proj.weight.unflatten(0, (HEADS, -1))
        latent, encoder.w_k.data[0] = theirs.kv_a_proj_with_mqa.weight.split([5, 4])
        encoder.w_q.data[0] = by_head[:, HEAD_DIM:]
        q = x.unsqueeze(1) @ by_head[:, :HEAD_DIM].mT
        expanded = theirs.kv_b_proj(theirs.kv_a_layernorm(x @ latent.mT)).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        scores = products(encoder, q, expanded[..., :HEAD_DIM], site_of(x)) / math.sqrt(HEAD_DIM)
    torch.testing.assert_close((scores + mask).softmax(-1), expected, atol=1e-6, rtol=0)


def test_mla_rope_refuses_half_a_pair() -> None:
    with pytest.raises(ValueError, match="mla_rope rotary_dim=3 must be even"):
        build("mla_rope", rotary_dim=3)


# -------------------------------------------------------------------------------------------------------------- FoPE


def test_fope_gives_the_official_numbers() -> None:
    table = golden("fope")
    encoder = build("fope", heads=1, train_length=80)
    encoder.sines.copy_(torch.tensor(table["sines"]))
    encoder.cosines.copy_(torch.tensor(table["cosines"]))
    # The official code pairs dimensions 0 and 4, 1 and 5; here they are neighbours.
    q = torch.tensor([table["query"][at] for at in (0, 2, 1, 3)] + [7.0] * 4).double().expand(1, 1, 4, -1)
    found = encoder.rotate(q, q, site_of(None, 4, places=[float(place) for place in table["positions"]]))[0][0, 0]
    torch.testing.assert_close(found[:, [0, 2, 1, 3]], torch.tensor(table["rotated"]).double(), atol=2e-5, rtol=0)
    assert torch.equal(found[:, 4:], q[0, 0, :, 4:])


def test_fope_without_noise_is_rope_of_the_fast_pairs() -> None:
    encoder = build("fope", train_length=80, gain=0.0)
    rope = pe_zoo.build("p_rope", encoder.geometry, fraction=0.5)
    q, k, _ = draw()
    site = site_of(None, places=PLACES)
    torch.testing.assert_close(products(encoder, q, k, site), products(rope, q, k, site), atol=1e-6, rtol=0)


def test_fope_starts_where_the_official_code_does() -> None:
    encoder = build("fope", train_length=2000, gain=0.0)
    start = torch.tensor(golden("fope")["start_of_three_frequencies"]).double()
    assert torch.equal(encoder.sines, start.expand(2, HEADS, 3, 2))
    noisy = build("fope", train_length=2000)
    spread = 0.3 * math.sqrt(2 / (3 * 2 + HEADS * 2))  # torch's for (heads, frequencies, pairs), as there
    assert (noisy.cosines - start).std().item() == pytest.approx(spread, rel=0.35)
    assert not list(noisy.parameters())
    assert {name for name, _ in build("fope", learned=True).named_parameters()} == {"cosines", "sines"}


# ------------------------------------------------------------------------------------------------------------ RoPE-ID


def test_rope_id_has_the_frequencies_of_the_authors_code() -> None:
    encoder = build("rope_id", heads=1, head_dim=16, train_length=4096)
    theirs = torch.tensor(golden("rope_id")["frequencies"]).double()
    torch.testing.assert_close(encoder.frequencies(), theirs, atol=0, rtol=1e-6)
