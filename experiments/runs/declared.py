"""Whether the runs of a folder are those that one sweep declared before its first run: all of them, and no others."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from experiments.figures import words
from experiments.rows import results, sweeps
from experiments.rows.results import Results
from experiments.rows.untrusted import read_mapping
from experiments.runs import adaptive
from experiments.statistics.rule import declared_rule


def faults(folder: Path) -> list[str]:
    """Return why the runs of ``results/<name>`` are not those of one declared sweep; empty if they are."""
    found = results.load(folder)
    noted, broken = sweeps.read(folder)
    begun = {*found.runs["run_id"]}
    told = list(broken)
    if len({(frozenset(sweep.runs), repr(sweep.rule)) for sweep in noted}) != 1:
        commands = "; ".join(sweep.command for sweep in noted) or "nothing"
        told.append(f"they need the runs of one command, under a name= of its own; noted here: {commands}")
        return told
    if missing := [run for run in noted[0].runs if run not in begun]:
        count = f"{len(missing)} of {words.count(len(noted[0].runs), 'run')}"
        told.append(f"{count} are missing, such as {missing[0]}; the same command resumes: {noted[0].command}")
    told += [f"{run} is beyond what the sweep declared" for run in sorted({*found.runs["run_id"]} - {*noted[0].runs})]
    unfinished = found.runs[~found.runs["status"].isin(found.finished["status"])]
    told += [
        f"{run} is {status}{': ' * bool(message)}{message}"
        for run, status, message in unfinished[["run_id", "status", "message"]].to_numpy()
    ]
    return told or [*_altered(folder, found), *_seeds(found, noted[0])]


def _altered(folder: Path, found: Results) -> Iterator[str]:
    for run in found.runs["run_id"]:
        place = folder / "runs" / run
        digest = hashlib.sha256((place / "rows.csv").read_bytes()).hexdigest()
        if read_mapping(place / "run.json", folder).get("rows_sha256") != digest:
            yield f"{run}: rows.csv is no longer what the run wrote"


def _seeds(found: Results, sweep: sweeps.Sweep) -> Iterator[str]:
    """Compare the seeds of each series with those that the sweep's rule, or its command, asks for."""
    groups = found.rows.groupby(["task", "series"])["seed"]
    having = {(str(task), str(series)): sorted(set(part)) for (task, series), part in groups}
    first = min(seeds[0] for seeds in having.values())
    if declared := declared_rule([sweep.rule]):
        rule, first = declared
        due = adaptive.replay(found, rule, first)
        asked = f"the declared looks {', '.join(map(str, rule.looks))} ask for"
    else:
        number = re.search(r"(?:^| )seeds=(\d+)(?: |$)", sweep.command)
        most = {task: max(len(seeds) for (other, _), seeds in having.items() if other == task) for task, _ in having}
        due = {key: int(number[1]) if number else most[key[0]] for key in having}
        asked = "the command asks for" if number else "the sweep has"
    for (task, series), seeds in having.items():
        count = due[task, series]
        if seeds != list(range(first, first + count)):
            told = ", ".join(map(str, seeds))
            yield f"{series} on {task} has the seeds {told}; {asked} {words.count(count, 'seed')} from {first}"
