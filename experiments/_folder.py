"""A run's folder: whether the run in it has ended, what an unfinished one left, its log."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from experiments import _checkpoint, _lock
from experiments._results import FINISHED

logger = logging.getLogger("pe_zoo")

LOG = "run.log"


def record_of(folder: Path) -> dict[str, Any] | None:
    """What a run of this program says of itself; None if that cannot be read."""
    try:
        found = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def ending(folder: Path) -> dict[str, Any] | None:
    """The record of a run that has ended; None if it has not, or what it wrote is no longer as it wrote it."""
    record = record_of(folder)
    if record is None or record.get("status") not in (*FINISHED, "failed"):
        return None
    if record["status"] == "failed":
        return record
    promised = record.get("rows_sha256")  # results of earlier releases do not say
    try:
        written = digest(folder)
    except OSError:
        return None
    return record if promised in (None, written) else None


def digest(folder: Path) -> str:
    """The sha256 of a run's rows."""
    return hashlib.sha256((folder / "rows.csv").read_bytes()).hexdigest()


def has_leftovers(folder: Path) -> bool:
    """Whether a run that has ended was cut off before it could tidy up."""
    return any(True for pattern in (_checkpoint.PATTERN, f"{_lock.PREFIX}*") for _ in folder.glob(pattern))


def clear(folder: Path, *, anew: bool) -> None:
    """Take out what an unfinished or replaced run left; what it can go on from stays, unless it begins ``anew``.

    Raises:
        OSError: that cannot be.
    """
    for path in folder.iterdir():
        kept = path.name.startswith(_lock.PREFIX) or (
            not anew and (path.match(_checkpoint.PATTERN) or path.name == LOG)
        )
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif not kept:
            path.unlink(missing_ok=True)


class _File(logging.FileHandler):
    """A log that cannot be written, because the disk is full, stops nothing."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass


@contextmanager
def log_file(folder: Path) -> Iterator[logging.FileHandler]:
    """Everything logged within also goes to a file; tracebacks go there alone."""
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
