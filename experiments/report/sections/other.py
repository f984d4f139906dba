"""What the page says of training, of its cost, and of the experiments that it knows nothing special of."""

from __future__ import annotations

import math
from importlib import import_module
from itertools import islice
from types import ModuleType

import pandas as pd

from experiments.figures import style, words
from experiments.report.page import Picture, Section, Table
from experiments.report.sections import fairness
from experiments.report.sections.task import MOST, OfTask, opened
from experiments.statistics import intervals

MEANS = "Mean over seeds ± half the 95 % t interval; a single seed has none. Every number is in the CSV file."


def training(of: OfTask) -> Section:
    """Loss and accuracy while training."""
    figures = style.training_curves(of.rows_of("training", drawn=MOST))
    caption = "Training loss (averaged since the point before) and accuracy on held-out data of training length."
    rows = of.rows_of("training")
    data = of.with_marks(intervals.over_seeds(rows, ["task", "metric", "label", "step"]))
    return Section("Training", parts=[Picture(stem, caption, figure, data) for stem, figure in figures.items()])


def other(of: OfTask, experiment: str) -> Section:
    """An experiment that this file knows nothing of: what its own module draws, sums up and puts first."""
    rows = of.rows_of(experiment)
    title = experiment.replace("_", " ").capitalize()
    stem, caption = of.stem(style.slug(experiment)), f"{title}, {of.task}"
    module = _experiment(experiment)
    if module is None:
        summary = intervals.by_measurement(rows)
        cells = summary.map(lambda value: words.short(value) if isinstance(value, float) else str(value))
        return Section(title, parts=[Table(stem, caption, cells, summary)])
    section = opened(title, experiment)
    figures = module.plot(of.rows_of(experiment, drawn=MOST)).items()
    for drawn, figure in islice(figures, 1 if of.in_short else None):
        section.parts.append(Picture(drawn, module.CAPTIONS[drawn.removeprefix(of.stem(""))], figure))
    summary = of.with_marks(module.summarise(rows))
    section.parts.append(Table(stem, caption, _by_head(of, experiment, module.shown(rows)), summary, MEANS))
    return section


def _by_head(of: OfTask, experiment: str, shown: pd.DataFrame) -> pd.DataFrame:
    """Labels down, the heads that an experiment gave its rows across."""
    heads = list(dict.fromkeys(shown["head"]))
    found = {
        (line["label"], line["head"]): line
        for line in intervals.over_seeds(shown, ["label", "head"]).to_dict("records")
    }
    lines = [
        [
            of.name(label),
            *(words.cell(found.get((label, head)), of.seeds[experiment][label], words.short) for head in heads),
        ]
        for label in of.order
        if any((label, head) in found for head in heads)
    ]
    return pd.DataFrame(lines, columns=["label", *heads])


def tuning(of: OfTask) -> Section:
    """The learning rates that were tried and chosen."""
    return fairness.tuning(of.runs, of.order, of.name, of.stem("tuning"), of.task)


def cost(of: OfTask) -> Section:
    """Parameters, steps and time of training, and controls with as many parameters."""
    columns = ["encoder_parameters", "model_parameters", "steps", "train_seconds", "tokens_per_second"]
    numbers = of.runs[["label"]].join(of.runs[columns].apply(pd.to_numeric, errors="coerce"))
    of_training = ["steps", "train_seconds", "tokens_per_second"]
    numbers.loc[numbers.index.difference(of.trained.index), of_training] = math.nan
    data = numbers.groupby("label")[columns].mean().reindex(of.order).reset_index()
    records = data.to_dict("records")
    lines = [[of.name(line["label"]), *(words.number(line[column]) for column in columns)] for line in records]
    head = ["label", *(column.replace("_", " ") for column in columns)]
    note = "Means over seeds. Seconds and tokens per second are those of training, on the machine of the run."
    table = Table(of.stem("training_cost"), f"Training cost, {of.task}", pd.DataFrame(lines, columns=head), data, note)
    beyond, stem = of.beyond, of.stem("controls")
    said, controls = fairness.controls(of.trained, of.configs, beyond, of.order, of.name, stem, of.task)
    return Section("Training cost", said, [table, *controls], level=3)


def _experiment(name: str) -> ModuleType | None:
    """The experiment's module, if there is one by that name that can draw and sum up."""
    if not name.isidentifier() or name.startswith("_"):
        return None
    try:
        module = import_module(f"experiments.measures.{name}.measure")
    except ModuleNotFoundError:
        return None
    return module if hasattr(module, "plot") and hasattr(module, "summarise") else None
