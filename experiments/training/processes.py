"""The processes that ``torchrun`` started together: their ranks, what they exchange, and how they end."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import distributed

from experiments.training.interruption import Interrupted, Interruption

STARTED_WITH = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
PATIENCE = timedelta(days=365)
"""Timeout for the next message of process 0: measuring may take long, and a dead process is noticed at once."""
FAREWELL = timedelta(minutes=5)

T = TypeVar("T")


class Lost(Interrupted):
    """Another process of the run has ended, so this one stops; the run can be resumed from its last checkpoint."""

    def __init__(self, size: int) -> None:
        super().__init__(signal.SIGTERM)
        self.args = (f"stopped: another of its {size} processes has ended",)


@dataclass
class Processes:
    """The processes of a run, one alone by default; ``local`` are those on this process's machine."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    messages: distributed.ProcessGroup | None = None
    """The group for messages; the default group is for sums."""
    interruption: Interruption = field(default_factory=Interruption)
    _lost: bool = field(default=False, init=False)

    def device(self, wanted: str) -> str:
        """Return the device of this process for a run on ``wanted``: a GPU each. ValueError if there are too few."""
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

    def alike(self, make: Callable[[], T], facts: Callable[[T], object]) -> T:
        """Call ``make`` in every process and check that the facts of its result are the same in all.

        ValueError in all of them, if ``make`` raises it in one or if results differ.
        """
        if self.size == 1:
            return make()
        try:
            result = make()
        except ValueError as refused:
            self.gather((str(refused), None))
            raise
        everyone = self.gather((None, facts(result)))
        first = everyone[0][1]
        for rank, (refusal, other) in enumerate(everyone):
            if refusal is not None:
                raise ValueError(f"process {rank} of {self.size}: {refusal}")
            if other != first:
                raise ValueError(
                    f"process {rank} of {self.size} would make another run than process 0: {other}, not {first}; "
                    f"give all of them the same code and data"
                )
        return result

    def broadcast(self, message: object) -> None:
        """Send from process 0 to the others, who call `receive`."""
        if self.size > 1:
            with self.together():
                distributed.broadcast_object_list([message], 0, group=self.messages)

    def receive(self) -> Any:
        message: list[Any] = [None]
        with self.together():
            distributed.broadcast_object_list(message, 0, group=self.messages)
        return message[0]

    def gather(self, mine: object) -> list[Any]:
        everyone: list[Any] = [None] * self.size
        with self.together():
            distributed.all_gather_object(everyone, mine, group=self.messages)
        return everyone

    def part(self) -> None:
        """End together: ``torchrun`` kills the others as soon as one exits with an error."""
        sys.stdout.flush()
        with suppress(Lost):
            with self.together():
                distributed.monitored_barrier(self.messages, FAREWELL)
            distributed.destroy_process_group()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Treat an error within as the loss of a process, and raise Lost."""
        try:
            if self._lost:
                raise RuntimeError
            yield
        except RuntimeError as error:
            self._lost = True
            self.interruption.signum = self.interruption.signum or signal.SIGTERM
            raise Lost(self.size) from error
