"""Numbers of untrained encoders: each definition against a hand-worked value or a naive loop, and both ways round."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from support import Command, subject_of
from torch import Tensor

import pe_zoo
from experiments.measures.length_extrapolation import measure as length_extrapolation
from experiments.measures.structure import behaviour, vectors
from experiments.measures.structure import kernel as shapes
from experiments.measures.structure import measure as structure
from experiments.measures.structure.behaviour import relative_distances
from experiments.measures.structure.kernel import exact, kernel, kernel_weights
from experiments.measures.structure.numbers import numbers
from experiments.model.layout import Layout
from experiments.model.streams import initialising, stream
from experiments.model.transformer import Transformer
from experiments.rows.row import METRICS, Row, slice_name
from experiments.tasks import tasks
from experiments.training.evaluate import Subject
from pe_zoo import Encoder, Geometry, Unsupported
from pe_zoo._contract.relatives import score_distance

GEOMETRY = Geometry(model_dim=16, num_heads=2, num_layers=2, train_length=9)
REACH, SHIFTS = 4, (1, 40)
LENGTH = REACH * GEOMETRY.train_length
TWO_WAYS = [name for name in pe_zoo.names() if not pe_zoo.get(name).causal_only]
METRIC_NAMES = [
    "translation_invariance",
    "monotonicity",
    "rank_correlation",
    "score_shift_change",
    "half_life",
    "window_99",
    "attention_entropy",
    "entropy_growth",
    "direction_awareness",
    "uncovered",
    "receptive_field",
    "shift_map_residual",
    "code_collisions",
    "code_range",
    "wavelength",
    "frequency_error",
]
OF_CODES = [name for name in METRIC_NAMES if name.startswith(("code", "shift_map", "frequency"))]


def subject(
    encoder: str | Callable[[Geometry], Encoder],
    *,
    causal: bool = True,
    positions: str = "sequential",
    layout: Layout | None = None,
    numbering_knobs: dict[str, Any] | None = None,
    **knobs: Any,
) -> Subject:
    task = tasks.build("copy", train_length=4)

    def model() -> Transformer:
        with initialising(0, "encoder"):
            built = pe_zoo.build(encoder, GEOMETRY, **knobs) if isinstance(encoder, str) else encoder(GEOMETRY)
        with initialising(0, "trunk"):
            return Transformer(task.vocab_size, GEOMETRY, built, causal=causal, layout=layout)

    return Subject(
        model=model(),
        initial=model,
        trained=False,
        task=task,
        numbering=pe_zoo.numberings.build(positions, **(numbering_knobs or {})),
        seed=0,
        labels={
            "run_id": "r",
            "encoder": str(encoder),
            "positions": positions,
            "task": "copy",
            "seed": 0,
            "train_length": 4,
        },
    )


def measured(encoder: str | Callable[[Geometry], Encoder], **how: Any) -> dict[tuple[str, str], Row]:
    rows = numbers(subject(encoder, **how), reach=REACH, shifts=SHIFTS, draws=2)
    found = {(row.metric, slice_name(row)): row for row in rows}
    assert len(found) == len(rows), "no measurement twice"
    return found


def value(rows: dict[tuple[str, str], Row], metric: str, condition: str = "") -> float:
    row = rows[metric, condition]
    assert row.status == "ok"
    return row.value


class OnRequest(dict[str, dict[tuple[str, str], Row]]):
    """Rows of each encoder, measured once by each process that needs them."""

    def __missing__(self, name: str) -> dict[tuple[str, str], Row]:
        self[name] = measured(name)
        return self[name]


@pytest.fixture(scope="module")
def everything() -> dict[str, dict[tuple[str, str], Row]]:
    return OnRequest()


class Ramp(Encoder):
    """Adds the position to every dimension: codes that grow, and scores that no shift leaves alone."""

    name = "ramp"

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + positions.unsqueeze(-1).to(x.dtype)


class Period(Encoder):
    """Adds the same four vectors over and over."""

    name = "period"

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + torch.eye(4, self.geometry.model_dim, dtype=x.dtype)[positions.long() % 4]


class Farther(Encoder):
    """Looks the more, the farther."""

    name = "farther"

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: pe_zoo.Site) -> Tensor:
        return scores + site.distance.to(scores.dtype)


class Ahead(Encoder):
    """Looks ahead only, even where nothing is masked."""

    name = "ahead"

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: pe_zoo.Site) -> Tensor:
        return scores - 10 * (site.distance > 0)


class Silent(Encoder):
    """Adds nothing, but says that it does."""

    name = "silent"

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + 0


# --- what is read off a kernel --------------------------------------------------------------------------------------


def by_distance(function: Callable[[float], float], length: int = 12) -> Tensor:
    return torch.tensor([[[function(i - j) for j in range(length)] for i in range(length)]], dtype=torch.float64)


def naive_invariance(k: Tensor, *, causal: bool) -> float:
    length = len(k)
    cells = [(i, j) for i in range(length) for j in range(length) if j <= i or not causal]
    total = np.var([k[i, j] for i, j in cells])
    within = 0.0
    for d in {i - j for i, j in cells}:
        line = [k[i, j].item() for i, j in cells if i - j == d]
        within += len(line) * float(np.var(line))
    return 1 - within / len(cells) / float(total)


@pytest.mark.parametrize("causal", [True, False])
def test_translation_invariance_is_a_share_of_variance(causal: bool) -> None:
    k = torch.randn(2, 7, 7, dtype=torch.float64)
    expected = [naive_invariance(head, causal=causal) for head in k]
    assert shapes.translation_invariance(k, causal=causal).tolist() == pytest.approx(expected)
    assert all(0 <= share < 0.9 for share in expected)


def test_translation_invariance_of_known_kernels() -> None:
    assert shapes.translation_invariance(by_distance(lambda d: -abs(d) + math.cos(d)), causal=False).item() == 1
    assert shapes.translation_invariance(by_distance(lambda d: 5.0), causal=True).item() == 1
    by_key = torch.arange(40.0, dtype=torch.float64).expand(1, 40, 40)
    assert shapes.translation_invariance(by_key, causal=False).item() == pytest.approx(0.5, abs=0.05)
    hidden = by_distance(lambda d: -torch.inf if d == 0 else -d)
    assert shapes.translation_invariance(hidden, causal=True).item() == pytest.approx(1)


def test_the_curve_is_the_mean_over_queries() -> None:
    k = torch.randn(2, 6, 6, dtype=torch.float64)
    for head, d in itertools.product(range(2), range(6)):
        expected = np.mean([k[head, i, i - d].item() for i in range(d, 6)])
        assert shapes.curve(k)[head, d].item() == pytest.approx(expected)


def test_falling_steps() -> None:
    line = torch.tensor([[5.0, 4.0, 4.0, 3.0, 3.5], [-torch.inf, 4.0, 3.0, 2.0, 2.0 - 1e-12]], dtype=torch.float64)
    assert shapes.falling_steps(line).tolist() == [0.5, pytest.approx(2 / 3)]
    assert shapes.falling_steps(line[:1], within=1).tolist() == [1.0]
    assert shapes.falling_steps(torch.ones(1, 5, dtype=torch.float64)).tolist() == [0.0]
    with pytest.raises(Unsupported, match="fewer than two distances"):
        shapes.falling_steps(line[:, :1])


def test_rank_correlation_is_spearmans() -> None:
    line = torch.randn(3, 9, dtype=torch.float64)
    line[2, :3] = 0.25  # ties
    expected = [spearmanr(-np.arange(9), row.numpy()).statistic for row in line]
    assert shapes.rank_correlation(line).tolist() == pytest.approx(expected)
    down = torch.arange(9.0, 0, -1, dtype=torch.float64)
    known = torch.stack([down, -down, torch.full((9,), 3.0, dtype=torch.float64)])
    assert shapes.rank_correlation(known).tolist() == pytest.approx([1, -1, 0])
    noisy = 3 + 1e-14 * torch.randn(1, 9, dtype=torch.float64)
    assert shapes.rank_correlation(noisy).tolist() == [0], "rounding is no order"


def test_window_and_entropy() -> None:
    weights = torch.tensor([[0.0, 0.25, 0.25, 0.5], [0.25, 0.25, 0.25, 0.25], [0.125, 0.0, 0.0, 0.0]]).double()
    assert shapes.window(weights, 0.5).tolist() == [1, 2, 4]
    assert shapes.window(weights, 0.99).tolist() == [3, 4, 4]
    assert shapes.entropy(weights).tolist() == pytest.approx([1.5 * math.log(2), math.log(4), 0])
    assert shapes.entropy(weights / 3).tolist() == pytest.approx([1.5 * math.log(2), math.log(4), 0])
    for read in (lambda w: shapes.window(w, 0.5), shapes.entropy):
        with pytest.raises(Unsupported, match="no weight"):
            read(torch.zeros(1, 4))


def test_the_slope_of_entropy() -> None:
    lengths = [9, 18, 36, 72]
    logs = torch.tensor(lengths).double().log()
    entropies = torch.stack([logs, torch.full_like(logs, 2.0), 0.5 * logs + 1, torch.randn(4).double()], -1)
    expected = [1, 0, 0.5, np.polyfit(logs.numpy(), entropies[:, 3].numpy(), 1)[0]]
    assert shapes.slope(lengths, entropies).tolist() == pytest.approx(expected, abs=1e-12)


# --- what is read off codes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [12, 36, 200])
def test_frequencies_of_sinusoids(length: int) -> None:
    place = torch.arange(length).double().unsqueeze(-1)
    w = torch.tensor([3.0, math.pi / 2, 1.0, 0.1, 1e-2, 1e-4, 1e-4 / length]).double()
    for phase in (0.0, 0.4, math.pi / 2):
        found = vectors.frequencies(2.5 * torch.sin(w * place + phase))
        assert found.tolist() == pytest.approx(w.tolist(), rel=1e-4)
    assert vectors.frequencies(torch.cos(5.0 * place)).item() == pytest.approx(2 * math.pi - 5), (
        "folded at whole places"
    )


def test_what_is_no_sinusoid() -> None:
    p = torch.arange(36).double()
    others = [
        torch.full_like(p, 3.0),
        torch.zeros_like(p),
        2 * p - 5,
        p.square(),
        torch.exp(-0.1 * p),
        torch.exp(0.01 * p) * torch.cos(p),
        1 + torch.cos(0.3 * p),
        torch.cos(0.3 * p) + torch.cos(0.4 * p),
        torch.cos(0.01 * p.square()),
        torch.randn(36).double(),
        torch.cos(0.3 * p) + 1e-3 * torch.randn(36).double(),
    ]
    assert vectors.frequencies(torch.stack(others, -1)).isnan().all()
    with pytest.raises(Unsupported, match="too few"):
        vectors.frequencies(torch.ones(7, 1).double())


@pytest.mark.parametrize(("name", "base"), [("sinusoidal", 100.0), ("sinusoidal", 10000.0), ("rope", 500000.0)])
def test_wavelengths_are_those_of_the_formula(name: str, base: float) -> None:
    rows = measured(name, base=base)
    dim = GEOMETRY.model_dim if name == "sinusoidal" else GEOMETRY.head_dim
    for d in range(dim):
        expected = 2 * math.pi * base ** (2 * (d // 2) / dim)
        assert value(rows, "wavelength", f"dimension={d}") == pytest.approx(expected, rel=1e-4)
    assert sum(metric == "wavelength" for metric, _ in rows) == dim


def test_heads_that_rotate_differently_have_own_wavelengths() -> None:
    class Heads(Encoder):
        name = "heads"

        def rotate(self, q: Tensor, k: Tensor, site: pe_zoo.Site) -> tuple[Tensor, Tensor]:
            w = torch.tensor([0.5, 0.25], dtype=q.dtype).view(2, 1, 1)
            return q * torch.cos(site.query_positions[..., None, :, None] * w), k

    rows = measured(Heads)
    assert value(rows, "wavelength", "head=0, dimension=3") == pytest.approx(4 * math.pi)
    assert value(rows, "wavelength", "head=1, dimension=3") == pytest.approx(8 * math.pi)


def test_the_base_is_recovered_or_refused() -> None:
    def series(base: float, dim: int = 8) -> Tensor:
        return base ** (-torch.arange(dim // 2).double() * 2 / dim).repeat_interleave(2)

    shuffled = series(12345.0)[torch.randperm(8)]
    assert vectors.base_of(shuffled) == 12345
    holed = series(10.0).clone()
    holed[3] = torch.nan
    for wrong, why in (
        (holed, "two of each"),
        (torch.linspace(1, 0.1, 8).double(), "two of each"),
        (torch.linspace(1, 0.1, 4).double().repeat_interleave(2), "no geometric series"),
        (0.5 * series(10.0), "starts at 1"),
        (torch.ones(8).double(), "no geometric series"),
        (torch.ones(2).double(), "no series"),
    ):
        with pytest.raises(Unsupported, match=why):
            vectors.base_of(wrong)


def test_frequency_errors_against_numpy_and_in_rows() -> None:
    errors = vectors.frequency_errors(10000.0, 64)
    even = np.arange(0, 64, 2)
    true = np.array([10000.0 ** (-i / 64) for i in even.tolist()])
    log_way = np.exp(even.astype(np.float32) * np.float32(-math.log(10000.0) / 64))
    power_way = np.float32(1) / np.float32(10000) ** (even.astype(np.float32) / np.float32(64))
    for way, computed in (("exp of a logarithm", log_way), ("power", power_way)):
        assert errors[way] == pytest.approx(np.max(np.abs(computed - true) / true), abs=1.3e-7), "one last place"
        assert 0 < errors[way] < 1e-5
    rows = measured("sinusoidal")
    expected = vectors.frequency_errors(10000.0, GEOMETRY.model_dim)
    assert {way: value(rows, "frequency_error", way) for way in vectors.WAYS} == expected
    assert measured("random_fourier")["frequency_error", "power"].status == "unsupported"


def test_shift_maps_exist_for_sinusoids_and_not_for_tables(everything: dict[str, dict[tuple[str, str], Row]]) -> None:
    p = torch.arange(30).double().unsqueeze(-1)
    waves = torch.cat([f(p * torch.tensor([1.0, 0.1]).double()) for f in (torch.sin, torch.cos)], -1)
    (found,) = vectors.shift_maps(waves[:20], [waves[3:23]])
    turn = torch.zeros(4, 4).double()
    for i, w in enumerate((1.0, 0.1)):
        turn[i, i] = turn[2 + i, 2 + i] = math.cos(3 * w)
        turn[2 + i, i], turn[i, 2 + i] = math.sin(3 * w), -math.sin(3 * w)
    assert torch.allclose(found, turn, atol=1e-10)
    for offset in ("shift=1", "held out, shift=32"):
        assert value(everything["sinusoidal"], "shift_map_residual", offset) < 1e-9
        assert value(everything["learned"], "shift_map_residual", offset) > 0.5
    assert value(measured(Silent), "shift_map_residual", "shift=1") == 0


def test_collisions_of_codes_against_loops() -> None:
    some = torch.randn(300, 3).double()
    coarse = some.round(decimals=1) * torch.tensor([1.0, 0.0, -0.0]).double()
    equal = sum(bool((coarse[i] == coarse[j]).all()) for i in range(300) for j in range(i))
    assert vectors.collisions(coarse, torch.float32) == equal > 0
    near = torch.tensor([[1.0], [1.0 + 1e-4], [1.1]]).double()
    assert vectors.collisions(near, torch.float32) == 0
    assert vectors.collisions(near, torch.bfloat16) == 1


def test_codes_that_repeat_collide() -> None:
    rows = measured(Period)
    per_code = LENGTH // 4
    for dtype in ("float32", "bfloat16"):
        assert (
            value(rows, "code_collisions", f"{dtype}, sequence_length={LENGTH}") == 4 * per_code * (per_code - 1) // 2
        )
        assert value(rows, "code_collisions", f"{dtype}, sequence_length=10000") == 4 * 2500 * 2499 // 2
    assert value(rows, "code_range", "position=1000000") == 1


def test_codes_that_grow_and_codes_that_do_not(everything: dict[str, dict[tuple[str, str], Row]]) -> None:
    ramp, waves = measured(Ramp), everything["sinusoidal"]
    assert value(ramp, "code_range", "within training") == GEOMETRY.train_length - 1
    assert value(ramp, "code_range", "beyond training") == LENGTH - 1
    assert value(ramp, "code_range", "position=1000000") == 1e6
    for condition in ("within training", "beyond training", "position=1000000"):
        assert value(waves, "code_range", condition) <= 1


# --- the kernel itself --------------------------------------------------------------------------------------------


def contents(draws: int) -> Tensor:
    return torch.randint(2, (draws, 1, 16), generator=stream(0, "k")).double() * 2 - 1


@pytest.mark.parametrize("name", ["sinusoidal", "rope", "alibi", "cope"])
def test_the_kernel_is_a_mean_over_contents(name: str) -> None:
    encoder = exact(pe_zoo.build(name, GEOMETRY))
    positions = torch.arange(11).double()
    total = torch.zeros(2, 11, 11).double()
    for content in contents(3):
        for sign in (1, -1):
            x = encoder.embed((sign * content).expand(1, 11, 16), positions)
            heads = torch.stack([x[0, :, :8], x[0, :, 8:]]).unsqueeze(0)
            total += pe_zoo.scores(encoder, heads, heads, positions, x=x)[0] / 6
    found = kernel(encoder, positions, stream(0, "k"), causal=True, draws=3)
    assert torch.allclose(found, total, atol=1e-12)


def test_the_kernel_of_rotation_is_the_sum_of_cosines() -> None:
    encoder = exact(pe_zoo.build("rope", GEOMETRY, base=50.0))
    found = kernel(encoder, torch.arange(6).double(), stream(1, "k"), causal=True, draws=1)
    w = [50.0 ** (-2 * i / 8) for i in range(4)]
    expected = by_distance(lambda d: sum(2 * math.cos(d * v) for v in w) / math.sqrt(8), 6)
    assert torch.allclose(found, expected.expand(2, 6, 6))


@pytest.mark.parametrize("name", pe_zoo.names())
def test_the_last_query_alone_is_the_last_row(name: str) -> None:
    encoder = exact(pe_zoo.build(name, GEOMETRY))
    positions = torch.arange(13).double()
    whole = kernel(encoder, positions, stream(0, "k"), causal=True, draws=2)
    last = kernel(encoder, positions, stream(0, "k"), causal=True, draws=2, queries=1)
    assert torch.allclose(last, whole[:, -1:], atol=1e-10)
    weights = kernel_weights(encoder, whole, positions, causal=True)
    assert torch.allclose(kernel_weights(encoder, last, positions, causal=True), weights[:, -1:], atol=1e-10)
    assert weights.isfinite().all()
    assert (weights.triu(1) == 0).all()
    assert (weights.sum(-1) < 1 + 1e-9).all()


# --- every encoder ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", pe_zoo.names())
def test_every_encoder_has_every_number_or_cannot(name: str, everything: dict[str, dict[tuple[str, str], Row]]) -> None:
    rows, encoder = everything[name], pe_zoo.get(name)
    assert {metric for metric, _ in rows} == set(METRIC_NAMES)
    for row in rows.values():
        assert row.experiment == "structure"
        assert row.eval_length == row.train_length == 4
        assert math.isfinite(row.value) == (row.status == "ok")
    unsupported = {metric for (metric, _), row in rows.items() if row.status == "unsupported"}
    assert ("direction_awareness" in unsupported) == encoder.causal_only
    assert (set(OF_CODES) <= unsupported) == (not encoder.overrides("embed"))
    for metric in METRIC_NAMES:
        row = rows.get((metric, ""))
        if row is not None and row.status == "ok" and metric != "wavelength":
            assert row.value >= (-1 if metric in ("rank_correlation", "entropy_growth") else 0)
    assert 0 <= value(rows, "translation_invariance") <= 1
    assert value(rows, "attention_entropy", "sequence_length=72") <= math.log(72) + 1e-9
    assert 1 <= value(rows, "half_life") <= value(rows, "window_99") <= LENGTH
    assert 1 <= value(rows, "receptive_field") <= LENGTH


@pytest.mark.parametrize("name", pe_zoo.names())
def test_scores_change_with_a_shift_where_positions_count(
    name: str, everything: dict[str, dict[tuple[str, str], Row]]
) -> None:
    changes = [value(everything[name], "score_shift_change", f"shift={shift}") for shift in SHIFTS]
    if pe_zoo.build(name, GEOMETRY).shift_invariant:
        assert changes == [0, 0]
        assert value(everything[name], "translation_invariance") == pytest.approx(1) or name in CONTEXTUAL
    else:
        assert max(changes) > 1e-3


CONTEXTUAL = ("dape_v2", "path", "selective_rope", "short_convolution")
"""Whose look back at earlier tokens is shorter at the start: a shift changes nothing, the place does."""


def test_the_distance_from_a_relative_is_that_at_the_positions_of_training() -> None:
    rows = {
        name: relative_distances(subject(name), "structure") for name in ("p_rope", "yarn", "alibi", "learned_rope")
    }
    assert not rows["alibi"]
    assert not rows["learned_rope"], "what it learns decides how far it is"
    for name in ("p_rope", "yarn"):
        (row,) = rows[name]
        encoder, rope = (pe_zoo.build(of, GEOMETRY) for of in (name, "rope"))
        assert (row.metric, row.condition) == ("relative_distance", "rope")
        assert row.value == score_distance(encoder, rope)
    (near,), (far,) = rows["p_rope"], relative_distances(subject("p_rope", positions="randomized"), "structure")
    assert far.value > 10 * near.value, "over long distances even slow pairs rotate"
    of_run = length_extrapolation.measure(subject("p_rope"), multiples=(1.0,), samples=2)
    assert next(row for row in of_run if row.metric == "relative_distance").value == near.value
    assert near.value in {row.value for row in structure.measure(subject("p_rope"), draws=2, reach=2)}


def test_a_shift_is_seen_whatever_the_hook() -> None:
    assert value(measured(Ramp), "score_shift_change", "shift=1") > 0.01
    assert value(measured(Farther), "score_shift_change", "shift=40") == 0


@pytest.mark.parametrize("name", TWO_WAYS)
def test_bidirectional_models_are_measured_too(name: str, everything: dict[str, dict[tuple[str, str], Row]]) -> None:
    rows = measured(name, causal=False)
    assert {metric for metric, _ in rows} == set(METRIC_NAMES)
    for_both = value(rows, "direction_awareness"), value(everything[name], "direction_awareness")
    assert for_both[0] == for_both[1], "causal or not, it looks both ways"


def test_left_and_right(everything: dict[str, dict[tuple[str, str], Row]]) -> None:
    for name in TWO_WAYS:
        if not pe_zoo.build(name, GEOMETRY).direction_aware:
            assert value(everything[name], "direction_awareness") == 0, name
    for name in ("sinusoidal", "rope", "learned"):
        assert value(everything[name], "direction_awareness") > 0.01
    assert value(measured(Ahead), "direction_awareness") > 0.01


def test_known_kernels(everything: dict[str, dict[tuple[str, str], Row]]) -> None:
    alibi, none, farther = everything["alibi"], everything["none"], measured(Farther)
    for condition in ("", "within, size=16"):
        assert value(alibi, "monotonicity", condition) == 1
        assert value(none, "monotonicity", condition) == value(farther, "monotonicity", condition) == 0
    assert [value(rows, "rank_correlation") for rows in (alibi, none, farther)] == pytest.approx([1, 0, -1])
    assert value(none, "half_life") == LENGTH / 2
    assert value(none, "window_99") == math.ceil(0.99 * LENGTH)
    assert value(none, "entropy_growth") == pytest.approx(1)
    for multiple in (1, 2, 4, 8):
        keys = multiple * GEOMETRY.train_length
        assert value(none, "attention_entropy", f"sequence_length={keys}") == pytest.approx(math.log(keys))
    assert value(farther, "half_life") == LENGTH
    slopes = [1 / 16, 1 / 256]
    for head, slope in enumerate(slopes):
        weights = np.exp(-slope * np.arange(LENGTH))
        back = np.cumsum(weights / weights.sum())
        assert value(alibi, "half_life", f"head={head}") == np.argmax(back >= 0.5) + 1
        assert value(alibi, "window_99", f"head={head}") == np.argmax(back >= 0.99) + 1


def test_weights_below_one_and_hidden_scores(everything: dict[str, dict[tuple[str, str], Row]]) -> None:
    """Stick-breaking over equal scores: a half, a quarter, … from the place before the query's own."""
    encoder = exact(pe_zoo.build("stick_breaking", GEOMETRY))
    expected = torch.zeros(2, 1, LENGTH).double()
    expected[..., -1] = -torch.inf
    weights = kernel_weights(encoder, expected, torch.arange(LENGTH).double(), causal=True)[0, 0]
    assert weights[-1] == 0
    assert weights[-2].item() == pytest.approx(0.5)
    assert shapes.window(weights, 0.5).item() == 2
    assert value(everything["stick_breaking"], "half_life") >= 2


# --- what training covers, and how far back a model sees ----------------------------------------------------------


def test_uncovered_cells_against_loops(everything: dict[str, dict[tuple[str, str], Row]]) -> None:
    for keys in (18, 36):
        row = everything["sinusoidal"]["uncovered", f"sequence_length={keys}"]
        table = vectors.codes(exact(pe_zoo.build("sinusoidal", GEOMETRY)), torch.arange(keys).double())
        new = 0
        for d in range(16):
            seen = table[:9, d].tolist()
            new += sum(not min(seen) - 1e-9 <= cell <= max(seen) + 1e-9 for cell in table[:, d].tolist())
        assert (row.value, row.n) == (pytest.approx(new / (16 * keys)), 16 * keys)
    assert value(everything["alibi"], "uncovered", "sequence_length=18") == 0.5
    assert value(everything["alibi"], "uncovered", "sequence_length=36") == 0.75
    nothing = everything["none"]["uncovered", "sequence_length=36"]
    assert (nothing.value, nothing.n) == (0, 0)


def test_a_numbering_that_shows_far_positions_covers_more() -> None:
    for name in ("alibi", "rope", "sinusoidal"):
        plain = value(measured(name), "uncovered", "sequence_length=36")
        far = value(
            measured(name, positions="randomized", numbering_knobs={"limit": 64}), "uncovered", "sequence_length=36"
        )
        assert far < plain / 2


def test_the_receptive_field_against_the_whole_jacobian() -> None:
    asked = subject("alibi")
    model = asked.model
    directions = torch.randn(behaviour.PROJECTIONS, 16, generator=asked.stream("structure/directions"))
    drawn = torch.randint(12, (behaviour.SEQUENCES, LENGTH), generator=asked.stream("structure/receptive field"))
    total = torch.zeros(LENGTH)
    for tokens in drawn:

        def last(embedded: Tensor) -> Tensor:
            positions = torch.arange(LENGTH).float()
            x = model.encoder.embed(embedded.unsqueeze(0), positions)
            for layer in model.layers:
                x = layer(x, positions, model.encoder)
            return model.norm(x)[0, -1]

        jacobian = torch.autograd.functional.jacobian(last, model.token_embedding.weight[tokens].detach())
        for direction in directions:
            total += torch.einsum("o,opd->pd", direction, jacobian).norm(dim=-1)
    shares = (total.flip(0).cumsum(0) / total.sum()).tolist()
    expected = next(place + 1 for place, share in enumerate(shares) if share >= 0.99)
    assert behaviour.receptive_field(asked, model, LENGTH) == expected


def test_the_way_back_is_that_of_the_model() -> None:
    model = subject("rope", layout=Layout(skip_every=2)).model
    tokens = torch.randint(12, (1, LENGTH))
    embedded, outputs = model.last_outputs(tokens, torch.arange(LENGTH).float())
    assert torch.equal(outputs, model.norm(model.hidden(tokens)[-1])[:, -1])
    assert torch.equal(embedded, model.token_embedding(tokens))


def test_a_window_bounds_the_receptive_field() -> None:
    near = value(measured("none", layout=Layout(window=3)), "receptive_field")
    assert near <= 1 + 2 * GEOMETRY.num_layers
    assert value(measured("none"), "receptive_field") > 25


# --- rows ---------------------------------------------------------------------------------------------------------


def test_a_table_that_is_too_short_is_said_not_hidden() -> None:
    rows = measured("learned", num_rows=10)
    assert {metric for metric, _ in rows} == set(METRIC_NAMES)
    for metric, condition in (
        ("translation_invariance", ""),
        ("score_shift_change", "shift=40"),
        ("attention_entropy", "sequence_length=18"),
        ("uncovered", "sequence_length=18"),
        ("receptive_field", ""),
        ("shift_map_residual", "held out, shift=1"),
        ("code_range", "beyond training"),
        ("code_collisions", "float32, sequence_length=10000"),
    ):
        assert rows[metric, condition].status == "unsupported"
    assert rows["score_shift_change", "shift=1"].status == "ok", "nine positions and one: there are ten"
    assert rows["code_range", "within training"].status == "ok"
    assert rows["direction_awareness", ""].status == "ok"


def test_the_same_twice_and_nothing_is_changed() -> None:
    asked = subject("cope")
    before = {name: p.clone() for name, p in asked.model.state_dict().items()}
    state = torch.random.get_rng_state()
    first, second = (numbers(asked, reach=2, shifts=(3,), draws=2) for _ in range(2))
    assert first == second
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(p, before[name]) for name, p in asked.model.state_dict().items())


def test_training_does_not_matter() -> None:
    asked = subject("learned")
    expected = numbers(asked, reach=2, shifts=(3,), draws=2)
    with torch.no_grad():
        for parameter in asked.model.parameters():
            parameter.add_(1.0)
    assert numbers(dataclasses.replace(asked, trained=True), reach=2, shifts=(3,), draws=2) == expected


def test_draws_and_reach_change_what_they_say() -> None:
    few, many = (numbers(subject("cope"), reach=2, shifts=(1,), draws=draws) for draws in (1, 8))
    assert few != many
    shorter, longer = ({r.metric: r for r in numbers(subject("none"), reach=n, shifts=(1,), draws=1)} for n in (2, 3))
    assert shorter["half_life"].n == 18
    assert longer["half_life"].n == 27


def test_every_metric_has_a_name_for_readers() -> None:
    assert set(METRIC_NAMES) <= set(METRICS)


def test_on_the_command_line(command: Command) -> None:
    done = command("encoder=sinusoidal", "experiment=structure", "model=tiny", "task.train_length=4", "name=look")
    assert done.code == 0, done.err
    (path,) = Path("results/look/runs").glob("*/rows.csv")
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert set(METRIC_NAMES) <= {row["metric"] for row in rows}
    longest = max(float(row["value"]) for row in rows if row["metric"] == "wavelength")
    assert longest < 2 * math.pi * 10000


def test_an_encoder_of_a_grid_is_none_of_its_business() -> None:
    with pytest.raises(Unsupported, match="encoders of sequences; mixed_rope takes a grid"):
        structure.measure(subject_of("mixed_rope", task=tasks.build("above", train_length=4)))
