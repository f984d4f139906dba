"""Every run with its status and configuration, and what the numbers were made with."""

from __future__ import annotations

from typing import Any

import pandas as pd

from experiments.figures import words
from experiments.report.page import Section, Table
from experiments.report.sections.folder import MADE_WITH, corpus

SHOWN_ELSEWHERE = ("seed", "seeds", "name", "trained")
"""Keys of a configuration that have a column of their own, or decide nothing."""
MOST_RUNS = 1000
"""Most lines of the table of runs: 10 000 would make the page two megabytes larger."""
CONVERGED = {True: "yes", False: "no †"}


def runs_section(
    runs: pd.DataFrame, configs: dict[str, dict[str, str]], settings: dict[str, dict[str, str]]
) -> Section:
    """Make a line for every run: how it ended, its numbers, and the settings in which it differs from the others.

    Of more than `MOST_RUNS`, those that did not end well come first; the table's file has all.
    """
    own = {
        run: _own(configs.get(run, {}), settings.get(str(task), {}))
        for run, task in zip(runs["run_id"], runs["task"], strict=True)
    }
    shown = runs.sort_values(["task", "series", "seed", "run_id"], key=lambda column: column.map(str))
    if len(runs) > MOST_RUNS:
        ended_well = shown["status"].eq("ok") & shown["converged"].ne(False)
        shown = shown.loc[ended_well.sort_values(kind="stable").index[:MOST_RUNS]]
    cells = pd.DataFrame([_line(run) | {"settings of its own": own[run["run_id"]]} for run in shown.to_dict("records")])
    note = (
        "In range: the task's main metric at the training length. Final loss: nats per token. The settings that all "
        "runs of a task share are in the table of settings."
    )
    if len(shown) < len(runs):
        note += (
            f" Shown are {len(shown)} of {len(runs)} runs, those that did not end well or did not learn first; "
            "tables/runs.csv has all."
        )
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


def _own(config: dict[str, str], shared: dict[str, str]) -> str:
    """Return the settings of a run that its task does not share."""
    return ", ".join(
        f"{key}={value}" for key, value in config.items() if key not in SHOWN_ELSEWHERE and shared.get(key) != value
    )


def provenance_section(runs: pd.DataFrame, settings: dict[str, dict[str, str]]) -> Section:
    """Make the tables of versions, machine, commit and corpora, and of the settings that the runs of a task share."""
    section = Section("Provenance")
    found = {name: sorted({str(value) for value in runs[name] if value is not None}) for name in MADE_WITH}
    packages = [value for value in runs["packages"] if isinstance(value, dict)]
    for name in sorted({name for versions in packages for name in versions}):
        found[name] = sorted({str(versions[name]) for versions in packages if name in versions})
    corpora = sorted({f"{corpus(v)}… ({v.get('bytes')} bytes)" for v in runs["corpus"] if isinstance(v, dict)})
    if corpora:
        found["corpus (sha256)"] = corpora
    found["first run started"] = sorted(str(value) for value in runs["started"] if value is not None)[:1]
    found["last run finished"] = sorted(str(value) for value in runs["finished"] if value is not None)[-1:]
    commands = sorted({str(value) for value in runs["command"] if value is not None})
    section.paragraphs += [f"Made by: {command}" for command in commands[:3]]
    if len(commands) > 3:
        section.paragraphs.append(f"and {words.count(len(commands) - 3, 'more command')}, listed in tables/runs.csv.")
    lines = [[name, ", ".join(values) or "unknown"] for name, values in found.items()]
    cells = pd.DataFrame(lines, columns=["what", "value"])
    section.parts.append(Table("provenance", "What the numbers were made with", cells, cells))
    shared = [[task, key, value] for task, keys in settings.items() for key, value in keys.items()]
    if shared:
        cells = pd.DataFrame(shared, columns=["task", "setting", "value"])
        note = "Settings that differ between the runs of a task are part of the names of its series."
        section.parts.append(Table("settings", "Settings that all runs of a task share", cells, cells, note))
    return section
