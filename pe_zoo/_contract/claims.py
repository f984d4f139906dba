"""Claims, held both ways: who claims one has it, who does not lacks it. ``causal_only`` says what is not asked."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from pe_zoo._contract.bench import (
    BENCH,
    LENGTH,
    VOCAB,
    Bench,
    Broken,
    Maker,
    NotAsked,
    gap,
    heads_of,
    hold,
    read,
    site_of,
    some_positions,
    some_tokens,
)
from pe_zoo._encoder import Encoder, Unsupported, scores

HOOKS = ("embed", "rotate", "score", "mix")


def shift_changes(make: Maker, causal: bool, bench: Bench = BENCH) -> float:
    """How much adding one number to all positions changes scores and logits."""
    encoder, tokens, positions = bench.fresh(make), some_tokens(), some_positions(LENGTH)
    q, k = heads_of(encoder.geometry, 2, LENGTH), heads_of(encoder.geometry, 2, LENGTH)
    x = torch.randn(2, LENGTH, encoder.geometry.model_dim, dtype=torch.float64)
    model = bench.model(encoder, causal)
    largest = 0.0
    for shift in (1.0, 17.0, 800.0):
        if encoder.max_length is None or positions.max() + shift < encoder.max_length:
            here, there = (scores(encoder, q, k, p, x=x, causal=causal) for p in (positions, positions + shift))
            logits = gap(read(model, tokens, positions), read(model, tokens, positions + shift))
            largest = max(largest, gap(here, there), logits)
    return largest


def shift_of_fractions_changes(make: Maker, causal: bool, bench: Bench = BENCH) -> float:
    """How much adding one number to positions a sixth apart, in float32 as numberings are, changes scores and logits.

    The shifted distances are off by up to 2⁻¹³: what goes by distance smoothly changes as little.
    """
    places, shift = 4 * LENGTH, 1024.0
    encoder, tokens = bench.fresh(make), torch.randint(VOCAB, (2, places))
    if encoder.max_length is not None and encoder.max_length <= places + shift:
        return 0.0
    q, k = heads_of(encoder.geometry, 2, places), heads_of(encoder.geometry, 2, places)
    x = torch.randn(2, places, encoder.geometry.model_dim, dtype=torch.float64)
    model, here = bench.model(encoder, causal), torch.arange(places) / 6
    scored = [scores(encoder, q, k, positions, x=x, causal=causal) for positions in (here, here + shift)]
    return max(gap(*scored), gap(read(model, tokens, here), read(model, tokens, here + shift)))


def check_shift_claim(make: Maker, causal: bool, bench: Bench = BENCH) -> None:
    """Adding one number to all positions changes nothing if, and only if, shift_invariant is claimed."""
    changed = shift_changes(make, causal, bench)
    encoder = make(bench.geometry)
    if encoder.shift_invariant:
        hold(changed < 1e-9, f"claims shift_invariant, but a shift of all positions changes it by {changed:.1g}")
        changed = shift_of_fractions_changes(make, causal, bench)
        reason = "distances of fractional positions are off by what float32 rounds"
        hold(changed < 0.03, f"claims shift_invariant, but a shift of sixths changes it by {changed:.1g}: {reason}")
        return
    if not encoder.causal_only:  # it is enough that a shift shows under one mask
        with suppress(Unsupported):
            changed = max(changed, shift_changes(make, not causal, bench))
    hold(changed > 1e-5, "does not claim shift_invariant, but no shift of all positions changes it")


def check_direction_claim(make: Maker, causal: bool = False, bench: Bench = BENCH) -> None:
    """A bidirectional model tells a sequence from its reversal if, and only if, direction_aware is claimed."""
    encoder, tokens = bench.fresh(make), some_tokens()
    model = bench.model(encoder, False)
    difference = 0.0
    for step in (1.0, 5.0, 0.5 * bench.geometry.train_length):  # even steps: as far apart backwards as forwards
        positions = step * torch.arange(LENGTH)
        if encoder.max_length is None or positions.max() < encoder.max_length:
            forwards, backwards = read(model, tokens, positions), read(model, tokens.flip(-1), positions)
            difference = max(difference, gap(backwards, forwards.flip(-2)))
    if encoder.direction_aware:
        hold(difference > 1e-5, "claims direction_aware, but takes a reversal for the original")
    else:
        hold(difference < 1e-9, "does not claim direction_aware, but tells a sequence from its reversal")


def check_causal_only_claim(make: Maker, causal: bool, bench: Bench = BENCH) -> None:
    """Who claims causal_only does not claim direction_aware, which no bidirectional model could show."""
    encoder = make(bench.geometry)
    both = encoder.causal_only and encoder.direction_aware
    hold(not both, "claims causal_only, and direction_aware, which only a bidirectional model could show")


def check_static_bias_claim(make: Maker, causal: bool, bench: Bench = BENCH) -> None:
    """What score adds is the same for all scores, queries and keys if, and only if, static_bias is claimed."""
    encoder = bench.fresh(make)
    if not encoder.overrides("score"):
        hold(not encoder.static_bias, "claims static_bias, but has no score hook to add a bias")
        return
    site = site_of(some_positions(LENGTH), causal, torch.randn(2, LENGTH, encoder.geometry.model_dim).double())
    added = []
    for scale in (1.0, 3.0):
        q, k = scale * heads_of(encoder.geometry, 2, LENGTH), heads_of(encoder.geometry, 2, LENGTH)
        raw = scale * torch.randn(2, encoder.geometry.num_heads, LENGTH, LENGTH, dtype=torch.float64)
        added.append(encoder.score(raw, q, k, site) - raw)
    same = gap(added[0], added[1]) < 1e-9
    if encoder.static_bias:
        hold(same, "claims static_bias, but what score adds depends on the scores, queries or keys")
    else:
        hold(not same, "does not claim static_bias, but what score adds depends on positions alone")


def check_distance_bias_claim(make: Maker, causal: bool, bench: Bench = BENCH) -> None:
    """What score adds is the same wherever the distance is the same if, and only if, distance_bias is claimed."""
    encoder = bench.fresh(make)
    if not encoder.static_bias:
        hold(not encoder.distance_bias, "claims distance_bias, but not static_bias")
        return
    q, k = heads_of(encoder.geometry, 1, LENGTH), heads_of(encoder.geometry, 1, LENGTH)
    nothing = torch.zeros(1, encoder.geometry.num_heads, LENGTH, LENGTH, dtype=q.dtype)
    changed = 0.0
    for step in (1.0, float(bench.geometry.train_length)):  # some biases change beyond the training length
        x = torch.randn(1, LENGTH, encoder.geometry.model_dim, dtype=q.dtype)
        added = encoder.score(nothing, q, k, site_of(step * torch.arange(LENGTH), causal, x))
        changed = max(changed, gap(added[..., 1:, 1:].tril(), added[..., :-1, :-1].tril()))
    if encoder.distance_bias:
        hold(changed < 1e-9, "claims distance_bias, but what score adds differs at the same distance")
    else:
        hold(changed > 1e-5, "does not claim distance_bias, but what score adds goes by distance alone")


def check_blockwise_rotation_claim(make: Maker, causal: bool, bench: Bench = BENCH) -> None:
    """Rotate does to some queries what it does to all, whatever they see, unless blockwise_rotation is claimed."""
    encoder = bench.fresh(make)
    if not encoder.overrides("rotate"):
        hold(not encoder.blockwise_rotation, "claims blockwise_rotation, but has no rotate hook")
        return
    positions, x = some_positions(LENGTH), torch.randn(2, LENGTH, encoder.geometry.model_dim).double()
    q, k = heads_of(encoder.geometry, 2, LENGTH), heads_of(encoder.geometry, 2, LENGTH)
    everywhere = torch.ones(1, 1, dtype=torch.bool)
    rotated_q, rotated_k = encoder.rotate(q, k, replace(site_of(positions, causal, x), mask=everywhere))
    changed = 0.0
    for rows in (slice(0, 2), slice(2, LENGTH), slice(LENGTH - 1, LENGTH)):
        some_q, some_k = encoder.rotate(q[:, :, rows], k, site_of(positions, causal, x, rows))
        changed = max(changed, gap(some_q, rotated_q[:, :, rows]), gap(some_k, rotated_k))
    if encoder.blockwise_rotation:
        hold(changed > 1e-5, "claims blockwise_rotation, but rotate does the same to some queries as to all")
    else:
        hold(
            changed < 1e-11, "does not claim blockwise_rotation, but rotate does otherwise to some queries than to all"
        )


def check_length_claim(make: Maker, causal: bool, bench: Bench = BENCH) -> None:
    """Positions up to max_length − 1 work, every other is refused with Unsupported; without a max_length all work."""
    encoder = bench.fresh(make)
    model, tokens = bench.model(encoder, causal), some_tokens()
    if encoder.max_length is None:
        finite = read(model, torch.randint(VOCAB, (1, 8 * LENGTH))).isfinite().all()
        hold(finite, f"no max_length, but logits at length {8 * LENGTH} are not finite")
        for last in (10**3, 10**6):
            finite = read(model, tokens, last - torch.arange(LENGTH).flip(0).float()).isfinite().all()
            hold(finite, f"no max_length, but logits at position {last} are not finite")
        return
    limit, trained = encoder.max_length, bench.geometry.train_length
    hold(limit >= trained, f"max_length={limit} is below train_length={trained}, which it was built for")
    positions = torch.arange(LENGTH).float()
    allowed = positions.clone()
    allowed[-1] = limit - 1
    hold(read(model, tokens, allowed).isfinite().all(), f"max_length={limit}, but position {limit - 1} does not work")
    if limit > LENGTH:
        moved = gap(read(model, tokens, allowed), read(model, tokens, positions)) > 1e-5
        hold(moved, f"position {limit - 1} is taken for position {LENGTH - 1}")
    for wrong in (limit, limit + 1, 10**6, -1):
        asked = positions.clone()
        asked[0 if wrong < 0 else -1] = wrong
        for given in (asked, torch.stack([positions, asked])):
            _check_refusal(partial(read, model, tokens, given), wrong, limit)


def _check_refusal(ask: Callable[[], object], wrong: int, limit: int) -> None:
    try:
        ask()
    except Unsupported as refusal:
        named = str(limit) in str(refusal) or str(limit - 1) in str(refusal)
        hold(named, f"the refusal of position {wrong} does not name the limit: {refusal}")
        return
    raise Broken(f"max_length={limit}, but position {wrong} is not refused: it is clamped, wrapped or left out")


def check_order_is_seen(make: Maker, orderless: bool, bench: Bench = BENCH) -> None:
    """Bidirectional: permuting tokens permutes the logits, exactly if and only if the encoder gives no order."""
    model, tokens = bench.model(bench.fresh(make), False), some_tokens()
    order = torch.tensor([2, 0, 3, 5, 1, 4])
    difference = gap(read(model, tokens[:, order]), read(model, tokens)[:, order])
    if orderless:
        hold(difference < 1e-12, "overrides no hook, but a bidirectional model tells an order of tokens from another")
    else:
        hold(difference > 1e-5, "a bidirectional model cannot tell one order of the tokens from another")


def check_order_is_seen_by_hooks(make: Maker, causal: bool = False, bench: Bench = BENCH) -> None:
    """A bidirectional model tells one order of the tokens from another, unless the encoder overrides no hook."""
    encoder = bench.fresh(make)
    if by_content_alone(encoder, False):
        raise NotAsked("it goes by content and by place in the sequence, not by position")
    check_order_is_seen(make, not any(encoder.overrides(hook) for hook in HOOKS), bench)


def check_positions_are_read(make: Maker, causal: bool, bench: Bench = BENCH) -> None:
    """Positions twice as far apart make another model: it is the numbers that count, not the places."""
    model, tokens, positions = bench.model(bench.fresh(make), causal), some_tokens(), some_positions(LENGTH)
    before = read(model, tokens, positions)
    ignored = "positions twice as far apart give the same logits: it goes by place in the sequence"
    hold(gap(before, read(model, tokens, 2 * positions)) > 1e-5, ignored)
    each_its_own = read(model, tokens, torch.stack([positions, 2 * positions]))
    hold(gap(each_its_own[0], before[0]) < 1e-11, "a sample's positions change the logits of another sample")
    hold(gap(each_its_own[1], before[1]) > 1e-5, "positions of each sample's own are not read")


def check_positions_are_read_unless_content_decides(make: Maker, causal: bool, bench: Bench = BENCH) -> None:
    """It goes by the positions it is given, not by place in the sequence (content may decide instead of positions)."""
    encoder = bench.fresh(make)
    if not any(encoder.overrides(hook) for hook in HOOKS):
        raise NotAsked("it overrides no hook")
    if by_content_alone(encoder, causal):
        raise NotAsked("content decides how far a key is, not positions")
    check_positions_are_read(make, causal, bench)


# ------------------------------------------------------------------------------------------- what hooks depend on


def depends_on(encoder: Encoder, causal: bool) -> frozenset[str]:
    """What the outcome of rotate, score and mix changes with.

    Returns:
        Out of ``positions``; ``x``, the layer's input; ``scores``, where what score does is not linear in them;
        ``queries``, where what it adds depends on queries or keys; and ``own product``, where it puts scores of its
        own in place of those it is given.
    """
    q, k, other_q, other_k = (heads_of(encoder.geometry, 1, LENGTH) for _ in range(4))
    raw, other_raw = (torch.randn(1, encoder.geometry.num_heads, LENGTH, LENGTH, dtype=q.dtype) for _ in range(2))
    x, other_x = (torch.randn(1, LENGTH, encoder.geometry.model_dim, dtype=q.dtype) for _ in range(2))
    near, far = torch.arange(LENGTH).float(), 3 * torch.arange(LENGTH).float()

    def outcome(positions: Tensor = near, x: Tensor = x) -> list[Tensor]:
        site = site_of(positions, causal, x)
        masked = raw.masked_fill(~site.mask, -torch.inf)
        return [*encoder.rotate(q, k, site), encoder.score(raw, q, k, site), encoder.mix(masked, k, site)]

    def scored(raw: Tensor, q: Tensor = q, k: Tensor = k) -> Tensor:
        return encoder.score(raw, q, k, site_of(near, causal, x))

    def differ(some: list[Tensor], others: list[Tensor]) -> bool:
        return any(not gap(one, other) < 1e-9 for one, other in zip(some, others, strict=True))

    with torch.no_grad():
        nothing, sums = scored(0 * raw), scored(raw) + scored(other_raw)
        found = {
            "positions": differ(outcome(), outcome(positions=far)),
            "x": differ(outcome(), outcome(x=other_x)),
            "scores": differ([sums], [scored(raw + other_raw) + nothing]),
            "queries": differ([scored(raw)], [scored(raw, other_q, other_k)]),
            "own product": not differ([scored(raw)], [scored(other_raw)]),
        }
    return frozenset(what for what, does in found.items() if does)


def by_content_alone(encoder: Encoder, causal: bool) -> bool:
    """Whether hooks act, by content and by place in the sequence, without reading a single position."""
    if encoder.overrides("embed"):
        return False
    depends = depends_on(encoder, causal)
    return "positions" not in depends and (encoder.overrides("mix") or bool(depends & {"x", "scores", "queries"}))
