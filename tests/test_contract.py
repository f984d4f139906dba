"""The contract: what every registered encoder promises, each claim held both ways, each check shown to catch a fake."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pe_zoo
from experiments._model import Transformer
from pe_zoo import Encoder, Geometry, Site, Unsupported
from pe_zoo._positions import angles, geometric_frequencies
from pe_zoo.alibi import ALiBi
from pe_zoo.learned import Learned
from pe_zoo.rope import RoPE, turn
from pe_zoo.sinusoidal import Sinusoidal

VOCAB = 11
LENGTH = 6
ORDERLESS = {"none"}
"""Encoders that leave a bidirectional model blind to order."""
POSITIONLESS = {"none"}
"""Encoders that do not read the positions they are given."""

Maker = Callable[[Geometry], Encoder]


@dataclass(frozen=True)
class Case:
    """An encoder with some knobs turned; callable, so that a fake can stand in its place."""

    name: str
    knobs: dict[str, Any] = field(default_factory=dict)
    causal: tuple[bool, ...] = (True, False)
    even_heads: bool = False
    min_pairs: int = 0

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{knob}={value}" for knob, value in self.knobs.items())])

    def __call__(self, geometry: Geometry) -> Encoder:
        return pe_zoo.build(self.name, geometry, **self.knobs)

    def fits(self, geometry: Geometry) -> bool:
        return geometry.head_dim // 2 >= self.min_pairs and not (self.even_heads and geometry.num_heads % 2)


TURNED = [
    Case("rope", {"pairing": "half"}),
    Case("rope", {"fraction": 0.5}, min_pairs=2),
    Case("rope", {"fraction": 0.5, "spectrum": "truncated"}, min_pairs=2),
    Case("rope", {"fraction": 0.5, "spectrum": "truncated", "pairing": "half"}, min_pairs=2),
    Case("alibi", {"form": "one_sided"}, causal=(False,), even_heads=True),
    Case("alibi", {"form": "asymmetric"}),
    Case("t5", {"bidirectional": True}),
    Case("t5", {"bidirectional": False, "num_buckets": 8}),
    Case("sinusoidal", {"channels": "concatenated"}),
]
CASES = [
    *(Case(name, causal=(True,) if pe_zoo.get(name).causal_only else (True, False)) for name in pe_zoo.names()),
    *TURNED,
]

GRID = [
    Geometry(model_dim=heads * head_dim, num_heads=heads, num_layers=2, train_length=LENGTH)
    for heads in (2, 3, 6)
    for head_dim in (2, 4, 8)
]
ONE = Geometry(model_dim=24, num_heads=6, num_layers=2, train_length=LENGTH)

everywhere = pytest.mark.parametrize(
    ("case", "geometry"),
    [
        pytest.param(case, geometry, id=f"{case}-{geometry.num_heads}x{geometry.head_dim}")
        for case in CASES
        for geometry in GRID
        if case.fits(geometry)
    ],
)
both_masks = pytest.mark.parametrize(
    ("case", "causal"),
    [
        pytest.param(case, causal, id=f"{case}-{'causal' if causal else 'both ways'}")
        for case in CASES
        for causal in case.causal
    ],
)
each = pytest.mark.parametrize("case", CASES, ids=str)


# ---------------------------------------------------------------------------------------------- building blocks


def fresh(make: Maker, geometry: Geometry = ONE) -> Encoder:
    """A float64 encoder whose parameters are not at their initial values, where some methods do nothing."""
    encoder = make(geometry).double()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return encoder


def model_of(encoder: Encoder, causal: bool, **options: Any) -> Transformer:
    return Transformer(VOCAB, encoder.geometry, encoder, causal=causal, **options).double()


def some_tokens(batch: int = 2, length: int = LENGTH) -> Tensor:
    """No token twice in a sequence, so that no reordering leaves one as it was."""
    return torch.stack([torch.randperm(VOCAB)[:length] for _ in range(batch)])


def some_positions(*shape: int) -> Tensor:
    """Increasing, irregular, small whole numbers."""
    return torch.randint(1, 4, shape).cumsum(-1).float()


def read(model: Transformer, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
    with torch.no_grad():
        return model(tokens, positions)


def heads_of(geometry: Geometry, batch: int, length: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(batch, geometry.num_heads, length, geometry.head_dim, dtype=dtype)


def site_of(positions: Tensor, causal: bool, x: Tensor | None = None, queries: int | None = None) -> Site:
    keys = positions.shape[-1]
    rows = slice(keys - (queries or keys), keys)
    mask = torch.ones(keys, keys, dtype=torch.bool)
    return Site(
        layer=0,
        query_positions=positions[..., rows],
        key_positions=positions,
        rows=rows,
        mask=(mask.tril() if causal else mask)[rows],
        causal=causal,
        x=x,
    )


def gap(a: Tensor, b: Tensor) -> float:
    """Largest difference; 0 where both are the same infinity."""
    return torch.where(a == b, 0.0, (a - b).abs()).max().item() if a.numel() else 0.0


# ------------------------------------------------------------------------------------------------- the promises


def check_shapes(make: Maker, geometry: Geometry, causal: bool, dtype: torch.dtype, length: int = LENGTH) -> None:
    """Hooks keep shape and dtype, for positions of either shape."""
    encoder = make(geometry).to(dtype)
    x = torch.randn(2, length, geometry.model_dim, dtype=dtype)
    for positions in (torch.arange(length).float(), some_positions(2, length)):
        embedded = encoder.embed(x, positions)
        assert (embedded.shape, embedded.dtype) == (x.shape, dtype)
        for queries in {length, 1}:
            site = site_of(positions, causal, x, queries)
            q, k = heads_of(geometry, 2, queries, dtype), heads_of(geometry, 2, length, dtype)
            turned_q, turned_k = encoder.rotate(q, k, site)
            assert turned_q.shape[:-1] == q.shape[:-1]
            assert turned_k.shape[:-1] == k.shape[:-1]
            assert turned_q.shape[-1] == turned_k.shape[-1] >= geometry.head_dim
            assert turned_q.dtype == turned_k.dtype == dtype
            raw = turned_q @ turned_k.mT
            changed = encoder.score(raw, turned_q, turned_k, site)
            assert (changed.shape, changed.dtype) == (raw.shape, dtype)
            mixed = encoder.mix(changed.masked_fill(~site.mask, -torch.inf), k, site)
            assert (mixed.shape, mixed.dtype) == (q.shape, dtype)
            reference = pe_zoo.scores(encoder, q, k, positions, x=x, causal=causal)
            assert (reference.shape, reference.dtype) == ((2, geometry.num_heads, queries, length), dtype)


def check_pure(make: Maker, causal: bool) -> None:
    """The same answer twice; no buffer, parameter, attribute or global random state changed by asking."""
    encoder = fresh(make)
    model, tokens, others = model_of(encoder, causal), some_tokens(), some_positions(2, 3)
    state = {name: tensor.clone() for name, tensor in [*encoder.named_parameters(), *encoder.named_buffers()]}
    attributes, randomness = set(vars(encoder)), torch.random.get_rng_state()
    first = model(tokens)
    model(tokens[:, :3], others)
    assert torch.equal(first, model(tokens)), "a second look gave another answer"
    first.sum().backward()
    assert torch.equal(randomness, torch.random.get_rng_state()), "drew from the global state"
    after = dict([*encoder.named_parameters(), *encoder.named_buffers()])
    assert after.keys() == state.keys()
    assert all(torch.equal(after[name], tensor) for name, tensor in state.items()), "forward changed the state"
    assert set(vars(encoder)) == attributes


def check_no_leak_from_the_future(make: Maker) -> None:
    """No output depends on a later input: gradients are exactly 0, and later tokens change no earlier logit's bits."""
    model, tokens = model_of(fresh(make), causal=True), some_tokens()
    seen: list[Tensor] = []
    hook = model.token_embedding.register_forward_hook(lambda module, args, output: seen.append(output))
    logits = model(tokens)
    hook.remove()
    for place in range(LENGTH):
        (gradient,) = torch.autograd.grad(logits[:, place].pow(2).sum(), seen[0], retain_graph=True)
        assert gradient[:, place + 1 :].abs().sum() == 0, f"output {place} has a gradient from later inputs"
        assert gradient[:, place].abs().sum() > 0
    before = read(model, tokens)
    for place in range(1, LENGTH):
        changed = tokens.clone()
        changed[:, place:] = (changed[:, place:] + 1 + torch.randint(VOCAB - 1, (2, LENGTH - place))) % VOCAB
        after = read(model, changed)
        assert torch.equal(after[:, :place], before[:, :place]), f"tokens from {place} on changed earlier logits"
        assert not torch.equal(after[:, place:], before[:, place:])


def check_batch_does_not_matter(make: Maker, causal: bool) -> None:
    """A sequence's logits are the same alone and among others, with positions shared or its own."""
    model, tokens = model_of(fresh(make), causal), some_tokens(3)
    for positions in (some_positions(LENGTH), some_positions(3, LENGTH)):
        together = read(model, tokens, positions)
        for sample in range(3):
            own = positions if positions.ndim == 1 else positions[sample : sample + 1]
            assert gap(together[sample], read(model, tokens[sample : sample + 1], own)[0]) < 1e-11


def check_prefix_does_not_change(make: Maker) -> None:
    """In a causal model, what follows (text or right padding) changes nothing before it."""
    model, tokens, positions = model_of(fresh(make), causal=True), some_tokens(), some_positions(LENGTH)
    padded = tokens.clone()
    padded[:, 4:] = 0
    for longer in (tokens, padded):
        assert gap(read(model, longer, positions)[:, :4], read(model, tokens[:, :4], positions[:4])) < 1e-11


def shift_changes(make: Maker, causal: tuple[bool, ...] = (True, False)) -> float:
    """How much adding one number to all positions changes scores and logits."""
    encoder, tokens, positions = fresh(make), some_tokens(), some_positions(LENGTH)
    q, k = heads_of(encoder.geometry, 2, LENGTH), heads_of(encoder.geometry, 2, LENGTH)
    x = torch.randn(2, LENGTH, encoder.geometry.model_dim, dtype=torch.float64)
    largest = 0.0
    for shift in (1.0, 17.0, 800.0):
        for mask in causal:
            here, there = (pe_zoo.scores(encoder, q, k, p, x=x, causal=mask) for p in (positions, positions + shift))
            model = model_of(encoder, mask)
            logits = gap(read(model, tokens, positions), read(model, tokens, positions + shift))
            largest = max(largest, gap(here, there), logits)
    return largest


def check_shift_claim(make: Maker, causal: tuple[bool, ...] = (True, False)) -> None:
    changed = shift_changes(make, causal)
    if make(ONE).shift_invariant:
        assert changed < 1e-9, "claims shift_invariant, but a shift of all positions changes it"
    else:
        assert changed > 1e-5, "does not claim shift_invariant, but no shift of all positions changes it"


def check_direction_claim(make: Maker) -> None:
    encoder, tokens = fresh(make), some_tokens()
    model = model_of(encoder, causal=False)
    difference = gap(read(model, tokens.flip(-1)), read(model, tokens).flip(-2))
    if encoder.direction_aware:
        assert difference > 1e-5, "claims direction_aware, but takes a reversal for the original"
    else:
        assert difference < 1e-9, "does not claim direction_aware, but tells a sequence from its reversal"


def check_order_is_seen(make: Maker, orderless: bool) -> None:
    """Bidirectional: permuting tokens permutes the logits, exactly if and only if the encoder gives no order."""
    model, tokens = model_of(fresh(make), causal=False), some_tokens()
    order = torch.tensor([2, 0, 3, 5, 1, 4])
    difference = gap(read(model, tokens[:, order]), read(model, tokens)[:, order])
    assert (difference < 1e-12) if orderless else (difference > 1e-5)


def check_positions_are_read(make: Maker, causal: bool) -> None:
    """Positions twice as far apart make another model: it is the numbers that count, not the places."""
    model, tokens, positions = model_of(fresh(make), causal), some_tokens(), some_positions(LENGTH)
    before = read(model, tokens, positions)
    assert gap(before, read(model, tokens, 2 * positions)) > 1e-5
    each_its_own = torch.stack([positions, 2 * positions])
    assert gap(read(model, tokens, each_its_own)[0], before[0]) < 1e-11
    assert gap(read(model, tokens, each_its_own)[1], before[1]) > 1e-5


def check_static_bias_claim(make: Maker, causal: bool) -> None:
    encoder = fresh(make)
    if not encoder.overrides("score"):
        assert not encoder.static_bias, "claims static_bias without a bias"
        return
    site = site_of(some_positions(LENGTH), causal, torch.randn(2, LENGTH, encoder.geometry.model_dim).double())
    added = []
    for scale in (1.0, 3.0):
        q, k = scale * heads_of(encoder.geometry, 2, LENGTH), heads_of(encoder.geometry, 2, LENGTH)
        raw = scale * torch.randn(2, encoder.geometry.num_heads, LENGTH, LENGTH, dtype=torch.float64)
        added.append(encoder.score(raw, q, k, site) - raw)
    same = gap(added[0], added[1]) < 1e-9
    assert same == encoder.static_bias, f"static_bias={encoder.static_bias}, but what score adds says {same}"


def check_length_claim(make: Maker, causal: bool) -> None:
    """Any length works, or is refused with the limit named: nothing is clamped or wrapped."""
    encoder = fresh(make)
    model, tokens = model_of(encoder, causal), some_tokens()
    long = torch.randint(VOCAB, (1, 8 * LENGTH))
    if encoder.max_length is None:
        assert read(model, long).isfinite().all()
        for last in (10**3, 10**6):
            assert read(model, tokens, last - torch.arange(LENGTH).flip(0).float()).isfinite().all()
        return
    limit = encoder.max_length
    positions = torch.arange(LENGTH).float()
    allowed = positions.clone()
    allowed[-1] = limit - 1
    assert read(model, tokens, allowed).isfinite().all()
    if limit > LENGTH:
        assert gap(read(model, tokens, allowed), read(model, tokens, positions)) > 1e-5
    for wrong in (limit, limit + 1, 10**6, -1):
        for several in (False, True):
            asked = positions.clone()
            asked[0 if wrong < 0 else -1] = wrong
            with pytest.raises(Unsupported) as refusal:
                read(model, tokens, torch.stack([positions, asked]) if several else asked)
            assert str(limit) in str(refusal.value) or str(limit - 1) in str(refusal.value)


def check_gradients(make: Maker, causal: bool) -> None:
    model = model_of(fresh(make), causal)
    model(some_tokens()).pow(2).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, f"no gradient reaches {name}"
        assert parameter.grad.isfinite().all()
        assert parameter.grad.abs().sum() > 0, f"the gradient of {name} is 0"


def check_state(make: Maker, causal: bool) -> None:
    """State moves with state_dict and with nothing else: copies and siblings are separate."""
    first, second, tokens = fresh(make), fresh(make), some_tokens()
    model = model_of(first, causal)
    before = read(model, tokens)
    double = copy.deepcopy(model)
    assert torch.equal(before, read(double, tokens))
    with torch.no_grad():
        for tensor in [*double.encoder.parameters(), *second.parameters()]:
            tensor.add_(torch.randn_like(tensor))
    assert torch.equal(before, read(model, tokens)), "a copy or a sibling shares state"
    if any(True for _ in first.parameters()):
        assert gap(before, read(double, tokens)) > 1e-6
    double.encoder.load_state_dict(first.state_dict())
    second.load_state_dict(first.state_dict())
    assert torch.equal(before, read(double, tokens))
    loaded = model_of(second, causal)
    loaded.load_state_dict(model.state_dict())
    assert torch.equal(before, read(loaded, tokens))


def check_history_does_not_matter(make: Maker, other: Maker, causal: bool) -> None:
    """What was asked before, of this encoder or of another of its class, leaves no trace."""
    tokens, far = some_tokens(), 3 * some_positions(LENGTH)
    asked_first = [fresh(make), fresh(other, Geometry(model_dim=32, num_heads=2, num_layers=2, train_length=LENGTH))]
    models = [model_of(encoder, causal) for encoder in asked_first]
    far_first = [read(model, tokens, far) for model in models]
    near = [read(model, tokens) for model in models]
    for model, then, between in zip(reversed(models), reversed(far_first), reversed(near), strict=True):
        assert torch.equal(read(model, tokens), between)
        assert torch.equal(read(model, tokens, far), then)
        # The same again at a length nobody asked for, in the other order.
        longer = torch.cat([tokens, tokens[:, :1]], 1) if causal else tokens
        ahead = (
            torch.cat([torch.arange(LENGTH).float(), torch.tensor([40.0])]) if causal else torch.arange(LENGTH).float()
        )
        assert gap(read(model, longer, ahead)[:, :LENGTH], between) < 1e-11


def check_vmap(make: Maker, causal: bool, own_positions: bool) -> None:
    """Many models trained at once are the same models: forward and gradient."""
    geometry = ONE
    models = [model_of(fresh(make, geometry), causal, attention="plain") for _ in range(3)]
    tokens = torch.stack([some_tokens() for _ in models])
    positions = some_positions(3, 2, LENGTH) if own_positions else torch.arange(LENGTH).float()
    parameters, buffers = torch.func.stack_module_state(models)

    def loss(
        parameters: dict[str, Tensor], buffers: dict[str, Tensor], tokens: Tensor, positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        logits = torch.func.functional_call(models[0], (parameters, buffers), (tokens, positions))
        return logits.pow(2).mean(), logits

    where = (0, 0, 0, 0 if own_positions else None)
    gradients, logits = torch.func.vmap(torch.func.grad(loss, has_aux=True), in_dims=where)(
        parameters, buffers, tokens, positions
    )
    for index, model in enumerate(models):
        alone = model(tokens[index], positions[index] if own_positions else positions)
        assert gap(alone, logits[index]) < 1e-10
        alone.pow(2).mean().backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            assert gap(parameter.grad, gradients[name][index]) < 1e-10, name


def check_blocks(make: Maker, causal: bool) -> None:
    """Queries in blocks, or only the last ones, get what they get in the whole."""
    encoder, tokens = fresh(make), some_tokens(length=8)
    x = torch.randn(2, 8, encoder.geometry.model_dim, dtype=torch.float64)
    q, k = heads_of(encoder.geometry, 2, 8), heads_of(encoder.geometry, 2, 8)
    for positions in (some_positions(8), some_positions(2, 8)):
        whole = pe_zoo.scores(encoder, q, k, positions, x=x, causal=causal)
        for last in (1, 3):
            part = pe_zoo.scores(encoder, q[:, :, -last:], k, positions, x=x, causal=causal)
            assert gap(whole[:, :, -last:], part) < 1e-11
        for attention in ("plain", "fused"):
            model = model_of(encoder, causal, query_block=3, attention=attention)
            assert gap(model(tokens, positions), read(model, tokens, positions)) < 1e-11


def check_fused(make: Maker, causal: bool) -> None:
    """The fused kernel and the plain path are one model: forward and gradient."""
    encoder, tokens = fresh(make), some_tokens()
    plain, fused = (model_of(encoder, causal, attention=attention) for attention in ("plain", "fused"))
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


def check_half_precision(make: Maker, causal: bool) -> None:
    """At positions around 100 000, bfloat16 is as close to float32 as its eight bits of products allow.

    Four roundings of 2^−8 relative to |q|·|k|/sqrt(head_dim), and of the score itself, which a bias may dominate.
    """
    half = make(ONE).bfloat16()
    exact = copy.deepcopy(half).float()
    for name, buffer in make(ONE).named_buffers():
        exact.get_buffer(name).copy_(buffer)
    last = 100_000 if exact.max_length is None else exact.max_length
    positions = torch.arange(last - 16, last).float()
    q, k = (heads_of(ONE, 2, 16, torch.bfloat16) for _ in range(2))
    x = torch.randn(2, 16, ONE.model_dim, dtype=torch.bfloat16)
    expected = pe_zoo.scores(exact, q.float(), k.float(), positions, x=x.float(), causal=causal)
    found = pe_zoo.scores(half, q, k, positions, x=x, causal=causal).float()
    seen = expected.isfinite()
    assert torch.equal(seen, found.isfinite())
    products = q.float().norm(dim=-1)[..., :, None] * k.float().norm(dim=-1)[..., None, :] / ONE.head_dim**0.5
    assert ((found - expected).abs() <= 2**-6 * (products + expected.abs()))[seen].all()
    error = (half.embed(x, positions).float() - exact.embed(x.float(), positions)).abs()
    assert (error <= 2**-7 * (1 + x.float().abs() + exact.embed(0 * x.float(), positions).abs())).all()


def check_embed_adds_position_and_nothing_else(make: Maker) -> None:
    encoder, positions = fresh(make), some_positions(2, LENGTH)
    x, y = (torch.randn(2, LENGTH, encoder.geometry.model_dim, dtype=torch.float64) for _ in range(2))
    assert gap(encoder.embed(x, positions) - x, encoder.embed(y, positions) - y) < 1e-12
    assert torch.equal(encoder.train().embed(x, positions), encoder.eval().embed(x, positions))


# ------------------------------------------------------------------------------------ every encoder keeps them


@everywhere
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_hooks_keep_shape_and_dtype(case: Case, geometry: Geometry, dtype: torch.dtype) -> None:
    for causal in case.causal:
        check_shapes(case, geometry, causal, dtype)
        check_shapes(case, geometry, causal, dtype, length=1)


@each
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_hooks_keep_the_dtype_of_what_they_are_given_whatever_their_parameters_are(
    case: Case, dtype: torch.dtype
) -> None:
    encoder, positions = case(ONE), some_positions(2, LENGTH)
    x, q, k = (
        torch.randn(2, LENGTH, ONE.model_dim, dtype=dtype),
        heads_of(ONE, 2, LENGTH, dtype),
        heads_of(ONE, 2, LENGTH, dtype),
    )
    site = site_of(positions, case.causal[0], x)
    assert {t.dtype for t in encoder.rotate(q, k, site)} == {dtype}
    assert encoder.score(q @ k.mT, q, k, site).dtype == dtype
    assert encoder.mix(q @ k.mT, k, site).dtype == dtype
    assert encoder.embed(x, positions).dtype == dtype


@each
def test_a_geometry_that_does_not_fit_is_refused_and_every_other_is_taken(case: Case) -> None:
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
def test_an_encoder_of_bidirectional_models_says_so_to_a_causal_one(case: Case) -> None:
    with pytest.raises(Unsupported, match=case.name):
        read(model_of(fresh(case), causal=True), some_tokens())


@both_masks
def test_forward_is_pure(case: Case, causal: bool) -> None:
    check_pure(case, causal)


@pytest.mark.parametrize("case", [case for case in CASES if True in case.causal], ids=str)
def test_nothing_leaks_from_the_future(case: Case) -> None:
    check_no_leak_from_the_future(case)
    check_prefix_does_not_change(case)


@both_masks
def test_the_rest_of_the_batch_does_not_matter(case: Case, causal: bool) -> None:
    check_batch_does_not_matter(case, causal)


@each
def test_shift_invariant_both_ways(case: Case) -> None:
    check_shift_claim(case, case.causal)


@pytest.mark.parametrize("case", [case for case in CASES if False in case.causal], ids=str)
def test_direction_aware_both_ways(case: Case) -> None:
    check_direction_claim(case)


@both_masks
def test_static_bias_both_ways(case: Case, causal: bool) -> None:
    check_static_bias_claim(case, causal)


@both_masks
def test_any_length_works_or_is_refused(case: Case, causal: bool) -> None:
    check_length_claim(case, causal)


def test_a_table_of_just_the_training_length_refuses_the_first_position_beyond() -> None:
    check_length_claim(lambda geometry: pe_zoo.build("learned", geometry, num_rows=LENGTH), causal=True)


@pytest.mark.parametrize("case", [case for case in CASES if False in case.causal], ids=str)
def test_order_is_seen_unless_there_is_no_encoder(case: Case) -> None:
    check_order_is_seen(case, case.name in ORDERLESS)


@both_masks
def test_the_numbers_count_and_not_the_places(case: Case, causal: bool) -> None:
    if case.name in POSITIONLESS:
        with pytest.raises(AssertionError):
            check_positions_are_read(case, causal)
    else:
        check_positions_are_read(case, causal)


@both_masks
def test_gradients_reach_every_parameter(case: Case, causal: bool) -> None:
    check_gradients(case, causal)


@both_masks
def test_state_is_saved_restored_and_not_shared(case: Case, causal: bool) -> None:
    check_state(case, causal)


@both_masks
def test_history_does_not_matter(case: Case, causal: bool) -> None:
    check_history_does_not_matter(case, Case(case.name), causal or case.causal == (True,))


@both_masks
@pytest.mark.parametrize("own_positions", [False, True], ids=["one numbering", "own positions"])
def test_many_models_at_once_equal_a_loop(case: Case, causal: bool, own_positions: bool) -> None:
    check_vmap(case, causal, own_positions)


@both_masks
def test_query_blocks_equal_the_whole(case: Case, causal: bool) -> None:
    check_blocks(case, causal)


@both_masks
def test_fused_attention_equals_plain(case: Case, causal: bool) -> None:
    check_fused(case, causal)


@both_masks
def test_half_precision_stays_close_far_out(case: Case, causal: bool) -> None:
    check_half_precision(case, causal)


@each
def test_embed_adds_position_and_nothing_else(case: Case) -> None:
    check_embed_adds_position_and_nothing_else(case)


@each
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_moving_to_a_dtype_moves_everything_that_floats(case: Case, dtype: torch.dtype) -> None:
    encoder = case(ONE).to(dtype)
    assert {p.dtype for p in encoder.parameters()} <= {dtype}
    logits = Transformer(VOCAB, ONE, encoder, causal=case.causal[0]).to(dtype)(some_tokens())
    assert logits.dtype == dtype
    assert logits.isfinite().all()


@pytest.mark.parametrize("case", [Case("learned")], ids=str)
@pytest.mark.parametrize("wrong", [-1, 16])
def test_many_models_at_once_refuse_positions_beyond_the_table_too(case: Case, wrong: int) -> None:
    """A row that does not exist must not become another model's row; vmap cannot raise, so it is no number."""
    models = [model_of(pe_zoo.build(case.name, ONE, num_rows=16), True, attention="plain") for _ in range(2)]
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


@pytest.mark.parametrize(("num_layers", "seen"), [(1, False), (2, True)])
def test_one_causal_layer_without_an_encoder_sees_its_past_as_a_bag_and_two_do_not(num_layers: int, seen: bool) -> None:
    geometry = Geometry(model_dim=16, num_heads=2, num_layers=num_layers, train_length=LENGTH)
    model, tokens = model_of(fresh(Case("none"), geometry), causal=True), some_tokens()
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
        return turn(q, places[site.rows], self.pairing), turn(k, places, self.pairing)


class CachedByLength(ALiBi):
    """A module-level cache, keyed on too little."""

    name = "fake"
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
        return turn(q, angle[..., site.rows, :], self.pairing), turn(k, angle, self.pairing)


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


class ClaimsStaticBias(ALiBi):
    """Multiplies scores and claims to add to them: the fused path would leave that out."""

    name = "fake"

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        return super().score(2 * scores, q, k, site)


class HidesStaticBias(ALiBi):
    name = "fake"
    static_bias = False


class DoesNothing(Fake):
    """Claims what only an encoder that does something can have, and does nothing."""

    direction_aware = True


class UnclaimedNothing(Fake):
    """Does nothing and claims nothing: shift_invariant is what it should have said."""


FAKES: list[tuple[type[Encoder], str, Callable[[Maker], None], type[BaseException]]] = [
    (BiasByPlace, "shift claim", check_shift_claim, AssertionError),
    (BiasByPlace, "positions are read", lambda make: check_positions_are_read(make, True), AssertionError),
    (BiasIgnoresBlock, "query blocks", lambda make: check_blocks(make, True), AssertionError),
    (LeaksFromTheFuture, "future", check_no_leak_from_the_future, AssertionError),
    (LeaksFromTheFuture, "prefix", check_prefix_does_not_change, AssertionError),
    (LeaksThroughMix, "future", check_no_leak_from_the_future, AssertionError),
    (RotatesByPlace, "positions are read", lambda make: check_positions_are_read(make, False), AssertionError),
    (CachedByLength, "history", lambda make: check_history_does_not_matter(make, make, True), AssertionError),
    (SecondSignalInEmbed, "shift claim", check_shift_claim, AssertionError),
    (SecondSignalInEmbed, "direction claim", check_direction_claim, AssertionError),
    (ScalesTheEmbedding, "embed adds", check_embed_adds_position_and_nothing_else, AssertionError),
    (DropsOut, "embed adds", check_embed_adds_position_and_nothing_else, AssertionError),
    (DropsOut, "pure", lambda make: check_pure(make, True), AssertionError),
    (CountsItsCalls, "pure", lambda make: check_pure(make, True), AssertionError),
    (Clamps, "length claim", lambda make: check_length_claim(make, True), pytest.fail.Exception),
    (Wraps, "length claim", lambda make: check_length_claim(make, True), pytest.fail.Exception),
    (HalfPrecisionAngles, "half precision", lambda make: check_half_precision(make, True), AssertionError),
    (HalfPrecisionDistances, "half precision", lambda make: check_half_precision(make, True), AssertionError),
    (BranchesOnValues, "vmap", lambda make: check_vmap(make, True, False), RuntimeError),
    (DeadParameter, "gradients", lambda make: check_gradients(make, True), AssertionError),
    (MixesTheBatch, "batch", lambda make: check_batch_does_not_matter(make, True), AssertionError),
    (SharedTable, "state", lambda make: check_state(make, True), AssertionError),
    (ForgetsItsState, "state", lambda make: check_state(make, True), AssertionError),
    (ReturnsDouble, "shapes", lambda make: check_shapes(make, ONE, True, torch.float32), AssertionError),
    (ClaimsDirection, "direction claim", check_direction_claim, AssertionError),
    (HidesDirection, "direction claim", check_direction_claim, AssertionError),
    (HidesShift, "shift claim", check_shift_claim, AssertionError),
    (ClaimsShift, "shift claim", check_shift_claim, AssertionError),
    (ClaimsStaticBias, "static bias claim", lambda make: check_static_bias_claim(make, True), AssertionError),
    (ClaimsStaticBias, "fused", lambda make: check_fused(make, True), AssertionError),
    (HidesStaticBias, "static bias claim", lambda make: check_static_bias_claim(make, True), AssertionError),
    (DoesNothing, "direction claim", check_direction_claim, AssertionError),
    (DoesNothing, "order is seen", lambda make: check_order_is_seen(make, False), AssertionError),
    (UnclaimedNothing, "shift claim", check_shift_claim, AssertionError),
]


@pytest.mark.parametrize(
    ("fake", "check", "caught"),
    [pytest.param(fake, check, error, id=f"{fake.__name__}: {what}") for fake, what, check, error in FAKES],
)
def test_a_wrong_encoder_is_caught(fake: Maker, check: Callable[[Maker], None], caught: type[BaseException]) -> None:
    with pytest.raises(caught):
        check(fake)


@pytest.mark.parametrize("make", [*CASES, CausalOnly], ids=str)
def test_causal_only_both_ways(make: Maker) -> None:
    """Who needs a causal mask is refused without one, in one line; who does not is not."""
    encoder = make(ONE)
    assert isinstance(model_of(encoder, causal=True), Transformer)
    if not encoder.causal_only:
        assert isinstance(model_of(encoder, causal=False), Transformer)
        return
    with pytest.raises(ValueError, match=rf"{encoder.name}.*causal") as refusal:
        model_of(encoder, causal=False)
    assert "\n" not in str(refusal.value)
