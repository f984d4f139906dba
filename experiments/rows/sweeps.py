"""What sweeps asked for: ``results/<name>/sweeps/<hash>.json``, written before the first run of a sweep starts."""

import hashlib
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.rows.row import write_json
from experiments.rows.untrusted import message_of, name_of, one_line, read_mapping


@dataclass(frozen=True)
class Sweep:
    """One command line that asked for several runs, or one part of it.

    Args:
        command: as typed.
        part: which of the ``parts`` of a sweep file this is, from 1.
        parts: how many there are; 1 for a sweep without parts.
        runs: the run ids it asked for.
        rule: how seeds are added (see `statistics.sequential.Rule`), and ``first_seed``; None: their number is given.
    """

    command: str
    part: int
    parts: int
    runs: tuple[str, ...]
    rule: dict[str, Any] | None = None


def write(folder: Path, sweep: Sweep) -> None:
    """Note a sweep in ``folder``, in place of what the same command asked for before; one of no runs is forgotten."""
    digest = hashlib.sha256(f"{sweep.command}\n{sweep.part}".encode(errors="replace")).hexdigest()[:8]
    path = folder / "sweeps" / f"{digest}.json"
    if sweep.runs:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, vars(sweep))
        return
    path.unlink(missing_ok=True)
    for place in (path.parent, folder):
        if place.is_dir() and not any(place.iterdir()):
            place.rmdir()


def read(folder: Path) -> tuple[list[Sweep], list[str]]:
    """Return every sweep that was noted, and a line for each file that cannot be read."""
    sweeps, broken = [], []
    for path in sorted((folder / "sweeps").glob("*.json")):
        try:
            found = read_mapping(path, folder)
            kinds = {"command": str, "part": int, "parts": int, "runs": list}
            if not all(isinstance(found.get(key), kind) for key, kind in kinds.items()):
                raise ValueError(f"{path.name} cannot be read: it lacks command, part, parts or runs")
            runs = tuple(name_of(str(run)) for run in found["runs"])
            rule = found.get("rule") if isinstance(found.get("rule"), dict) else None
            sweeps.append(Sweep(one_line(found["command"]), found["part"], found["parts"], runs, rule))
        except (ValueError, OSError) as error:
            broken.append(f"sweeps/{name_of(path.name)}: {name_of(message_of(error))}")
    return sweeps, broken


def asked(sweeps: Iterable[Sweep]) -> dict[str, str]:
    """Return run id -> the command that asked for it first."""
    found: dict[str, str] = {}
    for sweep in sweeps:
        found = dict.fromkeys(sweep.runs, sweep.command) | found
    return found


def not_begun(sweeps: Iterable[Sweep]) -> dict[str, int]:
    """Return command -> how many of its parts have not begun, so that their runs are not known."""
    parts: dict[str, dict[int, int]] = {}
    for sweep in sweeps:
        parts.setdefault(sweep.command, {})[sweep.part] = sweep.parts
    left = {command: max(begun.values()) - len(begun) for command, begun in parts.items()}
    return {command: count for command, count in left.items() if count > 0}


def to_type(command: str | None) -> str:
    """Return a recorded command as it may be typed again, every argument quoted; blank for one that is not ours."""
    try:
        words = shlex.split(command or "")
    except ValueError:
        return ""
    return shlex.join(words) if words[:2] == ["python", "run.py"] else ""
