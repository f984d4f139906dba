"""The same work for many things, by copies of this process."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

from experiments.rows.cores import cores

T = TypeVar("T")
R = TypeVar("R")

MOST = 8
"""Copies at a time, each of which may need some hundred MB of its own."""

_job: tuple[Callable[[Any], Any], Sequence[Any]] | None = None
"""What copies are made to do. They find it here, since things such as figures are slow to send."""


@contextmanager
def each(work: Callable[[T], R], things: Sequence[T]) -> Iterator[Iterator[R]]:
    """``work(thing)`` of every thing, in order, done by copies of this process (forks), one a core.

    The copies begin at once, work ahead, and end with the block. This process works alone where there is but one
    thing or core, copies are not safe (all but Linux), or it is a copy itself; and it does what is left when there is
    no memory for copies, or one of them is killed. What a copy changes in a thing is lost.

    Args:
        work: gives back what can be pickled. An error that it raises is raised here, at the thing's turn.
        things: as many as there are.
    """
    global _job
    copies = min(cores(), MOST, len(things))
    if copies < 2 or sys.platform != "linux" or _job is not None:
        yield map(work, things)
        return
    pool = ProcessPoolExecutor(copies, mp_context=multiprocessing.get_context("fork"), initializer=_begin)
    _job = work, things
    try:
        yield _in_order(work, things, _begun(pool, len(things)))
    finally:
        _job = None
        pool.shutdown(cancel_futures=True)


def _begun(pool: ProcessPoolExecutor, number: int) -> list[Future[Any]]:
    """What the copies will have done; nothing where they cannot be had."""
    before = multiprocessing.active_children()
    try:
        with warnings.catch_warnings():
            # Threads of this process, such as those of OpenMP, are not in the copies, nor needed for what these do.
            warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
            return [pool.submit(_done, thing) for thing in range(number)]
    except (BrokenProcessPool, OSError):
        for copy in multiprocessing.active_children():
            if copy not in before:
                copy.kill()  # which would wait for ever for something to do
                copy.join()
        return []


def _in_order(work: Callable[[T], R], things: Sequence[T], begun: Sequence[Future[R]]) -> Iterator[R]:
    for thing, result in itertools.zip_longest(things, begun):
        try:
            done = work(thing) if result is None else result.result()
        except BrokenProcessPool:
            done = work(thing)
        yield done


def _begin() -> None:
    gc.freeze()  # looking through what is shared for garbage would copy all of it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_the_first, daemon=True).start()


def _end_with_the_first() -> None:
    """A copy that waits for more to do would wait for ever once the process that it serves was killed."""
    first = multiprocessing.parent_process()
    assert first is not None
    first.join()
    os._exit(1)


def _done(number: int) -> Any:
    assert _job is not None
    work, things = _job
    return work(things[number])
