"""What the page says of the folder as a whole: how it was measured, what is lacking, what was not made alike."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pandas as pd

from experiments.figures import words
from experiments.rows.results import FINISHED, Results


def method(rows: pd.DataFrame) -> list[str]:
    """How everything was measured: sentences."""
    said = [
        "Every encoder was trained in the same model, on the same data in the same order for a seed, and measured "
        "teacher-forced, one length a batch.",
        "Intervals are 95 % Student's t intervals of the mean over seeds, not cut to the range of the metric; "
        "comparisons are paired by seed and corrected by Holm's method for all that were made.",
    ]
    if (rows["metric"] == "exact_match").any():
        said.insert(
            1,
            "Exact match is the same teacher-forced as free-running: up to the first wrong token both have read the "
            "same, and the first wrong token decides.",
        )
    if (rows["metric"] == "bits_per_byte").any():
        said.insert(
            1,
            "Text is scored in separate windows, every byte given the true bytes before it in its window, unless a "
            "section says otherwise.",
        )
    return said


def marked(runs: pd.DataFrame) -> list[str]:
    """Runs that did not learn, diverged, or have no rows: sentences."""
    said = []
    failing = runs[runs["converged"].eq(False)]
    if len(failing):
        said.append(
            f"{words.count(len(failing), 'run')} did not learn the task within the training length, marked †: "
            f"{words.few(failing['run_id'])}. What they do beyond it says little about their encoder."
        )
    diverged = runs[runs["status"] == "diverged"]
    if len(diverged):
        said.append(f"{words.count(len(diverged), 'run')} diverged: {words.few(diverged['run_id'])}.")
    without = runs[~runs["status"].isin(FINISHED)]
    if len(without):
        named = [f"{run} ({status})" for run, status in zip(without["run_id"], without["status"], strict=True)]
        counted = words.count(len(without), "run")
        said.append(f"{counted} without rows, and so in no number here, see Runs: {words.few(named)}.")
    return said


def warnings(results: Results) -> list[str]:
    """That something is lacking yet, and where runs that are put side by side were not made alike."""
    finished = results.runs[results.runs["status"].isin(FINISHED)]
    said = _unfinished(results)
    for column in ("torch", "python", "device", "precision", "threads", "commit"):
        said += _differing(column, finished["label"], finished[column])
    packages = [value if isinstance(value, dict) else {} for value in finished["packages"]]
    for name in sorted({name for versions in packages for name in versions}):
        said += _differing(name, finished["label"], [versions.get(name) for versions in packages])
    configs = [results.configs[run] for run in finished["run_id"]]
    plugins = [config.get("plugin", "null") for config in configs]
    said += _differing("plugin (sha256)", finished["label"], [None if p == "null" else p[:12] for p in plugins])
    tasks = finished["task"].map(str)
    corpora = [corpus(value) or None for value in finished["corpus"]]
    said += _differing("their corpus", finished["label"], corpora, tasks)
    for key in sorted({key for config in configs for key in config if key.startswith("train.")}):
        said += _differing(key, finished["label"], [config.get(key) for config in configs], tasks)
    return said


def _unfinished(results: Results) -> list[str]:
    """That runs are missing or have not ended, for their numbers may change what is said here."""
    waiting = results.runs["status"].isin(("running", "interrupted", "unfinished")).sum() + len(results.missing)
    if not waiting:
        return []
    asked = len(results.runs) + len(results.missing)
    ended = results.runs["status"].isin(FINISHED).sum()
    return [
        f"Unfinished: {ended} of {asked} runs have ended with rows, {waiting} have not ended or not begun. What is "
        "said here rests on the former alone; report.py --status tells which, and how to complete them."
    ]


def _differing(
    what: str, labels: Iterable[Any], values: Iterable[Any], tasks: Iterable[str] = itertools.repeat("")
) -> list[str]:
    """What differs, and which labels have which value; within each task where ``tasks`` are given."""
    found: dict[str, dict[str, dict[str, None]]] = {}
    for label, value, task in zip(labels, values, tasks, strict=False):  # without tasks, as many blanks as it takes
        if value is not None:
            found.setdefault(task, {}).setdefault(str(value), {})[str(label)] = None
    said: dict[str, list[str]] = {}
    for task, by_value in found.items():
        if len(by_value) > 1:
            parts = [f"{value} ({words.few(by_value[value])})" for value in sorted(by_value)]
            said.setdefault(words.few(parts), []).append(task)
    whose = {parts: f" of {words.few(tasks)}" if tasks != [""] else "" for parts, tasks in said.items()}
    return [f"The runs{whose[parts]} differ in {what}: {parts}." for parts in said]


def corpus(value: Any) -> str:
    """The beginning of a corpus's sha256; blank where there is none."""
    return str(value.get("sha256") or "")[:12] if isinstance(value, dict) else ""
