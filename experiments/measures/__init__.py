"""The questions asked of a model, a folder each: ``measure.py`` makes rows, ``report.py`` figures and tables."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from pe_zoo import _catalogue


def entries() -> tuple[_catalogue.Entry, ...]:
    """Return every measure, as its source documents it: nothing is imported."""
    return _catalogue.measures(Path(__file__).parent)


def package_of(name: str) -> ModuleType:
    """Import what a measure declares: ``NAME``, ``NEEDS_TRAINING`` and ``MAIN``."""
    return import_module(f"experiments.measures.{name}")


def report_of(name: str) -> ModuleType:
    """Import the report side of one of this repository's measures: ``summarise``, ``plot`` and ``shown``."""
    return import_module(f"experiments.measures.{name}.report")


def plot_of(name: str) -> Callable[..., dict[str, Any]]:
    """Return what draws the figures of a measure; those of one from outside are curves over the length."""
    if has_report(name):
        return report_of(name).plot
    return partial(import_module("experiments.figures.by_length").plot, experiment=name)


def has_report(name: str) -> bool:
    """Return whether a measure is one of this repository, with figures and a table of its own."""
    return name.isidentifier() and find_spec(f"experiments.measures.{name}") is not None
