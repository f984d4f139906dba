"""The interactive curves: summaries over seeds as plain data for the page's script."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from experiments.figures.style import Look
from experiments.measures.length_extrapolation import report as length_extrapolation
from experiments.report.page import Chart, Section
from experiments.report.sections.task import LINES, TaskResults
from experiments.rows.row import among, main_metric, metric_of

HELP = (
    "Quality over length. Shaded: training lengths, up to the dashed line. Bands: 95 % intervals over seeds. Point "
    "at a mark, or focus the picture and use the arrow keys: left and right along a curve, up and down between curves. "
    "†: a run did not learn the task within the training length."
)


def sections(tasks: Sequence[TaskResults], looks: dict[str, Look]) -> list[Section]:
    """Make the section, where any task was measured over lengths."""
    found = [data for task in tasks if (data := _task(task))]
    if not found:
        return []
    drawn = {series: _look(look) for series, look in looks.items()}
    return [Section("Curves", parts=[Chart(HELP, {"looks": drawn, "tasks": found})])]


def _look(look: Look) -> dict[str, Any]:
    """Translate a look for the script. Half-filled marks are drawn full: colour and dash tell them apart."""
    dash = {"-": (), "--": (6, 3), "-.": (8, 3, 2, 3)}.get(look.dash) if isinstance(look.dash, str) else look.dash[1]
    lengths = [2.2 * stroke if not isinstance(look.dash, str) else stroke for stroke in dash or ()]
    return {"colour": look.colour, "marker": look.marker, "hollow": look.hollow, "dash": lengths}


def _task(task: TaskResults) -> dict[str, Any] | None:
    summary = task.lengths[task.lengths["metric"].isin(length_extrapolation.QUALITIES)]
    if summary.empty:
        return None
    main = main_metric(summary["metric"].unique())
    names = sorted(summary["metric"].unique(), key=lambda name: (name != main, name))
    first = among(task.standing["series"], pd.Series(task.order)) or task.order
    return {
        "name": task.key,
        "trained": [int(length) for length in sorted(set(summary["train_length"]))],
        "series": among(task.order, summary["series"]),
        "first": first[:LINES],
        "marked": [series for series in task.order if series in task.not_converged],
        "metrics": [_metric(name, summary[summary["metric"] == name]) for name in names],
    }


def _metric(name: str, summary: pd.DataFrame) -> dict[str, Any]:
    lengths = sorted(set(summary["eval_length"]))
    chance = summary.groupby("eval_length")["chance"].mean()
    metric = metric_of(name)
    lines: dict[str, list[list[float | None]]] = {}
    for line in summary.drop_duplicates(["series", "eval_length"]).to_dict("records"):
        points = lines.setdefault(str(line["series"]), [[None, None, None, 0] for _ in lengths])
        numbers = _rounded((line["mean"], line["low"], line["high"]))
        points[lengths.index(line["eval_length"])] = [*numbers, int(line["seeds"])]
    return {
        "name": metric.label,
        "unit": metric.unit,
        "up": bool(metric.higher_is_better),
        "lengths": [int(length) for length in lengths],
        "chance": _rounded(chance[lengths]),
        "lines": lines,
    }


def _rounded(values: Iterable[float]) -> list[float | None]:
    return [None if math.isnan(value) else float(f"{value:.4g}") for value in values]
