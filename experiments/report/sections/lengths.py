"""Quality over lengths: curves and tables."""

import pandas as pd

from experiments.figures import words
from experiments.measures.length_extrapolation import POSITION_LOSS
from experiments.measures.length_extrapolation import report as length_extrapolation
from experiments.report.page import Picture, Section, Table
from experiments.report.sections.task import TaskResults, opening
from experiments.rows.row import OVER_LENGTHS, among, metric_of
from experiments.statistics import intervals


def section(task: TaskResults) -> Section:
    """Make the section: curves and tables of every metric, loss by position."""
    section = opening("Length extrapolation", OVER_LENGTHS, task.results)
    summary = task.with_marks(task.lengths)
    figures = length_extrapolation.plot(task.rows_of(OVER_LENGTHS, drawn=True))
    for metric in among(length_extrapolation.QUALITIES, summary["metric"]):
        stem, named = task.stem(metric), metric_of(metric)
        if stem in figures:
            section.parts.append(Picture(stem, figures[stem].caption, figures[stem]))
        section.parts.append(_length_table(task, stem, named.label, summary[summary["metric"] == metric]))
    if not task.first_figure_only and (stem := task.stem(POSITION_LOSS)) in figures:
        data = summary[summary["metric"] == POSITION_LOSS]
        section.parts.append(Picture(stem, figures[stem].caption, figures[stem], data))
    if (stem := task.stem(length_extrapolation.DURING)) in figures:
        rows = task.rows_of(OVER_LENGTHS)
        data = task.with_marks(intervals.by_measurement(rows[rows["step"].notna()]))
        section.parts.append(Picture(stem, figures[stem].caption, figures[stem], data))
    return section


def _length_table(task: TaskResults, stem: str, named: str, summary: pd.DataFrame) -> Table:
    trained, lengths = set(summary["train_length"]), sorted(set(summary["eval_length"]))
    heads = {length: f"{length} (trained)" if length in trained else str(length) for length in lengths}
    cells = task.grid(summary, ["eval_length"], heads, OVER_LENGTHS)
    seeds = {task.display(series): str(count) for series, count in task.seeds[OVER_LENGTHS].items()}
    blank = [] if task.outside else [""]
    if not task.outside:
        cells.insert(1, "seeds", cells["series"].map(seeds))
    chance = summary.groupby("eval_length")["chance"].mean()
    if chance.notna().any():
        cells.loc[len(cells)] = ["guessing without reading", *blank, *map(words.measured, chance[lengths])]
    refused = " Unsupported: the encoder refuses that length; this is a result, not a gap."
    note = task.means + refused * bool((summary["unsupported"] > 0).any())
    return Table(stem, f"{named.capitalize()} by length, {task.key}", cells, summary, note)
