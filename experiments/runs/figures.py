"""A run's own figures, drawn from its rows alone."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from experiments.figures import style
from experiments.measures import report_of
from experiments.rows.read import read_run


def draw(folder: Path, table: pd.DataFrame, measures: Iterable[str]) -> None:
    """Draw the training curve and each measure's figures into ``figures/``: all of them or none."""
    plots = {"training": style.training_curves, **{name: report_of(name).plot for name in measures}}
    unfinished = Path(tempfile.mkdtemp(dir=folder, prefix=".figures."))
    try:
        for name, plot in plots.items():
            for stem, figure in plot(table[table["experiment"] == name]).items():
                style.save(figure, unfinished / f"{name}_{stem}")
        unfinished.chmod(0o755)
        unfinished.rename(folder / "figures")
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def draw_missing(folder: Path, measures: Iterable[str]) -> None:
    """Draw the figures of a finished run that has none, as the runs of a sweep."""
    try:
        if not (folder / "figures").is_dir() and (rows := read_run(folder, folder.parent.parent)[2]) is not None:
            draw(folder, pd.DataFrame(rows), measures)
    except OSError as error:
        logging.getLogger("pe_zoo").warning("figures cannot be written: %r: %s", str(folder), error.strerror or error)
