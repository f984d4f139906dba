"""The search for a learning rate: one training for each, judged on held-out data of the training lengths."""

import gc
import math
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor

from experiments.model.streams import stream
from experiments.model.transformer import Transformer
from experiments.rows.row import Row
from experiments.tasks import Batch, Task
from experiments.training.checkpoint import State
from experiments.training.config import TUNED_RATES, TrainConfig
from experiments.training.evaluate import evaluate
from experiments.training.log import TrainLog, Tuning
from experiments.training.loop import Session, train
from pe_zoo import Numbering
from pe_zoo._knobs import number, true_or_false

HELD_OUT_TOKENS = 4096
HELD_OUT_LENGTHS = 16
"""How many of the lengths trained on are among them, at most: evenly spaced, shortest and longest included."""


def rates(config: TrainConfig) -> list[float]:
    """Return the peak learning rates to try, ascending."""
    return sorted(TUNED_RATES if config.learning_rates is None else config.learning_rates)


def check_tuning(wanted: bool, config: TrainConfig, *, trains: bool) -> None:
    """Refuse a search that cannot be made, and options that it, or its absence, would ignore."""
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
            "tune=true compares learning rates after whole rounds, and train.stop_at_convergence=true ends some "
            "sooner; leave one out"
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
    seed: int,
    label: str = "",
    session: Session | None = None,
    beyond: Callable[[Transformer], list[Row]] = lambda model: [],
) -> tuple[Transformer, TrainLog]:
    """Train once for each learning rate, all else the same, and keep the best in range: its model and log.

    No more than two models are in memory at a time: the best so far and the one in training. Lengths beyond the
    training length are never drawn, and what ``beyond`` measures there, of a model that learned the task, is recorded
    alone. The search is saved and resumed; it stands in the log, which is ``diverged`` if no loss is finite.
    """
    session = session or Session()
    grid, began, parts = rates(config), time.perf_counter(), session.checkpoints.parts
    questions, losses, measured = list[tuple[Batch, Tensor]](), list[float](), list[list[dict[str, Any]]]()
    best: tuple[float, Transformer, TrainLog] | None = None
    if saved := parts.get("search"):
        model = build()
        losses += saved.facts["losses"]
        measured += saved.facts["beyond"]
        best = min(losses), model, TrainLog.restore(saved, model)
        saved.tensors = model.state_dict()
        began -= saved.facts["seconds"]
    for place, rate in enumerate(grid[len(losses) :], len(losses) + 1):
        title = f"{label}, learning rate {rate:g} ({place} of {len(grid)})"
        model = build()
        questions = questions or held_out(task, numbering, seed, causal=model.causal)
        at_rate = replace(config, learning_rate=rate)
        log = train(model, task, numbering, at_rate, seed=seed, label=title, session=session)
        losses.append(loss_on(model, questions) if log.status == "ok" else math.inf)
        learned = log.status == "ok" and task.has_converged(log.quality)
        measured.append(list(map(asdict, beyond(model))) if learned else [])
        if best is None or losses[-1] < best[0]:
            best = losses[-1], model, log
        _, model, log = best
        gc.collect()  # a schedule and its step refer to each other, and so keep the other model until then
        parts.pop("training", None)
        facts = {"losses": list(losses), "beyond": list(measured), "log": asdict(log)}
        facts |= {"encoder_dropped": model.encoder_dropped, "seconds": time.perf_counter() - began}
        parts["search"] = State(facts, model.state_dict())
    assert best is not None
    loss, model, log = best
    if not math.isfinite(loss):
        log.status, log.stopped = "diverged", None
    tokens = sum(len(batch.tokens) * int(batch.counted.sum()) for batch, _ in questions)
    log.tuning = Tuning(grid, losses, tokens, time.perf_counter() - began, measured)
    return model, log


def held_out(task: Task, numbering: Numbering, seed: int, *, causal: bool) -> list[tuple[Batch, Tensor]]:
    """Draw validation sequences within the training lengths, and their positions, the same for every encoder."""
    data, numbers = (stream(seed, purpose) for purpose in ("tuning data", "tuning positions"))
    span = torch.linspace(task.min_length, task.train_length, HELD_OUT_LENGTHS, dtype=torch.float64)
    lengths = sorted({round(length) for length in span.tolist()})
    drawn, tokens = list[tuple[Batch, Tensor]](), 0
    while tokens < HELD_OUT_TOKENS:
        for length in lengths:
            size = task.sequence_length(length)
            batch_size = max(1, 2048 // size)
            batch = task.draw_split(batch_size, length, data, split="validation", causal=causal)
            drawn.append((batch, numbering.read(batch.tokens, numbers)))
            tokens += batch_size * int(batch.counted.sum())
    return drawn


def loss_on(model: Transformer, questions: list[tuple[Batch, Tensor]]) -> float:
    """Return nats per counted token over all questions; infinite where that is not a number."""
    scored = [evaluate(model, batch, positions) for batch, positions in questions]
    loss = sum(part.nats.double().sum().item() for part in scored) / sum(part.nats.numel() for part in scored)
    return loss if math.isfinite(loss) else math.inf
