"""A model's own rotation, compared with that of `rope`, so that an encoder can start from the same angles."""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

import pe_zoo
from pe_zoo import Encoder, Geometry, Site, Unsupported
from pe_zoo._knobs import knobs
from pe_zoo.hf.listen import Heard, attending_with, family
from pe_zoo.hf.seat import leave, neighbours, seat_of, sit, unrotated_input

NEAR = 1e-3
"""Largest difference of queries and keys that are rotated alike, as a share of the largest, in float32."""
TOKENS = 12


class Scaled(Unsupported):
    """A model has angles of a length beyond its first training, which `rope` in their place would lose."""


class Partial(Unsupported):
    """A model rotates as `rope` does in some ``layers``, and not at all in the others."""

    def __init__(self, reason: str, layers: list[int]) -> None:
        super().__init__(reason)
        self.layers = layers


@dataclass(frozen=True)
class Rotation:
    """A rotation as knobs of `rope`, and of how many dimensions of a head the two halves form its pairs."""

    base: float
    fraction: float
    halves: int


def start(
    model: PreTrainedModel, heard: list[Heard], name: str, given: Mapping[str, Any]
) -> tuple[dict[str, Any], int]:
    """Return what `rope`, or an encoder that extends it, takes over from a model: knobs, and `Rotation.halves`.

    Raises:
        Unsupported: the model rotates in a way that the encoder cannot start from.
    """
    cls = pe_zoo.get(name)
    known = knobs(cls)
    if "rope" not in (name, cls.extends) or "base" not in known or given.keys() & {"base", "pairing"}:
        return {}, 0
    if not rotates(heard):
        return {}, 0
    try:
        own = own_rotation(model, heard)
        if own.fraction != 1 and "fraction" not in known:
            raise Unsupported(f"{family(model)} rotates {own.fraction:g} of each head, and {name} all of it")
    except Unsupported as reason:
        if name == "rope" and not isinstance(reason, Scaled):
            return {}, 0
        remedy = f"name base= to put in {name} as a new encoder, and train it"
        raise Unsupported(f"{reason}, so {name} cannot start from its angles; {remedy}") from reason
    return {knob: getattr(own, knob) for knob in ("base", "fraction") if knob in known}, own.halves


def warn_of_pairs(model: PreTrainedModel, heard: list[Heard], name: str) -> None:
    """Warn that an encoder with a new base has other pairs than the model, where it could have taken these over."""
    cls = pe_zoo.get(name)
    if "rope" not in (name, cls.extends) or not rotates(heard):
        return
    with suppress(Unsupported):
        own = own_rotation(model, heard)
        if own.halves and (own.fraction == 1 or "fraction" in knobs(cls)):
            remedy = "set rope_theta in the configuration" + ' or give pairing="half" as well' * (name == "rope")
            warnings.warn(
                f"with base= alone, {name} rotates other pairs of dimensions than {family(model)} does, so that it "
                f"must be trained again; to change only the base, {remedy}",
                stacklevel=3,
            )


def rotates(heard: Iterable[Heard]) -> bool:
    """Whether attention modules are given angles."""
    return any("position_embeddings" in one.given for one in heard)


def own_rotation(model: PreTrainedModel, heard: list[Heard]) -> Rotation:
    """Return the rotation of attention modules, found by comparing their queries and keys with and without it.

    Raises:
        Unsupported: `rope` does not compute the same, with the reason.
    """
    kinds = configured(model.config)
    scaled = sorted({str(kind.get("rope_type")) for kind in kinds} - {"default"})
    modules = [one.module for one in heard]
    sizes = Geometry(model_dim=1, num_heads=1, num_layers=1, train_length=TOKENS, head_dim=heard[0].query[-1])
    with _vacant(modules):
        found, plain = (_contents(model, modules, rotated=rotated) for rotated in (True, False))
    alike: set[nn.Module] = set()
    for kind in kinds:
        if kind.get("rope_type") != "default" or "rope_theta" not in kind or model.device.type == "meta":
            continue
        base, fraction = float(kind["rope_theta"]), float(kind.get("partial_rotary_factor") or 1.0)
        rope = pe_zoo.build("rope", sizes, base=base, fraction=fraction)
        for halves in (2 * int(fraction * sizes.head_dim / 2 + 1e-9), 0):
            same = {module for module in modules if _same(rope, halves, plain[module], found[module])}
            if len(same) == len(modules):
                return Rotation(base, fraction, halves)
            alike |= same
    name = family(model)
    if scaled:
        raise Scaled(f"{name}'s rotation is scaled already (rope_type {', '.join(scaled)})")
    if len(alike) == len(modules):
        raise Unsupported(f"{name}'s rotation differs between its layers (layers=[…] can name those that are alike)")
    if alike:
        those = [one.layer for one in heard if one.module in alike]
        reason = f"{name} rotates as rope does, but not in all of these layers: name those, layers={those}"
        still = all(
            torch.equal(*each) for m in modules if m not in alike for each in zip(found[m], plain[m], strict=True)
        )
        raise Partial(reason, those) if still else Unsupported(reason)
    raise Unsupported(f"{name} does not rotate as rope does")


def configured(config: PretrainedConfig) -> list[dict[str, Any]]:
    """What a configuration says of the rotation, or of that of each kind of layer."""
    said = getattr(config.get_text_config(), "rope_parameters", None) or {}
    return [said] if "rope_type" in said else [kind for kind in said.values() if isinstance(kind, dict)]


def _contents(
    model: PreTrainedModel, modules: list[nn.Module], *, rotated: bool
) -> dict[nn.Module, tuple[Tensor, Tensor]]:
    """Queries and keys of each module. Nothing is attended to, so that rotation changes no layer's input."""
    found: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def attend(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *_: Any, **_more: Any
    ) -> tuple[Tensor, None]:
        found.setdefault(module, (query, key))
        return value.new_zeros(len(query), query.shape[2], query.shape[1], value.shape[-1]), None

    hooks = [module.register_forward_pre_hook(unrotated_input, with_kwargs=True) for module in modules if not rotated]
    try:
        attending_with(model, attend, TOKENS)
    finally:
        for hook in hooks:
            hook.remove()
    return found


@contextmanager
def _vacant(modules: list[nn.Module]) -> Iterator[None]:
    """Take the seats of modules away for a while: what they had before is asked for."""
    seats = {module: seat for module in modules if (seat := seat_of(module)) is not None}
    for module in seats:
        leave(module)
    try:
        yield
    finally:
        for module, seat in seats.items():
            sit(module, seat)


def _same(rope: Encoder, halves: int, plain: tuple[Tensor, Tensor], found: tuple[Tensor, Tensor]) -> bool:
    q, k = (neighbours(x, halves) for x in plain)
    places = torch.arange(float(TOKENS), device=q.device)
    mask = places[:, None] >= places
    site = Site(layer=0, query_positions=places, key_positions=places, rows=slice(None), mask=mask, causal=True)
    near = max(NEAR, 8 * torch.finfo(q.dtype).eps)
    pairs = zip(rope.rotate(q, k, site), (neighbours(x, halves) for x in found), strict=True)
    return all(bool((ours - theirs).abs().max() <= near * theirs.abs().max()) for ours, theirs in pairs)
