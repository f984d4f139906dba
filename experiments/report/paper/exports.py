"""What a paper takes along: figures of column width, the methods paragraph, the references, a document of it all."""

from __future__ import annotations

import io
import itertools
import re
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator

from experiments.figures import forks, style
from experiments.report.page import Card, Page, Picture, Table
from experiments.report.paper import bibliography, latex, methods
from experiments.rows.results import Results
from experiments.rows.row import write_whole
from experiments.rows.untrusted import stays_within

COLUMNS = {"single": 3.3, "double": 6.9}
"""Inches: widths that fit the columns of the usual two-column styles."""
SMALLEST = 6.0
"""Points; no text is smaller once the figure is placed at its width."""
SHRINK = 0.72
"""How much smaller type and lines of a single column are than on the page; it is laid out that much wider."""
SUFFIXES = ("svg", "pdf", "png")
DOTS = 300
"""Of PNG files, an inch of the placed figure."""


@contextmanager
def laid_out_for_single() -> Iterator[None]:
    """Figures that are drawn in here have the room of a single column."""
    before = style.WIDTH
    style.WIDTH = COLUMNS["single"] / SHRINK
    try:
        yield
    finally:
        style.WIDTH = before


def write_texts(page: Page, results: Results, folder: Path) -> None:
    """Write ``references.bib``, ``methods.txt`` and ``methods.tex`` into a report's folder."""
    cited = bibliography.cited(results, _words_of(page))
    write_whole(folder / "references.bib", cited.text())
    write_whole(folder / "methods.txt", " ".join(page.method) + "\n")
    write_whole(folder / "methods.tex", methods.latex(page.method, cited))


def _words_of(page: Page) -> str:
    """Everything that a page says outside of its tables."""
    said = [*page.summary, *page.warnings, *page.method]
    for section in page.sections:
        said += [section.title, *section.paragraphs]
        for part in section.parts:
            if not isinstance(part, Card):
                said.append(part.caption)
            if isinstance(part, Table):
                said.append(part.note)
    return "\n".join(said)


def write_paper(page: Page, narrow: Page, folder: Path) -> Path:
    """Write every figure as SVG, PDF and PNG in both widths, and ``report.tex``, which shows all there is.

    Args:
        page: the report, its files named apart.
        narrow: the same, drawn within `laid_out_for_single`.
        folder: the report's.

    Returns:
        the path of ``report.tex``.
    """
    tables = {part.stem: part.caption for part in _parts(page) if isinstance(part, Table)}
    figures = {picture.stem: picture.caption for picture in pictures(page)}
    # First: the next report knows from it which figures are ours, had this one been interrupted too.
    write_whole(folder / "report.tex", latex.document(page.title, tables, figures))
    for of_width, width in ((narrow, "single"), (page, "double")):
        place = folder / "figures" / width
        stays_within(place, folder)
        place.mkdir(exist_ok=True)
        shown = pictures(of_width)
        plotted = [picture.figure for picture in shown if isinstance(picture.figure, Figure)]
        with forks.each(partial(sized, width=COLUMNS[width]), plotted) as drawings:
            for picture, drawn in zip(shown, drawings, strict=True):
                for suffix, content in drawn.items():
                    write_whole(place / f"{picture.stem}.{suffix}", content)
    return folder / "report.tex"


def remove_paper(folder: Path) -> None:
    """Remove what `write_paper` left of an earlier report, which would no longer agree with this one; nothing else."""
    document = folder / "report.tex"
    if document.is_symlink() or not document.is_file():
        return
    ours = latex.figures(document.read_text("utf-8", errors="replace"))
    for width in COLUMNS:
        place = folder / "figures" / width
        stays_within(place, folder)
        for stem, suffix in itertools.product(ours, SUFFIXES):
            (place / f"{stem}.{suffix}").unlink(missing_ok=True)
        if place.is_dir() and not any(place.iterdir()):
            place.rmdir()
    document.unlink()


def pictures(page: Page) -> list[Picture]:
    """The figures of a page."""
    return [part for part in _parts(page) if isinstance(part, Picture)]


def _parts(page: Page) -> list[object]:
    return [part for section in page.sections for part in section.parts]


def sized(figure: Figure, width: float) -> dict[str, bytes]:
    """A figure as ``svg``, ``pdf`` and ``png``, drawn smaller or larger as a whole so that it has a width.

    The same bytes for the same figure: no dates are written.

    Args:
        figure: as it was plotted; text that would become smaller than `SMALLEST` is set larger.
        width: in inches.
    """
    scale = width / figure.get_figwidth()
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if float(text.get_fontsize()) * scale < SMALLEST:
            text.set_fontsize(SMALLEST / scale)
    with style.theme(), mpl.rc_context({"pdf.fonttype": 42}):  # publishers refuse the fonts of type 3
        _fit_texts(figure)
        figure.draw_without_rendering()
        svg, pdf, png = io.BytesIO(), io.BytesIO(), io.BytesIO()
        placed = {"dpi": (DOTS, DOTS)}
        with style.as_laid_out(figure):
            figure.savefig(svg, format="svg", metadata={"Date": None})
            figure.savefig(pdf, format="pdf", metadata={"CreationDate": None})
            figure.savefig(png, format="png", dpi=DOTS * scale, metadata={"Software": None}, pil_kwargs=placed)
    return {
        "svg": _scaled_svg(svg.getvalue(), scale),
        "pdf": _scaled_pdf(pdf.getvalue(), scale),
        "png": png.getvalue(),
    }


def _fit_texts(figure: Figure) -> None:
    """Break labels and titles that are longer than their panel, and number fewer ticks where numbers would touch."""
    figure.draw_without_rendering()
    for axes in figure.axes:
        box = axes.get_window_extent()
        for text, room, vertical in (
            (axes.title, box.width, False),
            (axes.xaxis.label, box.width, False),
            (axes.yaxis.label, box.height, True),
        ):
            taken = text.get_window_extent().height if vertical else text.get_window_extent().width
            if taken > 1.1 * room:
                longest = max(map(len, text.get_text().split("\n")))
                letters = max(8, int(longest * room / taken))
                text.set_text(textwrap.fill(text.get_text(), letters, break_long_words=False))
    for most in (4, 3, 2, 1):
        figure.draw_without_rendering()
        crowded = [axes for axes in figure.axes if axes.get_xscale() == "linear" and _touching(axes)]
        for axes in crowded:
            axes.xaxis.set_major_locator(MaxNLocator(most))
        if not crowded:
            break


def _touching(axes: Axes) -> bool:
    boxes = [label.get_window_extent() for label in axes.get_xticklabels() if label.get_text() and label.get_visible()]
    return any(right.x0 < left.x1 for left, right in itertools.pairwise(sorted(boxes, key=lambda box: box.x0)))


def _scaled_svg(content: bytes, scale: float) -> bytes:
    """The drawing with another size; its own coordinates stay in ``viewBox``."""

    def smaller(size: re.Match[bytes]) -> bytes:
        return b'%s="%.6gpt"' % (size[1], float(size[2]) * scale)

    return re.sub(rb'\b(width|height)="([\d.]+)pt"', smaller, content, count=2)


def _scaled_pdf(content: bytes, scale: float) -> bytes:
    """The page with another size, as an incremental update (ISO 32000-1, 7.5.6): a matrix before its contents."""
    number, page = _found(rb"\n(\d+) 0 obj\n(<< /Type /Page /.*?)\nendobj", content)
    (size,) = _found(rb"/Size (\d+)", content)
    (root,) = _found(rb"/Root (\d+ 0 R)", content)
    (before,) = _found(rb"startxref\n(\d+)", content)
    (contents,) = _found(rb"/Contents (\d+ 0 R)", page)
    (box,) = _found(rb"/MediaBox \[ ([\d. ]+) \]", page)
    matrix = b"%.6f 0 0 %.6f 0 0 cm\n" % (scale, scale)
    page = page.replace(contents, b"[ %s 0 R %s ]" % (size, contents))
    page = page.replace(box, b" ".join(b"%.6g" % (float(side) * scale) for side in box.split()))
    bodies = {int(number): page, int(size): b"<< /Length %d >>\nstream\n%sendstream" % (len(matrix), matrix)}
    table = b"xref\n"
    for name, body in bodies.items():
        table += b"%d 1\n%010d 00000 n \n" % (name, len(content))
        content += b"%d 0 obj\n%s\nendobj\n" % (name, body)
    trailer = b"trailer\n<< /Size %d /Root %s /Prev %s >>\n" % (int(size) + 1, root, before)
    return content + table + trailer + b"startxref\n%d\n%%%%EOF\n" % len(content)


def _found(pattern: bytes, content: bytes) -> tuple[bytes, ...]:
    found = re.search(pattern, content, flags=re.DOTALL)
    if found is None:
        raise ValueError(f"matplotlib {mpl.__version__} writes PDF in another way: {pattern!r} is not in it")
    return found.groups()
