"""A page as tables, pictures and paragraphs, and the files it is written to: HTML, Markdown, CSV, LaTeX, figures."""

from __future__ import annotations

import base64
import html
import itertools
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from matplotlib.figure import Figure

from experiments import _style
from experiments._table import write_whole
from experiments._untrusted import stays_within


@dataclass(frozen=True)
class Table:
    """A table as it is read, ``cells`` of strings, and the numbers behind it, ``data``, for the CSV file."""

    stem: str
    caption: str
    cells: pd.DataFrame
    data: pd.DataFrame
    note: str = ""


@dataclass(frozen=True)
class Picture:
    """A figure, what it shows in words, and the numbers that are drawn in it if no table holds them."""

    stem: str
    caption: str
    figure: Figure
    data: pd.DataFrame | None = None


@dataclass
class Section:
    """A heading with its paragraphs, tables and figures."""

    title: str
    paragraphs: list[str] = field(default_factory=list)
    parts: list[Table | Picture] = field(default_factory=list)
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
    """Write the page and its tables and figures; whatever an earlier report left there and this one lacks goes.

    Returns:
        the path of ``index.html``.
    """
    for place in (folder, folder / "tables", folder / "figures"):
        stays_within(place, folder.parent)
        place.mkdir(exist_ok=True)
    page = _with_names_of_their_own(page)
    written = set()

    def put(path: Path, content: str | bytes) -> None:
        write_whole(path, content)
        written.add(path)

    images = {}
    for part in (part for section in page.sections for part in section.parts):
        data = part.data
        if data is not None:
            put(folder / "tables" / f"{part.stem}.csv", spreadsheet(data))
        if isinstance(part, Table):
            put(folder / "tables" / f"{part.stem}.tex", latex(part.cells))
        else:
            svg, png = (_style.render(part.figure, suffix) for suffix in ("svg", "png"))
            put(folder / "figures" / f"{part.stem}.svg", svg)
            put(folder / "figures" / f"{part.stem}.png", png)
            images[part.stem] = "data:image/svg+xml;base64," + base64.b64encode(svg).decode()
    for old in [*(folder / "tables").glob("*.*"), *(folder / "figures").glob("*.*")]:
        if old not in written and old.suffix in (".csv", ".tex", ".svg", ".png"):
            old.unlink()
    put(folder / "report.md", markdown(page))
    put(folder / "index.html", _html(page, images))
    return folder / "index.html"


def _with_names_of_their_own(page: Page) -> Page:
    """The page with no two files called alike, whatever tasks are called: the second of a name is numbered."""
    taken: set[str] = set()
    sections = []
    for section in page.sections:
        parts: list[Table | Picture] = []
        for part in section.parts:
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
    return data.rename(columns=_no_formula).map(_no_formula).to_csv(index=False, lineterminator="\n")


def _no_formula(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and re.match(r"\s*[=+\-@]", cell) else cell


def latex(cells: pd.DataFrame) -> str:
    """A booktabs tabular, every name escaped; a bracket or star at the start of a line is no argument of the last."""
    plain = cells.rename(columns=str).map(str)
    written = plain.to_latex(index=False, escape=True)
    return re.sub(r"^(?=[\[*])", "{}", written, flags=re.MULTILINE)


def markdown(page: Page) -> str:
    """The page as GitHub Markdown, figures linked by relative paths."""
    lines = [f"# {_md(page.title)}", ""]
    lines += [f"> **Warning.** {_md(warning)}\n" for warning in page.warnings]
    lines += [f"{_md(said)}\n" for said in page.summary]
    lines += ["## How it was measured\n", _md(" ".join(page.method)), ""]
    for section in page.sections:
        lines += [f"{'#' * section.level} {_md(section.title)}\n"]
        lines += [f"{_md(paragraph)}\n" for paragraph in section.paragraphs]
        for part in section.parts:
            if isinstance(part, Table):
                cells = part.cells.rename(columns=_md).map(_md)
                table = cells.to_markdown(index=False, disable_numparse=True, tablefmt="github")
                lines += [f"**{_md(part.caption)}**\n", table, "", *([f"{_md(part.note)}\n"] * bool(part.note))]
            else:
                lines += [f"![{_md(part.caption)}](figures/{part.stem}.png)\n", f"{_md(part.caption)}\n"]
    return "\n".join(lines).rstrip() + "\n"


def _md(text: object) -> str:
    """Text that Markdown must not read as anything else."""
    escaped = html.escape(" ".join(str(text).split()), quote=False)
    for sign in "\\`*[]|~$":
        escaped = escaped.replace(sign, f"\\{sign}")
    return escaped


def _html(page: Page, images: dict[str, str]) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("_report.html.j2").render(page=page, images=images) + "\n"
