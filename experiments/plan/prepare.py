"""Build every part of a request once and refuse what cannot run, before anything is written."""

import inspect
import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

import pe_zoo
from experiments.model.streams import stream
from experiments.plan.checkpoint import check_begin, check_reach, opened
from experiments.plan.measures import load_experiment
from experiments.plan.places import as_typed
from experiments.plan.plan import Plan
from experiments.plan.refusal import BadRequest
from experiments.plan.request import LAST_SEED, RunConfig
from experiments.plan.sizes import check_measurements, check_parts, check_sizes, within_memory
from experiments.rows.untrusted import message_of
from experiments.tasks import tasks
from experiments.training.tune import check_tuning
from pe_zoo import Encoder, Geometry, Numbering, Unsupported
from pe_zoo._contract import check
from pe_zoo._knobs import knobs, whole
from pe_zoo._positions import FURTHEST, plane_of
from pe_zoo._registry import outside

REGISTRIES = {"encoder": pe_zoo.get, "task": tasks.get, "positions": pe_zoo.numberings.get}


def prepare(config: RunConfig) -> Plan:
    """Build a request's parts and check that they go together; BadRequest with one line for the user."""
    try:
        check_name(config.name)
        for group, get in REGISTRIES.items():
            get(getattr(config, group).get("name"))
        experiments = {name: _with_defaults(name, given) for name, given in config.experiments.items()}
        config = replace(config, experiments=experiments)
        whole("seed", config.seed, at_least=0, at_most=LAST_SEED)
        whole("threads", config.threads, at_least=1)
        for size in ("model_dim", "num_heads", "num_layers", "ffn_multiple"):
            whole(f"model.{size}", getattr(config.model, size), at_least=1)
        config.train.check()
        check_tuning(config.tune, config.train, trains=config.trains)
        config.layout.check(config.model.num_layers, config.model.num_heads)
        device = find_device(config.device)
        check_sizes(config, device)
        labels = config.labels()
        with _blame_plugin(config.encoder["name"]), within_memory(f"{labels['encoder']} on {labels['task']}"):
            return _build_parts(config, device)
    except (ValueError, LookupError, Unsupported, OSError) as error:
        raise BadRequest(message_of(error)) from error
    except TypeError as error:
        reason = f"{type(error).__name__}: {message_of(error)}{check.last_place(error, 'experiments')}"
        raise BadRequest(f"config.yaml was written by another version: {reason}") from error


def _with_defaults(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in knobs that the measure gained since the request was written."""
    known = load_experiment(name).knobs.values()
    defaults = {knob.name: list(knob.default) if isinstance(knob.default, tuple) else knob.default for knob in known}
    return {**defaults, **given}


@contextmanager
def _blame_plugin(name: str) -> Iterator[None]:
    """Turn any error that a plug-in encoder raises within into a ValueError with the place in its author's file."""
    try:
        yield
    except Unsupported:
        raise
    except Exception as error:
        package = pe_zoo.get(name).__module__.partition(".")[0]
        place = check.last_place(error, package)
        if package == "pe_zoo" or (isinstance(error, ValueError) and not place):
            raise
        reason = message_of(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {message_of(error)}"
        raise ValueError(f"encoder={name} cannot be tried: {reason}{place}") from error


def _build_parts(config: RunConfig, device: torch.device) -> Plan:
    task = _build(tasks, config.task)
    if config.data not in (None, found := data_sha256(config.task)):
        raise ValueError(
            f"task={config.labels()['task']} reads other data here ({found}) than when the command was read "
            f"({config.data}): give all machines the same data and the same Python, and start it again"
        )
    config = replace(config, data=found)
    shape = {name: getattr(config.model, name) for name in ("model_dim", "num_heads", "num_layers")}
    geometry, guest = Geometry(**shape, train_length=task.sequence_length(task.train_length)), None
    if config.checkpoint:
        guest = opened(config.checkpoint, config.checkpoint_sha256, geometry.train_length, str(device))
        check_begin(config.checkpoint, guest, task, config.task.get("tokenizer"))
        check_reach(task, config.experiments)
        geometry = guest.geometry
    plan = Plan(
        config=config,
        geometry=geometry,
        guest=guest,
        task=task,
        numbering=_build(pe_zoo.numberings, config.positions).bound(partial(task.numbers, causal=config.model.causal)),
        experiments={name: load_experiment(name, given) for name, given in config.experiments.items()},
        device=device,
    )
    check_parts(plan)
    check_measurements(plan)
    plan.pauses  # noqa: B018  # refuses moments that the training does not have
    _rehearse(plan)
    _check_writable(plan.config.folder)
    return plan


def data_sha256(task: Mapping[str, Any]) -> str | None:
    """Return the hash of the data of a task; None if it reads none, or if it cannot: building it says why."""
    knobs = dict(task)
    with suppress(ValueError, OSError):
        return tasks.get(knobs.pop("name")).data_sha256(**knobs)
    return None


def _build(registry: pe_zoo.Registry[Any], chosen: dict[str, Any]) -> Any:
    given = dict(chosen)
    return registry.build(given.pop("name"), **given)


def _rehearse(plan: Plan) -> None:
    task, length = plan.task, plan.task.train_length
    size = task.sequence_length(length)
    batch = task.sample(1, length, stream(0, "rehearsal"), split="train", causal=plan.config.model.causal)
    if plan.guest:
        return
    encoder = plan.encoder()
    check_range(encoder, plan.numbering, size)
    positions = plan.numbering.read(batch.tokens, stream(0, "rehearsal"), training=True)
    x = torch.zeros(1, size, plan.geometry.model_dim)
    embedded = encoder.embed(x, positions)
    if not isinstance(embedded, torch.Tensor) or embedded.shape != x.shape:
        got = tuple(embedded.shape) if isinstance(embedded, torch.Tensor) else type(embedded).__name__
        raise ValueError(f"encoder={encoder.name}: embed must return {tuple(x.shape)}, the shape of x; got {got}")
    _check_outside(plan, encoder)
    with torch.device("meta"):
        plan.around(encoder)


def _check_outside(plan: Plan, encoder: Encoder) -> None:
    """Refuse an encoder from outside that breaks a promise which every number rests on."""
    parts = (type(part) for part in encoder.modules() if isinstance(part, Encoder))
    theirs = next(filter(outside, parts), None)
    if theirs is None:
        return
    chosen = dict(plan.config.encoder)
    name = chosen.pop("name")
    found = check.broken(lambda sizes: pe_zoo.build(name, sizes, **chosen), plan.geometry, plan.config.model.causal)
    if found:
        in_file = theirs.__module__.startswith("pe_zoo_plugin_")
        target = as_typed(Path(inspect.getfile(theirs))) if in_file else theirs.name
        known = knobs(pe_zoo.get(name))
        words = [target, *(f"encoder.{k}={json.dumps(v)}" for k, v in chosen.items() if v != known[k].default)]
        raise ValueError(
            f"encoder={name} breaks a promise: {found.sentence} Here, {found.reason}. "
            f"Repair it; python -m pe_zoo check {shlex.join(words)} checks every promise"
        )


def check_range(encoder: Encoder, numbering: Numbering, length: int) -> None:
    """Refuse a numbering of other axes, or one that leaves float32's whole numbers or the encoder's ``max_length``."""
    if plane_of(encoder) != plane_of(numbering):
        remedy = f"set positions={encoder.plane}{' and a task that has a grid' if encoder.plane == 'grid' else ''}"
        remedy = f"leave positions={numbering.name} out" if encoder.axes == 1 else remedy
        raise ValueError(
            f"encoder={encoder.name} takes positions of {plane_of(encoder)}, but positions={numbering.name} gives "
            f"those of {plane_of(numbering)}; {remedy}"
        )
    lowest, highest, rows = numbering.lowest(length), numbering.highest(length), encoder.max_length
    if max(-lowest, highest) > FURTHEST:
        raise ValueError(
            f"positions={numbering.name} reaches {max(-lowest, highest):.10g} in training, but float32 distinguishes "
            f"whole positions only up to {FURTHEST}; lower its knobs"
        )
    if rows is not None and highest > rows - 1:
        raise ValueError(
            f"encoder={encoder.name} takes positions up to {rows - 1}, but positions={numbering.name} reaches "
            f"{highest:.10g} in training; raise the one or lower the other"
        )
    if rows is not None and lowest < 0:
        raise ValueError(
            f"encoder={encoder.name} takes positions from 0 on, but positions={numbering.name} reaches "
            f"{lowest:.10g}; choose an encoder without a table, or another numbering"
        )


def check_name(name: str) -> str:
    """Return a plain folder name: letters, digits, ``._-``, not starting with a dot; ValueError for another one."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}", name):
        raise ValueError(f"name={name!r} must be a plain folder name (letters, digits, '_', '-', '.'), not a path")
    return name


def _check_writable(folder: Path) -> None:
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise ValueError(
            f"results cannot be written: {str(existing)!r} is "
            f"{'read-only' if existing.is_dir() else 'not a folder'}; change that or run from another folder"
        )


def find_device(wanted: str) -> torch.device:
    """Return the device; ``auto`` is the GPU if there is one. ValueError if this machine has no such device."""
    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.empty(0, device=wanted).device
        torch.zeros(1, device=device).item()  # tensors of some devices cannot be read
        return device
    except (RuntimeError, AssertionError, ImportError, NotImplementedError) as error:
        here = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
        raise ValueError(f"device={wanted!r} is not on this machine. Here: auto, {', '.join(here)}") from error
