"""Registries: name to class. Encoders of this package, of installed plug-ins and of files all register here."""

import hashlib
import importlib
import importlib.util
import pkgutil
import re
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Generic, TypeVar

from pe_zoo._encoder import Encoder, Geometry
from pe_zoo._knobs import check_knobs, hint, knobs

ENTRY_POINT_GROUP = "pe_zoo.encoders"

T = TypeVar("T")
C = TypeVar("C", bound=type)


class Registry(Generic[T]):
    """Names and classes of one ``kind``, all of which extend ``parent``."""

    def __init__(self, kind: str, parent: type[T]) -> None:
        self.kind = kind
        self.parent = parent
        self._classes: dict[str, type[T]] = {}

    def register(self, name: str) -> Callable[[C], C]:
        """Class decorator: register a class under a name and set its ``name``; a name can be registered once."""
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            raise ValueError(f"{self.kind} name {name!r}: use lower snake case, such as 'rope' or 'transformer_xl'")

        def enter(cls: C) -> C:
            if not issubclass(cls, self.parent):
                raise TypeError(f"{cls.__name__} must extend {self.parent.__name__} to be registered as {name!r}")
            if name in self._classes:
                holder, other = (f"{of.__module__}.{of.__qualname__}" for of in (self._classes[name], cls))
                raise ValueError(f"{self.kind} {name!r} is already {holder}; {other} needs another name")
            cls.name = name  # type: ignore[attr-defined]
            self._classes[name] = cls
            return cls  # type: ignore[return-value]

        return enter

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Undo the registrations within if an error is raised."""
        before = dict(self._classes)
        try:
            yield
        except BaseException:
            self._classes = before
            raise

    def names(self) -> list[str]:
        """Every registered name, sorted."""
        return sorted(self._classes)

    def get(self, name: str) -> type[T]:
        """Return the class of a name; the message for an unknown one names the nearest."""
        if name not in self._classes:
            known = self.names()
            raise ValueError(f"no {self.kind} named {name!r}.{hint(str(name), known)}")
        return self._classes[name]

    def build(self, name: str, *arguments: Any, **knobs: Any) -> T:
        """Construct by name: positional arguments first, then knobs, whose names are checked."""
        cls = self.get(name)
        check_knobs(name, cls, knobs)
        return cls(*arguments, **knobs)


encoders: Registry[Encoder] = Registry("encoder", Encoder)


register = encoders.register
"""Class decorator: register an encoder under a name."""


def names() -> list[str]:
    """Every encoder's name, sorted; installed plug-ins included."""
    load_plugins()
    return encoders.names()


def get(name: str) -> type[Encoder]:
    """Return the class of an encoder."""
    load_plugins()
    return encoders.get(name)


def build(name: str, geometry: Geometry, **knobs: Any) -> Encoder:
    """Build an encoder; each knob has its published value as default.

    Raises:
        ValueError: an unknown name or knob (the message names the nearest), or a value out of range.
    """
    load_plugins()
    return encoders.build(name, geometry, **knobs)


class PluginError(ImportError):
    """An outside encoder could not be imported; a comparison must not lose it silently."""


_loaded: set[str] = set()
"""Plug-ins and files imported so far."""


@cache
def _offered(path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """The entry points of installed packages, whose look-up reads every package's metadata."""
    return tuple(entry_points(group=ENTRY_POINT_GROUP))


def _check_new(before: Collection[str]) -> None:
    for name in encoders.names():
        if name not in before:
            knobs(encoders.get(name))


def load_plugins() -> None:
    """Import every installed package that offers encoders by an entry point, once."""
    for entry in _offered(tuple(sys.path)):
        key = f"{entry.name} = {entry.value}"
        if key in _loaded:
            continue
        try:
            with encoders.all_or_nothing():
                before = encoders.names()
                entry.load()
                _check_new(before)
                package = entry.module.partition(".")[0]
                if package not in {encoders.get(name).__module__.partition(".")[0] for name in encoders.names()}:
                    raise LookupError(f"{entry.module} registers no encoder")
        except (Exception, SystemExit) as error:
            package = entry.dist.name if entry.dist else "an installed package"
            failed = f"encoder plug-in {entry.name!r} of {package} failed to import: {type(error).__name__}: {error}"
            raise PluginError(f"{failed}. Repair or uninstall it") from error
        _loaded.add(key)


def load_file(path: str | Path) -> str:
    """Import a Python file that registers encoders; return the sha256 of its bytes, on which results depend."""
    file = Path(path).resolve()
    if not file.is_file():
        raise PluginError(f"encoder file {str(path)!r} does not exist")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    key = f"{file}:{digest}"
    if key in _loaded:
        return digest
    before = set(encoders.names())
    module_name = f"pe_zoo_plugin_{digest[:12]}"
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise PluginError(f"encoder file {str(path)!r} is not a Python file")
    module = sys.modules[module_name] = importlib.util.module_from_spec(spec)
    try:
        with encoders.all_or_nothing():
            spec.loader.exec_module(module)
            _check_new(before)
    except (Exception, SystemExit) as error:
        del sys.modules[module_name]
        raise PluginError(f"encoder file {str(path)!r} failed to import: {type(error).__name__}: {error}") from error
    if set(encoders.names()) == before:
        remedy = "decorate one with @pe_zoo.register('name')"
        raise PluginError(f"encoder file {str(path)!r} registers no encoder; {remedy}")
    _loaded.add(key)
    return digest


def load_catalogue(package: str, search_path: list[str]) -> None:
    """Import every module of a package whose name has no leading underscore, so that each registers its entry."""
    for module in pkgutil.iter_modules(search_path):
        if not module.name.startswith("_") and not module.ispkg:
            importlib.import_module(f"{package}.{module.name}")
