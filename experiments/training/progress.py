"""A training in progress: all that decides how it goes on, saved and taken up again; and what is told of it."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from experiments.model.streams import stream
from experiments.training.checkpoint import State

if TYPE_CHECKING:
    from experiments.training.loop import Step

LENGTHS = "training lengths"
STREAMS = (LENGTHS, "training data", "training positions", "checks")
"""What a training draws, each from a stream of its own. Lengths are the same for every seed, so that several seeds can
be trained as one batched model and each be what it is alone."""


@dataclass
class TrainLog:
    """What happened in training.

    Args:
        status: ``ok`` or ``diverged`` (the loss stopped being finite).
        points: (step, mean loss since the last point in nats per counted token, in-range quality, n).
        seconds: wall-clock time of the loop, in-range checks included.
        tokens: tokens trained on.
        steps: optimizer steps taken.
        stopped: what ended it: ``steps``, ``max_steps`` or ``converged``; None if it diverged, or trained nothing.
        together: how many seeds were trained at once, of whose seconds these are one share.
    """

    status: str = "ok"
    points: list[tuple[int, float, dict[str, float], int]] = field(default_factory=list)
    seconds: float = 0.0
    tokens: int = 0
    steps: int = 0
    stopped: str | None = None
    together: int = 1

    @property
    def final_loss(self) -> float:
        return self.points[-1][1] if self.points else math.nan

    @classmethod
    def load(cls, facts: dict[str, Any]) -> TrainLog:
        """From plain data, as ``asdict`` and JSON give it."""
        points = [(step, loss, quality, n) for step, loss, quality, n in facts["points"]]
        return cls(**{**facts, "points": points})


class Training:
    """A training in progress, and all that decides how it goes on.

    Args:
        step: takes the steps; its model is on the device to train on.
        seed: decides the data and their order, whatever the encoder; batches' lengths are the same for every seed.
    """

    def __init__(self, step: Step, seed: int) -> None:
        self.step = step
        self.log = TrainLog()
        self.streams = {purpose: stream(0 if purpose == LENGTHS else seed, purpose) for purpose in STREAMS}
        self.loss_sum = torch.zeros((), device=step.model.token_embedding.weight.device)
        self.loss_count = 0
        self._began = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Wall-clock time, that before an interruption included; of several seeds at once, this one's share."""
        return (time.perf_counter() - self._began) / self.log.together

    def state(self) -> State:
        """What is saved; tensors are not copied."""
        self.log.seconds = self.seconds
        optimizer = self.step.optimizer
        moments = optimizer.state_dict()["state"]
        return State(
            {
                "learning_rate": self.step.config.learning_rate,
                "rates": [group["lr"] for group in optimizer.param_groups],
                "encoder_dropped": self.step.model.encoder_dropped,
                "loss_count": self.loss_count,
                "log": asdict(self.log),
            },
            {
                **{f"model/{name}": tensor for name, tensor in self.step.model.state_dict().items()},
                **{f"optimizer/{i}/{key}": tensor for i, kept in moments.items() for key, tensor in kept.items()},
                **{f"stream/{purpose}": generator.get_state() for purpose, generator in self.streams.items()},
                "loss_sum": self.loss_sum,
            },
        )

    def restore(self, saved: State) -> None:
        """Go on from what `state` gave."""
        model, optimizer = self.step.model, self.step.optimizer
        moments: dict[int, dict[str, Tensor]] = {}
        for name, tensor in saved.tensors.items():
            if name.startswith("optimizer/"):
                _, i, key = name.split("/")
                moments.setdefault(int(i), {})[key] = tensor
        model.load_state_dict({k.removeprefix("model/"): t for k, t in saved.tensors.items() if k.startswith("model/")})
        optimizer.load_state_dict({"state": moments, "param_groups": optimizer.state_dict()["param_groups"]})
        for group, rate in zip(optimizer.param_groups, saved.facts["rates"], strict=True):
            group["lr"] = rate
        for purpose, generator in self.streams.items():
            generator.set_state(saved.tensors[f"stream/{purpose}"])
        if saved.facts["encoder_dropped"]:
            model.drop_encoder()
        self.loss_sum.copy_(saved.tensors["loss_sum"])
        self.loss_count = saved.facts["loss_count"]
        self.log = TrainLog.load(saved.facts["log"])
        self.step.schedule.last_epoch = self.log.steps
        self._began = time.perf_counter() - self.log.seconds * self.log.together
