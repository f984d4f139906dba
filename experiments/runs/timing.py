"""How long the parts of a run take, timed here: a few training steps, a check, and a part of each measurement."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from statistics import fmean
from typing import NamedTuple

import torch

from experiments import pipeline
from experiments.measures.length_extrapolation import NAME as OVER_LENGTHS
from experiments.model.precision import repeatable
from experiments.plan.plan import Plan
from experiments.plan.prepare import prepare
from experiments.plan.request import RunConfig
from experiments.training.graphs import WARM
from experiments.training.heartbeat import counted
from experiments.training.log import TrainLog
from experiments.training.progress import Training
from experiments.training.step import Step

STEPS, SECONDS = 4, 0.5
"""A step is repeated this often at least, and for this long."""
OPERATIONS = 2e10
"""Of a timed step on a CPU: of a larger batch only as many sequences are taken, and the time of all follows."""
PART, TIMES = 32.0, 4.0
"""A measurement is timed with one in `PART` samples, then with `TIMES` as many, to tell what grows with them."""
SHORT = 8.0
"""Seconds up to which all of it is timed."""
MOST = 60.0
"""Seconds after which the timing of a measurement of a model from outside ends: what it takes at the least is known."""
FEWEST = 8
"""Samples of a timed measurement, at least: in tokens, the longest sequences are as long."""


class Speed(NamedTuple):
    """Seconds of the parts of a run, tokens of a mean training step, parameters of model and encoder, and its text."""

    preparing: float
    step: float
    check: float
    measuring: float
    beyond: float
    """Of what a search for a learning rate measures beyond the training length, at each rate."""
    tokens: float
    parameters: float
    wait: float
    """Seconds that pass for each second of work beside what else runs here; 1 where the clock does not tell."""
    text: float = 0.0
    """Tokens of the text to train on; 0 without one."""
    least: float = 0.0
    """Above 0 where timing was ended, so that measuring takes longer than told."""


class _Enough(Exception):
    """Ends a measurement that is timed: its parts that have begun, and all of them."""

    def __init__(self) -> None:
        self.begun, self.parts = counted()


def timed(config: RunConfig) -> Speed:
    """Time a run's parts; BadRequest if it cannot be run."""
    prepare(config)  # reads the text, which other runs of the process find read
    with repeatable(config.threads):
        plan = prepare(config)
        clock, began = _clock(plan), (time.process_time(), time.perf_counter())
        preparing = _seconds(clock, lambda: prepare(config))
        parameters = sum(plan.model().num_parameters())
        step, tokens, check = _training(plan, clock) if config.trains else (0.0, 0.0, 0.0)
        (measuring, least), beyond = _measuring(plan, clock), 0.0
        if config.tune and (knobs := plan.config.experiments.get(OVER_LENGTHS)):
            forced = replace(plan.config, experiments={OVER_LENGTHS: knobs | {"generated": 0}})
            beyond, _ = _measuring(replace(plan, config=forced), clock)
        wait = (time.perf_counter() - began[1]) / (time.process_time() - began[0])
        wait = max(1.0, wait) if clock is time.process_time else 1.0
        parts = preparing, step, check, measuring, beyond, tokens, parameters, wait, plan.task.text_length
        return Speed(*parts, least)


def _training(plan: Plan, clock: Callable[[], float]) -> tuple[float, float, float]:
    """Return seconds and tokens of a mean training step, and seconds of an in-range check."""
    wanted, model = plan.config.train.tokens_per_step, plan.model().train()
    most = int(OPERATIONS / (6 * model.num_parameters()[1])) if plan.device.type == "cpu" else wanted
    step = Step(model, replace(plan.config.train, tokens_per_step=max(1, min(most, wanted))))
    run = Training(step, plan.task, plan.numbering, plan.config.seed)
    on_gpu = plan.device.type == "cuda"
    for _ in range(WARM + 2 if on_gpu else 1):  # allocates the optimizer's moments; a GPU records the step
        run.advance()
    seconds, tokens = list[float](), list[float]()
    while len(seconds) < STEPS or sum(seconds) < SECONDS:
        began = clock()
        batch, positions = run.draw()
        run.note(batch, (step if on_gpu else step.gradient)(batch, positions))
        between = clock()
        if not on_gpu:
            step.update()
        ended = clock()
        size = batch.tokens.shape[1]
        tokens.append(max(1, wanted // size) * size)
        seconds.append((between - began) * tokens[-1] / batch.tokens.numel() + ended - between)
    return fmean(seconds), fmean(tokens), _seconds(clock, run.check)


def _measuring(plan: Plan, clock: Callable[[], float]) -> tuple[float, bool]:
    """Return seconds of all measurements, of the model before training: in full where short, else from a part.

    And whether they are the least, as the timing of a large model from outside was ended.
    """
    model, total, least = plan.model(), 0.0, False
    subject = plan.subject(model, TrainLog())

    def seconds(name: str, share: float) -> float:
        given = plan.config.experiments[name]
        fewer = {knob: round(given[knob] / share) for knob in ("samples", "generated") if given.get(knob)}
        if steps := given.get("fine_tuning_share"):
            fewer["fine_tuning_share"] = steps / share
        measured = replace(plan, config=replace(plan.config, experiments={name: given | fewer}))
        return _seconds(clock, lambda: pipeline.attempt(name, subject, measured, TrainLog()))

    for name, given in plan.config.experiments.items():
        most = max(1.0, (given.get("samples") or 0) / FEWEST)
        small = min(PART, most)
        large = max(1.0, small / TIMES)
        try:
            with _limited(model, clock) if plan.guest else nullcontext():
                found = first = seconds(name, small)
        except _Enough as ended:  # the part that was under way counts as whole
            total, least = total + MOST * small * max(1, ended.parts) / max(1, ended.begun), True
            continue
        if large < small:
            found = seconds(name, large)
            growing = max(0.0, found - first) / (1 / large - 1 / small)
            found += (1 - 1 / large) * growing
        total += seconds(name, 1.0) if large > 1 and found < SHORT else found
    return total, least


@contextmanager
def _limited(model: torch.nn.Module, clock: Callable[[], float]) -> Iterator[None]:
    """Raise `_Enough` before a pass of the model that begins too late."""
    ends = clock() + MOST

    def check(*_: object) -> None:
        if clock() > ends:
            raise _Enough

    hook = model.register_forward_pre_hook(check)
    try:
        yield
    finally:
        hook.remove()


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
