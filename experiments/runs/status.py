"""How far the runs of a folder are: done, running, or what is the matter, and the command that would complete them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from tabulate import tabulate

from experiments.figures import words
from experiments.rows import sweeps as _sweeps
from experiments.rows.results import kept_cells, read_run, run_folders
from experiments.rows.untrusted import check_file, name_of
from experiments.runs import lease

WIDTH = 100
LISTED = 20
"""Runs named of one kind; the report's table of runs has them all."""

UNFINISHED = ("running", "interrupted", "missing")
STATES = {
    "done": "",
    "running": "No need to do anything; if it does not go on, the same command takes it up:",
    "interrupted": "To go on with:",
    "failed": "To try again:",
    "diverged": "The same config would diverge again: this is how they ended. Changed settings are other runs.",
    "unreadable": "Move their folders away, then:",
    "missing": "To begin:",
}
"""How a run can stand, and what its command does."""
MORE = {"failed": " retry=failed"}
"""Options that the command for runs of a state takes besides those it was first given."""
SETTLED = ("done", "diverged")


@dataclass(frozen=True)
class Standing:
    """How one run stands.

    Args:
        run_id: the run.
        state: one of `STATES`.
        reason: why, where there is something to say.
        command: what would complete it; blank where it is done, or where nobody knows.
        seconds: of training and measuring, so far as they are recorded.
    """

    run_id: str
    state: str
    reason: str
    command: str
    seconds: float | None


def standings(folder: Path) -> tuple[list[Standing], list[_sweeps.Sweep], list[str]]:
    """Every run of a folder, the sweeps that asked for them, and a line for each note of a sweep that is unreadable.

    Raises:
        ValueError: there is no such folder, or nothing in it.
    """
    sweeps, broken = _sweeps.read(folder)
    asked = _sweeps.asked(sweeps)
    try:
        places = run_folders(folder)
    except ValueError:
        if not asked:
            raise
        places = []
    found, known = [], kept_cells()
    for place in places:
        record, _, _ = read_run(place, folder, known)
        found.append(_standing(place, folder, record, asked))
    for run in sorted(set(asked) - {standing.run_id for standing in found}):
        found.append(Standing(run, "missing", "asked for, not begun", _sweeps.to_type(asked[run]), None))
    return found, sweeps, broken


def _standing(place: Path, folder: Path, record: dict[str, Any], asked: dict[str, str]) -> Standing:
    state, reason = str(record["status"]), str(record.get("message") or "")
    if state in ("running", "unfinished"):
        worker = _worker(place, folder)
        state = "running" if worker else "interrupted"
        reason = f"by {worker}" if worker else reason.partition(":")[0] or "no end is recorded"
    state = {"ok": "done"}.get(state, state)
    command = _sweeps.to_type(asked.get(record["run_id"]) or record.get("command"))
    spent = [record[key] for key in ("train_seconds", "measure_seconds") if record.get(key) is not None]
    return Standing(
        run_id=record["run_id"],
        state=state,
        reason=reason,
        command="" if state in SETTLED or not command else command + MORE.get(state, ""),
        seconds=sum(spent) if spent else None,
    )


def _worker(place: Path, folder: Path) -> str | None:
    """Who is at work on a run, None for nobody. Whoever wrote the folder may have written its locks too."""
    try:
        for lock in place.glob(lease.PATTERN):
            check_file(lock, folder)
        found = lease.holder(place)
    except (OSError, ValueError, TypeError, OverflowError, RecursionError):
        return None
    return None if found is None else name_of(str(found))


def text(folder: Path) -> str:
    """The standing of a folder's runs as it is printed: counts, time, then every run that is not done.

    Raises:
        ValueError: there is no such folder, or nothing in it.
    """
    found, sweeps, broken = standings(folder)
    counts = Counter(standing.state for standing in found)
    table = [[state, counts[state]] for state in STATES if counts[state]]
    parts = [f"{words.count(len(found), 'run')} in {folder}" + ("" if sweeps else "; what was asked for is not noted")]
    parts.append(tabulate([*table, ["in all", len(found)]], headers=["state", "runs"], tablefmt="simple"))
    parts.append("\n".join([*_time(found), *_not_begun(sweeps), *(f"Not readable: {line}" for line in broken)]))
    for state, advice in STATES.items():
        of_state = [standing for standing in found if standing.state == state]
        if not advice:
            continue
        for command in dict.fromkeys(standing.command for standing in of_state):
            parts.append(_group(state, advice, command, [s for s in of_state if s.command == command]))
    return "\n\n".join(parts)


def _time(found: list[Standing]) -> list[str]:
    spent = [standing.seconds for standing in found if standing.seconds is not None]
    lines = [f"Training and measuring took {_span(sum(spent))} so far, on all machines together."]
    done = [s.seconds for s in found if s.state == "done" and s.seconds is not None]
    left = sum(standing.state in UNFINISHED for standing in found)
    if left and done:
        mean = sum(done) / len(done)
        lines.append(
            f"About {_span(mean * left)} left one run after another: an estimate, {words.count(left, 'run')} at "
            f"{_span(mean)}, the mean of the {len(done)} done."
        )
    return lines


def _not_begun(sweeps: list[_sweeps.Sweep]) -> list[str]:
    return [
        f"{words.count(count, 'part')} not begun, so their runs are not counted:\n  {_sweeps.to_type(command)}"
        for command, count in _sweeps.not_begun(sweeps).items()
    ]


def _span(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds))) if abs(seconds) < 1e11 else "unknown"


def _group(state: str, advice: str, command: str, standings: list[Standing]) -> str:
    """Runs of one state that one command completes."""
    lines = [[standing.run_id, standing.reason] for standing in standings[:LISTED]]
    if len(standings) > LISTED:
        lines.append([f"and {len(standings) - LISTED} more", ""])
    room = max(WIDTH - max(len(line[0]) for line in lines) - 2, 30)
    head = [f"{words.count(len(standings), 'run')} {state}", "reason"]
    table = tabulate(lines, headers=head, tablefmt="simple", disable_numparse=True, maxcolwidths=[None, room])
    if state in SETTLED:
        return f"{table}\n{advice}"
    return f"{table}\n{advice}\n  {command}" if command else f"{table}\nThe command that asked for them is not known."
