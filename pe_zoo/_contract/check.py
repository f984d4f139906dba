"""The contract as a tool: every promise of an encoder, tried one by one. ``python -m pe_zoo check my_encoder.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch

from pe_zoo._contract import claims, dtypes, hooks
from pe_zoo._contract.bench import ONE, Bench, Broken, Maker, NotAsked, some_tokens
from pe_zoo._encoder import Encoder, Geometry, Unsupported

HOLDS, FAILS, NOT_ASKED = "holds", "FAILS", "not asked"
BOTH = (True, False)
CAUSAL, BIDIRECTIONAL = (True,), (False,)

T = TypeVar("T")


@dataclass(frozen=True)
class Promise:
    """One promise, and the masks (causal or not) under which it means something."""

    check: Callable[[Maker, bool, Bench], None]
    masks: tuple[bool, ...] = BOTH

    @property
    def sentence(self) -> str:
        """What is promised, in plain words."""
        return (self.check.__doc__ or "").strip().splitlines()[0]


PROMISES = [
    Promise(dtypes.check_shapes_at_every_geometry),
    Promise(dtypes.check_dtype_of_what_is_given),
    Promise(dtypes.check_moving_to_a_dtype),
    Promise(dtypes.check_half_precision),
    Promise(hooks.check_embed_adds_position_and_nothing_else),
    Promise(hooks.check_pure),
    Promise(hooks.check_history_does_not_matter),
    Promise(hooks.check_state),
    Promise(hooks.check_no_leak_from_the_future, CAUSAL),
    Promise(hooks.check_prefix_does_not_change, CAUSAL),
    Promise(hooks.check_batch_does_not_matter),
    Promise(hooks.check_blocks),
    Promise(hooks.check_vmap),
    Promise(hooks.check_gradients),
    Promise(claims.check_positions_are_read_unless_content_decides),
    Promise(claims.check_order_is_seen_by_hooks, BIDIRECTIONAL),
    Promise(claims.check_shift_claim),
    Promise(claims.check_direction_claim, BIDIRECTIONAL),
    Promise(claims.check_causal_only_claim),
    Promise(claims.check_static_bias_claim),
    Promise(claims.check_distance_bias_claim),
    Promise(claims.check_blockwise_rotation_claim),
    Promise(claims.check_length_claim),
]

SIZES = [
    ONE,
    *(
        Geometry(model_dim=heads * head_dim, num_heads=heads, num_layers=2, train_length=ONE.train_length)
        for heads, head_dim in ((4, 8), (4, 16), (2, 32), (8, 8), (1, 16), (4, 64))
    ),
]
"""Tried in this order, until a constructor takes one."""


@dataclass(frozen=True)
class Verdict:
    """What became of one promise."""

    sentence: str
    outcome: str
    reason: str = ""


def check(make: Maker) -> Iterator[Verdict]:
    """Try every promise on an encoder, each from the same random state, the global one left as it was.

    Args:
        make: builds the encoder for a geometry: its class, or ``lambda geometry: MyEncoder(geometry, knob=3)``.
    """
    built = "It is built from a geometry alone, every knob at its default."
    try:
        bench = Bench(geometry=_size(make))
    except Exception as error:  # noqa: BLE001  an outside encoder may raise anything; it is said, not raised
        yield Verdict(built, FAILS, said(error))
        return
    yield Verdict(built, HOLDS)
    masks, refused = _masks(make, bench)
    answers = "It answers a causal model, a bidirectional one, or both; it says Unsupported to the other."
    yield Verdict(answers, HOLDS if masks else FAILS, "" if masks == BOTH else "; ".join(refused.values()))
    for promise in PROMISES if masks else []:
        asked = [mask for mask in promise.masks if mask in masks]
        if asked:
            yield _judge(promise, make, asked, bench)
        else:
            yield Verdict(promise.sentence, NOT_ASKED, refused[promise.masks[0]])


def said(error: BaseException) -> str:
    """An error in one line."""
    text = " ".join(str(error).split())
    return text if isinstance(error, Broken) else f"{type(error).__name__}: {text}".rstrip(": ")


def _judge(promise: Promise, make: Maker, masks: list[bool], bench: Bench) -> Verdict:
    reasons: list[str] = []
    outcome = HOLDS
    for causal in masks:
        try:
            _from_the_same_state(partial(promise.check, make, causal, bench))
        except NotAsked as reason:
            reasons.append(str(reason))
            outcome = NOT_ASKED if outcome == HOLDS else outcome
        except Exception as error:  # noqa: BLE001  as above
            where = "" if len(promise.masks) == 1 else f"{'causal' if causal else 'bidirectional'}: "
            reasons.append(where + said(error))
            outcome = FAILS
    return Verdict(promise.sentence, outcome, "; ".join(dict.fromkeys(reasons)))


def _from_the_same_state(ask: Callable[[], T]) -> T:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # noqa: TID251  encoders draw their initial parameters from the global state
        return ask()


def _size(make: Maker) -> Geometry:
    refusal: Exception | None = None
    for geometry in SIZES:
        try:
            _from_the_same_state(partial(_built, make, geometry))
        except ValueError as error:
            refusal = refusal or error
        else:
            return geometry
    assert refusal is not None
    raise refusal


def _built(make: Maker, geometry: Geometry) -> None:
    encoder = make(geometry)
    if not isinstance(encoder, Encoder):
        raise TypeError(f"{type(encoder).__name__} is no pe_zoo.Encoder")


def _masks(make: Maker, bench: Bench) -> tuple[tuple[bool, ...], dict[bool, str]]:
    """The masks under which an encoder answers, and why not under the others."""
    encoder = _from_the_same_state(partial(make, bench.geometry))
    refused: dict[bool, str] = {}
    for causal in BOTH:
        if encoder.causal_only and not causal:
            refused[causal] = "claims causal_only: no bidirectional model"
            continue
        try:
            _from_the_same_state(partial(_answered, make, causal, bench))
        except Unsupported as reason:
            refused[causal] = said(reason)
        except Exception:  # noqa: BLE001  the promises say what is wrong
            continue
    return tuple(causal for causal in BOTH if causal not in refused), refused


def _answered(make: Maker, causal: bool, bench: Bench) -> None:
    bench.model(bench.fresh(make), causal)(some_tokens())
