"""Every run with its status and configuration, and what the numbers were made with."""

from __future__ import annotations

from typing import Any

import pandas as pd

from experiments.figures import words
from experiments.report.page import Section, Table
from experiments.report.sections.folder import MADE_WITH, corpus
from experiments.rows.results import Results

SHOWN_ELSEWHERE = ("seed", "seeds", "name", "trained")
"""Keys of a configuration that have a column of their own, or decide nothing."""
MOST_RUNS = 1000
"""Most lines of the table of runs: 10 000 would make the page two megabytes larger."""
CONVERGED = {True: "yes", False: "no †"}


def runs_section(results: Results) -> Section:
    """Make a line for every run: how it ended, its numbers, and the settings in which it differs from the others.

    Of more than `MOST_RUNS`, those that did not end well come first; the table's file has all.
    """
    runs, own = results.runs, {}
    for run, task in zip(runs["run_id"], runs["task"], strict=True):
        shared, config = results.settings.get(str(task), {}), results.configs.get(run, {})
        different = {key: value for key, value in config.items() if shared.get(key) != value}
        own[run] = ", ".join(f"{key}={value}" for key, value in different.items() if key not in SHOWN_ELSEWHERE)
    shown = runs.sort_values(["task", "series", "seed", "run_id"], key=lambda column: column.map(str))
    if len(runs) > MOST_RUNS:
        ended_well = shown["status"].eq("ok") & shown["converged"].ne(False)
        shown = shown.loc[ended_well.sort_values(kind="stable").index[:MOST_RUNS]]
    cells = pd.DataFrame([_line(run) | {"settings of its own": own[run["run_id"]]} for run in shown.to_dict("records")])
    note = "In range: the task's main metric at the training length. Final loss: nats per token."
    if len(shown) < len(runs):
        what = "those that did not end well or did not learn first; tables/runs.csv has all"
        note += f" Shown are {len(shown)} of {len(runs)} runs, {what}."
    data = runs.drop(columns=["corpus", "tuning", "packages"]).assign(configuration=runs["run_id"].map(own))
    return Section("Runs", parts=[Table("runs", "Every run of the folder", cells, data, note)])


def _line(run: dict[Any, Any]) -> dict[str, str]:
    names = {"run": "run_id", "series": "series", "task": "task", "seed": "seed"}
    counts = ("encoder_parameters", "model_parameters", "train_seconds", "measure_seconds", "tokens_per_second")
    return (
        {head: "" if run[key] is None else str(run[key]) for head, key in names.items()}
        | {"status": f"{run['status']}: {run['message']}" if run["message"] else str(run["status"])}
        | {"in range": words.short(run["in_range"]), "final loss": words.short(run["final_loss"])}
        | {"converged": CONVERGED.get(run["converged"], "not judged")}
        | {key.replace("_", " "): words.number(run[key]) for key in counts}
    )


def provenance_section(results: Results) -> Section:
    """Make the tables of versions, machine, commit and corpora, and of the settings that the runs of a task share."""
    runs = results.runs

    def values(column: pd.Series[Any]) -> list[str]:
        return sorted({str(value) for value in column if value is not None})

    found = {name: values(runs[name]) for name in MADE_WITH}
    packages = pd.DataFrame([value for value in runs["packages"] if isinstance(value, dict)], dtype=object)
    found |= {name: values(packages[name].dropna()) for name in sorted(map(str, packages))}
    corpora = [f"{corpus(v)}… ({v.get('bytes')} bytes)" for v in runs["corpus"] if isinstance(v, dict)]
    found |= {"corpus (sha256)": sorted(set(corpora))} if corpora else {}
    found |= {"first run started": values(runs["started"])[:1], "last run finished": values(runs["finished"])[-1:]}
    commands = values(runs["command"])
    section = Section("Provenance", [f"Made by: {command}" for command in commands[:3]])
    if len(commands) > 3:
        section.paragraphs.append(f"and {words.count(len(commands) - 3, 'more command')}, listed in tables/runs.csv.")
    lines = [[name, ", ".join(of_name) or "unknown"] for name, of_name in found.items()]
    cells = pd.DataFrame(lines, columns=["what", "value"])
    section.parts.append(Table("provenance", "What the numbers were made with", cells, cells))
    shared = [[task, key, value] for task, keys in results.settings.items() for key, value in keys.items()]
    if shared:
        cells = pd.DataFrame(shared, columns=["task", "setting", "value"])
        section.parts.append(Table("settings", "Settings that all runs of a task share", cells, cells))
    return section
