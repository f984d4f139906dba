"""Training: a plain loop. The trainer knows batches and parameters, not tasks or encoders."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from experiments.model.precision import AUTO, PRECISIONS, training_dtype
from experiments.model.transformer import Transformer
from experiments.tasks import Batch, Task
from experiments.training.checkpoint import Checkpoints
from experiments.training.evaluate import Scored, evaluate
from experiments.training.progress import LENGTHS, Training, TrainLog
from pe_zoo import Numbering
from pe_zoo._knobs import number, one_of, true_or_false, whole

if TYPE_CHECKING:
    from experiments.training.parallel import Team

TUNED_RATES = (3e-4, 1e-3, 3e-3)
"""Peak learning rates that ``tune=true`` tries unless told otherwise: the usual one, and half a decade either way."""


@dataclass(kw_only=True)
class TrainConfig:
    """How a model is trained.

    Args:
        steps: optimizer steps, at least 0; 0 trains nothing and leaves the model as it was initialised.
        tokens_per_step: tokens in a batch, at least 1; a batch of short sequences has more of them.
        learning_rate: the peak, above 0.
        warmup: share of the steps in which the rate rises to the peak, in [0, 1); it falls to 0 along a cosine.
        beta2: Adam's second decay, in (0, 1).
        weight_decay: at least 0; on the trunk's matrices only, never on embeddings, norms or the encoder.
        gradient_clip: largest norm of the gradient, above 0.
        curve_points: how often loss and in-range accuracy are recorded, at least 1.
        drop_encoder_after: share of the steps after which the model goes without its encoder, for the rest of the
            training (the recalibration) and all of the evaluation, in (0, 1]; null: never. DroPE, Gelberg et al.
            (2025), arXiv:2512.12167, §5.1 and App. C: 0.875 there, of the same number of steps in all. The rate
            rises and falls once before the drop and once after it, warm-up being the same share of either part.
            The paper drops it from a model in the middle of a cosine over all steps; Adam's moments are kept here.
        recalibration_learning_rate: the peak after the drop, above 0; null: ``learning_rate``. In the paper 10/3 of
            the first.
        max_steps: steps after which training ends although the learning rate is laid out for ``steps``, at least 1
            and below those; null: none.
        stop_at_convergence: whether training ends at the first in-range check at which the task counts as learned, as
            the model will be measured: after the drop, where there is one. Lengths beyond are never looked at.
        precision: what the layers' matrices are multiplied in while training, one of ``PRECISIONS``: ``bfloat16`` (the
            weights, their moments, norms, angles, scores and the softmax stay in float32), ``float32``, or ``auto``:
            bfloat16 where it is faster. Evaluation is in float32.
        learning_rates: with ``tune=true``, the peaks that are tried in place of ``learning_rate``, each above 0;
            null: ``TUNED_RATES``.
    """

    steps: int = 2400
    tokens_per_step: int = 256
    learning_rate: float = 1e-3
    warmup: float = 0.1
    beta2: float = 0.98
    weight_decay: float = 0.01
    gradient_clip: float = 1.0
    curve_points: int = 20
    drop_encoder_after: float | None = None
    recalibration_learning_rate: float | None = None
    max_steps: int | None = None
    stop_at_convergence: bool = False
    precision: str = AUTO
    learning_rates: list[float] | None = None

    def check(self) -> None:
        """Refuse values out of range."""
        whole("train.steps", self.steps, at_least=0)
        for name in ("tokens_per_step", "curve_points"):
            whole(f"train.{name}", getattr(self, name), at_least=1)
        number("train.learning_rate", self.learning_rate, above=0)
        number("train.gradient_clip", self.gradient_clip, above=0)
        number("train.weight_decay", self.weight_decay, at_least=0)
        number("train.warmup", self.warmup, at_least=0, below=1)
        number("train.beta2", self.beta2, above=0, below=1)
        if self.max_steps is not None and whole("train.max_steps", self.max_steps, at_least=1) >= self.steps:
            raise ValueError(
                f"train.max_steps={self.max_steps} changes nothing unless below train.steps={self.steps}, which the "
                f"learning rate is laid out for; lower it or leave it out"
            )
        one_of("train.precision", self.precision, PRECISIONS)
        self._check_drop()
        if true_or_false("train.stop_at_convergence", self.stop_at_convergence):
            self._check_stop()

    def _check_drop(self) -> None:
        if self.drop_encoder_after is not None:
            number("train.drop_encoder_after", self.drop_encoder_after, above=0, at_most=1)
            if not self.steps:
                raise ValueError("train.drop_encoder_after changes nothing without training; set train.steps above 0")
            if self.drop_step is not None and self.drop_step > self.last_step:
                raise ValueError(
                    f"train.drop_encoder_after={self.drop_encoder_after} would drop the encoder after {self.drop_step} "
                    f"steps, but train.max_steps={self.max_steps} ends before; lower the one or raise the other"
                )
        if self.recalibration_learning_rate is not None:
            number("train.recalibration_learning_rate", self.recalibration_learning_rate, above=0)
            if self.drop_step in (None, self.last_step):
                raise ValueError(
                    f"train.recalibration_learning_rate={self.recalibration_learning_rate} changes nothing where no "
                    f"step follows the drop; set train.drop_encoder_after below 1"
                )

    def _check_stop(self) -> None:
        earliest = max(self.check_every, self.drop_step or 0)
        if -(-earliest // self.check_every) * self.check_every >= self.last_step:
            raise ValueError(
                f"train.stop_at_convergence=true changes nothing: no in-range check comes before the last of "
                f"{self.last_step} steps; raise train.curve_points or train.steps"
            )

    @property
    def last_step(self) -> int:
        """After how many steps training ends, unless the task counts as learned before."""
        return self.steps if self.max_steps is None else self.max_steps

    @property
    def check_every(self) -> int:
        """How many steps there are from one in-range check to the next; the last step has one besides."""
        return max(1, self.steps // self.curve_points)

    def ends(self, done: int, learned: bool) -> str | None:
        """What ends training at a check, if it ends: ``steps``, ``max_steps`` or ``converged``."""
        if done == self.last_step:
            return "steps" if self.max_steps is None else "max_steps"
        return "converged" if self.stop_at_convergence and learned and done >= (self.drop_step or 0) else None

    @property
    def drop_step(self) -> int | None:
        """After how many steps the encoder is dropped; None: never."""
        return None if self.drop_encoder_after is None else max(1, round(self.drop_encoder_after * self.steps))


class Step:
    """One optimizer step after another: AdamW, warm-up and cosine (twice where the encoder is dropped), clipping."""

    def __init__(self, model: Transformer, config: TrainConfig) -> None:
        self.model = model
        self.config = config
        device = model.token_embedding.weight.device
        self.dtype = training_dtype(config.precision, device, model.geometry.model_dim)
        model.train_in(self.dtype)
        trunk = model.trunk_parameters()
        decayed = [p for name, p in trunk if p.ndim >= 2 and not name.startswith("token_embedding.")]
        chosen = {id(p) for p in decayed}
        spared = [p for p in model.parameters() if id(p) not in chosen]
        self.optimizer = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": config.weight_decay}, {"params": spared, "weight_decay": 0.0}],
            lr=config.learning_rate,
            betas=(0.9, config.beta2),
            fused=True,
        )
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self.share_of_peak)

    def share_of_peak(self, step: int) -> float:
        """Of the learning rate, after this many steps."""
        steps, dropped = self.config.steps, self.config.drop_step or self.config.steps
        if step < dropped or dropped == steps:
            return self._rise_and_fall(step, dropped)
        peak = self.config.recalibration_learning_rate or self.config.learning_rate
        return peak / self.config.learning_rate * self._rise_and_fall(step - dropped, steps - dropped)

    def _rise_and_fall(self, step: int, steps: int) -> float:
        warmup = self.config.warmup * steps
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warmup) / (steps - warmup))))

    def __call__(self, batch: Batch, positions: Tensor | None = None) -> Tensor:
        """Take one step; the batch's mean loss in nats per counted token, detached."""
        loss = self.gradient(batch, positions)
        self.update()
        return loss

    def gradient(self, batch: Batch, positions: Tensor | None = None) -> Tensor:
        """That of a batch's mean loss, in place of the one before; the loss, detached."""
        self.optimizer.zero_grad(set_to_none=True)
        logits = self.model(batch.tokens, positions)[:, batch.counted]
        loss = functional.cross_entropy(logits.flatten(0, 1), batch.targets[:, batch.counted].flatten())
        loss.backward()
        return loss.detach()

    def update(self) -> None:
        """Change the parameters by the gradient, clipped."""
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.gradient_clip)
        self.optimizer.step()
        self.schedule.step()


def make_train_step(model: Transformer, tokens: Tensor) -> Callable[[], Tensor]:
    """One optimizer step on fixed tokens, exactly as the trainer takes it; for timing.

    Args:
        model: the model, on its device, in training mode.
        tokens: ``(batch, length)`` int64; every token but the first is predicted from those before it.

    Returns:
        a function that takes the step and returns its loss.
    """
    targets = torch.cat([tokens[:, 1:], tokens[:, :1]], 1)
    counted = torch.arange(tokens.shape[1], device=tokens.device) < tokens.shape[1] - 1
    batch, step = Batch(tokens, targets, counted), Step(model, TrainConfig())
    return lambda: step(batch)


def train(
    model: Transformer,
    task: Task,
    numbering: Numbering,
    config: TrainConfig,
    *,
    seed: int,
    label: str = "",
    checkpoints: Checkpoints | None = None,
    team: Team | None = None,
    watch: Callable[[Training], None] | None = None,
) -> TrainLog:
    """Train a model on a task, in place.

    Args:
        model: on the device to train on.
        task: draws the batches; each has one length, uniform between the task's shortest and longest.
        numbering: draws their positions.
        config: how.
        seed: decides the data and their order, whatever the encoder; batches' lengths are the same for every seed.
        label: shown on the progress bar, which is silent where there is no terminal.
        checkpoints: where training is saved, and gone on from.
        team: the processes that share every step; None: this one alone.
        watch: shown the training at its start, and whenever it has a new point.

    Raises:
        Interrupted: the run was asked to stop; what it has come to is saved.
    """
    run = Training((team.step if team else Step)(model.train(), config), seed)
    saved = checkpoints.parts.pop("training", None) if checkpoints is not None else None
    if saved is not None and saved.facts["learning_rate"] == config.learning_rate:
        run.restore(saved)
    if watch is not None:
        watch(run)
    last, title = config.last_step, f"{label}, until learned" if config.stop_at_convergence else label
    with (
        team.leading(run) if team else nullcontext(),
        logging_redirect_tqdm(),
        tqdm(total=last, initial=run.log.steps, desc=title, unit="step", disable=None, leave=False) as bar,
    ):
        for done in range(run.log.steps + 1, last + 1):
            advance(run, task, numbering, done)
            bar.update()
            if done % config.check_every == 0 or done == last:
                bar.set_postfix_str(check(run, task, numbering))
                if watch is not None:
                    watch(run)
                if run.log.stopped or run.log.status != "ok":
                    break
            if checkpoints is not None:
                checkpoints.boundary("training", run.state)
    run.log.seconds = run.seconds
    return run.log


def advance(run: Training, task: Task, numbering: Numbering, done: int) -> None:
    """Take the step that makes it ``done`` steps."""
    batch, positions = draw(run, task, numbering)
    note_step(run, batch, run.step(batch, positions), done)
    if done == run.step.config.drop_step:
        run.step.model.drop_encoder()


def draw(run: Training, task: Task, numbering: Numbering) -> tuple[Batch, Tensor]:
    """The next batch and its positions, on the device that is trained on."""
    model, device = run.step.model, run.loss_sum.device
    length = int(torch.randint(task.min_length, task.train_length + 1, (), generator=run.streams[LENGTHS]))
    size = task.sequence_length(length)
    batch_size = max(1, run.step.config.tokens_per_step // size)
    batch = task.sample(batch_size, length, run.streams["training data"], split="train", causal=model.causal)
    return batch.to(device), numbering.train(batch_size, size, run.streams["training positions"]).to(device)


def note_step(run: Training, batch: Batch, loss: Tensor, done: int) -> None:
    """Add a step to what the next point of the curve will tell; the loss stays where it is."""
    run.loss_sum += loss
    run.loss_count += 1
    run.log.tokens += batch.tokens.numel()
    run.log.steps = done


def check(run: Training, task: Task, numbering: Numbering) -> str:
    """Record the loss since the last check and the quality in range, and whether that ends the training; a summary."""
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
    """Quality on a fresh held-out batch of the training length; training goes on as if it had not happened."""
    size = task.sequence_length(task.train_length)
    batch_size = max(1, 2048 // size)
    batch = task.sample(batch_size, task.train_length, generator, split="validation", causal=model.causal)
    return evaluate(model, batch, numbering.evaluate(batch_size, size, generator))
