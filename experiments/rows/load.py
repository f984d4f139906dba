"""Results for scripts and notebooks: the rows and runs of a folder as tidy pandas frames."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd

from experiments.rows import results
from experiments.rows.read import RECORD
from experiments.rows.results import Results


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
    found = results.load(Path(folder))
    return replace(found, runs=_tidy(found.runs))


def _tidy(runs: pd.DataFrame) -> pd.DataFrame:
    numbers = [name for name, kind in RECORD.items() if kind in (int, (int, float))]
    texts = [name for name, kind in RECORD.items() if kind is str]
    typed = {name: pd.to_numeric(runs[name]) for name in numbers}
    typed |= {name: runs[name].astype("string") for name in ("run_id", "series", *texts)}
    typed |= {name: pd.to_datetime(runs[name], errors="coerce", format="ISO8601") for name in ("started", "finished")}
    return runs.assign(**typed, converged=runs["converged"].astype("boolean"))
