"""What an encoder does to scores before it has learned anything, in words: no promise can know what was meant."""

import math

import torch
from torch import Tensor

from pe_zoo import _catalogue
from pe_zoo._contract.bench import Maker, same_state, site_of
from pe_zoo._encoder import HOOKS, Encoder, Geometry, Unsupported, raw_scores
from pe_zoo._registry import get, names

BACK = (1, 4, 16, 64)
"""Distances that are told."""
SIZES = Geometry(model_dim=128, num_heads=4, num_layers=1, train_length=128)
CONTENTS = 64
KIN = 12
"""Most encoders that are named as alike in kind."""
LEAST = 5e-4
"""Smallest change that prints as a number."""


def effect(make: Maker) -> str:
    """Say how the score of an equal token changes with its distance; blank where that cannot be asked.

    Every token has the same content, so that only positions make a difference; means over `CONTENTS` random contents
    of unit variance.
    """
    change = _changes(make)
    if change is None or change.abs().max() < LEAST:
        return ""
    steps = torch.cat([change[:, :1], change.diff()], -1)
    moves = (steps.abs() >= LEAST).any(-1)
    ways = {how: int((moves & (sign * steps > -LEAST).all(-1)).sum()) for how, sign in (("falls", -1), ("rises", 1))}
    most, flat = int(change.abs().max(-1).values.argmax()), int((~moves).sum())
    told = [f"{how} with distance in {heads} of {SIZES.num_heads} heads" for how, heads in ways.items() if heads]
    told += [f"stays the same in {flat}"] * bool(told and flat)
    numbers = [f"{value:+.3g}".replace("-", "−") for value in change[most].tolist()]
    return (
        f"Untrained, the score of an equal token {' and '.join(told) or 'neither falls nor rises steadily'}; in the "
        f"head that changes most by {', '.join(numbers)} at distances {', '.join(map(str, BACK))}."
        + " What is further away counts for more: was that sign meant?"
        * (ways["rises"] == SIZES.num_heads)
    )


def _shapes(make: Maker) -> Tensor | None:
    """Return `_changes` over the largest of each head, so that no scale counts; heads in order of what they do."""
    change = _changes(make)
    return None if change is None else (change / change.abs().amax(-1, keepdim=True).clamp(min=LEAST)).sort(0).values


def _changes(make: Maker) -> Tensor | None:
    """Return how the score of an equal token differs from that at distance 0, ``(heads, BACK)``; None: not asked."""
    positions, draw = torch.arange(max(BACK) + 1).double(), torch.Generator().manual_seed(0)
    try:
        with same_state():
            encoder = make(SIZES).double()
        content = torch.randn(CONTENTS, 1, SIZES.model_dim, generator=draw, dtype=torch.float64)
        x = encoder.embed(content.expand(-1, len(positions), -1), encoder.taken(positions))
        q = x.unflatten(-1, (SIZES.num_heads, -1)).transpose(1, 2)
        site = site_of(encoder.taken(positions), True, x, slice(max(BACK), None))
        with torch.no_grad():
            last = raw_scores(encoder, q[:, :, max(BACK) :], q, site)[:, :, 0].mean(0)
    except (Unsupported, ValueError):  # another mask, two axes, a shorter table
        return None
    change = torch.stack([last[:, -1 - back] - last[:, -1] for back in BACK], -1)
    return change if change.isfinite().all() else None


def kin(make: Maker) -> str:
    """Name the encoders that act where this one does, with the same claims, and their equations.

    First those whose untrained scores change with distance most as its own do, whatever their scale. Blank if there are
    none, or many.
    """
    try:
        with same_state():
            encoder = make(SIZES)
    except (Unsupported, ValueError):  # other sizes
        return ""

    def kind(of: Encoder | type[Encoder]) -> tuple[bool, ...]:  # a claim may be set where a knob decides
        return *map(of.overrides, HOOKS), of.static_bias, of.distance_bias

    alike = [name for name in names() if get(name) is not type(encoder) and kind(get(name)) == kind(encoder)]
    if not 0 < len(alike) <= KIN:
        return ""
    own = _shapes(make)

    def apart(name: str) -> float:
        other = _shapes(get(name))
        return math.inf if own is None or other is None else float((own - other).abs().mean())

    alike.sort(key=apart)
    ours = {entry.name: entry.equation for entry in _catalogue.encoders()}
    told = (
        f"{len(alike)} encodings act in the same place. Is it one of them, with other starting values or written "
        "otherwise? Compare the equations, first of those whose untrained scores fall or rise most alike; a referee "
        "will ask for these:"
    )
    return "\n".join([told, *(f"  {name}: {' '.join(ours.get(name, '').split())}" for name in alike)])
