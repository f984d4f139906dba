"""The row: one measurement. Rows are written whole or not at all; `results` reads them back."""

import csv
import io
import json
import math
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from experiments.rows.untrusted import Loader

OVER_LENGTHS = "length_extrapolation"
"""The experiment that measures a task's quality over lengths."""
KEEPS = 0.9
"""Share of the quality in range above the best guess that a length keeps at which a model works."""
LABELS = Path(__file__).with_name("metrics.yaml")
RELATIVE_DISTANCE = "relative_distance"
"""The metric of how far scores are from a relative's, which the condition names."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement of one run. ``docs/rows.md`` is the dictionary of columns, metrics and conditions.

    ``step`` to ``sequence_length`` say where it was measured (`COORDINATES`). With a ``size``, ``position`` and
    ``distance`` are the first of that many; layer 0 of representations is the embedded input.
    """

    run_id: str
    encoder: str
    positions: str
    task: str
    seed: int
    experiment: str
    metric: str
    train_length: int
    eval_length: int
    condition: str = ""
    step: int | None = None
    layer: int | None = None
    head: int | None = None
    position: int | None = None
    depth: float | None = None
    key: int | None = None
    dimension: int | None = None
    distance: int | None = None
    shift: int | None = None
    part: int | None = None
    size: int | None = None
    share: float | None = None
    factor: float | None = None
    learning_rate: float | None = None
    sequence_length: int | None = None
    value: float = math.nan
    chance: float = math.nan
    n: int = 0
    status: str = "ok"


COLUMNS = [field.name for field in fields(Row)]
COORDINATES: dict[str, type] = {
    column: float if column in ("depth", "share", "factor", "learning_rate") else int
    for column in COLUMNS[COLUMNS.index("condition") + 1 : COLUMNS.index("value")]
}
"""The columns that say where a row was measured, with the type of their numbers; blank where they mean nothing."""
COORDINATE_DTYPES = {column: "Int32" if kind is int else "float64" for column, kind in COORDINATES.items()}


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write all rows as CSV, in one step; NaN is a blank."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: "" if cell != cell else cell for key, cell in cells(row).items()})
    write_whole(path, text.getvalue())


def cells(row: Row) -> dict[str, Any]:
    """Return what rows.csv has of a row. Nine digits of the value tell any two float32 numbers apart."""
    return asdict(row) | {"value": float(f"{row.value:.9g}")}


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Write a record as JSON, in one step. NaN becomes null: it is no JSON."""
    clean = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}
    write_whole(path, json.dumps(clean, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_whole(path: Path, content: str | bytes, *, lasting: bool = True) -> None:
    """Write a file whole or not at all: a temporary file beside it, then renamed. Text becomes UTF-8.

    ``lasting`` flushes it to disk before, so that not even a power cut leaves it empty.
    """
    data = content.encode() if isinstance(content, str) else content
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


@dataclass(frozen=True)
class Metric:
    """How a metric is named to a reader and which way is good; ``None`` where neither way is.

    ``repeats``: whether the same run made again has the same number, to the last bit. A measured time does not.
    ``signed``: whether it is a difference, which may be below 0.
    """

    label: str
    unit: str
    higher_is_better: bool | None
    repeats: bool = True
    signed: bool = False

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the largest value that is possible; infinite where there is none."""
        if self.signed:
            return -math.inf, math.inf
        if self.unit.startswith("share of"):
            return 0.0, 1.0
        return (0.0, math.inf) if self.unit.startswith(("bits", "nats", "training lengths")) else (-math.inf, math.inf)


def _metrics() -> dict[str, Metric]:
    found = {}
    for name, (label, unit, better, *marks) in yaml.load(LABELS.read_text(encoding="utf-8"), Loader=Loader).items():
        way = {"higher": True, "lower": False}.get(better)
        found[name] = Metric(label, unit, way, "timed" not in marks, "signed" in marks)
        if "initial" in marks:
            before = f"{label.removesuffix(', trained')}, at initialisation"
            found[f"initial_{name}"] = replace(found[name], label=before)
    return found


METRICS = _metrics()


def metric_of(name: str) -> Metric:
    """The metric's entry; one that is not listed is shown under its own name."""
    return METRICS.get(name, Metric(name.replace("_", " "), "", None))


def is_share(metric: str) -> bool:
    """Whether a metric is a share, which is shown in per cent and whose differences are points."""
    return metric_of(metric).bounds == (0, 1)


def lost(metric: str, before: float, after: float) -> float:
    """Quality lost between two values of a metric: positive is worse, whichever way the metric goes."""
    return before - after if metric_of(metric).higher_is_better else after - before


def main_metric(metrics: Iterable[str]) -> str | None:
    """The metric a task is judged by, among those that were measured."""
    present = set(metrics)
    return next((name for name in ("bits_per_byte", "token_accuracy") if name in present), None)


def among(order: Iterable[str], column: pd.Series) -> list[str]:
    """Those of an order that stand in a column, which may have very many rows."""
    found = set(column.unique())
    return [one for one in order if one in found]


def slice_name(row: Row | Mapping[Any, Any]) -> str:
    """Return the condition and the coordinates of a row as text.

    >>> slice_name({"condition": "shuffle", "layer": 2, "head": None})
    'shuffle, layer=2'
    """
    cells: Mapping[Any, Any] = vars(row) if isinstance(row, Row) else row
    given = {column: cells.get(column) for column in COORDINATES}
    coordinates = [f"{column}={value}" for column, value in given.items() if not pd.isna(value) and value != ""]
    return ", ".join([*filter(None, [cells.get("condition")]), *coordinates])


def coordinates_in(rows: pd.DataFrame) -> list[str]:
    """The coordinates that any of the rows has."""
    return [column for column in COORDINATES if column in rows.columns and rows[column].notna().any()]


def whole(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows that measure everything at once: without condition and coordinates."""
    rows = rows[rows["condition"] == ""]
    used = coordinates_in(rows)
    return rows[rows[used].isna().all(axis="columns")] if used else rows


def not_in_parts(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows that measure all of the sequences, not a part of them."""
    return rows[rows["part"].isna()] if "part" in rows.columns else rows


def rows_of(rows: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """The rows of one experiment, of a table that may hold those of others too."""
    alike = rows["experiment"] == experiment
    return rows if alike.all() else rows[alike]


def main_quality(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of each task's main metric over lengths, of whole sequences and not of slices."""
    rows = whole(rows[rows["experiment"] == OVER_LENGTHS])
    parts = [part[part["metric"] == main_metric(part["metric"].unique())] for _, part in rows.groupby("task")]
    return pd.concat(parts) if parts else rows


def frame(rows: Iterable[Row]) -> pd.DataFrame:
    """Rows as a frame with the columns of `Row`."""
    return pd.DataFrame([asdict(row) for row in rows], columns=COLUMNS).astype(COORDINATE_DTYPES)
