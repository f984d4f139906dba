"""A page of tables, pictures, curves, cards and paragraphs, and the files it is written to."""

from __future__ import annotations

import base64
import hashlib
import html
import itertools
import re
import textwrap
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import jinja2
import markupsafe
import pandas as pd
from matplotlib.figure import Figure

from experiments.figures import style
from experiments.report.paper import latex
from experiments.rows.row import write_whole
from experiments.rows.untrusted import stays_within

FORMULA = re.compile(r"\s*[=+\-@]")
"""The start of text that a spreadsheet would read as a formula."""


@dataclass(frozen=True)
class Table:
    """A table of strings, ``cells``, and the numbers behind it, ``data``, for the CSV file.

    With ``sortable=False``, readers can neither sort nor filter its lines.
    """

    stem: str
    caption: str
    cells: pd.DataFrame
    data: pd.DataFrame
    note: str = ""
    sortable: bool = True
    kind: ClassVar[str] = "table"


@dataclass(frozen=True)
class Picture:
    """A figure, what it shows in words, and the numbers drawn in it if no table holds them."""

    stem: str
    caption: str
    figure: Figure
    data: pd.DataFrame | None = None
    kind: ClassVar[str] = "picture"


@dataclass(frozen=True)
class Chart:
    """Curves to choose from, drawn by the page's script; ``data`` is what `report.js` expects."""

    caption: str
    data: dict[str, Any]
    kind: ClassVar[str] = "chart"


@dataclass(frozen=True)
class Card:
    """The description of one encoder; ``short`` stands beside its name.

    Knobs are name, default and meaning; papers title and arXiv id.
    """

    name: str
    stem: str
    short: str
    description: str
    equation: str
    knobs: tuple[tuple[str, str, str], ...]
    papers: tuple[tuple[str, str], ...]
    unfolded: bool
    kind: ClassVar[str] = "card"


Part = Table | Picture | Chart | Card


@dataclass
class Section:
    """A heading with its paragraphs and parts."""

    title: str
    paragraphs: list[str] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    level: int = 2


@dataclass
class Page:
    """The whole report, before it is HTML or Markdown."""

    title: str
    summary: list[str]
    warnings: list[str]
    method: list[str]
    sections: list[Section]

    @property
    def parts(self) -> list[Part]:
        """The parts of all sections."""
        return [part for section in self.sections for part in section.parts]


def write(page: Page, folder: Path) -> Path:
    """Write the page, its tables and figures, without those of an earlier report; return the path of ``index.html``."""
    for place in (folder, folder / "tables", folder / "figures"):
        stays_within(place, folder.parent)
        place.mkdir(exist_ok=True)
    page = with_unique_stems(page)
    before = _linked(folder / "index.html")
    grids, images = {}, {}
    files: dict[Path, str | bytes] = {}
    for part in page.parts:
        if isinstance(part, Table | Picture) and part.data is not None:
            files[folder / "tables" / f"{part.stem}.csv"] = spreadsheet(part.data)
        if isinstance(part, Table):
            grids[part.stem] = _grid(part.cells)
            files[folder / "tables" / f"{part.stem}.tex"] = latex.tabular(part.cells)
            files[folder / "tables" / f"{part.stem}.md"] = grids[part.stem] + "\n"
        if isinstance(part, Picture):
            drawn = style.renderings(part.figure)
            files |= {folder / "figures" / f"{part.stem}.{suffix}": content for suffix, content in drawn.items()}
            images[part.stem] = "data:image/svg+xml;base64," + base64.b64encode(drawn["svg"]).decode()
    for path, content in files.items():
        write_whole(path, content, lasting=False)
    for old in [*(folder / "tables").glob("*.*"), *(folder / "figures").glob("*.*")]:
        ours = f"{old.parent.name}/{old.stem}" in before and old.suffix in (".csv", ".tex", ".md", ".svg", ".png")
        if ours and old not in files:
            old.unlink()
    write_whole(folder / "report.md", markdown(page, grids), lasting=False)
    write_whole(folder / "index.html", _html(page, images), lasting=False)
    return folder / "index.html"


def _linked(index: Path) -> set[str]:
    """Return the tables and figures that a page links to, without endings; other files there are not ours."""
    if index.is_symlink() or not index.is_file():
        return set()
    return set(re.findall(r'href="((?:tables|figures)/[^"/]+)\.\w+"', index.read_text("utf-8", errors="replace")))


def with_unique_stems(page: Page) -> Page:
    """Number the second of two parts whose files would have one name, whatever tasks are called."""
    taken: set[str] = set()

    def unique(part: Part) -> Part:
        if not isinstance(part, Table | Picture):
            return part
        stems = (f"{part.stem}-{number}" if number > 1 else part.stem for number in itertools.count(1))
        stem = next(stem for stem in stems if taken.isdisjoint(_files(part, stem)))
        taken.update(_files(part, stem))
        return replace(part, stem=stem)

    return replace(
        page, sections=[replace(section, parts=list(map(unique, section.parts))) for section in page.sections]
    )


def _files(part: Table | Picture, stem: str) -> set[str]:
    """Return where a part is written, without endings, in lower case: some file systems ignore case."""
    table = {f"tables/{stem.lower()}"} if part.data is not None else set()
    return table | ({f"figures/{stem.lower()}"} if isinstance(part, Picture) else set())


def spreadsheet(data: pd.DataFrame) -> str:
    """Return the numbers as CSV; an apostrophe before text keeps a spreadsheet from reading it as a formula."""
    safe = data.copy(deep=False)
    for column in data.select_dtypes(exclude="number"):
        safe[column] = data[column].map(_no_formula)
    return safe.rename(columns=_no_formula).to_csv(index=False, lineterminator="\n")


def _no_formula(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and FORMULA.match(cell) else cell


def markdown(page: Page, grids: dict[str, str]) -> str:
    """Return the page as GitHub Markdown, with figures linked by relative paths and tables taken from ``grids``."""
    lines = [f"# {_md(page.title)}", ""]
    lines += [f"> **Warning.** {_md(warning)}\n" for warning in page.warnings]
    lines += [f"{_md(sentence)}\n" for sentence in page.summary]
    lines += ["## How it was measured\n", _md(" ".join(page.method)), ""]
    for section in page.sections:
        lines += [f"{'#' * section.level} {_md(section.title)}\n"]
        lines += [f"{_md(paragraph)}\n" for paragraph in section.paragraphs]
        for part in section.parts:
            lines += _markdown_part(part, grids)
    return "\n".join(lines).rstrip() + "\n"


def _markdown_part(part: Part, grids: dict[str, str]) -> list[str]:
    if isinstance(part, Table):
        return [f"**{_md(part.caption)}**\n", grids[part.stem], "", *([f"{_md(part.note)}\n"] * bool(part.note))]
    if isinstance(part, Picture):
        return [f"![{_md(part.caption)}](figures/{part.stem}.png)\n", f"{_md(part.caption)}\n"]
    if isinstance(part, Chart):
        return []
    equation = [textwrap.indent(part.equation, "    ") + "\n"] * bool(part.equation)
    return [
        f"**{_md(part.name)}.** {_md(part.description)}\n",
        *equation,
        *([f"{_md(part.short)}\n"] * bool(part.short)),
    ]


def _grid(cells: pd.DataFrame) -> str:
    written = cells.rename(columns=_md).map(_md)
    return written.to_markdown(index=False, disable_numparse=True, tablefmt="github")


def _md(text: object) -> str:
    """Escape text for Markdown."""
    escaped = html.escape(" ".join(str(text).split()), quote=False)
    for sign in "\\`*[]|~$":
        escaped = escaped.replace(sign, f"\\{sign}")
    return escaped


def _html(page: Page, images: dict[str, str]) -> str:
    assets = Path(__file__).parent / "assets"
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(assets),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Numbers stay beside their intervals where a cell is broken into lines.
    environment.filters["unbroken"] = lambda cell: cell.replace("± ", "±\N{NO-BREAK SPACE}")
    # The order of series means something, and JSON has no NaN.
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    css, script = (markupsafe.Markup((assets / f"report.{end}").read_text("utf-8")) for end in ("css", "js"))
    # The page may run its one script and show what it holds; it can request nothing.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    chapters: list[tuple[int, str, list[tuple[int, str]]]] = []
    for number, section in enumerate(page.sections, start=1):
        if section.level == 2:
            chapters.append((number, section.title, []))
        elif chapters:
            chapters[-1][2].append((number, section.title))
    template = environment.get_template("report.html.j2")
    return template.render(page=page, images=images, style=css, script=script, policy=policy, chapters=chapters) + "\n"
