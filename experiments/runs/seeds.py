"""Train runs that differ only in their seed together, then measure and write each as if it had been alone.

The stack's progress is left as each run's own checkpoint, so `record.run` finds the training done, or as far as it was
when interrupted. Together or alone, a run is the same up to rounding.
"""

import logging
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import torch

from experiments.model.precision import repeatable
from experiments.plan.plan import Plan
from experiments.plan.prepare import prepare
from experiments.plan.refusal import BadRequest
from experiments.plan.request import RunConfig
from experiments.rows.untrusted import message_of
from experiments.runs.lease import RunLocked
from experiments.runs.outcome import Outcome
from experiments.runs.record import ended_before, taken
from experiments.training import heartbeat
from experiments.training.interruption import Interruption
from experiments.training.loop import Session
from experiments.training.parallel import Team
from experiments.training.progress import Training
from experiments.training.stacked import StackedStep
from experiments.training.step import Step

logger = logging.getLogger("pe_zoo")


@dataclass
class _Seed:
    plan: Plan
    session: Session
    run: Training
    ended: bool = False


def pays(configs: Sequence[RunConfig]) -> bool:
    """Return whether runs that differ only in their seed train, each once, and are faster as a stack: on a GPU."""
    if len(configs) < 2 or not configs[0].trains or configs[0].tune:
        return False
    device = configs[0].device
    return device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())


def train_together(configs: Sequence[RunConfig], again: str | None, checkpoint_seconds: float) -> bool:
    """Train what is not yet trained and leave it as the runs' checkpoints; `record.run` does the rest.

    Tasks with several training lengths are left to it: seeds draw different lengths, which makes no stack. So are runs
    that are measured in the middle of training.

    Return whether the files of all runs to be run again have been removed, so that `record.run` must not do so again.
    """
    interruption = Interruption()
    with ExitStack() as leases, interruption.listening(), interruption.deferred(), repeatable(configs[0].threads):
        seeds = []
        try:
            for config in configs:
                plan = prepare(config)
                if plan.task.min_length < plan.task.train_length or plan.pauses:
                    return False
                with suppress(RunLocked, BadRequest):  # reported by `record.run` afterwards
                    seed = _take(plan, leases, Team(interruption=interruption), again, checkpoint_seconds)
                    seeds += [seed] if seed else []
        except Exception:  # likewise
            return False
        alike = [seed for seed in seeds if seed.run.log.steps == seeds[0].run.log.steps]
        if len(alike) > 1:
            try:
                _train(alike, interruption)
            except Exception as error:
                reason = message_of(error)
                logger.warning("%d seeds cannot be trained together; training in turn: %s", len(alike), reason)
    return True


def _take(plan: Plan, leases: ExitStack, team: Team, again: str | None, seconds: float) -> _Seed | None:
    """Take the lease of a run that still has to be trained; None: it does not."""
    if ended_before(plan, again):
        return None
    checkpoints = leases.enter_context(taken(plan, again, seconds, team))
    if isinstance(checkpoints, Outcome):
        return None
    checkpoints.load()
    if "trained" in checkpoints.parts:
        return None
    run = Training(Step(plan.model().train(), plan.config.train), plan.task, plan.numbering, plan.config.seed)
    if saved := checkpoints.parts.pop("training", None):
        run.restore(saved)
    else:
        checkpoints.resumed = -1  # the first to load this checkpoint does not resume an interrupted run
    return _Seed(plan, Session(checkpoints, team), run)


def _train(seeds: list[_Seed], interruption: Interruption) -> None:
    runs, config = [seed.run for seed in seeds], seeds[0].plan.config.train
    for run in runs:
        run.log.together = len(runs)
    stacked = StackedStep([run.step for run in runs])
    first, last = runs[0].log.steps, config.last_step
    title = f"{len(runs)} seeds of {seeds[0].plan.config.run_id}"
    with heartbeat.doing(lambda: f"{title}: {runs[0]}", runs[0].share_of_round):
        for done in range(first + 1, last + 1):
            batches, positions = zip(*(run.draw() for run in runs), strict=True)
            for seed, batch, loss in zip(seeds, batches, stacked(batches, positions), strict=True):
                if not seed.ended:
                    seed.run.note(batch, loss)
            due = config.is_checked(done)
            if due or interruption.signum is not None:
                stacked.distribute()
                for seed in [seed for seed in seeds if not seed.ended]:
                    _pause(seed, check_now=due)
                interruption.check()
            if all(seed.ended for seed in seeds):
                return


def _pause(seed: _Seed, *, check_now: bool) -> None:
    """Check a seed if that is due, and save its progress; for good, if its training ends here."""
    run, session = seed.run, seed.session
    if check_now:
        run.check()
    seed.ended = run.ended
    try:
        if seed.ended:
            run.log.seconds = run.seconds
            session.trained(run.step.model, run.log)
            session.checkpoints.write()
        else:
            session.checkpoints.save_if_due("training", run.state)
    except RunLocked:  # another worker has the lease by now, and `record.run` reports it
        seed.ended = True
