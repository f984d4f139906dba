"""The figures of a run: drawn in a process beside it, so that what draws is imported and at work while it measures."""

import multiprocessing
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import pandas as pd

from experiments.rows.row import Row, frame
from experiments.runs import pool

DISK = 3
"""Exit code where figures could not be written."""


class Drawing:
    """Figures being drawn into a run's ``figures/``: all of them or none, when it is finished."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._rows: list[Row] = []
        self._process: subprocess.Popen[bytes] | None = None
        if pool.cores() > 1 and multiprocessing.parent_process() is None:
            pool.lead_here()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "experiments.runs.drawing", str(folder)],
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C reaches it by the end of its input
            )

    def add(self, rows: Sequence[Row]) -> None:
        """Draw what all rows of one or several experiments show."""
        if self._process is None:
            self._rows += rows
        else:
            self._send(rows)

    def _send(self, rows: Sequence[Row] | None) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # `finish` says why
            pickle.dump(rows, self._process.stdin)
            self._process.stdin.flush()

    def finish(self) -> None:
        """Write the figures. OSError if the disk did not take them, RuntimeError if one could not be drawn."""
        if self._process is None:
            draw(self.folder, [frame(self._rows)])
            return
        self._send(None)
        errors = self._process.communicate()[1].decode(errors="replace").strip()
        if self._process.returncode:
            raise (OSError if self._process.returncode == DISK else RuntimeError)(errors)

    def abandon(self) -> None:
        """End without figures, unless they are finished."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.communicate()
            for unfinished in self.folder.glob(".figures.*"):
                shutil.rmtree(unfinished, ignore_errors=True)


def draw(folder: Path, tables: Iterable[pd.DataFrame]) -> None:
    """Draw the training curve and each measure's figures into ``figures/``, table after table: all of them or none."""
    from experiments.figures import style  # with what it needs, a second that only this process waits for
    from experiments.figures.training import training_curves
    from experiments.measures import plot_of

    unfinished = Path(tempfile.mkdtemp(dir=folder, prefix=".figures."))
    try:
        for table in tables:
            for name in table["experiment"].unique():
                plot = training_curves if name == "training" else plot_of(name)
                for stem, figure in plot(table[table["experiment"] == name]).items():
                    style.save(figure, unfinished / f"{name}_{stem}", ("png",))
        unfinished.chmod(0o755)
        unfinished.rename(folder / "figures")
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _tables() -> Iterable[pd.DataFrame]:
    while (rows := pickle.load(sys.stdin.buffer)) is not None:  # of the process that started this one
        yield frame(rows)


if __name__ == "__main__":
    try:
        draw(Path(sys.argv[1]), _tables())
    except EOFError:  # the run has ended without an end
        sys.exit(0)
    except OSError as error:
        sys.stderr.write(str(error.strerror or error))
        sys.exit(DISK)
