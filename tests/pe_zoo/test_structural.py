"""PoPE, LieRE, Selective RoPE, PaTH and stick-breaking: vectors by hand, loops from the papers, other libraries."""

from __future__ import annotations

import cmath
import copy
import json
import math
from collections.abc import Callable
from pathlib import Path as File
from typing import Any

import pytest
import torch
from torch import Tensor

import pe_zoo
from experiments.model.transformer import Transformer
from pe_zoo import Encoder, Geometry, Site
from pe_zoo import path as path_module
from pe_zoo.liere import LieRE
from pe_zoo.path import PaTH, lost_on_the_way
from pe_zoo.pope import PoPE
from pe_zoo.selective_rope import SelectiveRoPE
from pe_zoo.stick_breaking import StickBreaking

Maker = Callable[..., Encoder]
HEADS, HEAD_DIM, LENGTH = 2, 6, 7
SIZES = Geometry(model_dim=HEADS * HEAD_DIM, num_heads=HEADS, num_layers=2, train_length=5)


def golden(name: str) -> Any:
    return json.loads((File(__file__).parent / "golden" / f"{name}.json").read_text(encoding="utf-8"))


def single(head_dim: int, train_length: int = 4) -> Geometry:
    return Geometry(model_dim=head_dim, num_heads=1, num_layers=1, train_length=train_length)


def stirred(make: Maker, geometry: Geometry = SIZES, **knobs: Any) -> Any:
    """A float64 encoder with parameters away from where they start."""
    encoder = make(geometry, **knobs).double().requires_grad_(False)
    for parameter in encoder.parameters():
        parameter.add_(torch.randn_like(parameter))
    return encoder


def assign(encoder: Any, **values: Any) -> None:
    with torch.no_grad():
        for name, value in values.items():
            parameter = getattr(encoder, name)
            parameter.copy_(torch.as_tensor(value, dtype=parameter.dtype).expand_as(parameter))


def draws(length: int = LENGTH, batch: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and the layer's input, float64."""
    q, k = (torch.randn(batch, HEADS, length, HEAD_DIM, dtype=torch.float64) for _ in range(2))
    return q, k, torch.randn(batch, length, SIZES.model_dim, dtype=torch.float64)


def site_of(positions: Tensor, x: Tensor | None = None, layer: int = 0, first: int = 0) -> Site:
    """A causal site; queries are the rows from ``first`` on."""
    rows = slice(first, positions.shape[-1])
    return Site(
        layer=layer,
        query_positions=positions[..., rows],
        key_positions=positions,
        rows=rows,
        mask=torch.ones(positions.shape[-1], positions.shape[-1], dtype=torch.bool).tril()[rows],
        causal=True,
        x=x,
    )


def seen(scores: Tensor) -> Tensor:
    """Keys ahead of the query set to 0."""
    return scores.tril()


def close(found: Tensor, expected: Tensor | list[Any], error: float = 1e-10) -> None:
    torch.testing.assert_close(found, torch.as_tensor(expected, dtype=found.dtype), atol=error, rtol=error)


# ----------------------------------------------------------------------------------------------------------- PoPE


def check_pope_vectors(make: Maker) -> None:
    table = golden("pope")
    head_dim = table["head_dim"]
    encoder: Any = make(single(head_dim)).double()
    zeros = torch.zeros(1, 1, 3, head_dim, dtype=torch.float64)
    for phase, values in ((0.0, table["phase_zero"]), (-math.pi / 2, table["phase_minus_quarter_turn"])):
        assign(encoder, turns=phase)
        found = pe_zoo.scores(encoder, zeros, zeros)[0, 0, 2].flip(0) * head_dim**0.5
        close(found[: len(values)], values, 1e-6)


def check_pope_loop(make: Maker) -> None:
    encoder = stirred(make, base=100.0)
    q, k, _ = draws()
    positions = torch.randint(0, 50, (2, LENGTH)).float() + 0.25
    found = pe_zoo.scores(encoder, q, k, positions, layer=1, causal=False)
    for b in range(2):
        for h in range(HEADS):
            for i in range(LENGTH):
                for j in range(LENGTH):
                    total = 0.0
                    for c in range(HEAD_DIM):
                        magnitude = math.log1p(math.exp(q[b, h, i, c])) * math.log1p(math.exp(k[b, h, j, c]))
                        turned = (positions[b, j] - positions[b, i]).item() * 100.0 ** (-c / HEAD_DIM)
                        total += magnitude * math.cos(turned + encoder.turns[1, h, c].item())
                    assert found[b, h, i, j].item() == pytest.approx(total / HEAD_DIM**0.5, rel=1e-10, abs=1e-10)


class PhaseOnTheQuery(PoPE):
    """The sign of the phase turned round."""

    def phases(self, layer: int) -> Tensor:
        return -super().phases(layer)


class HalfTheFrequencies(PoPE):
    """RoPE's spectrum, which falls twice as fast."""

    def __init__(self, geometry: Geometry, *, base: float = 10000.0) -> None:
        super().__init__(geometry, base=base**2)


def test_pope_vectors_by_hand() -> None:
    check_pope_vectors(PoPE)


def test_pope_by_a_loop() -> None:
    check_pope_loop(PoPE)


@pytest.mark.parametrize("fake", [PhaseOnTheQuery, HalfTheFrequencies])
@pytest.mark.parametrize("check", [check_pope_vectors, check_pope_loop])
def test_a_wrong_pope_is_caught(fake: Maker, check: Callable[[Maker], None]) -> None:
    with pytest.raises(AssertionError):
        check(fake)


def test_pope_agrees_with_x_transformers() -> None:
    library = pytest.importorskip("x_transformers.x_transformers")
    encoder = PoPE(SIZES)
    with torch.no_grad():  # without it, theirs cannot draw its own phases
        theirs = library.PolarEmbedding(HEAD_DIM, HEADS, bias_uniform_init=True)
        encoder.turns[0] = theirs.learned_bias[:, 0]
        frequencies, phase = theirs(torch.arange(40))
        q, k = (torch.randn(1, HEADS, 40, HEAD_DIM) for _ in range(2))
        their_q, their_k = (
            library.apply_polar_pos_emb(q, frequencies),
            library.apply_polar_pos_emb(k, frequencies + phase),
        )
        our_q, our_k = encoder.rotate(q, k, site_of(torch.arange(40.0)))
        # Theirs has float32 angles: at position 40 they are off by about 2e-6 radians.
        close(our_q, their_q, 1e-5)
        close(our_k, their_k, 1e-5)
        close(pe_zoo.scores(encoder, q, k), their_q @ their_k.mT * HEAD_DIM**-0.5, 2e-5)


def test_pope_agrees_closely_with_x_transformers_in_float64() -> None:
    library = pytest.importorskip("x_transformers.x_transformers")
    encoder = stirred(PoPE)
    q, k = (torch.randn(1, HEADS, 40, HEAD_DIM) for _ in range(2))
    theirs = library.PolarEmbedding(HEAD_DIM, HEADS).double()
    theirs.inv_freq = 10000.0 ** (-torch.arange(HEAD_DIM).double() / HEAD_DIM)
    frequencies, _ = theirs(torch.arange(40))
    their_k = library.apply_polar_pos_emb(k.double(), frequencies + encoder.turns[0].unsqueeze(-2))
    _, our_k = encoder.rotate(q.double(), k.double(), site_of(torch.arange(40.0)))
    close(our_k, their_k, 5e-7)  # they take the softplus in float32


def test_pope_phases_stay_in_range_and_wrap() -> None:
    q, k, _ = draws()
    encoder = stirred(PoPE)
    before = pe_zoo.scores(encoder, q, k)
    with torch.no_grad():
        encoder.turns.add_(4 * math.pi)
    close(pe_zoo.scores(encoder, q, k), before)
    assert (encoder.phases(0) <= 0).all()
    assert (encoder.phases(0) > -2 * math.pi).all()
    assert (PoPE(SIZES).phases(1) == 0).all()
    drawn = PoPE(SIZES, phase="uniform").turns
    assert -2 * math.pi <= drawn.min() < -3
    assert -3 < drawn.max() <= 0


def test_pope_without_phases_takes_ahead_for_behind() -> None:
    q, k, _ = draws(5)
    positions = torch.arange(5.0)
    assert torch.equal(PoPE(SIZES).phases(0), torch.zeros(HEADS, HEAD_DIM, dtype=torch.float64))
    close(pe_zoo.scores(PoPE(SIZES), q, k, positions), pe_zoo.scores(PoPE(SIZES), q, k, -positions))


# ---------------------------------------------------------------------------------------------------------- LieRE


def turned(encoder: Encoder, x: Tensor, positions: Tensor) -> Tensor:
    q, k = encoder.rotate(x, x, site_of(positions))
    assert torch.equal(q, k)
    return q


def check_liere_vectors(make: Maker) -> None:
    table = golden("liere")
    for entries, rotation in (
        ([n / table["upper_divided_by"] for n in table["upper"]], torch.tensor(table["rotation_times_9"]) / 9),
        ([1.0], torch.tensor(table["plane_quarter_turn"])),
    ):
        dim = rotation.shape[-1]
        encoder: Any = make(single(dim, train_length=4)).double()
        assign(encoder, upper=torch.tensor(entries).double() * math.pi / 2)
        columns = [turned(encoder, axis.expand(1, 1, 1, dim), torch.tensor([4.0])) for axis in torch.eye(dim).double()]
        close(torch.cat(columns, -2)[0, 0].mT, rotation.double(), 1e-7)


def check_liere_by_distance(make: Maker, block_fraction: float = 0.5) -> None:
    """Scores from the distance alone, by another library's matrix exponential."""
    linalg = pytest.importorskip("scipy.linalg")
    encoder = stirred(make, block_fraction=block_fraction)
    block = max(2, int(HEAD_DIM * block_fraction))
    q, k, _ = draws()
    positions = torch.randint(0, 12, (2, LENGTH)).float() + 0.5
    found = pe_zoo.scores(encoder, q, k, positions, layer=1, causal=False)
    for h in range(HEADS):
        generator = torch.zeros(HEAD_DIM, HEAD_DIM, dtype=torch.float64)
        for n in range(HEAD_DIM // block):
            stored = iter(encoder.upper[1, h, n].tolist())
            for i in range(block):
                for j in range(i + 1, block):
                    generator[n * block + i, n * block + j] = entry = next(stored)
                    generator[n * block + j, n * block + i] = -entry
        for b in range(2):
            for i in range(LENGTH):
                for j in range(LENGTH):
                    apart = (positions[b, j] - positions[b, i]).item() / SIZES.train_length
                    rotation = torch.from_numpy(linalg.expm(apart * generator.numpy()))
                    expected = q[b, h, i] @ rotation @ k[b, h, j] / HEAD_DIM**0.5
                    assert found[b, h, i, j].item() == pytest.approx(expected.item(), rel=1e-9, abs=1e-9)


class Transposed(LieRE):
    def generators(self, layer: int) -> Tensor:
        return super().generators(layer).mT


class NotSkew(LieRE):
    def generators(self, layer: int) -> Tensor:
        return super().generators(layer).abs()


def test_liere_vectors_by_hand() -> None:
    check_liere_vectors(LieRE)


@pytest.mark.parametrize("block_fraction", [1.0, 0.7, 0.5, 0.1])
def test_liere_scores_equal_scipys_matrix_exponential(block_fraction: float) -> None:
    check_liere_by_distance(LieRE, block_fraction)


@pytest.mark.parametrize("fake", [Transposed, NotSkew])
@pytest.mark.parametrize("check", [check_liere_vectors, check_liere_by_distance])
def test_a_wrong_liere_is_caught(fake: Maker, check: Callable[[Maker], None]) -> None:
    with pytest.raises(AssertionError):
        check(fake)


def test_liere_keeps_lengths_and_turns_nothing_at_position_0() -> None:
    encoder = stirred(LieRE)
    q, _, _ = draws(4)
    moved = turned(encoder, q, torch.tensor([0.0, 1.0, 1000.0, 100_000.0]))
    close(moved[:, :, 0], q[:, :, 0])
    close(moved.norm(dim=-1), q.norm(dim=-1), 1e-8)


def test_liere_in_planes_is_rope_with_learned_frequencies() -> None:
    """Blocks of two and the frequencies of RoPE, turned the other way round: transformers' interleaved rotation."""
    library = pytest.importorskip("transformers.models.gptj.modeling_gptj")
    encoder: Any = LieRE(single(8), block_fraction=0.25, span=1).double()
    frequencies = 10000.0 ** (-torch.arange(0, 8, 2).double() / 8)
    assign(encoder, upper=-frequencies[:, None])
    x = torch.randn(1, 1, 40, 8, dtype=torch.float64)
    angle = torch.arange(40.0).double()[:, None] * frequencies
    theirs = library.apply_rotary_pos_emb(x.transpose(1, 2), angle.sin()[None], angle.cos()[None]).transpose(1, 2)
    close(turned(encoder, x, torch.arange(40.0)), theirs)


def test_liere_starts_as_published_and_leaves_what_is_left_over() -> None:
    assert LieRE(single(8), block_fraction=0.4).upper.shape == (1, 1, 2, 3)
    entries = LieRE(single(64)).upper
    assert entries.shape == (1, 1, 1, 64 * 63 // 2)
    assert 0 <= entries.min() < 0.1
    assert 2 * math.pi - 0.1 < entries.max() <= 2 * math.pi
    x = torch.randn(1, 1, 3, 8, dtype=torch.float64)
    moved = turned(LieRE(single(8), block_fraction=0.4), x, torch.arange(3.0) + 1)
    assert torch.equal(moved[..., 6:], x[..., 6:])
    assert (moved[..., :6] != x[..., :6]).all()
    with pytest.raises(ValueError, match=r"liere.*head_dim 1"):
        LieRE(single(1))


# --------------------------------------------------------------------------------------------------- Selective RoPE


def check_selective_rope_vectors(make: Maker) -> None:
    table = golden("selective_rope")
    encoder: Any = make(single(2), rank=1).double()
    assign(encoder, down=[[1.0], [0.0]], up=1.0, kernel=table["kernel"])
    x = torch.tensor([table["x"]]).double()
    q = torch.tensor([1.0, 0.0]).double().expand(1, 1, 3, 2)
    for moved in encoder.rotate(q, q, site_of(torch.zeros(3), x)):
        close(moved[0, 0], table["turned_1_0"], 2e-6)


def selective_angles(encoder: Any, x: Tensor, layer: int) -> Tensor:
    """``(heads, length, pairs)`` of one sample, a number at a time."""
    kernel = encoder.kernel[layer]
    length, pairs, width = x.shape[0], HEAD_DIM // 2, kernel.shape[-1]
    unit = x.clone()
    for t in range(length):
        for h in range(HEADS):
            part = slice(h * HEAD_DIM, (h + 1) * HEAD_DIM)
            unit[t, part] = x[t, part] / math.sqrt(sum(n * n for n in x[t, part].tolist()) + 1e-6)
    weight = encoder.down[layer] @ encoder.up[layer]
    angle = torch.zeros(HEADS, length, pairs, dtype=torch.float64)
    for h in range(HEADS):
        for i in range(pairs):
            channel, total = h * pairs + i, 0.0
            for t in range(length):
                step = 0.0
                for back in range(width):
                    if t - back >= 0:
                        step += (kernel[channel, width - 1 - back] * (unit[t - back] @ weight[:, channel])).item()
                if encoder.log_bias is not None:
                    step += math.exp(encoder.log_bias[layer, h, i])
                if encoder.gate_weight is not None:
                    gate = unit[t] @ encoder.gate_weight[layer, :, h] + encoder.gate_bias[layer, h]
                    step *= 1 / (1 + math.exp(-gate))
                total += step
                angle[h, t, i] = total * encoder.base ** (-2 * i / HEAD_DIM)
    return angle


def check_selective_rope_loop(make: Maker, bias: bool = True, gate: bool = True) -> None:
    encoder = stirred(make, base=100.0, bias=bias, gate=gate)
    q, k, x = draws()
    found = pe_zoo.scores(encoder, q, k, layer=1, x=x)
    for b in range(2):
        angle = selective_angles(encoder, x[b], 1)
        for h in range(HEADS):
            for i in range(LENGTH):
                for j in range(LENGTH):
                    total = 0.0
                    for pair in range(HEAD_DIM // 2):
                        turn = (angle[h, i, pair] - angle[h, j, pair]).item()
                        a, c = q[b, h, i, pair].item(), q[b, h, i, pair + HEAD_DIM // 2].item()
                        e, f = k[b, h, j, pair].item(), k[b, h, j, pair + HEAD_DIM // 2].item()
                        total += (a * e + c * f) * math.cos(turn) - (c * e - a * f) * math.sin(turn)
                    assert found[b, h, i, j].item() == pytest.approx(total / HEAD_DIM**0.5, rel=1e-9, abs=1e-9)


class LooksAhead(SelectiveRoPE):
    """The convolution the wrong way round."""

    def angle(self, site: Site) -> Tensor:
        kernel = self.kernel.data
        self.kernel.data = kernel.flip(-1)
        angle = super().angle(site)
        self.kernel.data = kernel
        return angle


class WithoutItself(SelectiveRoPE):
    """The sum up to a token, its own step not counted."""

    def angle(self, site: Site) -> Tensor:
        angle = super().angle(site)
        return torch.cat([torch.zeros_like(angle[..., :1, :]), angle[..., :-1, :]], -2)


def test_selective_rope_vectors_by_hand() -> None:
    check_selective_rope_vectors(SelectiveRoPE)


@pytest.mark.parametrize("gate", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_selective_rope_by_a_loop(bias: bool, gate: bool) -> None:
    check_selective_rope_loop(SelectiveRoPE, bias, gate)


@pytest.mark.parametrize("fake", [LooksAhead, WithoutItself])
@pytest.mark.parametrize("check", [check_selective_rope_vectors, check_selective_rope_loop])
def test_a_wrong_selective_rope_is_caught(fake: Maker, check: Callable[[Maker], None]) -> None:
    with pytest.raises(AssertionError):
        check(fake)


def test_selective_rope_brings_values_as_it_brings_keys() -> None:
    encoder = stirred(SelectiveRoPE, base=100.0, rotate_values=True)
    scores, v, x = draws()
    scores, half = scores @ scores.mT, HEAD_DIM // 2
    site = site_of(torch.arange(float(LENGTH)), x, layer=1)
    found = encoder.mix(scores.masked_fill(~site.mask, -torch.inf), v, site).detach()
    for b in range(len(x)):
        angle = selective_angles(encoder, x[b], 1)
        for h in range(HEADS):
            for i in range(LENGTH):
                weights = scores[b, h, i, : i + 1].softmax(-1).tolist()
                for pair in range(half):
                    turns = [(angle[h, j, pair] - angle[h, i, pair]).item() for j in range(i + 1)]
                    brought = [
                        complex(*v[b, h, j, pair::half].tolist()) * cmath.exp(1j * t) for j, t in enumerate(turns)
                    ]
                    total = sum(weight * one for weight, one in zip(weights, brought, strict=True))
                    assert complex(*found[b, h, i, pair::half].tolist()) == pytest.approx(total, abs=1e-11)


def test_selective_rope_may_be_fused_where_it_leaves_values_alone() -> None:
    geometry = Geometry(model_dim=16, num_heads=2, num_layers=1, train_length=8)
    kept, turned = (
        copy.deepcopy(pe_zoo.build("selective_rope", geometry, rotate_values=turn)) for turn in (False, True)
    )
    assert (kept.overrides("mix"), turned.overrides("mix")) == (False, True)
    assert kept.overrides("rotate")
    assert turned.overrides("rotate")


def test_selective_rope_of_equal_steps_is_rope() -> None:
    """Nothing read off the input and a step of 1: transformers' rotation by halves with base 500000."""
    library = pytest.importorskip("transformers.models.llama.modeling_llama")
    encoder: Any = SelectiveRoPE(SIZES, bias=True).double()
    assign(encoder, up=0.0)
    q, k, x = draws(40, batch=1)
    angle = torch.arange(40.0).double()[:, None] * 500000.0 ** (-torch.arange(0, HEAD_DIM, 2).double() / HEAD_DIM)
    cos, sin = (torch.cat([part, part], -1)[None] for part in (angle.cos(), angle.sin()))
    their_q, their_k = library.apply_rotary_pos_emb(q, k, cos, sin)
    close(pe_zoo.scores(encoder, q, k, x=x), their_q @ their_k.mT * HEAD_DIM**-0.5)


def test_selective_rope_sums_long_sequences_exactly() -> None:
    encoder = SelectiveRoPE(SIZES, bias=True)
    x = torch.zeros(1, 70_000, SIZES.model_dim)
    angle = encoder.angle(site_of_keys(x))
    assert angle[0, 0, -1, 0] == 70_000
    assert angle.dtype == torch.float64


def site_of_keys(x: Tensor) -> Site:
    """A site with a mask of one row, for lengths whose square would not fit."""
    place = torch.arange(x.shape[-2]).float()
    last = slice(x.shape[-2] - 1, x.shape[-2])
    mask = torch.ones(1, x.shape[-2], dtype=torch.bool)
    return Site(layer=0, query_positions=place[last], key_positions=place, rows=last, mask=mask, causal=True, x=x)


# ------------------------------------------------------------------------------------------------------------ PaTH


def product_by_matrices(q: Tensor, k: Tensor, w: Tensor, beta: Tensor, nearest_first: bool = False) -> Tensor:
    """``q[i] · H[i] H[i−1] … H[j+1] k[j]`` of one head, each H written out, a pair at a time; 0 ahead."""
    length, dim = k.shape
    scores = torch.zeros(length, length, dtype=torch.float64)
    for i in range(length):
        for j in range(i + 1):
            carried = k[j].clone()
            on_the_way = list(range(j + 1, i + 1))
            for t in on_the_way[::-1] if nearest_first else on_the_way:
                reflection = torch.eye(dim, dtype=torch.float64)
                for a in range(dim):
                    for b in range(dim):
                        reflection[a, b] -= beta[t] * w[t, a] * w[t, b]
                carried = reflection @ carried
            scores[i, j] = q[i] @ carried
    return scores


def whole(length: int) -> slice:
    return slice(0, length)


Loss = Callable[..., Tensor]


def check_path_vectors(lost: Loss) -> None:
    for name, case in golden("path").items():
        if name == "source":
            continue
        q, k, w = (torch.tensor(case[part], dtype=torch.float64)[None, None] for part in ("q", "k", "w"))
        beta = torch.tensor(case["beta"], dtype=torch.float64)[None, None]
        found = (q @ k.mT - lost(q, k, w, beta, whole(k.shape[-2])))[0, 0]
        for i, row in enumerate(case["scores"]):
            close(found[i, : i + 1], row)


def check_path_loop(lost: Loss) -> None:
    q, k, _ = draws()
    w = torch.nn.functional.normalize(torch.randn_like(k), dim=-1)
    beta = 2 * torch.rand(2, HEADS, LENGTH, dtype=torch.float64)
    found = q @ k.mT - lost(q, k, w, beta, whole(LENGTH))
    for b in range(2):
        for h in range(HEADS):
            close(seen(found[b, h]), product_by_matrices(q[b, h], k[b, h], w[b, h], beta[b, h]))


def the_other_order(q: Tensor, k: Tensor, w: Tensor, beta: Tensor, rows: slice) -> Tensor:
    """The token before the query first."""
    heads = [t.flatten(0, 1) for t in (q, k, w, beta)]
    products = [product_by_matrices(*head, nearest_first=True) for head in zip(*heads, strict=True)]
    return q @ k.mT - torch.stack(products).view(*q.shape[:2], *products[0].shape)


def without_the_query(q: Tensor, k: Tensor, w: Tensor, beta: Tensor, rows: slice) -> Tensor:
    """The product stops one token early."""
    return torch.nn.functional.pad(lost_on_the_way(q, k, w, beta, rows)[..., :-1, :], (0, 0, 1, 0))


def test_path_vectors_by_hand() -> None:
    check_path_vectors(lost_on_the_way)


def test_path_by_a_loop() -> None:
    check_path_loop(lost_on_the_way)


@pytest.mark.parametrize("fake", [the_other_order, without_the_query])
@pytest.mark.parametrize("check", [check_path_vectors, check_path_loop])
def test_a_wrong_path_is_caught(fake: Loss, check: Callable[[Loss], None]) -> None:
    with pytest.raises(AssertionError):
        check(fake)


@pytest.mark.parametrize("length", [1, 2, 5, 6, 13])
@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 64])
def test_path_in_chunks_and_query_blocks_is_the_loop(length: int, chunk: int) -> None:
    q, k, _ = draws(length, batch=1)
    w = torch.nn.functional.normalize(torch.randn_like(k), dim=-1)
    beta = 2 * torch.rand(1, HEADS, length, dtype=torch.float64)
    expected = product_by_matrices(q[0, 1], k[0, 1], w[0, 1], beta[0, 1])
    plain = q @ k.mT
    for first in range(length):
        for last in range(first + 1, length + 1):
            rows = slice(first, last)
            lost = lost_on_the_way(q[:, :, rows], k, w, beta, rows, chunk)
            close((plain[:, :, rows] - lost)[0, 1].tril(first), expected[rows])
            assert (lost.triu(first) == 0).all(), "own place and keys ahead"


def test_path_past_its_own_chunk_is_the_loop() -> None:
    length = path_module.CHUNK + 9
    q, k, x = draws(length, batch=1)
    encoder = stirred(PaTH)
    site = site_of(torch.arange(float(length)), x)
    w, beta = encoder.reflections(site, torch.float64)
    found = seen(pe_zoo.scores(encoder, q, k, x=x))
    rows = [0, 1, path_module.CHUNK - 1, path_module.CHUNK, length - 1]
    with torch.no_grad():
        for i in rows:
            carried = k[0, 0].clone()
            for t in range(i + 1):
                behind = carried[:t]
                carried[:t] = behind - beta[0, 0, t] * (behind @ w[0, 0, t])[:, None] * w[0, 0, t]
            close(found[0, 0, i, : i + 1], (carried @ q[0, 0, i])[: i + 1] * HEAD_DIM**-0.5)


def test_path_reads_its_reflections_off_the_input_by_a_loop() -> None:
    encoder = stirred(PaTH, rank=3)
    q, k, x = draws()
    w, beta = encoder.reflections(site_of(torch.zeros(LENGTH), x, layer=1), torch.float64)
    down, up, kernel = encoder.down[1], encoder.up[1], encoder.kernel[1]
    for b in range(2):
        for t in range(LENGTH):
            for h in range(HEADS):
                numbers = []
                for c in range(h * HEAD_DIM, (h + 1) * HEAD_DIM):
                    total = sum(float(kernel[c, 2 - s] * (x[b, t - s] @ down @ up[:, c])) for s in range(3) if t >= s)
                    numbers.append(total / (1 + math.exp(-total)))
                length = math.sqrt(sum(n * n for n in numbers) + 1e-6)
                close(w[b, h, t], [n / length for n in numbers])
                strength = float(x[b, t] @ encoder.strength[1, :, h] + encoder.offset[1, h])
                assert beta[b, h, t].item() == pytest.approx(2 / (1 + math.exp(-strength)), abs=1e-12)
    found = pe_zoo.scores(encoder, q, k, layer=1, x=x) * HEAD_DIM**0.5
    for b in range(2):
        for h in range(HEADS):
            close(seen(found[b, h]), product_by_matrices(q[b, h], k[b, h], w[b, h], beta[b, h]))


def test_path_without_strength_is_a_plain_product() -> None:
    encoder = stirred(PaTH)
    assign(encoder, strength=0.0, offset=-800.0)
    q, k, x = draws()
    close(pe_zoo.scores(encoder, q, k, x=x), q @ k.mT * HEAD_DIM**-0.5)


def test_path_of_true_reflections_keeps_lengths() -> None:
    """With beta = 2 what reaches a query is as long as the key that set out."""
    _, k, _ = draws(9, batch=1)
    w = torch.nn.functional.normalize(torch.randn_like(k), dim=-1)
    axes = torch.eye(HEAD_DIM, dtype=torch.float64)
    last = slice(8, 9)
    reached = [
        (axis @ k.mT).unsqueeze(-2)
        - lost_on_the_way(axis.expand(1, HEADS, 1, HEAD_DIM), k, w, torch.full((1, HEADS, 9), 2.0).double(), last, 4)
        for axis in axes
    ]
    close(torch.cat(reached, -2).norm(dim=-2), k.norm(dim=-1))


# ------------------------------------------------------------------------------------------ Stick-breaking attention


def broken(encoder: Encoder, scores: Tensor, v: Tensor, layer: int = 0) -> Tensor:
    """Score, mask and mix, as the model does."""
    site = site_of(torch.arange(float(scores.shape[-1])), layer=layer, first=scores.shape[-1] - scores.shape[-2])
    changed = encoder.score(scores, v[..., site.rows, :], v, site)
    return encoder.mix(changed.masked_fill(~site.mask, -torch.inf), v, site)


def check_stick_vectors(make: Maker) -> None:
    encoder: Any = make(single(4)).double()
    learned: Any = make(single(4), remainder="vector").double()
    assign(learned, rest_value=1.0)
    v = torch.eye(4).double()[None, None]
    for case in (golden("stick_breaking")["even"], golden("stick_breaking")["uneven"]):
        shares = torch.tensor(case["shares"]).double()
        scores = torch.zeros(1, 1, 4, 4, dtype=torch.float64)
        scores[0, 0, 3, :3] = (shares / (1 - shares)).log()
        weights = broken(encoder, scores, v)[0, 0]
        close(weights[3], case["weights"])
        close(weights[0], [0, 0, 0, 0])
        close((broken(learned, scores, v)[0, 0] - weights)[3], [case["rest"]] * 4)


def check_stick_loop(make: Maker, attend_current: bool = False) -> None:
    encoder = stirred(make, attend_current=attend_current, remainder="vector")
    v, _, _ = draws()
    scores = 3 * torch.randn(2, HEADS, LENGTH, LENGTH, dtype=torch.float64)
    found = broken(encoder, scores, v, layer=1)
    for b in range(2):
        for h in range(HEADS):
            for i in range(LENGTH):
                left, output = 1.0, torch.zeros(HEAD_DIM, dtype=torch.float64)
                for j in reversed(range(i + 1 if attend_current else i)):
                    share = 1 / (1 + math.exp(-scores[b, h, i, j]))
                    output = output + left * share * v[b, h, j]
                    left *= 1 - share
                close(found[b, h, i], output + left * encoder.rest_value[1, h, 0])


class SeesItself(StickBreaking):
    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        return scores


class FarthestFirst(StickBreaking):
    """The stick broken from the wrong end."""

    def mix(self, scores: Tensor, v: Tensor, site: Site) -> Tensor:
        return super().mix(scores.flip(-1), v.flip(-2), site)


class CountsItsOwnShare(StickBreaking):
    """A share of what is left after taking that share."""

    def mix(self, scores: Tensor, v: Tensor, site: Site) -> Tensor:
        left = torch.nn.functional.logsigmoid(-scores).where(scores > -torch.inf, 0.0)
        weights = scores.sigmoid() * left.flip(-1).cumsum(-1).flip(-1).exp()
        return weights @ v


def test_stick_breaking_vectors_by_hand() -> None:
    check_stick_vectors(StickBreaking)


@pytest.mark.parametrize("attend_current", [False, True])
def test_stick_breaking_by_a_loop(attend_current: bool) -> None:
    check_stick_loop(StickBreaking, attend_current)


@pytest.mark.parametrize("fake", [SeesItself, FarthestFirst, CountsItsOwnShare])
@pytest.mark.parametrize("check", [check_stick_vectors, check_stick_loop])
def test_a_wrong_stick_breaking_is_caught(fake: Maker, check: Callable[[Maker], None]) -> None:
    with pytest.raises(AssertionError):
        check(fake)


def test_stick_breaking_gradients_are_finite_in_extremes() -> None:
    for attend_current in (False, True):
        encoder = StickBreaking(SIZES, attend_current=attend_current, remainder="vector").double()
        v, _, _ = draws()
        scores = (1e4 * torch.randn(2, HEADS, LENGTH, LENGTH, dtype=torch.float64)).requires_grad_()
        v.requires_grad_()
        mixed = broken(encoder, scores, v)
        mixed.pow(2).sum().backward()
        assert scores.grad is not None
        assert v.grad is not None
        assert mixed.isfinite().all()
        assert scores.grad.isfinite().all()
        assert v.grad.isfinite().all()
        assert (scores.grad.triu(1 if attend_current else 0) == 0).all()


def test_stick_breaking_gradients_are_those_of_differences() -> None:
    encoder = StickBreaking(SIZES, remainder="vector").double()
    v, _, _ = draws(4, batch=1)
    scores = torch.randn(1, HEADS, 4, 4, dtype=torch.float64, requires_grad=True)
    v.requires_grad_()
    assert torch.autograd.gradcheck(lambda scores, v: broken(encoder, scores, v), (scores, v))


def test_stick_breaking_weights_and_their_rest_sum_to_one() -> None:
    learned: Any = StickBreaking(SIZES, remainder="vector").double()
    assign(learned, rest_value=1.0)
    scores = 5 * torch.randn(2, HEADS, 30, 30, dtype=torch.float64)
    ones = torch.ones(2, HEADS, 30, HEAD_DIM, dtype=torch.float64)
    close(broken(learned, scores, ones), torch.ones_like(ones))
    assert (broken(StickBreaking(SIZES), scores, ones)[:, :, 0] == 0).all()
    first = broken(StickBreaking(SIZES, attend_current=True), scores, ones)[:, :, 0, 0]
    close(first, scores[:, :, 0, 0].sigmoid())


def test_stick_breaking_prefers_the_nearest_of_equals() -> None:
    encoder = StickBreaking(SIZES)
    weights = broken(encoder, torch.zeros(1, 1, 6, 6), torch.eye(6)[None, None])[0, 0, 5]
    close(weights, [2.0**-5, 2.0**-4, 2.0**-3, 2.0**-2, 2.0**-1, 0.0], 1e-6)
    q, k, _ = draws()
    close(pe_zoo.scores(encoder, q, k, torch.rand(LENGTH)).tril(-1), (q @ k.mT * HEAD_DIM**-0.5).tril(-1))


# ----------------------------------------------------------------------------------------------------- in a model


@pytest.mark.parametrize("make", [SelectiveRoPE, PaTH])
def test_encoders_that_read_the_input_ask_for_it(make: Maker) -> None:
    q, k, _ = draws()
    with pytest.raises(ValueError, match=r"reads the layer's input: pass x"):
        pe_zoo.scores(make(SIZES), q, k)


@pytest.mark.parametrize("make", [SelectiveRoPE, PaTH, StickBreaking, PoPE, LieRE])
def test_a_long_model_in_query_blocks_is_the_whole(make: Maker) -> None:
    """Past PaTH's chunk, with blocks that do not fit it."""
    encoder = stirred(make)
    model = Transformer(11, SIZES, encoder, query_block=37).double()
    tokens = torch.randint(11, (1, path_module.CHUNK + 20))
    with torch.no_grad():
        in_blocks = model(tokens)
    close(in_blocks, model(tokens).detach(), 1e-9)


@pytest.mark.parametrize("make", [SelectiveRoPE, PaTH, StickBreaking])
def test_one_layer_of_them_is_not_a_bag(make: Maker) -> None:
    geometry = Geometry(model_dim=12, num_heads=2, num_layers=1, train_length=5)
    model = Transformer(11, geometry, stirred(make, geometry)).double()
    with torch.no_grad():
        here, there = model(torch.tensor([[1, 2, 3, 4]])), model(torch.tensor([[3, 1, 2, 4]]))
    assert (here[:, -1] - there[:, -1]).abs().max() > 1e-4
