"""Runs that differ in their seed alone, trained together before each is measured and written as if alone.

What the stack has come to is left as each run's own checkpoint. Whoever takes up the run afterwards finds its training
done, or as far as it had come when it was interrupted: together or alone, a run is the same but for rounding.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import torch
from tqdm import tqdm

from experiments.plan.plan import BadRequest, Plan, RunConfig, prepare
from experiments.plan.trained import keep_trained
from experiments.rows.untrusted import message_of
from experiments.runs.folder import clear
from experiments.runs.lease import RunLocked, acquire
from experiments.runs.record import ended_before, origin, repeatable
from experiments.training.checkpoint import Checkpoints
from experiments.training.interruption import Interruption
from experiments.training.loop import Step, check, draw, note_step
from experiments.training.parallel import Team
from experiments.training.progress import Training
from experiments.training.stacked import StackedStep

logger = logging.getLogger("pe_zoo")


@dataclass
class _Seed:
    plan: Plan
    checkpoints: Checkpoints
    run: Training
    ended: bool = False


def pays(configs: Sequence[RunConfig]) -> bool:
    """Whether the runs differ in their seed alone, train, and are faster as a stack: on a GPU.

    A search for the learning rate is many trainings of one seed, and has its own way.
    """
    if len(configs) < 2 or not configs[0].trains or configs[0].tune:
        return False
    device = configs[0].device
    return device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())


def train_together(
    configs: Sequence[RunConfig],
    *,
    force: bool = False,
    retry: str | None = None,
    checkpoint_seconds: float = 30.0,
) -> bool:
    """Train what is not yet trained, and leave it as the runs' checkpoints; `run` does the rest.

    Args:
        configs: alike but for their seed.
        force: whether runs that have ended are trained anew; their files are taken out here. Those that were
            interrupted go on all the same.
        retry: ``failed``: those that failed are trained anew.
        checkpoint_seconds: between one checkpoint and the next, at least.

    Returns:
        whether all that was to be done anew has been taken out, so that `run` must not do so again.

    Raises:
        Interrupted: it was asked to stop; what the runs have come to is saved.
    """
    interruption = Interruption()
    with ExitStack() as locks, interruption.listening(), interruption.deferred(), repeatable():
        seeds = []
        try:
            for config in configs:
                plan = prepare(config)
                with suppress(RunLocked, BadRequest):  # whoever runs it afterwards says who has it, or what is wrong
                    seed = _taken(plan, locks, interruption, force, retry, checkpoint_seconds)
                    seeds += [seed] if seed else []
        except Exception:  # likewise
            return False
        alike = [seed for seed in seeds if seed.run.log.steps == seeds[0].run.log.steps]
        if len(alike) > 1:
            try:
                _train(alike, interruption)
            except Exception as error:
                why = message_of(error)
                logger.warning("%d seeds cannot be trained at once, and are one after another: %s", len(alike), why)
    return True


def _taken(
    plan: Plan, locks: ExitStack, interruption: Interruption, force: bool, retry: str | None, every_seconds: float
) -> _Seed | None:
    """A run that is still to be trained, its folder held; None: it is not, or has its training behind it."""
    if not force and ended_before(plan, retry):
        return None
    plan.folder.mkdir(parents=True, exist_ok=True)
    lock = locks.enter_context(acquire(plan.folder))
    if not force and ended_before(plan, retry):  # by whoever held it until now
        return None
    checkpoints = Checkpoints(
        plan.folder, origin(plan, Team()), interruption, every_seconds=every_seconds, check_held=lock.check
    )
    clear(plan.folder)
    checkpoints.load()
    if "trained" in checkpoints.parts:
        return None
    run = Training(Step(plan.model().train(), plan.config.train), plan.config.seed)
    if saved := checkpoints.parts.pop("training", None):
        run.restore(saved)
    else:
        checkpoints.resumed = -1  # who takes it up first does not take it up again
    return _Seed(plan, checkpoints, run)


def _train(seeds: list[_Seed], interruption: Interruption) -> None:
    runs = [seed.run for seed in seeds]
    plan, config = seeds[0].plan, seeds[0].plan.config.train
    for run in runs:
        run.log.together = len(runs)
    stacked = StackedStep([run.step for run in runs])
    first, last = runs[0].log.steps, config.last_step
    title = f"{len(runs)} seeds of {plan.config.run_id}"
    with tqdm(total=last, initial=first, desc=title, unit="step", disable=None, leave=False) as bar:
        for done in range(first + 1, last + 1):
            drawn = [draw(run, plan.task, plan.numbering) for run in runs]
            losses = stacked([batch for batch, _ in drawn], [positions for _, positions in drawn])
            for seed, (batch, _), loss in zip(seeds, drawn, losses, strict=True):
                if not seed.ended:
                    note_step(seed.run, batch, loss, done)
                if done == config.drop_step:
                    seed.run.step.model.drop_encoder()
            bar.update()
            due = done % config.check_every == 0 or done == last
            if due or interruption.asked is not None:
                stacked.hand_out()
                for seed in [seed for seed in seeds if not seed.ended]:
                    _pause(seed, check_now=due)
                interruption.check()
            if all(seed.ended for seed in seeds):
                return


def _pause(seed: _Seed, *, check_now: bool) -> None:
    """Check a seed where that is due, and save how far it has come: for good, if its training ends here."""
    run, checkpoints = seed.run, seed.checkpoints
    if check_now:
        check(run, seed.plan.task, seed.plan.numbering)
    seed.ended = run.log.stopped is not None or run.log.status != "ok"
    try:
        if seed.ended:
            run.log.seconds = run.seconds
            keep_trained(checkpoints, run.step.model, run.log)
            checkpoints.write()
        else:
            checkpoints.save_if_due("training", run.state)
    except RunLocked:  # another worker's by now, as whoever runs it afterwards tells
        seed.ended = True
