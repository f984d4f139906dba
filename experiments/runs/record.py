"""run(config) → rows. Read this first: config → plan (task, encoder, model) → train → measure → rows, on disk."""

from __future__ import annotations

import logging
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors.torch
import torch
import yaml

from experiments.measures import report_of
from experiments.plan.plan import BadRequest, Plan, RunConfig, prepare
from experiments.plan.trained import how_it_diverged, trained, training_rows, tuning_rows
from experiments.rows.read import read_run
from experiments.rows.row import Row, frame, write_json, write_rows, write_whole
from experiments.runs.folder import clear, digest, ending, has_leftovers, log_file
from experiments.runs.lease import RunLocked, acquire
from experiments.runs.provenance import provenance
from experiments.runs.tracker import Trackers, named, tracking
from experiments.training.checkpoint import Checkpoints
from experiments.training.evaluate import Subject
from experiments.training.interruption import Interrupted, Interruption
from experiments.training.parallel import Team
from experiments.training.processes import Lost
from pe_zoo import Unsupported
from pe_zoo._knobs import number, one_of

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger("pe_zoo")

RETRIES = ("failed",)
"""What ``retry`` takes."""


@dataclass
class Outcome:
    """How a request to run ended.

    Args:
        status: ``ok``, ``diverged``, ``failed`` or ``interrupted``; ``finished before``, ``diverged before`` or
            ``failed before`` if there was nothing to do; ``running elsewhere`` if another worker is at it.
        run_id: of the run.
        folder: where the run's files are.
        rows: its measurements; none unless it ended well, or diverged, now.
        message: why, where there is something to say.
    """

    status: str
    run_id: str
    folder: Path
    rows: list[Row] = field(default_factory=list)
    message: str = ""


class Unwritten(OSError):
    """Results could not be written; the run itself is none the worse, and goes on when started again."""


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
    """Config → rows, in ``results/<name>/runs/<run_id>/``. What has ended is left alone, what has not goes on.

    Args:
        config: what to run.
        force: whether to run it anew where it has ended, however it did. What was interrupted goes on all the same,
            and ends as if it had begun anew.
        retry: ``failed`` runs it anew if it failed.
        checkpoint_seconds: between one checkpoint and the next, at least.
        tracker: names of trackers that are told how it goes.
        figures: whether the run gets figures of its own; one that ended without them too.
        team: the processes that share the run, each of which calls this; None: this one alone.

    Raises:
        BadRequest: before anything is written; also where what has ended is no longer as it was written.
        Stopped: Ctrl-C or SIGTERM; what the run has come to is saved, and its ``outcome`` tells of it.
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
        outcome = _lead(plan, team, force, retry, checkpoint_seconds, named(tracker), figures)
        if figures and outcome.status == "finished before":
            _draw_late(plan)
    except (BadRequest, Stopped) as reason:
        with suppress(Lost):
            team.tell(reason)
        raise
    team.tell(outcome)
    return outcome


def _follow(plan: Plan, team: Team) -> Outcome:
    """Take part in training as process 0 says; the run ends here as it does there."""
    with team.interruption.listening(), team.interruption.deferred(), repeatable():
        ended = team.follow(plan.model, plan.task, plan.numbering, plan.config.seed)
    if isinstance(ended, BaseException):
        raise ended
    return ended


def _lead(
    plan: Plan,
    team: Team,
    force: bool,
    retry: str | None,
    checkpoint_seconds: float,
    trackers: tuple[str, ...],
    figures: bool,
) -> Outcome:
    folder, interruption = plan.folder, team.interruption
    ended = None if force else ended_before(plan, retry)
    if ended and not has_leftovers(folder):
        return ended
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with interruption.listening(), acquire(folder) as lock:
            outcome = None if force else ended_before(plan, retry)  # by whoever held it until now
            checkpoints = Checkpoints(
                folder, origin(plan, team), interruption, every_seconds=checkpoint_seconds, check_held=lock.check
            )
            if outcome:
                checkpoints.clear()
                return outcome
            clear(folder)
            with log_file(folder) as log, tracking(trackers, plan) as told:
                outcome = _run(plan, checkpoints, log, team, told, figures)
    except RunLocked as reason:
        outcome = Outcome("running elsewhere", plan.config.run_id, folder, message=str(reason))
    except OSError as error:
        raise BadRequest(f"results cannot be written: {str(folder)!r}: {error.strerror or error}") from error
    if outcome.status == "interrupted" or interruption.asked is not None:
        raise Stopped(interruption.asked or signal.SIGINT, outcome)
    return outcome


class Stopped(Interrupted):
    """Ctrl-C or SIGTERM came while a run was under way.

    Args:
        signum: which of them.
        outcome: of that run.
    """

    def __init__(self, signum: int, outcome: Outcome) -> None:
        super().__init__(signum)
        self.outcome = outcome

    def __reduce__(self) -> tuple[type[Stopped], tuple[int, Outcome]]:
        return type(self), (self.signum, self.outcome)


def ended_before(plan: Plan, retry: str | None) -> Outcome | None:
    """The outcome of a run that has ended before and is not to be repeated.

    Raises:
        BadRequest: see `ending`.
    """
    record = ending(plan.folder)
    if record is None or record["status"] == retry:
        return None
    said = {"ok": "finished before"}.get(record["status"], f"{record['status']} before")
    return Outcome(said, plan.config.run_id, plan.folder, message=str(record.get("message", "")))


def origin(plan: Plan, team: Team) -> dict[str, Any]:
    """What must be the same for a checkpoint to be gone on from: else the end would not be, bit for bit."""
    return {
        "config": plan.config.identity(),
        "corpus": plan.task.provenance(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "processes": team.size,
        "device": _device(plan),
    }


def _run(
    plan: Plan, checkpoints: Checkpoints, log: logging.Handler, team: Team, trackers: Trackers, figures: bool
) -> Outcome:
    """Train, measure and write; whatever becomes of it is recorded.

    Raises:
        RunLocked: another worker has taken the run over; nothing more was written.
    """
    folder, rows = plan.folder, list[Row]()
    checkpoints.load()
    record = _opening(plan) | {"processes": team.size, "resumed": checkpoints.resumed}
    outcome = Outcome("failed", plan.config.run_id, folder)
    try:
        with _writing(checkpoints):
            text = yaml.safe_dump(plan.config.identity(), sort_keys=False, allow_unicode=True)
            write_whole(folder / "config.yaml", text)
            write_json(folder / "run.json", record)
        rows, result = train_and_measure(plan, checkpoints, team, trackers)
        with checkpoints.interruption.deferred(), _writing(checkpoints):
            write_rows(folder / "rows.csv", rows)
            if figures:
                _draw(plan, frame(rows))
            record |= result | {"rows_sha256": digest(folder)}
            outcome.status, outcome.rows = record["status"], rows
            _close(record, checkpoints)
            checkpoints.clear()
            trackers.results(rows, record["steps"] or 0)
    except KeyboardInterrupt as stopped:
        record |= {"status": "interrupted", "message": str(stopped) or "interrupted from the keyboard"}
        outcome.status = "interrupted"
        if "trained" in checkpoints.parts:  # in training, that was done where it stopped
            checkpoints.write()
    except RunLocked:
        raise
    except Unwritten as error:
        logger.error("%s", error)
        record |= {"status": "interrupted", "message": str(error)}
        outcome.status = "unwritten"
    except Exception as error:
        log.emit(logging.makeLogRecord({"msg": traceback.format_exc(), "levelname": "ERROR"}))
        record |= {"status": "failed", "message": f"{type(error).__name__}: {error}"}
    if outcome.status in ("interrupted", "unwritten", "failed"):
        try:
            with checkpoints.interruption.deferred(), _writing(checkpoints):
                _close(record, checkpoints)
        except Unwritten as error:
            logger.error("how %s ended cannot be recorded: %s", plan.config.run_id, error)
    outcome.message = record["message"]
    return outcome


def _close(record: dict[str, Any], checkpoints: Checkpoints) -> None:
    checkpoints.check_held()  # drawing figures may have taken a while
    record["finished"] = datetime.now(UTC).isoformat(timespec="seconds")
    write_json(checkpoints.folder / "run.json", record)


@contextmanager
def _writing(checkpoints: Checkpoints) -> Iterator[None]:
    """What goes wrong within is the disk's fault and not the run's.

    Raises:
        RunLocked: the run is no longer this worker's to write.
        Unwritten: that went wrong.
    """
    checkpoints.check_held()
    try:
        yield
    except OSError as error:
        place = str(checkpoints.folder)
        raise Unwritten(f"results cannot be written: {place!r}: {error.strerror or error}") from error


def train_and_measure(
    plan: Plan, checkpoints: Checkpoints, team: Team, trackers: Trackers
) -> tuple[list[Row], dict[str, Any]]:
    """Train the plan's model, ask the experiments, save the model: rows, and what the run's record gains."""
    with repeatable():
        with checkpoints.interruption.deferred():
            model, log, tuning = trained(plan, checkpoints, team, trackers.watch)
            trackers.trained(log)
        checkpoints.interruption.check()
        if plan.config.trains:
            with _writing(checkpoints):
                write_whole(plan.folder / "model.safetensors", safetensors.torch.save(model.state_dict()))
        subject = Subject(
            model=model,
            initial=plan.model,
            trained=plan.config.trains,
            task=plan.task,
            numbering=plan.numbering,
            seed=plan.config.seed,
            labels={**plan.config.labels(), "train_length": plan.task.train_length},
        )
        rows = training_rows(subject, log) + tuning_rows(subject, tuning)
        started = time.perf_counter()
        for name, module in plan.experiments.items():
            metric, knobs = module.MAIN or plan.task.metrics[0], plan.config.experiments[name]
            if log.status != "ok":
                unmeasured = getattr(module, "unmeasured", None)
                rows += (
                    unmeasured(subject, log.status, **knobs)
                    if unmeasured
                    else [subject.row(name, metric, status=log.status)]
                )
                continue
            try:
                rows += module.measure(subject, **knobs)
            except Unsupported as reason:
                rows.append(subject.cannot(name, metric, reason))
    quality = log.points[-1][2] if log.points else {}
    own, trunk = model.num_parameters()
    return rows, {
        "status": log.status,
        "message": how_it_diverged(log, tuning) if log.status == "diverged" else "",
        "model_parameters": trunk,
        "encoder_parameters": own,
        "trained": plan.config.trains,
        "steps": log.steps if plan.config.trains else None,
        "stopped": log.stopped,
        "seeds_together": log.together,
        "tuning": tuning and tuning.record(),
        "train_seconds": round(log.seconds, 3),
        "measure_seconds": round(time.perf_counter() - started, 3),
        "tokens_per_second": round(log.tokens / log.seconds, 1) if log.tokens else None,
        "final_loss": log.final_loss,
        "in_range": quality.get(plan.task.metrics[0]),
        "converged": (plan.task.has_converged(quality) if quality else False) if plan.config.trains else None,
    }


@contextmanager
def repeatable() -> Iterator[None]:
    """Deterministic kernels only, where there are any."""
    before, warn_before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warn_before)


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
        "device": _device(plan),
        "precision": plan.precision,
        "threads": torch.get_num_threads(),
        "corpus": plan.task.provenance(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _device(plan: Plan) -> str:
    return torch.cuda.get_device_name(plan.device) if plan.device.type == "cuda" else str(plan.device)


def _draw(plan: Plan, table: pd.DataFrame) -> None:
    """The run's own figures, from its rows alone; all of them or none."""
    from experiments.figures import style

    plots = {"training": style.training_curves, **{name: report_of(name).plot for name in plan.experiments}}
    unfinished = Path(tempfile.mkdtemp(dir=plan.folder, prefix=".figures."))
    try:
        for name, plot in plots.items():
            for stem, figure in plot(table[table["experiment"] == name]).items():
                style.save(figure, unfinished / f"{name}_{stem}")
        unfinished.chmod(0o755)
        unfinished.rename(plan.folder / "figures")
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _draw_late(plan: Plan) -> None:
    """The figures of a run that ended without them, as those of a sweep do."""
    folder = plan.folder
    if (folder / "figures").is_dir():
        return
    try:
        rows = read_run(folder, folder.parent.parent)[2]
        if rows is not None:
            import pandas as pd

            _draw(plan, pd.DataFrame(rows))
    except OSError as error:
        logger.warning("figures cannot be written: %r: %s", str(folder), error.strerror or error)
