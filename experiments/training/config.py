"""How a model is trained: the options of ``train.*``, their ranges, and when training ends."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Self

from experiments.model.precision import AUTO, PRECISIONS
from pe_zoo._knobs import Count, Positive, Share, check_value, knobs, number, one_of, true_or_false, whole

TUNED_RATES = (3e-4, 1e-3, 3e-3)
"""Default peak learning rates of ``tune=true``: the usual one, and half a decade either way."""
ROUNDS = 4


@dataclass(kw_only=True)
class TrainConfig:
    """How a model is trained.

    Args:
        steps: optimizer steps of a round, at least 0; 0 trains nothing and leaves the model as it was initialised.
        tokens_per_parameter: tokens of a round for each parameter of the trunk's layers, above 0; ``steps`` follow from
            it and ``tokens_per_step``, whatever they are given as. null: ``steps`` are as given.
        rounds: most rounds, at least 1. Training goes on for another round, whose learning rate rises and falls again
            (warm restarts, Loshchilov and Hutter, 2017, arXiv:1608.03983), as long as the last in-range check of a
            round says that the task was not learned. null: ``ROUNDS``, or 1 with ``drop_encoder_after`` or
            ``max_steps``, which say themselves when training ends.
        tokens_per_step: tokens in a batch, at least 1; a batch of short sequences has more of them.
        learning_rate: the peak, above 0.
        warmup: share of the steps in which the rate rises to the peak, in [0, 1); it falls to 0 along a cosine.
        beta2: Adam's second decay, in (0, 1).
        weight_decay: at least 0; on the trunk's matrices only, never on embeddings, norms or the encoder.
        gradient_clip: largest norm of the gradient, above 0.
        curve_points: how often a round records loss and in-range accuracy, at least 1.
        drop_encoder_after: share of the steps after which the model goes without its encoder, for the rest of the
            training (the recalibration) and all of the evaluation, in (0, 1]; null: never. DroPE, Gelberg et al.
            (2025), arXiv:2512.12167, §5.1 and App. C: 0.875 there, of the same number of steps in all. The rate
            rises and falls once before the drop and once after it, warm-up being the same share of either part.
            The paper drops it from a model in the middle of a cosine over all steps; Adam's moments are kept here.
        recalibration_learning_rate: the peak after the drop, above 0; null: ``learning_rate``. In the paper 10/3 of
            the first.
        max_steps: steps after which training ends although the learning rate is laid out for ``steps``, at least 1
            and below those; null: none.
        stop_at_convergence: whether training ends once the task counts as learned at two in-range checks running (of
            many checks, one may be lucky), as the model will be measured: after the drop, where there is one. Lengths
            beyond are never looked at.
        precision: what the layers' matrices are multiplied in while training, one of ``PRECISIONS``: ``bfloat16`` (the
            weights, their moments, norms, angles, scores and the softmax stay in float32; on a GPU, attention without
            a bias does not), ``float32``, or ``auto``: bfloat16 where it is faster. Evaluation is in float32.
        learning_rates: with ``tune=true``, the peaks that are tried in place of ``learning_rate``, each above 0;
            null: ``TUNED_RATES``.
    """

    steps: Annotated[int, partial(whole, at_least=0)] = 1600
    tokens_per_parameter: float | None = None
    rounds: Count | None = None
    tokens_per_step: Count = 256
    learning_rate: Positive = 1e-3
    warmup: Annotated[float, partial(number, at_least=0, below=1)] = 0.1
    beta2: Annotated[float, partial(number, above=0, below=1)] = 0.98
    weight_decay: Annotated[float, partial(number, at_least=0)] = 0.01
    gradient_clip: Positive = 1.0
    curve_points: Count = 20
    drop_encoder_after: Share | None = None
    recalibration_learning_rate: Positive | None = None
    max_steps: Count | None = None
    stop_at_convergence: Annotated[bool, true_or_false] = False
    precision: Annotated[str, partial(one_of, allowed=PRECISIONS)] = AUTO
    learning_rates: list[float] | None = None

    def check(self) -> None:
        """Refuse values out of range, and options that others make useless."""
        for name, knob in knobs(type(self)).items():
            check_value(f"train.{name}", knob.limited, getattr(self, name))
        if self.max_steps is not None and self.max_steps >= self.steps:
            raise ValueError(
                f"train.max_steps={self.max_steps} changes nothing unless below train.steps={self.steps}, which the "
                f"learning rate is laid out for; lower it or leave it out"
            )
        for name in ("drop_encoder_after", "max_steps"):
            if (self.rounds or 1) > 1 and getattr(self, name) is not None:
                raise ValueError(f"train.rounds={self.rounds} does not go with train.{name}: leave one out")
        if self.drop_step is not None:
            if not self.steps:
                raise ValueError("train.drop_encoder_after changes nothing without training; set train.steps above 0")
            if self.drop_step > self.last_step:
                raise ValueError(
                    f"train.drop_encoder_after={self.drop_encoder_after} would drop the encoder after {self.drop_step} "
                    f"steps, but train.max_steps={self.max_steps} ends before; lower the one or raise the other"
                )
        if self.recalibration_learning_rate is not None and self.drop_step in (None, self.last_step):
            raise ValueError(
                f"train.recalibration_learning_rate={self.recalibration_learning_rate} changes nothing where no "
                f"step follows the drop; set train.drop_encoder_after below 1"
            )
        if self.stop_at_convergence:
            earliest = self.check_every + max(self.check_every, self.drop_step or 0)
            if -(-earliest // self.check_every) * self.check_every >= (last := self.max_steps or self.steps):
                raise ValueError(
                    f"train.stop_at_convergence=true changes nothing: no two in-range checks come before the last of "
                    f"{last} steps; raise train.curve_points or train.steps"
                )

    def laid_out(self, parameters: int) -> Self:
        """Return the same with its number of steps, for the number of parameters in its trunk's layers."""
        if self.tokens_per_parameter is None:
            return self
        whole("train.tokens_per_step", self.tokens_per_step, at_least=1)
        tokens = number("train.tokens_per_parameter", self.tokens_per_parameter, above=0) * parameters
        return replace(self, steps=max(1, round(tokens / self.tokens_per_step)), tokens_per_parameter=None)

    @property
    def last_step(self) -> int:
        """The step after which training ends, unless the task counts as learned before."""
        return self.max_steps or self.steps * self.most_rounds

    @property
    def most_rounds(self) -> int:
        return self.rounds or (ROUNDS if self.drop_encoder_after is self.max_steps is None else 1)

    @property
    def check_every(self) -> int:
        """Steps between two in-range checks; the last step of a round has one too."""
        return max(1, self.steps // self.curve_points)

    def is_checked(self, done: int) -> bool:
        return done % self.steps % self.check_every == 0 or done == self.last_step

    def ends(self, done: int, learned: bool, before: bool) -> str | None:
        """Return what ends training at a check: ``steps``, ``max_steps``, ``converged`` or None.

        ``before``: whether the task counted as learned at the check before, too.
        """
        if done == self.last_step or (learned and done % self.steps == 0):
            return "steps" if self.max_steps is None else "max_steps"
        after_drop = done - self.check_every >= (self.drop_step or 0)
        return "converged" if self.stop_at_convergence and learned and before and after_drop else None

    @property
    def drop_step(self) -> int | None:
        """The step after which the encoder is dropped; None: never."""
        return None if self.drop_encoder_after is None else max(1, round(self.drop_encoder_after * self.steps))
