"""A run's folder: whether the run in it has ended, what an unfinished one left, its log, its figures."""

import hashlib
import logging
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.plan.refusal import BadRequest
from experiments.rows.read import FINISHED, read_run
from experiments.rows.row import write_whole
from experiments.rows.untrusted import read_mapping
from experiments.runs import lease
from experiments.training import checkpoint

logger = logging.getLogger("pe_zoo")

LOG = "run.log"
WRITTEN = ("run.json", "rows.csv", "config.yaml", "model.safetensors", LOG, "figures")
"""What a run leaves; while it is under way there are checkpoints, locks and temporary files too."""
_TEMPORARY = re.compile(rf"\.({'|'.join(map(re.escape, WRITTEN))}|checkpoint-\d+-\w+\.\w+)\.\w{{8}}")


def record_of(folder: Path) -> dict[str, Any] | None:
    """Return the run.json of one of this program's runs; None if it cannot be read."""
    try:
        return read_mapping(folder / "run.json", folder)
    except (OSError, ValueError):
        return None


def ending(folder: Path) -> dict[str, Any] | None:
    """Return the record of a run that has ended; None if it has not. BadRequest if its files have changed since."""
    file, reason = "run.json", "is no longer what the run wrote"
    try:
        record = read_mapping(folder / file, folder)
        if record.get("status") not in FINISHED:
            return record if record.get("status") == "failed" else None
        file = "rows.csv"
        if record.get("rows_sha256") in (None, digest(folder)):  # results of earlier releases have none
            return record
    except (OSError, ValueError) as error:
        if file == "run.json" and isinstance(error, FileNotFoundError | NotADirectoryError):
            return None
        why = (isinstance(error, OSError) and error.strerror) or str(error).partition(": ")[2]
        reason = f"cannot be read ({why})"
    advice = "restore it, or move the folder away; force=true runs it again in its place"
    raise BadRequest(f"{folder}: {file} {reason}: {advice}")


def digest(folder: Path) -> str:
    """Return the sha256 of a run's rows."""
    return hashlib.sha256((folder / "rows.csv").read_bytes()).hexdigest()


def has_leftovers(folder: Path) -> bool:
    """Whether a run that has ended was cut off before it could tidy up."""
    return any(any(folder.glob(pattern)) for pattern in (checkpoint.PATTERN, lease.PATTERN))


def clear(folder: Path) -> None:
    """Remove what the run in a folder left, and nobody else's files. One that has not ended keeps its checkpoints."""
    try:
        ended = ending(folder) is not None
    except BadRequest:
        ended = True
    # If this is cut off before the record is gone, the run has still ended; afterwards it starts from the beginning.
    doomed = [*folder.glob(checkpoint.PATTERN)] if ended else []
    doomed += [folder / name for name in WRITTEN if ended or name != LOG]
    for path in [*doomed, *(path for path in folder.iterdir() if _TEMPORARY.fullmatch(path.name))]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


class _File(logging.FileHandler):
    """A log file; that it cannot be written, on a full disk, stops nothing."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass


@contextmanager
def log_file(folder: Path) -> Iterator[logging.FileHandler]:
    """Write everything logged within the block to a file too; tracebacks go only there."""
    handler = _File(folder / LOG, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)  # whatever a caller's own logging lets through
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        try:
            handler.close()
        except OSError as error:
            logger.warning("%s is cut short: %s", handler.baseFilename, error.strerror or error)


def draw(folder: Path, table: pd.DataFrame) -> None:
    """Draw the rows of a run into its ``figures/``: all of them or none. OSError if the disk does not take them."""
    from experiments.figures import style  # with what it needs, a second that no run without figures waits for
    from experiments.figures.training import training_curves
    from experiments.measures import plot_of

    unfinished = Path(tempfile.mkdtemp(dir=folder, prefix=".figures."))
    try:
        for name in table["experiment"].unique():
            plot = training_curves if name == "training" else plot_of(name)
            for stem, figure in plot(table[table["experiment"] == name]).items():
                write_whole(unfinished / f"{name}_{stem}.png", style.render(figure, "png"), lasting=False)
        unfinished.chmod(0o755)
        unfinished.rename(folder / "figures")
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def draw_missing_figures(folder: Path) -> None:
    """Draw the figures of a finished run that has none, as the runs of a sweep."""
    try:
        if not (folder / "figures").is_dir() and (rows := read_run(folder, folder.parent.parent)[2]) is not None:
            draw(folder, pd.DataFrame(rows))
    except OSError as error:
        logger.warning("figures cannot be written: %r: %s", str(folder), error.strerror or error)
