"""``budget_minutes=``: a command that stops itself when its time is spent, as Ctrl-C would, and can be resumed."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SPENT = 3
"""Exit code of a command that its budget ended: the same command resumes."""


class Spent(KeyboardInterrupt):
    """The time budget of a command is spent."""


@contextmanager
def within(minutes: float | None) -> Iterator[None]:
    """Interrupt what runs within when its minutes are over; Spent, once it has saved its progress."""
    if minutes is None:
        yield
        return
    over = threading.Event()

    def stop() -> None:
        over.set()
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(60 * minutes, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    except KeyboardInterrupt as stopped:
        if not over.is_set():
            raise
        raise Spent from stopped
    finally:
        timer.cancel()
