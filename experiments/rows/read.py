"""Reading runs back: the record, the configuration and the rows of a run's folder."""

import difflib
import json
import math
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from experiments.rows.row import COLUMNS, COORDINATES, Row
from experiments.rows.series import flat
from experiments.rows.untrusted import message_of, name_of, read_cells, read_mapping, stays_within

STATUSES = ("ok", "unsupported", "diverged")
FINISHED = ("ok", "diverged")
"""Statuses of a run that would end the same way again."""
TUNED = "tuned"
"""The learning rate of a configuration that searched for it."""
RECORD: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("encoder", "choice", "checkpoint", "positions", "layout", "task"), str),
    "seed": int,
    **dict.fromkeys(("status", "message"), str),
    "in_range": (int, float),
    "converged": bool,
    "final_loss": (int, float),
    **dict.fromkeys(("model_parameters", "encoder_parameters", "steps"), int),
    "stopped": str,
    "tuning": dict,
    **dict.fromkeys(("train_seconds", "measure_seconds", "tokens_per_second"), (int, float)),
    **dict.fromkeys(("torch", "python", "device", "processor", "precision"), str),
    **dict.fromkeys(("threads", "processes"), int),
    **dict.fromkeys(("commit", "command"), str),
    **dict.fromkeys(("corpus", "packages", "source", "described", "unsupported"), dict),
    **dict.fromkeys(("in_use", "rotating"), list),
    "windowed_as": str,
    **dict.fromkeys(("moved", "turned", "values"), dict),
    **dict.fromkeys(("started", "finished"), str),
}
"""What ``run.json`` may hold, with its types; None is allowed, and other keys are ignored."""
MADE_WITH = ("torch", "python", "device", "precision", "threads", "commit")
"""Of these, what made a run's numbers besides its packages."""
RUN_STATUSES = (*FINISHED, "failed", "running", "interrupted", "unfinished")
ARCHIVE = "runs.tar.xz"
"""Packed runs that come with the code, and the record of their sweep."""
ALSO = "runs.also"
"""Names of folders beside one, a line each, whose packed runs are its own, too."""
NEEDED = [field.name for field in fields(Row) if field.default is MISSING] + ["value"]
"""Columns that a file must have; the others are filled where an older file lacks them."""
DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(Row)}
WHOLE = {"seed": 0, "train_length": 1, "eval_length": 0, "n": 0}
"""Columns of whole numbers, and the least that each may be."""
LARGEST = 1e100
"""Larger numbers are no measurements: their squares overflow."""
Table = dict[str, list[Any]]
"""Column -> cells, of one run."""


def refusals(record: Mapping[Any, Any], experiment: str) -> list[str]:
    """Return why a run could not measure something of an experiment, from its ``run.json``."""
    found = (record.get("unsupported") or {}).get(experiment)
    return [name_of(str(reason)) for reason in found] if isinstance(found, list) else []


def training_seconds(record: Mapping[Any, Any]) -> float | None:
    """Return what training took, from a run's ``run.json``: at all learning rates, if it searched for one."""
    seconds = (record.get("tuning") or {}).get("seconds")
    return seconds if isinstance(seconds, int | float) else record.get("train_seconds")


def used(record: Mapping[Any, Any]) -> list[dict[str, Any]]:
    """Return what `pe_zoo.hf.use` put into the model that a run measured, from its ``run.json``."""
    return [spec for spec in record.get("in_use") or () if isinstance(spec, dict)]


def rotating(record: Mapping[Any, Any]) -> tuple[list[int], list[int]] | None:
    """Return the layers of a measured model that rotate, and the others, from its ``run.json``; None: all rotate."""
    noted = record.get("rotating") or ()
    if len(noted) != 2 or not all(isinstance(layers, list) for layers in noted):
        return None
    having, without = ([layer for layer in layers if isinstance(layer, int)] for layers in noted)
    return having, without


def used_as(record: Mapping[Any, Any]) -> str:
    """Return the names of what was put in, as in "alibi and a window of 64"; empty where nothing was."""
    found = []
    for spec in used(record):
        window = f" and a window of {size}" if (size := spec.get("sliding_window")) else ""
        first = f" beside the first {count} tokens" if (count := spec.get("first_tokens")) else ""
        found.append(f"{spec.get('name')}{window}{first}")
    return ", ".join(found)


def run_folders(folder: Path) -> list[Path]:
    """Return every folder below ``<folder>/runs``, in alphabetical order; runs that come packed are unpacked first.

    Raises:
        ValueError: there is no such folder, or no run in it.
    """
    if not folder.is_dir():
        around = (folder.parent, folder.parent / "results")
        found = (path for place in around for path in place.glob("*"))
        full = (path for path in found if (path / ARCHIVE).is_file() or any(path.glob("runs/*/run.json")))
        beside = sorted(str(path.relative_to(folder.parent)) for path in full)
        near = ", ".join(difflib.get_close_matches(folder.name, beside, cutoff=0))
        meant = f". Nearest: {near}" if near else ""
        raise ValueError(f"no folder {str(folder)!r}: give one that run.py has written, results/<name>{meant}")
    unpack(folder)
    places = sorted(path for path in (folder / "runs").glob("*") if path.is_dir())
    if not places:
        raise ValueError(f"no runs in {str(folder)!r}: it has no folder runs/<run_id>; run.py writes one for every run")
    return places


def unpack(folder: Path) -> None:
    """Unpack the runs that come with a folder, and with those that it builds on, unless it has runs already.

    Raises:
        ValueError: a folder that it builds on is not there, or a link leads out of it.
    """
    stays_within(folder / "runs", folder)
    packed = [place for place in _packed(folder)[::-1] if (place / ARCHIVE).is_file()]
    if not packed or (folder / "runs").exists():
        return
    with TemporaryDirectory(prefix=".unpacking-", dir=folder) as made:
        for place in packed:
            with tarfile.open(place / ARCHIVE) as archive:  # the sweeps of another folder asked for something else
                wanted = (file for file in archive if place == folder.resolve() or file.name.startswith("runs/"))
                archive.extractall(made, wanted, filter="data")
        (folder / "sweeps").mkdir(exist_ok=True)
        for note in Path(made).glob("sweeps/*.json"):
            note.replace(folder / "sweeps" / note.name)
        (Path(made) / "runs").rename(folder / "runs")  # last: a folder with runs has all of them


def _packed(folder: Path) -> list[Path]:
    """Return a folder and those that it builds on, which have packed runs; it may have none of its own."""
    found = [folder.resolve()]
    for place in found:
        for name in (place / ALSO).read_text().split() if (place / ALSO).is_file() else []:
            beside = place.parent / name
            if beside.parent != place.parent or not (beside / ARCHIVE).is_file():
                named = name_of(name)
                raise ValueError(f"{place.name}/{ALSO} names {named}: there is no {named}/{ARCHIVE} beside it")
            found += [beside] * (beside not in found)
    return found


def read_record(place: Path, folder: Path) -> dict[str, Any]:
    """Return what ``run.json`` says, without blanks and without keys that are not in `RECORD`.

    Args:
        place: the run's folder.
        folder: that holds it, which no link may lead out of.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it cannot be read, or a value is of the wrong type.
    """
    record = {}
    for key, value in read_mapping(place / "run.json", folder).items():
        if key not in RECORD or value is None or (isinstance(value, float) and not math.isfinite(value)):
            continue
        if not isinstance(value, RECORD[key]) or (isinstance(value, bool) and RECORD[key] is not bool):
            raise ValueError(f"run.json cannot be read: {key} is {name_of(repr(value))}")
        # A command is there to be typed again, so it is not cut.
        record[key] = name_of(value) if isinstance(value, str) and key != "command" else value
    if record.setdefault("status", "unfinished") not in RUN_STATUSES:
        raise ValueError(f"run.json cannot be read: status {record['status']!r} is none of {', '.join(RUN_STATUSES)}")
    return record


def read_run(place: Path, folder: Path) -> tuple[dict[str, Any], dict[str, str], Table | None]:
    """Return a run's record, its flat configuration, and its rows if it has finished and they can be read.

    Args:
        place: the run's folder.
        folder: ``results/<name>``, which no link may lead out of.
    """
    record: dict[str, Any] = {"status": "unfinished"}
    config: dict[str, str] = {}
    table = None
    try:
        if name_of(place.name) != place.name:
            raise ValueError("the folder's name is too long for a run's, or not printable")
        stays_within(place, folder)
        nested = read_mapping(place / "config.yaml", folder)
        config = dict(flat(nested))
        config["trained"] = json.dumps(config.pop("train", "") != "null" and "train.elsewhere" not in config)
        for key in ("encoder", "positions", "task"):
            part = nested.get(key)
            name = part.get("name") if isinstance(part, dict) else None
            record[key] = None if name is None else name_of(str(name))
        record["seed"] = nested.get("seed")
        record |= read_record(place, folder)
        if record["status"] in FINISHED:
            table = read_rows(place / "rows.csv", folder, place.name)
            record |= {key: table[key][0] for key in ("encoder", "positions", "task", "seed")}
        elif record["status"] in ("running", "unfinished"):
            record.setdefault("message", "no end is recorded: still running, or interrupted")
    except FileNotFoundError as error:
        missing = f"{Path(error.filename).name} is missing: still running, or interrupted"
        record |= {"status": "unfinished", "message": missing}
    except (ValueError, OSError) as error:
        record |= {"status": "unreadable", "message": name_of(message_of(error))}
    return record | {"run_id": name_of(place.name)}, config, table


def read_rows(path: Path, folder: Path, run_id: str) -> Table:
    """Return the rows of a run, with every column of `Row`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it cannot be read, belongs to another run, or a cell is not what its column holds.
    """
    head, lines = read_cells(path, folder)
    if missing := [column for column in NEEDED if column not in head]:
        raise ValueError(f"{path.name} cannot be read: it lacks the columns {', '.join(missing)}")
    if not lines:
        raise ValueError(f"{path.name} cannot be read: it is cut short")
    cells = dict(zip(head, zip(*lines, strict=True), strict=True))
    if strangers := set(cells["run_id"]) - {run_id}:
        raise ValueError(f"{path.name} belongs to another run, {min(strangers)!r}: counted once, there")
    table: Table = {column: [default] * len(lines) for column, default in DEFAULTS.items()}
    for column in (column for column in COLUMNS if column in cells):
        try:
            values = {cell: READ.get(column, name_of)(cell) for cell in set(cells[column])}
        except ValueError as error:
            raise ValueError(f"{path.name} cannot be read: {column}: {error}") from error
        table[column] = [values[cell] for cell in cells[column]]
    if unknown := sorted(set(table["status"]) - set(STATUSES)):
        raise ValueError(f"{path.name} cannot be read: status {unknown[0]!r} is none of {', '.join(STATUSES)}")
    for number, (status, value) in enumerate(zip(table["status"], table["value"], strict=True)):
        if status == "ok" and math.isnan(value):  # an overflow is a divergence, whatever the row says
            table["status"][number] = "diverged"
        elif status != "ok":
            table["value"][number] = math.nan
    return table


def _whole(cell: str, least: int) -> int:
    number = int(cell)
    if not least <= number < 2**53:
        raise ValueError(f"{name_of(cell)} is not from {least} to 2**53")
    return number


def _coordinate(cell: str, kind: type) -> float | int | None:
    number: float | int | None = kind(cell) if cell else None
    if number is not None and not abs(number) < 2**31:
        raise ValueError(f"{name_of(cell)} is not below 2**31")
    return number


def _finite(cell: str) -> float:
    number = float(cell or "nan")
    return number if abs(number) < LARGEST else math.nan


READ: dict[str, Callable[[str], Any]] = {
    **{column: partial(_whole, least=least) for column, least in WHOLE.items()},
    **{column: partial(_coordinate, kind=kind) for column, kind in COORDINATES.items()},
    **dict.fromkeys(("value", "chance"), _finite),
}
"""Column -> how its cells are read; the others are names."""
