"""The search for a learning rate: one training for each, judged on held-out data of the lengths that are trained on."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from experiments.model.streams import stream
from experiments.model.transformer import Transformer
from experiments.tasks import Batch, Task
from experiments.training.checkpoint import Checkpoints, State
from experiments.training.evaluate import evaluate
from experiments.training.loop import TUNED_RATES, TrainConfig, train
from experiments.training.progress import Training, TrainLog
from pe_zoo import Numbering
from pe_zoo._knobs import number, true_or_false

if TYPE_CHECKING:
    from experiments.training.parallel import Team

HELD_OUT_TOKENS = 4096
"""Counted tokens that a learning rate is judged on, at least."""
HELD_OUT_LENGTHS = 16
"""How many of the lengths trained on are among them, at most: evenly spaced, shortest and longest included."""


@dataclass(frozen=True)
class Tuning:
    """What a search came to.

    Args:
        losses: peak learning rate -> loss on the held-out data, in nats per counted token; infinite if it diverged.
        tokens: counted tokens that each loss is a mean over.
        seconds: wall-clock time of the whole search, all its trainings included.
    """

    losses: dict[float, float]
    tokens: int
    seconds: float

    @property
    def chosen(self) -> float | None:
        """The rate of the lowest loss, the lower one of two; None if all diverged."""
        best = min(self.losses, key=lambda rate: (self.losses[rate], rate))
        return best if math.isfinite(self.losses[best]) else None

    @property
    def at_edge(self) -> bool:
        """Whether the chosen rate is the lowest or the highest tried: a better one may lie beyond."""
        return self.chosen in (min(self.losses), max(self.losses))

    @classmethod
    def load(cls, facts: dict[str, Any] | None) -> Tuning | None:
        """From plain data, the losses as pairs: numbers are no keys in JSON."""
        return None if facts is None else cls(dict(map(tuple, facts["losses"])), facts["tokens"], facts["seconds"])

    def record(self) -> dict[str, Any]:
        """For the run's record; null is the loss of what diverged."""
        return {
            "grid": list(self.losses),
            "losses": [loss if math.isfinite(loss) else None for loss in self.losses.values()],
            "chosen": self.chosen,
            "seconds": round(self.seconds, 3),
            "at_edge": self.at_edge,
        }


def rates(config: TrainConfig) -> list[float]:
    """The peak learning rates to try, ascending."""
    return sorted(TUNED_RATES if config.learning_rates is None else config.learning_rates)


def check_tuning(wanted: bool, config: TrainConfig, *, trains: bool) -> None:
    """Refuse a search that cannot be made, and options that it, or its absence, would pass over."""
    given = config.learning_rates
    if not true_or_false("tune", wanted):
        if given is not None:
            raise ValueError(f"train.learning_rates={given} changes nothing without tune=true; add it")
        return
    if not trains:
        raise ValueError("tune=true changes nothing where nothing is trained; leave it out, or measure what trains")
    if config.learning_rate != TrainConfig.learning_rate:
        raise ValueError(
            f"train.learning_rate={config.learning_rate} changes nothing with tune=true; put it among "
            f"train.learning_rates={rates(config)}, or leave it out"
        )
    if config.stop_at_convergence:
        raise ValueError(
            "tune=true compares learning rates after equal steps, and train.stop_at_convergence=true ends some sooner; "
            "leave one out"
        )
    for rate in rates(config):
        number("train.learning_rates", rate, above=0)
    if not rates(config) or len(set(rates(config))) < len(rates(config)):
        raise ValueError(f"train.learning_rates must be different rates, at least one; got {given}")


def tune(
    build: Callable[[], Transformer],
    task: Task,
    numbering: Numbering,
    config: TrainConfig,
    *,
    causal: bool,
    seed: int,
    label: str,
    checkpoints: Checkpoints | None = None,
    team: Team | None = None,
    watch: Callable[[Training], None] | None = None,
) -> tuple[Transformer, TrainLog, Tuning]:
    """Train once for each learning rate, all else the same, and keep what does best in range.

    No more than two models are held at a time, the best so far and the one in training.

    Args:
        build: makes the untrained model, the same each time.
        task: what to train on; lengths beyond its training length are never drawn.
        numbering: draws the positions.
        config: how to train; its ``learning_rate`` gives way to each of the ``rates``.
        causal: whether the model is.
        seed: decides the data, the same for every rate and every encoder.
        label: shown on the progress bar.
        checkpoints: where the search is saved, and gone on from.
        team: the processes that share every step of a training; None: this one alone.
        watch: as `train` takes it, for every training.

    Returns:
        the model of the best rate, its training, and the search. ``diverged`` if no rate has a finite loss.
    """
    grid, search = rates(config), Search(build, checkpoints)
    questions = held_out(task, numbering, seed, causal=causal)

    def attempt(rate: float, title: str) -> tuple[float, Transformer, TrainLog]:
        model, trained = build(), replace(config, learning_rate=rate)
        log = train(
            model, task, numbering, trained, seed=seed, label=title, checkpoints=checkpoints, team=team, watch=watch
        )
        loss = loss_on(model, questions) if log.status == "ok" else math.inf
        # A schedule and its step hold each other, and so the model, until they are looked for.
        gc.collect()
        return loss, model, log

    for place, rate in enumerate(grid[len(search.losses) :], len(search.losses) + 1):
        search.add(rate, attempt(rate, f"{label}, learning rate {rate:g} ({place} of {len(grid)})"))
    assert search.best is not None
    loss, model, log = search.best
    if not math.isfinite(loss):
        log.status, log.stopped = "diverged", None
    tokens = sum(len(batch.tokens) * int(batch.counted.sum()) for batch, _ in questions)
    return model, log, Tuning(search.losses, tokens, search.seconds)


class Search:
    """What a search has come to: the losses of the rates tried, and the best training among them.

    Args:
        build: makes the untrained model.
        checkpoints: where it is saved, and gone on from.
    """

    def __init__(self, build: Callable[[], Transformer], checkpoints: Checkpoints | None) -> None:
        self.losses: dict[float, float] = {}
        self.best: tuple[float, Transformer, TrainLog] | None = None
        self._checkpoints = checkpoints
        self._began = time.perf_counter()
        saved = checkpoints.parts.get("search") if checkpoints is not None else None
        if saved is not None:
            self.losses = dict(zip(saved.facts["rates"], saved.facts["losses"], strict=True))
            model, log = build(), TrainLog.load(saved.facts["log"])
            model.load_state_dict(saved.tensors)
            if saved.facts["encoder_dropped"]:
                model.drop_encoder()
            self.best = min(self.losses.values()), model, log
            saved.tensors = model.state_dict()
            self._began -= saved.facts["seconds"]

    @property
    def seconds(self) -> float:
        """Wall-clock time, that before an interruption included as far as whole trainings go."""
        return time.perf_counter() - self._began

    def add(self, rate: float, new: tuple[float, Transformer, TrainLog]) -> None:
        """A training with a rate: its loss, model and log."""
        self.losses[rate] = new[0]
        self.best = _better(self.best, new)
        if self._checkpoints is not None:
            _, model, log = self.best
            facts = {
                "rates": list(self.losses),
                "losses": list(self.losses.values()),
                "log": asdict(log),
                "encoder_dropped": model.encoder_dropped,
                "seconds": self.seconds,
            }
            self._checkpoints.parts.pop("training", None)
            self._checkpoints.parts["search"] = State(facts, model.state_dict())


def _better(
    best: tuple[float, Transformer, TrainLog] | None, new: tuple[float, Transformer, TrainLog]
) -> tuple[float, Transformer, TrainLog]:
    return new if best is None or new[0] < best[0] else best


def held_out(task: Task, numbering: Numbering, seed: int, *, causal: bool) -> list[tuple[Batch, Tensor]]:
    """Validation sequences of lengths within the training range, and their positions.

    Drawn from the seed alone, for a task and a numbering: every encoder and every learning rate has the same.
    """
    data, numbers = (stream(seed, purpose) for purpose in ("tuning data", "tuning positions"))
    span = torch.linspace(task.min_length, task.train_length, HELD_OUT_LENGTHS, dtype=torch.float64)
    lengths = sorted({round(length) for length in span.tolist()})
    drawn: list[tuple[Batch, Tensor]] = []
    tokens = 0
    while tokens < HELD_OUT_TOKENS:
        for length in lengths:
            size = task.sequence_length(length)
            batch_size = max(1, 2048 // size)
            batch = task.sample(batch_size, length, data, split="validation", causal=causal)
            drawn.append((batch, numbering.evaluate(batch_size, size, numbers)))
            tokens += batch_size * int(batch.counted.sum())
    return drawn


def loss_on(model: Transformer, questions: list[tuple[Batch, Tensor]]) -> float:
    """Nats per counted token over all of them; infinite where that is no number."""
    scored = [evaluate(model, batch, positions) for batch, positions in questions]
    loss = sum(part.nats.double().sum().item() for part in scored) / sum(part.nats.numel() for part in scored)
    return loss if math.isfinite(loss) else math.inf
