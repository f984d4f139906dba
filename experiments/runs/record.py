"""Record a run: wrap the pipeline in a folder with lease, checkpoints, run.json, rows, figures and trackers.

A run that has ended is left alone; one that was interrupted resumes from its checkpoint.
"""

from __future__ import annotations

import logging
import signal
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import yaml

from experiments import pipeline
from experiments.model.precision import repeatable
from experiments.model.transformer import Transformer
from experiments.plan.plan import Plan
from experiments.plan.prepare import prepare
from experiments.plan.request import BadRequest, RunConfig
from experiments.rows.row import Row, frame, write_json, write_rows, write_whole
from experiments.runs import figures as run_figures
from experiments.runs.folder import clear, digest, ending, has_leftovers, log_file
from experiments.runs.lease import RunLocked, acquire
from experiments.runs.provenance import provenance
from experiments.runs.tracker import Trackers, named, tracking
from experiments.training.checkpoint import Checkpoints
from experiments.training.interruption import Interrupted, Interruption
from experiments.training.parallel import Team
from experiments.training.processes import Lost
from experiments.training.progress import TrainLog
from experiments.training.recorded import Recorded
from pe_zoo._knobs import number, one_of

logger = logging.getLogger("pe_zoo")

RETRIES = ("failed",)
"""What ``retry`` takes."""


@dataclass
class Outcome:
    """How a request to run ended.

    Args:
        status: ``ok``, ``diverged``, ``failed`` or ``interrupted``; ``finished before``, ``diverged before`` or
            ``failed before`` if there was nothing to do; ``running elsewhere`` if another worker runs it.
        run_id: of the run.
        folder: where the run's files are.
        rows: its measurements; none unless it ended well, or diverged, now.
        message: the reason, where there is one.
    """

    status: str
    run_id: str
    folder: Path
    rows: list[Row] = field(default_factory=list)
    message: str = ""


class Unwritten(OSError):
    """Results could not be written; the run itself is unharmed and resumes when started again."""


class Stopped(Interrupted):
    """Ctrl-C or SIGTERM during a run.

    Args:
        signum: which of them.
        outcome: of that run.
    """

    def __init__(self, signum: int, outcome: Outcome) -> None:
        super().__init__(signum)
        self.outcome = outcome

    def __reduce__(self) -> tuple[type[Stopped], tuple[int, Outcome]]:
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

    Args:
        config: what to run.
        force: run it again if it has ended. What was interrupted resumes all the same, and ends as if begun again.
        retry: ``failed`` runs it again if it failed.
        checkpoint_seconds: least time between two checkpoints.
        tracker: names of trackers to report to.
        figures: draw the run's own figures, also if it ended before without them.
        team: the processes that share the run, each of which calls this; None: this one alone.

    Raises:
        BadRequest: before anything is written; also if the files of a finished run were altered.
        Stopped: Ctrl-C or SIGTERM; the progress is saved, and ``outcome`` tells of it.
    """
    team = team or Team()
    team.interruption = Interruption()

    def prepared() -> Plan:
        retry is None or one_of("retry", retry, RETRIES)
        number("checkpoint_seconds", checkpoint_seconds, at_least=0)
        named(tracker)
        return prepare(replace(config, device=team.device(config.device)))

    try:
        plan = team.alike(prepared, lambda plan: (plan.config.run_id, plan.task.provenance()))
    except ValueError as error:
        raise BadRequest(str(error)) from error
    if team.rank:
        return _follow(plan, team)
    try:
        outcome = _lead(plan, team, None if force else retry or "", checkpoint_seconds, named(tracker), figures)
        if figures and outcome.status == "finished before":
            run_figures.draw_missing(plan.folder, plan.experiments)
    except (BadRequest, Stopped) as reason:
        with suppress(Lost):
            team.tell(reason)
        raise
    team.tell(outcome)
    return outcome


def _follow(plan: Plan, team: Team) -> Outcome:
    """Take part in training as process 0 directs; end the run as it does."""
    with team.interruption.listening(), team.interruption.deferred(), repeatable():
        ended = team.follow(plan.model, plan.task, plan.numbering, plan.config.seed)
    if isinstance(ended, BaseException):
        raise ended
    return ended


def _lead(
    plan: Plan, team: Team, again: str | None, seconds: float, trackers: tuple[str, ...], figures: bool
) -> Outcome:
    """Take the run's folder and run there; ``again``: which ended runs are run again, None: all."""
    folder, interruption = plan.folder, team.interruption
    ended = ended_before(plan, again)
    if ended and not has_leftovers(folder):
        return ended
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with interruption.listening(), acquire(folder) as lock:
            outcome = ended_before(plan, again)  # by the worker that had the lease until now
            checkpoints = Checkpoints(
                folder, origin(plan, team), interruption, every_seconds=seconds, check_held=lock.check
            )
            if outcome:
                checkpoints.clear()
                return outcome
            clear(folder)
            with log_file(folder) as log, tracking(trackers, plan) as tracker:
                outcome = Recording(plan, checkpoints, team, tracker).make(log, figures)
    except RunLocked as reason:
        outcome = Outcome("running elsewhere", plan.config.run_id, folder, message=str(reason))
    except OSError as error:
        raise BadRequest(f"results cannot be written: {str(folder)!r}: {error.strerror or error}") from error
    if outcome.status == "interrupted" or interruption.asked is not None:
        raise Stopped(interruption.asked or signal.SIGINT, outcome)
    return outcome


def ended_before(plan: Plan, again: str | None) -> Outcome | None:
    """Return the outcome of a run that has ended before and is not to be run again.

    Args:
        plan: of the run.
        again: status of the ended runs to run again (blank: none); None: all.

    Raises:
        BadRequest: see `ending`.
    """
    record = None if again is None else ending(plan.folder)
    if record is None or record["status"] == again:
        return None
    status = {"ok": "finished before"}.get(record["status"], f"{record['status']} before")
    return Outcome(status, plan.config.run_id, plan.folder, message=str(record.get("message", "")))


def origin(plan: Plan, team: Team) -> dict[str, Any]:
    """Return what must be the same for a checkpoint to be resumed: otherwise the end would differ in some bit."""
    return {
        "config": plan.config.identity(),
        "corpus": plan.task.provenance(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "processes": team.size,
        "device": _device_name(plan),
    }


class Recording(Recorded):
    """A run being made and written.

    Args:
        plan: of the run.
        checkpoints: in its folder.
        team: the processes that share its training.
        trackers: to report to.
    """

    def __init__(self, plan: Plan, checkpoints: Checkpoints, team: Team, trackers: Trackers) -> None:
        super().__init__(checkpoints, team, trackers.watch)
        self.plan, self.trackers = plan, trackers
        self.interruption = checkpoints.interruption
        self.training = ExitStack()
        checkpoints.load()
        self.record = _opening(plan) | {"processes": team.size, "resumed": checkpoints.resumed}

    def make(self, log: logging.Handler, figures: bool) -> Outcome:
        """Train, measure and write; however the run ends is recorded.

        Raises:
            RunLocked: another worker has taken the run over; nothing more was written.
        """
        checkpoints, folder = self.checkpoints, self.plan.folder
        outcome = Outcome("failed", self.plan.config.run_id, folder)
        try:
            with self._writing():
                text = yaml.safe_dump(self.plan.config.identity(), sort_keys=False, allow_unicode=True)
                write_whole(folder / "config.yaml", text)
                write_json(folder / "run.json", self.record)
            with self.training:
                self.training.enter_context(self.interruption.deferred())
                outcome.rows = pipeline.execute(self.plan, self)
            self.result["measure_seconds"] = round(time.perf_counter() - self.measuring, 3)
            with self.interruption.deferred(), self._writing():
                self._finish(outcome, figures)
        except KeyboardInterrupt as stopped:
            outcome.status = "interrupted"
            self.record |= {"status": "interrupted", "message": str(stopped) or "interrupted from the keyboard"}
            if "trained" in checkpoints.parts:  # an interrupted training has written its checkpoint itself
                checkpoints.write()
        except RunLocked:
            raise
        except Unwritten as error:
            logger.error("%s", error)
            outcome.status = "unwritten"
            self.record |= {"status": "interrupted", "message": str(error)}
        except Exception as error:
            log.emit(logging.makeLogRecord({"msg": traceback.format_exc(), "levelname": "ERROR"}))
            self.record |= {"status": "failed", "message": f"{type(error).__name__}: {error}"}
        if outcome.status in ("interrupted", "unwritten", "failed"):
            outcome.rows = []
            try:
                with self.interruption.deferred(), self._writing():
                    self._close()
            except Unwritten as error:
                logger.error("the end of %s cannot be recorded: %s", outcome.run_id, error)
        outcome.message = self.record["message"]
        return outcome

    def trained(self, model: Transformer, log: TrainLog) -> None:
        """Save the trained model; from here on a signal stops the run at once."""
        config = self.plan.config
        if config.trains:
            super().trained(model, log)
        self.trackers.trained(log)
        self.training.close()
        self.interruption.check()
        if config.trains:
            with self._writing():
                write_whole(self.plan.folder / "model.safetensors", safetensors.torch.save(model.state_dict()))
        self.result = _result(self.plan, model, log)
        self.measuring = time.perf_counter()

    def _finish(self, outcome: Outcome, figures: bool) -> None:
        folder = self.plan.folder
        write_rows(folder / "rows.csv", outcome.rows)
        if figures:
            run_figures.draw(folder, frame(outcome.rows), self.plan.experiments)
        self.record |= self.result | {"rows_sha256": digest(folder)}
        outcome.status = self.record["status"]
        self._close()
        self.checkpoints.clear()
        self.trackers.results(outcome.rows, self.record["steps"] or 0)

    def _close(self) -> None:
        self.checkpoints.check_held()  # drawing figures may have taken a while
        self.record["finished"] = datetime.now(UTC).isoformat(timespec="seconds")
        write_json(self.plan.folder / "run.json", self.record)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Report an error within as the disk's, not the run's.

        Raises:
            RunLocked: another worker has the run's lease.
            Unwritten: writing failed.
        """
        self.checkpoints.check_held()
        try:
            yield
        except OSError as error:
            place = str(self.plan.folder)
            raise Unwritten(f"results cannot be written: {place!r}: {error.strerror or error}") from error


def _opening(plan: Plan) -> dict[str, Any]:
    labels = plan.config.labels()
    return {
        "run_id": plan.config.run_id,
        "status": "running",
        "message": "",
        "encoder": labels["encoder"],
        "choice": plan.config.choice,
        "positions": labels["positions"],
        "layout": str(plan.config.layout),
        "task": labels["task"],
        "seed": plan.config.seed,
        "torch": torch.__version__,
        **provenance(),
        "device": _device_name(plan),
        "precision": plan.precision,
        "threads": torch.get_num_threads(),
        "corpus": plan.task.provenance(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _result(plan: Plan, model: Transformer, log: TrainLog) -> dict[str, Any]:
    trains, (own, trunk) = plan.config.trains, model.num_parameters()
    return {
        "status": log.status,
        "message": log.divergence if log.status == "diverged" else "",
        "model_parameters": trunk,
        "encoder_parameters": own,
        "trained": trains,
        "steps": log.steps if trains else None,
        "stopped": log.stopped,
        "seeds_together": log.together,
        "tuning": log.tuning and log.tuning.record(),
        "train_seconds": round(log.seconds, 3),
        "tokens_per_second": round(log.tokens / log.seconds, 1) if log.tokens else None,
        "final_loss": log.final_loss,
        "in_range": log.quality.get(plan.task.metrics[0]),
        "converged": (plan.task.has_converged(log.quality) if log.quality else False) if trains else None,
    }


def _device_name(plan: Plan) -> str:
    return torch.cuda.get_device_name(plan.device) if plan.device.type == "cuda" else str(plan.device)
