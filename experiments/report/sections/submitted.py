"""The board: every encoder of a folder and of the submissions beside it, one line each. Submitted code is never run."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from experiments.figures import words
from experiments.report.page import Section, Table
from experiments.report.sections.task import TaskResults
from experiments.rows import results as stored
from experiments.rows import submission
from experiments.rows.results import Results
from experiments.rows.submission import Submission
from experiments.statistics.comparisons import BASELINES, effect, find_baseline
from experiments.statistics.intervals import Vector
from experiments.statistics.scores import scores

NOTE = (
    "Mean area: over these tasks, where all were learned. Against none, against rope: Hedges' g, the difference of "
    "mean areas in deviations of one seed, the median over tasks; each line is compared with runs of its own sweep."
)
OF_SUBMISSIONS = (
    "Re-run: runs of a submission, chosen by its hash, that python run.py --verify repeated. Settings: where those of "
    "a submission differ from this folder's, its areas are not comparable."
)
OWN = ("plugin", "drawn", "threads")
"""Settings that say nothing about how a model was trained."""


def sections(tasks: Sequence[TaskResults], results: Results) -> list[Section]:
    """Make the section, where there are submissions or both baselines; ``tasks`` are those that lines are about."""
    keys, told = [task.key for task in tasks], []
    parts = [lines(results, keys).assign(by="", rerun="", settings="")]
    for found in submission.below(results.folder.resolve().parent):
        if isinstance(found, Submission):
            theirs = _read(found)
            own = lines(theirs, keys)
            own = own[own["encoder"].isin(found.encoders)]
            differ = {"by": found.who, "rerun": found.verified or "no", "settings": _differ(theirs, results, keys)}
            parts += [own.assign(**differ)] if len(own) else []
        else:
            told.append(found)
    table = pd.concat(parts, ignore_index=True).sort_values("area", ascending=False, kind="stable")
    if len(parts) == 1 and not (len(table) and set(BASELINES) <= set(table["encoder"])):
        return []
    submitted = len(parts) > 1
    note = " ".join([NOTE, *[OF_SUBMISSIONS] * submitted, *(f"Not readable: {one}." for one in told)])
    shown = _cells(table) if submitted else _cells(table).drop(columns=["by", "re-run", "settings"])
    return [Section("Board", [f"Tasks: {', '.join(keys)}."], [Table("board", "Board", shown, table, note)])]


def lines(results: Results, keys: Sequence[str]) -> pd.DataFrame:
    """Return one line for each series on some tasks.

    Returns:
        ``series``, ``encoder``, ``tasks``, ``tasks_learned`` (of them), ``area`` (mean over tasks; NaN where one was
        not learned) and the median effect against each of `BASELINES`, NaN where nothing can be compared.
    """
    quality = results.quality[results.quality["task"].isin(keys)]
    areas = {key: part["area"].dropna().to_numpy() for key, part in scores(quality).groupby(["series", "task"])}
    encoders = dict(zip(quality["series"], quality["encoder"].str.split("(").str[0], strict=True))
    found = []
    for series, encoder in sorted(encoders.items()):
        own = {task: values for (name, task), values in areas.items() if name == series}
        known = [values.mean() for values in own.values() if len(values)]
        line = [series, encoder, len(own), len(known), float(np.mean(known)) if len(known) == len(own) else math.nan]
        found.append([*line, *(_against(areas, own, _baseline(quality, name)) for name in BASELINES)])
    return pd.DataFrame(found, columns=["series", "encoder", "tasks", "tasks_learned", "area", *BASELINES])


def _against(areas: Mapping[Any, Vector], own: Mapping[Any, Vector], baseline: str) -> float:
    pairs = ((values, areas.get((baseline, task), np.zeros(0))) for task, values in own.items())
    effects = [found for found in (effect(*pair) for pair in pairs) if not math.isnan(found)]
    return float(np.median(effects)) if effects else math.nan


def _baseline(quality: pd.DataFrame, encoder: str) -> str:
    try:
        return find_baseline(quality, encoder)
    except ValueError:
        return ""


def _read(found: Submission) -> Results:
    with submission.unpacked(found) as place:
        return stored.read(place)


def _differ(theirs: Results, ours: Results, keys: Sequence[str]) -> str:
    names = {
        name
        for key in keys
        for name in theirs.settings.get(key, {}).keys() | ours.settings.get(key, {}).keys()
        if key in theirs.settings and theirs.settings[key].get(name) != ours.settings.get(key, {}).get(name)
    }
    return words.few(sorted(names - set(OWN))) if names - set(OWN) else "as here"


def _cells(table: pd.DataFrame) -> pd.DataFrame:
    learned = [f"{line['tasks_learned']} of {line['tasks']}" for line in table.to_dict("records")]
    cells = {"encoding": table["series"], "by": table["by"], "tasks learned": learned}
    cells |= {"mean area, %": [words.fixed(100 * area, ".0f") for area in table["area"]]}
    cells |= {f"against {name}": [words.fixed(value, "+.1f") for value in table[name]] for name in BASELINES}
    return pd.DataFrame(cells | {"re-run": table["rerun"], "settings": table["settings"]})
