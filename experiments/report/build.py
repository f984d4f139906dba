"""Rows -> pages: the answer first, a page for each task and encoder, and one of method and data. Read this first."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from experiments.figures import style, words
from experiments.measures.context_extension import NAME as EXTENDED
from experiments.measures.retrieval.answer import MEASURES
from experiments.report import board, checkpoint, documented, drawing, overlay
from experiments.report import page as pages
from experiments.report.front import headings
from experiments.report.front.screen import first_screen
from experiments.report.front.tasks import counted, main_block, ranked, shown
from experiments.report.page import Block, Opening, Page, Part, Picture, Section, Table
from experiments.report.paper import exports, methods
from experiments.report.sections import (
    cards,
    cost,
    fairness,
    folder,
    lengths,
    order,
    other,
    predictions,
    ranking,
    reading,
    submitted,
    transfer,
)
from experiments.report.sections import statements as statements_page
from experiments.report.sections.task import PICTURED, TaskResults
from experiments.rows import results as stored
from experiments.rows import rungs, sweeps, untrusted
from experiments.rows.results import Results
from experiments.statistics.baselines import declared_in
from experiments.statistics.baselines import of_tasks as baselines_of
from experiments.statistics.statements import schema, verdicts

SECTIONS: dict[str, Callable[[TaskResults], Section]] = {
    "length_extrapolation": lengths.section,
    "permutation_sensitivity": order.section,
    "training": other.training,
    "tuning": fairness.tuning,
}
"""Experiments with a section of their own, in the order of a task's sections; others stand before `LAST`."""
LAST = ("training", "tuning")
LONG = 15
"""Rows from which on a table of a task with as many series has its place on a page of its own."""
READING = (
    "In range: at the lengths of the training. Kept: the share of the quality in range that a run has at 2, 4 "
    "and 8 times the training length (as far as measured), averaged; other lengths do not count. 0 is no more than "
    "guessing without reading.",
    "Place: the places that an encoding may have. The true ones of all encodings of a task lie in these ranges with "
    "95 % confidence (Welch's test with Holm's correction; a pair that was not tested decides nothing).",
    "Open: planned runs may decide it. Undecided: all planned runs are in.",
    "Only runs that learned the task in range count. A ring, hatching or “2 of 3 learned” marks the others, which take "
    "no place.",
    "Teacher-forced: each token is predicted from the true ones before it. Free-running: the model reads its own.",
    "Colours tell what an encoding changes: inputs, rotations of queries and keys, scores, or nothing.",
)


def write(
    place: Path, wanted: str | None, overlays: list[Path], *, paper: bool = False, single: bool = False
) -> tuple[Page, Path]:
    """Write ``<place>/report``; return the page and the path of its ``index.html``.

    ValueError if the folder, the baseline or a file of published curves cannot be used.
    """
    whole, statements = stored.read(place), schema.load()
    results = rungs.apart(whole)
    of_tasks = tasks_of(results, wanted)
    published = [overlay.read(path) for path in overlays]

    def draw() -> Page:
        page = build(results, whole, of_tasks, statements)
        overlay.draw(page, published)
        return pages.with_unique_stems(page)

    page, target = draw(), place / "report"
    index = pages.write(page, target, single=single)
    exports.write_texts(page, results, target)
    if paper or (target / "report.tex").is_file():  # one that is there is kept up with the page
        with style.sized(*exports.COLUMN, titled=False):
            narrow = draw()
        exports.write_paper(narrow, of_tasks, target)
    return page, index


def build(results: Results, whole: Results, of_tasks: list[TaskResults], statements: list[schema.Statement]) -> Page:
    """Assemble the pages; ``whole`` has all rungs together, ``of_tasks`` are those of `tasks_of`."""
    name = results.folder.resolve().name
    rule, outside = declared_in(results.folder), stored.from_outside(results.finished, results.configs)
    noted = sweeps.read(results.folder)[0]
    by_hand = set(results.finished["run_id"]) - set(sweeps.asked(noted))
    commands = len(set({sweeps.lasting(sweep.command): sweep.runs for sweep in noted}.values())) + bool(by_hand)
    method = folder.method(results.rows, rule, commands, outside=outside)
    method += fairness.method(results.runs, results.configs)
    method, settings = methods.paragraph(results, method)
    warned = folder.warnings(results)
    data = Page("Method and data", [], [Section("Method", [" ".join(method)])], path="data.html", name="data")
    data.sections += [Section("Warnings", parts=[Block("list", warned)])] if warned else []
    data.sections += [Section("Settings and lengths of each task", parts=[settings])] if settings else []
    page = Page(f"{name}: nothing to compare", [], [], warnings=warned, method=method, name=name, below=[data])
    if len(results.rows) and outside:
        return _of_checkpoints(page, data, results, of_tasks)
    if len(results.rows):
        openings = [reading.told(results), transfer.told(whole)]
        _measured(page, data, results, of_tasks, verdicts.decide(statements, whole), openings)
    else:
        page.summary.append("No run has finished with rows that can be read: there is nothing to compare yet.")
    unlearned = folder.marked(results.runs, results.configs)
    page.summary += unlearned
    what = "What did not learn" + ", or did not end" * (len(results.finished) < len(results.runs))
    page.sections += [Section(what, parts=[Block("list", unlearned)])] if unlearned else []
    page.sections.append(Section("Method", [" ".join(method)], folded=True))
    data.sections += [folder.runs_section(results), folder.provenance_section(results)]
    return page


def _of_checkpoints(page: Page, data: Page, results: Results, of_tasks: list[TaskResults]) -> Page:
    """Complete the page of models that were measured as they are: the answer, then every experiment."""
    found, by_task = checkpoint.answers(results), checkpoint.places(results)
    placed = [told for of_task in by_task.values() for told in of_task]
    page.title = checkpoint.heading(results, found, placed)
    page.sections = [each for each in checkpoint.sections(results, found, placed) if each.paragraphs or each.parts]
    for task in of_tasks:
        present = set(task.rows["experiment"])
        if (own := by_task.get(task.key)) and not any(each.known for each in own):
            present -= set(MEASURES)  # its tables and figures would be of guesses
        covered = {experiment for told in found for experiment in told.covers} & present
        page.sections += [checkpoint.of_one(_section(experiment, task)) for experiment in _ordered(present - covered)]
        below = _ordered(covered - {EXTENDED})
        data.sections += [checkpoint.of_one(_section(experiment, task)) for experiment in below]
    page.summary = [sentence for told in found[:1] for sentence in told.sentences]
    for each in placed:  # a sentence does not name its model, its heading does
        page.summary += [f"{each.heading}."] * (each.heading != page.title) + each.sentences
    page.sections.append(Section("Method", [" ".join(page.method)], folded=True))
    data.sections += [checkpoint.of_one(folder.runs_section(results)), folder.provenance_section(results)]
    return page


def _measured(
    page: Page,
    data: Page,
    results: Results,
    of_tasks: list[TaskResults],
    decided: list[verdicts.Decided],
    openings: list[Opening],
) -> None:
    titled = next((each for each in openings if each.heading), Opening())
    claims = statements_page.told(decided)
    page.title, page.front = first_screen(of_tasks, results, claims, titled.findings, titled.task)
    of_pages = [_task_page(task) for task in of_tasks]
    question, other = (statements_page.verdict(decided, asked=which) for which in (True, False))
    page.title = titled.heading or question or (page.title if page.front else other or of_pages[0].title)
    found = page.front.findings if page.front else []
    page.summary = [f"{each.head} {each.text} {each.small}".strip() for each in found]
    page.summary += statements_page.summary_sentences(decided)
    claimed, in_numbers = statements_page.sections(decided)
    page.sections += [*titled.sections, *claimed * bool(question)]
    reading = [text for text in READING if of_tasks[0].placed or not text.startswith("Place: ")]
    if page.front:
        page.sections.append(Section("How to read this", parts=[Block("list", reading)]))
    elif len(of_pages) == 1:  # nothing over lengths, so what was measured is the answer
        page.sections += of_pages[0].sections
    for each in claimed:
        each.folded |= any(task.about_own for task in of_tasks)  # who asks of an encoder came for no claim
    page.sections += claimed * (not question)
    page.sections += [section for opening in openings if opening is not titled for section in opening.sections]
    page.sections += _maps(ranked(of_tasks), main_block(of_tasks))
    page.sections += submitted.sections(main_block(of_tasks) or of_tasks, results)
    encoders = cards.pages(of_tasks, decided)
    pictured = shown(counted(of_tasks) or of_tasks)
    page.sections += order.on_the_index(pictured) if pictured else []
    page.sections += predictions.sections(of_tasks)
    page.sections += cost.sections(of_tasks)
    page.sections.append(Section("Tasks", parts=[Block("links", [_task_link(task) for task in of_tasks])]))
    page.sections.append(Section("Encodings", parts=[Block("links", cards.links(of_tasks))]))
    data.sections += in_numbers
    data.sections.append(Section("", parts=list(ranking.numbers(of_tasks))))
    page.below = [*of_pages, *encoders, data]


def _maps(ranked: list[TaskResults], main: list[TaskResults]) -> list[Section]:
    """Return tasks by encodings, one map for the tasks that have the same; what the first screen has is left out."""
    shown = main if len(main) <= board.FEW else []
    maps = [Block("map", board.heat_map(block)) for block in board.blocks([t for t in ranked if t not in shown])]
    return [Section("Tasks by encodings", ranking.apart(ranked), list(maps))] if len(ranked) > 1 and maps else []


def tasks_of(results: Results, wanted: str | None = None) -> list[TaskResults]:
    """Return the results of each task, in order; ``wanted`` is the baseline that a reader asks for."""
    known = documented.encoders(results.runs)
    families = {name: entry.declared.get("family", "") for name, entry in known.items()}
    own = {name for name, entry in known.items() if entry.declared.get("file")}
    rows = results.rows.assign(look=results.rows["series"].map(style.looks(results.rows, families, own)))
    rule = declared_in(results.folder)
    baselines, by_hand = baselines_of(results, rule, wanted), wanted is not None
    parts = sorted(((str(key), part) for key, part in rows.groupby("task")), key=lambda part: words.by_number(part[0]))
    return [TaskResults(key, part, results, baselines.get(key), len(parts), rule, by_hand) for key, part in parts]


def _task_page(task: TaskResults) -> Page:
    """Make the page of a task: its first screen, and a section for every experiment that it has rows of."""
    heading, screen = first_screen([task], task.results)
    screen = screen if task.tasks > 1 else None  # of one task, the index has it
    head = Section("Figures of this task")
    present = set(task.rows["experiment"])
    if task.first_figure_only:
        present -= {"training"}
        head.paragraphs.append(f"With more than {PICTURED} tasks, each section shows only its first figure.")
    made = [_section(experiment, task) for experiment in _ordered(present)]
    if screen is None and not task.asks_of_each:  # then the first figure has the answer
        titles = (part.figure.title for section in made for part in section.parts if isinstance(part, Picture))
        heading = next(titles, heading)
    for section in made:
        section.folded = screen is not None
    sections = [*[head] * bool(head.paragraphs), *made, other.cost(task)]
    page = Page(heading, [] if screen else [task.described], sections, screen, path=task.path, name=task.key)
    return _without_long_tables(page) if len(task.order) > LONG else page


def _ordered(present: set[str]) -> list[str]:
    first = [experiment for experiment in SECTIONS if experiment in present - set(LAST)]
    return [*first, *sorted(present - set(SECTIONS)), *(experiment for experiment in LAST if experiment in present)]


def _without_long_tables(page: Page) -> Page:
    """Move the tables of many rows to a page of their own, below this one."""
    path, moved = page.path.replace(".html", ".tables.html"), []
    for section in page.sections:
        tables: list[Part] = []
        for place, part in enumerate(section.parts):
            if isinstance(part, Table) and len(part.cells) > LONG:
                tables.append(part)
                given = {"page": path, "caption": part.caption, "rows": len(part.cells), "stem": part.stem}
                section.parts[place] = Block("elsewhere", given)
        moved += [Section(section.title, parts=tables)] if tables else []
    page.below = [Page(f"{page.name}: tables", [], moved, path=path, name=f"{page.name}, tables")]
    return page


def _task_link(task: TaskResults) -> dict[str, str]:
    firsts = task.ranked.loc[task.ranked["place_low"] == 1, "series"]
    said = f"first: {words.few(firsts)}" if len(task.ranked) > 1 else "not compared"
    said = headings.verdicts(task) if task.declared and task.asked else said
    said = f"possibly the best: {words.few(task.possibly_best)}" if task.possibly_best else said
    lines = [line for line in task.curves if line.coloured] if len(task.measured) else []
    picture = drawing.small(lines, task.axes, 100, 26) if lines else ""
    named = {"name": task.key, "page": task.path, "css": ""}
    return named | {"drawing": picture, "said": said}


def _section(experiment: str, task: TaskResults) -> Section:
    try:
        section = SECTIONS.get(experiment, partial(other.other, experiment=experiment))(task)
    except (ValueError, LookupError, TypeError, ArithmeticError, AttributeError) as error:
        reason = untrusted.name_of(untrusted.message_of(error))
        section = Section(experiment, [f"The rows of {experiment} cannot be shown: {type(error).__name__}: {reason}"])
    return section
