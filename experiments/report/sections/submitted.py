"""The board: every encoder of a folder and of the submissions beside it, one line each. Submitted code is never run.

Only results of the same settings are ranked together.
"""

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
from experiments.statistics.baselines import BASELINES, find_baseline
from experiments.statistics.comparisons import effect
from experiments.statistics.intervals import Vector, bounded
from experiments.statistics.scores import scores

NOTE = (
    "Mean kept: over these tasks, where all were learned, with its 95 % interval over the seeds that all tasks have. "
    "Against none, against rope: Hedges' g, the difference of these means in deviations of one seed (the root mean "
    "square of both), the median over tasks; each line is compared with runs of its own sweep."
)
OF_SUBMISSIONS = "Re-run: runs of a submission, chosen by its hash, that python run.py --verify repeated."
APART = (
    "Their tasks or settings differ from this folder's where the last column says, so these means are not comparable."
)
COMPARED = ("data", "layout.", "length_extrapolation.", "model.", "task.", "train.", "tune")
"""Settings that two means must share to be compared."""
LINE = ("series", "encoder", "tasks", "tasks_learned", "seeds", "seeds_learned", "kept", "low", "high")


def sections(tasks: Sequence[TaskResults], results: Results) -> list[Section]:
    """Make the section, where there are submissions, or several tasks and both baselines.

    ``tasks`` are those that lines are about.
    """
    keys, told = [task.key for task in tasks], []
    parts = [lines(results, keys).assign(submission="", rerun="", settings="")]
    for found in submission.below(results.folder.resolve().parent):
        if isinstance(found, Submission):
            with submission.unpacked(found) as place:
                theirs = stored.read(place)
            named = {"submission": f"{found.who}/{found.name}", "rerun": found.verified or "no"}
            ours = {*results.runs["run_id"]} if found.name == results.folder.resolve().name else set()
            if {*theirs.runs["run_id"]} <= ours:  # made from this folder
                parts[0].loc[parts[0]["encoder"].isin(found.encoders), list(named)] = list(named.values())
                continue
            own = lines(theirs, keys)
            own = own[own["encoder"].isin(found.encoders)]
            parts += [own.assign(**named, settings=_differ(theirs, results, keys))] if len(own) else []
        else:
            told.append(found)
    table = pd.concat(parts, ignore_index=True).sort_values("kept", ascending=False, kind="stable")
    submitted = bool((table["submission"] != "").any())
    if not submitted and (len(keys) < 2 or not set(BASELINES) <= set(table["encoder"])):
        return []
    note = " ".join([NOTE, *[OF_SUBMISSIONS] * submitted, *(f"Not readable: {one}." for one in told)])
    here, apart = table[table["settings"] == ""], table[table["settings"] != ""]
    hidden = ["settings"] if submitted else ["submission", "re-run", "settings"]
    boards = [Table("board", "Board", _cells(here).drop(columns=hidden), here, note, pasted=submitted)]
    if len(apart):
        caption = "Board: other settings, not ranked"
        boards.append(Table("board_apart", caption, _cells(apart), apart, APART, pasted=True))
    return [Section("Board", [f"Tasks: {', '.join(keys)}."], [*boards])]


def lines(results: Results, keys: Sequence[str]) -> pd.DataFrame:
    """Return one line for each series on some tasks.

    Returns:
        ``series``, ``encoder``, ``tasks``, ``tasks_learned`` (of them), ``seeds`` and ``seeds_learned`` (on the task
        with the fewest), ``kept`` (mean over tasks; NaN where one was not learned) with ``low`` and ``high``, and the
        median effect against each of `BASELINES`, NaN where nothing can be compared.
    """
    quality = results.quality[results.quality["task"].isin(keys)]
    scored = scores(quality)
    kept = {key: part["kept"].dropna().to_numpy() for key, part in scored.groupby(["series", "task"])}
    encoders = dict(zip(quality["series"], quality["encoder"].str.split("(").str[0], strict=True))
    found = []
    for series, encoder in sorted(encoders.items()):
        own = {task: values for (name, task), values in kept.items() if name == series}
        known = [values.mean() for values in own.values() if len(values)]
        part = scored[scored["series"] == series]
        seeds = [int(part.groupby("task").size().min()), min(map(len, own.values()))]
        ends = (math.nan, math.nan, math.nan)
        if len(known) == len(own):
            ends = (float(np.mean(known)), *_interval(part))
        line = [series, encoder, len(own), len(known), *seeds, *ends]
        found.append([*line, *(_against(kept, own, _baseline(quality, name)) for name in BASELINES)])
    return pd.DataFrame(found, columns=[*LINE, *BASELINES])


def _interval(scored: pd.DataFrame) -> tuple[float, float]:
    """Return the interval of a series' mean over tasks, from the seeds that have one on each."""
    tasks = scored.groupby("task")
    means = scored.pivot(index="seed", columns="task", values="kept").dropna().mean(axis=1).to_numpy(dtype=float)
    bounds = float(tasks["worst"].min().mean()), float(tasks["best"].max().mean())
    return bounded(means, bounds, float(scored["noise"].mean()) / len(tasks))


def _against(kept: Mapping[Any, Vector], own: Mapping[Any, Vector], baseline: str) -> float:
    pairs = ((values, kept.get((baseline, task), np.zeros(0))) for task, values in own.items())
    effects = [found for found in (effect(*pair) for pair in pairs) if not math.isnan(found)]
    return float(np.median(effects)) if effects else math.nan


def _baseline(quality: pd.DataFrame, encoder: str) -> str:
    try:
        return find_baseline(quality, encoder)
    except ValueError:
        return ""


def _differ(theirs: Results, ours: Results, keys: Sequence[str]) -> str:
    """Return what keeps results from being ranked with ours: tasks they lack, settings that differ; else blank."""
    names = {
        name
        for key in set(keys) & set(theirs.settings)
        for name in theirs.settings[key].keys() | ours.settings[key].keys()
        if name.startswith(COMPARED) and theirs.settings[key].get(name) != ours.settings[key].get(name)
    }
    return words.few([*(f"no {key}" for key in keys if key not in theirs.settings), *sorted(names)])


def _cells(table: pd.DataFrame) -> pd.DataFrame:
    learned = [f"{line['tasks_learned']} of {line['tasks']}" for line in table.to_dict("records")]
    seeds = zip(table["seeds"], table["seeds_learned"], strict=True)
    kept = zip(100 * table["kept"], 100 * table["low"], 100 * table["high"], strict=True)
    cells = {"encoding": table["series"], "submission": table["submission"], "tasks learned": learned}
    cells |= {"seeds": [f"{every}" if every == some else f"{some} of {every} learned" for every, some in seeds]}
    cells |= {"mean kept, %": [words.interval(mean, low, high, ".0f") for mean, low, high in kept]}
    cells |= {f"against {name}": [words.fixed(value, "+.1f") for value in table[name]] for name in BASELINES}
    return pd.DataFrame(cells | {"re-run": table["rerun"], "settings": table["settings"]})
