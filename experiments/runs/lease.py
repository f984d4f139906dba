"""One worker to a run: a locked file in the run's folder, which the system unlocks when its holder ends.

Where the file system has no locks, `filelock` uses a file that names its holder instead.
"""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

LOCK = ".lock"
HOLDER = ".lock-holder"
"""Beside the lock, for people: who holds it, and since when."""
PATTERN = ".lock*"
WAIT_SECONDS = 0.5
"""How long to wait for a lock: `holder` holds one for a moment to learn whether it is free."""


class RunLocked(Exception):
    """Another worker has the run; the message names it."""


def holder(folder: Path) -> str | None:
    """Return who is working on a run, or None if nobody is."""
    if not (folder / LOCK).is_file():
        return None
    try:
        with FileLock(folder / LOCK, timeout=0):
            return None
    except Timeout:
        return _name(folder)
    except OSError:  # not ours to write, so not ours to lock either
        return _name(folder) if (folder / HOLDER).is_file() else None


@contextmanager
def acquire(folder: Path) -> Iterator[Callable[[], None]]:
    """Hold a run's lock within the block; RunLocked if another worker holds it.

    Yields a check for before results are written: RunLocked if the lock was removed, and another worker may run it.
    """
    lock = FileLock(folder / LOCK, timeout=WAIT_SECONDS, thread_local=False)
    with ExitStack() as stack:
        try:
            stack.enter_context(lock)
        except Timeout:
            raise RunLocked(f"is being run by {_name(folder)}") from None
        inode = (folder / LOCK).stat().st_ino
        since = datetime.now(UTC).isoformat(timespec="seconds")
        (folder / HOLDER).write_text(f"process {os.getpid()} on {socket.gethostname()} since {since}", encoding="utf-8")

        def check() -> None:
            if _inode(folder) != inode and folder.is_dir():  # a folder that is gone fails when it is written
                raise RunLocked(f"lost its lock ({LOCK} was removed) and may be run by {_name(folder)}")

        try:
            yield check
        finally:
            if _inode(folder) == inode:  # still locked, so nobody else can have made these files
                for name in (HOLDER, LOCK):
                    with suppress(OSError):
                        (folder / name).unlink()


def _inode(folder: Path) -> int | None:
    try:
        return (folder / LOCK).stat().st_ino
    except OSError:
        return None


def _name(folder: Path) -> str:
    try:
        return (folder / HOLDER).read_text(encoding="utf-8")[:200] or "another worker"
    except (OSError, ValueError):
        return "another worker"
