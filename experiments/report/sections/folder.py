"""The folder as a whole: how it was measured, and warnings of missing, unlearned and differently made runs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pandas as pd

from experiments.figures import words
from experiments.rows.read import FINISHED
from experiments.rows.results import Results

MADE_WITH = ("torch", "python", "device", "precision", "threads", "commit")
"""Columns of the runs that say what made them."""


def method(rows: pd.DataFrame) -> list[str]:
    """Return the sentences on evaluation and comparison."""
    metrics = set(rows["metric"])
    windows = "Text is scored in separate windows, every byte given the true bytes before it in its window."
    exact = "Exact match is the same teacher-forced as free-running, since the first wrong token decides."
    return [
        "Every encoder was trained in the same model, on the same data in the same order for a seed, and measured "
        "teacher-forced, one length a batch.",
        *[windows] * ("bits_per_byte" in metrics),
        *[exact] * ("exact_match" in metrics),
        "Intervals are 95 % Student's t intervals of the mean over seeds, not cut to the range of the metric; "
        "comparisons are paired by seed and corrected by Holm's method for all that were made.",
    ]


def marked(runs: pd.DataFrame) -> list[str]:
    """Return the sentences on runs that did not learn, diverged, or have no rows."""
    sentences = []
    if len(unlearned := runs[runs["converged"].eq(False)]):
        sentences.append(
            f"{words.count(len(unlearned), 'run')} did not learn the task within the training length, marked †: "
            f"{words.few(unlearned['run_id'])}. Their results beyond it say little about their encoder."
        )
    if len(diverged := runs[runs["status"] == "diverged"]):
        sentences.append(f"{words.count(len(diverged), 'run')} diverged: {words.few(diverged['run_id'])}.")
    if len(without := runs[~runs["status"].isin(FINISHED)]):
        names = words.few(without["run_id"] + " (" + without["status"] + ")")
        sentences.append(f"{words.count(len(without), 'run')} without rows, and so in no number here: {names}.")
    return sentences


def warnings(results: Results) -> list[str]:
    """Return the warnings of missing runs, and of runs compared with one another that were not made alike."""
    runs, of_all = results.finished, len(results.runs) + len(results.missing)
    waiting = results.runs["status"].isin(("running", "interrupted", "unfinished")).sum() + len(results.missing)
    configs = [results.configs[run] for run in runs["run_id"]]
    columns: dict[str, list[Any]] = {name: list(runs[name]) for name in MADE_WITH}
    packages = [value if isinstance(value, dict) else {} for value in runs["packages"]]
    columns |= {name: [each.get(name) for each in packages] for name in sorted(set(itertools.chain(*packages)))}
    plugins = [config.get("plugin", "null") for config in configs]
    columns["plugin (sha256)"] = [None if plugin == "null" else plugin[:12] for plugin in plugins]
    found = [_differing(name, runs["series"], values, [""] * len(runs)) for name, values in columns.items()]
    of_task: dict[str, list[Any]] = {"corpus": [corpus(value) or None for value in runs["corpus"]]}
    settings = sorted({key for config in configs for key in config if key.startswith("train.")})
    of_task |= {key: [config.get(key) for config in configs] for key in settings}
    found += [_differing(name, runs["series"], values, runs["task"].map(str)) for name, values in of_task.items()]
    unfinished = (
        f"Unfinished: {len(runs)} of {of_all} runs have ended with rows; {waiting} have not, and are in no number "
        "here. report.py --status lists them and the command that completes them."
    )
    return [*[unfinished] * bool(waiting), *itertools.chain(*found)]


def _differing(what: str, series_names: Iterable[Any], values: Iterable[Any], tasks: Iterable[str]) -> list[str]:
    """Return what differs within a task, and which series have which value; tasks alike in one sentence."""
    found: dict[str, dict[str, dict[str, None]]] = {}
    for series, value, task in zip(series_names, values, tasks, strict=True):
        if value is not None:
            found.setdefault(task, {}).setdefault(str(value), {})[str(series)] = None
    alike: dict[str, list[str]] = {}
    for task, by_value in found.items():
        if len(by_value) > 1:
            parts = words.few(f"{value} ({words.few(by_value[value])})" for value in sorted(by_value))
            alike.setdefault(parts, []).append(task)
    return [
        f"The runs{f' of {words.few(tasks)}' if tasks != [''] else ''} differ in {what}: {parts}."
        for parts, tasks in alike.items()
    ]


def corpus(value: Any) -> str:
    """Return the beginning of a corpus's sha256; blank where there is none."""
    return str(value.get("sha256") or "")[:12] if isinstance(value, dict) else ""
