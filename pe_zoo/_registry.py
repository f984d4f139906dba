"""Registries: name to class. What this package, installed plug-ins and files bring all registers here."""

import hashlib
import importlib
import importlib.util
import pkgutil
import re
import sys
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Generic, TypeVar

from pe_zoo._encoder import Encoder, Geometry
from pe_zoo._knobs import check_knobs, hint, knobs, suggestion

T = TypeVar("T")
C = TypeVar("C", bound=type)


class Registry(Generic[T]):
    """Names and classes of one ``kind``, all of which extend ``parent``; packages add theirs by an entry point."""

    def __init__(self, kind: str, parent: type[T], entry_point: str = "") -> None:
        self.kind, self.parent, self.entry_point = kind, parent, entry_point
        self._classes: dict[str, type[T]] = {}
        _registries.append(self)

    def register(self, name: str) -> Callable[[C], C]:
        """Class decorator: register a class under a name and set its ``name``; a name can be registered once."""
        if not re.fullmatch(r"[a-z][a-z0-9_]*", str(name)):  # a class, where the brackets were forgotten
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

    def names(self) -> list[str]:
        """Every registered name, sorted; installed plug-ins included."""
        self.load_plugins()
        return sorted(self._classes)

    def get(self, name: str) -> type[T]:
        """Return the class of a name; the message for an unknown one names the nearest."""
        if name not in (known := self.names()):
            raise ValueError(f"no {self.kind} named {name!r}.{hint(str(name), known)}")
        return self._classes[name]

    def build(self, name: str, *arguments: Any, **given: Any) -> T:
        """Construct by name: positional arguments first, then knobs, whose names are checked."""
        cls = self.get(name)
        check_knobs(name, knobs(cls), given)
        return cls(*arguments, **given)

    def load_plugins(self) -> None:
        """Import every installed package that offers some by the entry point, once."""
        for entry in _offered(self.entry_point, tuple(sys.path)) if self.entry_point else ():
            key = f"{self.entry_point} {entry.name} = {entry.value}"
            if key in _loaded:
                continue
            try:
                with _all_or_nothing():
                    entry.load()
                    package = entry.module.partition(".")[0]
                    if package not in {of.__module__.partition(".")[0] for of in self._classes.values()}:
                        raise LookupError(f"{entry.module} registers no {self.kind}")
            except (Exception, SystemExit) as error:
                package = entry.dist.name if entry.dist else "an installed package"
                failed = f"{self.kind} plug-in {entry.name!r} of {package} failed to import"
                raise PluginError(f"{failed}: {type(error).__name__}: {error}. Repair or uninstall it") from error
            _loaded.add(key)


class PluginError(ImportError):
    """What comes from outside could not be imported; a comparison must not lose it silently."""


_registries: list[Registry[Any]] = []
_loaded: set[str] = set()
"""Plug-ins and files imported so far."""
encoders: Registry[Encoder] = Registry("encoder", Encoder, "pe_zoo.encoders")

register = encoders.register
"""Class decorator: register an encoder under a name."""
get = encoders.get
"""Return the class of an encoder."""


def outside(encoder: type[Encoder]) -> bool:
    """Return whether an encoder is somebody else's: of a plug-in file or an installed package."""
    return not encoder.__module__.startswith("pe_zoo.")


def names(axes: int | None = 1, plane: str = "grid") -> list[str]:
    """Every encoder of sequences, sorted; installed plug-ins included. ``axes=2``: those of grids; None: all.

    ``plane`` says what two axes are: ``grid``, or ``segments`` for the encoders of segments.
    """
    return [name for name in encoders.names() if axes is None or _takes(get(name), axes, plane)]


def _takes(encoder: type[Encoder], axes: int, plane: str) -> bool:
    return encoder.axes == axes and (axes == 1 or encoder.plane == plane)


def build(name: str, geometry: Geometry, **knobs: Any) -> Encoder:
    """Build an encoder; each knob has its published value as default.

    Raises:
        ValueError: an unknown name or knob (the message names the nearest), or a value out of range.
    """
    return encoders.build(name, geometry, **knobs)


@cache
def _offered(entry_point: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """The entry points of installed packages, whose look-up reads every package's metadata."""
    return tuple(entry_points(group=entry_point))


@contextmanager
def _all_or_nothing() -> Iterator[None]:
    """Check the knobs of what is registered within; undo all of it if an error is raised."""
    before = {registry: dict(registry._classes) for registry in _registries}
    try:
        yield
        for registry, known in before.items():
            for name in registry._classes.keys() - known.keys():
                knobs(registry._classes[name])
    except BaseException:
        for registry, known in before.items():
            registry._classes = known
        raise


def load_file(path: str | Path) -> str:
    """Import a Python file that registers encoders, tasks or measures; return the sha256 of its bytes.

    Raises:
        PluginError: it cannot be imported, or registers nothing.
    """
    file = Path(path).resolve()
    if not file.is_file():
        near = suggestion(str(path), map(str, Path(path).parent.glob("*.py")))
        raise PluginError(f"plug-in file {str(path)!r} does not exist.{near} An encoder to copy: docs/your_own.md")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    key = f"{file}:{digest}"
    if key in _loaded:
        return digest
    if registered_by(file):
        raise PluginError(f"plug-in file {str(path)!r} has changed since it was read: start again; what ended is kept")
    module_name = f"pe_zoo_plugin_{digest[:12]}"
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise PluginError(f"plug-in file {str(path)!r} is not a Python file")
    before = {registry: set(registry._classes) for registry in _registries}
    module = sys.modules[module_name] = importlib.util.module_from_spec(spec)
    try:
        with _all_or_nothing():
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[module_name]
        raise PluginError(f"plug-in file {str(path)!r} failed to import: {type(error).__name__}: {error}") from error
    if not registered_by(file) and all(before[registry] == set(registry._classes) for registry in before):
        remedy = "decorate an encoder with @pe_zoo.register('name')"
        raise PluginError(f"plug-in file {str(path)!r} registers nothing; {remedy}")
    _loaded.add(key)
    return digest


def load_files(paths: str | Sequence[str], used: Container[str] | None = None) -> str | None:
    """Import a file or several; return what results depend on: its sha256, or that of all of theirs in any order.

    Where names are ``used``, only files that register one of them count; None if there is none.
    """
    files = [paths] if isinstance(paths, str) else paths
    loaded = [(load_file(path), registered_by(Path(path).resolve())) for path in files]
    digests = sorted(digest for digest, own in loaded if used is None or any(name in used for _, name in own))
    if len(digests) < 2:
        return digests[0] if digests else None
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def registered_by(file: Path) -> list[tuple[str, str]]:
    """Return the kind and the name of everything that a file which was imported registers."""
    return [
        (registry.kind, name)
        for registry in _registries
        for name, of in registry._classes.items()
        if getattr(sys.modules.get(of.__module__), "__file__", None) == str(file)
    ]


def load_catalogue(package: str, search_path: list[str]) -> None:
    """Import every module of a package whose name has no leading underscore, so that each registers its entry."""
    for module in pkgutil.iter_modules(search_path):
        if not module.name.startswith("_") and not module.ispkg:
            importlib.import_module(f"{package}.{module.name}")
