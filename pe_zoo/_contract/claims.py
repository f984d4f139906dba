"""Claims, checked both ways: an encoder that makes one has it, an encoder that does not lacks it."""

import copy
import math
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches

import torch
from torch import Tensor

from pe_zoo._contract.bench import (
    BIDIRECTIONAL,
    LENGTH,
    VOCAB,
    Bench,
    Broken,
    Maker,
    Missing,
    NotApplicable,
    gap,
    heads_of,
    hold,
    promise,
    read,
    site_of,
    some_inputs,
    some_positions,
    some_tokens,
)
from pe_zoo._encoder import HOOKS, Encoder, Unsupported, scores

WHERE_TRUE = "leave the claim out, or, where a knob decides, set it in `__init__` (`self.static_bias = not gate`)"
NEAR = 0.85
"""Likeness, of at most 1, from which on a name counts as one that is misspelt."""


@promise("No attribute of the class is nearly the name of a claim: one that is misspelt claims nothing.")
def check_spelling(make: Maker, causal: bool, bench: Bench) -> None:
    known = [name for name in vars(Encoder) if not name.startswith("_")]
    for name in vars(type(bench.fresh(make))):
        if name not in known and not name.startswith("_") and (near := get_close_matches(name, known, 1, NEAR)):
            raise Broken(f"`{name}` means nothing: did you mean `{near[0]}`?")


@promise("Adding a constant to all positions changes nothing if, and only if, shift_invariant is claimed.")
def check_shift_claim(make: Maker, causal: bool, bench: Bench) -> None:
    encoder, shifts = bench.fresh(make), (1.0, 17.0, 800.0)
    near, *far = _near_and_far(encoder, bench)
    changed = _shift_changes(encoder, causal, bench, near, *shifts)
    if encoder.shift_invariant:
        hold(changed < 1e-9, f"claims shift_invariant, but a shift of all positions changes results by {changed:.1g}")
        # Distances of shifted sixths are off by up to 2⁻¹³ in float32.
        changed = _shift_changes(encoder, causal, bench, torch.arange(4 * LENGTH) / 6, 1024.0)
        reason = "distances of fractional positions are not robust to float32 rounding: (distance + 2**-8).floor()"
        hold(changed < 0.03, f"claims shift_invariant, but a shift of sixths changes results: {reason}")
        return
    changed = max([changed, *(_shift_changes(encoder, causal, bench, apart, *shifts) for apart in far)])
    if not encoder.causal_only:  # it is enough that a shift shows under one mask
        with suppress(Unsupported):
            changed = max(changed, _shift_changes(encoder, not causal, bench, some_positions(LENGTH), *shifts))
    unclaimed = "does not claim shift_invariant, but no shift of all positions changes results"
    hold(changed > 1e-5, f"{unclaimed}: set `shift_invariant = True`")


def _near_and_far(encoder: Encoder, bench: Bench) -> list[Tensor]:
    """Positions close together and, where the encoder has them, far apart: some change beyond a distance alone."""
    far = 0.5 * bench.geometry.train_length * torch.arange(LENGTH)
    return [some_positions(LENGTH), *([far] if far.max() < (encoder.max_length or math.inf) else [])]


def _shift_changes(encoder: Encoder, causal: bool, bench: Bench, positions: Tensor, *shifts: float) -> float:
    tokens = torch.randint(VOCAB, (2, len(positions)))
    q, k, x = some_inputs(encoder.geometry, len(positions))
    model, largest = bench.model(encoder, causal), 0.0
    for shifted in (positions + shift for shift in shifts):
        if shifted.max() < (encoder.max_length or math.inf):
            here, there = (scores(encoder, q, k, p, x=x, causal=causal) for p in (positions, shifted))
            logits = gap(read(model, tokens, positions), read(model, tokens, shifted))
            largest = max(largest, gap(here, there), logits)
    return largest


@promise(
    "A bidirectional model distinguishes a sequence from its reversal if, and only if, direction_aware is claimed.",
    BIDIRECTIONAL,
)
def check_direction_claim(make: Maker, causal: bool, bench: Bench) -> None:
    encoder, tokens = bench.fresh(make), some_tokens()
    model = bench.model(encoder, False)
    difference = 0.0
    for step in (1.0, 5.0, 0.5 * bench.geometry.train_length):  # even steps: as far apart backwards as forwards
        positions = step * torch.arange(LENGTH)
        if positions.max() < (encoder.max_length or math.inf):
            forwards, backwards = read(model, tokens, positions), read(model, tokens.flip(-1), positions)
            difference = max(difference, gap(backwards, forwards.flip(-2)))
    if encoder.direction_aware:
        hold(difference > 1e-5, "claims direction_aware, but gives a sequence and its reversal the same logits")
    else:
        unclaimed = "does not claim direction_aware, but distinguishes a sequence from its reversal"
        hold(difference < 1e-9, f"{unclaimed}: set `direction_aware = True`, or take `site.distance.abs()`")


@promise("causal_only and direction_aware are not claimed together.")
def check_causal_only_claim(make: Maker, causal: bool, bench: Bench) -> None:
    encoder = make(bench.geometry)
    both = encoder.causal_only and encoder.direction_aware
    hold(not both, "claims both causal_only and direction_aware; only a bidirectional model could show the latter")


@promise("Score adds the same term for all scores, queries and keys if, and only if, static_bias is claimed.")
def check_static_bias_claim(make: Maker, causal: bool, bench: Bench) -> None:
    encoder = bench.fresh(make)
    if not encoder.overrides("score"):
        hold(not encoder.static_bias, "claims static_bias, but has no score hook to add a bias")
        return
    same = _adds_the_same(encoder, causal, bench)
    if encoder.static_bias:
        wrong = "claims static_bias, but what score adds depends on the scores, queries or keys"
        hold(same, f"{wrong}: {WHERE_TRUE}")
    elif same:
        raise Missing(
            "could claim static_bias: what score adds depends on no score, query or key; attention would fuse"
        )


def _adds_the_same(encoder: Encoder, causal: bool, bench: Bench) -> bool:
    """Whether what ``score`` adds depends on no score, query or key."""
    same = encoder.overrides("score")
    for positions in _near_and_far(encoder, bench) if same else ():
        site = site_of(positions, causal, some_inputs(encoder.geometry)[-1])
        added = []
        for scale in (1.0, 3.0):
            q, k, _ = some_inputs(encoder.geometry)
            raw = scale * torch.randn(2, encoder.geometry.num_heads, LENGTH, LENGTH, dtype=torch.float64)
            added.append(encoder.score(raw, scale * q, scale * k, site) - raw)
        same &= gap(added[0], added[1]) < 1e-9
    return same


@promise("Score adds the same term at equal distances if, and only if, distance_bias is claimed.")
def check_distance_bias_claim(make: Maker, causal: bool, bench: Bench) -> None:
    encoder = bench.fresh(make)
    hold(encoder.static_bias or not encoder.distance_bias, "claims distance_bias, but not static_bias")
    if not encoder.static_bias and not _adds_the_same(encoder, causal, bench):
        return
    changed = 0.0
    for step in (1.0, float(bench.geometry.train_length)):  # some biases change beyond the training length
        if step * LENGTH > (encoder.max_length or math.inf):
            continue
        q, k, x = some_inputs(encoder.geometry, batch=1)
        nothing = torch.zeros(1, encoder.geometry.num_heads, LENGTH, LENGTH, dtype=q.dtype)
        added = encoder.score(nothing, q, k, site_of(step * torch.arange(LENGTH), causal, x))
        changed = max(changed, gap(added[..., 1:, 1:].tril(), added[..., :-1, :-1].tril()))
    if encoder.distance_bias:
        hold(changed < 1e-9, f"claims distance_bias, but what score adds differs at the same distance: {WHERE_TRUE}")
    elif not changed > 1e-5:
        beside = ", with static_bias" * (not encoder.static_bias)
        raise Missing(
            f"could claim distance_bias{beside}: what score adds depends on distance alone; long texts would be faster"
        )


@promise("Rotate gives a block of queries the same as all queries together, unless blockwise_rotation is claimed.")
def check_blockwise_rotation_claim(make: Maker, causal: bool, bench: Bench) -> None:
    encoder = bench.fresh(make)
    if not encoder.overrides("rotate"):
        hold(not encoder.blockwise_rotation, "claims blockwise_rotation, but has no rotate hook")
        return
    positions, everywhere = some_positions(LENGTH), torch.ones(1, 1, dtype=torch.bool)
    q, k, x = some_inputs(encoder.geometry)
    rotated_q, rotated_k = encoder.rotate(q, k, replace(site_of(positions, causal, x), mask=everywhere))
    changed = 0.0
    for rows in (slice(0, 2), slice(2, LENGTH), slice(LENGTH - 1, LENGTH)):
        some_q, some_k = encoder.rotate(q[:, :, rows], k, site_of(positions, causal, x, rows))
        changed = max(changed, gap(some_q, rotated_q[:, :, rows]), gap(some_k, rotated_k))
    if encoder.blockwise_rotation:
        hold(changed > 1e-5, "claims blockwise_rotation, but rotate gives a block of queries the same as all of them")
    else:
        unclaimed = "does not claim blockwise_rotation, but rotate depends on the block of queries"
        hold(changed < 1e-11, f"{unclaimed}: set `blockwise_rotation = True`, or read only `site.rows` of the keys")


@promise("Positions up to max_length − 1 work and all others raise Unsupported; without a max_length all work.")
def check_length_claim(make: Maker, causal: bool, bench: Bench) -> None:
    encoder = bench.fresh(make)
    model, tokens, limit = bench.model(encoder, causal), some_tokens(), encoder.max_length
    if limit is None:
        finite = read(model, torch.randint(VOCAB, (1, 8 * LENGTH))).isfinite().all()
        hold(finite, f"no max_length, but logits at length {8 * LENGTH} are not finite")
        for last in (10**3, 10**6):
            finite = read(model, tokens, last - torch.arange(LENGTH).flip(0).float()).isfinite().all()
            hold(finite, f"no max_length, but logits at position {last} are not finite")
        return
    trained = bench.geometry.train_length
    hold(limit >= trained, f"max_length={limit} is below train_length={trained}")
    positions = torch.arange(LENGTH).float()
    allowed = positions.clone()
    allowed[-1] = limit - 1
    hold(read(model, tokens, allowed).isfinite().all(), f"max_length={limit}, but position {limit - 1} does not work")
    if limit > LENGTH:
        moved = gap(read(model, tokens, allowed), read(model, tokens, positions)) > 1e-5
        hold(moved, f"position {limit - 1} has the same effect as position {LENGTH - 1}")
    for wrong in (limit, limit + 1, 10**6, -1):
        refused = positions.clone()
        refused[0 if wrong < 0 else -1] = wrong
        for given in (refused, torch.stack([positions, refused])):
            try:
                read(model, tokens, given)
            except Unsupported as refusal:
                named = str(limit) in str(refusal) or str(limit - 1) in str(refusal)
                hold(named, f"the message for position {wrong} does not name the limit: {refusal}")
            else:
                ignored = f"max_length={limit}, but position {wrong} is clamped, wrapped or ignored"
                raise Broken(f"{ignored}: raise `pe_zoo.Unsupported`")


@promise("Positions have as many axes as the encoder claims, and all are read; others raise Unsupported.")
def check_axes_claim(make: Maker, causal: bool, bench: Bench) -> None:
    encoder, tokens = bench.fresh(make), some_tokens()
    model, axes = bench.model(encoder, causal), encoder.axes

    def places(axes: int) -> Tensor:
        return torch.stack([some_positions(LENGTH)[torch.randperm(LENGTH)] for _ in range(axes)], -1)

    for wrong in {1, 2, axes + 1} - {axes}:
        positions = some_positions(LENGTH) if wrong == 1 else places(wrong).unsqueeze(0)
        with suppress(Unsupported):
            read(model, tokens, positions)
            raise Broken(f"axes={axes}, but positions of {wrong} are taken: begin each hook with `self.coordinates`")
    if axes == 1:
        return
    positions = places(axes)
    before, step = read(model, tokens, positions), 3.0
    for axis, along in enumerate(step * torch.eye(axes)):
        moved = torch.cat([positions[:1] + along, positions[1:]])
        hold(gap(before, read(model, tokens, moved)) > 1e-5, f"axes={axes}, but axis {axis} changes nothing")
        shifted = gap(before, read(model, tokens, positions + along))
        same = not encoder.shift_invariant or shifted < 1e-9
        hold(same, f"claims shift_invariant, but a shift along axis {axis} changes results by {shifted:.1g}")


def check_order_is_seen(make: Maker, orderless: bool, bench: Bench) -> None:
    model, tokens = bench.model(bench.fresh(make), False), some_tokens()
    order = torch.tensor([2, 0, 3, 5, 1, 4])
    difference = gap(read(model, tokens[:, order]), read(model, tokens)[:, order])
    if orderless:
        hold(difference < 1e-12, "overrides no hook, but a bidirectional model distinguishes orders of the tokens")
    else:
        hold(difference > 1e-5, "a bidirectional model does not distinguish orders of the tokens")


@promise(
    "A bidirectional model distinguishes orders of the tokens, unless the encoder overrides no hook.", BIDIRECTIONAL
)
def check_order_is_seen_by_hooks(make: Maker, causal: bool, bench: Bench) -> None:
    encoder = bench.fresh(make)
    if by_content_alone(encoder, False):
        raise NotApplicable("it depends on content and the order of the sequence, not on positions")
    check_order_is_seen(make, not any(encoder.overrides(hook) for hook in HOOKS), bench)


def check_positions_are_read(make: Maker, causal: bool, bench: Bench) -> None:
    # Neighbours among them: some encoders read small distances alone.
    model, tokens, positions = bench.model(bench.fresh(make), causal), some_tokens(), torch.arange(1.0, LENGTH + 1)
    before = read(model, tokens, positions)
    ignored = "positions twice as far apart give the same logits: take distances from `site.distance`, not from indices"
    if gap(before, read(model, tokens, 2 * positions)) <= 1e-5:
        without = copy.deepcopy(model)
        without.encoder = Encoder(bench.geometry)
        idle = gap(before, read(without, tokens)) < 1e-9
        sign = "a distance is query − key, so that it is positive for earlier keys"
        raise Broken(f"the model computes what it does without an encoder: {sign}" if idle else ignored)
    each_its_own = read(model, tokens, torch.stack([positions, 2 * positions]))
    hold(gap(each_its_own[0], before[0]) < 1e-11, "a sample's positions change the logits of another sample")
    hold(gap(each_its_own[1], before[1]) > 1e-5, "per-sample positions are not read")


@promise("Results depend on the given positions, not on the order of the sequence (unless content decides instead).")
def check_positions_are_read_unless_content_decides(make: Maker, causal: bool, bench: Bench) -> None:
    encoder = bench.fresh(make)
    if not any(encoder.overrides(hook) for hook in HOOKS):
        raise NotApplicable("it overrides no hook")
    if by_content_alone(encoder, causal):
        raise NotApplicable("no score depends on positions: content decides how far away a key is, or indices do")
    check_positions_are_read(make, causal, bench)


# ------------------------------------------------------------------------------------------- what hooks depend on


def depends_on(encoder: Encoder, causal: bool) -> frozenset[str]:
    """What the outcome of rotate, score and mix depends on.

    Returns:
        A subset of ``positions``; ``x``, the layer's input; ``scores``, if score is not linear in them; ``queries``, if
        what it adds depends on queries or keys; ``own product``, if it replaces given scores by its own.
    """
    q, k, other_q, other_k = (heads_of(encoder.geometry, 1, LENGTH) for _ in range(4))
    raw, other_raw = (torch.randn(1, encoder.geometry.num_heads, LENGTH, LENGTH, dtype=q.dtype) for _ in range(2))
    x, other_x = (torch.randn(1, LENGTH, encoder.geometry.model_dim, dtype=q.dtype) for _ in range(2))
    near, far = torch.arange(LENGTH).float(), 3 * torch.arange(LENGTH).float()
    beyond = far if encoder.max_length is not None else encoder.geometry.train_length * near
    seen = site_of(near, causal).mask

    def outcome(positions: Tensor = near, x: Tensor = x) -> list[Tensor]:
        site = site_of(positions, causal, x)
        masked = raw.masked_fill(~site.mask, -torch.inf)
        return [*encoder.rotate(q, k, site), encoder.score(raw, q, k, site), encoder.mix(masked, k, site)]

    def scored(raw: Tensor, q: Tensor = q, k: Tensor = k, positions: Tensor = near) -> Tensor:
        return encoder.score(raw, q, k, site_of(positions, causal, x))

    def differ(some: list[Tensor], others: list[Tensor]) -> bool:
        return any(not gap(one, other) < 1e-9 for one, other in zip(some, others, strict=True))

    with torch.no_grad():
        nothing, sums = scored(0 * raw), scored(raw) + scored(other_raw)
        moved = scored(raw, positions=beyond) - scored(other_raw, positions=beyond)
        dependence = {
            "positions": differ(outcome(), outcome(positions=far)),
            "x": differ(outcome(), outcome(x=other_x)),
            "scores": differ([sums], [scored(raw + other_raw) + nothing]),
            "queries": differ([scored(raw)], [scored(raw, other_q, other_k)]),
            "own product": bool((moved[..., seen] == 0).any()),
        }
    return frozenset(what for what, depends in dependence.items() if depends)


def by_content_alone(encoder: Encoder, causal: bool) -> bool:
    """Whether hooks act on content and the order of the sequence without reading any position."""
    if encoder.overrides("embed"):
        return False
    depends = depends_on(encoder, causal)
    return "positions" not in depends and (encoder.overrides("mix") or bool(depends & {"x", "scores", "queries"}))
