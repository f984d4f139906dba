"""What was asked for, and every part of it built once, so that nothing about a request can go wrong later."""

from __future__ import annotations

import hashlib
import json
import os
import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import pe_zoo
from experiments import measures
from experiments.model.layout import ALL, Layout
from experiments.model.precision import BFLOAT16, FLOAT32, training_dtype
from experiments.model.streams import initialising, stream
from experiments.model.transformer import Transformer
from experiments.plan.sizes import check_measurements, check_parts, check_sizes, within_memory
from experiments.rows.read import TUNED
from experiments.rows.untrusted import message_of
from experiments.tasks import Task, tasks
from experiments.training.loop import TrainConfig
from experiments.training.tune import check_tuning, rates
from pe_zoo import Encoder, Geometry, Numbering, Unsupported
from pe_zoo._knobs import check_knobs, knobs, listing, suggestion, whole
from pe_zoo._positions import FURTHEST

RESULTS = Path("results")
LAST_SEED = 2**53 - 1
"""Every reader of JSON and CSV holds whole numbers exactly up to here."""


class BadRequest(ValueError):
    """What was asked for cannot be run; the message says what was given, what is allowed, what to do."""


@dataclass(kw_only=True)
class ModelConfig:
    """The trunk.

    Args:
        model_dim: width, at least 1; divisible by ``num_heads``.
        num_heads: attention heads, at least 1.
        num_layers: at least 1.
        ffn_multiple: hidden width of the feed-forward block in multiples of ``model_dim``, at least 1.
        causal: whether a query sees only its past.
        temperature: law by which queries that see more keys are sharpened: ``log_n``, ``scalable_softmax`` or
            ``llama4``; null: none.
        temperature_floor: of ``llama4``, keys to a step, at least 1 (8192 there); null: the training length.
        temperature_on: which layers have it: ``all``, or ``skipping`` (those that go without the encoder).
        as_many_as: an encoder's name: the feed-forward blocks of all layers are widened alike until the trunk and the
            run's own encoder have as many parameters as the plain trunk and that encoder with its default knobs, or
            more by less than one hidden unit a layer (num_layers · 2 · model_dim parameters). A widened trunk has
            initial parameters of its own. null: not widened.
    """

    model_dim: int = 128
    num_heads: int = 4
    num_layers: int = 3
    ffn_multiple: int = 4
    causal: bool = True
    temperature: str | None = None
    temperature_floor: int | None = None
    temperature_on: str = ALL
    as_many_as: str | None = None


@dataclass(kw_only=True)
class RunConfig:
    """Everything that decides a run, resolved.

    Args:
        encoder: ``name`` and knobs.
        task: ``name`` and knobs.
        positions: the numbering's ``name`` and knobs.
        layout: which layers carry the encoder, and what each layer and head sees.
        model: the trunk.
        train: how it is trained.
        experiments: knobs of each experiment to run, by its name.
        seed: decides parameters and data, at least 0.
        name: folder under ``results/``.
        device: ``auto``, ``cpu``, ``cuda``, …
        tune: whether the peak learning rate is the best of ``train.learning_rates`` instead of ``train.learning_rate``.
        plugin: sha256 of the file that outside encoders came from, if any.
        choice: the encoder as typed (a variant's name, say).
    """

    encoder: dict[str, Any]
    task: dict[str, Any]
    positions: dict[str, Any]
    layout: Layout
    model: ModelConfig
    train: TrainConfig
    experiments: dict[str, dict[str, Any]]
    seed: int
    name: str
    device: str = "auto"
    tune: bool = False
    plugin: str | None = None
    choice: str = ""

    def identity(self) -> dict[str, Any]:
        """What the results depend on, as plain data: not the folder, the device or the spelling of a request."""
        return {
            "seed": self.seed,
            "encoder": self.encoder,
            "positions": self.positions,
            "layout": asdict(self.layout),
            "task": self.task,
            "model": asdict(self.model),
            "train": self._training() if self.trains else None,
            "experiment": list(self.experiments),
            **self.experiments,
            "plugin": self.plugin,
        }

    def _training(self) -> dict[str, Any]:
        """How it is trained: with one learning rate, or with the best of several."""
        told = asdict(self.train)
        del told["learning_rates"]
        if self.tune:
            told |= {"learning_rate": TUNED, "learning_rates": rates(self.train)}
        return told

    @property
    def trains(self) -> bool:
        """Whether there is anything to train, and an experiment that wants it trained."""
        return self.train.steps > 0 and any(load_experiment(name).NEEDS_TRAINING for name in self.experiments)

    @property
    def run_id(self) -> str:
        """A readable prefix and a hash: the same run has the same on every machine."""
        digest = hashlib.sha256(json.dumps(self.identity(), sort_keys=True).encode()).hexdigest()[:8]
        numbering = [] if self.positions["name"] == "sequential" else [self.positions["name"]]
        return "-".join([self.encoder["name"], *numbering, self.task["name"], f"seed{self.seed}", digest])

    def labels(self) -> dict[str, str | int]:
        """The columns that all rows of the run share."""
        return {
            "run_id": self.run_id,
            "encoder": describe(self.encoder, pe_zoo.get(self.encoder["name"])),
            "positions": describe(self.positions, pe_zoo.numberings.get(self.positions["name"])),
            "task": describe(
                self.task, tasks.get(self.task["name"]), leave_out=("train_length", "path", *self._local())
            ),
            "seed": self.seed,
        }

    def _local(self) -> tuple[str, ...]:
        """Of the task's knobs, those that say where a folder lies: that differs from machine to machine."""
        dataset = self.task.get("dataset")
        return ("dataset",) if dataset and Path(dataset).exists() else ()


def describe(chosen: Mapping[str, Any], component: type, *, leave_out: tuple[str, ...] = ()) -> str:
    """A component's name, with the knobs that were turned in brackets: ``rope(base=500000)``."""
    turned = [
        f"{name}={format(chosen[name], 'g') if isinstance(chosen[name], float) else chosen[name]}"
        for name, knob in knobs(component).items()
        if name not in leave_out and name in chosen and chosen[name] != knob.default
    ]
    return f"{chosen['name']}({', '.join(turned)})" if turned else str(chosen["name"])


@dataclass(kw_only=True)
class Plan:
    """A run whose parts have all been built once."""

    config: RunConfig
    geometry: Geometry
    task: Task
    numbering: Numbering
    experiments: dict[str, ModuleType]
    device: torch.device
    folder: Path

    @property
    def precision(self) -> str:
        """What the run's matrices are multiplied in where ``train.precision`` has a say; else in float32."""
        dtype = training_dtype(self.config.train.precision, self.device, self.geometry.model_dim)
        return BFLOAT16 if dtype and self.config.trains else FLOAT32

    def encoder(self) -> Encoder:
        """The encoder; its parameters depend on the seed alone."""
        chosen = dict(self.config.encoder)
        with initialising(self.config.seed, "encoder"):
            return pe_zoo.build(chosen.pop("name"), self.geometry, **chosen)

    def model(self) -> Transformer:
        """The untrained model. Its trunk is the same for every encoder of a seed."""
        encoder = self.encoder()
        with initialising(self.config.seed, "trunk"):
            return self.around(encoder).to(self.device)

    @cached_property
    def ffn_extra(self) -> int:
        """Hidden units that each layer's feed-forward block has beyond its plain width: ``model.as_many_as``."""
        wanted = self.config.model.as_many_as
        if wanted is None:
            return 0
        with initialising(self.config.seed, "encoder"):
            other = pe_zoo.build(wanted, self.geometry)
        theirs, ours = (sum(p.numel() for p in encoder.parameters()) for encoder in (other, self.encoder()))
        if theirs <= ours:
            raise ValueError(
                f"model.as_many_as={wanted} has nothing to make up for: {wanted} has {theirs} parameters here, "
                f"encoder={self.config.encoder['name']} {ours}; name an encoder with more, or leave it out"
            )
        return -(-(theirs - ours) // (2 * self.geometry.model_dim * self.geometry.num_layers))

    def around(self, encoder: Encoder) -> Transformer:
        """The trunk around an encoder."""
        return Transformer(
            self.task.vocab_size,
            self.geometry,
            encoder,
            causal=self.config.model.causal,
            layout=self.config.layout,
            temperature=self.config.model.temperature,
            temperature_floor=self.config.model.temperature_floor,
            temperature_on=self.config.model.temperature_on,
            ffn_multiple=self.config.model.ffn_multiple,
            ffn_extra=self.ffn_extra,
        )


def prepare(config: RunConfig) -> Plan:
    """Build every part once and refuse what cannot be run, before anything is written.

    Raises:
        BadRequest: with one line for the user.
    """
    try:
        check_name(config.name)
        for get, chosen in (
            (pe_zoo.get, config.encoder),
            (tasks.get, config.task),
            (pe_zoo.numberings.get, config.positions),
        ):
            get(chosen.get("name"))  # type: ignore[arg-type]
        measured = {name: _all_knobs(name, given) for name, given in config.experiments.items()}
        config = replace(config, experiments=measured)
        whole("seed", config.seed, at_least=0, at_most=LAST_SEED)
        for size in ("model_dim", "num_heads", "num_layers", "ffn_multiple"):
            whole(f"model.{size}", getattr(config.model, size), at_least=1)
        config.train.check()
        check_tuning(config.tune, config.train, trains=config.trains)
        config.layout.check(config.model.num_layers, config.model.num_heads)
        device = find_device(config.device)
        check_sizes(config, device)
        labels = config.labels()
        with _blaming_its_author(config.encoder["name"]), within_memory(f"{labels['encoder']} on {labels['task']}"):
            return _built(config, device)
    except (ValueError, LookupError, Unsupported, OSError) as error:
        raise BadRequest(message_of(error)) from error
    except TypeError as error:
        said = f"{type(error).__name__}: {message_of(error)}{_last_place(error, 'experiments')}"
        raise BadRequest(f"the configuration is none of this version's: {said}") from error


def _all_knobs(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """An experiment's knobs, with the defaults of those that it did not have yet when they were given."""
    known = knobs(load_experiment(name).measure).values()
    defaults = {knob.name: list(knob.default) if isinstance(knob.default, tuple) else knob.default for knob in known}
    return {**defaults, **given}


@contextmanager
def _blaming_its_author(name: str) -> Iterator[None]:
    """Within, whatever an encoder from outside raises is said in one line, with its place in the author's file.

    Raises:
        ValueError: it raised something else than what the contract has for a bad request.
    """
    try:
        yield
    except Unsupported:
        raise
    except Exception as error:
        package = pe_zoo.get(name).__module__.partition(".")[0]
        place = _last_place(error, package)
        if package == "pe_zoo" or (isinstance(error, ValueError) and not place):
            raise
        said = message_of(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {message_of(error)}"
        raise ValueError(f"encoder={name} cannot be tried: {said}{place}") from error


def _last_place(error: Exception, package: str) -> str:
    """`` (file.py:12)``, the last place of a package that an error came through; empty if through none."""
    places = [
        f" ({Path(frame.f_code.co_filename).name}:{line})"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__", "").partition(".")[0] == package
    ]
    return places[-1] if places else ""


def _built(config: RunConfig, device: torch.device) -> Plan:
    """What was asked for, put together and tried."""
    task = _build(tasks, config.task)
    geometry = Geometry(
        model_dim=config.model.model_dim,
        num_heads=config.model.num_heads,
        num_layers=config.model.num_layers,
        train_length=task.sequence_length(task.train_length),
    )
    plan = Plan(
        config=config,
        geometry=geometry,
        task=task,
        numbering=_build(pe_zoo.numberings, config.positions).bound(partial(task.numbers, causal=config.model.causal)),
        experiments={name: load_experiment(name, given) for name, given in config.experiments.items()},
        device=device,
        folder=RESULTS / config.name / "runs" / config.run_id,
    )
    check_parts(plan)
    check_measurements(plan)
    _rehearse(plan)
    _check_writable(plan.folder)
    return plan


def _build(registry: pe_zoo.Registry[Any], chosen: dict[str, Any]) -> Any:
    given = dict(chosen)
    return registry.build(given.pop("name"), **given)


def _rehearse(plan: Plan) -> None:
    """Draw one training sequence, number it and embed it; put the trunk together without memory."""
    task, length = plan.task, plan.task.train_length
    size = task.sequence_length(length)
    task.sample(1, length, stream(0, "rehearsal"), split="train", causal=plan.config.model.causal)
    encoder = plan.encoder()
    check_range(encoder, plan.numbering, size)
    positions = plan.numbering.train(1, size, stream(0, "rehearsal"))
    x = torch.zeros(1, size, plan.geometry.model_dim)
    embedded = encoder.embed(x, positions)
    if not isinstance(embedded, torch.Tensor) or embedded.shape != x.shape:
        got = tuple(embedded.shape) if isinstance(embedded, torch.Tensor) else type(embedded).__name__
        raise ValueError(f"encoder={encoder.name}: embed must return {tuple(x.shape)}, as it was given; got {got}")
    with torch.device("meta"):
        plan.around(encoder)


def check_range(encoder: Encoder, numbering: Numbering, length: int) -> None:
    """Refuse an encoder with a table (``max_length``) that does not hold all positions a numbering may give."""
    lowest, highest = numbering.lowest(length), numbering.highest(length)
    if max(-lowest, highest) > FURTHEST:
        raise ValueError(
            f"positions={numbering.name} reaches {max(-lowest, highest):.10g} in training, but float32 tells whole "
            f"positions apart up to {FURTHEST} alone; lower its knobs"
        )
    if encoder.max_length is not None and highest > encoder.max_length - 1:
        raise ValueError(
            f"encoder={encoder.name} takes positions up to {encoder.max_length - 1}, but positions="
            f"{numbering.name} reaches {highest:.10g} in training; raise the one or lower the other"
        )
    if encoder.max_length is not None and lowest < 0:
        raise ValueError(
            f"encoder={encoder.name} takes positions from 0 on, but positions={numbering.name} reaches "
            f"{lowest:.10g}; take an encoder without a table, or another numbering"
        )


def check_name(name: str) -> str:
    """A folder name that stays where it is put: letters, digits, ``._-``, not starting with a dot."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}", name):
        raise ValueError(f"name={name!r} must be a plain folder name (letters, digits, '_', '-', '.'), not a path")
    return name


def _check_writable(folder: Path) -> None:
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise ValueError(
            f"results cannot be written: {str(existing)!r} is "
            f"{'read-only' if existing.is_dir() else 'not a folder'}; mend that or run from another folder"
        )


def find_device(wanted: str) -> torch.device:
    """The device asked for; ``auto`` is the GPU if there is one."""
    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.empty(0, device=wanted).device
        torch.zeros(1, device=device).item()  # that of some devices cannot be read
        return device
    except (RuntimeError, AssertionError, ImportError, NotImplementedError) as error:
        here = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
        raise ValueError(f"device={wanted!r} is not on this machine. Here: auto, {', '.join(here)}") from error


def experiment_names() -> list[str]:
    """Every experiment there is."""
    return [entry.name for entry in measures.entries()]


def load_experiment(name: str, given: Mapping[str, Any] | None = None) -> ModuleType:
    """The module of an experiment, its knobs checked.

    It has ``check(**knobs)``, ``measure(subject, **knobs)`` to rows, ``summarise(rows)`` and ``plot(rows)`` of a frame;
    ``NEEDS_TRAINING``; and ``MAIN``, the metric that stands for it where it could not measure (None: the task's).
    It may have ``unmeasured(subject, status, **knobs)``, the rows of a model that diverged, where one is not enough.
    """
    known = experiment_names()
    if name not in known:
        raise ValueError(f"no experiment named {name!r}.{suggestion(str(name), known)}{listing('Known', known)}")
    module = import_module(f"experiments.measures.{name}.measure")
    if given is not None:
        check_knobs(name, module.measure, given)
        module.check(**given)
    return module
