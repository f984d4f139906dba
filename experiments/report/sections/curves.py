"""The curves that a reader can choose from: summaries over seeds as plain data for the page's script."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from experiments.figures.style import Look
from experiments.measures.length_extrapolation import measure as length_extrapolation
from experiments.report.page import Chart, Section
from experiments.report.sections.ranking import Standings
from experiments.report.sections.task import LINES, OfTask
from experiments.rows.row import among, main_metric, metric_of

HELP = (
    "Quality over length. Shaded: lengths trained on, up to the dashed line. Bands: 95 % t intervals over seeds, none "
    "of a single seed. Point at a mark, or move from mark to mark with the arrow keys once the picture has the focus: "
    "left and right along a curve, up and down from curve to curve. †: a run did not learn the task within the "
    "training length."
)


def sections(tasks: Sequence[OfTask], standings: Standings, looks: dict[str, Look]) -> list[Section]:
    """The section, where any task was measured over lengths."""
    found = [data for of in tasks if (data := _task(of, standings.get(of.task)))]
    if not found:
        return []
    drawn = {label: _look(look) for label, look in looks.items()}
    return [Section("Curves", parts=[Chart(HELP, {"looks": drawn, "tasks": found})])]


def _look(look: Look) -> dict[str, Any]:
    """A look in the script's words. Half-filled marks are drawn full: colour and dash tell them apart."""
    dash = {"-": (), "--": (6, 3), "-.": (8, 3, 2, 3)}.get(look.dash) if isinstance(look.dash, str) else look.dash[1]
    lengths = [2.2 * stroke if not isinstance(look.dash, str) else stroke for stroke in dash or ()]
    return {"colour": look.colour, "marker": look.marker, "hollow": look.hollow, "dash": lengths}


def _task(of: OfTask, standing: pd.DataFrame | None) -> dict[str, Any] | None:
    summary = of.lengths
    summary = summary[summary["metric"].isin(length_extrapolation.QUALITIES)]
    if summary.empty:
        return None
    main = main_metric(summary["metric"].unique())
    names = sorted(summary["metric"].unique(), key=lambda name: (name != main, name))
    first = of.order if standing is None else list(standing["label"])
    return {
        "name": of.task,
        "trained": [int(length) for length in sorted(set(summary["train_length"]))],
        "labels": among(of.order, summary["label"]),
        "first": first[:LINES],
        "marked": [label for label in of.order if label in of.not_converged],
        "metrics": [_metric(name, summary[summary["metric"] == name]) for name in names],
    }


def _metric(name: str, summary: pd.DataFrame) -> dict[str, Any]:
    lengths = sorted(set(summary["eval_length"]))
    chance = summary.groupby("eval_length")["chance"].mean()
    metric = metric_of(name)
    lines: dict[str, list[list[float | None]]] = {}
    for line in summary.drop_duplicates(["label", "eval_length"]).to_dict("records"):
        points = lines.setdefault(str(line["label"]), [[None, None, None, 0] for _ in lengths])
        numbers = [_rounded(line[name]) for name in ("mean", "low", "high")]
        points[lengths.index(line["eval_length"])] = [*numbers, int(line["seeds"])]
    return {
        "name": metric.label,
        "unit": metric.unit,
        "up": bool(metric.higher_is_better),
        "lengths": [int(length) for length in lengths],
        "chance": [_rounded(chance[length]) for length in lengths],
        "lines": lines,
    }


def _rounded(value: float) -> float | None:
    """Four digits: more than anybody can see."""
    return None if math.isnan(value) else float(f"{value:.4g}")
