"""The profile of an encoder at one geometry: family, hooks, claims, parameters, extra work."""

import copy
from dataclasses import dataclass
from functools import partial

import torch

from pe_zoo._catalogue import Entry, Knob, parse
from pe_zoo._contract.bench import Bench
from pe_zoo._contract.claims import depends_on
from pe_zoo._contract.line import on_line
from pe_zoo._cost import extra_operations
from pe_zoo._encoder import HOOKS, Encoder, Geometry, Unsupported
from pe_zoo._knobs import knobs
from pe_zoo._registry import get

CLAIMS = {
    "shift_invariant": "shift",
    "direction_aware": "direction",
    "causal_only": "causal only",
    "static_bias": "static",
    "control": "control",
}
NONE = "–"


@dataclass(frozen=True)
class Profile:
    """What the catalogue shows of an encoder; ``remark`` is the reason where it refuses the geometry."""

    entry: Entry
    hooks: tuple[str, ...]
    family: str = NONE
    parameters: str = NONE
    extra: str = NONE
    claims: str = NONE
    remark: str = ""

    @property
    def name(self) -> str:
        return self.entry.name


def profile(name: str, geometry: Geometry) -> Profile:
    """Measure an encoder, every knob at its default."""
    cls = get(name)
    defaults = {knob.name: Knob(str(knob.default)) for knob in knobs(cls).values()}
    entry, hooks = parse(name, cls.__doc__, defaults), tuple(hook for hook in HOOKS if cls.overrides(hook))
    try:
        with torch.random.fork_rng(devices=[]):
            encoder = cls(geometry)
            learned = sum(parameter.numel() for parameter in encoder.parameters())
            extra = f"+{extra_operations(encoder):.1%}"
            return Profile(entry, hooks, family(encoder), f"{learned:,}", extra, claims(encoder))
    except (ValueError, Unsupported) as refusal:
        return Profile(entry, hooks, remark=" ".join(str(refusal).split()))


def claims(encoder: Encoder) -> str:
    """The claims of an instance, where a knob may decide them, in short words."""
    words = [word for claim, word in CLAIMS.items() if getattr(encoder, claim)]
    words += [encoder.plane] if encoder.axes > 1 else []
    words += [f"{how} {of}" for how, of in (("nearly", encoder.relative_of), ("extends", encoder.extends)) if of]
    return ", ".join([*words, f"< {encoder.max_length}"] if encoder.max_length is not None else words)


def family(encoder: Encoder) -> str:
    """The family that the class declares, or else the one that its behaviour shows."""
    return encoder.family or observed_family(encoder)


def observed_family(encoder: Encoder) -> str:
    """The family that the hooks of an encoder and their dependence show."""
    hooks = {hook for hook in HOOKS if encoder.overrides(hook)}
    if hooks <= {"embed"}:
        return "input" if hooks else "no position"
    stirred = Bench(geometry=encoder.geometry).fresh(partial(on_line, lambda _: copy.deepcopy(encoder)))
    try:
        depends = depends_on(stirred, encoder.causal_only)
    except Unsupported:
        depends = depends_on(stirred, not encoder.causal_only)
    if "positions" not in depends or "scores" in depends:
        return "content"
    if "own product" in depends or hooks <= {"embed", "rotate"}:
        return "content" if "x" in depends else "rotation"
    return "relative term" if depends & {"x", "queries"} or "mix" in hooks else "score bias"
