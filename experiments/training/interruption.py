"""Ctrl-C and SIGTERM while a run is under way: it stops where it can go on from, and says so."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(KeyboardInterrupt):
    """A run was asked to stop.

    Args:
        signum: the signal that asked; a shell expects exit code 128 and this.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(signum).name}")
        self.signum = signum

    @property
    def exit_code(self) -> int:
        """As a shell gives it to a process that a signal ended."""
        return 128 + self.signum


ALWAYS = (signal.SIGINT, signal.SIGTERM)


def _stopping() -> list[int]:
    """Signals that stop a run: Slurm's warning too, where somebody in this process waits for it."""
    warning = getattr(signal, "SIGUSR2", None)
    return [*ALWAYS, warning] if warning is not None and callable(signal.getsignal(warning)) else [*ALWAYS]


class Interruption:
    """Whether a run was asked to stop. A second signal ends the process at once, which loses nothing on disk."""

    def __init__(self) -> None:
        self.asked: int | None = None
        self._received = False
        self._deferred = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Within, signals come here. Python gives them to the main thread alone; elsewhere nothing changes."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {signum: signal.signal(signum, self._receive) for signum in _stopping()}
        try:
            yield
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)

    def _receive(self, signum: int, _: FrameType | None) -> None:
        if self._received:
            if signum in ALWAYS:
                os._exit(128 + signum)
            return
        self._received = True
        if self.asked is None:
            self.asked = signum
            if not self._deferred:
                raise Interrupted(signum)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Within, a signal waits until `check` is called."""
        before, self._deferred = self._deferred, True
        try:
            yield
        finally:
            self._deferred = before

    def check(self) -> None:
        """Stop here, if that was asked for.

        Raises:
            Interrupted: it was.
        """
        if self.asked is not None:
            raise Interrupted(self.asked)
