"""What a process is doing, reported every few seconds so that nothing is silent for long. Imports no torch.

A line goes into the run's log, and to standard error; a terminal has a bar instead.
"""

import logging
import multiprocessing
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tqdm import tqdm

SECONDS = 4.0
"""Between two lines; a hundredth of the time so far where that is longer."""
ON_TERMINAL = 0.5
BEGAN = time.monotonic()
"""When this process began, but for the start of Python."""
tqdm.set_lock(threading.RLock())  # its own is a semaphore of the system, which a worker that is stopped leaves behind
logger = logging.getLogger("pe_zoo.progress")


@dataclass
class _Phase:
    what: str | Callable[[], str]
    share: Callable[[], float] | None
    parts: int = 0
    begun: int = 0
    began: float = field(default_factory=time.monotonic)

    def text(self) -> str:
        return f"{self.what}, {time.monotonic() - self.began:.0f} s" if isinstance(self.what, str) else self.what()


_doing: list[_Phase] = []


@contextmanager
def doing(what: str | Callable[[], str], share: Callable[[], float] | None = None, parts: int = 0) -> Iterator[None]:
    """Report this within the block, instead of what surrounds it; a text is followed by its seconds since it stands.

    ``share`` returns how much of it is done, from 0 to 1, for a terminal's bar. With ``parts``, what is done within
    the block is counted to that number.
    """
    around = _doing[-1] if _doing else None
    if around and around.parts and isinstance(what, str):
        around.begun += 1
        what = f"{what} ({around.begun} of {around.parts})"
    _doing.append(_Phase(what, share, parts))
    try:
        yield
    finally:
        _doing.pop()
        if _doing:
            _doing[-1].began = time.monotonic()


def counted() -> tuple[int, int]:
    """Return how many parts of what is counted have begun, and how many there are; (0, 0) where nothing is."""
    return next(((phase.begun, phase.parts) for phase in reversed(_doing) if phase.parts), (0, 0))


@contextmanager
def beating() -> Iterator[None]:
    """Report within the block, from a thread."""
    ended, began = threading.Event(), time.monotonic()
    # A worker's terminal is that of all.
    bar = tqdm(
        total=1, bar_format="{desc}", leave=False, disable=None if multiprocessing.parent_process() is None else True
    )

    def beat() -> None:
        last = began
        while not ended.wait(min(SECONDS, 1) if bar.disable else ON_TERMINAL):
            if not _doing:
                continue
            phase, now = _doing[-1], time.monotonic()
            text = phase.text()
            bar.bar_format = "{desc} {percentage:.0f}%|{bar:20}|" if phase.share else "{desc}"
            bar.n = phase.share() if phase.share else 0
            bar.set_description_str(text)
            if now - last >= max(SECONDS, (now - began) / 100):
                logger.info("%s", text)
                last = now

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        bar.close()


class _Stderr(logging.StreamHandler):  # type: ignore[type-arg]
    quiet = False

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.WARNING and not record.name.startswith("pe_zoo"):
            return  # what libraries tell of themselves
        if record.name == "pe_zoo.noted":
            return  # the end of the run says it
        if record.name != logger.name or not (self.quiet or sys.stderr.isatty()):
            with tqdm.external_write_mode(file=sys.stderr):
                super().emit(record)


def listen(*, quiet: bool = False) -> None:
    """Send what is logged to standard error; with ``quiet`` not what is reported every few seconds."""
    handler = _Stderr()
    handler.quiet = quiet
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[handler])


def ahead(passed: float, last: float, done: int, to_do: int, under_way: int) -> float:
    """Return the seconds that jobs will take, by the pace up to the ``last`` that ended.

    So they fall with the clock. Where none ends for long, they rise again.

    >>> [ahead(passed, 10, 2, 2, 2) for passed in (10, 14, 40)]
    [10.0, 6.0, 10.0]
    """
    least = passed / (done + under_way) * (to_do - under_way / 2)
    return max(last / done * to_do - (passed - last), least)


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
