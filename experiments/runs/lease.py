"""One worker to a run: a locked file in the run's folder, which the system unlocks when its holder ends.

Where the file system has no locks, `filelock` uses a file that names its holder instead.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Lease:
    """This worker's hold on a run: its folder, and the inode of the lock file; another one is another worker's."""

    folder: Path
    inode: int

    @property
    def is_own(self) -> bool:
        """Whether the lock file is still the one that this worker holds."""
        try:
            return (self.folder / LOCK).stat().st_ino == self.inode
        except OSError:
            return False

    def check(self) -> None:
        """Call this before writing results; RunLocked if somebody removed the lock: the run may be another's by now."""
        if not self.is_own and self.folder.is_dir():  # a folder that is gone fails when it is written
            raise RunLocked(f"lost its lock ({LOCK} was removed) and may be run by {_name(self.folder)}")


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
def acquire(folder: Path) -> Iterator[Lease]:
    """Hold a run's lock within the block; RunLocked if another worker holds it."""
    lock = FileLock(folder / LOCK, timeout=WAIT_SECONDS, thread_local=False)
    with ExitStack() as stack:
        try:
            stack.enter_context(lock)
        except Timeout:
            raise RunLocked(f"is being run by {_name(folder)}") from None
        lease = Lease(folder, (folder / LOCK).stat().st_ino)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        (folder / HOLDER).write_text(f"process {os.getpid()} on {socket.gethostname()} since {since}", encoding="utf-8")
        try:
            yield lease
        finally:
            if lease.is_own:  # still locked, so nobody else can have made these files
                for name in (HOLDER, LOCK):
                    with suppress(OSError):
                        (folder / name).unlink()


def _name(folder: Path) -> str:
    try:
        return (folder / HOLDER).read_text(encoding="utf-8")[:200] or "another worker"
    except (OSError, ValueError):
        return "another worker"
