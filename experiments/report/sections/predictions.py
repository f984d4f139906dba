"""What theory predicts of length generalisation, beside what was measured."""

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from experiments.figures import words
from experiments.report.page import Section, Table
from experiments.report.sections.task import TaskResults
from experiments.rows.row import KEEPS
from experiments.rows.untrusted import Loader

FILE = Path(__file__).parents[1] / "assets" / "predictions.yaml"
TEXT = (
    "Causal models that express a task as a C-RASP program are predicted to generalise to longer inputs: without an "
    "encoder by plain C-RASP, with absolute positions trained with random offsets by C-RASP with periodic and local "
    "relations. That they fail at other tasks is a conjecture (Huang et al. 2024, arXiv:2410.02140)."
)


@cache
def theory() -> dict[str, dict[str, list[Any]]]:
    """Return ``encodings``, with encoder and numbering, and ``tasks``, expressible for each of these, and by whom."""
    return dict(yaml.load(FILE.read_text(encoding="utf-8"), Loader=Loader))


def predicted(task: str) -> list[Any] | None:
    """Return the prediction for a task with its options; of other options than those named, lengths and sizes count.

    >>> predicted("copy(num_symbols=32, unique=True)")[:2]
    [False, True]
    """
    name, _, options = task.rstrip(")").partition("(")
    turned = [option for option in options.split(", ") if option.partition("=")[2] in ("True", "False")]
    return theory()["tasks"].get(f"{name}({', '.join(turned)})" if turned else name)


def sections(tasks: Sequence[TaskResults]) -> list[Section]:
    """Make the section, where a task that theory speaks of was measured at twice its length."""
    lines = [line for task in tasks if (found := predicted(task.key)) for line in _lines(task, found)]
    data = pd.DataFrame([line for line in lines if not math.isnan(line["kept_2"])])
    if data.empty:
        return []
    against = data[data["contradicts"]]
    said = "No measurement contradicts a prediction."
    if len(against):
        each = (f"{line['task']} with {line['encoding']}" for line in against.to_dict("records"))
        said = f"{len(against)} of {len(data)} measurements contradict the prediction: {'; '.join(each)}."
    cells = data.assign(
        predicted=["generalises" if good else "fails" for good in data["predicted"]],
        kept_2=[words.fixed(100 * kept, ".0f") for kept in data["kept_2"]],
        contradicts=["contradicted" if wrong else "agrees" for wrong in data["contradicts"]],
    ).astype(str)
    cells = cells.rename(columns={"kept_2": "kept at 2×, %", "contradicts": "verdict", "runs": "runs that learned"})
    note = f"Kept: share of the quality in range above guessing, mean of the runs; {KEEPS:.0%} counts as generalising."
    table = Table("predictions", "C-RASP", cells, data, note)
    return [Section("Predicted and measured", [TEXT, said], [table], folded=len(tasks) == 1)]


def _lines(task: TaskResults, found: list[Any]) -> list[dict[str, Any]]:
    plain = {"model.as_many_as": "null"}
    configs = {run: plain | task.configs[run] for run in task.runs["run_id"]}
    lines = []
    for (encoding, (encoder, numbering)), good in zip(theory()["encodings"].items(), found, strict=False):
        fitting = {**plain, "encoder.name": encoder, "positions.name": numbering, "model.causal": "true"}
        runs = [run for run, config in configs.items() if fitting.items() <= config.items()]
        series = set(task.runs.loc[task.runs["run_id"].isin(runs), "series"])
        kept = task.scores.loc[task.scores["series"].isin(series), "kept_2"].dropna()
        mean = float(kept.mean()) if len(kept) else math.nan
        line = {"task": task.key, "encoding": encoding, "predicted": good, "kept_2": mean, "runs": len(kept)}
        lines.append({**line, "contradicts": (mean >= KEEPS) != good, "source": found[2]})
    return lines
