"""Rotary encoders that move far tokens: their distances by hand, and their scores by a loop."""

from __future__ import annotations

import cmath
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import pe_zoo
from pe_zoo import Encoder, Geometry

Distance = Callable[[int, int], float]


def golden() -> Any:
    return json.loads((Path(__file__).parent / "golden" / "regrouped.json").read_text(encoding="utf-8"))


def build(name: str, train_length: int, head_dim: int = 2, **knobs: Any) -> Encoder:
    geometry = Geometry(model_dim=2 * head_dim, num_heads=2, num_layers=1, train_length=train_length)
    return pe_zoo.build(name, geometry, **knobs)


# -------------------------------------------------------------------------------------- distances worked by hand


def apart(encoder: Encoder, length: int) -> Tensor:
    """Distances of the last query from all keys, from the products of the slowest pair of a wide head."""
    head_dim = encoder.geometry.head_dim
    slow = 10000.0 ** -((head_dim - 2) / head_dim)
    here, there = torch.zeros(2, 1, 2, length, head_dim, dtype=torch.float64)
    here[..., -2] = 1
    found = []
    for dim in (-2, -1):
        there.zero_()[..., dim] = 1
        found.append(pe_zoo.scores(encoder, here, there)[0, 0, -1])
    return torch.atan2(found[1], found[0]) / slow


def test_self_extend_counts_in_groups_beyond_its_window() -> None:
    encoder = build("self_extend", 7, head_dim=8, factor=10 / 7, window=4)
    expected = torch.tensor(golden()["self_extend"], dtype=torch.float64)
    torch.testing.assert_close(apart(encoder, 10).abs(), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize(("leak", "key"), [(0.0, "rerope_window_4"), (0.5, "rerope_window_4_leak_half")])
def test_rerope_stops_counting_at_its_window_or_counts_less(leak: float, key: str) -> None:
    encoder = build("rerope", 7, head_dim=8, window=4, leak=leak)
    expected = torch.tensor(golden()[key], dtype=torch.float64)
    torch.testing.assert_close(apart(encoder, 10).abs(), expected, atol=1e-6, rtol=0)


def test_dual_chunk_keeps_the_neighbours_of_a_chunk_and_no_distance_beyond_training() -> None:
    encoder = build("dual_chunk", 10, head_dim=8, chunk=6, window=4)
    told = golden()
    expected = torch.tensor(told["dual_chunk_last"], dtype=torch.float64)
    torch.testing.assert_close(apart(encoder, 18).abs(), expected, atol=1e-6, rtol=0)
    of_first_key = [apart(encoder, length)[0].abs().item() for length in range(7, 13)]
    assert of_first_key == pytest.approx(told["dual_chunk_places_of_queries_next"], abs=1e-6)


# -------------------------------------------------------------------------------------------------------- a loop


def self_extended(i: int, j: int) -> float:
    if i - j < 8:
        return i - j
    return i // 4 + 8 - 8 // 4 - j // 4  # groups of ⌈(3.25 · 32 − 8) / (32 − 8)⌉


def rectified(i: int, j: int) -> float:
    return i - j if i - j < 4 else 4


def leaky(i: int, j: int) -> float:
    return i - j if i - j < 4 else 4 + 0.25 * (i - j - 4)


def dual(i: int, j: int) -> float:
    chunks = i // 22 - j // 22
    if chunks == 0:
        return i - j
    if chunks == 1:
        return min(i % 22 + 22, 23) - j % 22
    return min(2 * 22 - 1, 23) - j % 22


CASES: list[tuple[str, dict[str, Any], Distance]] = [
    ("self_extend", {"factor": 3.25}, self_extended),
    ("rerope", {}, rectified),
    ("rerope", {"leak": 0.25}, leaky),
    ("dual_chunk", {}, dual),
]


@pytest.mark.parametrize(("name", "knobs", "distance"), CASES, ids=lambda part: getattr(part, "__name__", str(part)))
def test_scores_by_a_loop(name: str, knobs: dict[str, Any], distance: Distance) -> None:
    encoder, length, head_dim = build(name, 32, head_dim=8, **knobs), 70, 8
    q, k = torch.randn(2, 1, 2, length, head_dim, dtype=torch.float64)
    found = pe_zoo.scores(encoder, q, k)
    far = 0
    for i in range(0, length, 3):
        for j in range(i + 1):
            score = 0.0
            for pair in range(head_dim // 2):
                here = complex(*q[0, 1, i, 2 * pair : 2 * pair + 2].tolist())
                there = complex(*k[0, 1, j, 2 * pair : 2 * pair + 2].tolist())
                turn = cmath.exp(1j * distance(i, j) * 10000 ** (-2 * pair / head_dim))
                score += (here * turn * there.conjugate()).real
            assert found[0, 1, i, j].item() == pytest.approx(score / math.sqrt(head_dim), abs=1e-10)
            far += distance(i, j) != i - j
    assert far > 100, "hardly a far pair was compared"


# ------------------------------------------------------------------------------------------- what they are made for


@pytest.mark.parametrize(("name", "knobs"), [("self_extend", {"factor": 4.0}), ("dual_chunk", {}), ("rerope", {})])
def test_no_distance_exceeds_those_trained(name: str, knobs: dict[str, Any]) -> None:
    encoder = build(name, 32, head_dim=8, **knobs)
    assert apart(encoder, 128).abs().max() < 32 + 1e-6
    assert apart(encoder, 128).abs().max() > 3


def test_self_extend_at_factor_one_is_rope_at_fractions_too() -> None:
    q, k = torch.randn(2, 1, 2, 40, 8, dtype=torch.float64)
    positions = torch.arange(40) / 3
    one, rope = (build(name, 16, 8, **knobs) for name, knobs in (("self_extend", {"factor": 1.0}), ("rope", {})))
    assert torch.equal(pe_zoo.scores(one, q, k, positions), pe_zoo.scores(rope, q, k, positions))


def test_a_window_that_leaves_no_place_for_groups_is_refused() -> None:
    with pytest.raises(ValueError, match="self_extend window=32 must be below train_length=32"):
        build("self_extend", 32, window=32)
