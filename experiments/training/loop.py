"""The training loop. It knows batches and parameters, not tasks or encoders."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from experiments.model.transformer import Transformer
from experiments.tasks import Batch, Task
from experiments.training.config import TrainConfig
from experiments.training.evaluate import Scored, evaluate
from experiments.training.progress import LENGTHS, Training, TrainLog
from experiments.training.session import ALONE, Session
from pe_zoo import Numbering


def train(
    model: Transformer,
    task: Task,
    numbering: Numbering,
    config: TrainConfig,
    *,
    seed: int,
    label: str = "",
    session: Session = ALONE,
) -> TrainLog:
    """Train a model on a task, in place.

    Args:
        model: on the device to train on.
        task: draws the batches; each has one length, uniform between the task's shortest and longest.
        numbering: draws their positions.
        config: how.
        seed: decides the data and their order, whatever the encoder; the lengths of batches are the same for all seeds.
        label: shown on the progress bar, which is silent where there is no terminal.
        session: checkpoints, other processes and trackers, if any.

    Raises:
        Interrupted: the run was told to stop; its progress is saved.
    """
    run = Training(session.step(model.train(), config), seed)
    saved = session.saved("training")
    session.keep("training", None)
    if saved is not None and saved.facts["learning_rate"] == config.learning_rate:
        run.restore(saved)
    session.watch(run)
    last, title = config.last_step, f"{label}, until learned" if config.stop_at_convergence else label
    with (
        session.leading(run),
        logging_redirect_tqdm(),
        tqdm(total=last, initial=run.log.steps, desc=title, unit="step", disable=None, leave=False) as bar,
    ):
        for done in range(run.log.steps + 1, last + 1):
            advance(run, task, numbering, done)
            bar.update()
            if done % config.check_every == 0 or done == last:
                bar.set_postfix_str(check(run, task, numbering))
                session.watch(run)
                if run.log.stopped or run.log.status != "ok":
                    break
            session.boundary(run)
    run.log.seconds = run.seconds
    return run.log


def advance(run: Training, task: Task, numbering: Numbering, done: int) -> None:
    """Take the step after which ``done`` steps are done."""
    batch, positions = draw(run, task, numbering)
    note_step(run, batch, run.step(batch, positions), done)
    if done == run.step.config.drop_step:
        run.step.model.drop_encoder()


def draw(run: Training, task: Task, numbering: Numbering) -> tuple[Batch, Tensor]:
    """Draw the next batch and its positions, on the training device."""
    model, device = run.step.model, run.loss_sum.device
    length = int(torch.randint(task.min_length, task.train_length + 1, (), generator=run.streams[LENGTHS]))
    size = task.sequence_length(length)
    batch_size = max(1, run.step.config.tokens_per_step // size)
    batch = task.sample(batch_size, length, run.streams["training data"], split="train", causal=model.causal)
    return batch.to(device), numbering.train(batch_size, size, run.streams["training positions"]).to(device)


def note_step(run: Training, batch: Batch, loss: Tensor, done: int) -> None:
    """Count a step towards the next point of the curve; the loss stays on its device."""
    run.loss_sum += loss
    run.loss_count += 1
    run.log.tokens += batch.tokens.numel()
    run.log.steps = done


def check(run: Training, task: Task, numbering: Numbering) -> str:
    """Add a point to the curve, decide whether training ends there, and return a summary for the progress bar."""
    log = run.log
    loss = float(run.loss_sum) / run.loss_count
    run.loss_sum.zero_()
    run.loss_count = 0
    if not math.isfinite(loss):
        log.status = "diverged"
        log.points.append((log.steps, loss, {}, 0))
        return f"loss {loss}"
    scored = check_in_range(run.step.model, task, numbering, run.streams["checks"])
    quality = scored.quality()
    log.points.append((log.steps, loss, quality, scored.num_tokens))
    log.stopped = run.step.config.ends(log.steps, task.has_converged(quality))
    rate = log.tokens / run.seconds
    return f"loss {loss:.3f}, in-range accuracy {quality['token_accuracy']:.3f}, {rate:,.0f} tokens/s"


def check_in_range(model: Transformer, task: Task, numbering: Numbering, generator: torch.Generator) -> Scored:
    """Score a fresh held-out batch of the training length, without any effect on training."""
    size = task.sequence_length(task.train_length)
    batch_size = max(1, 2048 // size)
    batch = task.sample(batch_size, task.train_length, generator, split="validation", causal=model.causal)
    return evaluate(model, batch, numbering.evaluate(batch_size, size, generator))
