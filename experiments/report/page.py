"""Pages of tables, pictures and paragraphs, and the files they are written to."""

import base64
import hashlib
import html
import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from experiments.figures import style
from experiments.rows.row import write_whole
from experiments.rows.untrusted import stays_within

CURVES = re.compile(r'<svg( class="hero wide") viewBox="0 0 (\d+) (\d+)"([^>]*)>(.*?)</svg>', re.DOTALL)
"""The curves of the first screen, which are also written as a picture for other pages, with their title."""
TITLE = 26
"""Height of that title."""
FORMULA = re.compile(r"\s*[=+\-@]")
"""The start of text that a spreadsheet would read as a formula."""
ASSETS = Path(__file__).parent / "assets"
SINGLE = "single.html"
POLICY = "default-src 'none'; img-src 'self' file: data:; style-src 'self' file:; script-src 'self' file:"
"""A page may run its one script and show what lies beside it; it can request nothing else."""
OURS = re.compile(r'(?:href|src)="((?:tables|figures|tasks|encoders)/[^"/#]+\.\w+|data\.html|report\.\w+)"')
"""The files that a page links to; other files in a report's folder are not ours."""


@dataclass(frozen=True)
class Cell:
    """Text of a cell; ``heat`` from 0 to 10 shades it, and without one it is plain; ``why`` hatches it."""

    text: str
    heat: int | None = None
    why: str = ""
    track: str = ""


def heat(share: float) -> int | None:
    """Return the shade of a share, of less than 0 as of 0 and of more than 1 as of 1; None where there is none."""
    return None if math.isnan(share) else round(10 * min(max(share, 0.0), 1.0))


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A line of a board, with the ``ends`` of the mean's interval; one that did not learn has blanks.

    ``remark`` says what a reader has to know of its runs, such as that some did not learn. What is ``pinned``, the
    reader's own encoding or what others are compared with, stays in sight below the first lines.
    """

    places: str = ""
    track: str = ""
    name: str
    css: str
    page: str
    remark: str
    spark: str
    cells: tuple[Cell, ...]
    mean: str = ""
    strip: str = ""
    better: str = ""
    last: str = ""
    ends: str = ""
    pinned: bool = False


@dataclass(frozen=True)
class Board:
    """A table of `Entry`: heads of the cells, of the mean, of what it is better than, and of the last column.

    ``asked``: the comparison is what the report was asked, and stays on a narrow page.
    """

    caption: str
    heads: tuple[tuple[str, str], ...]
    place: tuple[str, str]
    curve: tuple[str, str]
    mean: tuple[str, str]
    better: str
    last: str
    entries: tuple[Entry, ...]
    note: str
    stem: str
    asked: bool = False


@dataclass(frozen=True)
class Finding:
    """A sentence with its number first, and the uncertainty below."""

    head: str
    text: str
    small: str = ""


@dataclass(frozen=True)
class Front:
    """What the first screen shows."""

    setting: str
    caption: str
    legend: str
    families: list[tuple[str, str]]
    curves: Markup
    findings: list[Finding]
    board: Board
    limits: list[str]
    task: tuple[str, str]
    """Name and path of the page of the task that the curves are of."""


@dataclass(frozen=True)
class Table:
    """A table of strings, ``cells``, and the numbers behind it, ``data``, for the CSV file.

    With ``sortable=False``, readers can neither sort nor filter its lines; ``pasted`` tables are in ``report.md``, too.
    """

    stem: str
    caption: str
    cells: pd.DataFrame
    data: pd.DataFrame
    note: str = ""
    sortable: bool = True
    pasted: bool = False


@dataclass(frozen=True)
class Picture:
    """A figure, what it shows in words, and the numbers drawn in it if no table holds them."""

    stem: str
    caption: str
    figure: style.Chart
    data: pd.DataFrame | None = None

    @property
    def pixels(self) -> tuple[int, int]:
        """Width and height, for which a page keeps room while it loads."""
        width, height = (round(96 * inches) for inches in self.figure.get_size_inches())
        return width, height


@dataclass(frozen=True)
class Numbers:
    """A table that is only a CSV file: the page shows its numbers in another form."""

    stem: str
    data: pd.DataFrame


@dataclass(frozen=True)
class Block:
    """What a macro of the page's template draws: its name, and what it is given."""

    macro: str
    given: Any


Part = Table | Picture | Numbers | Block


@dataclass
class Section:
    """A heading with its paragraphs and parts; ``folded`` shows the heading alone until a reader opens it."""

    title: str
    paragraphs: list[str] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    folded: bool = False


@dataclass(frozen=True)
class Opening:
    """What answers a question that a folder asks as a whole.

    Args:
        sections: the answer, in full.
        heading: the report's; then the sections stand at its top.
        findings: the report's first.
        task: the one that the heading is about, which the report's first screen shows; blank if it is about several.
    """

    sections: list[Section] = field(default_factory=list)
    heading: str = ""
    findings: list[Finding] = field(default_factory=list)
    task: str = ""


@dataclass
class Page:
    """A page of a report, before it is HTML, and the pages below it.

    Args:
        summary: what it says, in sentences; shown where there is no ``front``.
        method: how the numbers were made, in sentences.
        path: of its file, relative to the report's folder.
        name: what its links and the way to it are called.
        below: further pages, which link back to this one.
    """

    title: str
    summary: list[str]
    sections: list[Section]
    front: Front | None = None
    warnings: list[str] = field(default_factory=list)
    method: list[str] = field(default_factory=list)
    path: str = "index.html"
    name: str = ""
    below: list["Page"] = field(default_factory=list)

    @property
    def pages(self) -> Iterator["Page"]:
        """This page and all below it."""
        yield self
        for page in self.below:
            yield from page.pages

    @property
    def parts(self) -> list[Part]:
        """The parts of all sections of all pages."""
        return [part for page in self.pages for section in page.sections for part in section.parts]


def write(page: Page, folder: Path, *, single: bool = False) -> Path:
    """Write pages, tables and figures, without those of an earlier report; return the path of ``index.html``.

    The stems of its parts are unique. ``single`` writes `SINGLE` as well, which holds everything; one that is there is
    kept up.
    """
    before = set(_linked(folder))
    files: dict[str, str | bytes] = {}
    for part in page.parts:
        if not isinstance(part, Block) and part.data is not None:
            files[f"tables/{part.stem}.csv"] = spreadsheet(part.data)
        if isinstance(part, Picture):
            files[f"figures/{part.stem}.svg"] = style.render(part.figure, "svg")
    bodies = {each.path: _body(each, page) for each in page.pages}
    files |= {each.path: _frame(each, page, bodies[each.path], POLICY, {}) for each in page.pages}
    files |= {f"report.{end}": _asset(end) for end in ("css", "js")}
    files["report.md"] = markdown(page)
    if page.front and (curves := CURVES.search(bodies["index.html"])):
        kind, width, height, said, drawn = curves.groups()
        box = f'{kind} viewBox="0 -{TITLE} {width} {int(height) + TITLE}"{said}'
        title = f'<text class="tick b" x="0" y="-{TITLE - 14}">{html.escape(page.front.caption)}</text>'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif"{box}><style>{_asset("css")}</style>'
        files["figures/answer.svg"] = f"{head}{title}{drawn}</svg>\n"
    if single or (folder / SINGLE).is_file():
        files[SINGLE] = _single(page, bodies, files)
    places = [folder, *(folder / name for name in sorted({str(Path(name).parent) for name in files} - {"."}))]
    for place in places:
        stays_within(place, folder.parent)
    for place in places:
        place.mkdir(exist_ok=True)
    for name in before - set(files):
        (folder / name).unlink(missing_ok=True)
    for name, content in files.items():
        write_whole(folder / name, content, lasting=False)
    return folder / "index.html"


def _linked(folder: Path) -> Iterator[str]:
    """Yield the files that the pages of a report link to."""
    waiting, seen = ["index.html"], set()
    while waiting:
        name = waiting.pop()
        path = folder / name
        seen.add(name)
        if path.suffix == ".html" and path.is_file() and not path.is_symlink() and not path.parent.is_symlink():
            text = path.read_text("utf-8", errors="replace").replace('="../', '="')
            found = set(OURS.findall(text)) - seen
            waiting += found
            yield from found


def with_unique_stems(page: Page) -> Page:
    """Number the second of two parts whose files would have one name; a part on two pages is one."""
    taken: set[str] = set()
    named: dict[int, Part] = {}

    def unique(part: Part) -> Part:
        if isinstance(part, Block) or id(part) in named:
            return named.get(id(part), part)
        for number in itertools.count(1):
            stem = f"{part.stem}-{number}" if number > 1 else part.stem
            # In lower case, since some file systems ignore case.
            files = {f"tables/{stem.lower()}"} if part.data is not None else set()
            files |= {f"figures/{stem.lower()}"} if isinstance(part, Picture) else set()
            if taken.isdisjoint(files):
                break
        taken.update(files)
        return named.setdefault(id(part), replace(part, stem=stem))

    def renamed(page: Page) -> Page:
        sections = [replace(section, parts=list(map(unique, section.parts))) for section in page.sections]
        return replace(page, sections=sections, below=list(map(renamed, page.below)))

    return renamed(page)


def spreadsheet(data: pd.DataFrame) -> str:
    """Return the numbers as CSV; an apostrophe before text keeps a spreadsheet from reading it as a formula."""
    texts: dict[Any, Any] = {column: data[column].map(_no_formula) for column in data.select_dtypes(exclude="number")}
    return data.assign(**texts).rename(columns=_no_formula).to_csv(index=False, lineterminator="\n")


def _no_formula(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and FORMULA.match(cell) else cell


def markdown(page: Page) -> str:
    """Return the findings and the boards as GitHub Markdown, to be pasted."""
    blocks = [f"# {_md(page.title)}", *map(_md, page.summary), *(f"> **Warning.** {_md(w)}" for w in page.warnings)]
    tables = (part for section in page.sections for part in section.parts if isinstance(part, Table))
    for part in (pasted := [table for table in tables if table.pasted]):
        lines = _md_table(list(part.cells.columns), *part.cells.to_numpy().tolist())
        blocks += [f"## {_md(part.caption)}", lines, *[_md(part.note)] * bool(part.note)]
    if page.front is not None:
        blocks += ["## Over lengths"] * bool(pasted)
        board = page.front.board
        several = (" ".join(head).removesuffix(", place") for head in board.heads)
        heads = [board.place[0], "encoding", *several, board.mean[0], board.better, board.last]
        rows = [
            [each.places, each.name, *(c.text or c.why for c in each.cells), each.mean, each.better, each.last]
            for each in board.entries
        ]
        used = [place for place, cells in enumerate(zip(*rows, strict=True)) if any(cells)]
        blocks.append(_md_table(*([line[place] for place in used] for line in (heads, *rows))))
    return "\n\n".join(blocks) + "\n"


def _md_table(head: list[str], *rows: list[str]) -> str:
    return "\n".join(f"| {' | '.join(map(_md, line))} |" for line in (head, ["---"] * len(head), *rows))


def _md(text: object) -> str:
    return re.sub(r"[\\`*\[\]|~$]", r"\\\g<0>", html.escape(" ".join(str(text).split()), quote=False))


def _asset(ending: str) -> str:
    return (ASSETS / f"report.{ending}").read_text("utf-8")


def _unbroken(cell: str, *, many: bool = False) -> str:
    """Keep numbers beside their units and intervals where a cell is broken into lines; of ``many``, above those."""
    within, beside = r"(?<=±) | (?=%)|(?<=,) (?=\S+\])", r" (?=\[\S+, \S+\])"
    return re.sub(within if many else f"{within}|{beside}", "\N{NO-BREAK SPACE}", cell)


@cache
def _environment() -> jinja2.Environment:
    blocks: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "undefined": jinja2.StrictUndefined}
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(ASSETS), autoescape=True, **blocks)
    environment.filters["unbroken"] = _unbroken
    environment.filters["slug"] = style.slug
    return environment


def _body(page: Page, index: Page) -> Markup:
    root = "../" * page.path.count("/")
    return Markup(_environment().get_template("body.html.j2").render(page=page, index=index, root=root))


def _frame(page: Page, index: Page, body: Markup, policy: str, inlined: dict[str, Markup]) -> str:
    template, root = _environment().get_template("frame.html.j2"), "../" * page.path.count("/")
    return template.render(page=page, index=index, body=body, policy=policy, root=root, inlined=inlined) + "\n"


def _single(page: Page, bodies: dict[str, Markup], files: dict[str, str | bytes]) -> str:
    """Return all pages as one, which needs no file beside it."""
    inlined = {end: Markup(_asset(end)) for end in ("css", "js")}
    allowed = {end: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for end, text in inlined.items()}
    sources = f"style-src 'sha256-{allowed['css']}'; script-src 'sha256-{allowed['js']}'"
    policy = f"default-src 'none'; img-src data:; {sources}"

    def image(found: re.Match[str]) -> str:
        content = files[found[1]]
        return f'src="data:image/svg+xml;base64,{base64.b64encode(bytes(content)).decode()}"'  # type: ignore[arg-type]

    parts = []
    for path, body in bodies.items():
        text = re.sub(r' id="', f' id="{path}-', body).replace('href="#', f'href="#{path}-').replace('="../', '="')
        text = re.sub(r'src="(figures/[^"]+)"', image, text)
        text = re.sub(r'href="((?:tasks/|encoders/)?[^"/#:]+\.html)"', r'href="#\1"', text)
        parts.append(f'<article id="{path}">{text}</article>')
    return _frame(page, page, Markup("".join(parts)), policy, inlined)
