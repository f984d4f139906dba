"""The session of a recorded run: it saves checkpoints, shares steps with other processes and informs trackers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict

from experiments.model.transformer import Transformer
from experiments.training.checkpoint import Checkpoints, State
from experiments.training.config import TrainConfig
from experiments.training.parallel import Team
from experiments.training.progress import Training, TrainLog
from experiments.training.session import Session
from experiments.training.step import Step


class Recorded(Session):
    """A training that can be interrupted and resumed.

    Args:
        checkpoints: of the run.
        team: the processes that share every step.
        watch: called at the start of each training and at each new point of its curve.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        team: Team | None = None,
        watch: Callable[[Training], object] = lambda run: None,
    ) -> None:
        self.checkpoints = checkpoints
        self.team = team or Team()
        self.watch = watch  # type: ignore[method-assign,assignment]

    def step(self, model: Transformer, config: TrainConfig) -> Step:
        return self.team.step(model, config)

    def leading(self, run: Training) -> AbstractContextManager[None]:
        return self.team.leading(run)

    def saved(self, part: str) -> State | None:
        return self.checkpoints.parts.get(part)

    def keep(self, part: str, state: State | None) -> None:
        if state is None:
            self.checkpoints.parts.pop(part, None)
        else:
            self.checkpoints.parts[part] = state

    def boundary(self, run: Training) -> None:
        self.checkpoints.boundary("training", run.state)

    def trained(self, model: Transformer, log: TrainLog) -> None:
        """Replace the parts of a training in progress by the trained model; write it if a checkpoint is due."""
        self.checkpoints.parts = {}
        facts = {"log": asdict(log), "encoder_dropped": model.encoder_dropped}
        self.checkpoints.save_if_due("trained", lambda: State(facts, model.state_dict()), keep=True)
