"""What an encoder says of others: its relative, the encoder that it extends, and whether it is a control."""

from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from pe_zoo._contract.bench import LENGTH, Bench, Maker, Missing, NotApplicable, gap, hold, promise, read, some_tokens
from pe_zoo._contract.line import Line
from pe_zoo._encoder import Encoder, Geometry, Unsupported, scores
from pe_zoo._knobs import knobs
from pe_zoo._registry import build, get, names

FACTOR = "factor"
"""Knob of encoders that extend the context: length wanted over training length; 1 changes nothing."""
NEAR, SAME = 0.1, 1e-6
"""Largest distances of nearly equal and of equal scores."""
SIZES = Geometry(model_dim=64, num_heads=4, num_layers=1, train_length=32)
"""Sizes of the trials: at those of other promises, slow frequencies hardly rotate."""


def score_distance(
    encoder: Encoder, other: Encoder, positions: Tensor | None = None, *, causal: bool = True, contents: int = 4
) -> float:
    """Return ‖S − S'‖ / ‖S'‖, S the scores of random contents of unit variance in the first layer.

    Args:
        encoder: without parameters; so is the other, of the same geometry.
        other: whose scores are S'.
        positions: ``(length,)``; None: 0, 1, 2, … as many as the training length.
        causal: whether scores of keys ahead count.
        contents: how many draws of queries, keys and the layer's input.

    Raises:
        Unsupported: one of them learns, or replaces the softmax: equal scores would not mean equal models.
    """
    for each in (encoder, other):
        if each.state_dict() or each.overrides("mix"):
            raise Unsupported(f"{each.name} has parameters or changes more than scores; its scores are not comparable")
    geometry, draw = encoder.geometry, torch.Generator().manual_seed(0)
    if positions is None:
        positions = torch.arange(geometry.train_length)
    positions = positions.double()
    length = len(positions)
    inputs = torch.randn(3, contents, length, geometry.model_dim, generator=draw, dtype=torch.float64)
    counted, found = torch.ones(length, length).tril(0 if causal else length).bool(), []
    for each in (encoder, other):
        *qk, x = (each.embed(content, positions) for content in inputs)
        q, k = (content.unflatten(-1, (geometry.num_heads, -1)).transpose(1, 2) for content in qk)
        found.append(scores(each, q, k, positions, 0, x, causal=causal)[..., counted])
    return float((found[0] - found[1]).norm() / found[1].norm())


def shared_knobs(encoder: Encoder, name: str) -> dict[str, Any]:
    """Return the knobs that another encoder has too, with this one's values; ``factor`` is nobody else's."""
    known = [knob for knob in knobs(type(encoder)) if knob in knobs(get(name)) and knob != FACTOR]
    return {knob: getattr(encoder, knob) for knob in known if hasattr(encoder, knob)}


@promise("As built, scores are nearly those of another encoder if, and only if, relative_of or extends names it.")
def check_relative(make: Maker, causal: bool, bench: Bench) -> None:
    encoder = _plain(make)
    kin, declared = _distances(encoder, causal), encoder.relative_of
    if declared is not None:
        hold(declared in kin, f"relative_of={declared!r}, but there is no such encoder without parameters")
        away = kin[declared]
        hold(away < NEAR, f"relative_of={declared!r}, but scores differ by {away:.0%}, more than {NEAR:.0%}")
        return
    for other, away in kin.items():
        if away < NEAR and _root(type(encoder)) != _root(get(other)):
            raise Missing(f"could set relative_of = {other!r}: scores differ by {away:.1%} from it")


@promise(
    "At factor=1, or between neighbours where it has no factor, it equals another encoder, with the knobs that they "
    "share, if, and only if, extends names that."
)
def check_extends(make: Maker, causal: bool, bench: Bench) -> None:
    cls = type(_plain(make))
    hold(cls.extends is not None or not cls.fine_tuned, "claims fine_tuned, but extends names no encoder")
    if cls.extends is not None and FACTOR not in knobs(cls):
        encoder = _plain(make)
        extended = build(cls.extends, SIZES, **shared_knobs(encoder, cls.extends))
        apart = score_distance(encoder, extended, torch.arange(2), causal=causal)
        hold(apart < SAME, f"extends={cls.extends!r}, but differs from it between neighbours by {apart:.0%}")
        return
    kin = _distances(_plain(make, **{FACTOR: 1.0}), causal, shared=True) if FACTOR in knobs(cls) else {}
    if cls.extends is not None:
        same = kin.get(cls.extends, NEAR) < SAME
        hold(same, f"extends={cls.extends!r}, but is not that encoder at factor=1")
        return
    for other, away in kin.items():
        if away < SAME and _root(get(other)) == other:
            raise Missing(f"could set extends = {other!r}: at factor=1 it is that encoder")


@promise("An encoder that claims control reads no positions.")
def check_control(make: Maker, causal: bool, bench: Bench) -> None:
    encoder, tokens = bench.fresh(make), some_tokens()
    model, near = bench.model(encoder, causal), torch.arange(LENGTH).float()
    changed = gap(read(model, tokens, near), read(model, tokens, near**2))
    hold(not encoder.control or changed < 1e-9, "claims control, but reads the positions that it is given")


def _plain(make: Maker, **turned: float) -> Encoder:
    try:
        if isinstance(made := make(SIZES), Line):
            raise NotApplicable("encoders of sequences are compared, and this one takes places of two axes")
        return type(made)(SIZES, **turned)
    except ValueError as refusal:
        raise NotApplicable(f"it refuses the sizes of the trial: {refusal}") from refusal


def _distances(encoder: Encoder, causal: bool, *, shared: bool = False) -> dict[str, float]:
    found = {}
    for name in names():
        with suppress(Unsupported, ValueError):
            if get(name) is not type(encoder):
                found[name] = score_distance(
                    encoder, build(name, SIZES, **(shared_knobs(encoder, name) if shared else {})), causal=causal
                )
    return found


def _root(cls: type[Encoder]) -> str:
    return cls.relative_of or cls.extends or cls.name
