"""How far a run has come, on disk: enough to end bit for bit as if it had never stopped.

A checkpoint is one safetensors file, its facts as JSON among the metadata, with its number and its sha256 for a name.
Reading one executes nothing.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
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
"""Checkpoints on disk: the last, and the one before should the last be damaged."""
PROCESSES = "processes"
"""Of an origin, how many share the run: with another number sums are rounded otherwise, which the user has chosen."""
SHARE = 0.02
"""Of the time, that writing checkpoints may take."""
ASSUMED_BYTES_PER_SECOND = 1e8
"""How fast a disk is taken to be until it was measured."""


@dataclass
class State:
    """One part of what a run has come to.

    Args:
        facts: plain data.
        tensors: by name.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)


class Checkpoints:
    """Those of one run.

    Args:
        folder: the run's.
        origin: what a checkpoint must have been made from and with to be gone on from, as plain data.
        interruption: whether the run was asked to stop.
        every_seconds: between one checkpoint and the next, at least; more where writing takes over `SHARE` of the time.
        check_held: raises where the run is no longer this worker's to write.
    """

    def __init__(
        self,
        folder: Path,
        origin: dict[str, Any],
        interruption: Interruption,
        *,
        every_seconds: float = 30.0,
        check_held: Callable[[], None] = lambda: None,
    ) -> None:
        self.folder = folder
        self.check_held = check_held
        self.origin = json.loads(json.dumps(origin))
        self.interruption = interruption
        self.every_seconds = every_seconds
        self.parts: dict[str, State] = {}
        self.resumed = 0
        self._write_seconds: float | None = None
        self._last = time.perf_counter()

    def load(self) -> None:
        """Fill ``parts`` from the newest checkpoint that is sound and was made from the same; from none, say why."""
        for path in sorted(self.folder.glob(PATTERN), reverse=True):
            try:
                header, tensors = _read(path)
            except (OSError, ValueError) as error:
                logger.warning("%s is damaged and not used: %s", path.name, error)
                continue
            theirs = {PROCESSES: 1, **header["origin"]}
            differing = [key for key, value in self.origin.items() if theirs.get(key) != value]
            if PROCESSES in differing and set(differing) <= {PROCESSES, "threads"}:
                said = f"{theirs[PROCESSES]} made it and {self.origin[PROCESSES]} go on: the same but for rounding"
                logger.info("%s is of another number of processes: %s", path.name, said)
            elif differing:
                logger.warning("%s is not used: it was made with another %s", path.name, ", ".join(differing))
                continue
            self.parts = {name: State(facts) for name, facts in header["facts"].items()}
            for name, tensor in tensors.items():
                part, _, rest = name.partition("/")
                self.parts[part].tensors[rest] = tensor
            self.resumed = header["resumed"] + 1
            logger.info("goes on from %s", path.name)
            return

    def boundary(self, part: str, capture: Callable[[], State]) -> None:
        """A place where the run can stop: saved where that is due, left where that was asked for.

        Raises:
            Interrupted: the run was asked to stop.
        """
        self.save_if_due(part, capture)
        self.interruption.check()

    def save_if_due(self, part: str, capture: Callable[[], State], *, keep: bool = False) -> None:
        """Add a part and write all of them, if the run was asked to stop or another checkpoint costs little by now.

        Args:
            part: its name.
            capture: makes it.
            keep: whether it is added even if nothing is written now.
        """
        asked, passed = self.interruption.asked is not None, time.perf_counter() - self._last
        if asked or keep or passed >= self.every_seconds:
            self.parts[part] = capture()
        if asked or (passed >= self.every_seconds and passed * SHARE >= self._expected_seconds()):
            self.write()

    def _expected_seconds(self) -> float:
        if self._write_seconds is not None:
            return self._write_seconds
        return sum(t.nbytes for state in self.parts.values() for t in state.tensors.values()) / ASSUMED_BYTES_PER_SECOND

    def write(self) -> None:
        """All ``parts`` to disk. What cannot be written is said, and no reason to stop.

        Raises:
            RunLocked: the run is no longer this worker's.
        """
        self.check_held()
        started = time.perf_counter()
        facts = {name: state.facts for name, state in self.parts.items()}
        tensors = {f"{part}/{name}": t for part, state in self.parts.items() for name, t in state.tensors.items()}
        header = {"origin": self.origin, "resumed": self.resumed, "facts": facts}
        data = safetensors.torch.save(tensors, {"header": json.dumps(header)})
        before = sorted(self.folder.glob(PATTERN))
        number = 1 + max((_number(path) for path in before), default=0)
        try:
            write_whole(self.folder / f"checkpoint-{number:06d}-{hashlib.sha256(data).hexdigest()}.safetensors", data)
            _remove(before[: len(before) - KEPT + 1])
        except OSError as error:
            logger.warning("no checkpoint could be written: %s", error.strerror or error)
        self._last = time.perf_counter()
        self._write_seconds = self._last - started

    def clear(self) -> None:
        """Remove them all: the run has ended, or begins anew."""
        self.parts = {}
        _remove(self.folder.glob(PATTERN))


def _remove(paths: Iterable[Path]) -> None:
    for path in list(paths):
        with suppress(OSError):
            path.unlink()


def _number(path: Path) -> int:
    found = re.fullmatch(r"checkpoint-(\d+)-[0-9a-f]{64}", path.stem)
    return int(found[1]) if found else 0


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    data = path.read_bytes()
    if not data or not path.stem.endswith(hashlib.sha256(data).hexdigest()):
        raise ValueError("its content is not what its name promises")
    # The format: eight bytes that say how long the JSON is that follows.
    said = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    # Copies: tensors of their own alignment, not views of a buffer, so that the same kernels see the same memory.
    return json.loads(said["__metadata__"]["header"]), {k: t.clone() for k, t in safetensors.torch.load(data).items()}
