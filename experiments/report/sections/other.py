"""Training, its cost, and every experiment without a section of its own."""

import math
from itertools import islice

import pandas as pd

from experiments.figures import style, words
from experiments.figures.training import training_curves
from experiments.measures import has_report, plot_of, report_of
from experiments.report.page import Block, Picture, Section, Table
from experiments.report.sections import fairness
from experiments.report.sections.task import TaskResults, opening
from experiments.statistics import intervals

COSTS = ["encoder_parameters", "model_parameters", "steps", "train_seconds", "tokens_per_second"]
OF_TRAINING = COSTS[2:]


def training(task: TaskResults) -> Section:
    """Make the section of loss and accuracy during training."""
    figures = training_curves(task.rows_of("training", drawn=True))
    data = task.with_marks(intervals.over_seeds(task.rows_of("training"), ["task", "metric", "series", "step"]))
    return Section("Training", parts=[Picture(stem, figure.caption, figure, data) for stem, figure in figures.items()])


def other(task: TaskResults, experiment: str) -> Section:
    """Make the section of an experiment from its own module: its figures and headline numbers."""
    rows = task.rows_of(experiment)
    title = experiment.replace("_", " ").capitalize()
    stem, caption = task.stem(style.slug(experiment)), f"{title}, {task.key}"
    section = opening(title, experiment, task.results)
    figures = plot_of(experiment)(task.rows_of(experiment, drawn=True)).items()
    for drawn, figure in islice(figures, 1 if task.first_figure_only else None):
        section.parts.append(Picture(drawn, figure.caption, figure))
    if not has_report(experiment):
        section.parts.append(_by_measurement(rows, stem, caption))
        return section
    module = report_of(experiment)
    shown = module.shown(rows)
    heads = {head: head for head in shown["head"].unique()}
    cells = task.grid(intervals.over_seeds(shown, ["series", "head"]), ["head"], heads, experiment, words.measured)
    summary = task.with_marks(module.summarise(rows))
    if task.outside and len(cells) == 1:  # of one model, a line for each number
        cells = (
            cells.drop(columns="series").T.reset_index().set_axis(["measured", str(cells["series"].iloc[0])], axis=1)
        )
    section.parts.append(Table(stem, caption, cells, summary, task.means))
    if "meaning" in shown:
        meanings = dict(zip(shown["head"], shown["meaning"], strict=True))
        section.parts.append(Block("list", [f"{head}: {meaning}" for head, meaning in meanings.items()]))
    return section


def _by_measurement(rows: pd.DataFrame, stem: str, caption: str) -> Table:
    """Return the table of a measure that says nothing of its own: a line for each thing measured of each series."""
    summary = intervals.by_measurement(rows)
    cells = summary.map(lambda value: words.measured(value) if isinstance(value, float) else str(value))
    return Table(stem, caption, cells, summary)


def cost(task: TaskResults) -> Section:
    """Make the section of parameters, steps and time of training, and of controls with as many parameters."""
    numbers = task.runs[["series"]].join(task.runs[COSTS].apply(pd.to_numeric, errors="coerce"))
    numbers.loc[numbers.index.difference(task.trained.index), OF_TRAINING] = math.nan
    data = numbers.groupby("series")[COSTS].mean().reindex(task.order).reset_index()
    cells = data[COSTS].map(words.number).rename(columns=lambda column: column.replace("_", " "))
    cells.insert(0, "series", data["series"].map(task.display))
    note = "Means over seeds. Seconds and tokens per second are those of training on the machine of the run."
    table = Table(task.stem("training_cost"), f"Training cost, {task.key}", cells, data, note)
    return Section("Training cost", parts=[table, *fairness.controls(task)], folded=True)
