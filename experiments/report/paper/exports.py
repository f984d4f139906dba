"""Everything for a paper: figures of column width, the methods paragraph, references, and a LaTeX document."""

import itertools
import textwrap
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator

from experiments.figures import style
from experiments.report.page import Page, Picture, Table
from experiments.report.paper import bibliography, latex, methods
from experiments.rows.results import Results
from experiments.rows.row import write_whole
from experiments.rows.untrusted import stays_within

WIDTHS = {"single": (3.3, 0.72), "double": (6.9, 1.0)}
"""Inches that fit the columns of the usual two-column styles, and the size of type relative to the page."""
SMALLEST = 6.0
"""Points; no text is smaller once the figure is placed at its width."""
SUFFIXES = ("svg", "pdf", "png")


def write_texts(page: Page, results: Results, folder: Path) -> None:
    """Write ``references.bib``, ``methods.txt`` and ``methods.tex`` into a report's folder."""
    text = [*page.summary, *page.warnings, *page.method]
    for section in page.sections:
        text += [section.title, *section.paragraphs]
    for part in page.parts:
        text += [str(getattr(part, name, "")) for name in ("caption", "note")]
    cited = bibliography.cited(results, "\n".join(text))
    write_whole(folder / "references.bib", cited.text())
    write_whole(folder / "methods.txt", " ".join(page.method) + "\n")
    write_whole(folder / "methods.tex", methods.latex(page.method, cited))


def write_paper(page: Page, narrow: Page, folder: Path) -> None:
    """Write every figure as SVG, PDF and PNG in both widths, and ``report.tex``, which shows all there is.

    ``narrow`` is the same page, drawn for a single column. The stems of both are unique.
    """
    tables = {part.stem: part.caption for part in page.parts if isinstance(part, Table)}
    figures = {part.stem: part.caption for part in page.parts if isinstance(part, Picture)}
    # First: the next report knows from it which figures are ours, had this one been interrupted too.
    write_whole(folder / "report.tex", latex.document(page.title, tables, figures))
    for width, of_width in (("single", narrow), ("double", page)):
        place = folder / "figures" / width
        stays_within(place, folder)
        place.mkdir(exist_ok=True)
        with style.sized(*WIDTHS[width]):
            for picture in (part for part in of_width.parts if isinstance(part, Picture)):
                fit(picture.figure)
                style.save(picture.figure, place / picture.stem, SUFFIXES, style.DOTS["print"])


def remove_paper(folder: Path) -> None:
    """Remove what `write_paper` left of an earlier report, which would no longer agree with this one; nothing else."""
    document = folder / "report.tex"
    if document.is_symlink() or not document.is_file():
        return
    ours = latex.figures(document.read_text("utf-8", errors="replace"))
    for width in WIDTHS:
        place = folder / "figures" / width
        stays_within(place, folder)
        for stem, suffix in itertools.product(ours, SUFFIXES):
            (place / f"{stem}.{suffix}").unlink(missing_ok=True)
        if place.is_dir() and not any(place.iterdir()):
            place.rmdir()
    document.unlink()


def fit(figure: Figure) -> None:
    """Make a figure readable at its width: enlarge text to `SMALLEST`, break long labels, thin out crowded ticks."""
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        text.set_fontsize(max(SMALLEST, float(text.get_fontsize())))
    with style.theme():
        figure.draw_without_rendering()
        for axes in figure.axes:
            box = axes.get_window_extent()
            for text, side in ((axes.title, "width"), (axes.xaxis.label, "width"), (axes.yaxis.label, "height")):
                share = getattr(text.get_window_extent(), side) / getattr(box, side)
                if share > 1.1:
                    letters = max(8, int(max(map(len, text.get_text().split("\n"))) / share))
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
