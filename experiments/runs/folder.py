"""A run's folder: whether the run in it has ended, what an unfinished one left, its log."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from experiments.plan.plan import BadRequest
from experiments.rows.results import FINISHED
from experiments.rows.untrusted import message_of
from experiments.runs import lease
from experiments.training import checkpoint

logger = logging.getLogger("pe_zoo")

LOG = "run.log"
WRITTEN = ("run.json", "rows.csv", "config.yaml", "model.safetensors", LOG, "figures")
"""What a run leaves; while it is under way there are checkpoints, locks and temporary files too."""
_TEMPORARY = re.compile(
    rf"\.({'|'.join(map(re.escape, WRITTEN))}|checkpoint-\d+-\w+\.\w+)\.\w{{8}}|\.lock-\d+|\.taking-\w+"
)
"""Also the locks of earlier releases."""


def record_of(folder: Path) -> dict[str, Any] | None:
    """What a run of this program says of itself; None if that cannot be read."""
    try:
        return _record(folder)
    except (OSError, ValueError):
        return None


def _record(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("it holds no mapping")
    return found


def ending(folder: Path) -> dict[str, Any] | None:
    """The record of a run that has ended; None if it has not.

    Raises:
        BadRequest: what it wrote is no longer as it wrote it.
    """
    try:
        record = _record(folder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise _altered(folder, "run.json", f"cannot be read ({_reason(error)})") from error
    if record.get("status") not in FINISHED:
        return record if record.get("status") == "failed" else None
    promised = record.get("rows_sha256")  # results of earlier releases do not say
    try:
        written = digest(folder)
    except OSError as error:
        raise _altered(folder, "rows.csv", f"cannot be read ({_reason(error)})") from error
    if promised not in (None, written):
        raise _altered(folder, "rows.csv", "is no longer what the run wrote")
    return record


def _altered(folder: Path, file: str, said: str) -> BadRequest:
    return BadRequest(
        f"{folder}: {file} {said}: put it back as it was, or move the folder away; force=true runs it anew in its place"
    )


def _reason(error: Exception) -> str:
    return message_of((isinstance(error, OSError) and error.strerror) or error)


def digest(folder: Path) -> str:
    """The sha256 of a run's rows."""
    return hashlib.sha256((folder / "rows.csv").read_bytes()).hexdigest()


def has_leftovers(folder: Path) -> bool:
    """Whether a run that has ended was cut off before it could tidy up."""
    return any(True for pattern in (checkpoint.PATTERN, lease.PATTERN) for _ in folder.glob(pattern))


def clear(folder: Path) -> None:
    """Take out what the run in a folder left, and nothing of anybody else's. One that has not ended can still go on.

    Raises:
        OSError: that cannot be.
    """
    try:
        anew = ending(folder) is not None
    except BadRequest:
        anew = True
    # Cut off before the record has gone, the run has still ended; afterwards it begins anew.
    doomed = [*folder.glob(checkpoint.PATTERN)] if anew else []
    doomed += [folder / name for name in WRITTEN if anew or name != LOG]
    for path in [*doomed, *(path for path in folder.iterdir() if _TEMPORARY.fullmatch(path.name))]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
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
