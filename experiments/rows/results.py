"""The results of a folder as two tables: the rows of every finished run, and one line for each run."""

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.rows import sweeps
from experiments.rows.read import FINISHED, RECORD, WHOLE, Table, read_run, run_folders, training_seconds
from experiments.rows.row import COLUMNS, COORDINATE_DTYPES, COORDINATES, frame, main_quality
from experiments.rows.series import name_series

RUN_COLUMNS = ["run_id", "series", *RECORD]


@dataclass(frozen=True)
class Results:
    """What is on disk for one ``results/<name>``.

    Args:
        folder: where it was read from.
        rows: every row of every finished run: the columns of `Row`, then ``series`` (the name of its series, see
            `series`) and ``converged`` (None where that was not judged).
        runs: one line for each run folder, broken and unfinished ones included; columns `RUN_COLUMNS`, None where
            unknown. ``status`` is ``unreadable`` or one of `read.RUN_STATUSES`; ``message`` says why.
        settings: task -> the configuration keys, dotted, that its series do not mention.
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
        """The rows that have each task's quality over lengths."""
        return main_quality(self.rows)

    @property
    def finished(self) -> pd.DataFrame:
        """The runs that would end the same way again."""
        return self.runs[self.runs["status"].isin(FINISHED)]

    @property
    def waiting(self) -> list[str]:
        """The runs that were asked for and have not ended."""
        begun = self.runs["status"].isin(("running", "interrupted", "unfinished"))
        return [*self.missing, *self.runs.loc[begun, "run_id"]]

    def waits_for(self, task: str) -> bool:
        """Whether runs of a task that were asked for have not ended.

        Of a run that has not begun only its encoder, task and seed are known: of several sizes of a task it is taken to
        be of those without such a run.
        """
        if not self.runs.loc[self.runs["run_id"].isin(self.waiting) & (self.runs["task"] == task), "run_id"].empty:
            return True
        base = task.partition("(")[0]
        sizes = {str(each) for each in self.runs["task"].dropna() if str(each).partition("(")[0] == base}
        begun = {size: {_kind(run) for run in self.runs.loc[self.runs["task"] == size, "run_id"]} for size in sizes}
        for kind, count in Counter(map(_kind, self.missing)).items():
            without = [size for size in sizes if kind not in begun[size]]
            if f"-{base}-seed" in kind and (task in without or count > len(without)):
                return True
        return False


def _kind(run_id: str) -> str:
    return run_id.rpartition("-")[0]


def training_time(runs: pd.DataFrame) -> float:
    """Return the seconds that training of all these runs took, learning rates that were tried included."""
    return float(pd.to_numeric(pd.Series([training_seconds(run) for run in runs.to_dict("records")])).sum())


def trained_runs(configs: dict[str, dict[str, str]]) -> set[str]:
    """Return the runs that were trained, by `Results.configs`."""
    return {run for run, config in configs.items() if config.get("trained") == "true"}


def from_outside(runs: pd.DataFrame, configs: dict[str, dict[str, str]]) -> bool:
    """Whether all of some runs measured models from outside, so that nothing was trained; not where there are none."""
    return len(runs) > 0 and all("train.elsewhere" in configs.get(run, {}) for run in runs["run_id"])


def read(folder: Path) -> Results:
    """Read every run under ``<folder>/runs``. A broken run is listed with the reason and stops nothing.

    Raises:
        ValueError: there is no such folder, or no run in it.
    """
    found = [read_run(place, folder) for place in run_folders(folder)]
    settings = name_series([(record, config) for record, config, _ in found])
    runs = pd.DataFrame([[record.get(column) for column in RUN_COLUMNS] for record, _, _ in found], dtype=object)
    runs.columns = pd.Index(RUN_COLUMNS)
    tables = [(table, record) for record, _, table in found if table is not None]
    rows = _one_table(tables) if tables else frame([]).assign(series="", converged=None)
    configs = {record["run_id"]: config for record, config, _ in found}
    missing = tuple(sorted(set(sweeps.asked(sweeps.read(folder)[0])) - set(configs)))
    return Results(folder, rows, runs, settings, configs, missing)


def load(folder: str | Path) -> Results:
    """Read a folder that ``run.py`` has written, without torch.

    >>> results = load("results/classic")                                             # doctest: +SKIP
    >>> length_extrapolation.summarise(results.rows)                                  # doctest: +SKIP
    >>> length_extrapolation.plot(results.rows)["copy_token_accuracy"]                # doctest: +SKIP

    Args:
        folder: ``results/<name>``.

    Returns:
        `Results`, with numbers as numbers and times as times: ``rows`` has one line for each measurement (the columns
        of ``rows.csv``, then ``series``, the name of the series, and ``converged``), ``runs`` one for each run.
        `summarise` and `plot` of an experiment take ``rows``, or any part of it.

    Raises:
        ValueError: there is no such folder, or no run in it.
    """
    results = read(Path(folder))
    runs = results.runs
    typed = {name: pd.to_numeric(runs[name]) for name, kind in RECORD.items() if kind in (int, (int, float))}
    typed |= {name: runs[name].astype("string") for name in RUN_COLUMNS if RECORD.get(name, str) is str}
    typed |= {name: pd.to_datetime(runs[name], errors="coerce", format="ISO8601") for name in ("started", "finished")}
    return replace(results, runs=runs.assign(**typed, converged=runs["converged"].astype("boolean")))


def _one_table(tables: list[tuple[Table, dict[str, Any]]]) -> pd.DataFrame:
    dtypes: dict[str, Any] = dict.fromkeys(COLUMNS, "str") | dict.fromkeys(WHOLE, "int64") | COORDINATE_DTYPES
    dtypes |= {"value": "float64", "chance": "float64"}
    lengths = [len(table["value"]) for table, _ in tables]
    columns: dict[str, Any] = {}
    for column in COLUMNS:
        cells = [cell for table, _ in tables for cell in table.pop(column)]
        if column in COORDINATES:  # through NumPy, which reads None as NaN much faster
            columns[column] = pd.Series(np.array(cells, dtype=float)).astype(dtypes[column])
        elif dtypes[column] == "str":  # each text once, for a few stand in millions of rows
            codes, texts = pd.factorize(np.array(cells, dtype=object))
            columns[column] = pd.array(texts, dtype="str").take(codes)
        else:
            columns[column] = pd.Series(cells, dtype=dtypes[column])
    run = np.repeat(range(len(tables)), lengths)
    series = pd.array([record["series"] for _, record in tables], dtype="str").take(run)
    converged = np.array([record.get("converged") for _, record in tables], dtype=object)[run]
    return pd.DataFrame(columns).assign(series=series, converged=converged)
