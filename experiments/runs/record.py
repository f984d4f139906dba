"""Record a run: wrap the pipeline in a folder with lease, checkpoints, run.json, rows, figures and trackers.

A run that has ended is left alone; one that was interrupted resumes from its checkpoint.
"""

import signal
from contextlib import suppress
from dataclasses import replace

from experiments.model.precision import repeatable
from experiments.plan.plan import Plan
from experiments.plan.prepare import prepare
from experiments.plan.refusal import BadRequest, refusing
from experiments.plan.request import RunConfig
from experiments.runs.folder import clear, draw_missing_figures, ending, has_leftovers, log_file
from experiments.runs.lease import RunLocked, acquire
from experiments.runs.outcome import Outcome, Recording, status_before
from experiments.runs.provenance import machine
from experiments.runs.tracker import known_trackers, tracking
from experiments.training.checkpoint import Checkpoints
from experiments.training.interruption import Interrupted, Interruption
from experiments.training.parallel import Team
from experiments.training.processes import Lost
from pe_zoo._knobs import number, one_of


class Stopped(Interrupted):
    """Ctrl-C or SIGTERM during a run, with the outcome of that run."""

    def __init__(self, signum: int, outcome: Outcome) -> None:
        super().__init__(signum)
        self.outcome = outcome

    def __reduce__(self) -> tuple[object, tuple[int, Outcome]]:
        return type(self), (self.signum, self.outcome)


def run(
    config: RunConfig,
    *,
    force: bool = False,
    retry: str | None = None,
    checkpoint_seconds: float = 30.0,
    tracker: object = None,
    figures: bool = True,
    team: Team | None = None,
) -> Outcome:
    """Run a request in ``results/<name>/runs/<run_id>/``, unless it has ended there before.

    The options are those of `help.OPTIONS`; each process of a team calls this. What was interrupted resumes even with
    ``force``, and ends as if begun again.

    Raises:
        BadRequest: before anything is written; also if the files of a finished run were altered.
        Stopped: Ctrl-C or SIGTERM; the progress is saved, and ``outcome`` says how the run stands.
    """
    team = team or Team()
    team.interruption = Interruption()

    def prepared() -> Plan:
        retry is None or one_of("retry", retry, ["failed"])
        number("checkpoint_seconds", checkpoint_seconds, at_least=0)
        known_trackers(tracker)
        return prepare(replace(config, device=team.device(config.device)))

    with refusing():
        plan = team.alike(prepared, lambda plan: (plan.config.run_id, plan.task.provenance()))
    if team.rank:  # train as process 0 directs, and end as it does
        with team.interruption.listening(), team.interruption.deferred(), repeatable(plan.config.threads):
            ended = team.follow(plan.model, plan.task, plan.numbering, plan.config.seed)
        if isinstance(ended, BaseException):
            raise ended
        return ended
    try:
        outcome = _lead(plan, team, None if force else retry or "", checkpoint_seconds, tracker, figures)
    except (BadRequest, Stopped) as reason:
        with suppress(Lost):
            team.broadcast(reason)
        raise
    team.broadcast(outcome)
    return outcome


def _lead(plan: Plan, team: Team, again: str | None, seconds: float, trackers: object, figures: bool) -> Outcome:
    """Take the run's folder and run there; ``again``: see `_ended_before`."""
    folder, interruption = plan.config.folder, team.interruption
    outcome = _ended_before(plan, again)
    if outcome is None or has_leftovers(folder):
        # What must be the same for a checkpoint to be resumed: otherwise the end would differ in some bit.
        origin = {"config": plan.config.identity(), "processes": team.size, **machine(plan)}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with interruption.listening(), acquire(folder) as check_lease:
                checkpoints = Checkpoints(folder, origin, interruption, seconds, check_lease)
                if outcome := _ended_before(plan, again):  # by the worker that had the lease until now
                    checkpoints.clear()
                else:
                    clear(folder)
                    with log_file(folder) as log, tracking(known_trackers(trackers), plan) as tracker:
                        outcome = Recording(plan, checkpoints, team, tracker).make(log, figures)
        except RunLocked as reason:
            outcome = Outcome("running elsewhere", plan.config.run_id, folder, message=str(reason))
        except OSError as error:
            raise BadRequest(f"results cannot be written: {str(folder)!r}: {error.strerror or error}") from error
        if outcome.status == "interrupted" or interruption.signum is not None:
            raise Stopped(interruption.signum or signal.SIGINT, outcome)
    if figures and outcome.status == "finished before":
        draw_missing_figures(folder)
    return outcome


def _ended_before(plan: Plan, again: str | None) -> Outcome | None:
    """Return the outcome of a run that has ended, unless its status is to be run ``again`` (blank: none; None: all)."""
    record = None if again is None else ending(plan.config.folder)
    if record is None or record["status"] == again:
        return None
    message = str(record.get("message", ""))
    return Outcome(status_before(record["status"]), plan.config.run_id, plan.config.folder, message=message)
