"""The numbers: encoders agree with hand-checked vectors, loops written from the papers, and other libraries."""

from __future__ import annotations

import cmath
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath  # type: ignore[import-untyped]
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import pe_zoo
from pe_zoo import Encoder, Geometry
from pe_zoo._positions import log_buckets, look_up
from pe_zoo.alibi import ALiBi
from pe_zoo.rope import RoPE
from pe_zoo.sinusoidal import Sinusoidal
from pe_zoo.t5 import T5

Buckets = Callable[[Tensor], Tensor]


def golden(name: str) -> Any:
    return json.loads((Path(__file__).parent / "golden" / f"{name}.json").read_text(encoding="utf-8"))


def geometry(heads: int = 1, head_dim: int = 4, train_length: int = 16) -> Geometry:
    return Geometry(model_dim=heads * head_dim, num_heads=heads, num_layers=1, train_length=train_length)


def bias_of(encoder: Encoder, positions: Tensor, causal: bool = True) -> Tensor:
    """What the encoder adds to scores of zero: ``(heads, query, key)``, float64."""
    nothing = torch.zeros(1, encoder.geometry.num_heads, len(positions), encoder.geometry.head_dim, dtype=torch.float64)
    return pe_zoo.scores(encoder, nothing, nothing, positions, causal=causal)[0].detach()


def turned(encoder: Encoder, x: Tensor, positions: Tensor) -> Tensor:
    """Queries ``(length, head_dim)`` of one head after ``rotate``; keys must be turned alike."""
    keys = x.shape[0]
    site = pe_zoo.Site(
        layer=0,
        query_positions=positions,
        key_positions=positions,
        rows=slice(0, keys),
        mask=torch.ones(keys, keys, dtype=torch.bool),
        causal=True,
    )
    q, k = encoder.rotate(x[None, None], x[None, None], site)
    assert torch.equal(q, k)
    return q[0, 0]


def printed(table: Tensor) -> list[list[str]]:
    return [[f"{number:.4f}" for number in row] for row in table.tolist()]


# ------------------------------------------------------------------------------------------------------- ALiBi


def check_slopes(build: Callable[[Geometry], Encoder], heads: int) -> None:
    bias = bias_of(build(geometry(heads)), torch.tensor([0.0, 1.0, 2.0]))
    torch.testing.assert_close(
        -bias[:, 1, 0], torch.tensor(golden("alibi")["slopes"][str(heads)], dtype=torch.float64), atol=1e-9, rtol=0
    )
    assert torch.equal(bias[:, 2, 0], 2 * bias[:, 1, 0])


@pytest.mark.parametrize("heads", [1, 2, 3, 5, 6, 8, 12, 20])
def test_alibi_slopes_are_the_official_ones_in_order(heads: int) -> None:
    check_slopes(ALiBi, heads)


class NaiveSlopes(ALiBi):
    """The formula for powers of two, for any number of heads: a frequent mistake."""

    offset = 0

    def bias(self, distance: Tensor, causal: bool) -> Tensor:
        heads = self.geometry.num_heads
        ranks = torch.arange(1, heads + 1, dtype=distance.dtype) - self.offset
        return -torch.exp2(-8 * ranks / heads)[:, None, None] * distance.abs()


class SlopesFromOne(NaiveSlopes):
    """Off by one: the first slope is 1."""

    offset = 1


class SortedSlopes(ALiBi):
    def bias(self, distance: Tensor, causal: bool) -> Tensor:
        return super().bias(distance, causal).sort(-3).values


@pytest.mark.parametrize(
    ("fake", "heads"), [(NaiveSlopes, 12), (NaiveSlopes, 3), (SlopesFromOne, 8), (SortedSlopes, 6)]
)
def test_wrong_slopes_are_caught(fake: type[ALiBi], heads: int) -> None:
    with pytest.raises(AssertionError):
        check_slopes(fake, heads)


def test_alibi_by_a_loop() -> None:
    positions = torch.tensor([0.0, 2.0, 3.0, 7.5])
    for causal in (True, False):
        bias = bias_of(ALiBi(geometry(4), max_bias=6.0), positions, causal)
        for h in range(4):
            for i, p in enumerate(positions.tolist()):
                for j, r in enumerate(positions.tolist()):
                    assert bias[h, i, j] == pytest.approx(-(2 ** (-6 * (h + 1) / 4)) * abs(p - r), abs=1e-12)


def test_alibi_one_sided_by_a_loop() -> None:
    bias = bias_of(ALiBi(geometry(4), form="one_sided"), torch.arange(4.0), causal=False)
    for h in range(4):
        slope = 2.0 ** (-8 * (h % 2 + 1) / 2)
        for i in range(4):
            for j in range(4):
                looks = j <= i if h < 2 else j >= i
                assert bias[h, i, j] == (pytest.approx(-slope * abs(i - j)) if looks else -math.inf)


def test_alibi_asymmetric_by_a_loop() -> None:
    encoder = ALiBi(geometry(3), form="asymmetric").double()
    bias = bias_of(encoder, torch.arange(4.0), causal=False)
    for h in range(3):
        left, right = (1 / (1 + math.exp(-logit)) for logit in encoder.slope_logits[:, h].tolist())
        for i in range(4):
            for j in range(4):
                assert bias[h, i, j] == pytest.approx(-(left if j <= i else right) * abs(i - j), abs=1e-12)


@pytest.mark.parametrize("heads", range(1, 21))
def test_alibi_agrees_with_bloom_under_a_causal_mask(heads: int) -> None:
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    length = 24
    theirs = bloom.build_alibi_tensor(torch.ones(1, length, dtype=torch.long), heads, torch.float32).double()
    raw = torch.randn(heads, length, length, dtype=torch.float64)
    future = torch.ones(length, length, dtype=torch.bool).triu(1)

    def weights(bias: Tensor) -> Tensor:
        return (raw + bias).masked_fill(future, -torch.inf).softmax(-1)

    ours = bias_of(ALiBi(geometry(heads)), torch.arange(float(length)))
    torch.testing.assert_close(weights(ours), weights(theirs), atol=1e-6, rtol=0)
    assert (weights(ours) - weights(torch.zeros(()))).abs().max() > 1e-3


@pytest.mark.parametrize("heads", [1, 3, 8, 12, 20])
def test_alibi_agrees_with_x_transformers(heads: int) -> None:
    library = pytest.importorskip("x_transformers.x_transformers")
    ours = bias_of(ALiBi(geometry(heads)), torch.arange(24.0), causal=False)
    torch.testing.assert_close(
        ours, library.AlibiPositionalBias(heads)(24, 24).double().reshape(ours.shape), atol=1e-6, rtol=1e-6
    )


# ---------------------------------------------------------------------------------------------------------- T5


def bucket(distance: int, num_buckets: int, max_distance: int) -> int:
    """T5's bucket of a distance of at least 0, in whole numbers: no logarithm, no rounding."""
    exact = num_buckets // 2
    if distance < exact:
        return distance
    steps = num_buckets - exact
    reached = [k for k in range(steps) if distance**steps * exact**k >= max_distance**k * exact**steps]
    return exact + max(reached)


def buckets_of(num_buckets: int, max_distance: int, bidirectional: bool) -> Buckets:
    encoder = T5(geometry(), num_buckets=num_buckets, max_distance=max_distance, bidirectional=bidirectional)
    return lambda distance: encoder.buckets(distance.float(), causal=not bidirectional)


def test_t5_first_distances_of_the_decoder() -> None:
    table = golden("t5")
    found = buckets_of(table["num_buckets"], table["max_distance"], bidirectional=False)
    first, expected = table["decoder_first_distance"]["from_bucket"], table["decoder_first_distance"]["distances"]
    for number, distance in enumerate([*range(first), *expected]):
        assert found(torch.tensor([distance, distance - 1])).tolist() == [number, max(0, number - 1)]
    assert found(torch.tensor([127, 128, 10**6])).tolist() == [31, 31, 31]
    assert found(torch.tensor([-1, -5, -1000])).tolist() == [0, 0, 0]


def test_t5_first_distances_of_the_encoder() -> None:
    table = golden("t5")
    found = buckets_of(table["num_buckets"], table["max_distance"], bidirectional=True)
    first, expected = table["encoder_first_distance"]["from_bucket"], table["encoder_first_distance"]["distances"]
    right = table["encoder_right_side_starts_at"]
    for number, distance in enumerate([*range(first), *expected]):
        assert found(torch.tensor([distance])).item() == number
        if distance:
            assert found(torch.tensor([distance - 1])).item() == number - 1
            assert found(torch.tensor([-distance])).item() == number + right
    assert right not in found(torch.arange(-300, 301)).tolist(), "the right side has no bucket for distance 0"
    fractions = torch.tensor([-1.75, -1.0, -0.9375, -0.25, 0.25, 1.75])
    assert found(fractions).tolist() == [right + 1, right + 1, 0, 0, 0, 1], "nor does any key ahead get that bucket"


@given(st.integers(1, 24), st.integers(1, 500), st.data())
@settings(max_examples=60, deadline=None)
def test_t5_buckets_in_whole_numbers(quarter: int, beyond: int, data: st.DataObject) -> None:
    num_buckets = 4 * quarter
    max_distance = num_buckets // 2 + beyond
    distances = data.draw(st.lists(st.integers(-3 * max_distance, 3 * max_distance), min_size=1, max_size=20))
    decoder = buckets_of(num_buckets, max_distance, bidirectional=False)(torch.tensor(distances)).tolist()
    encoder = buckets_of(num_buckets, max_distance, bidirectional=True)(torch.tensor(distances)).tolist()
    side = num_buckets // 2
    assert decoder == [bucket(max(0, d), num_buckets, max_distance) for d in distances]
    assert encoder == [bucket(abs(d), side, max_distance) + (side if d < 0 else 0) for d in distances]


@pytest.mark.parametrize(
    ("num_buckets", "max_distance"), [(32, 128), (32, 64), (16, 128), (64, 256), (8, 20), (32, 33)]
)
def test_t5_buckets_are_the_formula_s_at_every_distance(num_buckets: int, max_distance: int) -> None:
    found = look_up(torch.arange(2.0 * max_distance), log_buckets(num_buckets, max_distance)).tolist()
    assert found == [bucket(distance, num_buckets, max_distance) for distance in range(2 * max_distance)]


def test_t5_bias_by_a_loop() -> None:
    positions = torch.tensor([3.0, 4.0, 9.0, 30.0, 200.0])
    for bidirectional, causal in ((None, True), (None, False), (True, True), (False, False)):
        encoder = T5(geometry(3), num_buckets=16, max_distance=40, bidirectional=bidirectional).double()
        two_sided = (not causal) if bidirectional is None else bidirectional
        bias = bias_of(encoder, positions, causal)
        for h in range(3):
            for i, p in enumerate(positions.long().tolist()):
                for j, r in enumerate(positions.long().tolist()):
                    number = bucket(abs(p - r), 8, 40) + 8 * (r > p) if two_sided else bucket(max(0, p - r), 16, 40)
                    assert bias[h, i, j] == encoder.bias[number, h]


SCHEMES = [(32, 128), (32, 64), (32, 256), (16, 128), (16, 50), (64, 128), (64, 1000), (8, 20), (8, 64), (128, 4096)]


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("num_buckets", "max_distance"), SCHEMES)
def test_t5_agrees_with_transformers(num_buckets: int, max_distance: int, bidirectional: bool) -> None:
    theirs = pytest.importorskip("transformers.models.t5.modeling_t5").T5Attention._relative_position_bucket
    check_buckets(
        lambda distance: theirs(
            -distance, bidirectional=bidirectional, num_buckets=num_buckets, max_distance=max_distance
        ),
        num_buckets,
        max_distance,
        bidirectional,
    )


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("num_buckets", "max_distance"), SCHEMES)
def test_t5_agrees_with_x_transformers(num_buckets: int, max_distance: int, bidirectional: bool) -> None:
    library = pytest.importorskip("x_transformers.x_transformers").RelativePositionBias
    check_buckets(
        lambda distance: library._relative_position_bucket(
            -distance, causal=not bidirectional, num_buckets=num_buckets, max_distance=max_distance
        ),
        num_buckets,
        max_distance,
        bidirectional,
    )


def check_buckets(theirs: Buckets, num_buckets: int, max_distance: int, bidirectional: bool) -> None:
    distance = torch.arange(-5000, 5001)
    expected = theirs(distance)
    assert torch.equal(buckets_of(num_buckets, max_distance, bidirectional)(distance), expected)
    assert int(expected.max()) == num_buckets - 1


# -------------------------------------------------------------------------------------------------------- RoPE


@pytest.mark.parametrize("pairing", ["interleaved", "half"])
def test_rope_turns_a_vector_by_hand(pairing: str) -> None:
    table = golden("rope")
    encoder = RoPE(geometry(head_dim=8), pairing=pairing)
    found = turned(encoder, torch.tensor([table["x"]]).double(), torch.tensor([float(table["position"])]))
    torch.testing.assert_close(found[0], torch.tensor(table[pairing], dtype=torch.float64), atol=1e-6, rtol=0)


def test_rope_turns_counter_clockwise() -> None:
    table = golden("rope")["small"]
    found = turned(
        RoPE(geometry(head_dim=4)), torch.tensor([table["x"]]).double(), torch.tensor([float(table["position"])])
    )
    torch.testing.assert_close(found[0], torch.tensor(table["interleaved"]).double(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("spectrum", ["compressed", "truncated"])
def test_rope_partial_frequencies(spectrum: str) -> None:
    table = golden("rope")["partial"]
    encoder = RoPE(geometry(head_dim=table["head_dim"]), fraction=table["fraction"], spectrum=spectrum)
    still = [0.0] * (0 if spectrum == "compressed" else table["head_dim"] // 2 - len(table[spectrum]))
    torch.testing.assert_close(
        encoder.frequencies(), torch.tensor([*table[spectrum], *still]).double(), atol=1e-6, rtol=0
    )


@pytest.mark.parametrize("pairs", [1, 2, 8, 22, 32, 50, 64])
def test_rope_turns_as_many_pairs_as_the_fraction_says(pairs: int) -> None:
    for turning in range(1, pairs + 1):
        assert RoPE(geometry(head_dim=2 * pairs), fraction=turning / pairs).rotated_pairs == turning
    for percent in range(1, 101):
        if percent * pairs >= 100:
            assert RoPE(geometry(head_dim=2 * pairs), fraction=percent / 100).rotated_pairs == percent * pairs // 100


KINDS: list[dict[str, Any]] = [
    {},
    {"pairing": "half"},
    {"base": 100.0, "fraction": 0.5},
    {"fraction": 0.5, "pairing": "half"},
    {"fraction": 0.5, "spectrum": "truncated"},
    {"fraction": 0.75, "spectrum": "truncated", "pairing": "half"},
]


@pytest.mark.parametrize("knobs", KINDS, ids=str)
def test_rope_scores_by_a_loop_over_complex_numbers(knobs: dict[str, Any]) -> None:
    head_dim, heads, positions = 8, 2, [0.0, 1.0, 5.0, 6.5]
    q, k = (torch.randn(1, heads, 4, head_dim, dtype=torch.float64) for _ in range(2))
    found = pe_zoo.scores(RoPE(geometry(heads, head_dim), **knobs), q, k, torch.tensor(positions))
    fraction, base = knobs.get("fraction", 1.0), knobs.get("base", 10000.0)
    turning = int(fraction * head_dim / 2)
    truncated, half = knobs.get("spectrum") == "truncated", knobs.get("pairing") == "half"
    spread = head_dim if truncated else 2 * turning
    span = head_dim // 2 if truncated else turning  # with half pairing, partners stand this far apart
    pairs = [(i, i + span) if half else (2 * i, 2 * i + 1) for i in range(turning)]
    alone = sorted(set(range(head_dim)) - {dimension for pair in pairs for dimension in pair})
    for h in range(heads):
        for i, p in enumerate(positions):
            for j, r in enumerate(positions):
                x, y = q[0, h, i].tolist(), k[0, h, j].tolist()
                total = sum(x[d] * y[d] for d in alone)
                for number, (a, b) in enumerate(pairs):
                    turn = cmath.exp(1j * (p - r) * base ** (-2 * number / spread))
                    total += (complex(x[a], x[b]) * turn * complex(y[a], y[b]).conjugate()).real
                assert found[0, h, i, j] == pytest.approx(total / math.sqrt(head_dim), abs=1e-12)


@pytest.mark.parametrize("knobs", KINDS, ids=str)
def test_rope_depends_on_distance_alone(knobs: dict[str, Any]) -> None:
    """R(i)ᵀ R(j) = R(j − i), and R is a rotation."""
    encoder, unit = RoPE(geometry(head_dim=8), **knobs), torch.eye(8).double()

    def matrix(position: float) -> Tensor:
        return turned(encoder, unit, torch.full((8,), position)).T

    for i, j in ((3.0, 10.0), (10.0, 3.0), (0.0, 500.0), (2.5, 7.0)):
        torch.testing.assert_close(matrix(i).T @ matrix(j), matrix(j - i), atol=1e-10, rtol=0)
    torch.testing.assert_close(matrix(7.0) @ matrix(7.0).T, unit, atol=1e-12, rtol=0)
    assert (matrix(7.0) - unit).abs().max() > 0.5
    assert torch.equal(matrix(0.0), unit)


def test_rope_pairings_differ_by_a_permutation_of_dimensions() -> None:
    x, positions = torch.randn(5, 8).double(), torch.tensor([0.0, 1.0, 4.0, 9.0, 100.0])
    order = torch.tensor([0, 4, 1, 5, 2, 6, 3, 7])
    half = turned(RoPE(geometry(head_dim=8), pairing="half"), x, positions)
    interleaved = turned(RoPE(geometry(head_dim=8)), x[:, order], positions)
    torch.testing.assert_close(half[:, order], interleaved, atol=1e-14, rtol=0)
    assert (half - turned(RoPE(geometry(head_dim=8)), x, positions)).abs().max() > 0.1


def llama(head_dim: int, base: float, rope_type: str = "default", fraction: float = 1.0) -> Any:
    """A configuration of transformers' Llama with one head."""
    parameters = {"rope_type": rope_type, "rope_theta": base}
    if rope_type != "default":
        parameters["partial_rotary_factor"] = fraction
    return pytest.importorskip("transformers").LlamaConfig(
        hidden_size=2 * head_dim,
        num_attention_heads=2,
        head_dim=head_dim,
        rope_parameters=parameters,
        max_position_embeddings=128,
    )


@pytest.mark.parametrize(("head_dim", "base"), [(8, 10000.0), (2, 10000.0), (64, 500000.0)])
def test_rope_agrees_with_llama(head_dim: int, base: float) -> None:
    library = pytest.importorskip("transformers.models.llama.modeling_llama")
    q, k, positions = torch.randn(1, 2, 40, head_dim), torch.randn(1, 2, 40, head_dim), torch.arange(40)
    their_q, their_k = library.apply_rotary_pos_emb(
        q, k, *library.LlamaRotaryEmbedding(llama(head_dim, base))(q, positions[None])
    )
    expected = their_q @ their_k.mT / head_dim**0.5
    encoder = RoPE(geometry(2, head_dim), base=base, pairing="half")
    torch.testing.assert_close(pe_zoo.scores(encoder, q, k, positions.float()), expected, atol=5e-6, rtol=1e-5)
    torch.testing.assert_close(turned(encoder, q[0, 0], positions.float()), their_q[0, 0], atol=5e-6, rtol=1e-5)


@pytest.mark.parametrize("fraction", [0.25, 0.5, 1.0])
def test_rope_compressed_agrees_with_gpt_neox(fraction: float) -> None:
    library = pytest.importorskip("transformers.models.gpt_neox.modeling_gpt_neox")
    config = pytest.importorskip("transformers").GPTNeoXConfig(
        hidden_size=32,
        num_attention_heads=2,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": fraction},
    )
    q, positions = torch.randn(1, 2, 40, 16), torch.arange(40)
    theirs, _ = library.apply_rotary_pos_emb(q, q, *library.GPTNeoXRotaryEmbedding(config)(q, positions[None]))
    encoder = RoPE(geometry(2, 16), pairing="half", fraction=fraction)
    torch.testing.assert_close(turned(encoder, q[0, 1], positions.float()), theirs[0, 1], atol=5e-6, rtol=1e-5)


@pytest.mark.parametrize("fraction", [0.25, 0.5, 0.75])
def test_rope_truncated_agrees_with_transformers_proportional(fraction: float) -> None:
    library = pytest.importorskip("transformers.models.llama.modeling_llama")
    q, positions = torch.randn(1, 2, 40, 16), torch.arange(40)
    theirs, _ = library.apply_rotary_pos_emb(
        q, q, *library.LlamaRotaryEmbedding(llama(16, 10000.0, "proportional", fraction))(q, positions[None])
    )
    encoder = RoPE(geometry(2, 16), pairing="half", fraction=fraction, spectrum="truncated")
    torch.testing.assert_close(turned(encoder, q[0, 1], positions.float()), theirs[0, 1], atol=5e-6, rtol=1e-5)


@pytest.mark.parametrize(("head_dim", "fraction"), [(8, 1.0), (16, 0.5), (64, 0.25)])
def test_rope_interleaved_agrees_with_x_transformers(head_dim: int, fraction: float) -> None:
    library = pytest.importorskip("x_transformers.x_transformers")
    frequencies, scale = library.RotaryEmbedding(int(head_dim * fraction)).forward_from_seq_len(40)
    x = torch.randn(1, 2, 40, head_dim)
    theirs = library.apply_rotary_pos_emb(x, frequencies, scale)
    encoder = RoPE(geometry(2, head_dim), fraction=fraction)
    torch.testing.assert_close(turned(encoder, x[0, 1], torch.arange(40.0)), theirs[0, 1], atol=5e-6, rtol=1e-5)


# -------------------------------------------------------------------------------------------------- sinusoidal


def vectors(dim: int, positions: Tensor, dtype: torch.dtype = torch.float64, **knobs: Any) -> Tensor:
    """What ``embed`` adds, ``(length, dim)``."""
    encoder = Sinusoidal(geometry(1, dim), **knobs)
    return encoder.embed(torch.zeros(1, len(positions), dim, dtype=dtype), positions)[0]


def test_sinusoidal_tables_come_out_as_printed() -> None:
    table = golden("sinusoidal")
    assert printed(vectors(table["model_dim"], torch.arange(3.0), torch.float32)) == table["printed"][:3]
    assert printed(vectors(table["model_dim"], torch.arange(10.0), torch.float32)) == table["printed"]
    first = vectors(table["model_dim"], torch.tensor([1.0]))[0]
    torch.testing.assert_close(first, torch.tensor(table["position_1"]).double(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("base", [10000.0, 100.0])
def test_sinusoidal_by_a_loop(base: float) -> None:
    positions = [0.0, 1.0, 2.5, 17.0, 999.0]
    mixed = vectors(6, torch.tensor(positions), base=base)
    stacked = vectors(6, torch.tensor(positions), base=base, channels="concatenated")
    for row, p in enumerate(positions):
        for i in range(3):
            angle = p / base ** (2 * i / 6)
            assert mixed[row, 2 * i] == stacked[row, i] == pytest.approx(math.sin(angle), abs=1e-12)
            assert mixed[row, 2 * i + 1] == stacked[row, 3 + i] == pytest.approx(math.cos(angle), abs=1e-12)


def test_sinusoidal_vectors_all_have_the_same_length() -> None:
    norms = vectors(32, torch.tensor([0.0, 1.0, 77.0, 12345.0, 1e6])).norm(dim=-1)
    torch.testing.assert_close(norms, torch.full((5,), math.sqrt(32 / 2)).double(), atol=1e-9, rtol=0)


@pytest.mark.parametrize("shift", [1.0, 5.0, 64.0])
def test_sinusoidal_shift_is_one_matrix_for_all_positions(shift: float) -> None:
    positions = torch.arange(50.0)
    here, there = vectors(8, positions), vectors(8, positions + shift)
    turn = torch.zeros(8, 8).double()
    for i in range(4):
        angle = shift * 10000.0 ** (-2 * i / 8)
        turn[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = torch.tensor(
            [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
        )
    torch.testing.assert_close(here @ turn, there, atol=1e-6, rtol=0)
    assert (here - there).abs().max() > 0.1


@pytest.mark.parametrize("position", [12_345.0, 100_000.0, 999_999.0, 1_000_000.0])
def test_sinusoidal_and_rope_are_right_far_out(position: float) -> None:
    """Against 50 digits: 1e-9 in float64; in float32, half a unit in the last place and no more."""
    dim = 16
    with mpmath.workdps(50):
        angles = [mpmath.mpf(position) * mpmath.mpf(10000) ** (-mpmath.mpf(2 * i) / dim) for i in range(dim // 2)]
        exact = torch.tensor(
            [x for angle in angles for x in (float(mpmath.sin(angle)), float(mpmath.cos(angle)))], dtype=torch.float64
        )
    where = torch.tensor([position])
    torch.testing.assert_close(vectors(dim, where)[0], exact, atol=1e-9, rtol=0)
    torch.testing.assert_close(vectors(dim, where, torch.float32)[0].double(), exact, atol=6.1e-8, rtol=0)
    ones = torch.tensor([1.0, 0.0]).repeat(dim // 2)[None]
    expected = exact.view(-1, 2).flip(-1).flatten()
    torch.testing.assert_close(turned(RoPE(geometry(1, dim)), ones.double(), where)[0], expected, atol=1e-9, rtol=0)
    torch.testing.assert_close(turned(RoPE(geometry(1, dim)), ones, where)[0].double(), expected, atol=6.1e-8, rtol=0)


def test_alibi_and_t5_are_right_far_out() -> None:
    positions = torch.tensor([0.0, 999_999.0, 1_000_000.0])
    bias = bias_of(ALiBi(geometry(1)), positions)
    assert bias[0, 2].tolist() == [-1_000_000 / 256, -1 / 256, 0]
    encoder = T5(geometry(1)).double()
    assert bias_of(encoder, positions)[0, 2].tolist() == encoder.bias[[31, 1, 0], 0].tolist()


@pytest.mark.parametrize("dim", [4, 16])
def test_sinusoidal_concatenated_agrees_with_marian(dim: int) -> None:
    library = pytest.importorskip("transformers.models.marian.modeling_marian")
    theirs = library.MarianSinusoidalPositionalEmbedding(512, dim).create_weight()
    found = vectors(dim, torch.arange(512.0), torch.float32, channels="concatenated")
    torch.testing.assert_close(found, theirs, atol=1e-6, rtol=0)


def test_sinusoidal_concatenated_agrees_with_x_transformers() -> None:
    library = pytest.importorskip("x_transformers.x_transformers").ScaledSinusoidalEmbedding(16)
    with torch.no_grad():
        theirs = library(torch.zeros(1, 100, 16)) / library.scale
    found = vectors(16, torch.arange(100.0), torch.float32, channels="concatenated")
    torch.testing.assert_close(found, theirs, atol=5e-6, rtol=0)


# ----------------------------------------------------------------------------------------------------- learned


def test_learned_adds_its_rows_and_a_straight_line_between_them() -> None:
    encoder = pe_zoo.build("learned", geometry(1, 4), num_rows=20).double()
    table = dict(encoder.named_parameters())["table"].detach()
    x, positions = torch.randn(2, 3, 4).double(), torch.tensor([[0.0, 7.0, 19.0], [1.0, 2.25, 18.5]])
    expected = [
        [table[0], table[7], table[19]],
        [table[1], 0.75 * table[2] + 0.25 * table[3], (table[18] + table[19]) / 2],
    ]
    found = encoder.embed(x, positions).detach()
    torch.testing.assert_close(found, x + torch.stack([torch.stack(row) for row in expected]), atol=1e-12, rtol=0)
    assert torch.equal(found[0], x[0] + table[[0, 7, 19]])


@pytest.mark.parametrize("init_std", [0.02, 1.0])
def test_learned_starts_at_its_standard_deviation(init_std: float) -> None:
    table = dict(pe_zoo.build("learned", geometry(1, 16), init_std=init_std).named_parameters())["table"]
    assert table.shape == (2048, 16)
    assert table.std().item() == pytest.approx(init_std, rel=0.03)


def test_none_changes_nothing() -> None:
    q, k = torch.randn(2, 3, 5, 4).double(), torch.randn(2, 3, 5, 4).double()
    encoder = pe_zoo.build("none", geometry(3, 4))
    assert torch.equal(pe_zoo.scores(encoder, q, k), q @ k.mT * 4**-0.5)
    assert torch.equal(encoder.embed(q, torch.arange(5.0)), q)
    assert not any(True for _ in encoder.parameters())
