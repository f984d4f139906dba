"""What a process is doing, reported every few seconds so that nothing is silent for long. Imports no torch.

A line goes into the run's log, and to standard error; a terminal has one line in place instead, twice a second.
"""

import logging
import multiprocessing
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SECONDS = 4.0
"""Between two lines; a hundredth of the time so far where that is longer."""
ON_TERMINAL = 0.5
logger = logging.getLogger("pe_zoo.progress")

_doing: list[Callable[[], str]] = []
_shown = False


@contextmanager
def doing(what: str | Callable[[], str]) -> Iterator[None]:
    """Report this within the block, instead of what surrounds it; a text is followed by its seconds."""
    began = time.monotonic()
    _doing.append((lambda: f"{what}, {time.monotonic() - began:.0f} s") if isinstance(what, str) else what)
    try:
        yield
    finally:
        _doing.pop()


@contextmanager
def beating() -> Iterator[None]:
    """Report within the block, from a thread."""
    ended, began = threading.Event(), time.monotonic()
    on_terminal = sys.stderr.isatty() and multiprocessing.parent_process() is None  # a worker's is that of all

    def beat() -> None:
        last = began
        while not ended.wait(ON_TERMINAL if on_terminal else min(SECONDS, 1)):
            text, now = _doing[-1]() if _doing else "", time.monotonic()
            if text and on_terminal:
                _show(text)
            if text and now - last >= max(SECONDS, (now - began) / 100):
                logger.info("%s", text)
                last = now

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        clear()


def _show(text: str) -> None:
    global _shown
    sys.stderr.write(f"\r\x1b[K{text[: shutil.get_terminal_size().columns - 1]}")
    sys.stderr.flush()
    _shown = True


def clear() -> None:
    """Remove the line in place, before something else is printed."""
    global _shown
    if _shown:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
        _shown = False


class _Stderr(logging.StreamHandler):  # type: ignore[type-arg]
    quiet = False

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != logger.name or not (self.quiet or sys.stderr.isatty()):
            clear()
            super().emit(record)


def listen(*, quiet: bool = False) -> None:
    """Send what is logged to standard error; with ``quiet`` not what is reported every few seconds."""
    handler = _Stderr()
    handler.quiet = quiet
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[handler])


def span(seconds: float) -> str:
    """Return a time for people: ``8 s``, ``2 min 5 s``, ``3 h 20 min``.

    >>> [span(8.4), span(125), span(12000)]
    ['8 s', '2 min 5 s', '3 h 20 min']
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
