"""The arrows: who may import whom, who may know an encoder by name, and what files may be called."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pe_zoo

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = sorted((ROOT / "pe_zoo").rglob("*.py"))
HARNESS = sorted((ROOT / "experiments").rglob("*.py"))
COMMANDS = [path for path in (ROOT / "run.py", ROOT / "report.py") if path.exists()]

ASKS_HYDRA = {"run.py", "experiments/_config.py"}
KNOWS_ROWS_ONLY = [
    *("_table.py", "_results.py", "_stats.py", "_reach.py", "_style.py", "_report.py", "_page.py", "_words.py"),
    *("_claims.py", "_claims_page.py", "_fair_page.py", "_reach_page.py", "_status.py", "_sweeps.py", "_untrusted.py"),
]
HEAVY = {"torch", "hydra", "omegaconf", "pe_zoo", "safetensors"}
NAMES_ALLOWED = {
    ("experiments/_style.py", name) for name in ("none", "sinusoidal", "learned", "rope", "alibi", "t5")
} | {
    ("experiments/_stats.py", "none"),  # the baseline of a comparison
    ("pe_zoo/_knobs.py", "none"),  # the English word
    ("experiments/_plan.py", "path"),  # a task's option, and the English word
    ("experiments/_style.py", "path"),  # how SVG draws text
}
"""Where an encoder's name may stand outside its own file: the colours of figures, and a default."""
OTHER_WORDS = {"reduction", "linestyle", "edgecolor", "facecolor", "color", "marker"}
"""Arguments of torch and matplotlib that take a word such as ``none``."""


PEERS = "experiments/peers/"
"""Says which of other libraries' settings are which encoder here."""


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(tree: ast.AST, *, lazy: bool = True) -> Iterator[str]:
    """Every module imported, inside functions too unless told; what only type checkers see is left out."""
    only_types = {
        id(inner)
        for node in ast.walk(tree)
        if (isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"))
        or (isinstance(node, ast.FunctionDef) and not lazy)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in only_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            name = node.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield name.value


def roots(source: str) -> set[str]:
    return {name.split(".")[0] for name in imports(ast.parse(source))}


def names_in(source: str, known: set[str]) -> set[str]:
    """Encoders' names that stand in a source as strings, arguments of other libraries aside."""
    tree = ast.parse(source)
    aside = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg in OTHER_WORDS
        for inner in ast.walk(node.value)
    }
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value in known
        and id(node) not in aside
    }


@pytest.mark.parametrize("path", LIBRARY, ids=relative)
def test_the_library_imports_torch_and_nothing_of_ours(path: Path) -> None:
    assert roots(path.read_text(encoding="utf-8")) <= {*sys.stdlib_module_names, "torch", "pe_zoo"}


@pytest.mark.parametrize("path", [*HARNESS, *COMMANDS], ids=relative)
def test_only_two_files_know_hydra(path: Path) -> None:
    if relative(path) not in ASKS_HYDRA:
        assert not roots(path.read_text(encoding="utf-8")) & {"hydra", "omegaconf"}


@pytest.mark.parametrize("path", HARNESS, ids=relative)
def test_experiments_do_not_import_commands_or_tests(path: Path) -> None:
    assert not roots(path.read_text(encoding="utf-8")) & {"run", "report", "tests", "conftest"}


@pytest.mark.parametrize("name", [*(f"experiments/{name}" for name in KNOWS_ROWS_ONLY), "report.py"])
def test_what_knows_rows_knows_no_models(name: str) -> None:
    if not (ROOT / name).exists():
        pytest.skip(f"{name} does not exist yet")
    assert not roots((ROOT / name).read_text(encoding="utf-8")) & HEAVY


@pytest.mark.parametrize("name", [*(f"experiments/{name}" for name in KNOWS_ROWS_ONLY), "report.py"])
def test_neither_does_what_it_imports(name: str) -> None:
    """Experiments may import a model where they measure, inside the function; a report does not call that."""
    if not (ROOT / name).exists():
        pytest.skip(f"{name} does not exist yet")
    waiting, seen = [ROOT / name], set()
    while waiting:
        current = waiting.pop()
        seen.add(current)
        found = set(imports(ast.parse(current.read_text(encoding="utf-8")), lazy=current == ROOT / name))
        assert not {module.split(".")[0] for module in found} & HEAVY, f"{name}, through {relative(current)}"
        places = [ROOT / f"{module.replace('.', '/')}{end}" for module in found for end in (".py", "/__init__.py")]
        waiting += [place for place in places if module_of_ours(place) and place not in seen]
    if name == "report.py":
        assert ROOT / "experiments" / "_table.py" in seen, "the walk goes somewhere"


def module_of_ours(place: Path) -> bool:
    return place.is_relative_to(ROOT / "experiments") and place.exists()


@pytest.mark.parametrize("path", [*LIBRARY, *HARNESS, *COMMANDS], ids=relative)
def test_nobody_knows_an_encoder_by_name_but_its_own_file(path: Path) -> None:
    homes = {name: pe_zoo.get(name).__module__ for name in pe_zoo.names()}
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    others = {name for name, home in homes.items() if home != module}
    source = path.read_text(encoding="utf-8")
    for name in names_in(source, others):
        if relative(path).startswith(PEERS):
            continue
        assert (relative(path), name) in NAMES_ALLOWED, f"{relative(path)} knows the encoder {name!r} by name"
    modules = {home for name, home in homes.items() if name in others}
    if not path.is_relative_to(ROOT / "pe_zoo"):
        assert not modules & set(imports(ast.parse(source))), "imports an encoder's own module"


def test_no_exception_is_left_over() -> None:
    for place, name in NAMES_ALLOWED:
        if (ROOT / place).exists():
            assert name in names_in((ROOT / place).read_text(encoding="utf-8"), {name}), (
                f"{place} no longer says {name!r}"
            )


@pytest.mark.parametrize("name", ["utils.py", "helpers.py", "base.py", "constants.py", "common.py", "misc.py"])
def test_no_file_for_everything(name: str) -> None:
    for folder in ("pe_zoo", "experiments", "tests"):
        assert not list((ROOT / folder).rglob(name))
        assert not list((ROOT / folder).rglob(f"_{name}"))


def test_the_checks_see_what_they_look_for() -> None:
    assert roots("def f():\n    import hydra.core\n") == {"hydra"}
    assert roots("import importlib\nimportlib.import_module('torch.nn')") == {"importlib", "torch"}
    assert roots("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\n") == {"typing"}
    assert roots("def f():\n    from torch import nn\n") == {"torch"}
    assert list(imports(ast.parse("def f():\n    import torch\nimport ast"), lazy=False)) == ["ast"]
    assert names_in("if encoder.name == 'rope': pass", {"rope", "none"}) == {"rope"}
    assert names_in("kinds = {'rope': 1}", {"rope", "none"}) == {"rope"}
    assert names_in("match name:\n    case 'rope': pass", {"rope"}) == {"rope"}
    assert names_in("loss(x, reduction='none')", {"none"}) == set()
    assert len(LIBRARY) > 5
    assert len(HARNESS) > 5
