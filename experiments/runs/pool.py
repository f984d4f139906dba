"""The workers of a sweep on this machine: as many as there are cores, of one thread each. Imports no torch.

They are forked from a server that has imported torch once: a worker starts at once and shares its memory.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import forkserver
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""A container's share of the cores."""
FOR_ALL = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # repeatable GPU kernels
    "OMP_WAIT_POLICY": "PASSIVE",  # threads that spin halt one another where there are more of them than cores
    "KMP_BLOCKTIME": "0",
    "OPENBLAS_NUM_THREADS": "1",
}
"""Environment variables of every process that computes, unless the user has set them; read when torch is imported."""


def cores() -> int:
    """Return how many cores this process may use."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = QUOTA.read_text(encoding="ascii").split()
        return max(1, min(count, int(quota) // int(period)))
    except (OSError, ValueError):
        return count


def lead_here() -> None:
    """Let the processes that this one starts import what it imports, wherever it was called."""
    roots = [str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, roots)))


def warm_up() -> None:
    """Begin the imports of workers beside those of this process."""
    lead_here()
    if "forkserver" in multiprocessing.get_all_start_methods():
        forkserver.set_forkserver_preload(["experiments.runs.server"])
        forkserver.ensure_running()


def launch(function: Callable[[Any], list[Any]], tasks: Sequence[Any], size: int) -> Generator[list[Any]]:
    """Yield what ``function`` returns for every task, as they end, in ``size`` worker processes.

    An exception within ends the workers, which save their progress; BrokenProcessPool if one was killed.
    """
    warm_up()
    methods = multiprocessing.get_all_start_methods()
    context: BaseContext = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    with ProcessPoolExecutor(min(size, len(tasks)), context, _settle) as pool:
        asked = [pool.submit(function, task) for task in tasks]
        try:
            for done in as_completed(asked):
                yield done.result()
        except BaseException:
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _settle() -> None:
    """Leave Ctrl-C, which the terminal sends to all, to the process that started the workers; end when it has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def watch() -> None:
        if parent := multiprocessing.parent_process():
            parent.join()
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def until_interrupted(function: Callable[[Any], list[Any]], task: Any) -> list[Any]:
    """Do a task whose outcomes tell whether the worker was told to stop."""
    outcomes = function(task)
    if any(outcome.status == "interrupted" for outcome in outcomes):  # no next task
        os.kill(os.getpid(), signal.SIGTERM)
    return outcomes
