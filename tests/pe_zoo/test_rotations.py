"""The rotary family: each agrees with printed numbers, a loop written from its paper, and another library."""

from __future__ import annotations

import cmath
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import pe_zoo
from experiments.model.transformer import Transformer
from pe_zoo import Encoder, Geometry, Site, Unsupported
from pe_zoo._positions import angles, geometric_frequencies
from pe_zoo._rotation import _may_be_complex, reach, rotate_pairs, rotations_ramp
from pe_zoo.clipped_rope import ClippedRoPE
from pe_zoo.longrope import LongRoPE
from pe_zoo.rope_dynamic_ntk import DynamicNTKRoPE
from pe_zoo.xpos import XPos
from pe_zoo.yarn import YaRN

HEAD_DIM = 8
TRAIN_LENGTH = 20
NEAR = [0.0, 1.0, 5.0, 6.5, 17.0]
FAR = [0.0, 3.0, 19.0, 20.0, 21.5, 40.0, 66.0]

Frequency = Callable[[int, float], float]
"""Of a pair, at a length of the text: radians per position."""


def golden(name: str) -> Any:
    return json.loads((Path(__file__).parent / "golden" / f"{name}.json").read_text(encoding="utf-8"))


def geometry(heads: int = 2, head_dim: int = HEAD_DIM, train_length: int = TRAIN_LENGTH) -> Geometry:
    return Geometry(model_dim=heads * head_dim, num_heads=heads, num_layers=2, train_length=train_length)


def heads_of(
    encoder: Encoder, length: int, batch: int = 1, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    shape = (batch, encoder.geometry.num_heads, length, encoder.geometry.head_dim)
    return torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)


def site_of(positions: Tensor, causal: bool = True) -> Site:
    keys = positions.shape[-1]
    mask = torch.ones(keys, keys, dtype=torch.bool)
    return Site(
        layer=0,
        query_positions=positions,
        key_positions=positions,
        rows=slice(0, keys),
        mask=mask.tril() if causal else mask,
        causal=causal,
    )


# ----------------------------------------------------------------------------------- loops, pair by pair of tokens


def by_a_loop(
    q: Tensor, k: Tensor, positions: list[float], frequency: Frequency, *, causal: bool, scale: float = 1.0
) -> Tensor:
    """Scores from complex numbers: the real part of q · conj(k), each turned by position times frequency."""
    _, heads, length, head_dim = q.shape
    found = torch.zeros(1, heads, length, length, dtype=torch.float64)
    for h in range(heads):
        for i in range(length):
            text = (max(positions[: i + 1]) if causal else max(positions)) + 1
            for j in range(length):
                score = 0.0
                for pair in range(head_dim // 2):
                    theta = frequency(pair, text)
                    here = complex(*q[0, h, i, 2 * pair : 2 * pair + 2].tolist())
                    there = complex(*k[0, h, j, 2 * pair : 2 * pair + 2].tolist())
                    here *= scale * cmath.exp(1j * positions[i] * theta)
                    there *= scale * cmath.exp(1j * positions[j] * theta)
                    score += (here * there.conjugate()).real
                found[0, h, i, j] = score / math.sqrt(head_dim)
    return found


def rope(pair: int, base: float = 10000.0, head_dim: int = HEAD_DIM) -> float:
    return float(1 / base ** (2 * pair / head_dim))


def p_rope(pair: int, length: float) -> float:
    return rope(pair) if pair < 3 else 0.0


def linear(pair: int, length: float) -> float:
    return rope(pair) / 4


def ntk(pair: int, length: float) -> float:
    return rope(pair, base=10000.0 * 4 ** (HEAD_DIM / (HEAD_DIM - 2)))


def dynamic_ntk(factor: float) -> Frequency:
    def frequency(pair: int, length: float) -> float:
        if length <= TRAIN_LENGTH:
            return rope(pair)
        stretch = factor * length / TRAIN_LENGTH - (factor - 1)
        return rope(pair, base=10000.0 * stretch ** (HEAD_DIM / (HEAD_DIM - 2)))

    return frequency


def interpolated(pair: int, original_length: int, base: float) -> float:
    """How much of a pair YaRN interpolates."""
    low, high = (
        HEAD_DIM * math.log(original_length / (turns * 2 * math.pi)) / (2 * math.log(base)) for turns in (32, 1)
    )
    low, high = max(math.floor(low), 0), min(math.ceil(high), HEAD_DIM - 1)
    if low == high:
        return float(pair > low)
    return min(max((pair - low) / (high - low), 0), 1)


def yarn(original_length: int, base: float, factor: float) -> Frequency:
    def frequency(pair: int, length: float) -> float:
        share = interpolated(pair, original_length, base)
        return rope(pair, base) / factor * share + rope(pair, base) * (1 - share)

    return frequency


def llama3(pair: int, length: float) -> float:
    theta = rope(pair, base=100.0)
    wavelength = 2 * math.pi / theta
    if wavelength < 64 / 4:
        return theta
    if wavelength > 64 / 1:
        return theta / 8
    smooth = (64 / wavelength - 1) / (4 - 1)
    return (1 - smooth) * theta / 8 + smooth * theta


def longrope(pair: int, length: float) -> float:
    if length <= TRAIN_LENGTH:
        return rope(pair)
    return rope(pair) / (1 + (8 - 1) * interpolated(pair, TRAIN_LENGTH, 10000.0))


def hope(pair: int, length: float) -> float:
    return rope(pair, base=100.0) if 2 * math.pi / rope(pair, base=100.0) <= TRAIN_LENGTH else 0.0


def in_distribution(pair: int, length: float) -> float:
    """RoPE-ID, two of four pairs: in training, the slower turns twice; the faster is as slow as RoPE's fastest."""
    return [1.0, 2 * math.pi / (TRAIN_LENGTH / 2), 0.0, 0.0][pair]


def in_distribution_of_all(pair: int, length: float) -> float:
    return float(2 * math.pi / (3.0 * (TRAIN_LENGTH / 3.0) ** (pair / 3)))


def soft(pair: int, length: float) -> float:
    return rope(pair) * [1, 1, 0.5, 0][pair]


def hard(pair: int, length: float) -> float:
    return rope(pair) * [1, 0, 0, 0][pair]


def named(part: object) -> str:
    """Of a test: the same in every process, which the address of a function is not."""
    return str(getattr(part, "__name__", part))[:40]


METHODS: list[tuple[str, dict[str, Any], Frequency, float]] = [
    ("p_rope", {}, p_rope, 1.0),
    ("p_rope", {"fraction": 1.0}, lambda pair, length: rope(pair), 1.0),
    ("rope_linear", {}, linear, 1.0),
    ("rope_ntk", {}, ntk, 1.0),
    ("rope_dynamic_ntk", {}, dynamic_ntk(1.0), 1.0),
    ("rope_dynamic_ntk", {"factor": 3.0}, dynamic_ntk(3.0), 1.0),
    ("yarn", {"original_length": 300}, yarn(300, 10000.0, 16.0), 0.1 * math.log(16) + 1),
    ("yarn", {"original_length": 1000, "base": 50.0, "factor": 4.0}, yarn(1000, 50.0, 4.0), 0.1 * math.log(4) + 1),
    ("yarn", {}, yarn(TRAIN_LENGTH, 10000.0, 16.0), 0.1 * math.log(16) + 1),
    ("llama3_rope", {"base": 100.0, "original_length": 64}, llama3, 1.0),
    ("longrope", {}, longrope, math.sqrt(1 + math.log(8) / math.log(TRAIN_LENGTH))),
    ("hope", {"base": 100.0}, hope, 1.0),
    ("rope_id", {}, in_distribution, 1.0),
    ("rope_id", {"fraction": 1.0, "turns": 1.0, "shortest": 3}, in_distribution_of_all, 1.0),
    ("clipped_rope", {"fraction": 0.7}, soft, 1.0),
    ("clipped_rope", {"fraction": 0.7, "clipping": "hard"}, hard, 1.0),
    ("learned_rope", {}, lambda pair, length: rope(pair), 1.0),
    ("resonance_rope", {}, lambda pair, length: 2 * math.pi / golden("resonance_rope")["wavelengths"][pair], 1.0),
]


def check_loop(encoder: Encoder, frequency: Frequency, scale: float) -> None:
    for positions in (NEAR, FAR):
        for causal in (True, False):
            q, k = heads_of(encoder, len(positions))
            found = pe_zoo.scores(encoder, q, k, torch.tensor(positions), causal=causal).detach()
            expected = by_a_loop(q, k, positions, frequency, causal=causal, scale=scale)
            torch.testing.assert_close(found, expected, atol=1e-11, rtol=0)


def odd_offset(x: Tensor) -> Tensor:
    """The same numbers behind one more, where no pair begins at an even place of the memory."""
    return torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape)


def odd_rows(x: Tensor) -> Tensor:
    """The same numbers in rows of an odd width."""
    return torch.cat([x, x[..., :1]], -1)[..., :-1]


@pytest.mark.parametrize(
    "lay", [odd_offset, odd_rows, lambda x: x.mT.contiguous().mT], ids=["offset", "rows", "columns"]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_however_the_numbers_lie_in_memory_the_turn_is_the_same(
    lay: Callable[[Tensor], Tensor], dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(0)
    x, angle = torch.randn(2, 3, 5, 8, generator=generator, dtype=dtype), torch.randn(5, 3, generator=generator)
    turned, gradients = [], []
    for laid in (lambda x: x, lay):
        leaf = x.clone().requires_grad_()
        turned.append(rotate_pairs(laid(leaf), angle.to(dtype), scale=1.5))
        gradients.append(torch.autograd.grad(turned[-1].pow(3).sum(), leaf)[0])
    assert not _may_be_complex(lay(x)[..., :6])
    for one, other in (turned, gradients):
        torch.testing.assert_close(one, other, atol=1e-6 if dtype == torch.float32 else 1e-13, rtol=1e-6)


@pytest.mark.parametrize(("name", "knobs", "frequency", "scale"), METHODS, ids=named)
def test_by_a_loop(name: str, knobs: dict[str, Any], frequency: Frequency, scale: float) -> None:
    check_loop(pe_zoo.build(name, geometry(), **knobs), frequency, scale)


@pytest.mark.parametrize(("name", "knobs", "frequency", "scale"), METHODS, ids=named)
def test_every_method_but_those_that_say_so_is_not_rope(
    name: str, knobs: dict[str, Any], frequency: Frequency, scale: float
) -> None:
    """The loops can fail: RoPE passes only where the method is RoPE."""
    is_rope = name == "learned_rope" or knobs == {"fraction": 1.0}
    if is_rope:
        check_loop(pe_zoo.build("rope", geometry()), frequency, scale)
    else:
        with pytest.raises(AssertionError):
            check_loop(pe_zoo.build("rope", geometry()), frequency, scale)


# ---------------------------------------------------------------------------------- wrong on purpose, and caught


class YaRNScalesOnce(YaRN):
    """The frequent mistake: m on the scores, not m²."""

    def rotate(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        rotated_q, _ = super().rotate(q, k, site)
        return rotated_q, rotate_pairs(k, angles(site.key_positions, self.frequencies()))


class DynamicByTheWhole(DynamicNTKRoPE):
    """Takes one length, the last, for all queries of a causal text."""

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        return super().score(scores, q, k, replace(site, causal=False))


class LongRoPEOneLate(LongRoPE):
    """Changes over one position too late."""

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.original_length += 1


class ClipsTheFastEnd(ClippedRoPE):
    def frequencies(self, device: torch.device | None = None) -> Tensor:
        plain = geometric_frequencies(self.pairs, self.base, self.geometry.head_dim)
        return super().frequencies(device).div(plain).flip(-1) * plain


@pytest.mark.parametrize(
    ("fake", "frequency", "scale"),
    [
        (YaRNScalesOnce(geometry(), original_length=300), yarn(300, 10000.0, 16.0), 0.1 * math.log(16) + 1),
        (DynamicByTheWhole(geometry()), dynamic_ntk(1.0), 1.0),
        (DynamicNTKRoPE(geometry(), original_length=TRAIN_LENGTH + 1), dynamic_ntk(1.0), 1.0),
        (LongRoPEOneLate(geometry()), longrope, math.sqrt(1 + math.log(8) / math.log(TRAIN_LENGTH))),
        (ClipsTheFastEnd(geometry(), fraction=0.7), soft, 1.0),
    ],
    ids=lambda part: type(part).__name__,
)
def test_mistakes_are_caught(fake: Encoder, frequency: Frequency, scale: float) -> None:
    with pytest.raises(AssertionError):
        check_loop(fake, frequency, scale)


# ------------------------------------------------------------------------------------------------ golden numbers


def close(found: Tensor, expected: list[float], atol: float = 1e-6) -> None:
    torch.testing.assert_close(found.double(), torch.tensor(expected, dtype=torch.float64), atol=atol, rtol=0)


def test_p_rope_frequencies() -> None:
    table = golden("rotations")["p_rope"]
    encoder = pe_zoo.build("p_rope", geometry(1, table["head_dim"]), fraction=table["fraction"])
    close(encoder.frequencies(), table["frequencies"])  # type: ignore[operator]


def test_p_rope_is_the_truncated_spectrum_of_rope() -> None:
    for fraction in (0.25, 0.5, 0.75, 1.0):
        ours = pe_zoo.build("p_rope", geometry(), fraction=fraction)
        theirs = pe_zoo.build("rope", geometry(), fraction=fraction, spectrum="truncated")
        q, k = heads_of(ours, 6)
        assert (pe_zoo.scores(ours, q, k) - pe_zoo.scores(theirs, q, k)).abs().max() < 1e-14


def test_ntk_base() -> None:
    table = golden("rotations")["ntk"]
    encoder = pe_zoo.build("rope_ntk", geometry(1, table["head_dim"]), factor=table["factor"])
    frequencies = encoder.frequencies()  # type: ignore[operator]
    close(frequencies, geometric_frequencies(64, table["base"], 128).tolist(), atol=1e-9)
    plain = geometric_frequencies(64, 10000.0, 128)
    assert frequencies[0] == plain[0] == 1
    assert frequencies[-1].item() == pytest.approx(plain[-1].item() / 4, rel=1e-12)


@pytest.mark.parametrize("original_length", ["2048", "4096"])
def test_yarn_ramp_bounds(original_length: str) -> None:
    table = golden("yarn")
    bounds, dim = table["bounds"][original_length], table["head_dim"]
    for bound, turns in (("low", 32), ("high", 1)):
        place = dim * math.log(int(original_length) / (turns * 2 * math.pi)) / (2 * math.log(10000))
        assert place == pytest.approx(bounds[bound], abs=5e-4)
    ramp = rotations_ramp(dim // 2, 10000.0, int(original_length), 32.0, 1.0)
    first, last = bounds["first"], bounds["last"]
    assert (ramp[: first + 1] == 0).all()
    assert (ramp[last:] == 1).all()
    assert ((ramp[first + 1 : last] > 0) & (ramp[first + 1 : last] < 1)).all()


def test_yarn_ramp_and_scale() -> None:
    table = golden("yarn")
    pairs = [int(pair) for pair in table["ramp_2048"]]
    encoder = YaRN(geometry(1, table["head_dim"]), original_length=2048)
    kept = encoder.frequencies() / geometric_frequencies(64, 10000.0, 128)
    close(kept[pairs], [1 - share + share / 16 for share in table["ramp_2048"].values()], atol=1e-12)
    for factor, scores in table["score_factor"].items():
        encoder = YaRN(geometry(1, table["head_dim"]), original_length=2048, factor=float(factor))
        x = torch.randn(1, 1, 1, table["head_dim"], dtype=torch.float64)
        ratio = pe_zoo.scores(encoder, x, x) / (x @ x.mT * table["head_dim"] ** -0.5)
        assert ratio.item() == pytest.approx(scores, abs=1e-6)


def test_llama3_ratios() -> None:
    table = golden("llama3_rope")
    encoder = pe_zoo.build("llama3_rope", geometry(1, table["head_dim"]), original_length=table["original_length"])
    ratios = encoder.frequencies() / geometric_frequencies(64, 500000.0, 128)  # type: ignore[operator]
    first = table["first_blended"]
    last = first + len(table["blended"])
    assert (ratios[:first] == 1).all()
    close(ratios[first:last], table["blended"])
    close(ratios[last:], [table["slow"]] * (64 - last), atol=1e-15)


def test_longrope_factors_and_scale() -> None:
    table = golden("longrope")
    sizes = geometry(1, table["head_dim"])
    short, long = LongRoPE(sizes, original_length=table["original_length"]).frequencies()
    close((short / long)[[int(pair) for pair in table["rescale"]]], list(table["rescale"].values()))
    assert torch.equal(short, geometric_frequencies(64, 10000.0, 128))
    for factor, scale in table["scale"].items():
        encoder = LongRoPE(sizes, original_length=table["original_length"], factor=float(factor))
        x = torch.randn(1, 1, 1, table["head_dim"], dtype=torch.float64)
        ratio = pe_zoo.scores(encoder, x, x) / (x @ x.mT * table["head_dim"] ** -0.5)
        assert ratio.item() == pytest.approx(scale**2, abs=3e-6)


def test_clipped_weights() -> None:
    table = golden("rotations")["clipped"]
    for clipping in ("soft", "hard"):
        encoder = ClippedRoPE(geometry(1, table["head_dim"]), clipping=clipping)
        weights = encoder.frequencies() / geometric_frequencies(64, 10000.0, 128)
        assert (weights[:44] == 1).all()
        assert encoder.clipped_pairs == table["clipped"]
        if clipping == "soft":
            close(weights[44:48], table["first"])
            close(weights[-2:], table["last"])
            assert (weights[44:].diff() < 0).all()
        else:
            assert (weights[44:] == 0).all()


def test_hope_keeps_what_comes_full_circle() -> None:
    table = golden("rotations")["hope"]
    for length, turning in table["turning"].items():
        place = 64 * math.log(int(length) / (2 * math.pi)) / math.log(10000)
        assert place == pytest.approx(table["last_pair"][length], abs=0.01)
        assert turning == math.floor(place) + 1
        for knobs, trained in (({"longest_wavelength": int(length)}, 16), ({}, int(length))):
            encoder = pe_zoo.build("hope", geometry(1, table["head_dim"], trained), **knobs)
            assert len(encoder.frequencies()) == turning  # type: ignore[operator]


# ---------------------------------------------------------------------------------------------- special cases


@pytest.mark.parametrize("name", ["rope_linear", "rope_ntk", "yarn", "llama3_rope", "longrope"])
def test_a_factor_of_one_is_rope(name: str) -> None:
    base = 500000.0 if name == "llama3_rope" else 10000.0
    encoder, plain = pe_zoo.build(name, geometry(), factor=1.0), pe_zoo.build("rope", geometry(), base=base)
    q, k = heads_of(encoder, 30)
    torch.testing.assert_close(pe_zoo.scores(encoder, q, k), pe_zoo.scores(plain, q, k), atol=1e-12, rtol=0)


def test_dynamic_ntk_is_rope_up_to_the_training_length() -> None:
    encoder, plain = pe_zoo.build("rope_dynamic_ntk", geometry()), pe_zoo.build("rope", geometry())
    q, k = heads_of(encoder, TRAIN_LENGTH + 1)
    found, expected = pe_zoo.scores(encoder, q, k), pe_zoo.scores(plain, q, k)
    torch.testing.assert_close(found[:, :, :-1], expected[:, :, :-1], atol=1e-12, rtol=0)
    assert (found[:, :, -1] - expected[:, :, -1]).abs().max() > 1e-4


@pytest.mark.parametrize("name", ["rope_dynamic_ntk", "longrope"])
def test_causal_scores_ignore_later_tokens_and_other_samples(name: str) -> None:
    encoder = pe_zoo.build(name, geometry())
    q, k = heads_of(encoder, 30, batch=2)
    positions = torch.stack([torch.arange(30.0), 3 * torch.arange(30.0)])
    whole = pe_zoo.scores(encoder, q, k, positions)
    start = pe_zoo.scores(encoder, q[:, :, :9], k[:, :, :9], positions[:, :9])
    torch.testing.assert_close(whole[:, :, :9, :9], start, atol=1e-12, rtol=0)
    for sample in range(2):
        one = slice(sample, sample + 1)
        alone = pe_zoo.scores(encoder, q[one], k[one], positions[sample])
        torch.testing.assert_close(whole[one], alone, atol=1e-12, rtol=0)
    assert (whole[1] - pe_zoo.scores(encoder, q[1:], k[1:], positions[0])[0]).abs().max() > 1e-2


def test_reach_goes_by_the_highest_so_far_or_by_the_highest() -> None:
    positions = torch.tensor([[0.0, 4.0, 2.0, 7.0], [3.0, 1.0, 1.5, 2.0]])
    assert reach(site_of(positions)).tolist() == [[0, 4, 4, 7], [3, 3, 3, 3]]
    assert reach(site_of(positions, causal=False)).tolist() == [[7] * 4, [3] * 4]
    assert reach(site_of(positions[0])).tolist() == [0, 4, 4, 7]


@pytest.mark.parametrize("length", [1, 2, 3, 6, 7])
def test_ramps_of_short_lengths_interpolate_all_but_one_pair(length: int) -> None:
    ramp = rotations_ramp(4, 10000.0, length, 32.0, 1.0)
    assert ramp[0] == 0
    assert (ramp[1:] == 1).all()


def test_learned_rope_starts_as_rope_and_learns_each_frequency() -> None:
    for per_layer in (False, True):
        encoder = pe_zoo.build("learned_rope", geometry(), per_layer=per_layer).double()
        q, k = heads_of(encoder, 5)
        plain = pe_zoo.scores(pe_zoo.build("rope", geometry()), q, k, torch.tensor(NEAR))
        assert torch.equal(pe_zoo.scores(encoder, q, k, torch.tensor(NEAR)), plain)
        (log_scale,) = encoder.parameters()
        assert log_scale.shape == (2 if per_layer else 1, HEAD_DIM // 2)
        with torch.no_grad():
            log_scale.copy_(torch.linspace(-1, 1, log_scale.numel()).view_as(log_scale))
        for layer in range(2):
            row = log_scale[layer if per_layer else 0].tolist()
            found = pe_zoo.scores(encoder, q, k, torch.tensor(NEAR), layer=layer).detach()
            expected = by_a_loop(q, k, NEAR, lambda i, _, row=row: rope(i) * math.exp(row[i]), causal=True)  # type: ignore[misc]
            torch.testing.assert_close(found, expected, atol=1e-11, rtol=0)


def test_learned_rope_gradients_are_right() -> None:
    encoder = pe_zoo.build("learned_rope", geometry()).double()
    q, k = heads_of(encoder, 4)

    def of_scale(log_scale: Tensor) -> Tensor:
        site = site_of(torch.tensor([0.0, 1.0, 2.5, 4.0]))
        rotated_q, rotated_k = torch.func.functional_call(encoder, {"log_scale": log_scale}, (q, k, site))
        return rotated_q @ rotated_k.mT

    encoder.forward = encoder.rotate  # type: ignore[method-assign]
    assert torch.autograd.gradcheck(of_scale, torch.zeros(1, HEAD_DIM // 2, dtype=torch.float64, requires_grad=True))


# -------------------------------------------------------------------------------------------------------- xPos


def xpos_by_a_loop(
    q: Tensor, k: Tensor, positions: list[float], scale_base: float, gamma: float = 0.4, sign: int = 1
) -> Tensor:
    """Keys up to the query's place only; 0 beyond."""
    _, heads, length, head_dim = q.shape
    found = torch.zeros(1, heads, length, length, dtype=torch.float64)
    for h in range(heads):
        for i in range(length):
            for j in range(i + 1):
                for pair in range(head_dim // 2):
                    decay = (2 * pair / head_dim + gamma) / (1 + gamma)
                    distance = positions[i] - positions[j]
                    here = complex(*q[0, h, i, 2 * pair : 2 * pair + 2].tolist())
                    there = complex(*k[0, h, j, 2 * pair : 2 * pair + 2].tolist())
                    turned = here * there.conjugate() * cmath.exp(1j * distance * rope(pair, head_dim=head_dim))
                    found[0, h, i, j] += turned.real * decay ** (sign * distance / scale_base) / math.sqrt(head_dim)
    return found


def check_xpos(encoder: XPos, sign: int = 1) -> None:
    for positions in (NEAR, FAR, [p + 1e6 for p in FAR]):
        q, k = heads_of(encoder, len(positions))
        found = pe_zoo.scores(encoder, q, k, torch.tensor(positions, dtype=torch.float64)).tril()
        expected = xpos_by_a_loop(q, k, positions, encoder.scale_base, encoder.gamma, sign)
        torch.testing.assert_close(found, expected, atol=1e-8 if positions[0] else 1e-11, rtol=0)


def test_xpos_by_a_loop() -> None:
    check_xpos(XPos(geometry()))
    check_xpos(XPos(geometry(), scale_base=16.0, gamma=1.0))
    with pytest.raises(AssertionError):
        check_xpos(XPos(geometry()), sign=-1)


def test_xpos_decay() -> None:
    table = golden("xpos")
    encoder = XPos(geometry(1, table["head_dim"]), scale_base=table["scale_base"])
    close(encoder.decay(), table["decay"])
    close(encoder.decay() ** (10 / table["scale_base"]), table["after_10"])


def test_xpos_stays_finite_and_right_however_long_the_text_is() -> None:
    encoder = XPos(geometry(1), scale_base=16.0)
    positions = [0.0, 1e3, 99_000.0, 99_990.0, 1e5 - 1, 1e5, 1e5 + 7]
    q, k = heads_of(encoder, len(positions), dtype=torch.float32)
    found = pe_zoo.scores(encoder, q[:, :, -3:], k, torch.tensor(positions))
    expected = xpos_by_a_loop(q.double(), k.double(), positions, 16.0)[:, :, -3:]
    assert found.isfinite().all()
    torch.testing.assert_close(found.tril(4).double(), expected, atol=2e-6, rtol=0)


@pytest.mark.parametrize("attention", ["plain", "fused"])
def test_xpos_keys_far_ahead_of_a_block_of_queries_do_no_harm(attention: str) -> None:
    sizes = geometry(2)
    encoder = XPos(sizes, scale_base=1.0)
    model = Transformer(11, sizes, encoder, query_block=4, attention=attention)
    tokens = torch.randint(11, (2, 400))
    with torch.no_grad():
        found, start = model(tokens), model(tokens[:, :8])
    assert found.isfinite().all()
    torch.testing.assert_close(found[:, :8], start, atol=1e-5, rtol=0)


@pytest.mark.parametrize("attention", ["plain", "fused"])
@pytest.mark.parametrize(("gamma", "allowed"), [(0.4, 1045), (0.01, 284)])
def test_xpos_refuses_a_span_beyond_float32_and_learns_below_it(attention: str, gamma: float, allowed: int) -> None:
    sizes = geometry(2)
    model = Transformer(11, sizes, XPos(sizes, scale_base=16.0, gamma=gamma), attention=attention)
    tokens, share = torch.randint(11, (2, 40)), torch.linspace(0, 1, 40)
    logits = model(tokens, 5e4 + (allowed - 1) * share)
    logits.pow(2).sum().backward()
    assert logits.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    with pytest.raises(Unsupported, match=rf"up to {allowed} positions .*scale_base=16 .* Raise scale_base") as refusal:
        model(tokens, torch.stack([share, 5e4 + (allowed + 1) * share]))
    assert "\n" not in str(refusal.value)
    with torch.no_grad():
        assert model.double()(tokens, 5 * allowed * share).isfinite().all(), "float64 holds more"


def test_xpos_refuses_only_visible_keys_far_ahead() -> None:
    encoder = XPos(geometry(1), scale_base=1.0)
    q, k = heads_of(encoder, 2, dtype=torch.float32)
    with pytest.raises(Unsupported, match="scale_base=1 "):
        pe_zoo.scores(encoder, q[:, :, -1:], k, torch.tensor([80.0, 0.0]))
    hidden = replace(site_of(torch.tensor([80.0, 0.0])), mask=torch.tensor([[False, True]]))
    alone = replace(hidden, query_positions=torch.tensor([0.0]), rows=slice(1, 2))
    assert all(part.isfinite().all() for part in encoder.rotate(q[:, :, -1:], k, alone))


def test_xpos_under_vmap_refuses_nothing() -> None:
    encoder = XPos(geometry(1), scale_base=1.0)
    q, k = heads_of(encoder, 3, dtype=torch.float32)
    positions = torch.tensor([[0.0, 10.0, 60.0], [0.0, 10.0, 600.0]])
    found = torch.func.vmap(lambda own: pe_zoo.scores(encoder, q, k, own))(positions)
    torch.testing.assert_close(found[0], pe_zoo.scores(encoder, q, k, positions[0]))
    assert not found[1].isfinite().all()


@pytest.mark.parametrize("head_dim", [8, 64])
def test_xpos_agrees_with_x_transformers(head_dim: int) -> None:
    library = pytest.importorskip("x_transformers.x_transformers")
    encoder = XPos(geometry(2, head_dim))
    q, k = heads_of(encoder, 40)
    frequencies, scale = library.RotaryEmbedding(head_dim, use_xpos=True, scale_base=512).double()(torch.arange(40))
    theirs_q = library.apply_rotary_pos_emb(q, frequencies, scale)
    theirs_k = library.apply_rotary_pos_emb(k, frequencies, scale**-1)
    theirs = theirs_q @ theirs_k.mT * head_dim**-0.5
    torch.testing.assert_close(pe_zoo.scores(encoder, q, k).tril(), theirs.tril(), atol=5e-6, rtol=0)


# ------------------------------------------------------------------------------------------------- transformers

TRAINED = 32
LONG_FACTORS = [1 + 7 * min(pair / 6, 1) for pair in range(32)]
"""LongRoPE's for 32 pairs and a length of 32: the ramp ends at 32 · ln(32/2π) / ln 10⁴ = 5.7, rounded up."""
THEIRS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("rope_linear", {"factor": 4.0}, {"rope_type": "linear", "factor": 4.0}),
    ("rope_dynamic_ntk", {"factor": 1.0}, {"rope_type": "dynamic", "factor": 1.0}),
    ("rope_dynamic_ntk", {"factor": 2.5}, {"rope_type": "dynamic", "factor": 2.5}),
    ("yarn", {}, {"rope_type": "yarn", "factor": 16.0}),
    (
        "yarn",
        {"original_length": 512, "factor": 4.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512},
    ),
    (
        "yarn",
        {"beta_fast": 8.0, "beta_slow": 2.0, "original_length": 4096},
        {
            "rope_type": "yarn",
            "factor": 16.0,
            "beta_fast": 8.0,
            "beta_slow": 2.0,
            "original_max_position_embeddings": 4096,
        },
    ),
    (
        "llama3_rope",
        {"original_length": 8192},
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "rope_theta": 500000.0,
            "original_max_position_embeddings": 8192,
        },
    ),
    ("longrope", {}, {"rope_type": "longrope", "factor": 8.0, "short_factor": [1.0] * 32, "long_factor": LONG_FACTORS}),
    ("p_rope", {"fraction": 0.25}, {"rope_type": "proportional", "partial_rotary_factor": 0.25}),
    ("p_rope", {}, {"rope_type": "proportional", "partial_rotary_factor": 0.75}),
]


def llama_scores(q: Tensor, k: Tensor, parameters: dict[str, Any]) -> Tensor:
    """Scores of Llama's attention at positions 0, 1, 2, …; dimensions are brought into its order of pairs."""
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    _, heads, length, head_dim = q.shape
    parameters = {"rope_theta": 10000.0, "original_max_position_embeddings": TRAINED, **parameters}
    config = llama.LlamaConfig(
        hidden_size=heads * head_dim,
        num_attention_heads=heads,
        max_position_embeddings=TRAINED,
        rope_parameters=parameters,
    )
    order = torch.cat([torch.arange(0, head_dim, 2), torch.arange(1, head_dim, 2)])
    q, k = q[..., order], k[..., order]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "float", torch.float64)  # their angles, as far as they let us
        cos, sin = llama.LlamaRotaryEmbedding(config)(q, torch.arange(length)[None])
    q, k = llama.apply_rotary_pos_emb(q, k, cos, sin)
    return q @ k.mT * head_dim**-0.5


def relative_error(found: Tensor, theirs: Tensor) -> float:
    return ((found - theirs).abs().max() / theirs.abs().max()).item()


@pytest.mark.parametrize(("name", "knobs", "parameters"), THEIRS, ids=named)
def test_agrees_with_llama_of_transformers(name: str, knobs: dict[str, Any], parameters: dict[str, Any]) -> None:
    encoder = pe_zoo.build(name, geometry(2, 64, TRAINED), **knobs)
    for length in (TRAINED, 80):
        q, k = heads_of(encoder, length)
        theirs = llama_scores(q, k, parameters)
        assert relative_error(pe_zoo.scores(encoder, q, k, causal=False), theirs) < 1e-6
    assert relative_error(pe_zoo.scores(pe_zoo.build("rope", encoder.geometry), q, k), theirs) > 1e-2


@pytest.mark.parametrize(("name", "knobs", "parameters"), THEIRS, ids=named)
def test_a_causal_query_equals_llamas_last_token(name: str, knobs: dict[str, Any], parameters: dict[str, Any]) -> None:
    encoder = pe_zoo.build(name, geometry(2, 64, TRAINED), **knobs)
    q, k = heads_of(encoder, 50)
    found = pe_zoo.scores(encoder, q, k, causal=True)
    for row in (0, 10, TRAINED - 1, TRAINED, TRAINED + 1, 49):
        theirs = llama_scores(q[:, :, : row + 1], k[:, :, : row + 1], parameters)
        assert relative_error(found[:, :, row, : row + 1], theirs[:, :, -1]) < 1e-6


@pytest.mark.parametrize("head_dim", [8, 64, 128])
@pytest.mark.parametrize("factor", [1.0, 4.0, 7.5])
def test_factors_agree_with_x_transformers(head_dim: int, factor: float) -> None:
    library = pytest.importorskip("x_transformers.x_transformers")
    sizes = geometry(1, head_dim)
    for name, option in (("rope_ntk", "base_rescale_factor"), ("rope_linear", "interpolation_factor")):
        theirs = library.RotaryEmbedding(head_dim, **{option: factor})(torch.arange(2))[0][0, 1, ::2]
        ours = pe_zoo.build(name, sizes, factor=factor).frequencies()  # type: ignore[operator]
        torch.testing.assert_close(ours, theirs.double(), atol=0, rtol=1e-6)
