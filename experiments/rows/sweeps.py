"""What sweeps asked for: ``results/<name>/sweeps/<hash>.json``, written before the first run of a sweep starts."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

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
    """

    command: str
    part: int
    parts: int
    runs: tuple[str, ...]


def write(folder: Path, sweep: Sweep) -> None:
    """Note a sweep in ``folder``, in place of what the same command asked for before; one of no runs is forgotten."""
    digest = hashlib.sha256(f"{sweep.command}\n{sweep.part}".encode(errors="replace")).hexdigest()[:8]
    path = folder / "sweeps" / f"{digest}.json"
    if sweep.runs:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"command": sweep.command, "part": sweep.part, "parts": sweep.parts, "runs": sweep.runs})
        return
    path.unlink(missing_ok=True)
    for place in (path.parent, folder):
        if place.is_dir() and not any(place.iterdir()):
            place.rmdir()


def read(folder: Path) -> tuple[list[Sweep], list[str]]:
    """Every sweep that was noted, and a line for each file that cannot be read."""
    sweeps, broken = [], []
    for path in sorted((folder / "sweeps").glob("*.json")):
        try:
            sweeps.append(_read(path, folder))
        except (ValueError, OSError) as error:
            broken.append(f"sweeps/{name_of(path.name)}: {name_of(message_of(error))}")
    return sweeps, broken


def _read(path: Path, folder: Path) -> Sweep:
    found = read_mapping(path, folder)
    command, part, parts, runs = (found.get(key) for key in ("command", "part", "parts", "runs"))
    if not (isinstance(command, str) and isinstance(part, int) and isinstance(parts, int) and isinstance(runs, list)):
        raise ValueError(f"{path.name} cannot be read: it lacks command, part, parts or runs")
    return Sweep(one_line(command), part, parts, tuple(name_of(str(run)) for run in runs))


def asked(sweeps: Iterable[Sweep]) -> dict[str, str]:
    """Run id -> the command that asked for it first."""
    found: dict[str, str] = {}
    for sweep in sweeps:
        for run in sweep.runs:
            found.setdefault(run, sweep.command)
    return found


def not_begun(sweeps: Iterable[Sweep]) -> dict[str, int]:
    """Command -> how many of its parts have not begun, so that their runs are not known."""
    begun: dict[str, set[int]] = {}
    whole: dict[str, int] = {}
    for sweep in sweeps:
        begun.setdefault(sweep.command, set()).add(sweep.part)
        whole[sweep.command] = max(whole.get(sweep.command, 0), sweep.parts)
    left = {command: whole[command] - len(parts) for command, parts in begun.items()}
    return {command: count for command, count in left.items() if count > 0}


def to_type(command: str | None) -> str:
    """A recorded command as it may be typed again, every argument quoted; blank for what is no command of ours."""
    try:
        words = shlex.split(command or "")
    except ValueError:
        return ""
    return shlex.join(words) if words[:2] == ["python", "run.py"] else ""
