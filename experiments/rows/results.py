"""Reading results back: the rows of every finished run of a folder as one table, and what became of the others."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, dataclass, fields
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.rows import sweeps
from experiments.rows.packed import unpack
from experiments.rows.quality import main_quality
from experiments.rows.row import COLUMNS, COORDINATES, Row, frame
from experiments.rows.untrusted import message_of, name_of, read_cells, read_mapping, stays_within

if TYPE_CHECKING:
    import pandas as pd

STATUSES = ("ok", "unsupported", "diverged")
FINISHED = ("ok", "diverged")
"""How a run can have ended for good: the same config would end the same way again."""
TUNED = "tuned"
"""What a configuration says of a learning rate that was searched for."""
RECORD: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("encoder", "choice", "positions", "layout", "task"), str),
    "seed": int,
    **dict.fromkeys(("status", "message"), str),
    "in_range": (int, float),
    "converged": bool,
    "final_loss": (int, float),
    **dict.fromkeys(("model_parameters", "encoder_parameters", "steps"), int),
    "stopped": str,
    "tuning": dict,
    **dict.fromkeys(("train_seconds", "measure_seconds", "tokens_per_second"), (int, float)),
    **dict.fromkeys(("torch", "python", "device", "precision"), str),
    **dict.fromkeys(("threads", "processes", "seeds_together"), int),
    **dict.fromkeys(("commit", "command"), str),
    **dict.fromkeys(("corpus", "packages"), dict),
    **dict.fromkeys(("started", "finished"), str),
}
"""What ``run.json`` may hold, with its types; None is always allowed, and anything else is not looked at."""
RUN_STATUSES = (*FINISHED, "failed", "running", "interrupted", "unfinished")
RUN_COLUMNS = ["run_id", "label", *RECORD]
_COMPONENTS = ("encoder", "positions", "layout")
ARCHIVE = "runs.tar.xz"
"""Runs as they come with the code: what is read of them, in one file."""
USUAL = 0.75
"""Share of the runs of a task from which on a setting is the usual one: labels name what departs from it."""
_CHOICE = ("experiment", "trained")
"""What changes no number of an experiment that only one of two runs measured."""


@dataclass(frozen=True)
class Results:
    """What is on disk for one ``results/<name>``.

    Args:
        folder: where it was read from.
        rows: every row of every finished run: the columns of `Row`, then ``label`` (the line of
            comparison: never the same for two runs that differ in more than their seed) and
            ``converged`` (True, False, or None where that was not judged).
        runs: one line a run folder, broken and unfinished ones included; columns `RUN_COLUMNS`,
            None where unknown. ``status`` is ``ok``, ``diverged``, ``failed``, ``running``, ``interrupted``,
            ``unfinished`` or ``unreadable``; ``message`` says why.
        settings: task -> the configuration keys, dotted, that all its runs share.
        configs: run_id -> its configuration, dotted keys to text; ``trained`` among them.
        missing: run ids that a sweep asked for and that have no folder yet.
    """

    folder: Path
    rows: pd.DataFrame
    runs: pd.DataFrame
    settings: dict[str, dict[str, str]]
    configs: dict[str, dict[str, str]]
    missing: tuple[str, ...] = ()

    @cached_property
    def quality(self) -> pd.DataFrame:
        """Those of the rows that have each task's quality over lengths."""
        return main_quality(self.rows)


def trained_runs(configs: dict[str, dict[str, str]]) -> set[str]:
    """The runs that have a training, by `Results.configs`; the others measured what needs none."""
    return {run for run, config in configs.items() if config.get("trained") == "true"}


def load(folder: Path) -> Results:
    """Read every run under ``<folder>/runs``. A broken run is listed with the reason; it stops nothing.

    Raises:
        ValueError: there is no such folder, or no run in it.
    """
    import pandas as pd

    places = run_folders(folder)
    records, configs, tables = [], [], []
    known = kept_cells()
    for place in places:
        record, config, table = read_run(place, folder, known)
        records.append(record)
        configs.append(config)
        if table is not None:
            tables.append(table)
    settings = _label(records, configs)
    runs = pd.DataFrame([[record.get(column) for column in RUN_COLUMNS] for record in records], dtype=object)
    runs.columns = pd.Index(RUN_COLUMNS)
    by_run = {record["run_id"]: record for record in records}
    rows = _one_table(tables, by_run) if tables else frame([]).assign(label="", converged=None)
    by_id = {record["run_id"]: config for record, config in zip(records, configs, strict=True)}
    missing = tuple(sorted(set(sweeps.asked(sweeps.read(folder)[0])) - set(by_id)))
    return Results(folder, rows, runs, settings, by_id, missing)


def run_folders(folder: Path) -> list[Path]:
    """Every folder below ``<folder>/runs``, in alphabetical order.

    Raises:
        ValueError: there is no such folder, or no run in it.
    """
    if not folder.is_dir():
        raise ValueError(f"no folder {str(folder)!r}: give one that run.py has written, results/<name>")
    stays_within(folder / "runs", folder)
    places = sorted(path for path in (folder / "runs").glob("*") if path.is_dir())
    if not places and (folder / ARCHIVE).is_file():
        raise ValueError(f"the runs of {str(folder)!r} are packed: tar -xf {folder / ARCHIVE} -C {folder} unpacks them")
    if not places:
        raise ValueError(f"no runs in {str(folder)!r}: it has no folder runs/<run_id>; run.py writes one for every run")
    return places


def _one_table(tables: list[dict[str, list[Any]]], by_run: dict[str, dict[str, Any]]) -> pd.DataFrame:
    """The runs' rows below one another, each with its run's label and whether it converged."""
    import numpy as np
    import pandas as pd

    lengths = [len(table["value"]) for table in tables]
    runs = [by_run[table["run_id"][0]] for table in tables]
    columns: dict[str, Any] = {}
    for column in COLUMNS:
        kind = {"value": float, "chance": float, **dict.fromkeys(_WHOLE, int)}.get(column)
        if column in COORDINATES:
            columns[column] = _coordinate([table.pop(column) for table in tables], COORDINATES[column])
        elif kind:
            columns[column] = np.concatenate([np.array(table.pop(column), dtype=kind) for table in tables])
        else:
            columns[column] = _texts([table.pop(column) for table in tables])
    label = pd.array([run["label"] for run in runs], dtype="str").take(np.repeat(np.arange(len(runs)), lengths))
    converged = np.repeat(np.array([run.get("converged") for run in runs], dtype=object), lengths)
    return pd.DataFrame(columns).assign(label=label, converged=converged)


def _texts(parts: list[list[str]]) -> Any:
    """One column of text: each different text is converted once, for a few stand in millions of rows."""
    import numpy as np
    import pandas as pd

    numbers: dict[str, int] = {}
    codes = [
        np.full(len(part), numbers.setdefault(part[0], len(numbers)))
        if part.count(part[0]) == len(part)
        else np.array([numbers.setdefault(text, len(numbers)) for text in part])
        for part in parts
    ]
    return pd.array(list(numbers), dtype="str").take(np.concatenate(codes))


def _coordinate(parts: list[list[Any]], kind: type) -> Any:
    """One column of coordinates; blank in most runs."""
    import numpy as np
    import pandas as pd

    blank = [part.count(None) == len(part) for part in parts]
    numbers = np.concatenate(
        [
            np.full(len(part), math.nan) if empty else np.array(part, dtype=float)
            for part, empty in zip(parts, blank, strict=True)
        ]
    )
    if kind is float:
        return numbers
    unknown = np.isnan(numbers)
    return pd.arrays.IntegerArray(np.where(unknown, 0, numbers).astype(np.int32), unknown)


def read_record(place: Path, folder: Path) -> dict[str, Any]:
    """What ``run.json`` says, without blanks; what it says beyond `RECORD` is left out.

    Args:
        place: the run's folder.
        folder: that holds it, which no link may lead out of.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it cannot be read, or holds what no run writes.
    """
    record = {}
    for key, value in read_mapping(place / "run.json", folder).items():
        if key not in RECORD or value is None or (isinstance(value, float) and not math.isfinite(value)):
            continue
        if not isinstance(value, RECORD[key]) or (isinstance(value, bool) and RECORD[key] is not bool):
            raise ValueError(f"run.json cannot be read: {key} is {name_of(repr(value))}")
        # A command is to be typed again: it stays whole.
        record[key] = name_of(value) if isinstance(value, str) and key != "command" else value
    if record.setdefault("status", "unfinished") not in RUN_STATUSES:
        raise ValueError(f"run.json cannot be read: status {record['status']!r} is none of {', '.join(RUN_STATUSES)}")
    return record


def read_run(
    place: Path, folder: Path, known: dict[str, Cells]
) -> tuple[dict[str, Any], dict[str, str], dict[str, list[Any]] | None]:
    """One run folder: its record, its flat configuration, and its rows if the run is finished and they are sound.

    Args:
        place: the run's folder.
        folder: ``results/<name>``, which no link may lead out of.
        known: of `kept_cells`, the same for all runs.
    """
    record: dict[str, Any] = {"status": "unfinished"}
    config: dict[str, str] = {}
    table = None
    try:
        if name_of(place.name) != place.name:
            raise ValueError("the folder's name cannot be a run's: it is too long, or not printable")
        stays_within(place, folder)
        nested = read_mapping(place / "config.yaml", folder)
        config = dict(_flat(nested))
        config["trained"] = json.dumps(config.pop("train", "") != "null")
        for key in ("encoder", "positions", "task"):
            part = nested.get(key)
            name = part.get("name") if isinstance(part, dict) else None
            record[key] = None if name is None else name_of(str(name))
        record["seed"] = nested.get("seed")
        record |= read_record(place, folder)
        if record["status"] in FINISHED:
            table = _read_rows(place / "rows.csv", folder, place.name, known)
            record |= {key: table[key][0] for key in ("encoder", "positions", "task", "seed")}
        elif record["status"] in ("running", "unfinished"):
            record.setdefault("message", "no end is recorded: still running, or interrupted")
    except FileNotFoundError as error:
        record["status"] = "unfinished"
        record["message"] = f"{Path(error.filename).name} is missing: still running, or interrupted"
    except (ValueError, OSError) as error:
        record |= {"status": "unreadable", "message": name_of(message_of(error))}
    return record | {"run_id": name_of(place.name)}, config, table


class Cells(dict[str, Any]):
    """What each cell stands for: read once, for a few stand in millions of rows.

    Args:
        read: what a cell stands for; raises ValueError where it may not stand there.
    """

    def __init__(self, read: Callable[[str], Any]) -> None:
        super().__init__()
        self.read = read

    def __missing__(self, cell: str) -> Any:
        value = self[cell] = self.read(cell)
        return value


def kept_cells() -> dict[str, Cells]:
    """Of each column of the rows but ``value``, where hardly any two are alike; columns of text share theirs."""
    numbers = {column: Cells(partial(_whole, least=least)) for column, least in _WHOLE.items()}
    numbers |= {column: Cells(partial(_coordinate_of, kind=kind)) for column, kind in COORDINATES.items()}
    numbers["chance"], text = Cells(_finite), Cells(name_of)
    return {column: numbers.get(column, text) for column in COLUMNS if column != "value"}


def _read_rows(path: Path, folder: Path, run_id: str, known: dict[str, Cells]) -> dict[str, list[Any]]:
    """Column -> cells."""
    head, lines = read_cells(path, folder)
    if missing := [column for column in NEEDED if column not in head]:
        raise ValueError(f"{path.name} cannot be read: it lacks the columns {', '.join(missing)}")
    if not lines:
        raise ValueError(f"{path.name} cannot be read: it is cut short")
    cells: dict[str, tuple[str, ...]] = dict(zip(head, zip(*lines, strict=True), strict=True))
    if strangers := set(cells["run_id"]) - {run_id}:
        raise ValueError(f"{path.name} belongs to another run, {min(strangers)!r}: counted once, there")
    unpacked = {} if set(head) & set(COORDINATES) else _unpacked(cells.get("condition", ()))
    if "condition" in unpacked:
        cells["condition"] = tuple(unpacked.pop("condition"))
    table: dict[str, list[Any]] = {}
    for column in COLUMNS:
        try:
            read = known[column].__getitem__ if column in known else _finite
            if column in unpacked:
                table[column] = unpacked[column]
            elif column not in cells or (column in COORDINATES and not any(cells[column])):
                table[column] = [DEFAULTS[column]] * len(lines)
            else:
                table[column] = list(map(read, cells[column]))
        except ValueError as error:
            raise ValueError(f"{path.name} cannot be read: {column}: {error}") from error
    if unknown := sorted(set(table["status"]) - set(STATUSES)):
        raise ValueError(f"{path.name} cannot be read: status {unknown[0]!r} is none of {', '.join(STATUSES)}")
    if set(table["status"]) == {"ok"} and not math.isnan(sum(table["value"])):
        return table
    for number, status in enumerate(table["status"]):
        # A number that is none cannot be averaged: an overflow is a divergence, whatever the row calls it.
        if status == "ok" and math.isnan(table["value"][number]):
            table["status"][number] = "diverged"
        elif status != "ok":
            table["value"][number] = math.nan
    return table


def _unpacked(conditions: Iterable[str]) -> dict[str, list[Any]]:
    """The columns ``condition`` and coordinates of a file that has the coordinates in its conditions."""
    split = [_unpack(condition) for condition in conditions]
    named = dict.fromkeys(name for _, found in {id(pair): pair for pair in split}.values() for name in found)
    columns: dict[str, list[Any]] = {name: [found.get(name) for _, found in split] for name in named}
    return columns | ({"condition": [condition for condition, _ in split]} if split else {})


_unpack = lru_cache(maxsize=65536)(unpack)
NEEDED = [field.name for field in fields(Row) if field.default is MISSING] + ["value"]
"""Columns without which a file means nothing; the others are filled where an older file lacks them."""
DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(Row)}
_WHOLE = {"seed": 0, "train_length": 1, "eval_length": 0, "n": 0}
"""Columns of whole numbers, and the least that each may be."""
LARGEST = 1e100
"""Where squares are beyond floating point, there is nothing to average."""


def _whole(cell: str, least: int) -> int:
    number = int(cell)
    if not least <= number < 2**53:
        raise ValueError(f"{name_of(cell)} is not from {least} to 2**53")
    return number


def _coordinate_of(cell: str, kind: type) -> float | int | None:
    if not cell:
        return None
    number = kind(cell)
    if not abs(number) < 2**31:
        raise ValueError(f"{name_of(cell)} is not below 2**31")
    return number if kind is int else float(number)


def _finite(cell: str) -> float:
    number = float(cell) if cell else math.nan
    return number if abs(number) < LARGEST else math.nan


def _flat(nested: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in nested.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value if isinstance(value, str) else json.dumps(value)


def _label(records: list[dict[str, Any]], configs: list[dict[str, str]]) -> dict[str, dict[str, str]]:
    """Give each record its ``label``; return, for each task, the settings all its runs share.

    What varies is worked out per task, for numbers of different tasks are never put together.
    """
    settings = {}
    for task in dict.fromkeys(record.get("task") for record in records):
        group = [pair for pair in zip(records, configs, strict=True) if pair[0].get("task") == task]
        known = [pair for pair in group if pair[1]]
        # A seed is what is averaged over, and a name changes no number.
        keys = dict.fromkeys(key for _, config in known for key in config if key not in ("seed", "seeds", "name"))
        different = [key for key in keys if _differs(key, known)]
        varying = [key for key in different if _is_unsaid(key, known) and key not in _CHOICE]
        usual = {key: _usual(key, known) for key in keys}
        settings[str(task)] = {
            key: f"{value}, unless a label says otherwise" if key in different else value
            for key, value in usual.items()
            if value is not None and (key not in different or key in varying)
        }
        _write_labels(known, varying)
        if choice := [key for key in _CHOICE if key in different and _measured_twice(known)]:
            _write_labels(known, [*varying, *choice])
        for record, _ in group:
            record.setdefault("label", str(record.get("encoder") or "unknown"))
    return settings


def _usual(key: str, group: list[tuple[dict[str, Any], dict[str, str]]]) -> str | None:
    """What almost all runs that have a key have it at, so that labels need not say it; None if they do not agree."""
    values = Counter(_values(key, group))
    if "null" in values:  # an option left off needs no name, however few did so
        return "null"
    return _most(values)


def _most(values: Counter[str]) -> str | None:
    """The value that is usual; None if there is none."""
    value, count = values.most_common(1)[0]
    return value if count > USUAL * values.total() else None


def _values(key: str, group: list[tuple[dict[str, Any], dict[str, str]]]) -> list[str]:
    """A key's value in every run. Runs that did not train, or not measure an experiment, have none of its keys."""
    configs = [config for _, config in group]
    lacking = None if key.partition(".")[0] in _optional(configs) else "unset"
    return [value for config in configs if (value := config.get(key, lacking)) is not None]


def _optional(configs: list[dict[str, str]]) -> set[str]:
    """Parts of a configuration that a run may do without."""
    choices = {config.get("experiment", "[]") for config in configs}
    return {"train", *(name for choice in choices for name in _experiments(choice))}


def _differs(key: str, group: list[tuple[dict[str, Any], dict[str, str]]]) -> bool:
    """Whether runs differ in a key."""
    return len(set(_values(key, group))) > 1


def _experiments(said: str) -> list[str]:
    """Names of experiments, from how a configuration says it."""
    try:
        return [str(name) for name in json.loads(said)]
    except (ValueError, TypeError):  # one name by itself, or nothing that is ours
        return [said]


def _measured_twice(group: list[tuple[dict[str, Any], dict[str, str]]]) -> bool:
    """Whether two runs measured the same experiment on what is called the same, with the same seed."""
    made = [
        (record["label"], record["seed"], name)
        for record, config in group
        for name in _experiments(config.get("experiment", "[]"))
    ]
    return len(set(made)) < len(made)


def _is_unsaid(key: str, group: list[tuple[dict[str, Any], dict[str, str]]]) -> bool:
    """Whether runs differ in a key although the encoder, numbering or layout that it belongs to is called alike."""
    component = key.partition(".")[0]
    of_name: dict[Any, set[str | None]] = {}
    for record, config in group:
        name = record.get(component) if component in _COMPONENTS else None
        of_name.setdefault(name, set()).add(config.get(key))
    return any(len(values) > 1 for values in of_name.values())


def _write_labels(group: list[tuple[dict[str, Any], dict[str, str]]], varying: list[str]) -> None:
    # A run that was cut short may not have said; that is no second layout.
    said = {key: Counter(str(record[key]) for record, _ in group if record.get(key)) for key in ("positions", "layout")}
    named = {key: _most(values) for key, values in said.items() if len(values) > 1}
    usual = {key: _usual(key, group) for key in varying}
    optional = _optional([config for _, config in group])
    for record, config in group:
        parts = [str(record.get(key) or "unknown") for key, most in named.items() if record.get(key) != most]
        parts = [str(record.get("encoder")), *parts]
        values = {key: config.get(key, None if key.partition(".")[0] in optional else "unset") for key in varying}
        told = [f"{key}={value}" for key, value in values.items() if value not in (None, usual[key])]
        record["label"] = name_of(" · ".join([*parts, *told]))
