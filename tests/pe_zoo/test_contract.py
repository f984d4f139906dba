"""The contract: what every registered encoder promises, claims held both ways, each check shown to catch a fake.

The promises themselves are in ``pe_zoo/_contract/``; ``python -m pe_zoo check`` asks them of any encoder, in a
minimal model. Here they are asked in the Transformer that is trained, with its fused path and query blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pe_zoo
from experiments.model.transformer import Transformer
from pe_zoo import Encoder, Geometry, Site, Unsupported
from pe_zoo._contract import check as _contract
from pe_zoo._contract import claims, dtypes, hooks, relatives
from pe_zoo._contract.bench import (
    ADVICE,
    FAILS,
    LENGTH,
    NOT_APPLICABLE,
    Bench,
    Broken,
    Maker,
    Stack,
    gap,
    read,
    some_positions,
    some_tokens,
)
from pe_zoo._contract.dtypes import GRID
from pe_zoo._contract.line import on_line
from pe_zoo._positions import angles, geometric_frequencies
from pe_zoo._rotation import rotate_pairs
from pe_zoo.alibi import ALiBi
from pe_zoo.cope import CoPE
from pe_zoo.learned import Learned
from pe_zoo.rope import RoPE
from pe_zoo.rope_ntk import NTKRoPE
from pe_zoo.sinusoidal import Sinusoidal

ORDERLESS = {"none", "repo"}
"""Encoders that leave a bidirectional model blind to order."""
POSITIONLESS = {
    "carope",
    "cope",
    "fox",
    "grape_m",
    "none",
    "path",
    "repo",
    "selective_rope",
    "short_convolution",
    "stick_breaking",
    "wall",
}
"""Encoders that do not read the positions they are given."""


DIVIDES = {"sinusoidal_2d": 4}
"""Numbers that must divide the width of a model."""


@dataclass(frozen=True)
class Case:
    """An encoder with some knobs turned; callable, so that a fake can stand in its place."""

    name: str
    knobs: dict[str, Any] = field(default_factory=dict)
    causal: tuple[bool, ...] = (True, False)
    even_heads: bool = False
    min_pairs: int = 0
    divides: int = 1
    """A number that must divide model_dim."""

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{knob}={value}" for knob, value in self.knobs.items())])

    def build(self, geometry: Geometry) -> Encoder:
        return pe_zoo.build(self.name, geometry, **self.knobs)

    def __call__(self, geometry: Geometry) -> Encoder:
        return on_line(self.build, geometry)

    def fits(self, geometry: Geometry) -> bool:
        if geometry.head_dim // 2 < self.min_pairs or geometry.model_dim % self.divides:
            return False
        return not (self.even_heads and geometry.num_heads % 2)


TURNED = [
    Case("rope", {"pairing": "half"}),
    Case("rope", {"fraction": 0.5}, min_pairs=2),
    Case("rope", {"fraction": 0.5, "spectrum": "truncated"}, min_pairs=2),
    Case("rope", {"fraction": 0.5, "spectrum": "truncated", "pairing": "half"}, min_pairs=2),
    Case("p_rope", {"fraction": 0.5}),
    Case("rope_dynamic_ntk", {"factor": 3.0, "original_length": 3}),
    Case("longrope", {"original_length": 10}),
    Case("yarn", {"base": 10.0, "original_length": 100}),
    Case("clipped_rope", {"clipping": "hard", "fraction": 0.6}),
    Case("learned_rope", {"per_layer": True}),
    Case("alibi", {"form": "one_sided"}, causal=(False,), even_heads=True),
    Case("alibi", {"form": "asymmetric"}),
    Case("t5", {"bidirectional": True}),
    Case("t5", {"bidirectional": False, "num_buckets": 8}),
    Case("sinusoidal", {"channels": "concatenated"}),
    Case("wavelet", {"scales": 1}),
    Case("wavelet", {"scales": 20}),
    Case("shaw", {"value_term": False}),
    Case("shaw", {"max_distance": 4}),
    Case("transformer_xl", {"clamp_len": 3, "untied": True}),
    Case("deberta", {"num_buckets": 4, "max_distance": 6}),
    Case("tupe", {"untie_first": False}),
    Case("tupe", {"num_buckets": 8}),
    Case("cope", {"p_max": 3}, causal=(True,)),
    Case("dape", {"prior": "linear"}),
    Case("grape_a", {"gates": "key"}, causal=(True,)),
    Case("relative_projection", {"window": 3}),
    Case("dynamic_bias", {"input": "linear"}),
    Case("dynamic_bias", {"input": "fourier", "shared": False}),
    Case("fire", {"shared": True}, causal=(True,)),
    Case("pope", {"phase": "uniform"}),
    Case("liere", {"block_fraction": 0.5}),
    Case("rerope", {"leak": 0.5, "window": 3}),
    Case("self_extend", {"factor": 2.0, "window": 3}),
    Case("dual_chunk", {"chunk": 5, "window": 2}, causal=(True,)),
    Case("mla_rope", {"scale": "head", "rotary_dim": 6}),
    Case("grape_m", {"per_head": True}, causal=(True,)),
    Case("dape_v2", {"prior": "linear", "neighbours": 2}, causal=(True,)),
    Case("fope", {"learned": True}),
    Case("layered", {"layers": ("alibi", "rope base=100")}),
    Case(
        "layered",
        {
            "layers": ("dape", "fox"),
        },
        causal=(True,),
    ),
    Case("layered", {"layers": ("shaw", "none")}),
    Case("liere", {"block_fraction": 0.75, "span": 1}),
    Case("selective_rope", {"bias": True, "gate": True}, causal=(True,)),
    Case("selective_rope", {"rotate_values": True}, causal=(True,)),
    Case("tapa", {"alpha": 0.5, "fraction": 0.25}),
    Case("gape", {"fraction": 0.5}, causal=(True,)),
    Case("rope_id", {"fraction": 1.0, "turns": 1.0}),
    Case("path", {"rank": 2, "conv_width": 1}, causal=(True,)),
    Case("short_convolution", {"rank": 2, "conv_width": 4}, causal=(True,)),
    Case("stick_breaking", {"remainder": "vector"}, causal=(True,)),
    Case("stick_breaking", {"attend_current": True}, causal=(True,)),
]
CASES = [
    *(Case(name, causal=(True,) if pe_zoo.get(name).causal_only else (True, False)) for name in pe_zoo.names()),
    *TURNED,
    *(Case(name, min_pairs=2 if "rope" in name else 0, divides=DIVIDES.get(name, 1)) for name in pe_zoo.names(2)),
    *(Case(name) for name in pe_zoo.names(2, "segments")),
    Case("bipe", {"between": "alibi", "within": "sinusoidal"}),
    Case("log_cpb", {"hidden_dim": 8, "window": 5}),
]

ONE = Geometry(model_dim=24, num_heads=6, num_layers=2, train_length=LENGTH)
HARNESS = Bench(Transformer, ONE)
PLAIN = Bench(partial(Transformer, attention="plain"), ONE)

each = pytest.mark.parametrize("case", CASES, ids=str)


# ----------------------------------------------------------------------------- promises of the Transformer alone


def check_fused(make: Maker, causal: bool, _: Bench = HARNESS) -> None:
    """The fused kernel and the plain path are one model: forward and gradient."""
    encoder, tokens = HARNESS.fresh(make), some_tokens()
    plain, fused = PLAIN.model(encoder, causal), HARNESS.model(encoder, causal)
    fused.load_state_dict(plain.state_dict())
    for positions in (torch.arange(LENGTH).float(), some_positions(2, LENGTH)):
        answers = []
        for model in (plain, fused):
            model.zero_grad()
            logits = model(tokens, positions)
            logits.pow(2).sum().backward()
            answers.append(
                (logits.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
            )
        (logits, gradients), (fused_logits, fused_gradients) = answers
        assert gap(logits, fused_logits) < 1e-10
        assert gradients.keys() == fused_gradients.keys()
        for name, gradient in gradients.items():
            assert gap(gradient, fused_gradients[name]) < 1e-10 * max(1.0, gradient.abs().max().item()), name


# ------------------------------------------------------------------------------------ every encoder keeps them


@each
def test_only_geometries_that_do_not_fit_are_refused(case: Case) -> None:
    for geometry in GRID:
        if case.fits(geometry):
            assert isinstance(case(geometry), Encoder)
        else:
            with pytest.raises(ValueError, match=case.name):
                case(geometry)


@pytest.mark.parametrize("name", ["rope", "sinusoidal"])
def test_encoders_of_pairs_refuse_odd_dimensions(name: str) -> None:
    with pytest.raises(ValueError, match="even"):
        pe_zoo.build(name, Geometry(model_dim=9, num_heads=3, num_layers=1, train_length=4))


@pytest.mark.parametrize("case", [case for case in CASES if case.causal == (False,)], ids=str)
def test_a_bidirectional_encoder_refuses_a_causal_model(case: Case) -> None:
    with pytest.raises(Unsupported, match=case.name):
        read(HARNESS.model(HARNESS.fresh(case), causal=True), some_tokens())


def check_order(case: Case, causal: bool, bench: Bench) -> None:
    claims.check_order_is_seen(case, case.name in ORDERLESS, bench)


def check_positions(case: Case, causal: bool, bench: Bench) -> None:
    if case.name in POSITIONLESS:
        with pytest.raises(Broken):
            claims.check_positions_are_read(case, causal, bench)
    else:
        claims.check_positions_are_read(case, causal, bench)


def check_history(case: Case, causal: bool, bench: Bench) -> None:
    hooks.check_history_does_not_matter(case, causal, bench, other=Case(case.name))


def check_vmap(case: Case, causal: bool, bench: Bench) -> None:
    hooks.check_vmap(case, causal, PLAIN)


def check_blocks(case: Case, causal: bool, bench: Bench) -> None:
    for bench in (HARNESS, PLAIN):
        hooks.check_blocks(case, causal, bench)
        model, tokens = bench.model(bench.fresh(case), causal, query_block=3), some_tokens()
        positions = some_positions(2, LENGTH)
        assert gap(model(tokens, positions), read(model, tokens, positions)) < 1e-11, "gradients are taken in one block"


def check_axes(case: Case, causal: bool, bench: Bench) -> None:
    claims.check_axes_claim(case.build, causal, bench)


IN_THE_TRANSFORMER: dict[Callable[[Case, bool, Bench], None], tuple[bool, ...]] = {
    **dict.fromkeys([hooks.check_no_leak_from_the_future, hooks.check_prefix_does_not_change], (True,)),
    **dict.fromkeys([check_order, claims.check_direction_claim], (False,)),
    **dict.fromkeys(
        [
            dtypes.check_dtype_of_what_is_given,
            dtypes.check_half_precision,
            dtypes.check_moving_to_a_dtype,
            hooks.check_embed_adds_position_and_nothing_else,
            hooks.check_pure,
            hooks.check_batch_does_not_matter,
            hooks.check_gradients,
            hooks.check_parameters_may_move,
            hooks.check_state,
            check_history,
            check_vmap,
            check_blocks,
            check_fused,
            check_positions,
            check_axes,
            claims.check_shift_claim,
            claims.check_causal_only_claim,
            claims.check_static_bias_claim,
            claims.check_distance_bias_claim,
            claims.check_blockwise_rotation_claim,
            claims.check_length_claim,
        ],
        (True, False),
    ),
}
"""Promise -> the masks under which it means something."""


@pytest.mark.parametrize("case", [case for case in CASES if not case.knobs], ids=str)
def test_every_promise_is_kept_in_the_transformer(case: Case) -> None:
    """Those of the fused kernel and of query blocks too; each starts from the same random state.

    What knobs change is asked in the minimal model: this one calls the same hooks whatever they are.
    """
    broken: list[Exception] = []
    for check, masks in IN_THE_TRANSFORMER.items():
        for causal in masks:
            if causal in case.causal:
                torch.manual_seed(0)
                try:
                    check(case, causal, HARNESS)
                except Exception as error:  # noqa: BLE001  whatever is wrong is raised below, with the rest
                    error.add_note(f"{check}, {'causal' if causal else 'bidirectional'}")
                    broken.append(error)
    if broken:
        raise ExceptionGroup(f"{case} breaks {len(broken)} promises", broken)


@each
def test_every_promise_is_kept_in_the_minimal_model(case: Case) -> None:
    """``python -m pe_zoo check`` asks so, at every geometry; what it leaves out, the tables here name."""
    verdicts = list(_contract.check(case))
    assert not [verdict for verdict in verdicts if verdict.outcome in (FAILS, ADVICE)]
    outcomes = {verdict.sentence: verdict.outcome for verdict in verdicts}
    reads = claims.check_positions_are_read_unless_content_decides.sentence
    assert (outcomes[reads] == NOT_APPLICABLE) == (case.name in POSITIONLESS)
    causal_alone, bidirectional_alone = (
        outcomes[promise.sentence] == NOT_APPLICABLE
        for promise in (claims.check_direction_claim, hooks.check_prefix_does_not_change)
    )
    assert (causal_alone, bidirectional_alone) == (False not in case.causal, True not in case.causal)


def test_the_distance_of_scores_is_what_a_count_by_hand_gives() -> None:
    """Two pairs of dimensions, one head, two positions: of four scores the one at distance 1 differs, by its angles."""
    geometry = Geometry(model_dim=4, num_heads=1, num_layers=1, train_length=2)
    rope, other = (pe_zoo.build("rope", geometry, base=base) for base in (10000.0, 100.0))
    drawn = torch.randn(3, 1, 2, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    q, k = drawn[0, 0].tolist(), drawn[1, 0].tolist()

    def score(query: list[float], key: list[float], distance: int, base: float) -> float:
        rotations = [(distance * angle, 2 * pair) for pair, angle in enumerate((1.0, base**-0.5))]
        return sum(
            math.cos(angle) * (query[i] * key[i] + query[i + 1] * key[i + 1])
            + math.sin(angle) * (query[i + 1] * key[i] - query[i] * key[i + 1])
            for angle, i in rotations
        )

    pairs = [(0, 0), (1, 0), (1, 1)]
    here, there = ([score(q[a], k[b], b - a, base) for a, b in pairs] for base in (10000.0, 100.0))
    expected = math.dist(here, there) / math.hypot(*there)
    assert relatives.score_distance(rope, other, contents=1) == pytest.approx(expected, rel=1e-9)
    assert relatives.score_distance(rope, rope) == 0
    with pytest.raises(Unsupported, match="t5 has parameters"):
        relatives.score_distance(rope, pe_zoo.build("t5", geometry))


def test_a_table_refuses_the_first_position_beyond_it() -> None:
    claims.check_length_claim(lambda geometry: pe_zoo.build("learned", geometry, num_rows=LENGTH), True, HARNESS)


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "both ways"])
def test_the_minimal_model_can_tell_what_the_transformer_can(causal: bool) -> None:
    """It sees order with an encoder and, bidirectional, none without: a blind model would keep every promise."""
    for name in ("rope", "learned"):
        claims.check_order_is_seen(Case(name), False, Bench(Stack, ONE))
        claims.check_positions_are_read(Case(name), causal, Bench(Stack, ONE))
    claims.check_order_is_seen(Case("none"), True, Bench(Stack, ONE))


@pytest.mark.parametrize("case", [Case("learned")], ids=str)
@pytest.mark.parametrize("wrong", [-1, 16])
def test_stacked_models_refuse_positions_beyond_the_table(case: Case, wrong: int) -> None:
    """A row that does not exist must not become another model's row; vmap cannot raise, so it is no number."""
    models = [PLAIN.model(pe_zoo.build(case.name, ONE, num_rows=16), True) for _ in range(2)]
    parameters, buffers = torch.func.stack_module_state(models)
    positions = torch.arange(LENGTH).float().expand(2, LENGTH).clone()
    positions[0 if wrong > 0 else 1, 3] = wrong

    def logits(parameters: dict[str, Tensor], buffers: dict[str, Tensor], positions: Tensor) -> Tensor:
        return torch.func.functional_call(
            models[0], (parameters, buffers), (torch.zeros(1, LENGTH, dtype=torch.long), positions)
        )

    together = torch.func.vmap(logits)(parameters, buffers, positions)
    refused, fine = (0, 1) if wrong > 0 else (1, 0)
    assert together[refused, 0, 3].isnan().all()
    assert together[fine].isfinite().all()


# ------------------------------------------------------------------------------------------ without an encoder


def test_more_queries_than_keys_are_refused_in_one_line() -> None:
    encoder, q = Case("none")(ONE), torch.randn(1, 6, 3, 4)
    with pytest.raises(ValueError, match=r"^3 queries for 2 keys: .* at most one per key$"):
        pe_zoo.scores(encoder, q, q[:, :, :2])
    assert pe_zoo.scores(encoder, q, q).shape == (1, 6, 3, 3)


@pytest.mark.parametrize(("num_layers", "seen"), [(1, False), (2, True)])
def test_one_causal_layer_sees_a_bag_two_layers_see_order(num_layers: int, seen: bool) -> None:
    geometry = Geometry(model_dim=16, num_heads=2, num_layers=num_layers, train_length=LENGTH)
    model, tokens = HARNESS.model(HARNESS.fresh(Case("none"), geometry), causal=True), some_tokens()
    order = torch.tensor([3, 0, 4, 2, 1, 5])
    difference = gap(read(model, tokens)[:, -1], read(model, tokens[:, order])[:, -1])
    assert (difference > 1e-3) if seen else (difference < 1e-12)


# ---------------------------------------------------------------------------------- wrong on purpose, and caught


class Fake(Encoder):
    """Names itself, as registration would."""

    name = "fake"


class CausalOnly(Fake):
    causal_only = True


class BiasByPlace(Fake):
    """Goes by place in the sequence where it should go by position, and claims that a shift matters to it."""

    direction_aware = True

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        place = torch.arange(scores.shape[-1], dtype=scores.dtype)
        return scores + (place[site.rows, None] - place).relu()


class Misspelt(Fake):
    """Means to claim that it sees direction."""

    shift_invariant = static_bias = distance_bias = direction_awar = True

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        return scores - site.distance.abs()


class BiasIgnoresBlock(Fake):
    """Thinks the queries are always the first rows."""

    shift_invariant = static_bias = True

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        queries, keys = scores.shape[-2:]
        return scores - (torch.arange(queries)[:, None] - torch.arange(keys)).abs().to(scores.dtype)


class LeaksFromTheFuture(Fake):
    """Scales scores by a mean over all keys, those behind the mask included."""

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        return scores * (1 + k.mean(-2, keepdim=True).mean(-1, keepdim=True))


class LeaksThroughMix(Fake):
    def mix(self, scores: Tensor, v: Tensor, site: Site) -> Tensor:
        return scores.softmax(-1) @ v + 0.1 * v.mean(-2, keepdim=True)


class RotatesByPlace(RoPE):
    """A rotation that ignores the positions it is given."""

    name = "fake"

    def rotate(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        places = angles(torch.arange(k.shape[-2]), self.frequencies())
        return rotate_pairs(q, places[site.rows], self.pairing), rotate_pairs(k, places, self.pairing)


class GatesBeforeTheMask(CoPE):
    """Counts keys ahead too: the mask comes after the gates."""

    def counts(self, scores: Tensor, site: Site) -> Tensor:
        return scores.sigmoid().flip(-1).cumsum(-1).flip(-1)


class RelativeShiftWraps(Fake):
    """Computes a term once per distance and shifts it into place: above the diagonal, the next row's numbers."""

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        num_queries, num_keys = scores.shape[-2:]
        distances = torch.arange(num_keys - 1, -1, -1, dtype=q.dtype)
        term = q.mean(-1, keepdim=True) * distances.cos()
        padded = torch.nn.functional.pad(term, (1, 0)).reshape(*term.shape[:2], num_keys + 1, num_queries)
        return scores + padded[:, :, 1:].reshape(term.shape)


class CachedByLength(ALiBi):
    """A module-level cache, keyed on too little."""

    name = "fake"
    distance_bias = False  # a model that knew it would ask for one row of it
    cache: dict[int, Tensor] = {}  # noqa: RUF012

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        if scores.shape[-1] not in self.cache:
            self.cache[scores.shape[-1]] = self.bias(site.distance.double(), site.causal)
        return scores + self.cache[scores.shape[-1]][..., : scores.shape[-3], site.rows, :]


class SecondSignalInEmbed(ALiBi):
    """A relative encoder that also adds a sinusoid to the embeddings."""

    name = "fake"

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + angles(positions, geometric_frequencies(x.shape[-1], 1e4, x.shape[-1])).sin().to(x.dtype)


class ScalesTheEmbedding(Sinusoidal):
    name = "fake"

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return super().embed(x * self.geometry.model_dim**0.5, positions)


class CountsAlong(Sinusoidal):
    """Adds up the positions that it is shown: right as long as it is shown all of them."""

    name = "fake"

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return super().embed(x, positions.cumsum(-1))


class DropsOut(Sinusoidal):
    """Draws from the global random state."""

    name = "fake"

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return nn.functional.dropout(super().embed(x, positions), 0.1, self.training)


class CountsItsCalls(Sinusoidal):
    """Changes a buffer in place."""

    name = "fake"

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.register_buffer("calls", torch.zeros(()))

    calls: Tensor

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        self.calls += 1
        return super().embed(x, positions)


class Clamps(Learned):
    """Gives the last row to every position beyond it."""

    name = "fake"

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return super().embed(x, positions.clamp(0, len(self.table) - 1))


class Wraps(Learned):
    name = "fake"

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return super().embed(x, positions % len(self.table))


class HalfPrecisionAngles(RoPE):
    """Angles in the dtype of the queries."""

    name = "fake"

    def rotate(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        angle = site.key_positions.to(q.dtype)[..., None] * self.frequencies().to(q.dtype)
        return rotate_pairs(q, angle[..., site.rows, :], self.pairing), rotate_pairs(k, angle, self.pairing)


class HalfPrecisionDistances(ALiBi):
    name = "fake"

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        query, key = site.query_positions.to(q.dtype), site.key_positions.to(q.dtype)
        return scores + self.bias(query[..., :, None] - key[..., None, :], site.causal)


class BranchesOnValues(ALiBi):
    name = "fake"

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry, form="asymmetric")

    def bias(self, distance: Tensor, causal: bool) -> Tensor:
        return super().bias(distance, causal) if self.slope_logits.max() < 100 else super().bias(0 * distance, causal)


class DeadParameter(Sinusoidal):
    name = "fake"

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.scale = nn.Parameter(torch.ones(()))

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return super().embed(x, positions) * self.scale.detach()


class LearnsALogarithm(Fake):
    """A scale that training may bring below 0, where the logarithm of distant keys is that of a negative number."""

    shift_invariant = True

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.scale = nn.Parameter(torch.ones(()))

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        return scores - torch.log1p(self.scale * site.distance.abs()).to(scores.dtype)


class ClampsAParameter(LearnsALogarithm):
    """Finite everywhere; but a scale that training brings below 0 has no gradient there, and stays."""

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        return scores - torch.log1p(self.scale.clamp(min=0) * site.distance.abs()).to(scores.dtype)


class AddsAConstant(Fake):
    """A learned number per head, the same for all keys: softmax cannot see it."""

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.constant = nn.Parameter(torch.zeros(geometry.num_heads, 1, 1))

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        return scores + self.constant.to(scores.dtype)


class MixesTheBatch(Fake):
    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        return scores - scores.mean(0, keepdim=True)


class SharedTable(Learned):
    """Every instance has the same table."""

    name = "fake"
    one_table = nn.Parameter(torch.randn(2048, ONE.model_dim, dtype=torch.float64))

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.table = self.one_table


class ForgetsItsState(ALiBi):
    """Slopes that no state_dict holds."""

    name = "fake"

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.drawn = torch.rand(geometry.num_heads, 1, 1, dtype=torch.float64)

    def bias(self, distance: Tensor, causal: bool) -> Tensor:
        return -self.drawn * distance.abs()


class ReturnsDouble(Sinusoidal):
    name = "fake"

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + self.table(positions)


class ClaimsDirection(ALiBi):
    name = "fake"

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.direction_aware = True


class HidesDirection(RoPE):
    name = "fake"
    direction_aware = False


class HidesShift(ALiBi):
    name = "fake"
    shift_invariant = False


class ClaimsShift(Sinusoidal):
    name = "fake"
    shift_invariant = True


class FloorsDistances(ALiBi):
    """Takes the whole part of distances that float32 has rounded: 0 for what is 1 elsewhere."""

    name = "fake"

    def bias(self, distance: Tensor, causal: bool) -> Tensor:
        return super().bias(distance.abs().floor(), causal)


class ClaimsDirectionWithoutOne(Fake):
    """Of a model that sees both ways it can say nothing, and does."""

    causal_only = direction_aware = True


class ClaimsStaticBias(ALiBi):
    """Multiplies scores and claims to add to them: the fused path would leave that out."""

    name = "fake"

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        return super().score(2 * scores, q, k, site)


class HidesStaticBias(ALiBi):
    name = "fake"
    static_bias = distance_bias = False


class ClaimsDistanceBias(ALiBi):
    """Lowers scores by the query's position as well: a model that goes by one query's row takes it for the others'."""

    name = "fake"
    shift_invariant = False

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        return super().score(scores, q, k, site) - 0.1 * site.distance * site.query_positions[..., None, :, None]


class HidesDistanceBias(ALiBi):
    name = "fake"
    distance_bias = False


class HidesBlockwiseRotation(Fake):
    """Scales queries up and keys down by the first position at hand: their products are what they were."""

    shift_invariant = True

    def rotate(self, q: Tensor, k: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        scale = 1 + site.query_positions.amin()
        return q * scale, k / scale


class ClaimsBlockwiseRotation(RoPE):
    name = "fake"
    blockwise_rotation = True


class DoesNothing(Fake):
    """Claims what only an encoder that does something can have, and does nothing."""

    direction_aware = True


class UnclaimedNothing(Fake):
    """Does nothing and claims nothing: shift_invariant is what it should have said."""


class ReadsOneAxis(Fake):
    """Claims two and never looks at the columns."""

    axes = 2
    shift_invariant = static_bias = True

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        return scores - site.distance[..., 0].abs().to(scores.dtype)


class ReadsColumnsFromTheirFirst(ReadsOneAxis):
    """Claims that no shift matters; along the columns one does."""

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        column = self.coordinates(site.key_positions)[1]
        return super().score(scores, q, k, site) - column[:, None, None].square().to(scores.dtype)


class TakesAnything(ReadsOneAxis):
    """Lets a model pass positions of any shape."""

    def taken(self, positions: Tensor) -> Tensor:
        return positions

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        distance = site.distance.abs().to(scores.dtype)
        return scores - (distance.sum(-1) if distance.ndim == 5 else distance)


class StaysInFloat32(Fake):
    """A parameter that no change of dtype reaches, and what it makes of scores."""

    static_bias = direction_aware = True

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.strength = nn.Parameter(torch.ones(()))

    def _apply(self, fn: Any, recurse: bool = True) -> StaysInFloat32:
        return self

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        return scores.float() - self.strength * site.distance.relu()


class TakesOneGeometry(ALiBi):
    name = "fake"

    def __init__(self, geometry: Geometry) -> None:
        if geometry.model_dim != ONE.model_dim or geometry.num_heads != ONE.num_heads:
            raise ValueError(f"fake takes model_dim={ONE.model_dim} alone")
        super().__init__(geometry)


class HookWithoutEffect(Fake):
    """Overrides a hook and does nothing in it."""

    shift_invariant = static_bias = True

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        return scores + 0


class HidesItsRelative(RoPE):
    """Rotates a little more slowly than RoPE: its scores are RoPE's within a few per cent."""

    name = "fake"

    def frequencies(self, device: torch.device | None = None) -> Tensor:
        return 0.99 * super().frequencies(device)


class ClaimsARelative(ALiBi):
    name = "fake"
    relative_of = "rope"


class HidesWhatItExtends(NTKRoPE):
    name = "fake"
    extends = None


class ClaimsToExtend(ALiBi):
    name = "fake"
    extends = "rope"


class ControlWithPositions(ALiBi):
    name = "fake"
    control = True


Check = Callable[[Maker, Bench], None]


def asked(check: Callable[[Maker, bool, Bench], None], causal: bool = True) -> Check:
    """A promise under one mask."""
    return lambda make, bench: check(make, causal, bench)


SHIFT, DIRECTION = asked(claims.check_shift_claim), asked(claims.check_direction_claim, causal=False)
CAUSAL_ONLY = asked(claims.check_causal_only_claim)
STATIC, POSITIONS = asked(claims.check_static_bias_claim), asked(claims.check_positions_are_read)
DISTANCE = asked(claims.check_distance_bias_claim)
BLOCKWISE = asked(claims.check_blockwise_rotation_claim)
EMBED, PURE = asked(hooks.check_embed_adds_position_and_nothing_else), asked(hooks.check_pure)
FUTURE, PREFIX = asked(hooks.check_no_leak_from_the_future), asked(hooks.check_prefix_does_not_change)
STATE, HISTORY = asked(hooks.check_state), asked(hooks.check_history_does_not_matter)

FAKES: list[tuple[type[Encoder], str, Check, type[BaseException]]] = [
    (ReadsOneAxis, "axes", asked(claims.check_axes_claim), Broken),
    (ReadsColumnsFromTheirFirst, "axes", asked(claims.check_axes_claim), Broken),
    (TakesAnything, "axes", asked(claims.check_axes_claim), Broken),
    (BiasByPlace, "shift claim", SHIFT, Broken),
    (BiasByPlace, "positions are read", POSITIONS, Broken),
    (Misspelt, "spelling", asked(claims.check_spelling), Broken),
    (BiasIgnoresBlock, "query blocks", asked(hooks.check_blocks), Broken),
    (CountsAlong, "query blocks", asked(hooks.check_blocks), Broken),
    (LeaksFromTheFuture, "future", FUTURE, Broken),
    (LeaksFromTheFuture, "prefix", PREFIX, Broken),
    (LeaksThroughMix, "future", FUTURE, Broken),
    (RotatesByPlace, "positions are read", asked(claims.check_positions_are_read, causal=False), Broken),
    (CachedByLength, "history", HISTORY, Broken),
    (GatesBeforeTheMask, "future", FUTURE, Broken),
    (GatesBeforeTheMask, "prefix", PREFIX, Broken),
    (RelativeShiftWraps, "positions are read", POSITIONS, Broken),
    (RelativeShiftWraps, "query blocks", asked(hooks.check_blocks, causal=False), Broken),
    (SecondSignalInEmbed, "shift claim", SHIFT, Broken),
    (SecondSignalInEmbed, "direction claim", DIRECTION, Broken),
    (ScalesTheEmbedding, "embed adds", EMBED, Broken),
    (DropsOut, "embed adds", EMBED, Broken),
    (DropsOut, "pure", PURE, Broken),
    (CountsItsCalls, "pure", PURE, Broken),
    (Clamps, "length claim", asked(claims.check_length_claim), Broken),
    (Wraps, "length claim", asked(claims.check_length_claim), Broken),
    (HalfPrecisionAngles, "half precision", asked(dtypes.check_half_precision), Broken),
    (HalfPrecisionDistances, "half precision", asked(dtypes.check_half_precision), Broken),
    (BranchesOnValues, "vmap", asked(hooks.check_vmap), RuntimeError),
    (DeadParameter, "gradients", asked(hooks.check_gradients), Broken),
    (AddsAConstant, "gradients", asked(hooks.check_gradients), Broken),
    (LearnsALogarithm, "parameters may move", asked(hooks.check_parameters_may_move), Broken),
    (ClampsAParameter, "parameters may move", asked(hooks.check_parameters_may_move), Broken),
    (MixesTheBatch, "batch", asked(hooks.check_batch_does_not_matter), Broken),
    (SharedTable, "state", STATE, Broken),
    (ForgetsItsState, "state", STATE, Broken),
    (ReturnsDouble, "shapes", lambda make, _: dtypes.check_shapes(make, ONE, True, torch.float32), Broken),
    (ClaimsDirection, "direction claim", DIRECTION, Broken),
    (HidesDirection, "direction claim", DIRECTION, Broken),
    (HidesShift, "shift claim", SHIFT, Broken),
    (ClaimsShift, "shift claim", SHIFT, Broken),
    (FloorsDistances, "shift claim", SHIFT, Broken),
    (ClaimsDirectionWithoutOne, "causal only claim", CAUSAL_ONLY, Broken),
    (ClaimsStaticBias, "static bias claim", STATIC, Broken),
    (ClaimsStaticBias, "fused", lambda make, _: check_fused(make, True), AssertionError),
    (HidesStaticBias, "static bias claim", STATIC, Broken),
    (ClaimsDistanceBias, "distance bias claim", DISTANCE, Broken),
    (HidesDistanceBias, "distance bias claim", DISTANCE, Broken),
    (HidesBlockwiseRotation, "blockwise rotation claim", BLOCKWISE, Broken),
    (ClaimsBlockwiseRotation, "blockwise rotation claim", BLOCKWISE, Broken),
    (DoesNothing, "direction claim", DIRECTION, Broken),
    (DoesNothing, "order is seen", lambda make, bench: claims.check_order_is_seen(make, False, bench), Broken),
    (UnclaimedNothing, "shift claim", SHIFT, Broken),
    (StaysInFloat32, "dtype given", asked(dtypes.check_dtype_of_what_is_given), Broken),
    (StaysInFloat32, "moving to a dtype", asked(dtypes.check_moving_to_a_dtype), Broken),
    (TakesOneGeometry, "shapes", asked(dtypes.check_shapes_at_every_geometry), Broken),
    (HookWithoutEffect, "order by hooks", asked(claims.check_order_is_seen_by_hooks, causal=False), Broken),
    (HidesItsRelative, "relative", asked(relatives.check_relative), Broken),
    (ClaimsARelative, "relative", asked(relatives.check_relative), Broken),
    (HidesWhatItExtends, "extends", asked(relatives.check_extends), Broken),
    (ClaimsToExtend, "extends", asked(relatives.check_extends), Broken),
    (ControlWithPositions, "control", asked(relatives.check_control), Broken),
    (BiasByPlace, "positions by hooks", asked(claims.check_positions_are_read_unless_content_decides), Broken),
]


@pytest.mark.parametrize("bench", [HARNESS, Bench(Stack, ONE), Bench()], ids=["Transformer", "minimal", "as checked"])
@pytest.mark.parametrize(
    ("fake", "check", "caught"),
    [pytest.param(fake, check, error, id=f"{fake.__name__}: {what}") for fake, what, check, error in FAKES],
)
def test_a_wrong_encoder_is_caught(
    fake: type[Encoder], check: Check, caught: type[BaseException], bench: Bench
) -> None:
    CachedByLength.cache.clear()
    with pytest.raises(caught):
        check(fake, bench)


def test_the_command_finds_every_fake_and_every_promise_has_one() -> None:
    """A check that nothing can fail proves nothing."""
    broken: set[str] = set()
    for fake in dict.fromkeys(fake for fake, *_ in FAKES):
        CachedByLength.cache.clear()
        failing = [verdict for verdict in _contract.check(fake) if verdict.outcome in (FAILS, ADVICE)]
        # They are right, and could say more.
        advised = fake in (HidesStaticBias, HidesDistanceBias, HidesItsRelative, HidesWhatItExtends)
        advised |= fake in (LearnsALogarithm, ClampsAParameter)
        assert any(verdict.outcome == FAILS for verdict in failing) != advised, fake.__name__
        assert failing, fake.__name__
        assert all(verdict.reason and "\n" not in verdict.reason for verdict in failing), fake.__name__
        broken |= {verdict.sentence for verdict in failing}
    promised = {promise.sentence for promise in _contract.PROMISES}
    assert promised <= broken, promised - broken
    assert len(promised) == len(_contract.PROMISES), "two promises have the same sentence"


@pytest.mark.parametrize("make", [*CASES, CausalOnly], ids=str)
def test_who_needs_a_causal_mask_is_refused_without_one(make: Maker) -> None:
    """In one line; who does not need one is taken."""
    encoder = make(ONE)
    assert isinstance(HARNESS.model(encoder, causal=True), Transformer)
    if not encoder.causal_only:
        assert isinstance(HARNESS.model(encoder, causal=False), Transformer)
        return
    with pytest.raises(ValueError, match=rf"{encoder.name}.*causal") as refusal:
        HARNESS.model(encoder, causal=False)
    assert "\n" not in str(refusal.value)
