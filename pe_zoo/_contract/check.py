"""Check every promise of an encoder, one by one: ``python -m pe_zoo check my_encoder.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch

from pe_zoo._contract import claims, dtypes, hooks
from pe_zoo._contract.bench import BOTH, ONE, Bench, Broken, Maker, NotApplicable, Promise, some_tokens
from pe_zoo._encoder import Encoder, Geometry, Unsupported

HOLDS, FAILS, NOT_APPLICABLE = "holds", "FAILS", "n/a"

T = TypeVar("T")


PROMISES = [of for module in (dtypes, hooks, claims) for of in vars(module).values() if isinstance(of, Promise)]

SIZES = [
    ONE,
    *(
        Geometry(model_dim=heads * head_dim, num_heads=heads, num_layers=2, train_length=ONE.train_length)
        for heads, head_dim in ((4, 8), (4, 16), (2, 32), (8, 8), (1, 16), (4, 64))
    ),
]
"""Tried in this order until a constructor accepts one."""


@dataclass(frozen=True)
class Verdict:
    """The outcome of one promise."""

    sentence: str
    outcome: str
    reason: str = ""


def check(make: Maker) -> Iterator[Verdict]:
    """Check every promise of an encoder, each from the same random state; the global one is restored.

    Args:
        make: builds the encoder for a geometry: its class, or ``lambda geometry: MyEncoder(geometry, knob=3)``.
    """
    built = "It can be built from a geometry alone, every knob at its default."
    try:
        bench = Bench(geometry=_size(make))
    except Exception as error:  # noqa: BLE001  an outside encoder may raise anything; it becomes a verdict
        yield Verdict(built, FAILS, one_line(error))
        return
    yield Verdict(built, HOLDS)
    masks, refused = _masks(make, bench)
    works = "It works in a causal model, a bidirectional one, or both; it raises Unsupported in the other."
    yield Verdict(works, HOLDS if masks else FAILS, "" if masks == BOTH else "; ".join(refused.values()))
    for promise in PROMISES if masks else []:
        asked = [mask for mask in promise.masks if mask in masks]
        if asked:
            yield _judge(promise, make, asked, bench)
        else:
            yield Verdict(promise.sentence, NOT_APPLICABLE, refused[promise.masks[0]])


def one_line(error: BaseException) -> str:
    """Format an error in one line."""
    text = " ".join(str(error).split())
    return text if isinstance(error, Broken) else f"{type(error).__name__}: {text}".rstrip(": ")


def _judge(promise: Promise, make: Maker, masks: list[bool], bench: Bench) -> Verdict:
    reasons: list[str] = []
    outcome = HOLDS
    for causal in masks:
        try:
            _from_the_same_state(partial(promise.check, make, causal, bench))
        except NotApplicable as reason:
            reasons.append(str(reason))
            outcome = NOT_APPLICABLE if outcome == HOLDS else outcome
        except Exception as error:  # noqa: BLE001  as above
            where = "" if len(promise.masks) == 1 else f"{'causal' if causal else 'bidirectional'}: "
            reasons.append(where + one_line(error))
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
        raise TypeError(f"{type(encoder).__name__} does not extend pe_zoo.Encoder")


def _masks(make: Maker, bench: Bench) -> tuple[tuple[bool, ...], dict[bool, str]]:
    """The masks under which an encoder works, and the reason under each other."""
    encoder = _from_the_same_state(partial(make, bench.geometry))
    refused: dict[bool, str] = {}
    for causal in BOTH:
        if encoder.causal_only and not causal:
            refused[causal] = "claims causal_only: no bidirectional model"
            continue
        try:
            _from_the_same_state(partial(_forward, make, causal, bench))
        except Unsupported as reason:
            refused[causal] = one_line(reason)
        except Exception:  # noqa: BLE001  the promises say what is wrong
            continue
    return tuple(causal for causal in BOTH if causal not in refused), refused


def _forward(make: Maker, causal: bool, bench: Bench) -> None:
    bench.model(bench.fresh(make), causal)(some_tokens())
