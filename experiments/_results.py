"""Reading results back: the rows of every finished run of a folder as one table, and what became of the others."""

from __future__ import annotations

import io
import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments._table import COLUMNS, frame

if TYPE_CHECKING:
    import pandas as pd

STATUSES = ("ok", "unsupported", "diverged")
FINISHED = ("ok", "diverged")
RUN_COLUMNS = [
    *("run_id", "label", "encoder", "choice", "positions", "layout", "task", "seed", "status", "message"),
    *("in_range", "converged", "final_loss", "model_parameters", "encoder_parameters"),
    *("steps", "stopped", "tuning", "train_seconds", "measure_seconds", "tokens_per_second"),
    *("torch", "python", "device", "precision", "threads", "commit", "command", "corpus", "started", "finished"),
]
_COMPONENTS = ("encoder", "positions", "layout")
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
            None where unknown. ``status`` is ``ok``, ``diverged``, ``failed``, ``running``,
            ``unfinished`` or ``unreadable``; ``message`` says why.
        settings: task -> the configuration keys, dotted, that all its runs share.
        configs: run_id -> its configuration, dotted keys to text; ``trained`` among them.
    """

    folder: Path
    rows: pd.DataFrame
    runs: pd.DataFrame
    settings: dict[str, dict[str, str]]
    configs: dict[str, dict[str, str]]


def load(folder: Path) -> Results:
    """Read every run under ``<folder>/runs``. A broken run is listed with the reason; it stops nothing.

    Raises:
        ValueError: there is no such folder, or no run in it.
    """
    import pandas as pd

    if not folder.is_dir():
        raise ValueError(f"no folder {str(folder)!r}: give one that run.py has written, results/<name>")
    places = sorted(path for path in (folder / "runs").glob("*") if path.is_dir())
    if not places:
        raise ValueError(f"no runs in {str(folder)!r}: it has no folder runs/<run_id>; run.py writes one for every run")
    records, configs, tables = [], [], []
    for place in places:
        record, config, table = _read_run(place)
        records.append(record)
        configs.append(config)
        if table is not None:
            tables.append(table)
    settings = _label(records, configs)
    runs = pd.DataFrame([[record.get(column) for column in RUN_COLUMNS] for record in records], dtype=object)
    runs.columns = pd.Index(RUN_COLUMNS)
    rows = pd.concat(tables, ignore_index=True) if tables else frame([])
    by_run = {record["run_id"]: record for record in records}
    rows["label"] = pd.Series([by_run[run_id]["label"] for run_id in rows["run_id"]], dtype="str")
    rows["converged"] = pd.Series([by_run[run_id].get("converged") for run_id in rows["run_id"]], dtype=object)
    by_id = {record["run_id"]: config for record, config in zip(records, configs, strict=True)}
    return Results(folder, rows, runs, settings, by_id)


def _read_run(place: Path) -> tuple[dict[str, Any], dict[str, str], pd.DataFrame | None]:
    """One run folder: its record, its flat configuration, and its rows if the run is finished and they are sound."""
    record: dict[str, Any] = {"status": "unfinished"}
    config: dict[str, str] = {}
    table = None
    try:
        nested = _read_mapping(place / "config.yaml")
        config = dict(_flat(nested))
        config["trained"] = json.dumps(config.pop("train", "") != "null")
        for key in ("encoder", "positions", "task"):
            part = nested.get(key)
            record[key] = part.get("name") if isinstance(part, dict) else None
        record["seed"] = nested.get("seed")
        record |= {key: value for key, value in _read_mapping(place / "run.json").items() if value is not None}
        if record["status"] in FINISHED:
            table = _read_rows(place / "rows.csv", place.name)
            first = table.iloc[0]
            record |= {key: first[key] for key in ("encoder", "positions", "task")} | {"seed": int(first["seed"])}
        elif record["status"] in ("running", "unfinished"):
            record.setdefault("message", "no end is recorded: still running, or interrupted")
    except FileNotFoundError as error:
        record["status"] = "unfinished"
        record["message"] = f"{Path(error.filename).name} is missing: still running, or interrupted"
    except (ValueError, OSError) as error:
        record |= {"status": "unreadable", "message": " ".join(str(error).split())}
    return record | {"run_id": place.name}, config, table


def _read_mapping(path: Path) -> dict[str, Any]:
    import yaml

    text = path.read_text(encoding="utf-8")
    try:
        content = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path.name} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} cannot be read: it holds no mapping")
    return content


def _read_rows(path: Path, run_id: str) -> pd.DataFrame:
    import pandas as pd

    text = path.read_text(encoding="utf-8")
    try:
        # As strings first: an encoder called "none" or "nan" is a name, and a blank is no zero.
        table = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)
    except ValueError as error:
        raise ValueError(f"{path.name} cannot be read: {error}") from error
    if missing := [column for column in COLUMNS if column not in table.columns]:
        raise ValueError(f"{path.name} cannot be read: it lacks the columns {', '.join(missing)}")
    table = table[COLUMNS].copy()
    if not text.endswith("\n") or table.empty or table.isna().to_numpy().any():
        raise ValueError(f"{path.name} cannot be read: it is cut short")
    if (table["run_id"] != run_id).any():
        raise ValueError(f"{path.name} belongs to another run, {table['run_id'].iloc[0]!r}: counted once, there")
    try:
        for column in ("seed", "train_length", "eval_length", "n"):
            table[column] = [int(cell) for cell in table[column]]
        for column in ("value", "chance"):
            table[column] = [float(cell) if cell else math.nan for cell in table[column]]
    except ValueError as error:
        raise ValueError(f"{path.name} cannot be read: {error}") from error
    if unknown := sorted(set(table["status"]) - set(STATUSES)):
        raise ValueError(f"{path.name} cannot be read: status {unknown[0]!r} is none of {', '.join(STATUSES)}")
    # A number that is none cannot be averaged: an overflow is a divergence, whatever the row calls it.
    table.loc[(table["status"] == "ok") & ~table["value"].abs().lt(math.inf), "status"] = "diverged"
    table.loc[table["status"] != "ok", "value"] = math.nan
    return table


def _flat(nested: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in nested.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value if isinstance(value, str) else json.dumps(value, default=str)


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
    value, count = values.most_common(1)[0]
    return value if count > USUAL * values.total() else None


def _values(key: str, group: list[tuple[dict[str, Any], dict[str, str]]]) -> list[str]:
    """A key's value in every run. Runs that did not train, or not measure an experiment, have none of its keys."""
    return [value for _, config in group if (value := _value(key, config, group)) is not None]


def _value(key: str, config: dict[str, str], group: list[tuple[dict[str, Any], dict[str, str]]]) -> str | None:
    optional = {"train", *(name for _, config in group for name in _experiments(config))}
    return config.get(key, None if key.partition(".")[0] in optional else "unset")


def _differs(key: str, group: list[tuple[dict[str, Any], dict[str, str]]]) -> bool:
    """Whether runs differ in a key."""
    return len(set(_values(key, group))) > 1


def _experiments(config: dict[str, str]) -> list[str]:
    said = config.get("experiment", "[]")
    return list(json.loads(said)) if said.startswith("[") else [said]


def _measured_twice(group: list[tuple[dict[str, Any], dict[str, str]]]) -> bool:
    """Whether two runs measured the same experiment on what is called the same, with the same seed."""
    made = [(record["label"], record["seed"], name) for record, config in group for name in _experiments(config)]
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
    said = {key: {str(record[key]) for record, _ in group if record.get(key)} for key in ("positions", "layout")}
    named = [key for key, values in said.items() if len(values) > 1]
    usual = {key: _usual(key, group) for key in varying}
    for record, config in group:
        parts = [str(record.get("encoder")), *(str(record.get(key) or "unknown") for key in named)]
        values = {key: _value(key, config, group) for key in varying}
        told = [f"{key}={value}" for key, value in values.items() if value not in (None, usual[key])]
        record["label"] = " · ".join([*parts, *told])
