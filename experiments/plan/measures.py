"""The registry of measures: every folder of ``experiments/measures/`` is one, and every class that registers here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, ClassVar

from experiments.measures import entries, package_of
from experiments.rows.row import Row
from experiments.training.evaluate import Subject
from pe_zoo import Knob, PluginError, Registry, knobs
from pe_zoo._knobs import check_knobs, check_value, hint


class Measure:
    """A measure of your own. Keyword-only arguments are knobs, which the constructor checks."""

    name: ClassVar[str]
    main: ClassVar[str | None] = None
    """The metric whose row carries the status where nothing could be measured; None: the task's main metric."""
    needs_training: ClassVar[bool] = True

    def rows(self, subject: Subject) -> list[Row]:
        """Measure a subject, with `subject.row` and `subject.cannot`; Unsupported becomes a row that says so."""
        raise NotImplementedError


measures: Registry[Measure] = Registry("experiment", Measure, "pe_zoo.measures")


@dataclass(frozen=True)
class Experiment:
    """A measure, wherever it comes from: what it declares, its knobs, and how it is called with them.

    ``unmeasured`` makes the rows of a diverged model from its status, where one row is not enough. ``pauses`` gives the
    steps of a training at which ``at_pause`` measures the model as it is then.
    """

    main: str | None
    needs_training: bool
    knobs: Mapping[str, Knob]
    check: Callable[..., object]
    measure: Callable[..., list[Row]]
    unmeasured: Callable[..., list[Row]] | None = None
    pauses: Callable[..., set[int]] = lambda train, **given: set()
    at_pause: Callable[..., list[Row]] = lambda subject, step, tokens, **given: []


def experiment_names() -> list[str]:
    """Return the names of all measures."""
    ours = [entry.name for entry in entries()]
    if taken := {*ours} & {*measures.names()}:
        raise PluginError(f"experiment {min(taken)!r} is one of this repository's; give yours another name")
    return [*ours, *measures.names()]


def load_experiment(name: str, given: Mapping[str, Any] | None = None) -> Experiment:
    """Import a measure by name and check the knobs it is given; ValueError for a name or value that is wrong."""
    if name not in (known := experiment_names()):
        raise ValueError(f"no experiment named {name!r}.{hint(str(name), known)}")
    found = _own(measures.get(name)) if name in measures.names() else _module(name)
    if given is not None:
        check_knobs(name, found.knobs, given)
        for knob, value in given.items():
            check_value(f"{name}.{knob}", found.knobs[knob].limited, value)
        found.check(**given)
    return found


@cache
def _module(name: str) -> Experiment:
    package, module = package_of(name), import_module(f"experiments.measures.{name}.measure")
    declared = package.MAIN, package.NEEDS_TRAINING, knobs(module.measure)
    check = getattr(module, "check", lambda **given: None)
    more = {part: getattr(module, part) for part in ("unmeasured", "pauses", "at_pause") if hasattr(module, part)}
    return Experiment(*declared, check, module.measure, **more)


def _own(cls: type[Measure]) -> Experiment:
    return Experiment(
        cls.main, cls.needs_training, knobs(cls), cls, lambda subject, **given: cls(**given).rows(subject)
    )
