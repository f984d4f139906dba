"""What there is to choose from, read from the source files without importing them: help must not wait for torch."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Entry:
    """One line of a menu: a name, its sentence, and its options with their defaults."""

    name: str
    sentence: str
    knobs: dict[str, str]


def registered(*places: Path) -> list[Entry]:
    """Every class that a decorator ``@…register("name")`` enters, in files or folders, sorted by name."""
    files = [file for place in places for file in (sorted(place.glob("*.py")) if place.is_dir() else [place])]
    classes = {
        node.name: node
        for file in files
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    }
    entries = [
        Entry(name, _sentence(node), _knobs(node, classes))
        for node in classes.values()
        for name in _registered_names(node)
    ]
    return sorted(entries, key=lambda entry: entry.name)


@cache
def experiments() -> tuple[Entry, ...]:
    """Every experiment: a module beside this one without a leading underscore that has ``measure``."""
    entries = []
    for file in sorted((ROOT / "experiments" / "measures").glob("*/measure.py")):
        module = ast.parse(file.read_text(encoding="utf-8"))
        for node in module.body:
            if isinstance(node, ast.FunctionDef) and node.name == "measure":
                entries.append(Entry(file.parent.name, _sentence(module), _keyword_only(node)))
    return tuple(entries)


def encoders() -> list[Entry]:
    """Every encoder of this package."""
    own = {entry.name for entry in numberings()}
    return [entry for entry in registered(ROOT / "pe_zoo") if entry.name not in own]


def tasks() -> list[Entry]:
    """Every task."""
    return registered(ROOT / "experiments" / "tasks", ROOT / "experiments" / "tasks" / "kinds")


def numberings() -> list[Entry]:
    """Every numbering."""
    return registered(ROOT / "pe_zoo" / "_numberings.py")


def _sentence(node: ast.ClassDef | ast.Module) -> str:
    text = (ast.get_docstring(node) or "").split("\n\n")[0].replace("\n", " ")
    return text.split(". ")[0].rstrip(".")


def _registered_names(node: ast.ClassDef) -> list[str]:
    return [
        call.args[0].value
        for call in node.decorator_list
        if isinstance(call, ast.Call)
        and ast.unparse(call.func).endswith("register")
        and isinstance(call.args[0], ast.Constant)
        and isinstance(call.args[0].value, str)
    ]


def _knobs(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> dict[str, str]:
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            return _keyword_only(item)
    parents = [classes[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in classes]
    return _knobs(parents[0], classes) if parents else {}


def _keyword_only(function: ast.FunctionDef) -> dict[str, str]:
    defaults = [ast.unparse(default) if default else "" for default in function.args.kw_defaults]
    return dict(zip((argument.arg for argument in function.args.kwonlyargs), defaults, strict=True))
