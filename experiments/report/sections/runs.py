"""Every run with its status and configuration, and what the numbers were made with."""

from __future__ import annotations

import pandas as pd

from experiments.figures import words
from experiments.report.page import Section, Table
from experiments.report.sections.folder import corpus

UNTOLD = ("seed", "seeds", "name", "trained")
"""Keys of a configuration that are said elsewhere, or decide nothing."""


MOST_RUNS = 1000
"""Lines of the table of runs: 10 000 make a page two megabytes larger, and nobody reads them there."""


def runs_section(
    runs: pd.DataFrame, configs: dict[str, dict[str, str]], settings: dict[str, dict[str, str]]
) -> Section:
    """A line for every run of the folder: how it ended, its numbers, and in what its configuration departs.

    Of very many, ``MOST_RUNS`` are shown, those that have not ended well first; the table's file has all.

    Args:
        runs: of `_results.Results`, as are the next two.
        configs: run_id -> its configuration.
        settings: task -> what its runs share.
    """
    judged = {True: "yes", False: "no †"}
    own = {
        run: _own(configs.get(run, {}), settings.get(str(task), {}))
        for run, task in zip(runs["run_id"], runs["task"], strict=True)
    }
    lines = []
    by_name = runs.sort_values(["task", "label", "seed", "run_id"], key=lambda column: column.map(str))
    ended_well = by_name["status"].eq("ok") & by_name["converged"].ne(False)
    shown = by_name if len(runs) <= MOST_RUNS else by_name.loc[ended_well.sort_values(kind="stable").index[:MOST_RUNS]]
    for run in shown.to_dict("records"):
        status = f"{run['status']}: {run['message']}" if run["message"] else str(run["status"])
        numbers = ("in_range", "final_loss")
        counts = ("encoder_parameters", "model_parameters", "train_seconds", "measure_seconds", "tokens_per_second")
        lines.append(
            [
                *(words.text(run[key]) for key in ("run_id", "label", "task", "seed")),
                status,
                *(words.short(run[key]) for key in numbers),
                judged.get(run["converged"], "not judged"),
                *(words.number(run[key]) for key in counts),
                own[run["run_id"]],
            ]
        )
    head = ["run", "label", "task", "seed", "status", "in range", "final loss", "converged"]
    head += ["encoder parameters", "model parameters", "train seconds", "measure seconds", "tokens per second"]
    head.append("configuration beyond what all share")
    note = (
        "In range: the task's main metric at the training length. Final loss: nats per token. A run's whole "
        "configuration is what its last column says and, of the rest, what the table of settings says of its task."
    )
    if len(shown) < len(runs):
        note += (
            f" Shown are {len(shown)} of {len(runs)} runs, those that did not end, learn or come through first; "
            "tables/runs.csv has all."
        )
    cells = pd.DataFrame(lines, columns=head)
    data = runs.drop(columns=["corpus", "tuning", "packages"]).assign(configuration=runs["run_id"].map(own))
    return Section("Runs", parts=[Table("runs", "Every run of the folder", cells, data, note)])


def _own(config: dict[str, str], shared: dict[str, str]) -> str:
    """What a run has set otherwise than the table of settings says."""
    return ", ".join(
        f"{key}={value}" for key, value in config.items() if key not in UNTOLD and shared.get(key) != value
    )


def provenance_section(runs: pd.DataFrame, settings: dict[str, dict[str, str]]) -> Section:
    """Versions, machine, commit, corpora, commands, and the settings that the runs of a task share."""
    section = Section("Provenance")
    lines = []
    for column in ("torch", "python", "device", "precision", "threads", "commit"):
        values = sorted({str(value) for value in runs[column] if value is not None})
        lines.append([column, ", ".join(values) or "unknown"])
    packages = [value for value in runs["packages"] if isinstance(value, dict)]
    for name in sorted({name for versions in packages for name in versions}):
        lines.append([name, ", ".join(sorted({str(versions[name]) for versions in packages if name in versions}))])
    corpora = sorted({f"{corpus(v)}… ({v.get('bytes')} bytes)" for v in runs["corpus"] if isinstance(v, dict)})
    if corpora:
        lines.append(["corpus (sha256)", ", ".join(corpora)])
    for word, column, pick in (("first run started", "started", min), ("last run finished", "finished", max)):
        times = [str(value) for value in runs[column] if value is not None]
        lines.append([word, pick(times) if times else "unknown"])
    commands = sorted({str(value) for value in runs["command"] if value is not None})
    section.paragraphs += [f"Made by: {command}" for command in commands[:3]]
    if len(commands) > 3:
        section.paragraphs.append(f"and {words.count(len(commands) - 3, 'more command')}, listed in tables/runs.csv.")
    cells = pd.DataFrame(lines, columns=["what", "value"])
    section.parts.append(Table("provenance", "What the numbers were made with", cells, cells))
    shared = [[task, key, value] for task, keys in settings.items() for key, value in keys.items()]
    if shared:
        cells = pd.DataFrame(shared, columns=["task", "setting", "value"])
        note = "What varies among the runs of a task is part of their labels."
        section.parts.append(Table("settings", "Settings that all runs of a task share", cells, cells, note))
    return section
