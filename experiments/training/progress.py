"""A training in progress: its state, saved and restored, and the log that its rows are made from."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from experiments.model.streams import stream
from experiments.model.transformer import Transformer
from experiments.rows.row import Row
from experiments.training.checkpoint import State
from experiments.training.evaluate import Subject
from experiments.training.step import Step

LENGTHS = "training lengths"
STREAMS = (LENGTHS, "training data", "training positions", "checks")
"""The random streams of a training. Lengths are the same for every seed, so that several seeds can be trained as one
batched model and each gets the run that it would get alone."""


@dataclass(frozen=True)
class Tuning:
    """The search for a learning rate.

    Args:
        rates: the peaks that were tried.
        losses: of each, on held-out data in range, in nats per counted token; infinite if training diverged.
        tokens: counted tokens that each loss is a mean over.
        seconds: wall-clock time of the whole search, all its trainings included.
    """

    rates: list[float]
    losses: list[float]
    tokens: int
    seconds: float

    @property
    def chosen(self) -> float | None:
        """The rate of the lowest loss, the lower one of two; None if all diverged."""
        loss, rate = min(zip(self.losses, self.rates, strict=True))
        return rate if math.isfinite(loss) else None

    @property
    def at_edge(self) -> bool:
        """Whether the chosen rate is the lowest or the highest tried, so that a better one may lie beyond."""
        return self.chosen in (min(self.rates), max(self.rates))

    def record(self) -> dict[str, Any]:
        """Return what ``run.json`` holds; a diverged training has the loss null."""
        return {
            "grid": self.rates,
            "losses": [loss if math.isfinite(loss) else None for loss in self.losses],
            "chosen": self.chosen,
            "seconds": round(self.seconds, 3),
            "at_edge": self.at_edge,
        }


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
        together: how many seeds were trained at once; ``seconds`` is one share of their time.
        tuning: the search for the learning rate, if there was one.
    """

    status: str = "ok"
    points: list[tuple[int, float, dict[str, float], int]] = field(default_factory=list)
    seconds: float = 0.0
    tokens: int = 0
    steps: int = 0
    stopped: str | None = None
    together: int = 1
    tuning: Tuning | None = None

    @property
    def final_loss(self) -> float:
        return self.points[-1][1] if self.points else math.nan

    @property
    def quality(self) -> dict[str, float]:
        """In-range quality at the last check; empty without training."""
        return self.points[-1][2] if self.points else {}

    @property
    def divergence(self) -> str:
        """Why the run has no finite loss."""
        if self.tuning is not None:
            return f"no learning rate of {', '.join(map(str, self.tuning.rates))} reached a finite loss"
        return f"the loss was {self.final_loss} by step {self.points[-1][0]}"

    @classmethod
    def load(cls, facts: dict[str, Any]) -> TrainLog:
        """Rebuild a log from plain data, as ``asdict`` and JSON give it."""
        points = [(step, loss, quality, n) for step, loss, quality, n in facts["points"]]
        tuning = facts["tuning"] and Tuning(**facts["tuning"])
        return cls(**{**facts, "points": points, "tuning": tuning})

    @classmethod
    def restore(cls, done: State, model: Transformer) -> TrainLog:
        """Bring a model to the end of a saved training; return its log."""
        model.load_state_dict(done.tensors)
        if done.facts["encoder_dropped"]:
            model.drop_encoder()
        return cls.load(done.facts["log"])

    def rows(self, subject: Subject) -> list[Row]:
        """Return the training curve, and the loss of every learning rate that was tried."""
        main = dict.fromkeys((subject.task.metrics[0], "token_accuracy"))
        guess = {metric: subject.best_guess(metric, subject.task.train_length) for metric in main}
        rows = []
        for step, loss, quality, n in self.points:
            rows.append(subject.row("training", "loss", step=step, value=loss, n=n))
            rows += [
                subject.row("training", metric, step=step, value=quality[metric], chance=guess[metric], n=n)
                for metric in main
                if metric in quality
            ]
        if self.tuning is None:
            return rows
        for rate, loss in zip(self.tuning.rates, self.tuning.losses, strict=True):
            finite = math.isfinite(loss)
            rows.append(
                subject.row(
                    "tuning",
                    "validation_loss",
                    learning_rate=rate,
                    value=loss if finite else math.nan,
                    n=self.tuning.tokens,
                    status="ok" if finite else "diverged",
                )
            )
        return rows


class Training:
    """A training in progress, and all that decides how it continues.

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
        """Wall-clock time, including that before an interruption; of several seeds at once, this one's share."""
        return (time.perf_counter() - self._began) / self.log.together

    def state(self) -> State:
        """Return what a checkpoint holds; tensors are not copied."""
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
        """Continue from what `state` returned."""
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
