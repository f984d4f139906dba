"""What surrounds a training: nothing, unless a recorded run brings checkpoints, several processes and trackers."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from experiments.model.transformer import Transformer
from experiments.training.checkpoint import State
from experiments.training.config import TrainConfig
from experiments.training.progress import Training, TrainLog
from experiments.training.step import Step


class Session:
    """A training by itself: one process, nothing saved, nobody watching. Recorded runs override these methods."""

    def step(self, model: Transformer, config: TrainConfig) -> Step:
        """Return what takes the optimizer's steps."""
        return Step(model, config)

    def leading(self, run: Training) -> AbstractContextManager[None]:
        """Return a context within which other processes take their part of every step."""
        return nullcontext()

    def saved(self, part: str) -> State | None:
        """Return a part of the run's checkpoint, if there is one: ``training``, ``search`` or ``trained``."""
        return None

    def keep(self, part: str, state: State | None) -> None:
        """Put a part into later checkpoints, or take it out."""

    def boundary(self, run: Training) -> None:
        """Mark a place where training can be saved and stopped.

        Raises:
            Interrupted: the run was told to stop.
        """

    def watch(self, run: Training) -> None:
        """Follow a training: called at its start and at each new point of its curve."""

    def trained(self, model: Transformer, log: TrainLog) -> None:
        """Take the trained model, before it is measured."""


ALONE = Session()
