"""What sweeps asked for: ``results/<name>/sweeps/<hash>.json``, written before the first run of a sweep starts."""

import hashlib
import json
import shlex
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.rows.row import write_json
from experiments.rows.untrusted import message_of, name_of, one_line, read_mapping

OF_A_SITTING = ("budget_minutes=", "workers=")
"""Settings of a command that decide nothing about its runs, and that another sitting need not have."""


@dataclass(frozen=True)
class Sweep:
    """One command line that asked for several runs.

    Args:
        command: as typed.
        runs: the run ids it asked for.
        rule: how seeds are added (see `statistics.sequential.Rule`), and ``first_seed``; None: their number is given.
        seconds: how long its runs take, added up, as ``--plan`` estimated; None: unknown.
        planned: whether it was planned alone: it has asked for no run yet.
    """

    command: str
    runs: tuple[str, ...]
    rule: dict[str, Any] | None = None
    seconds: float | None = None
    planned: bool = False


def write(folder: Path, sweep: Sweep) -> None:
    """Note a sweep in ``folder``, in place of what the same command asked for before; one of no runs is forgotten.

    A plan changes nothing that was begun. Seeds that a rule added, and that have results, stay noted.
    """
    # The 1 gives a command the file name that earlier releases gave it.
    digest = hashlib.sha256(f"{lasting(sweep.command)}\n1".encode(errors="replace")).hexdigest()[:8]
    path = folder / "sweeps" / f"{digest}.json"
    if sweep.runs:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(ValueError, OSError):
            before = _read(path, folder)
            if sweep.planned and not before.planned:
                return
            if sweep.seconds is None:  # the estimate that was made before the sweep was started
                sweep = replace(sweep, seconds=before.seconds)
            if sweep.rule and json.loads(json.dumps(sweep.rule)) == before.rule:
                grown = (run for run in before.runs if (folder / "runs" / run / "rows.csv").exists())
                sweep = replace(sweep, runs=tuple(dict.fromkeys([*sweep.runs, *grown])))
        noted = {key: value for key, value in vars(sweep).items() if key not in ("seconds", "planned") or value}
        write_json(path, noted)
        return
    path.unlink(missing_ok=True)
    for place in (path.parent, folder):
        if place.is_dir() and not any(place.iterdir()):
            place.rmdir()


def read(folder: Path, *, planned: bool = False) -> tuple[list[Sweep], list[str]]:
    """Return every sweep that was begun, or also ``planned``, and a line for each file that cannot be read."""
    sweeps, broken = [], []
    for path in sorted((folder / "sweeps").glob("*.json")):
        try:
            sweep = _read(path, folder)
            sweeps += [sweep] if planned or not sweep.planned else []
        except (ValueError, OSError) as error:
            broken.append(f"sweeps/{name_of(path.name)}: {name_of(message_of(error))}")
    return sweeps, broken


def _read(path: Path, folder: Path) -> Sweep:
    found = read_mapping(path, folder)
    if not isinstance(found.get("command"), str) or not isinstance(found.get("runs"), list):
        raise ValueError(f"{path.name} cannot be read: it lacks command or runs")
    runs = tuple(name_of(str(run)) for run in found["runs"])
    rule, seconds = found.get("rule"), found.get("seconds")
    rule, seconds = rule if isinstance(rule, dict) else None, seconds if isinstance(seconds, int | float) else None
    return Sweep(one_line(found["command"]), runs, rule, seconds, found.get("planned") is True)


def asked(sweeps: Iterable[Sweep]) -> dict[str, str]:
    """Return run id -> the command that asked for it first."""
    found: dict[str, str] = {}
    for sweep in sweeps:
        found = dict.fromkeys(sweep.runs, sweep.command) | found
    return found


def lasting(command: str) -> str:
    """Return a command without what was one sitting's: with more minutes or workers it is the same request."""
    return to_type(command) or command


def to_type(command: str | None) -> str:
    """Return a recorded command as it may be typed again, every argument quoted; blank for one that is not ours.

    What was one sitting's, as `OF_A_SITTING` lists, is left out.
    """
    try:
        words = shlex.split(command or "")
    except ValueError:
        return ""
    words = [word for word in words if not word.startswith(OF_A_SITTING)]
    return shlex.join(words) if words[:2] == ["python", "run.py"] else ""
