"""The processes that ``torchrun`` started together: their ranks, what they exchange, and how they end."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

from experiments.training.interruption import Interrupted, Interruption

STARTED_WITH = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
"""Variables that ``torchrun`` sets."""
PATIENCE = timedelta(days=365)
"""Timeout for the next message of process 0: measuring may take long, and a dead process is noticed at once."""
FAREWELL = timedelta(minutes=5)
"""Timeout for the others to end too."""

T = TypeVar("T")


class Lost(Interrupted):
    """Another process of the run has ended, so this one stops; the run can be resumed from its last checkpoint."""

    def __init__(self, size: int) -> None:
        super().__init__(signal.SIGTERM)
        self.args = (f"stopped: another of its {size} processes has ended",)


@dataclass
class Processes:
    """The processes of a run; one alone unless told otherwise.

    Args:
        rank: of this process, from 0.
        size: how many there are.
        local_rank: of this process among those on its machine.
        local_size: how many are on its machine.
        words: the group for messages; the default group is for sums.
        interruption: whether this process was told to stop.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    words: distributed.ProcessGroup | None = None
    interruption: Interruption = field(default_factory=Interruption)
    _lost: bool = field(default=False, init=False)

    def device(self, wanted: str) -> str:
        """Return the device of this process for a run on ``wanted``: one of the GPUs each.

        Raises:
            ValueError: there are too few.
        """
        if self.size == 1 or wanted == "cpu":
            return wanted
        if wanted not in ("auto", "cuda"):
            raise ValueError(f"device={wanted} is one device for {self.size} processes: leave it out, or device=cpu")
        if not torch.cuda.is_available():
            return wanted
        if self.local_size > (here := torch.cuda.device_count()):
            raise ValueError(
                f"{self.local_size} processes were started on a machine of {here} GPUs: start {here}, or device=cpu"
            )
        return f"cuda:{self.local_rank}"

    def alike(self, do: Callable[[], T], told: Callable[[T], object]) -> T:
        """Call ``do`` in every process and check that ``told`` of its result is the same in all.

        Raises:
            ValueError: in all processes, if ``do`` raises it in one or if results differ.
        """
        if self.size == 1:
            return do()
        try:
            done = do()
        except ValueError as refused:
            self.gather((str(refused), None))
            raise
        found = self.gather((None, told(done)))
        for rank, (refusal, other) in enumerate(found):
            if refusal is not None:
                raise ValueError(f"process {rank} of {self.size}: {refusal}")
            if other != found[0][1]:
                raise ValueError(
                    f"process {rank} of {self.size} would make another run than process 0: {other}, not {found[0][1]}; "
                    f"give all of them the same code and data"
                )
        return done

    def tell(self, what: object) -> None:
        """Send from process 0 to the others, who call `hear`."""
        if self.size > 1:
            with self.together():
                distributed.broadcast_object_list([what], 0, group=self.words)

    def hear(self) -> Any:
        """Receive what process 0 sends."""
        heard: list[Any] = [None]
        with self.together():
            distributed.broadcast_object_list(heard, 0, group=self.words)
        return heard[0]

    def gather(self, mine: object) -> list[Any]:
        """Return the contribution of every process, in all of them."""
        found: list[Any] = [None] * self.size
        with self.together():
            distributed.all_gather_object(found, mine, group=self.words)
        return found

    def copy(self, tensor: Tensor) -> Tensor:
        """Copy process 0's tensor, which must be contiguous, into all processes in place."""
        with self.together():
            distributed.broadcast(tensor.view(-1).view(torch.uint8), 0)  # not every type can be sent as it is
        return tensor

    def part(self) -> None:
        """End together: ``torchrun`` kills the others as soon as one exits with an error."""
        sys.stdout.flush()
        with suppress(Lost):
            with self.together():
                distributed.monitored_barrier(self.words, FAREWELL)
            distributed.destroy_process_group()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Treat an error within as the loss of a process.

        Raises:
            Lost: a process has ended.
        """
        try:
            if self._lost:
                raise RuntimeError
            yield
        except RuntimeError as error:
            self._lost = True
            self.interruption.asked = self.interruption.asked or signal.SIGTERM
            raise Lost(self.size) from error


P = TypeVar("P", bound=Processes)


@contextmanager
def joined(kind: type[P]) -> Iterator[P]:
    """Join the processes that this one was started with; all but process 0 are silent within."""
    if not set(STARTED_WITH) <= os.environ.keys() or os.environ["WORLD_SIZE"] == "1":
        yield kind()
        return
    rank, size, local_rank, local_size = (int(os.environ[name]) for name in STARTED_WITH)
    _share_cores(local_size)
    if local_rank < torch.cuda.device_count():
        torch.cuda.set_device(local_rank)
    distributed.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    processes = kind(rank, size, local_rank, local_size, distributed.new_group(backend="gloo", timeout=PATIENCE))
    with _silence() if rank else nullcontext():
        try:
            yield processes
        except Interrupted:  # of which all have been told
            processes.part()
            raise
        processes.part()


def _share_cores(processes: int) -> None:
    """Divide the cores among the processes. ``torchrun`` gives each one thread unless the user sets more."""
    if os.environ.get("OMP_NUM_THREADS") == "1":
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        torch.set_num_threads(max(1, cores // processes))


@contextmanager
def _silence() -> Iterator[None]:
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        logging.disable()
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)
