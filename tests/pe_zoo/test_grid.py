"""Encoders of places in a grid agree with vectors by hand, with loops, and with the models of other libraries."""

from __future__ import annotations

import cmath
import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DetrConfig, Qwen2VLConfig, ViTMAEConfig
from transformers.models.detr.modeling_detr import DetrLearnedPositionEmbedding
from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen
from transformers.models.swin.modeling_swin import SwinRelativePositionBias
from transformers.models.swinv2.modeling_swinv2 import Swinv2Config, Swinv2SelfAttention
from transformers.models.vit_mae.modeling_vit_mae import ViTMAEEmbeddings

import pe_zoo
from pe_zoo import Encoder, Geometry, Site, Unsupported

GOLDEN = json.loads((Path(__file__).parent / "golden" / "grid.json").read_text(encoding="utf-8"))
SMALL = Geometry(model_dim=24, num_heads=3, num_layers=2, train_length=17)
LAYER = 1
"""The loops look at the second layer, so that a mistaken index shows."""


def places(height: int, width: int, first: int = 0) -> Tensor:
    """Rows and columns of a grid in reading order, ``(height · width, 2)``."""
    return torch.tensor(list(itertools.product(range(first, first + height), range(first, first + width)))).float()


def fresh(name: str, geometry: Geometry = SMALL, **knobs: Any) -> Any:
    """An encoder in float64 whose parameters are moved."""
    encoder = pe_zoo.build(name, geometry, **knobs).double()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return encoder


def bias_of(encoder: Encoder, positions: Tensor, layer: int = LAYER) -> Tensor:
    """What is added to scores of zero, ``(heads, query, key)``."""
    sizes = encoder.geometry
    nothing = torch.zeros(1, sizes.num_heads, len(positions), sizes.head_dim, dtype=torch.float64)
    return pe_zoo.scores(encoder, nothing, nothing, positions, layer).detach()[0]


def heads(positions: Tensor, geometry: Geometry = SMALL) -> tuple[Tensor, Tensor]:
    shape = (2, 1, geometry.num_heads, len(positions), geometry.head_dim)
    return torch.randn(shape, dtype=torch.float64).unbind()  # type: ignore[return-value]


def of_pair(x: Tensor, pair: int) -> complex:
    return complex(*x[2 * pair : 2 * pair + 2].tolist())


def site_at(positions: Tensor) -> Site:
    mask = torch.ones(len(positions), len(positions), dtype=torch.bool)
    there = positions.unsqueeze(0)
    rows = slice(0, len(positions))
    return Site(layer=0, query_positions=there, key_positions=there, rows=rows, mask=mask, causal=False)


# -------------------------------------------------------------------------------------------------- by hand


def test_vectors_by_hand() -> None:
    one = Geometry(model_dim=4, num_heads=1, num_layers=1, train_length=5)
    case = GOLDEN["rotated"]
    x = torch.tensor(case["x"], dtype=torch.float64).view(1, 1, 1, 4)
    turned, _ = pe_zoo.build("axial_rope", one).rotate(x, x, site_at(torch.tensor([case["at"]]).float()))
    assert turned.flatten().tolist() == pytest.approx(case["result"], abs=1e-11)
    case = GOLDEN["waves"]
    wave = pe_zoo.build("sinusoidal_2d", one).embed(
        torch.zeros(1, 1, 4, dtype=torch.float64), torch.tensor([[case["at"]]]).float()
    )
    assert wave.flatten().tolist() == pytest.approx(case["result"], abs=1e-11)
    eight = Geometry(model_dim=8, num_heads=8, num_layers=1, train_length=5)
    for here, there, _, bias in GOLDEN["distances"]:
        found = bias_of(pe_zoo.build("alibi_2d", eight), torch.tensor([here, there]).float(), 0)[0, 0, 1]
        assert found.item() == pytest.approx(bias, abs=1e-6)


def test_entries_of_the_table_are_the_official_ones() -> None:
    encoder = fresh("swin", window=7)
    bias, flat = bias_of(encoder, places(7, 7)), encoder.table[LAYER].flatten(0, 1)
    for query, key, row in GOLDEN["entries"]:
        assert torch.equal(bias[:, query, key], flat[row])


def test_logarithms_of_distances_are_those_of_the_paper() -> None:
    """An MLP that hands the first of its two inputs on, in both signs."""
    encoder = pe_zoo.build("log_cpb", SMALL, hidden_dim=2, window=8).double()
    weights: Any = encoder
    with torch.no_grad():
        weights.hidden[0].weight.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
        weights.out[0].weight.copy_(torch.tensor([[1.0, -1.0]]).expand(3, 2))
    for distance, spread in GOLDEN["spread"]:
        found = bias_of(encoder, torch.tensor([[8.0 + distance, 5.0], [8.0, 2.0]]), 0)[0, 0, 1]
        assert found.item() == pytest.approx(16 / (1 + math.exp(-spread)), abs=1e-9)


# ------------------------------------------------------------------------------------------------ naive loops


def test_axial_rope_is_a_product_of_complex_numbers() -> None:
    encoder, positions = pe_zoo.build("axial_rope", SMALL), places(3, 2, first=5)
    q, k = heads(positions)
    found = pe_zoo.scores(encoder, q, k, positions)
    for head, query, key in itertools.product(range(3), range(6), range(6)):
        down, across = (positions[query] - positions[key]).tolist()
        total = 0.0
        for pair in range(4):
            angle = (across if pair < 2 else down) * 100.0 ** (-4 * (pair % 2) / 8)
            a, b = (of_pair(x[0, head], pair) for x in (q[..., query, :], k[..., key, :]))
            total += (a * b.conjugate() * cmath.exp(1j * angle)).real
        assert found[0, head, query, key].item() == pytest.approx(total / math.sqrt(8), abs=1e-10)


def test_mixed_rope_is_a_product_of_complex_numbers() -> None:
    encoder, positions = fresh("mixed_rope"), places(3, 2, first=5)
    q, k = heads(positions)
    found = pe_zoo.scores(encoder, q, k, positions, LAYER)
    for head, query, key in itertools.product(range(3), range(6), range(6)):
        down, across = (positions[query] - positions[key]).tolist()
        total = 0.0
        for pair in range(4):
            by_row, by_column = (table[LAYER, head, pair].item() for table in (encoder.by_row, encoder.by_column))
            a, b = (of_pair(x[0, head], pair) for x in (q[..., query, :], k[..., key, :]))
            total += (a * b.conjugate() * cmath.exp(1j * (down * by_row + across * by_column))).real
        assert found[0, head, query, key].item() == pytest.approx(total / math.sqrt(8), abs=1e-10)


def test_mixed_rope_starts_in_two_directions_at_right_angles() -> None:
    """As ``init_random_2d_freqs`` of github.com/naver-ai/rope-vit: lengths 10^(−4i/head_dim), a direction per head."""
    encoder: Any = pe_zoo.build("mixed_rope", SMALL)
    waves = torch.complex(encoder.by_column.detach().double(), encoder.by_row.detach().double())
    assert torch.allclose(waves.abs(), torch.tensor([1, 10**-0.5] * 2, dtype=torch.float64).expand_as(waves), atol=1e-6)
    assert torch.allclose(waves[..., 2:], 1j * waves[..., :2], atol=1e-6)
    directions = waves.angle()[..., :2]
    assert torch.allclose(directions[..., 0], directions[..., 1], atol=1e-5)
    assert len(directions[..., 0].flatten().unique()) == 6


def test_alibi_2d_is_a_loop_over_euclidean_distances() -> None:
    found = bias_of(pe_zoo.build("alibi_2d", SMALL), points := places(4, 4))
    slopes = pe_zoo.build("alibi", SMALL)
    for query, key in itertools.product(range(16), range(16)):
        distance = math.dist(points[query].tolist(), points[key].tolist())
        line = bias_of(slopes, torch.tensor([1.0, 0.0]), 0)[:, 0, 1]
        assert torch.allclose(found[:, query, key], distance * line, atol=1e-6)


# -------------------------------------------------------------------------------------------- other libraries


def test_axial_rope_agrees_with_the_vision_model_of_qwen2_vl() -> None:
    """Which has the row first, and pairs i with i + head_dim/2."""
    config = Qwen2VLConfig().vision_config
    config.embed_dim, config.num_heads, config.num_attention_heads = 24, 3, 3
    config.rope_parameters = {"rope_type": "axial", "rope_theta": 100.0}
    points = places(4, 3)
    cos, sin = qwen.Qwen2VLVisionRotaryEmbedding(config)(torch.zeros(1), points.T[None])
    cos, sin = (part.reshape(12, 8) for part in (cos, sin))
    q, k = (x.float() for x in heads(points))
    # From pairs (2i, 2i + 1), columns first, to theirs.
    theirs = [4, 6, 0, 2, 5, 7, 1, 3]
    turned = qwen.apply_rotary_pos_emb_vision(*(x[0].transpose(0, 1)[..., theirs] for x in (q, k)), cos, sin)
    expected = torch.einsum("qhd,khd->hqk", *turned) / 8**0.5
    assert torch.allclose(pe_zoo.scores(pe_zoo.build("axial_rope", SMALL), q, k, points)[0], expected, atol=1e-5)


def test_sinusoidal_2d_is_that_of_vit_mae() -> None:
    config = ViTMAEConfig(hidden_size=24, image_size=20, patch_size=4)
    embeddings = ViTMAEEmbeddings(config)
    embeddings.initialize_weights()
    expected = embeddings.position_embeddings[0, 1:].detach()
    found = pe_zoo.build("sinusoidal_2d", SMALL).embed(torch.zeros(1, 25, 24), places(5, 5)[None])[0]
    assert torch.allclose(found, expected, atol=1e-6)


def test_learned_2d_is_that_of_detr() -> None:
    assert DetrConfig().position_embedding_type == "sine", "the learned one is their other choice"
    theirs, ours = DetrLearnedPositionEmbedding(12), fresh("learned_2d", num_rows=50)
    with torch.no_grad():
        theirs.row_embeddings.weight.copy_(ours.rows)
        theirs.column_embeddings.weight.copy_(ours.columns)
    expected = theirs(torch.Size([1, 24, 3, 5]), "cpu", torch.float32)[0].flatten(1).T
    found = ours.embed(torch.zeros(1, 15, 24), places(3, 5)[None])[0]
    assert torch.allclose(found, expected, atol=1e-6)


def test_swin_is_that_of_transformers() -> None:
    theirs, ours = SwinRelativePositionBias(3, (5, 5)), fresh("swin", window=5)
    with torch.no_grad():
        theirs.relative_position_bias_table.copy_(ours.table[LAYER].flatten(0, 1))
    assert torch.allclose(bias_of(ours, places(5, 5)).float(), theirs()[0].detach(), atol=1e-6)


def test_log_cpb_is_that_of_transformers() -> None:
    theirs, ours = Swinv2SelfAttention(Swinv2Config(), 24, 3, 4), fresh("log_cpb", window=4)
    mlp = theirs.continuous_position_bias_mlp
    with torch.no_grad():
        for layer, module in ((0, ours.hidden[LAYER]), (2, ours.out[LAYER])):
            for name, parameter in module.named_parameters():
                mlp[layer].get_parameter(name).copy_(parameter)
        table = 16 * mlp(theirs.relative_coords_table).view(-1, 3).sigmoid()
    expected = table[theirs.relative_position_index.view(-1)].view(16, 16, 3).permute(2, 0, 1)
    assert torch.allclose(bias_of(ours, places(4, 4)).float(), expected, atol=1e-5)


# ------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("axial_rope", (6,), r"axial_rope takes positions of shape \(length, 2\) or \(batch, length, 2\); got \(6,\)"),
        ("swin", (1, 6, 3), r"swin takes positions of shape \(length, 2\) .* got \(1, 6, 3\)"),
        ("rope", (1, 6, 2), r"rope takes positions of shape \(length,\) or \(batch, length\); got \(1, 6, 2\)"),
    ],
)
def test_positions_of_other_axes_are_unsupported(name: str, shape: tuple[int, ...], message: str) -> None:
    x = torch.zeros(1, 3, 6, 8)
    with pytest.raises(Unsupported, match=f"^{message}$"):
        pe_zoo.scores(pe_zoo.build(name, SMALL), x, x, torch.zeros(shape))


@pytest.mark.parametrize(("name", "dim"), [("axial_rope", 6), ("mixed_rope", 2)])
def test_a_head_that_four_does_not_divide_is_refused(name: str, dim: int) -> None:
    with pytest.raises(ValueError, match=f"^{name} .* needs a head_dim that 4 divides; got {dim}"):
        pe_zoo.build(name, Geometry(model_dim=dim, num_heads=1, num_layers=1, train_length=4))


def test_a_width_that_four_does_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^sinusoidal_2d .* got 6, use 4 or 8$"):
        pe_zoo.build("sinusoidal_2d", Geometry(model_dim=6, num_heads=1, num_layers=1, train_length=4))


def test_layers_take_no_encoder_of_a_grid() -> None:
    with pytest.raises(ValueError, match="axial_rope takes places in a grid"):
        pe_zoo.build("layered", SMALL, layers=("axial_rope",))
