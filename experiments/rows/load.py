"""Results for scripts and notebooks: the rows and runs of a folder as tidy pandas frames."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.rows import results as _results
from experiments.rows.results import RECORD, Results

if TYPE_CHECKING:
    import pandas as pd


def load(folder: str | Path) -> Results:
    """Read a folder that ``run.py`` has written. Needs no torch.

    >>> results = load("results/classic")                                             # doctest: +SKIP
    >>> length_extrapolation.summarise(results.rows)                                  # doctest: +SKIP
    >>> length_extrapolation.plot(results.rows)["copy_token_accuracy"]                # doctest: +SKIP

    Args:
        folder: ``results/<name>``.

    Returns:
        an object whose ``rows`` has one line a measurement (the columns of ``rows.csv``, then ``label``, which tells
        lines of comparison apart, and ``converged``), and whose ``runs`` has one line a run, broken ones included,
        numbers as numbers and times as times; ``settings`` and ``configs`` say how they were made. `summarise` and
        `plot` of an experiment take ``rows``, or any part of it, as it is; they look at their own experiment's rows.

    Raises:
        ValueError: there is no such folder, or no run in it.
    """
    results = _results.load(Path(folder))
    return replace(results, runs=_tidy(results.runs))


def _tidy(runs: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    numbers = [name for name, kind in RECORD.items() if kind in (int, (int, float))]
    texts = [name for name, kind in RECORD.items() if kind is str]
    typed = {name: pd.to_numeric(runs[name]) for name in numbers}
    typed |= {name: runs[name].astype("string") for name in ("run_id", "label", *texts)}
    typed |= {name: pd.to_datetime(runs[name], errors="coerce", format="ISO8601") for name in ("started", "finished")}
    return runs.assign(**typed, converged=runs["converged"].astype("boolean"))
