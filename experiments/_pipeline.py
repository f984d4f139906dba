"""run(config) → rows. Read this first: config → plan (task, encoder, model) → train → measure → rows, on disk."""

from __future__ import annotations

import json
import logging
import math
import os
import platform
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import yaml

from experiments._evaluate import Subject
from experiments._model import Transformer
from experiments._plan import BadRequest, Plan, RunConfig, prepare
from experiments._table import Row, write_json, write_rows, write_whole
from experiments._train import TrainLog, train
from experiments._tune import Tuning, tune
from pe_zoo import Unsupported

logger = logging.getLogger("pe_zoo")

SETTLED = ("ok", "diverged")
"""How a run can have ended for good: the same config would end the same way again."""


@dataclass
class Outcome:
    """How a request to run ended.

    Args:
        status: ``ok``, ``diverged``, ``failed``, or ``finished before`` if there was nothing to do.
        folder: where the run's files are.
        rows: its measurements; none if it failed or had finished before.
        message: why, where there is something to say.
    """

    status: str
    folder: Path
    rows: list[Row] = field(default_factory=list)
    message: str = ""


def run(config: RunConfig, *, force: bool = False) -> Outcome:
    """Config → rows, in ``results/<name>/runs/<run_id>/``. A finished run is left alone unless ``force``.

    Raises:
        BadRequest: before anything is written.
    """
    plan = prepare(config)
    if is_finished(plan.folder) and not force:
        return Outcome("finished before", plan.folder)
    _clear(plan.folder)
    record = _opening(plan)
    with _log_file(plan.folder / "run.log") as log:
        try:
            write_whole(
                plan.folder / "config.yaml", yaml.safe_dump(config.identity(), sort_keys=False, allow_unicode=True)
            )
            write_json(plan.folder / "run.json", record)
            rows, result = train_and_measure(plan)
            write_rows(plan.folder / "rows.csv", rows)
            _draw(plan, rows)
            record |= result
        except KeyboardInterrupt:
            record |= {"status": "interrupted", "message": "interrupted from the keyboard"}
            raise
        except Exception as error:
            log.emit(logging.makeLogRecord({"msg": traceback.format_exc(), "levelname": "ERROR"}))
            record |= {"status": "failed", "message": f"{type(error).__name__}: {error}"}
            rows = []
        finally:
            record["finished"] = datetime.now(UTC).isoformat(timespec="seconds")
            write_json(plan.folder / "run.json", record)
    return Outcome(record["status"], plan.folder, rows, record["message"])


def train_and_measure(plan: Plan) -> tuple[list[Row], dict[str, Any]]:
    """Train the plan's model, ask the experiments, save the model: rows, and what the run's record gains."""
    with _repeatable():
        model, log, tuning = _train(plan)
        if plan.config.trains:
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


def _train(plan: Plan) -> tuple[Transformer, TrainLog, Tuning | None]:
    """The model as it is to be measured: trained once, once for each learning rate, or not at all."""
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
        )
    model, log = plan.model(), TrainLog()
    if config.trains:
        log = train(model, plan.task, plan.numbering, config.train, seed=config.seed, label=config.run_id)
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


def is_finished(folder: Path) -> bool:
    """Whether a run has ended for good and its rows are there."""
    try:
        record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(record, dict) and record.get("status") in SETTLED and (folder / "rows.csv").is_file()


def _clear(folder: Path) -> None:
    """Make the run's folder, without what an unfinished or replaced run left in it."""
    try:
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
    except OSError as error:
        raise BadRequest(f"results cannot be written: {str(folder)!r}: {error.strerror}") from error


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
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name(plan.device) if plan.device.type == "cuda" else str(plan.device),
        "precision": "float32",
        "threads": torch.get_num_threads(),
        "commit": _commit(),
        "command": " ".join(["python", Path(sys.argv[0]).name, *sys.argv[1:]]),
        "corpus": plan.task.provenance(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _commit() -> str | None:
    """The commit this code is at, ``-dirty`` if it was changed; None outside a checkout."""
    here = Path(__file__).resolve().parent
    try:
        done = subprocess.run(
            ["git", "-C", str(here), "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"],
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


@contextmanager
def _log_file(path: Path) -> Iterator[logging.FileHandler]:
    """Everything logged within also goes to a file; tracebacks go there alone."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)  # whatever a caller's own logging lets through
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        handler.close()


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
