"""Rows -> one page: which sections there are, and in which order. Read this first."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from experiments.figures import style
from experiments.report import overlay
from experiments.report import page as pages
from experiments.report.page import Page, Section
from experiments.report.paper import exports, methods
from experiments.report.sections import cards, cost, curves, fairness, folder, lengths, order, other, ranking, tasks
from experiments.report.sections import statements as statements_page
from experiments.report.sections.task import PICTURED, TaskResults
from experiments.rows import results as stored
from experiments.rows import sweeps, untrusted
from experiments.rows.results import Results
from experiments.rows.row import beyond_training
from experiments.statistics import comparisons
from experiments.statistics.rule import BEST, STATEMENTS, Rule, declared_rule
from experiments.statistics.statements import schema, verdicts

SECTIONS: dict[str, Callable[[TaskResults], Section]] = {
    "length_extrapolation": lengths.section,
    "permutation_sensitivity": order.section,
    "training": other.training,
    "tuning": fairness.tuning,
}
"""Experiments with a section of their own, in the order of a task's sections; others follow them."""
MANY = 4
"""Number of tasks from which on the summary of each stands in its own section."""


def write(place: Path, wanted: str | None, overlays: list[Path], *, paper: bool) -> tuple[Page, Path]:
    """Write ``<place>/report``; return the page and the path of its ``index.html``.

    ValueError if the folder, the baseline or a file of published curves cannot be used.
    """
    results = stored.read(place)
    baselines, statements = find_baselines(results, wanted), schema.load()
    published = [overlay.read(path) for path in overlays]

    def draw() -> Page:
        page = build(results, baselines, statements)
        page.method, settings = methods.paragraph(results, page.method)
        if settings is not None:
            page.sections.insert(0, Section("Settings and lengths of each task", parts=[settings], level=3))
        overlay.draw(page, published)
        return pages.with_unique_stems(page)

    page, target = draw(), place / "report"
    index = pages.write(page, target)
    exports.write_texts(page, results, target)
    exports.remove_paper(target)
    if paper:
        with style.sized(*exports.WIDTHS["single"]):
            narrow = draw()
        exports.write_paper(page, narrow, target)
    return page, index


def build(results: Results, baselines: dict[str, str], statements: list[schema.Statement]) -> Page:
    """Assemble the page; ``baselines`` are those of `find_baselines`."""
    opening = ["No run has finished with rows that can be read: there is nothing to compare yet."]
    sections: list[Section] = []
    if len(results.rows):
        opening, sections = _measured(results, baselines, verdicts.decide(statements, results))
    return Page(
        f"{results.folder.resolve().name}: positional encoders compared",
        opening + folder.marked(results.runs),
        folder.warnings(results),
        folder.method(results.rows) + fairness.method(results.runs, results.configs),
        [*sections, folder.runs_section(results), folder.provenance_section(results)],
    )


def _measured(
    results: Results, baselines: dict[str, str], decided: list[verdicts.Decided]
) -> tuple[list[str], list[Section]]:
    looks = style.looks(results.rows)
    series_names = list(looks)
    rows = results.rows.assign(look=results.rows["series"].map(looks))
    rule = _rule(results)
    by_task = [(str(key), part) for key, part in rows.groupby("task")]
    of_tasks = [TaskResults(key, part, results, baselines.get(key), len(by_task), rule) for key, part in by_task]
    opening = ranking.summary(of_tasks)
    sections = [
        *ranking.sections(of_tasks),
        *curves.sections(of_tasks, looks),
        *cost.sections(of_tasks),
        *statements_page.sections(decided),
        *tasks.sections(rows, series_names),
    ]
    for task in of_tasks:
        of_task = task_sections(task)
        sentence = lengths.summary(task)
        (of_task[0].paragraphs if len(of_tasks) >= MANY else opening).append(sentence)
        sections += of_task
    sections.append(cards.section(of_tasks, series_names))
    return opening + statements_page.summary_sentences(decided), sections


def _rule(results: Results) -> tuple[Rule, int] | None:
    """Return the rule by which a sweep of the folder added seeds, and the first of them."""
    return declared_rule(sweep.rule for sweep in sweeps.read(results.folder)[0])


def find_baselines(results: Results, wanted: str | None = None) -> dict[str, str]:
    """Return the series that the others are compared with, for every task measured beyond its training length.

    It is ``wanted``, a series or an encoder that has only one, and ValueError if no task has it; else that of the
    sweep's rule, the encoder ``none``, or the first series.
    """
    rule = _rule(results)
    if wanted is None and rule is not None and rule[0].question not in (BEST, STATEMENTS):
        wanted = rule[0].question
    found, misses = {}, []
    find = comparisons.default_baseline if wanted is None else partial(comparisons.find_baseline, wanted=wanted)
    for task, of_task in beyond_training(results.quality).groupby("task"):
        try:
            found[str(task)] = find(of_task)
        except ValueError as error:
            misses.append(error)
    if misses and not found:
        raise misses[0]
    return found


def task_sections(task: TaskResults) -> list[Section]:
    """Make the heading of the task, and a section below it for every experiment that it has rows of."""
    head = Section(f"Task {task.key}")
    present = set(task.rows["experiment"])
    if task.first_figure_only:
        present -= {"training"}
        head.paragraphs.append(f"With more than {PICTURED} tasks, each section shows only its first figure.")
    if len(task.drawn) < len(task.order):
        head.paragraphs.append(
            f"Figures show {len(task.drawn)} of the {len(task.order)} series: the baseline and the best beyond the "
            "training length. Tables show all."
        )
    known = [experiment for experiment in SECTIONS if experiment in present]
    shown = [_section(experiment, task) for experiment in [*known, *sorted(present - set(SECTIONS))]]
    return [head, *shown, other.cost(task)]


def _section(experiment: str, task: TaskResults) -> Section:
    try:
        section = SECTIONS.get(experiment, partial(other.other, experiment=experiment))(task)
    except (ValueError, LookupError, TypeError, ArithmeticError, AttributeError) as error:
        reason = untrusted.name_of(untrusted.message_of(error))
        section = Section(experiment, [f"The rows of {experiment} cannot be shown: {type(error).__name__}: {reason}"])
    section.level = 3
    return section
