"""One optimizer step. To change the optimizer or its schedule, change this file alone."""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from experiments.model.precision import BFLOAT16, products_in, resolved
from experiments.model.transformer import Transformer
from experiments.tasks import Batch
from experiments.training.adamw import AdamW
from experiments.training.config import TrainConfig
from experiments.training.graphs import recorded
from experiments.training.loss import mean_loss


class Step:
    """Optimizer steps: AdamW, warm-up and cosine in each round (and after a dropped encoder), gradient clipping."""

    def __init__(self, model: Transformer, config: TrainConfig) -> None:
        self.model = model
        self.config = config
        device = model.token_embedding.weight.device.type
        precision = resolved(config.precision, device, model.geometry.model_dim)
        self.dtype = torch.bfloat16 if precision == BFLOAT16 else None
        model.train_in(self.dtype)
        trunk = model.trunk_parameters()
        decayed = [p for name, p in trunk if p.ndim >= 2 and not name.startswith("token_embedding.")]
        chosen = {id(p) for p in decayed}
        spared = [p for p in model.parameters() if id(p) not in chosen]
        groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": spared, "weight_decay": 0.0}]
        self.optimizer = AdamW(groups, config.beta2)
        self.taken = 0
        self._computed = recorded(self._compute, device)

    @property
    def taken(self) -> int:
        """How many steps were taken, which decides the learning rate of the next."""
        return self._taken

    @taken.setter
    def taken(self, steps: int) -> None:
        self._taken = steps
        self.optimizer.set_rate(self.config.learning_rate * self.share_of_peak(steps))

    def share_of_peak(self, step: int) -> float:
        """Return the learning rate after ``step`` steps, as a share of its peak."""
        steps, dropped = self.config.steps, self.config.drop_step or self.config.steps
        if dropped == steps:
            return self._rise_and_fall(step % steps, steps)
        if step < dropped:
            return self._rise_and_fall(step, dropped)
        peak = self.config.recalibration_learning_rate or self.config.learning_rate
        return peak / self.config.learning_rate * self._rise_and_fall(step - dropped, steps - dropped)

    def _rise_and_fall(self, step: int, steps: int) -> float:
        warmup = self.config.warmup * steps
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warmup) / (steps - warmup))))

    def __call__(self, batch: Batch, positions: Tensor | None = None) -> Tensor:
        """Take one step; return the batch's mean loss in nats per counted token, detached."""
        given = () if positions is None else (positions,)
        loss = self._computed(batch.tokens, batch.targets, batch.counted, *given, state=self.model.encoder_dropped)
        self.taken += 1
        return loss

    def _compute(self, tokens: Tensor, targets: Tensor, counted: Tensor, *positions: Tensor) -> Tensor:
        loss = self.gradient(Batch(tokens, targets, counted), *positions)
        self._apply()
        return loss

    def gradient(self, batch: Batch, positions: Tensor | None = None) -> Tensor:
        """Compute the gradient of the batch's mean loss; return the detached loss."""
        self.optimizer.zero_grad()
        with products_in(self.dtype, self.model.encoder, batch.tokens.device.type):
            loss = mean_loss(self.model, batch, positions)
            loss.backward()
        return loss.detach()

    def update(self) -> None:
        """Go along the gradient, clipped."""
        self._apply()
        self.taken += 1

    def _apply(self) -> None:
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.gradient_clip, foreach=True)
        self.optimizer.step()


def next_token(tokens: Tensor) -> Batch:
    """Return tokens, ``(batch, length)`` int64, as a batch: every token but the first is predicted."""
    return Batch(tokens, tokens.roll(-1, 1), torch.arange(tokens.shape[1]) < tokens.shape[1] - 1).to(tokens.device)


def make_train_step(model: Transformer, tokens: Tensor) -> Callable[[], Tensor]:
    """Return a function that takes one optimizer step, as the trainer does, and returns its loss; for timing.

    The model is on its device, in training mode; every token, ``(batch, length)`` int64, but the first is predicted.
    """
    return partial(Step(model, TrainConfig()), next_token(tokens))
