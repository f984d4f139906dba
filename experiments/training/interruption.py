"""Ctrl-C and SIGTERM during a run: it stops at a place where it can be resumed."""

import multiprocessing
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ALWAYS = (signal.SIGINT, signal.SIGTERM)
ONE = 1.0
"""Seconds within which a second signal is the first: ``timeout`` sends one to a process, and one to its group."""


class Interrupted(KeyboardInterrupt):
    """A run was told to stop, by a signal."""

    def __init__(self, signum: int) -> None:
        by = "" if multiprocessing.parent_process() else f" by {signal.Signals(signum).name}"  # else by its parent
        super().__init__(f"interrupted{by}")
        self.signum = signum

    @property
    def exit_code(self) -> int:
        """What a shell expects of a process that this signal ended."""
        return 128 + self.signum


class Interruption:
    """Whether a run was told to stop. A later signal (`ONE`) ends the process at once, which loses nothing on disk."""

    def __init__(self) -> None:
        self.signum: int | None = None
        self._received: float | None = None
        self._deferred = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Receive signals within. Python delivers them to the main thread only; in other threads nothing changes."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        stopping = [signal.SIGTERM] if multiprocessing.parent_process() else [*ALWAYS]  # Ctrl-C is for its parent
        warning = getattr(signal, "SIGUSR2", None)  # Slurm's, where a handler in this process waits for it
        if warning is not None and callable(signal.getsignal(warning)):
            stopping.append(warning)
        before = {signum: signal.signal(signum, self._receive) for signum in stopping}
        try:
            yield
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)

    def _receive(self, signum: int, _: FrameType | None) -> None:
        if self._received is not None:
            again = time.monotonic() - self._received > ONE
            alone = multiprocessing.parent_process() is None  # a pool sends its workers several
            if again and alone and signum in ALWAYS:
                signal.signal(signum, signal.SIG_DFL)
                signal.raise_signal(signum)
            return
        self._received = time.monotonic()
        if self.signum is None:
            self.signum = signum
            if not self._deferred:
                raise Interrupted(signum)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Let a signal within wait until `check` is called."""
        before, self._deferred = self._deferred, True
        try:
            yield
        finally:
            self._deferred = before

    def check(self) -> None:
        if self.signum is not None:
            raise Interrupted(self.signum)
