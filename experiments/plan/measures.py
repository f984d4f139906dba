"""The registry of measures: every folder of ``experiments/measures/`` is one, found by its name."""

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from experiments import measures
from pe_zoo._knobs import check_knobs, hint


def experiment_names() -> list[str]:
    """Return the names of all measures."""
    return [entry.name for entry in measures.entries()]


def load_experiment(name: str, given: Mapping[str, Any] | None = None) -> ModuleType:
    """Import a measure by name and check the knobs it is given; ValueError for a name or value that is wrong.

    The module has ``check(**knobs)`` and ``measure(subject, **knobs)`` -> rows. It may have
    ``unmeasured(subject, status, **knobs)``: the rows of a diverged model, where one row is not enough.
    """
    known = experiment_names()
    if name not in known:
        raise ValueError(f"no experiment named {name!r}.{hint(str(name), known)}")
    module = import_module(f"experiments.measures.{name}.measure")
    if given is not None:
        check_knobs(name, module.measure, given)
        module.check(**given)
    return module
