"""The catalogue: what docstrings say of encoders, numberings, tasks and measures. The only reader of docstrings.

It reads source files without importing them, so that a help text or a report does not wait for torch.
"""

import ast
import inspect
import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

LIBRARY = Path(__file__).parent
CITATION = re.compile(
    r"(?P<authors>(?:[A-Z][\w'’-]+ et al\.|(?:[A-Z][\w'’-]+, )*[A-Z][\w'’-]+ and [A-Z][\w'’-]+|[A-Z][\w'’-]+))"
    r" \((?P<year>\d{4})\),? "
    r"(?:arXiv:(?P<arxiv>\d{4}\.\d{4,5})|(?P<page>[a-z]+\.[a-z]+/[\w/-]*\w))(?:, (?P<section>§[\d.]*\d))?"
)
"""Authors, year, arXiv id or page of the web, section: ``Su et al. (2021), arXiv:2104.09864, §3.2``."""


@dataclass(frozen=True)
class Paper:
    """A citation: of arXiv, or, where the method stands nowhere else, of a page of the web."""

    authors: str
    year: str
    arxiv: str
    section: str = ""
    page: str = ""

    @property
    def link(self) -> str:
        return f"https://{self.page or f'arxiv.org/abs/{self.arxiv}'}"

    @property
    def number(self) -> str:
        return self.link if self.page else f"arXiv:{self.arxiv}"

    def __str__(self) -> str:
        return f"{self.authors} ({self.year}), {self.number}" + (f", {self.section}" if self.section else "")


@dataclass(frozen=True)
class Knob:
    """A knob as documented: its default as written, and what it does and may be."""

    default: str
    description: str = ""


@dataclass(frozen=True)
class Entry:
    """A docstring in its parts.

    Args:
        name: the registered name; for a measure, its folder's.
        summary: the first paragraph, on one line.
        paragraphs: those that follow; an equation keeps its lines and its indentation.
        knobs: by name, in the order of the signature.
        departures: from the paper or its official code.
        declared: attributes that the class sets to a constant, such as ``extends``.
    """

    name: str
    summary: str = ""
    paragraphs: tuple[str, ...] = ()
    knobs: Mapping[str, Knob] = field(default_factory=dict)
    departures: str = ""
    declared: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sentence(self) -> str:
        """The first sentence of the summary, without its full stop."""
        return re.split(r"(?<! al)\. ", self.summary)[0].rstrip(".")

    @property
    def equation(self) -> str:
        """The indented paragraphs."""
        return "\n\n".join(inspect.cleandoc(block) for block in self.paragraphs if block.startswith(" "))

    @property
    def papers(self) -> tuple[Paper, ...]:
        """The papers that the summary cites."""
        return tuple(Paper(**cited.groupdict("")) for cited in CITATION.finditer(self.summary))


def parse(name: str, docstring: str | None, knobs: Mapping[str, Knob] | None = None) -> Entry:
    """Split a docstring into summary, paragraphs, ``Args`` (which describes ``knobs``) and ``Departures``.

    >>> entry = parse("rope", "Rotates. Su et al. (2021), arXiv:2104.09864, §3.2.")
    >>> print(entry.sentence, *entry.papers, sep="; ")
    Rotates; Su et al. (2021), arXiv:2104.09864, §3.2
    """
    text, _, departures = inspect.cleandoc(docstring or "").partition("\nDepartures:")
    text, _, arguments = text.partition("\nArgs:\n")
    summary, *blocks = re.split(r"\n(?: *\n)+", text.strip("\n"))
    paragraphs = tuple(block if block.startswith(" ") else " ".join(block.split()) for block in blocks)
    described = re.findall(r"^ {4}(\w+): ((?:.*\n?)(?: {8}.*\n?|\n)*)", arguments, flags=re.MULTILINE)
    told = {knob: " ".join(words.split()) for knob, words in described}
    known = {own: replace(knob, description=told.get(own, knob.description)) for own, knob in (knobs or {}).items()}
    return Entry(name, summary.replace("\n", " "), paragraphs, known, " ".join(departures.split()))


def of_file(file: Path) -> Entry:
    """What the comment at the head of a YAML file says."""
    lines = itertools.takewhile(lambda line: line.startswith("#"), file.read_text(encoding="utf-8").splitlines())
    return Entry(file.stem, " ".join(line[2:] for line in lines if not line.startswith("# @package")))


@cache
def encoders() -> tuple[Entry, ...]:
    """Every encoder of this package, sorted by name."""
    return registered(*LIBRARY.glob("[!_]*.py"))


@cache
def numberings() -> tuple[Entry, ...]:
    """Every numbering, sorted by name."""
    return registered(LIBRARY / "_numberings.py")


def registered(*files: Path) -> tuple[Entry, ...]:
    """Every class that a decorator ``@…register("name")`` enters, sorted by name.

    Knobs of a class without a constructor are those of its parents, where these files have them.
    """
    modules = [_parsed(file) for file in files]
    classes = {of.name: (of, module) for module in modules for of in module.body if isinstance(of, ast.ClassDef)}

    def entry(name: str, node: ast.ClassDef, module: ast.Module) -> Entry:
        inherited: dict[str, Knob] = {}
        for base in node.bases:
            if isinstance(base, ast.Name) and base.id in classes:
                inherited = {**entry("", *classes[base.id]).knobs, **inherited}  # the first of two parents decides
        for constructor in _functions(node, "__init__"):
            inherited = _knobs(constructor, module, inherited)
        set_here = [item for item in node.body if isinstance(item, ast.Assign) and isinstance(item.value, ast.Constant)]
        declared = {ast.unparse(target): ast.literal_eval(item.value) for item in set_here for target in item.targets}
        return replace(parse(name, ast.get_docstring(node), inherited), declared=declared)

    entries = [entry(name, *of) for of in classes.values() for name in _names(of[0])]
    return tuple(sorted(entries, key=lambda entry: entry.name))


@cache
def tasks(folder: Path) -> tuple[Entry, ...]:
    """Every task of a folder, sorted by name."""
    return registered(*folder.rglob("*.py"))


@cache
def measures(folder: Path) -> tuple[Entry, ...]:
    """Every measure of a folder: what its package says, with the knobs of ``measure`` in ``measure.py``."""
    entries = []
    for file in sorted(folder.glob("*/measure.py")):
        module = _parsed(file)
        for function in _functions(module, "measure"):
            knobs = parse("", ast.get_docstring(function), _knobs(function, module, {})).knobs
            package = _parsed(file.with_name("__init__.py"))
            entries.append(parse(file.parent.name, ast.get_docstring(package), knobs))
    return tuple(entries)


def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def _functions(node: ast.ClassDef | ast.Module, name: str) -> list[ast.FunctionDef]:
    return [item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == name]


def _names(node: ast.ClassDef) -> list[str]:
    calls = [call for call in node.decorator_list if isinstance(call, ast.Call)]
    names = [call.args[0] for call in calls if ast.unparse(call.func).endswith("register")]
    return [str(name.value) for name in names if isinstance(name, ast.Constant)]


def _knobs(function: ast.FunctionDef, module: ast.Module, inherited: Mapping[str, Knob]) -> dict[str, Knob]:
    constants = {ast.unparse(item.targets[0]): item.value for item in module.body if isinstance(item, ast.Assign)}
    knobs = {}
    for argument, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        written = ast.unparse(constants.get(ast.unparse(default), default)) if default else ""
        knobs[argument.arg] = replace(inherited.get(argument.arg, Knob("")), default=written.strip("'"))
    return knobs
