"""Relative terms: Shaw, Transformer-XL, DeBERTa and TUPE agree with vectors by hand, loops and other libraries."""

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
from pe_zoo import Encoder, Geometry, Site, Unsupported
from pe_zoo._positions import distances, look_up, look_up_both_ways, nearest, row_of
from pe_zoo.deberta import DeBERTa
from pe_zoo.learned import Learned
from pe_zoo.shaw import Shaw
from pe_zoo.transformer_xl import TransformerXL
from pe_zoo.tupe import TUPE

IRREGULAR = [0.0, 1.0, 4.0, 5.0, 11.0, 30.0]
ONE_HEAD = Geometry(model_dim=1, num_heads=1, num_layers=1, train_length=2)
SMALL = Geometry(model_dim=6, num_heads=3, num_layers=2, train_length=6)
LAYER = 1
"""The loops look at the second layer, so that a mistaken index shows."""

Make = Callable[[Geometry], Encoder]
Numbers = list[list[float]]


def golden(name: str) -> Any:
    return json.loads((Path(__file__).parent / "golden" / f"{name}.json").read_text(encoding="utf-8"))


def fresh(encoder: Encoder) -> Any:
    """In float64, with every parameter moved."""
    encoder = encoder.double()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return encoder


def fill(parameter: Tensor, values: Any) -> None:
    with torch.no_grad():
        parameter.copy_(torch.tensor(values, dtype=parameter.dtype).reshape(parameter.shape))


def heads(geometry: Geometry, length: int, batch: int = 2) -> Tensor:
    return torch.randn(batch, geometry.num_heads, length, geometry.head_dim, dtype=torch.float64)


def site_of(positions: Tensor, layer: int = LAYER, causal: bool = False) -> Site:
    keys = positions.shape[-1]
    mask = torch.ones(keys, keys, dtype=torch.bool)
    return Site(
        layer=layer,
        query_positions=positions,
        key_positions=positions,
        rows=slice(0, keys),
        mask=mask.tril() if causal else mask,
        causal=causal,
    )


def dot(a: Any, b: Any) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def times(matrix: Numbers, vector: Any) -> list[float]:
    return [dot(row, vector) for row in matrix]


def check_scores(encoder: Encoder, expected: Callable[[int, list[float], list[float], int, int], float]) -> None:
    """Every score is what a loop over samples, heads, queries and keys says it is."""
    q, k = heads(encoder.geometry, len(IRREGULAR)), heads(encoder.geometry, len(IRREGULAR))
    found = pe_zoo.scores(encoder, q, k, torch.tensor(IRREGULAR), layer=LAYER, causal=False).detach()
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            for i in range(len(IRREGULAR)):
                for j in range(len(IRREGULAR)):
                    score = expected(h, q[b, h, i].tolist(), k[b, h, j].tolist(), i, j)
                    assert found[b, h, i, j].item() == pytest.approx(score, rel=1e-9, abs=1e-12)


# ----------------------------------------------------------------------------------------------------- wavelets


def test_wavelets_by_hand() -> None:
    encoder: Any = pe_zoo.build("wavelet", Geometry(model_dim=4, num_heads=1, num_layers=1, train_length=8))
    rows = encoder.vectors(torch.arange(4).double())
    torch.testing.assert_close(rows, torch.tensor(golden("wavelet")["vectors"], dtype=torch.float64), atol=1e-6, rtol=0)


@pytest.mark.parametrize("scales", [1, 3, 4])
def test_wavelets_by_a_loop(scales: int) -> None:
    geometry = Geometry(model_dim=14, num_heads=2, num_layers=2, train_length=6)

    def expected(h: int, query: list[float], key: list[float], i: int, j: int) -> float:
        score = dot(query, key)
        for c, entry in enumerate(query):
            t = (IRREGULAR[i] - IRREGULAR[j] - c // scales) / 2 ** (c % scales)
            score += entry * (1 - t**2) * math.exp(-0.5 * t**2)
        return score / math.sqrt(7)

    check_scores(pe_zoo.build("wavelet", geometry, scales=scales).double(), expected)


def test_wavelets_are_as_wide_as_published() -> None:
    """Of 128 channels, trained at 512: eight widths, 1 to 128, at sixteen places each."""
    encoder: Any = pe_zoo.build("wavelet", Geometry(model_dim=128, num_heads=1, num_layers=1, train_length=512))
    distance = torch.arange(-400.0, 400.0, dtype=torch.float64)
    peaks, rows = distance[encoder.vectors(distance).argmax(0)], encoder.vectors(distance)
    assert peaks.tolist() == [float(shift) for shift in range(16) for _ in range(8)]
    roots = [
        int((rows[:, c] > 0).sum() + 1) // 2 for c in range(128)
    ]  # a wavelet of width a is above 0 within a of its peak
    assert roots == [2**scale for _ in range(16) for scale in range(8)]


# -------------------------------------------------------------------------------------------------------- Shaw


def check_shaw_keys(make: type[Shaw] = Shaw) -> None:
    encoder = fresh(make(SMALL, max_distance=4))
    table = encoder.key_vectors[LAYER].tolist()

    def expected(h: int, query: list[float], key: list[float], i: int, j: int) -> float:
        clipped = max(-4, min(4, int(IRREGULAR[j] - IRREGULAR[i])))
        return dot(query, [x + y for x, y in zip(key, table[clipped + 4], strict=True)]) / math.sqrt(2)

    check_scores(encoder, expected)


def check_shaw_values(make: type[Shaw] = Shaw) -> None:
    encoder = fresh(make(SMALL, max_distance=4))
    table = encoder.value_vectors[LAYER].tolist()
    v, length = heads(SMALL, len(IRREGULAR)), len(IRREGULAR)
    site = site_of(torch.tensor(IRREGULAR), causal=True)
    scores = torch.randn(2, 3, length, length).double().masked_fill(~site.mask, -torch.inf)
    found = encoder.mix(scores, v, site).detach()
    for b in range(2):
        for h in range(3):
            for i in range(length):
                raised = [math.exp(scores[b, h, i, j]) if j <= i else 0.0 for j in range(length)]
                for dim in range(2):
                    output = 0.0
                    for j in range(length):
                        clipped = max(-4, min(4, int(IRREGULAR[j] - IRREGULAR[i])))
                        output += raised[j] / sum(raised) * (v[b, h, j, dim].item() + table[clipped + 4][dim])
                    assert found[b, h, i, dim].item() == pytest.approx(output, rel=1e-9, abs=1e-12)


def test_shaw_by_a_loop() -> None:
    check_shaw_keys()
    check_shaw_values()


class QueryMinusKey(Shaw):
    """The other sign."""

    def rows(self, distance: Tensor) -> Tensor:
        return super().rows(-distance)


class Unscaled(Shaw):
    """Leaves the term without its 1/sqrt(head_dim)."""

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        return super().score(scores, q * self.geometry.head_dim**0.5, k, site)


class NoValues(Shaw):
    """Forgets the value term, as under fused attention."""

    def mix(self, scores: Tensor, v: Tensor, site: Site) -> Tensor:
        return scores.softmax(-1) @ v


class FirstLayerForAll(Shaw):
    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        return super().score(scores, q, k, site_of(site.key_positions, layer=0))


@pytest.mark.parametrize("fake", [QueryMinusKey, Unscaled, FirstLayerForAll])
def test_wrong_keys_of_shaw_are_caught(fake: type[Shaw]) -> None:
    with pytest.raises(AssertionError):
        check_shaw_keys(fake)


@pytest.mark.parametrize("fake", [QueryMinusKey, NoValues])
def test_wrong_values_of_shaw_are_caught(fake: type[Shaw]) -> None:
    with pytest.raises(AssertionError):
        check_shaw_values(fake)


def test_shaw_by_hand() -> None:
    table = golden("shaw")["rows"]
    places = torch.arange(float(table["length"]))
    rows = Shaw(SMALL, max_distance=table["max_distance"]).rows(places[:, None] - places)
    assert rows[0].tolist() == table["first_query"]
    assert rows[-1].tolist() == table["last_query"]
    table = golden("shaw")["small"]
    encoder = Shaw(ONE_HEAD, max_distance=table["max_distance"]).double()
    assert encoder.value_vectors is not None
    fill(encoder.key_vectors, table["key_vectors"])
    fill(encoder.value_vectors, table["value_vectors"])
    q = torch.tensor(table["queries"]).double().view(1, 1, 2, 1)
    assert pe_zoo.scores(encoder, q, 0 * q)[0, 0].tolist() == table["scores_of_zero_keys"]
    mixed = encoder.mix(q.new_zeros(1, 1, 2, 2), 0 * q, site_of(torch.arange(2.0), layer=0))
    assert mixed.flatten().tolist() == table["outputs_of_equal_weights"]


def test_shaw_is_constant_beyond_the_clip() -> None:
    encoder = fresh(Shaw(SMALL, max_distance=3))
    q, k = heads(SMALL, 8), heads(SMALL, 1).expand(-1, -1, 8, -1)
    scores = pe_zoo.scores(encoder, q, k)
    assert torch.equal(scores[..., 7, :5], scores[..., 7, :1].expand(-1, -1, 5))
    assert not torch.equal(scores[..., 7, 5], scores[..., 7, 4])


def test_shaw_without_values_mixes_as_ever() -> None:
    encoder, v = Shaw(SMALL, value_term=False), heads(SMALL, 5)
    scores = torch.randn(2, 3, 5, 5).double()
    assert torch.equal(encoder.mix(scores, v, site_of(torch.arange(5.0))), scores.softmax(-1) @ v)
    assert [name for name, _ in encoder.named_parameters()] == ["key_vectors"]


def test_shaw_adds_up_many_small_weights_in_half_precision() -> None:
    encoder = Shaw(ONE_HEAD, max_distance=1)
    assert encoder.value_vectors is not None
    fill(encoder.value_vectors, [1, 0, 0])
    site = site_of(torch.arange(4096.0), layer=0)
    last = Site(**{**vars(site), "query_positions": site.key_positions[-1:], "rows": slice(4095, 4096)})
    nothing = torch.zeros(1, 1, 1, 4096, dtype=torch.bfloat16)
    mixed = encoder.bfloat16().mix(nothing, nothing.mT, last)
    assert mixed.item() == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("head_dim", [2, 8])
def test_shaw_agrees_with_relative_key_of_wav2vec2_bert(head_dim: int) -> None:
    library = pytest.importorskip("transformers.models.wav2vec2_bert.modeling_wav2vec2_bert")
    config = pytest.importorskip("transformers").Wav2Vec2BertConfig(
        hidden_size=2 * head_dim,
        num_attention_heads=2,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=5,
        right_max_position_embeddings=5,
    )
    attention = library.Wav2Vec2BertSelfAttention(config).double()
    geometry = Geometry(model_dim=2 * head_dim, num_heads=2, num_layers=2, train_length=12)
    encoder = fresh(Shaw(geometry, max_distance=5))
    fill(attention.distance_embedding.weight, encoder.key_vectors[LAYER].tolist())
    q, k = heads(geometry, 12), heads(geometry, 12)
    _, bias = library._apply_relative_key_position_encoding(attention, q, k)
    expected = q @ k.mT / math.sqrt(head_dim) + bias
    torch.testing.assert_close(pe_zoo.scores(encoder, q, k, layer=LAYER), expected, atol=1e-12, rtol=1e-9)


def test_shaw_agrees_with_vits_within_its_window() -> None:
    """Keys and values; VITS drops the terms beyond its window, Shaw et al. clip there."""
    library = pytest.importorskip("transformers.models.vits.modeling_vits")
    config = pytest.importorskip("transformers").VitsConfig(
        hidden_size=8, num_attention_heads=2, window_size=7, attention_dropout=0.0
    )
    attention = library.VitsAttention(config).double().eval()
    geometry = Geometry(model_dim=8, num_heads=2, num_layers=2, train_length=8)
    encoder = fresh(Shaw(geometry, max_distance=7))
    fill(attention.emb_rel_k, encoder.key_vectors[LAYER].tolist())
    fill(attention.emb_rel_v, encoder.value_vectors[LAYER].tolist())
    x = torch.randn(3, 8, 8).double()
    with torch.no_grad():
        expected, _ = attention(x)
        q, k, v = (
            project(x).unflatten(-1, (2, 4)).transpose(1, 2)
            for project in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        scores = pe_zoo.scores(encoder, q, k, layer=LAYER)
        mixed = encoder.mix(scores, v, site_of(torch.arange(8.0)))
        found = attention.out_proj(mixed.transpose(1, 2).flatten(-2))
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-9)


# ---------------------------------------------------------------------------------------------- Transformer-XL


def check_transformer_xl(make: type[TransformerXL] = TransformerXL, **knobs: Any) -> None:
    encoder = fresh(make(SMALL, **knobs))
    shared = 0 if not knobs.get("untied") else LAYER
    u, v = encoder.u[shared].squeeze(1).tolist(), encoder.v[shared].squeeze(1).tolist()
    w = encoder.projection[LAYER].tolist()
    base, clamp = knobs.get("base", 10000.0), knobs.get("clamp_len") or math.inf

    def expected(h: int, query: list[float], key: list[float], i: int, j: int) -> float:
        distance = max(-clamp, min(clamp, IRREGULAR[i] - IRREGULAR[j]))
        angle = [distance / base ** (2 * n / 6) for n in range(3)]
        sinusoid = [*map(math.sin, angle), *map(math.cos, angle)]
        content = dot([a + b for a, b in zip(query, u[h], strict=True)], key)
        return (content + dot([a + b for a, b in zip(query, v[h], strict=True)], times(w[h], sinusoid))) / math.sqrt(2)

    check_scores(encoder, expected)


@pytest.mark.parametrize(
    "knobs", [{}, {"untied": True}, {"base": 100.0}, {"clamp_len": 5}, {"clamp_len": 4, "untied": True}]
)
def test_transformer_xl_by_a_loop(knobs: dict[str, Any]) -> None:
    check_transformer_xl(**knobs)


class LookingAhead(TransformerXL):
    """A sinusoid of key minus query."""

    def sinusoid(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        sin, cos = super().sinusoid(positions, dtype)
        return -sin, cos


class CommonPartOfKeysOnly(TransformerXL):
    """Forgets v."""

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        self.v.data.zero_()
        return super().score(scores, q, k, site)


class NotScaled(TransformerXL):
    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        changed = super().score(scores, q, k, site)
        return scores + (changed - scores) * self.geometry.head_dim**0.5


@pytest.mark.parametrize("fake", [LookingAhead, CommonPartOfKeysOnly, NotScaled])
def test_a_wrong_transformer_xl_is_caught(fake: type[TransformerXL]) -> None:
    with pytest.raises(AssertionError):
        check_transformer_xl(fake)


def plain_transformer_xl() -> Any:
    """W the identity, no common parts: the query reads the sinusoid itself."""
    encoder = TransformerXL(Geometry(model_dim=2, num_heads=1, num_layers=1, train_length=5)).double()
    fill(encoder.projection, [[1, 0], [0, 1]])
    fill(encoder.u, [0, 0])
    fill(encoder.v, [0, 0])
    return encoder


def test_transformer_xl_by_hand() -> None:
    table = golden("transformer_xl")
    keys = -torch.tensor(table["distances"]).double()
    for query, read in (((1.0, 0.0), "sin"), ((0.0, 1.0), "cos")):
        q = torch.tensor(query).double().expand(1, 1, 5, 2)
        scores = pe_zoo.scores(plain_transformer_xl(), q, 0 * q, keys)[0, 0, 2] * math.sqrt(2)
        assert scores.tolist() == pytest.approx(table[read], abs=5e-7)


def test_transformer_xl_is_right_above_the_diagonal() -> None:
    def shift(x: Tensor) -> Tensor:
        return torch.nn.functional.pad(x, (1, 0)).flatten()[3:].view(3, 3)

    assert shift(torch.arange(9).view(3, 3)).tolist() == golden("transformer_xl")["shifted"]
    q = torch.randn(3, 2).double()
    found = pe_zoo.scores(plain_transformer_xl(), q[None, None], 0 * q[None, None])[0, 0] * math.sqrt(2)
    distances = torch.tensor([2.0, 1.0, 0.0]).double()
    shifted = shift(q @ torch.stack([distances.sin(), distances.cos()]))
    torch.testing.assert_close(found.tril(), shifted.tril(), atol=1e-12, rtol=0)
    assert (found - shifted).triu(1).abs().max() > 0.1


@pytest.mark.parametrize("clamp_len", [None, 4])
def test_transformer_xl_agrees_with_xlnet(clamp_len: int | None) -> None:
    library = pytest.importorskip("transformers.models.xlnet.modeling_xlnet")
    config = pytest.importorskip("transformers").XLNetConfig(d_model=12, n_head=3, dropout=0.0)
    attention, length = library.XLNetRelativeAttention(config).double(), 9
    geometry = Geometry(model_dim=12, num_heads=3, num_layers=2, train_length=length)
    encoder = fresh(TransformerXL(geometry, untied=True, clamp_len=clamp_len))
    fill(attention.r, encoder.projection[LAYER].permute(2, 0, 1).tolist())
    fill(attention.r_w_bias, encoder.u[LAYER].tolist())
    fill(attention.r_r_bias, encoder.v[LAYER].tolist())
    distances = torch.arange(length, -length, -1).double()
    if clamp_len:
        distances = distances.clamp(-clamp_len, clamp_len)
    sinusoid = library.XLNetModel.positional_embedding(
        distances, 1 / 10000 ** (torch.arange(0, 12, 2).double() / 12), 2
    )
    q, k, v = (heads(geometry, length) for _ in range(3))
    with torch.no_grad():
        theirs, weights = attention.rel_attn_core(
            *(x.permute(2, 0, 1, 3) for x in (q, k, v)),
            torch.einsum("ibh,hnd->ibnd", sinusoid, attention.r),
            output_attentions=True,
        )
    scores = pe_zoo.scores(encoder, q, k, layer=LAYER, causal=False)
    torch.testing.assert_close(scores.softmax(-1), weights.permute(2, 3, 0, 1), atol=1e-12, rtol=1e-9)
    mixed = encoder.mix(scores, v, site_of(torch.arange(float(length))))
    torch.testing.assert_close(mixed, theirs.permute(1, 2, 0, 3), atol=1e-12, rtol=1e-9)


def test_transformer_xl_is_right_far_out() -> None:
    encoder = fresh(TransformerXL(SMALL))
    q, k = heads(SMALL, 6), heads(SMALL, 6)
    near = pe_zoo.scores(encoder, q, k, torch.arange(6.0))
    torch.testing.assert_close(pe_zoo.scores(encoder, q, k, torch.arange(6.0) + 1e6), near, atol=1e-8, rtol=0)
    single = pe_zoo.scores(encoder.float(), q.float(), k.float(), torch.arange(6.0) + 1e6)
    torch.testing.assert_close(single.double(), near, atol=2e-5, rtol=0)


def test_transformer_xl_refuses_an_odd_model_dim() -> None:
    with pytest.raises(ValueError, match=r"transformer_xl.*even model_dim; got 9, use 8 or 10"):
        TransformerXL(Geometry(model_dim=9, num_heads=3, num_layers=1, train_length=4))


# ----------------------------------------------------------------------------------------------------- DeBERTa


def naive_log_bucket(distance: float, num_buckets: int, max_distance: int) -> int:
    """As version 2 writes it, one distance at a time."""
    mid, size = num_buckets // 2, abs(distance)
    if size <= mid:
        return int(distance)
    bucket = math.ceil(math.log(size / mid) / math.log((max_distance - 1) / mid) * (mid - 1)) + mid
    return bucket if distance > 0 else -bucket


def check_deberta(make: type[DeBERTa] = DeBERTa, **knobs: Any) -> None:
    encoder = fresh(make(SMALL, **knobs))
    table = encoder.vectors.tolist()
    half = len(table) // 2
    to_key, to_query = encoder.to_key[LAYER].mT.tolist(), encoder.to_query[LAYER].mT.tolist()
    bias = encoder.query_bias[LAYER].squeeze(1).tolist()

    def expected(h: int, query: list[float], key: list[float], i: int, j: int) -> float:
        distance = IRREGULAR[i] - IRREGULAR[j]
        if "num_buckets" in knobs:
            distance = naive_log_bucket(distance, knobs["num_buckets"], knobs["max_distance"])
        vector = table[max(0, min(2 * half - 1, int(distance) + half))]
        position_query = [a + b for a, b in zip(times(to_query[h], vector), bias[h], strict=True)]
        return (dot(query, key) + dot(query, times(to_key[h], vector)) + dot(key, position_query)) / math.sqrt(3 * 2)

    check_scores(encoder, expected)


@pytest.mark.parametrize(
    "knobs", [{}, {"max_distance": 2}, {"max_distance": 40}, {"num_buckets": 6, "max_distance": 17}]
)
def test_deberta_by_a_loop(knobs: dict[str, Any]) -> None:
    check_deberta(**knobs)


class OnlyTheTermsScaled(DeBERTa):
    """Leaves the content at 1/sqrt(d)."""

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        return super().score(scores * 3**0.5, q, k, site)


class OtherDistance(DeBERTa):
    """Key minus query."""

    def rows(self, distance: Tensor) -> Tensor:
        return super().rows(-distance)


class ContentToPositionOnly(DeBERTa):
    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        return super().score(scores, q, 0 * k, site)


@pytest.mark.parametrize("fake", [OnlyTheTermsScaled, OtherDistance, ContentToPositionOnly])
def test_a_wrong_deberta_is_caught(fake: type[DeBERTa]) -> None:
    with pytest.raises(AssertionError):
        check_deberta(fake)


def test_deberta_by_hand() -> None:
    table = golden("deberta")["rows"]
    places = torch.arange(float(table["length"]))
    rows = DeBERTa(SMALL, max_distance=table["max_distance"]).rows(places[:, None] - places)
    assert rows[0].tolist() == table["first_query"]
    assert rows[-1].tolist() == table["last_query"]
    table = golden("deberta")["small"]
    encoder = DeBERTa(ONE_HEAD, max_distance=table["max_distance"]).double()
    for name in ("vectors", "to_key", "to_query", "query_bias"):
        fill(getattr(encoder, name), table[name])
    q, k = (torch.tensor(table[name]).double().view(1, 1, 2, 1) for name in ("queries", "keys"))
    expected = torch.tensor(table["scores_times_sqrt_3"]).double()
    torch.testing.assert_close(pe_zoo.scores(encoder, q, k)[0, 0] * 3**0.5, expected, atol=1e-9, rtol=0)


def test_deberta_log_buckets_are_the_official_ones() -> None:
    encoder = DeBERTa(SMALL, num_buckets=256, max_distance=512)
    for distance, bucket in golden("deberta")["log_buckets"].items():
        both = encoder.rows(torch.tensor([float(distance), -float(distance)]))
        assert both.tolist() == [256 + bucket, 256 - bucket]
    assert encoder.rows(torch.tensor([0.0, 600.0, 1e6, -600.0, -1e6])).tolist() == [256, 511, 511, 0, 0]


@pytest.mark.parametrize(("num_buckets", "max_distance"), [(256, 512), (4, 6), (32, 128), (8, 33)])
def test_deberta_log_buckets_by_a_loop(num_buckets: int, max_distance: int) -> None:
    encoder = DeBERTa(SMALL, num_buckets=num_buckets, max_distance=max_distance)
    distances = range(-2 * max_distance, 2 * max_distance)
    expected = [
        max(-num_buckets, min(num_buckets - 1, naive_log_bucket(d, num_buckets, max_distance))) + num_buckets
        for d in distances
    ]
    assert encoder.rows(torch.tensor([*distances]).float()).tolist() == expected


@pytest.mark.parametrize("max_distance", [5, 40])
def test_deberta_agrees_with_transformers(max_distance: int) -> None:
    library = pytest.importorskip("transformers.models.deberta.modeling_deberta")
    config = pytest.importorskip("transformers").DebertaConfig(
        hidden_size=12,
        num_attention_heads=3,
        relative_attention=True,
        max_relative_positions=max_distance,
        pos_att_type=["c2p", "p2c"],
        hidden_dropout_prob=0.0,
    )
    attention = library.DisentangledSelfAttention(config).double().eval()
    geometry = Geometry(model_dim=12, num_heads=3, num_layers=2, train_length=9)
    encoder = fresh(DeBERTa(geometry, max_distance=max_distance))
    fill(attention.pos_proj.weight, encoder.to_key[LAYER].mT.tolist())
    fill(attention.pos_q_proj.weight, encoder.to_query[LAYER].mT.tolist())
    fill(attention.pos_q_proj.bias, encoder.query_bias[LAYER].tolist())
    q, k = heads(geometry, 9), heads(geometry, 9)
    with torch.no_grad():
        scaled = q / math.sqrt(3 * 4)
        terms = attention.disentangled_att_bias(
            scaled, k, library.build_relative_position(q, k), encoder.vectors.detach(), 3
        )
    found = pe_zoo.scores(encoder, q, k, layer=LAYER, causal=False).detach()
    torch.testing.assert_close(found, scaled @ k.mT + terms, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(("num_buckets", "max_distance"), [(8, 32), (12, 20)])
def test_deberta_with_buckets_agrees_with_deberta_v2(num_buckets: int, max_distance: int) -> None:
    library = pytest.importorskip("transformers.models.deberta_v2.modeling_deberta_v2")
    config = pytest.importorskip("transformers").DebertaV2Config(
        hidden_size=12,
        num_attention_heads=3,
        relative_attention=True,
        position_buckets=num_buckets,
        max_relative_positions=max_distance,
        pos_att_type=["c2p", "p2c"],
        share_att_key=False,
        hidden_dropout_prob=0.0,
    )
    attention = library.DisentangledSelfAttention(config).double().eval()
    geometry = Geometry(model_dim=12, num_heads=3, num_layers=2, train_length=40)
    encoder = fresh(DeBERTa(geometry, num_buckets=num_buckets, max_distance=max_distance))
    fill(attention.pos_key_proj.weight, encoder.to_key[LAYER].mT.tolist())
    fill(attention.pos_key_proj.bias, [0.0] * 12)
    fill(attention.pos_query_proj.weight, encoder.to_query[LAYER].mT.tolist())
    fill(attention.pos_query_proj.bias, encoder.query_bias[LAYER].tolist())
    q, k = heads(geometry, 40, batch=1), heads(geometry, 40, batch=1)
    rows = library.build_relative_position(q, k, bucket_size=num_buckets, max_position=max_distance)
    with torch.no_grad():
        terms = attention.disentangled_attention_bias(q[0], k[0], rows, encoder.vectors.detach(), 3)
    found = pe_zoo.scores(encoder, q, k, layer=LAYER, causal=False).detach()
    torch.testing.assert_close(found[0], q[0] @ k[0].mT / math.sqrt(3 * 4) + terms, atol=1e-6, rtol=1e-6)


def test_deberta_says_which_buckets_fit_its_distance() -> None:
    for num_buckets, max_distance in ((7, 64), (64, 33), (6, 4)):
        with pytest.raises(ValueError, match=rf"num_buckets must be even and below .*= {2 * max_distance - 2}, "):
            DeBERTa(SMALL, num_buckets=num_buckets, max_distance=max_distance)
    assert DeBERTa(SMALL, num_buckets=64, max_distance=34).vectors.shape == (128, 6)
    assert DeBERTa(SMALL).vectors.shape == (12, 6), "half the rows are the training length"


# -------------------------------------------------------------------------------------------------------- TUPE


def naive_norm(vector: list[float], weight: list[float], bias: list[float]) -> list[float]:
    mean = sum(vector) / len(vector)
    spread = math.sqrt(sum((x - mean) ** 2 for x in vector) / len(vector) + 1e-5)
    return [(x - mean) / spread * w + b for x, w, b in zip(vector, weight, bias, strict=True)]


def naive_bucket(distance: float, causal: bool, num_buckets: int, max_distance: int) -> int:
    """T5's, one distance at a time."""
    if causal:
        side, distance = 0, max(distance, 0)
    else:
        num_buckets //= 2
        side, distance = (num_buckets if distance < 0 else 0), abs(distance)
    exact = num_buckets // 2
    if distance < exact:
        return side + int(distance)
    grown = exact + int(math.log(distance / exact) / math.log(max_distance / exact) * (num_buckets - exact) + 1e-9)
    return side + min(grown, num_buckets - 1)


def check_tupe(make: type[TUPE] = TUPE, causal: bool = False, **knobs: Any) -> None:
    encoder = fresh(make(SMALL, num_rows=32, **knobs))
    table, weight, bias = encoder.table.tolist(), encoder.norm.weight.tolist(), encoder.norm.bias.tolist()
    project, added = encoder.projection.weight.tolist(), encoder.projection.bias.tolist()

    def product(h: int, a: list[float], b: list[float]) -> float:
        of_query = [x + y for x, y in zip(times(project, naive_norm(a, weight, bias)), added, strict=True)]
        of_key = [x + y for x, y in zip(times(project, naive_norm(b, weight, bias)), added, strict=True)]
        return dot(of_query[2 * h : 2 * h + 2], of_key[6 + 2 * h : 6 + 2 * h + 2]) / math.sqrt(2 * 2)

    def expected(h: int, query: list[float], key: list[float], i: int, j: int) -> float:
        p, r = IRREGULAR[i], IRREGULAR[j]
        if knobs.get("untie_first", True) and (i == 0 or j == 0):
            first = encoder.first[0 if i == 0 else 1].tolist()
            positional = product(h, first, first)
        else:
            positional = product(h, table[int(p)], table[int(r)])
            if "num_buckets" in knobs:
                bucket = naive_bucket(p - r, causal, knobs["num_buckets"], knobs["max_distance"])
                positional += encoder.relative[bucket, h].item()
        return dot(query, key) / math.sqrt(2 * 2) + positional

    check_scores(encoder, expected)


@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"untie_first": False},
        {"num_buckets": 8, "max_distance": 20},
        {"num_buckets": 16, "max_distance": 17, "untie_first": False},
    ],
)
def test_tupe_by_a_loop(knobs: dict[str, Any]) -> None:
    check_tupe(**knobs)


class ContentNotScaled(TUPE):
    """Leaves the content at 1/sqrt(d)."""

    def rotate(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        return q, k


class ColumnBeforeRow(TUPE):
    """Resets the row first, so that the corner gets the column's number."""

    def _untie(self, first: Tensor, bias: Tensor, site: Site) -> Tensor:
        return super()._untie(first.flip(0), bias.mT, site).mT


class OtherVectors(TUPE):
    def _project(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        return super()._project(vectors + vectors.detach().square())


@pytest.mark.parametrize("fake", [ContentNotScaled, ColumnBeforeRow, OtherVectors])
def test_a_wrong_tupe_is_caught(fake: type[TUPE]) -> None:
    with pytest.raises(AssertionError):
        check_tupe(fake)


@pytest.mark.parametrize("untie_first", [True, False])
def test_tupe_by_hand(untie_first: bool) -> None:
    table = golden("tupe")
    geometry = Geometry(model_dim=2, num_heads=1, num_layers=1, train_length=3)
    encoder = TUPE(geometry, num_rows=3, untie_first=untie_first).double()
    fill(encoder.table, table["table"])
    fill(encoder.norm.bias, table["norm_bias"])
    fill(encoder.projection.weight, [[1, 0], [0, 1], [1, 0], [0, 1]])
    if encoder.first is not None:
        fill(encoder.first, table["first"])
    q = torch.tensor(table["query_and_key"]).double().expand(1, 1, 3, 2)
    expected = torch.tensor(table["untied" if untie_first else "tied"]).double() + table["content"]
    torch.testing.assert_close(pe_zoo.scores(encoder, q, q)[0, 0], expected, atol=1e-8, rtol=0)


def test_tupe_in_a_causal_model_has_the_buckets_that_look_back() -> None:
    encoder = fresh(TUPE(SMALL, num_buckets=8, max_distance=20, untie_first=False))
    bare = fresh(TUPE(SMALL, untie_first=False))
    bare.load_state_dict(encoder.state_dict(), strict=False)
    positions = torch.tensor(IRREGULAR)
    q = heads(SMALL, len(IRREGULAR))
    for causal in (True, False):
        added = pe_zoo.scores(encoder, q, q, positions, causal=causal) - pe_zoo.scores(bare, q, q, positions)
        for i, p in enumerate(IRREGULAR):
            for j, r in enumerate(IRREGULAR):
                expected = encoder.relative[naive_bucket(p - r, causal, 8, 20)]
                torch.testing.assert_close(added[0, :, i, j], expected, atol=1e-12, rtol=0)


def test_tupe_unties_the_first_place_and_not_position_0() -> None:
    encoder = fresh(TUPE(SMALL))
    q = heads(SMALL, 5)
    shifted = pe_zoo.scores(encoder, q, 0 * q, torch.tensor([7.0, 0.0, 3.0, 1.0, 2.0]))
    usual = pe_zoo.scores(encoder, q, 0 * q)
    assert torch.equal(shifted[:, :, 0], usual[:, :, 0])
    assert torch.equal(shifted[:, :, :, 0], usual[:, :, :, 0])
    assert torch.equal(usual[:, :, 0], usual[:, :, 0, :1].expand(-1, -1, 5))
    assert torch.equal(usual[:, :, 1:, 0], usual[:, :, 1:2, 0].expand(-1, -1, 4))
    assert not torch.equal(usual[:, :, 1, 1], usual[:, :, 0, 0])
    assert not torch.equal(usual[:, :, 1, 0], usual[:, :, 0, 0])
    last = pe_zoo.scores(encoder, q[:, :, -2:], 0 * q)
    torch.testing.assert_close(last, usual[:, :, -2:], atol=1e-12, rtol=0)


def test_tupe_is_the_same_in_all_layers() -> None:
    encoder, q = fresh(TUPE(SMALL)), heads(SMALL, 5)
    assert torch.equal(pe_zoo.scores(encoder, q, q, layer=0), pe_zoo.scores(encoder, q, q, layer=1))


# ------------------------------------------------------------------------------------------------------ tables


@pytest.mark.parametrize("make", [Learned, TUPE])
def test_a_table_too_small_for_training_is_refused(make: type[Learned] | type[TUPE]) -> None:
    with pytest.raises(ValueError, match=rf"{make.name} has num_rows=5, too few for the 6 positions"):
        make(SMALL, num_rows=5)
    assert make(SMALL, num_rows=6).max_length == 6


def test_tupe_interpolates_between_rows() -> None:
    encoder = fresh(TUPE(SMALL, num_rows=8, untie_first=False))
    with torch.no_grad():
        encoder.table[3] = 0.75 * encoder.table[1] + 0.25 * encoder.table[2]
    q = heads(SMALL, 2)
    between, whole = (pe_zoo.scores(encoder, q, q, torch.tensor([0.0, p])) for p in (1.25, 3.0))
    torch.testing.assert_close(between, whole, atol=1e-12, rtol=0)


def test_tupe_refuses_positions_without_a_row() -> None:
    encoder = fresh(TUPE(SMALL, num_rows=8))
    q = heads(SMALL, 3)
    for wrong in (-1.0, 8.0):
        positions = torch.tensor([0.0, wrong, 3.0])
        with pytest.raises(Unsupported, match=r"tupe has rows for positions 0 to 7; .*Set num_rows higher"):
            pe_zoo.scores(encoder, q, q, positions)
        both = torch.stack([torch.arange(3.0), positions])
        found = torch.func.vmap(lambda p: pe_zoo.scores(encoder, q, q, p))(both)
        assert found[0].isfinite().all()
        assert found[1, :, :, 1, 1:].isnan().all()
        assert found[1, :, :, 2, 2].isfinite().all()


@pytest.mark.parametrize("make", [Shaw, DeBERTa])
def test_a_fractional_distance_counts_as_the_nearest_whole_one(make: Make) -> None:
    encoder, q = fresh(make(SMALL)), heads(SMALL, 3)
    near, whole = (
        pe_zoo.scores(encoder, q, q, torch.tensor(positions)) for positions in ([0.2, 1.0, 3.4], [0.0, 1.0, 3.0])
    )
    assert torch.equal(near, whole)


# --------------------------------------------------------------------------------------------- fractional distances


@pytest.mark.parametrize("parts", [3, 6, 7, 10])
@pytest.mark.parametrize("shift", [0.0, 0.1, 1024.0, 30_000.0])
def test_distances_are_exact_beyond_float32(parts: int, shift: float) -> None:
    places = torch.arange(99)
    between = distances(places, places)  # in parts of a position
    distance = distances(places / parts + shift, places / parts + shift)
    whole = between.abs() // parts
    buckets = torch.arange(50)
    assert torch.equal(look_up(distance, buckets), (between // parts).clamp(min=0))
    assert torch.equal(look_up_both_ways(distance, buckets, 100), whole + 100 * (between <= -parts))
    assert torch.equal(nearest(distance), between.sign() * ((2 * between.abs() + parts) // (2 * parts)))


def test_whole_distances_are_exact_as_far_as_float32_is() -> None:
    for far in (0, 2**15, 2**22, 2**23, 2**24 - 201):
        distance = torch.arange(far, far + 201.0)
        assert torch.equal(row_of(distance, 2**24), distance.long())
        assert torch.equal(nearest(distance), distance)
        assert torch.equal(nearest(-distance), -distance)


def test_relative_projection_ends_where_its_window_does() -> None:
    """Not a rounding before or after it, and not just ahead of the query's own place."""
    encoder = fresh(pe_zoo.build("relative_projection", SMALL, window=2))
    positions, q = torch.arange(40) / 6, heads(SMALL, 40)
    raw = pe_zoo.scores(Encoder(SMALL), q, 0 * q)
    added = pe_zoo.scores(encoder, q, 0 * q, positions, layer=LAYER, x=torch.ones(2, 40, 6).double()) - raw
    between = distances(torch.arange(40), torch.arange(40))
    assert torch.equal(added[0, 0] != 0, (between >= 0) & (between < 12))
    assert len(added[0, 0][(between >= 6) & (between < 12)].unique()) == 1
