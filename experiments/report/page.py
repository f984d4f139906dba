"""A page as tables, pictures, curves, cards and paragraphs, and the files it is written to."""

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

from experiments.figures import style as _style
from experiments.report.paper import latex
from experiments.rows.row import write_whole
from experiments.rows.untrusted import stays_within

FORMULA = re.compile(r"\s*[=+\-@]")
"""How text begins that a spreadsheet would take for a formula."""


@dataclass(frozen=True)
class Table:
    """A table as it is read, ``cells`` of strings, and the numbers behind it, ``data``, for the CSV file.

    Its lines may be sorted and filtered unless they lean on one another, ``sortable=False``.
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
    """A figure, what it shows in words, and the numbers that are drawn in it if no table holds them."""

    stem: str
    caption: str
    figure: Figure
    data: pd.DataFrame | None = None
    kind: ClassVar[str] = "picture"


@dataclass(frozen=True)
class Chart:
    """Curves to choose from, on the page alone, for a script to draw; ``data`` is what `report.js` expects."""

    caption: str
    data: dict[str, Any]
    kind: ClassVar[str] = "chart"


@dataclass(frozen=True)
class Card:
    """What there is to say of one encoder.

    Args:
        name: of the encoder.
        stem: of its anchor.
        short: one line that stands beside the name while the card is folded.
        said: what it does.
        equation: as text; blank where it is not known.
        findings: title -> lines, such as what it is good at.
        knobs: name, default and meaning of each.
        papers: title and arXiv id of each.
        unfolded: whether it is shown whole from the start.
    """

    name: str
    stem: str
    short: str = ""
    said: str = ""
    equation: str = ""
    findings: tuple[tuple[str, tuple[str, ...]], ...] = ()
    knobs: tuple[tuple[str, str, str], ...] = ()
    papers: tuple[tuple[str, str], ...] = ()
    unfolded: bool = True
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


def write(page: Page, folder: Path) -> Path:
    """Write the page and its tables and figures; those of an earlier report that this one lacks go.

    Returns:
        the path of ``index.html``.
    """
    for place in (folder, folder / "tables", folder / "figures"):
        stays_within(place, folder.parent)
        place.mkdir(exist_ok=True)
    page = with_names_of_their_own(page)
    written, before = set(), _linked(folder / "index.html")

    def put(path: Path, content: str | bytes) -> None:
        write_whole(path, content, lasting=False)
        written.add(path)

    images, grids = {}, {}
    parts = [part for section in page.sections for part in section.parts]
    for part in parts:
        if isinstance(part, Table | Picture) and part.data is not None:
            put(folder / "tables" / f"{part.stem}.csv", spreadsheet(part.data))
        if isinstance(part, Table):
            put(folder / "tables" / f"{part.stem}.tex", latex.tabular(part.cells))
            grids[part.stem] = _grid(part.cells)
            put(folder / "tables" / f"{part.stem}.md", grids[part.stem] + "\n")
        elif isinstance(part, Picture):
            drawn = _style.renderings(part.figure)
            for suffix, content in drawn.items():
                put(folder / "figures" / f"{part.stem}.{suffix}", content)
            images[part.stem] = "data:image/svg+xml;base64," + base64.b64encode(drawn["svg"]).decode()
    for old in [*(folder / "tables").glob("*.*"), *(folder / "figures").glob("*.*")]:
        ours = f"{old.parent.name}/{old.stem}" in before and old.suffix in (".csv", ".tex", ".md", ".svg", ".png")
        if ours and old not in written:
            old.unlink()
    put(folder / "report.md", markdown(page, grids))
    put(folder / "index.html", _html(page, images))
    return folder / "index.html"


def _linked(index: Path) -> set[str]:
    """Tables and figures that a page links to, without endings; whatever else lies beside them is somebody else's."""
    if index.is_symlink() or not index.is_file():
        return set()
    return set(re.findall(r'href="((?:tables|figures)/[^"/]+)\.\w+"', index.read_text("utf-8", errors="replace")))


def with_names_of_their_own(page: Page) -> Page:
    """The page with no two files called alike, whatever tasks are called: the second of a name is numbered."""
    taken: set[str] = set()
    sections = []
    for section in page.sections:
        parts: list[Part] = []
        for part in section.parts:
            if not isinstance(part, Table | Picture):
                parts.append(part)
                continue
            stems = (f"{part.stem}-{number}" if number > 1 else part.stem for number in itertools.count(1))
            own = next(stem for stem in stems if taken.isdisjoint(_files(part, stem)))
            taken |= _files(part, own)
            parts.append(replace(part, stem=own))
        sections.append(replace(section, parts=parts))
    return replace(page, sections=sections)


def _files(part: Table | Picture, stem: str) -> set[str]:
    """Where a part goes, without endings and in lower case: some file systems know no other."""
    table = {f"tables/{stem.lower()}"} if part.data is not None else set()
    return table | ({f"figures/{stem.lower()}"} if isinstance(part, Picture) else set())


def spreadsheet(data: pd.DataFrame) -> str:
    """The numbers as CSV. Text that a spreadsheet would take for a formula is made text, by an apostrophe before it."""
    safe = data.copy(deep=False)
    for column in data.select_dtypes(exclude="number"):
        safe[column] = data[column].map(_no_formula)
    return safe.rename(columns=_no_formula).to_csv(index=False, lineterminator="\n")


def _no_formula(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and FORMULA.match(cell) else cell


def markdown(page: Page, grids: dict[str, str]) -> str:
    """The page as GitHub Markdown, figures linked by relative paths; its tables, by stem, as they are written."""
    lines = [f"# {_md(page.title)}", ""]
    lines += [f"> **Warning.** {_md(warning)}\n" for warning in page.warnings]
    lines += [f"{_md(said)}\n" for said in page.summary]
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
    lines = [f"**{_md(part.name)}.** {_md(part.said or part.short)}\n"]
    if part.equation:
        lines.append(textwrap.indent(part.equation, "    ") + "\n")
    for title, found in part.findings:
        if found:
            lines += [f"{_md(title)}:\n", *(f"- {_md(line)}" for line in found), ""]
    return lines


def _grid(cells: pd.DataFrame) -> str:
    written = cells.rename(columns=_md).map(_md)
    return written.to_markdown(index=False, disable_numparse=True, tablefmt="github")


def _md(text: object) -> str:
    """Text that Markdown must not read as anything else."""
    escaped = html.escape(" ".join(str(text).split()), quote=False)
    for sign in "\\`*[]|~$":
        escaped = escaped.replace(sign, f"\\{sign}")
    return escaped


def _html(page: Page, images: dict[str, str]) -> str:
    here = Path(__file__).parent / "assets"
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(here),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["kept"] = _kept_together
    # The order of labels means something; a number that is none is no JSON.
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    style, script = (markupsafe.Markup((here / f"report.{end}").read_text("utf-8")) for end in ("css", "js"))
    return (
        environment.get_template("report.html.j2").render(
            page=page, images=images, style=style, script=script, policy=_policy(script), **_contents(page)
        )
        + "\n"
    )


def _kept_together(cell: str) -> str:
    """A cell whose numbers stay beside their intervals, where it has to be broken at all."""
    return cell.replace("± ", "±\N{NO-BREAK SPACE}")


def _policy(script: str) -> str:
    """What the page may do: run its one script, show what it holds, and ask nothing of any machine."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def _contents(page: Page) -> dict[str, Any]:
    """Numbers and titles of the sections: ``chapters``, and ``inner``, those below each of them by its number."""
    chapters: list[tuple[int, str]] = []
    inner: dict[int, list[tuple[int, str]]] = {}
    for number, section in enumerate(page.sections, start=1):
        if section.level == 2:
            chapters.append((number, section.title))
        elif chapters:
            inner.setdefault(chapters[-1][0], []).append((number, section.title))
    return {"chapters": chapters, "inner": inner}
