"""How long the parts of a run take, timed here: a few training steps, a check, and a part of each measurement."""

import time
from collections.abc import Callable
from dataclasses import replace
from statistics import fmean
from typing import NamedTuple

import torch

from experiments import pipeline
from experiments.model.precision import repeatable
from experiments.plan.plan import Plan
from experiments.plan.prepare import prepare
from experiments.plan.request import RunConfig
from experiments.training.log import TrainLog
from experiments.training.progress import Training
from experiments.training.step import Step

STEPS, SECONDS = 4, 0.5
"""A step is repeated this often at least, and for this long."""
OPERATIONS = 2e10
"""Of a timed step on a CPU: of a larger batch only as many sequences are taken, and the time of all follows."""
LARGE = 2e6
"""Parameters from which on a CPU a smaller part of the measurements is timed."""
FEWEST = 8
"""Samples of a timed measurement, at least: in tokens, the longest sequences are as long."""


class Speed(NamedTuple):
    """Seconds of the parts of a run, the tokens of a mean training step, and the parameters of model and encoder."""

    preparing: float
    step: float
    check: float
    measuring: float
    tokens: float
    parameters: float


def timed(config: RunConfig) -> Speed:
    """Time a run's parts; BadRequest if it cannot be run."""
    prepare(config)  # reads the text, which other runs of the process find read
    with repeatable(config.threads):
        plan = prepare(config)
        clock = _clock(plan)
        preparing = _seconds(clock, lambda: prepare(config))
        parameters = sum(plan.model().num_parameters())
        step, tokens, check = _training(plan, clock) if config.trains else (0.0, 0.0, 0.0)
        part = 32 if parameters > LARGE and plan.device.type == "cpu" else 4
        return Speed(preparing, step, check, _measuring(plan, clock, part), tokens, parameters)


def _training(plan: Plan, clock: Callable[[], float]) -> tuple[float, float, float]:
    """Return seconds and tokens of a mean training step, and seconds of an in-range check."""
    wanted, model = plan.config.train.tokens_per_step, plan.model().train()
    most = int(OPERATIONS / (6 * model.num_parameters()[1])) if plan.device.type == "cpu" else wanted
    step = Step(model, replace(plan.config.train, tokens_per_step=max(1, min(most, wanted))))
    run = Training(step, plan.task, plan.numbering, plan.config.seed)
    run.advance()  # allocates the optimizer's moments
    seconds, tokens = list[float](), list[float]()
    while len(seconds) < STEPS or sum(seconds) < SECONDS:
        began = clock()
        batch, positions = run.draw()
        run.note(batch, step.gradient(batch, positions))
        between = clock()
        step.update()
        ended = clock()
        size = batch.tokens.shape[1]
        tokens.append(max(1, wanted // size) * size)
        seconds.append((between - began) * tokens[-1] / batch.tokens.numel() + ended - between)
    return fmean(seconds), fmean(tokens), _seconds(clock, run.check)


def _measuring(plan: Plan, clock: Callable[[], float], part: int) -> float:
    """Return seconds of all measurements, from one in ``part`` of their samples, of the model before training."""
    subject, total = plan.subject(plan.model(), TrainLog()), 0.0
    for name, given in plan.config.experiments.items():
        samples = given.get("samples") or 0
        share = max(1.0, min(part, samples / FEWEST))
        fewer = {knob: round(given[knob] / share) for knob in ("samples", "generated") if given.get(knob)}
        measured = replace(plan, config=replace(plan.config, experiments={name: given | fewer}))
        total += share * _seconds(clock, lambda: pipeline.attempt(name, subject, measured, TrainLog()))  # noqa: B023
    return total


def _seconds(clock: Callable[[], float], do: Callable[[], object]) -> float:
    began = clock()
    do()
    return clock() - began


def _clock(plan: Plan) -> Callable[[], float]:
    """Return the time of this process alone where it computes in one thread, which other programs do not lengthen."""
    if plan.device.type == "cpu":
        return time.process_time if plan.config.threads == 1 else time.perf_counter

    def synchronised() -> float:
        if plan.device.type == "cuda":
            torch.cuda.synchronize(plan.device)
        return time.perf_counter()

    return synchronised
