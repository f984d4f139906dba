"""The arrows: who may import whom, who may know an encoder by name, and what files may be called."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import ROOT

import pe_zoo

LIBRARY = sorted((ROOT / "pe_zoo").rglob("*.py"))
HARNESS = sorted((ROOT / "experiments").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
COMMANDS = [path for path in (ROOT / "run.py", ROOT / "report.py") if path.exists()]

LAYERS = [
    ("rows",),
    ("statistics", "tasks", "model"),
    ("figures", "training"),
    ("measures",),
    ("report",),
    ("plan",),
    ("pipeline",),
    ("runs",),
    ("peers",),
    ("__main__",),
]
"""A layer imports itself and those before it; of two side by side neither imports the other."""
MAY_IMPORT = {
    "torch": {"tasks", "model", "training", "measures", "plan", "pipeline", "runs", "peers"},
    "pe_zoo": {"tasks", "model", "training", "measures", "plan", "pipeline", "runs", "peers", "__main__"},
    "matplotlib": {"figures", "measures", "report"},
    "hydra": {"runs/config.py", "run.py"},
    "omegaconf": {"runs/config.py", "run.py"},
}
"""Package -> layers and files that may import it."""
ROWS_ONLY = ("rows", "statistics", "figures", "report")
HEAVY = {"torch", "hydra", "omegaconf", "pe_zoo", "safetensors"}
READER = "pe_zoo._catalogue"
"""All of the library that a report may import: it reads source files, without torch."""
NAMES_ALLOWED = {
    *(("experiments/figures/style.py", name) for name in ("none", "sinusoidal", "learned", "rope", "alibi", "t5")),
    *(("pe_zoo/bipe.py", name) for name in ("rope", "alibi", "learned", "sinusoidal")),  # what it is made of, published
    ("experiments/statistics/baselines.py", "none"),
    ("experiments/statistics/baselines.py", "rope"),
    ("pe_zoo/layered.py", "rope"),  # the encoders of its published list
    ("pe_zoo/_knobs.py", "none"),  # the English word
    ("pe_zoo/hf/checkpoint.py", "rope"),  # what the rotation of a saved model is, if it is that
    ("pe_zoo/hf/checkpoint.py", "none"),  # what stands in the layers of one that do not rotate
    ("pe_zoo/hf/own.py", "rope"),  # what models rotate by
    ("experiments/measures/context_extension/lines.py", "rope"),  # the same, in the line that puts a window into one
    ("pe_zoo/hf/families.py", "fox"),  # what families are tried with: it reads the layer's input
    ("experiments/report/drawing.py", "none"),  # a class of the style sheet
    ("experiments/plan/request.py", "path"),  # a task's option, and the English word
}
"""Where an encoder's name may stand outside its own file: the colours of figures, and a default."""
OTHER_WORDS = {
    "reduction",
    "linestyle",
    "edgecolor",
    "facecolor",
    "markerfacecolor",
    "color",
    "marker",
    "interpolation",
}
"""Arguments of torch and matplotlib that take a word such as ``none``."""
DECLARED = {"relative_of", "extends"}
"""Attributes of an encoder's class that name another; the contract holds them."""

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


def but_the_reader(path: Path) -> ast.Module:
    """A file without the lines that import nothing but ``READER``."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package, _, module = READER.partition(".")
    tree.body = [
        node
        for node in tree.body
        if not (
            isinstance(node, ast.ImportFrom)
            and (node.module == READER or (node.module == package and [one.name for one in node.names] == [module]))
        )
    ]
    return tree


@functools.cache
def imported_by(path: Path) -> frozenset[str]:
    """What a file imports, ``READER`` aside; kept, since many walks pass by it."""
    return frozenset(imports(but_the_reader(path)))


def roots(source: str) -> set[str]:
    return {name.split(".")[0] for name in imports(ast.parse(source))}


def names_in(source: str, known: set[str]) -> set[str]:
    """Encoders' names that stand in a source as strings, but for what classes declare and other libraries take."""
    tree = ast.parse(source)
    aside = {
        id(inner)
        for node in ast.walk(tree)
        if (isinstance(node, ast.keyword) and node.arg in OTHER_WORDS)
        or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in DECLARED)
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
    more = {"transformers", "safetensors"} if path.parent.name == "hf" else set()
    assert roots(path.read_text(encoding="utf-8")) <= {*sys.stdlib_module_names, "torch", "pe_zoo"} | more


def test_nothing_else_of_the_library_needs_what_hugging_face_needs() -> None:
    others = [path for path in LIBRARY if path.parent.name != "hf"]
    assert not [path for path in others if "pe_zoo.hf" in set(imports(ast.parse(path.read_text(encoding="utf-8"))))]


def layer(path: Path) -> str:
    """``rows`` for experiments/rows/row.py, ``pipeline`` for experiments/pipeline.py, ``run.py`` for itself."""
    parts = path.relative_to(ROOT).parts
    return parts[1].removesuffix(".py") if parts[0] == "experiments" else parts[0]


@pytest.mark.parametrize("path", [path for path in HARNESS if layer(path) != "__init__"], ids=relative)
def test_a_layer_imports_only_layers_before_it(path: Path) -> None:
    order = {name: place for place, names in enumerate(LAYERS) for name in names}
    own = layer(path)
    for module in imports(ast.parse(path.read_text(encoding="utf-8"))):
        other = module.split(".")[1] if module.startswith("experiments.") else own
        assert other == own or order[other] < order[own], f"{own} imports {module}"


@pytest.mark.parametrize("path", [*HARNESS, *COMMANDS], ids=relative)
def test_heavy_packages_stay_in_their_layers(path: Path) -> None:
    if layer(path) == "__init__":
        return
    here = {layer(path), relative(path), relative(path).removeprefix("experiments/")}
    for package in {module.split(".")[0] for module in imports(but_the_reader(path))} & set(MAY_IMPORT):
        assert here & MAY_IMPORT[package], f"{relative(path)} imports {package}"


@pytest.mark.parametrize("path", sorted((ROOT / "experiments" / "measures").rglob("*.py")), ids=relative)
def test_no_file_of_a_measure_both_asks_a_model_and_draws(path: Path) -> None:
    found = roots(path.read_text(encoding="utf-8"))
    assert not {"torch", "pe_zoo"} & found or not {"matplotlib", "seaborn", "pandas"} & found


def test_there_are_no_circles() -> None:
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in HARNESS
    }
    arrows = {
        name: {found for found in imports(ast.parse(path.read_text(encoding="utf-8"))) if found in modules} - {name}
        for name, path in modules.items()
    }
    done: set[str] = set()

    def walk(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, " -> ".join([*above[above.index(name) :], name])
        if name not in done:
            for other in sorted(arrows[name]):
                if not name.startswith(f"{other}."):  # a package is imported before what is in it
                    walk(other, (*above, name))
            done.add(name)

    for name in sorted(modules):
        walk(name, ())


@pytest.mark.parametrize("path", HARNESS, ids=relative)
def test_experiments_do_not_import_commands_or_tests(path: Path) -> None:
    assert not roots(path.read_text(encoding="utf-8")) & {"run", "report", "tests", "conftest"}


@pytest.mark.parametrize(
    "path", [*(path for path in HARNESS if layer(path) in ROWS_ONLY), ROOT / "report.py"], ids=relative
)
def test_what_knows_rows_reaches_no_model(path: Path) -> None:
    waiting, seen = [path], set()
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        found = imported_by(current)
        assert not {module.split(".")[0] for module in found} & HEAVY, f"{relative(path)}, through {relative(current)}"
        places = [ROOT / f"{module.replace('.', '/')}{end}" for module in found for end in (".py", "/__init__.py")]
        waiting += [place for place in places if module_of_ours(place) and place not in seen]
    if path.name == "report.py":
        assert ROOT / "experiments" / "rows" / "row.py" in seen, "the walk goes somewhere"


def test_the_reader_of_docstrings_does_not_import_torch() -> None:
    code = f"import sys, {READER}, experiments.measures as m; m.entries(); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


def module_of_ours(place: Path) -> bool:
    return place.is_relative_to(ROOT / "experiments") and place.exists()


@pytest.mark.parametrize("path", [*LIBRARY, *HARNESS, *COMMANDS], ids=relative)
def test_nobody_knows_an_encoder_by_name_but_its_own_file(path: Path) -> None:
    homes = {name: pe_zoo.get(name).__module__ for name in pe_zoo.names(None)}
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


def test_tests_share_by_support_and_fixtures_alone() -> None:
    modules = {path.stem for path in TESTS} - {"support", "simulation"}
    found = {relative(path): roots(path.read_text(encoding="utf-8")) & modules for path in TESTS}
    assert not {path: names for path, names in found.items() if names}


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
    assert names_in("class A:\n    extends = 'rope'\n    other = 'none'", {"rope", "none"}) == {"none"}
    assert len(LIBRARY) > 5
    assert len(HARNESS) > 5
