"""A page of tables, pictures, curves, cards and paragraphs, and the files it is written to."""

import base64
import hashlib
import html
import itertools
import re
import textwrap
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

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


@dataclass(frozen=True)
class Picture:
    """A figure, what it shows in words, and the numbers drawn in it if no table holds them."""

    stem: str
    caption: str
    figure: Figure
    data: pd.DataFrame | None = None


@dataclass(frozen=True)
class Chart:
    """Curves to choose from, drawn by the page's script; ``data`` is what `report.js` expects."""

    caption: str
    data: dict[str, Any]


@dataclass(frozen=True)
class Card:
    """The description of one encoder. Knobs are name, default and meaning; papers title and arXiv id."""

    name: str
    stem: str
    short: str
    description: str
    equation: str
    knobs: tuple[tuple[str, str, str], ...]
    papers: tuple[tuple[str, str], ...]
    unfolded: bool


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
    page, before = with_unique_stems(page), _linked(folder / "index.html")
    grids, images = {}, {}
    files: dict[str, str | bytes] = {}
    for part in page.parts:
        if isinstance(part, Table | Picture) and part.data is not None:
            files[f"tables/{part.stem}.csv"] = spreadsheet(part.data)
        if isinstance(part, Table):
            cells = part.cells.rename(columns=_md).map(_md)
            grids[part.stem] = cells.to_markdown(index=False, disable_numparse=True, tablefmt="github")
            files[f"tables/{part.stem}.tex"] = latex.tabular(part.cells)
            files[f"tables/{part.stem}.md"] = grids[part.stem] + "\n"
        if isinstance(part, Picture):
            drawn = style.renderings(part.figure)
            files |= {f"figures/{part.stem}.{suffix}": content for suffix, content in drawn.items()}
            images[part.stem] = "data:image/svg+xml;base64," + base64.b64encode(drawn["svg"]).decode()
    for stem, suffix in itertools.product(before, ("csv", "tex", "md", "svg", "png")):
        if f"{stem}.{suffix}" not in files:
            (folder / f"{stem}.{suffix}").unlink(missing_ok=True)
    files |= {"report.md": markdown(page, grids), "index.html": _html(page, images)}
    for name, content in files.items():
        write_whole(folder / name, content, lasting=False)
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
        for number in itertools.count(1):
            stem = f"{part.stem}-{number}" if number > 1 else part.stem
            # In lower case, since some file systems ignore case.
            files = {f"tables/{stem.lower()}"} if part.data is not None else set()
            files |= {f"figures/{stem.lower()}"} if isinstance(part, Picture) else set()
            if taken.isdisjoint(files):
                break
        taken.update(files)
        return replace(part, stem=stem)

    sections = [replace(section, parts=list(map(unique, section.parts))) for section in page.sections]
    return replace(page, sections=sections)


def spreadsheet(data: pd.DataFrame) -> str:
    """Return the numbers as CSV; an apostrophe before text keeps a spreadsheet from reading it as a formula."""
    texts: dict[Any, Any] = {column: data[column].map(_no_formula) for column in data.select_dtypes(exclude="number")}
    return data.assign(**texts).rename(columns=_no_formula).to_csv(index=False, lineterminator="\n")


def _no_formula(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and FORMULA.match(cell) else cell


def markdown(page: Page, grids: dict[str, str]) -> str:
    """Return the page as GitHub Markdown, with figures linked by relative paths and tables taken from ``grids``."""
    blocks = [f"# {_md(page.title)}", *(f"> **Warning.** {_md(warning)}" for warning in page.warnings)]
    blocks += [*map(_md, page.summary), "## How it was measured", _md(" ".join(page.method))]
    for section in page.sections:
        blocks += [f"{'#' * section.level} {_md(section.title)}", *map(_md, section.paragraphs)]
        for part in section.parts:
            if isinstance(part, Table):
                blocks += [f"**{_md(part.caption)}**", grids[part.stem], _md(part.note)]
            elif isinstance(part, Picture):
                blocks += [f"![{_md(part.caption)}](figures/{part.stem}.png)", _md(part.caption)]
            elif isinstance(part, Card):
                blocks.append(f"**{_md(part.name)}.** {_md(part.description)}")
                blocks += [textwrap.indent(part.equation, "    "), _md(part.short)]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _md(text: object) -> str:
    return re.sub(r"[\\`*\[\]|~$]", r"\\\g<0>", html.escape(" ".join(str(text).split()), quote=False))


def _html(page: Page, images: dict[str, str]) -> str:
    assets = Path(__file__).parent / "assets"
    blocks: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "undefined": jinja2.StrictUndefined}
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(assets), autoescape=True, **blocks)
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
