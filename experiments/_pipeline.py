"""run(config) → rows. Read this first: config → plan (task, encoder, model) → train → measure → rows, on disk."""

from __future__ import annotations

import logging
import math
import signal
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import yaml

from experiments._checkpoint import Checkpoints, State
from experiments._evaluate import Subject
from experiments._folder import clear, digest, ending, has_leftovers, log_file
from experiments._interruption import Interrupted, Interruption
from experiments._lock import Held, held
from experiments._model import Transformer
from experiments._plan import BadRequest, Plan, RunConfig, prepare
from experiments._provenance import provenance
from experiments._table import Row, write_json, write_rows, write_whole
from experiments._train import TrainLog, train
from experiments._tune import Tuning, tune
from pe_zoo import Unsupported
from pe_zoo._knobs import number, one_of

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
    config: RunConfig, *, force: bool = False, retry: str | None = None, checkpoint_seconds: float = 30.0
) -> Outcome:
    """Config → rows, in ``results/<name>/runs/<run_id>/``. What has ended is left alone, what has not goes on.

    Args:
        config: what to run.
        force: whether to run it anew, however it ended.
        retry: ``failed`` runs it anew if it failed.
        checkpoint_seconds: between one checkpoint and the next, at least.

    Raises:
        BadRequest: before anything is written.
        Stopped: Ctrl-C or SIGTERM; what the run has come to is saved, and its ``outcome`` tells of it.
    """
    try:
        retry is None or one_of("retry", retry, RETRIES)
        number("checkpoint_seconds", checkpoint_seconds, at_least=0)
    except ValueError as error:
        raise BadRequest(str(error)) from error
    plan = prepare(config)
    folder, interruption = plan.folder, Interruption()
    ended = None if force else _ended(plan, retry)
    if ended and not has_leftovers(folder):
        return ended
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with interruption.listening(), held(folder):
            outcome = None if force else _ended(plan, retry)  # by whoever held it until now
            checkpoints = Checkpoints(folder, _origin(plan), interruption, every_seconds=checkpoint_seconds)
            if outcome:
                checkpoints.clear()
                return outcome
            clear(folder, anew=force or ending(folder) is not None)
            with log_file(folder) as log:
                outcome = _run(plan, checkpoints, log)
    except Held as reason:
        return Outcome("running elsewhere", config.run_id, folder, message=str(reason))
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


def _ended(plan: Plan, retry: str | None) -> Outcome | None:
    """The outcome of a run that has ended before and is not to be repeated."""
    record = ending(plan.folder)
    if record is None or record["status"] == retry:
        return None
    said = {"ok": "finished before"}.get(record["status"], f"{record['status']} before")
    return Outcome(said, plan.config.run_id, plan.folder, message=str(record.get("message", "")))


def _origin(plan: Plan) -> dict[str, Any]:
    """What must be the same for a checkpoint to be gone on from: else the end would not be, bit for bit."""
    return {
        "config": plan.config.identity(),
        "corpus": plan.task.provenance(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "device": _device(plan),
    }


def _run(plan: Plan, checkpoints: Checkpoints, log: logging.Handler) -> Outcome:
    """Train, measure and write; whatever becomes of it is recorded."""
    folder, rows = plan.folder, list[Row]()
    checkpoints.load()
    record = _opening(plan) | {"resumed": checkpoints.resumed}
    outcome = Outcome("failed", plan.config.run_id, folder)
    try:
        with _writing(folder):
            text = yaml.safe_dump(plan.config.identity(), sort_keys=False, allow_unicode=True)
            write_whole(folder / "config.yaml", text)
            write_json(folder / "run.json", record)
        rows, result = train_and_measure(plan, checkpoints)
        with checkpoints.interruption.deferred(), _writing(folder):
            write_rows(folder / "rows.csv", rows)
            _draw(plan, rows)
            record |= result | {"rows_sha256": digest(folder)}
            outcome.status, outcome.rows = record["status"], rows
            _close(record, folder)
            checkpoints.clear()
    except KeyboardInterrupt as stopped:
        record |= {"status": "interrupted", "message": str(stopped) or "interrupted from the keyboard"}
        outcome.status = "interrupted"
        if "trained" in checkpoints.parts:  # in training, that was done where it stopped
            checkpoints.write()
    except Unwritten as error:
        logger.error("%s", error)
        record |= {"status": "interrupted", "message": str(error)}
        outcome.status = "unwritten"
    except Exception as error:
        log.emit(logging.makeLogRecord({"msg": traceback.format_exc(), "levelname": "ERROR"}))
        record |= {"status": "failed", "message": f"{type(error).__name__}: {error}"}
    if outcome.status in ("interrupted", "unwritten", "failed"):
        try:
            with checkpoints.interruption.deferred(), _writing(folder):
                _close(record, folder)
        except Unwritten as error:
            logger.error("how %s ended cannot be recorded: %s", plan.config.run_id, error)
    outcome.message = record["message"]
    return outcome


def _close(record: dict[str, Any], folder: Path) -> None:
    record["finished"] = datetime.now(UTC).isoformat(timespec="seconds")
    write_json(folder / "run.json", record)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """What goes wrong within is the disk's fault and not the run's."""
    try:
        yield
    except OSError as error:
        raise Unwritten(f"results cannot be written: {str(folder)!r}: {error.strerror or error}") from error


def train_and_measure(plan: Plan, checkpoints: Checkpoints) -> tuple[list[Row], dict[str, Any]]:
    """Train the plan's model, ask the experiments, save the model: rows, and what the run's record gains."""
    with _repeatable():
        with checkpoints.interruption.deferred():
            model, log, tuning = _trained(plan, checkpoints)
        checkpoints.interruption.check()
        if plan.config.trains:
            with _writing(plan.folder):
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
        rows = _training_rows(subject, log) + _tuning_rows(subject, tuning)
        started = time.perf_counter()
        for name, module in plan.experiments.items():
            metric = module.MAIN or plan.task.metrics[0]
            if log.status != "ok":
                rows.append(subject.row(name, metric, status=log.status))
                continue
            try:
                rows += module.measure(subject, **plan.config.experiments[name])
            except Unsupported as reason:
                rows.append(subject.cannot(name, metric, reason))
    quality = log.points[-1][2] if log.points else {}
    return rows, {
        "status": log.status,
        "message": _how_it_diverged(log, tuning) if log.status == "diverged" else "",
        "model_parameters": sum(p.numel() for _, p in model.trunk_parameters()),
        "encoder_parameters": sum(p.numel() for p in model.encoder.parameters()),
        "trained": plan.config.trains,
        "steps": log.steps if plan.config.trains else None,
        "stopped": log.stopped,
        "tuning": tuning and tuning.record(),
        "train_seconds": round(log.seconds, 3),
        "measure_seconds": round(time.perf_counter() - started, 3),
        "tokens_per_second": round(log.tokens / log.seconds, 1) if log.tokens else None,
        "final_loss": log.final_loss,
        "in_range": quality.get(plan.task.metrics[0]),
        "converged": (plan.task.has_converged(quality) if quality else False) if plan.config.trains else None,
    }


def _trained(plan: Plan, checkpoints: Checkpoints) -> tuple[Transformer, TrainLog, Tuning | None]:
    """The model as it is to be measured, from the checkpoint if its training had ended before the run did."""
    saved = checkpoints.parts.get("trained")
    if saved is not None:
        model, log, tuning = plan.model(), TrainLog.load(saved.facts["log"]), Tuning.load(saved.facts["tuning"])
        model.load_state_dict(saved.tensors)
        if saved.facts["encoder_dropped"]:
            model.drop_encoder()
    else:
        model, log, tuning = _train(plan, checkpoints)
    if plan.config.trains:
        facts = {
            "log": asdict(log),
            "tuning": tuning and {**asdict(tuning), "losses": list(tuning.losses.items())},
            "encoder_dropped": model.encoder_dropped,
        }
        checkpoints.parts = {}
        checkpoints.save_if_due("trained", lambda: State(facts, model.state_dict()), keep=True)
    return model, log, tuning


def _train(plan: Plan, checkpoints: Checkpoints) -> tuple[Transformer, TrainLog, Tuning | None]:
    """Trained once, once for each learning rate, or not at all."""
    config = plan.config
    if config.trains and config.tune:
        return tune(
            plan.model,
            plan.task,
            plan.numbering,
            config.train,
            causal=config.model.causal,
            seed=config.seed,
            label=config.run_id,
            checkpoints=checkpoints,
        )
    model, log = plan.model(), TrainLog()
    if config.trains:
        log = train(
            model,
            plan.task,
            plan.numbering,
            config.train,
            seed=config.seed,
            label=config.run_id,
            checkpoints=checkpoints,
        )
    return model, log, None


def _how_it_diverged(log: TrainLog, tuning: Tuning | None) -> str:
    if tuning is not None:
        return f"no learning rate of {', '.join(map(str, tuning.losses))} came to a finite loss"
    return f"the loss was {log.final_loss} by step {log.points[-1][0]}"


def _training_rows(subject: Subject, log: TrainLog) -> list[Row]:
    rows = []
    for step, loss, quality, n in log.points:
        rows.append(subject.row("training", "loss", condition=f"step={step}", value=loss, n=n))
        rows += [
            subject.row(
                "training",
                metric,
                condition=f"step={step}",
                value=quality[metric],
                chance=subject.best_guess(metric, subject.task.train_length),
                n=n,
            )
            for metric in dict.fromkeys((subject.task.metrics[0], "token_accuracy"))
            if metric in quality
        ]
    return rows


def _tuning_rows(subject: Subject, tuning: Tuning | None) -> list[Row]:
    if tuning is None:
        return []
    return [
        subject.row(
            "tuning",
            "validation_loss",
            condition=f"learning_rate={rate}",
            value=loss if math.isfinite(loss) else math.nan,
            n=tuning.tokens,
            status="ok" if math.isfinite(loss) else "diverged",
        )
        for rate, loss in tuning.losses.items()
    ]


@contextmanager
def _repeatable() -> Iterator[None]:
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
        "precision": "float32",
        "threads": torch.get_num_threads(),
        "corpus": plan.task.provenance(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _device(plan: Plan) -> str:
    return torch.cuda.get_device_name(plan.device) if plan.device.type == "cuda" else str(plan.device)


def _draw(plan: Plan, rows: list[Row]) -> None:
    """The run's own figures, from its rows alone."""
    from experiments import _style
    from experiments._table import frame

    table = frame(rows)
    folder = plan.folder / "figures"
    folder.mkdir()
    plots = {"training": _style.training_curves, **{name: module.plot for name, module in plan.experiments.items()}}
    for name, plot in plots.items():
        for stem, figure in plot(table[table["experiment"] == name]).items():
            _style.save(figure, folder / f"{name}_{stem}")
