"""Check every promise of an encoder, one by one: ``python -m pe_zoo check my_encoder.py``."""

import hashlib
import os
import textwrap
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pe_zoo._contract import claims, dtypes, hooks, relatives
from pe_zoo._contract.bench import (
    ADVICE,
    BOTH,
    FAILS,
    HOLDS,
    NOT_APPLICABLE,
    Bench,
    Broken,
    Maker,
    Missing,
    Promise,
    hold_finite,
    same_state,
    some_tokens,
)
from pe_zoo._contract.line import on_line
from pe_zoo._encoder import Encoder, Geometry, Unsupported
from pe_zoo._knobs import suggestion

PROMISES = [of for part in (dtypes, hooks, claims, relatives) for of in vars(part).values() if isinstance(of, Promise)]
AFTER_LEAK = (hooks.check_prefix_does_not_change, hooks.check_history_does_not_matter)
"""Promises that a leak from the future breaks, too."""
RELIED_ON = (claims.check_static_bias_claim, claims.check_distance_bias_claim, claims.check_blockwise_rotation_claim)
"""Claims by which a model computes another way."""
NOT_CHECKED = "not checked"
SIZES = [
    Bench.geometry,
    *(
        Geometry(model_dim=heads * head_dim, num_heads=heads, num_layers=2, train_length=Bench.geometry.train_length)
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
    until: str = ""
    """What must hold before other promises can be judged; blank: nothing more."""

    def __str__(self) -> str:
        return f"{self.outcome:6}  {self.sentence}{self.reason and f' ({self.reason})'}"


def check(make: Maker) -> Iterator[Verdict]:
    """Check every promise of an encoder, each from the same random state; the global one is restored.

    Args:
        make: builds the encoder for a geometry: its class, or ``lambda geometry: MyEncoder(geometry, knob=3)``.
    """
    built = "It can be built from a geometry alone, knobs that are not given at their defaults."
    try:
        bench = Bench(geometry=_size(make))
    except Exception as error:  # noqa: BLE001  an outside encoder may raise anything; it becomes a verdict
        yield Verdict(built, FAILS, one_line(error))
        return
    yield Verdict(built, HOLDS)
    whole, make = make, partial(on_line, make)
    refused = _refused(make, bench)
    works = "It works in a causal model, a bidirectional one, or both; it raises Unsupported in the other."
    yield Verdict(works, FAILS if len(refused) == len(BOTH) else HOLDS, "; ".join(refused.values()))
    leaks, until = False, ""
    for number, promise in enumerate(PROMISES if len(refused) < len(BOTH) else []):
        if until:
            yield Verdict(f"The other {len(PROMISES) - number} promises are not judged until {until}.", NOT_APPLICABLE)
            return
        if leaks and promise in AFTER_LEAK:
            waits = "not judged until no output depends on a later input"
            yield Verdict(promise.sentence, NOT_APPLICABLE, waits)
        elif masks := [mask for mask in promise.masks if mask not in refused]:
            where = {True: "causal: ", False: "bidirectional: "} if len(promise.masks) > 1 else dict.fromkeys(BOTH, "")
            asked = whole if promise is claims.check_axes_claim else make
            trials = {where[mask]: partial(promise.check, asked, mask, bench) for mask in masks}
            yield (verdict := judge(promise.sentence, trials))
            until = verdict.until
            leaks |= promise is hooks.check_no_leak_from_the_future and verdict.outcome == FAILS
        else:
            yield Verdict(promise.sentence, NOT_APPLICABLE, refused[promise.masks[0]])


def broken(make: Maker, geometry: Geometry, causal: bool) -> Verdict | None:
    """Return the first promise that an encoder breaks of those without which a model around it says nothing.

    No look at the future, hooks that keep shape and dtype, and claims by which models choose a faster way. It takes
    milliseconds; of the geometry, two layers are tried. Whatever else may be wrong is left to `check`.
    """
    bench = Bench(geometry=replace(geometry, num_layers=min(2, geometry.num_layers)))
    make = partial(on_line, make)
    trials: dict[Promise, Callable[[], object]] = {
        dtypes.check_moving_to_a_dtype: lambda: hold_finite(
            bench.model(bench.fresh(make), causal)(some_tokens()), "a model gives logits that are"
        ),
        hooks.check_no_leak_from_the_future: lambda: hooks.hold_causal(
            bench.model(bench.fresh(make), True), some_tokens()
        ),
        dtypes.check_shapes_at_every_geometry: partial(dtypes.check_two_dtypes, make, bench.geometry, causal),
        **{claim: partial(claim.check, make, causal, bench) for claim in RELIED_ON},
    }
    for promise, trial in trials.items():
        try:
            with same_state():
                if causal in promise.masks:
                    trial()
        except Missing:
            continue
        except Broken as reason:
            return Verdict(promise.sentence, FAILS, str(reason))
        except Exception:  # noqa: BLE001  as above
            continue
    return None


def one_line(error: BaseException) -> str:
    """Format an error in one line, with the place in a file of the user's that it passed through last."""
    text = " ".join(str(error).split())
    if isinstance(error, Broken):
        return text
    if isinstance(error, AttributeError) and error.name and "Did you mean" not in text:
        public = (name for name in dir(error.obj) if not name.startswith("_"))
        text += "." + suggestion(error.name, public)
    return f"{type(error).__name__}: {text}".rstrip(": ") + last_place(error, "pe_zoo_plugin_")


def last_place(error: BaseException, module: str) -> str:
    """`` (file.py:12)``, the last line of modules whose name begins so that an error passed through; empty if none."""
    places = [
        f" ({Path(frame.f_code.co_filename).name}:{line})"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__", "").startswith(module)
    ]
    return places[-1] if places else ""


def judge(sentence: str, trials: Mapping[str, Callable[[], object]]) -> Verdict:
    """Return the worst outcome of a promise's trials, each from the same random state, by where they are tried."""
    until, outcomes = "", [HOLDS]
    reasons: dict[str, str] = {}
    for where, trial in trials.items():
        try:
            with same_state():
                trial()
        except Exception as error:  # noqa: BLE001  as above
            outcomes.append(getattr(error, "outcome", FAILS))
            until = getattr(error, "until", until)
            reason = str(error) if outcomes[-1] == NOT_APPLICABLE else one_line(error)
            everywhere = outcomes[-1] != FAILS or reason in reasons
            reasons[reason] = "" if everywhere else where
    worst = max(outcomes, key=[HOLDS, NOT_APPLICABLE, ADVICE, FAILS].index)
    return Verdict(sentence, worst, "; ".join(where + reason for reason, where in reasons.items()), until)


def show(name: str, verdicts: Iterable[Verdict], source: Path | None = None, effect: Callable[[], str] = str) -> bool:
    """Print the verdict on every promise as it comes, and their count; return whether none fails.

    With the ``source`` of an encoder from outside, its knobs at their defaults, the count is kept for `outcome`. Where
    none fails, ``effect`` says what the encoder does.
    """
    counts: Counter[str] = Counter()
    faults: set[str] = set()
    failed: list[str] = []
    again = 0
    for verdict in verdicts:
        counts[verdict.outcome] += 1
        if verdict.outcome == FAILS:
            if verdict.reason in faults:
                again += 1
                continue
            failed.append(verdict.sentence)
            faults |= {verdict.reason} - {""}
        told = (f"{verdict.outcome:6}  {verdict.sentence}", verdict.reason and " " * 8 + verdict.reason)
        for text in filter(None, told):
            write_line(textwrap.fill(text, 116, initial_indent="  ", subsequent_indent=" " * 10))
    if not counts[FAILS] and (does := effect()):
        write_line("")
        for line in does.splitlines():
            write_line(textwrap.fill(line, 110, subsequent_indent="    " if line.startswith(" ") else ""))
        write_line("")
    advice = f", {counts[ADVICE]} with advice" if counts[ADVICE] else ""
    held = f"{counts[HOLDS]} promises hold, {counts[FAILS]} fail, {counts[NOT_APPLICABLE]} do not apply{advice}"
    write_line(f"{name}: {held}")
    for sentence in failed:
        write_line(f"  broken: {sentence}")
    if again:
        write_line(f"  and {again} more by a fault that is told above")
    write_line("")
    if source is not None:
        with suppress(OSError):
            _kept(source, name).parent.mkdir(parents=True, exist_ok=True)
            _kept(source, name).write_text(held)
    return not counts[FAILS]


def outcome(source: Path, name: str) -> str:
    """Return what the last check of an encoder found, if its file is the same since; else how to check it."""
    try:
        return _kept(source, name).read_text()
    except OSError:
        return f"{NOT_CHECKED}: python -m pe_zoo check {source.name}"


def _kept(source: Path, name: str) -> Path:
    digest = hashlib.sha256(source.read_bytes() + name.encode()).hexdigest()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pe_zoo" / "checks" / digest


def write_line(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def _size(make: Maker) -> Geometry:
    refusals = []
    for geometry in SIZES:
        try:
            with same_state():
                encoder = make(geometry)
        except ValueError as error:
            refusals.append(error)
            continue
        if not isinstance(encoder, Encoder):
            raise TypeError(f"{type(encoder).__name__} does not extend pe_zoo.Encoder")
        return geometry
    raise refusals[0]


def _refused(make: Maker, bench: Bench) -> dict[bool, str]:
    refused: dict[bool, str] = {}
    for causal in BOTH:
        try:
            with same_state():
                encoder = bench.fresh(make)
                if encoder.causal_only and not causal:
                    refused[causal] = "claims causal_only: no bidirectional model"
                else:
                    bench.model(encoder, causal)(some_tokens())
        except Unsupported as reason:
            refused[causal] = one_line(reason)
        except Exception:  # noqa: BLE001  the promises say what is wrong
            continue
    return refused
