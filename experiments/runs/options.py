"""Every option of a run and its type, made from the registries and signatures; Hydra's menus are made from these."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, make_dataclass
from functools import cache, partial
from typing import Any, get_args, get_origin

import pe_zoo
from experiments.model.layout import Layout
from experiments.plan.measures import experiment_names, load_experiment
from experiments.plan.request import ModelConfig
from experiments.statistics.rule import Rule
from experiments.tasks import tasks
from experiments.training.config import TrainConfig
from pe_zoo._knobs import Knob

MENUS: dict[str, tuple[Callable[[], Iterable[str]], Callable[[str], type]]] = {
    "encoder": (partial(pe_zoo.names, None), pe_zoo.get),
    "task": (tasks.names, tasks.get),
    "positions": (pe_zoo.numberings.names, pe_zoo.numberings.get),
}
"""Groups whose choices are registered classes; a choice's options are the class's knobs."""
PARTS = {"layout": Layout, "model": ModelConfig, "train": TrainConfig}
"""Groups whose choices are files in configs/, and what each makes."""
HANDLING = ("force", "retry", "checkpoint_seconds", "tracker", "figures")
"""Options that change what happens to a run's files, not its results."""
PARCEL = "parcel"
"""The option in which a job travels to a worker."""
REQUIRED = "???"
"""How OmegaConf writes a value that must be given."""


@dataclass(kw_only=True)
class Request:
    """The options besides the groups; `help.OPTIONS` describes each."""

    experiment: Any = REQUIRED
    recipe: str = ""
    seed: int = 0
    seeds: Any = 1
    against: str | None = None
    looks: list[int] = field(default_factory=lambda: list(Rule.looks))
    weights: list[float] = field(default_factory=lambda: list(Rule.weights))
    delta: float | None = None
    paired: bool = False
    name: str = "scratch"
    device: str = "auto"
    threads: int = 1
    workers: int | None = None
    report: bool = False
    budget_minutes: float | None = None
    tune: bool = False
    plugin: Any = None
    checkpoint: str | None = None
    force: bool = False
    retry: str | None = None
    checkpoint_seconds: float = 30.0
    tracker: Any = None
    figures: bool | None = None


def schema() -> type:
    """Return a dataclass of all options with their types; a measure's knobs are below its name."""
    return _schema(tuple(experiment_names()))


@cache
def _schema(measured: tuple[str, ...]) -> type:
    nodes = PARTS | {name: choice(name, load_experiment(name).knobs.values(), named=False) for name in measured}
    fields: list[tuple[str, Any, Any]] = [(group, Any, REQUIRED) for group in MENUS]
    fields += [(name, node, field(default_factory=node)) for name, node in nodes.items()]
    return make_dataclass("Options", fields, bases=(Request,), kw_only=True)


def choice(name: str, knobs: Iterable[Knob], *, named: bool = True) -> type:
    """Return a dataclass of knobs. Tuples become lists, which is what OmegaConf has."""
    fields: list[tuple[str, Any, Any]] = [("name", str, name)] if named else []
    for knob in knobs:
        if get_origin(knob.type) is tuple:
            items = list(knob.default)
            fields.append((knob.name, list[get_args(knob.type)[0]], field(default_factory=items.copy)))  # type: ignore[misc]
        else:
            fields.append((knob.name, knob.type, knob.default))
    return make_dataclass(f"{name}_options", fields)
