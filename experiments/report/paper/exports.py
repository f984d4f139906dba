"""Everything for a paper: the main table, figures of column width, the methods paragraph and the references."""

import itertools
import math
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator

from experiments.figures import style, words
from experiments.report import board
from experiments.report.front.tasks import counted, shown
from experiments.report.page import Page, Picture
from experiments.report.paper import bibliography, latex, methods
from experiments.report.sections import cost
from experiments.report.sections.task import TaskResults
from experiments.rows.results import Results
from experiments.rows.row import is_share, metric_of, write_whole
from experiments.rows.untrusted import stays_within
from experiments.statistics.rule import FEWEST
from experiments.statistics.scores import DOUBLINGS

COLUMN = (3.3, 0.72)
"""Inches of a column of the usual two-column styles, and the size of type relative to the page."""
SMALLEST = 6.0
"""Points; no text is smaller once the figure is placed at its width."""
FOLDER = "paper"
NOTHING = "--"
UNLEARNED = f" {style.NOT_CONVERGED.strip()}: some of its runs did not learn the task."


def write_texts(page: Page, results: Results, folder: Path) -> None:
    """Write ``references.bib``, ``methods.txt`` and ``methods.tex`` into a report's folder."""
    text = [page.title, *page.summary, *page.warnings, *page.method]
    for section in (section for each in page.pages for section in each.sections):
        text += [section.title, *section.paragraphs]
    for part in page.parts:
        text += [str(getattr(part, name, "")) for name in ("caption", "note")]
    cited = bibliography.cited(results, "\n".join(text))
    write_whole(folder / "references.bib", cited.text())
    write_whole(folder / "methods.txt", " ".join(page.method) + "\n")
    write_whole(folder / "methods.tex", methods.latex(page.method, cited))


def write_paper(narrow: Page, tasks: Sequence[TaskResults], folder: Path) -> None:
    """Write ``paper/``: ``table.tex`` of each task that the report compares, and every figure as PDF for one column.

    ``narrow`` is the page drawn for a single column; its stems are unique. ``report.tex`` shows all of it.
    """
    place = folder / FOLDER
    stays_within(place, folder)
    place.mkdir(exist_ok=True)
    pictures = [part for part in narrow.parts if isinstance(part, Picture)]
    # First: if this is interrupted, the next report finds it and writes the rest.
    captions = {part.stem: part.caption.rstrip() + UNLEARNED * _marked(part.figure) for part in pictures}
    write_whole(folder / "report.tex", latex.document(narrow.title, captions))
    write_whole(place / "table.tex", table(tasks))
    with style.sized(*COLUMN):
        for picture in pictures:
            fit(picture.figure)
            write_whole(place / f"{picture.stem}.pdf", style.render(picture.figure, "pdf"), lasting=False)


def _marked(figure: Figure) -> bool:
    return any(isinstance(text, Text) and style.NOT_CONVERGED in text.get_text() for text in figure.findobj(Text))


def table(tasks: Sequence[TaskResults]) -> str:
    """Return the main table: quality in range and at the multiples that count, kept, less the baseline, p, and cost.

    Beyond the training length the best of each column is bold, and of what is kept all that may be the best, where all
    pairs were tested. What is kept free-running and cost are left out where they were not measured.
    """
    task = shown(counted(tasks) or tasks)
    if task is None:
        return "% nothing was measured over lengths\n"
    known, metric = task.ranked.set_index("series"), metric_of(task.metric)
    costs = cost.numbers([task]).set_index("series")["relative_operations"].reindex(known.index)
    against = task.against.set_index("series").reindex(known.index)
    share, up = is_share(task.metric), bool(metric.higher_is_better)
    multiples = [multiple for multiple in DOUBLINGS if multiple <= known["up_to"].max()]
    columns = {
        rf"{multiple:g}$\times$" if multiple > 1 else "In range": board.at(task, multiple).reindex(known.index)
        * (100 if share else 1)
        for multiple in (1, *multiples)
    }
    free = 100 * task.free_running.reindex(known.index).astype(float)
    columns |= {"Kept": 100 * known["kept"], "Free": free, "Cost": costs}
    columns = {head: column for head, column in columns.items() if head not in ("Free", "Cost") or column.notna().any()}
    digits = dict.fromkeys(columns, 1 if share else 2) | {"Kept": 1, "Free": 1, "Cost": 2}
    best = {head: bool(up) for head in columns} | {"Kept": True, "Free": True, "Cost": False}
    # The means of the look that decided are told where later seeds have moved those of the table.
    ours, other = (against[name] for name in ("mean", "baseline_mean"))
    kept = known["kept"], known["kept"].get(task.baseline, math.nan)
    moved = (ours - kept[0]).abs().gt(5e-4) | (other - kept[1]).abs().gt(5e-4)
    lines = []
    for series in known.index:
        learned, runs = known.loc[series, ["seeds_learned", "seeds"]]
        cells = [latex.escape(task.named(series) + f" ({learned} of {runs} learned)" * (learned < runs))]
        for head, column in columns.items():
            value, top = column[series], column.max() if best[head] else column.min()
            text = NOTHING if math.isnan(value) else f"{value:.{digits[head]}f}"
            text += _interval(known.loc[series]) if head == "Kept" else ""
            text += " [--]" * (head == "Kept" and learned >= FEWEST and math.isnan(known.loc[series, "low"]))
            bold = head != "In range" and text != NOTHING and round(value - top, digits[head]) == 0  # all learned it
            bold = known.loc[series, "place_low"] == 1 if head == "Kept" and task.placed else bold
            cells.append(rf"\textbf{{{text}}}" if bold else text)
            if head == "Kept":
                line = against.loc[series]
                untested = math.isnan(line["difference"])
                means = f"{100 * line['mean']:.1f}, {100 * line['baseline_mean']:.1f}; "
                compared = f" ({means}{line['seeds']:.0f}, {line['baseline_seeds']:.0f})" * bool(moved[series])
                cells.append(NOTHING if untested else f"${100 * line['difference']:+.1f}${_interval(line)}{compared}")
                cells.append(latex.escape(words.p_value(line["p_holm"])) or NOTHING)
                cells += [NOTHING if untested else str(line["verdict"])] * bool(task.rule)
        lines.append(" & ".join(cells) + r" \\")
    heads, place = ["Encoder", *columns], list(columns).index("Kept") + 2
    than = f"Than {latex.escape(str(task.baseline))}"
    heads[place:place] = [r"$\Delta$ kept", "$p$", *[than] * bool(task.rule)]
    seeds = f"{words.span(known['seeds'].min(), known['seeds'].max())} seeds" if len(known) else "no seeds"
    own = "; Free: reading its own output" * ("Free" in columns)
    operations = "; Cost: operations relative to no encoding" * ("Cost" in columns)
    times = {series: of for series, of in board.trained_for(task).items() if series in known.index}
    long = words.listed(f"{series} {of:.1f}" for series, of in times.items() if of >= board.LONGER)
    longer = f" Trained until learned, for more steps than the quickest: {long} times as many." * bool(long)
    caption = (
        f"{task.key}, trained to length {int(task.quality['train_length'].max())}, means over {seeds}: {metric.label} "
        f"({'%' if share else metric.unit}) in range and at multiples of that length. Kept: % of the quality in "
        f"range ({board.mean_of(known['up_to'].max())}); Δ: its difference from {task.baseline}, points; in brackets: "
        f"95 % intervals, each of one mean or comparison; p: with the correction of the methods, so that it may be "
        f"above .05 where an interval leaves out 0{own}{operations}. Bold: the best "
        f"mean beyond the training length{'; of what is kept, all that may be first' * task.placed}."
        + longer
        + f" [--]: {board.NO_INTERVAL}" * bool(known.loc[known["seeds_learned"] >= FEWEST, "low"].isna().any())
        + " Δ and p are of the look that decided or the last; in parentheses, where that had fewer runs than Kept: the "
        "means compared and the runs of each." * bool(moved.any())
    )
    return latex.main_table(heads, lines, caption, f"tab:{style.slug(task.key)}")


def _interval(line: "pd.Series[float]") -> str:
    text = f" [{100 * line['low']:.1f}, {100 * line['high']:.1f}]" if line["low"] == line["low"] else ""
    return text.replace("-", "$-$")


def fit(figure: Figure) -> None:
    """Make a figure readable at its width: enlarge text to `SMALLEST`, break long labels, thin out crowded ticks.

    Panels give way to names that have become too wide for the room at their left.
    """
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
        shares = [_over(label, axes, figure) for axes in figure.axes for label in axes.get_yticklabels()]
        if (share := max(shares, default=0.0)) > 0:
            for axes in figure.axes:
                box = axes.get_position()
                axes.set_position((share + box.x0 * (1 - share), box.y0, box.width * (1 - share), box.height))
        for most in (4, 3, 2, 1):
            figure.draw_without_rendering()
            crowded = [axes for axes in figure.axes if axes.get_xscale() == "linear" and _touching(axes)]
            for axes in crowded:
                axes.xaxis.set_major_locator(MaxNLocator(most))
            if not crowded:
                break


def _over(label: Text, axes: Axes, figure: Figure) -> float:
    """Return by which share of what is right of it a panel must shrink for a name at its left to fit."""
    if not label.get_text() or not label.get_visible():
        return 0.0
    return float(-label.get_window_extent().x0 / figure.bbox.width / (1 - axes.get_position().x0))


def _touching(axes: Axes) -> bool:
    boxes = [label.get_window_extent() for label in axes.get_xticklabels() if label.get_text() and label.get_visible()]
    return any(right.x0 < left.x1 for left, right in itertools.pairwise(sorted(boxes, key=lambda box: box.x0)))
