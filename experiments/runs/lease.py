"""One worker to a run: a lock in the run's folder that works across machines and that the dead cannot keep.

A lock is a file made by linking, which succeeds for one of many, and refreshed while its holder lives. Whoever finds
the newest one abandoned makes the next in number; nothing is ever taken away from under a holder, so a race between
two successors has one winner, on network file systems too. A holder that was abandoned by mistake, because its machine
or container stood still, finds that out before it next writes.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

logger = logging.getLogger("pe_zoo")

REFRESH_SECONDS = 5.0
STALE_SECONDS = 60.0
"""Without a refresh for so long, by the clock of the file system, a holder counts as gone that cannot be seen here."""
PREFIX = ".lock-"


class Held(Exception):
    """Another worker has the run, or has taken it over; the message says which."""


@dataclass(frozen=True)
class Holder:
    """Who has a run.

    Args:
        host: name of the machine.
        pid: process there.
        machine: tells a boot, and what processes see of one another; a pid means something within it alone.
        born: when the process started, in the kernel's ticks; pids are used again. None where that is not told.
        token: of this one lock.
    """

    host: str
    pid: int
    machine: str
    born: int | None
    token: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    @property
    def is_gone(self) -> bool:
        """Whether its process has certainly ended; False where that cannot be seen from here."""
        if self.machine != _machine():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass
        return self.born is not None and _born(self.pid) != self.born

    @property
    def is_alive(self) -> bool:
        """Whether its process certainly goes on, stopped or not; False where that cannot be seen from here."""
        return self.machine == _machine() and self.born is not None and _born(self.pid) == self.born


@dataclass(frozen=True)
class Lock:
    """This worker's hold on a run.

    Args:
        path: of the lock.
        holder: as it says.
    """

    path: Path
    holder: Holder

    @property
    def is_own(self) -> bool:
        """Whether the file is still the one that this worker made."""
        return _read(self.path) == self.holder

    def check(self) -> None:
        """To be called before results are written.

        Raises:
            Held: the run is no longer this worker's.
        """
        folder = self.path.parent
        newest = _newest(folder)
        if (newest == self.path and self.is_own) or not folder.is_dir():  # that it has gone, writing tells
            return
        raise Held(f"was taken over by {(newest and _read(newest)) or 'another worker'}")


def holder(folder: Path) -> Holder | None:
    """Who is at work on a run; None if nobody is, or whoever was has gone."""
    newest = _newest(folder)
    return None if newest is None or _is_abandoned(newest, folder) else _read(newest)


def shows_life(folder: Path) -> bool:
    """Whether a run is being worked on. A process elsewhere is watched until it refreshes its lock, or gives up."""
    newest = _newest(folder)
    while newest is not None and not _is_abandoned(newest, folder):
        who = _read(newest)
        if who is not None and who.machine == _machine():
            return True
        seen = _refreshed(newest)
        time.sleep(REFRESH_SECONDS / 5)
        if seen is not None and _refreshed(newest) not in (None, seen):
            return True
        newest = _newest(folder)
    return False


@contextmanager
def held(folder: Path) -> Iterator[Lock]:
    """Within, the run is this worker's alone.

    Raises:
        Held: it is another's.
        OSError: the folder cannot be written.
    """
    lock = _take(folder)
    stop = threading.Event()
    threading.Thread(target=_refresh, args=(lock, stop), daemon=True).start()
    try:
        yield lock
    finally:
        stop.set()
        there = sorted(_all(folder))
        if there and there[-1] == lock.path and lock.is_own:  # else whoever took over clears up
            for old in there:  # the newest last: until then it stands for all
                with suppress(OSError):
                    old.unlink()


def _take(folder: Path) -> Lock:
    before = _newest(folder)
    if before is not None and not _is_abandoned(before, folder):
        raise Held(_said(before))
    left = _read(before) if before is not None else None
    path = folder / f"{PREFIX}{0 if before is None else _number(before) + 1:06d}"
    mine = Holder(socket.gethostname(), os.getpid(), _machine(), _born(os.getpid()), secrets.token_hex(8))
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".taking-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(asdict(mine), file)
        os.link(temporary, path)
    except (FileExistsError, FileNotFoundError):  # whoever was faster may have cleared up
        raise Held(_said(path)) from None
    finally:
        Path(temporary).unlink(missing_ok=True)
    # What was abandoned must still be as it was judged, and nobody may have begun anew meanwhile.
    if _newest(folder) != path or (before is not None and _read(before) != left):
        path.unlink()
        raise Held(_said(_newest(folder)))
    if before is not None:
        why = "has gone" if left is not None and left.is_gone else f"showed no life for {STALE_SECONDS:.0f} s"
        logger.info("takes over from %s, which %s", left or "a worker", why)
    return Lock(path, mine)


def _refresh(lock: Lock, stop: threading.Event) -> None:
    while not stop.wait(REFRESH_SECONDS):
        with suppress(OSError):  # a folder that has gone is found out where results are written
            if lock.is_own:
                os.utime(lock.path)


def _all(folder: Path) -> list[Path]:
    return [path for path in folder.glob(f"{PREFIX}*") if path.name.removeprefix(PREFIX).isdigit()]


def _newest(folder: Path) -> Path | None:
    return max(_all(folder), default=None)


def _number(path: Path) -> int:
    return int(path.name.removeprefix(PREFIX))


def _is_abandoned(path: Path, folder: Path) -> bool:
    who = _read(path)
    if who is not None and who.is_gone:
        return True
    if who is not None and who.is_alive:
        return False
    last = _refreshed(path)
    if last is None:
        return False
    try:
        with tempfile.TemporaryFile(dir=folder) as clock:
            return os.fstat(clock.fileno()).st_mtime - last > STALE_SECONDS
    except OSError:
        return False


def _refreshed(path: Path) -> float | None:
    try:
        with path.open(encoding="utf-8") as file:  # opened, so that a network file system asks its server
            return os.fstat(file.fileno()).st_mtime
    except OSError:
        return None


def _read(path: Path) -> Holder | None:
    try:
        return Holder(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _said(path: Path | None) -> str:
    return f"is being run by {(path and _read(path)) or 'another worker'}"


def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def _born(pid: int) -> int | None:
    """When a process started, in ticks since the machine did; None if that is not told, or it has ended."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return None if state in "ZX" else int(fields[18])
    except (OSError, ValueError, IndexError):
        return None
