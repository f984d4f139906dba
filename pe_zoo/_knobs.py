"""Knobs: the keyword-only arguments of an encoder, numbering or task, read from its signature, and their checks."""

import difflib
import inspect
import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")
MOST_LISTED = 8
"""Names that an error lists; of more, the nearest to what was given."""

LARGEST, LARGEST_REAL = 2**31 - 1, float.fromhex("0x1.fffffep+127")
"""Limits of whole numbers without one of their own, and of float32: a larger number is a typing error."""


@dataclass(frozen=True)
class Knob:
    """One keyword-only argument: its type, its default (the published value), and its type with limits."""

    name: str
    type: Any
    default: Any
    limited: Any = field(default=None, compare=False, repr=False)


def knobs(component: Callable[..., Any]) -> dict[str, Knob]:
    """The keyword-only arguments of a class or function, by name, in the order written."""
    target = component.__init__ if isinstance(component, type) else component  # type: ignore[misc]
    parameters = [p for p in inspect.signature(target).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for parameter in parameters:
        if parameter.default is parameter.empty:
            raise TypeError(f"{component.__qualname__}: knob {parameter.name!r} needs a default")
        if parameter.annotation is parameter.empty:
            raise TypeError(f"{component.__qualname__}: knob {parameter.name!r} needs a type")
    # Only the knobs' own annotations are looked up: others may name types that are not imported.
    annotations = SimpleNamespace(__annotations__={p.name: p.annotation for p in parameters})
    names = getattr(target, "__globals__", {})
    hints, limited = (get_type_hints(annotations, globalns=names, include_extras=extras) for extras in (False, True))
    return {p.name: Knob(p.name, hints[p.name], p.default, limited[p.name]) for p in parameters}


def check_knobs(owner: str, known: Collection[str], given: Iterable[str]) -> None:
    """Refuse a name that is none of a component's knobs; the message names the nearest."""
    for name in given:
        if name not in known:
            raise ValueError(f"{owner} has no knob {name!r}.{hint(name, known, 'Its knobs')}")


def suggestion(given: str, known: Iterable[str]) -> str:
    """Return `` Did you mean 'rope'?`` or nothing: a name that begins so, an option of a group, or the nearest.

    Of a group's options initials and a part of the name do, too.

    >>> suggestion("ropee", ["alibi", "rope"]) + suggestion("sinus", ["swin", "sinusoidal"])
    " Did you mean 'rope'? Did you mean 'sinusoidal'?"
    >>> suggestion("train.lr", ["train.warmup", "train.learning_rate"])
    " Did you mean 'train.learning_rate'?"
    >>> suggestion("lenght", ["weights", "task.train_length"])
    " Did you mean 'task.train_length'?"
    """
    word, lower = given.lower(), {name.lower(): name for name in sorted(known)}
    group, _, own = word.rpartition(".")
    parts = {key: key.rpartition(".")[2].split("_") for key in lower if key.startswith(f"{group}." if group else "")}
    near = [name for name in lower if name.endswith(f".{word}") or (len(word) > 2 and name.startswith(word))]
    near = near or [name for name, each in parts.items() if len(own) > 1 and own == "".join(part[:1] for part in each)]
    # The shortest name, and the last of several: train_length, not min_length.
    ordered = sorted(sorted(parts, reverse=True), key=lambda name: len(parts[name]))
    near = near or [name for name in ordered if difflib.get_close_matches(own, parts[name][-1:], 1, 0.8)]
    near = near or difflib.get_close_matches(word, lower, n=1, cutoff=0.5)
    return f" Did you mean {lower[near[0]]!r}?" if near else ""


def hint(given: str, known: Collection[str], what: str = "Known") -> str:
    """Return the name that was meant, perhaps, and which there are: `suggestion` and `listing`."""
    return suggestion(given, known) + listing(what, known, given)


def listing(what: str, known: Iterable[str], given: str = "") -> str:
    """Return `` Known: alibi, rope.``; of many names the three nearest to what was given.

    >>> listing("Known", [f"rope_{letter}" for letter in "abcdefghi"], "rope_c")
    ' Nearest of 9: rope_c, rope_i, rope_h.'
    """
    names = sorted(known)
    if len(names) <= MOST_LISTED:
        return f" {what}: {', '.join(names) or 'none'}."
    near = difflib.get_close_matches(given.lower(), names, n=3, cutoff=0)
    return f" Nearest of {len(names)}: {', '.join(near)}."


def true_or_false(name: str, value: bool) -> bool:
    """Return the value if it is a bool; raise ValueError otherwise."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false; got {value!r}")
    return value


def one_of(knob: str, value: str, allowed: Iterable[str]) -> str:
    """Return the value if it is one of the allowed words; raise ValueError otherwise."""
    options = list(allowed)
    if value not in options:
        many = len(options) > MOST_LISTED
        known = f"{len(options)} names" if many else ", ".join(options)
        meant = hint(str(value), options) if many else suggestion(str(value), options)
        raise ValueError(f"{knob} must be one of {known}; got {value!r}.{meant}")
    return value


def number(
    knob: str,
    value: float,
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    below: float = math.inf,
    at_most: float = math.inf,
) -> float:
    """Return the value if it is within the limits and finite in float32; raise ValueError otherwise."""
    real = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST_REAL
    if not real or not (above < value < below and at_least <= value <= at_most):
        limits = {"above": above, "at least": at_least, "below": below, "at most": at_most}
        allowed = " and ".join(f"{word} {limit:g}" for word, limit in limits.items() if math.isfinite(limit))
        raise ValueError(f"{knob} must be a finite number {allowed}".rstrip() + f"; got {value!r}")
    return value


def whole(knob: str, value: int, *, at_least: int, at_most: int = LARGEST) -> int:
    """Return the value if it is a whole number within the limits; raise ValueError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise ValueError(f"{knob} must be a whole number of at least {at_least}; got {value!r}")
    if value > at_most:
        raise ValueError(f"{knob} must be a whole number of at most {at_most}; got {value!r}")
    return value


def some(knob: str, values: Collection[object]) -> None:
    """Raise ValueError for an empty list."""
    if not values:
        raise ValueError(f"{knob} is empty; give at least one, such as [1]")


Count = Annotated[int, partial(whole, at_least=1)]
NotNegative = Annotated[int, partial(whole, at_least=0)]
Positive = Annotated[float, partial(number, above=0)]
Share = Annotated[float, partial(number, above=0, at_most=1)]
Several = Annotated[tuple[T, ...], some]
"""Types of knobs with their limits, which `check_value` looks at."""


def check_value(knob: str, annotation: Any, value: Any) -> None:
    """Refuse a value outside the limits that its knob's type carries; None is one if the type has it."""
    if value is None and type(None) in get_args(annotation):
        return
    items = value if get_origin(annotation) is tuple else [value]
    for part in get_args(annotation)[:1] if get_origin(annotation) is Annotated else get_args(annotation):
        for item in items:
            check_value(knob, part, item)
    for check in getattr(annotation, "__metadata__", ()):
        check(knob, value)
