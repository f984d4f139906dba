"""Checkpoints: a run's progress on disk, enough to end bit for bit as if it had never stopped.

A checkpoint is one safetensors file with JSON metadata, named by its number and sha256. Reading one executes nothing.
"""

import hashlib
import json
import logging
import math
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from experiments.rows.row import write_whole
from experiments.training.interruption import Interruption

logger = logging.getLogger("pe_zoo")

PATTERN = f"checkpoint-{'[0-9]' * 6}-*.safetensors"
KEPT = 2
"""Checkpoints on disk: the last, and the one before in case the last is damaged."""
PROCESSES = "processes"
"""In an origin, the number of processes: another number rounds sums differently, which the user has chosen."""
SHARE = 0.02
"""Largest share of the time spent on writing checkpoints."""


@dataclass
class State:
    """One part of a run's progress: plain data, and tensors by name."""

    facts: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)


@dataclass
class Checkpoints:
    """The checkpoints of one run; by default none is ever written.

    The ``origin`` is what a checkpoint must have been made from and with to be resumed, as plain data.
    ``every_seconds`` is the least time between two; more where writing takes over `SHARE` of the time. ``check_lease``
    raises if it is lost.
    """

    folder: Path = Path()
    origin: dict[str, Any] = field(default_factory=dict)
    interruption: Interruption = field(default_factory=Interruption)
    every_seconds: float = math.inf
    check_lease: Callable[[], None] = lambda: None
    parts: dict[str, State] = field(default_factory=dict, init=False)
    resumed: int = field(default=0, init=False)
    _write_seconds: float = field(default=0.0, init=False)
    _last: float = field(default_factory=time.perf_counter, init=False)

    def load(self) -> None:
        """Fill ``parts`` from the newest sound checkpoint of the same origin; log why others are not used."""
        ours = json.loads(json.dumps(self.origin))
        for path in sorted(self.folder.glob(PATTERN), reverse=True):
            try:
                header, tensors = _read(path)
            except (OSError, ValueError) as error:
                logger.warning("%s is damaged and not used: %s", path.name, error)
                continue
            theirs = {PROCESSES: 1, **header["origin"]}
            differing = [key for key, value in ours.items() if theirs.get(key) != value]
            if differing == [PROCESSES]:
                logger.info(
                    "%s was written by %d processes, resumed by %d: results agree up to rounding",
                    *(path.name, theirs[PROCESSES], ours[PROCESSES]),
                )
            elif differing:
                logger.warning("%s is not used: it was made with another %s", path.name, ", ".join(differing))
                continue
            self.parts = {name: State(facts) for name, facts in header["facts"].items()}
            for name, tensor in tensors.items():
                part, _, rest = name.partition("/")
                self.parts[part].tensors[rest] = tensor
            self.resumed = header["resumed"] + 1
            logger.info("%s: resumed from %s", self.folder.name, path.name.rpartition("-")[0])
            return

    def boundary(self, part: str, capture: Callable[[], State]) -> None:
        """Save here if a checkpoint is due, and stop here (Interrupted) if the run was told to."""
        self.save_if_due(part, capture)
        self.interruption.check()

    def save_if_due(self, part: str, capture: Callable[[], State], *, keep: bool = False) -> None:
        """Add a part (with ``keep``, always) and write all, if the run was told to stop or a checkpoint is due."""
        stopping, passed = self.interruption.signum is not None, time.perf_counter() - self._last
        if stopping or keep or passed >= self.every_seconds:
            self.parts[part] = capture()
        if stopping or (passed >= self.every_seconds and passed * SHARE >= self._write_seconds):
            self.write()

    def write(self) -> None:
        """Write all ``parts``. A failure is logged and does not stop the run; RunLocked if the lease is lost."""
        self.check_lease()
        started = time.perf_counter()
        facts = {name: state.facts for name, state in self.parts.items()}
        tensors = {f"{part}/{name}": t for part, state in self.parts.items() for name, t in state.tensors.items()}
        header = {"origin": self.origin, "resumed": self.resumed, "facts": facts}
        data = safetensors.torch.save(tensors, {"header": json.dumps(header)})
        before = sorted(self.folder.glob(PATTERN))
        number = int(before[-1].name.split("-")[1]) + 1 if before else 1
        try:
            write_whole(self.folder / f"checkpoint-{number:06d}-{hashlib.sha256(data).hexdigest()}.safetensors", data)
            _remove(before[: len(before) - KEPT + 1])
        except OSError as error:
            logger.warning("no checkpoint could be written: %s", error.strerror or error)
        self._last = time.perf_counter()
        self._write_seconds = self._last - started

    def clear(self) -> None:
        """Remove all checkpoints: the run has ended, or starts over."""
        self.parts = {}
        _remove(self.folder.glob(PATTERN))


def _remove(paths: Iterable[Path]) -> None:
    for path in list(paths):
        with suppress(OSError):
            path.unlink()


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    data = path.read_bytes()
    if not data or not path.stem.endswith(hashlib.sha256(data).hexdigest()):
        raise ValueError("its content does not match the sha256 in its name")
    # The format: eight bytes with the length of the JSON that follows.
    metadata = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
    # Copies: tensors of their own alignment, not views of a buffer, so that the same kernels see the same memory.
    return json.loads(metadata["header"]), {name: t.clone() for name, t in safetensors.torch.load(data).items()}
