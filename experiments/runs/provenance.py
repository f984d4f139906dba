"""What run.json says of a run: what was asked for, what it was made with, and how its training went."""

import hashlib
import inspect
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import pe_zoo
from experiments.model.guest import Guest
from experiments.model.precision import FLOAT32
from experiments.model.transformer import Transformer
from experiments.plan.measures import measures
from experiments.plan.places import in_use, windowed_as
from experiments.plan.plan import Plan
from experiments.training.log import TrainLog
from pe_zoo import Encoder
from pe_zoo._contract import check
from pe_zoo._knobs import knobs
from pe_zoo._registry import outside

PACKAGES = ("pe-zoo", "numpy", "pandas", "scipy", "hydra-core", "omegaconf", "safetensors", "tokenizers", "datasets")
"""Beside torch and Python: what computes, composes, or makes data."""
NOTED = 32
"""Most entries of a parameter whose values are noted."""


def opening(plan: Plan) -> dict[str, Any]:
    """Return what is known of a run when it starts: the request, this machine, versions, commit and command."""
    config, place = plan.config, plan.config.checkpoint
    packages = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            packages[name] = version(name)
    return {
        **config.labels(),
        "status": "running",
        "message": "",
        "choice": None if place else config.choice,
        "checkpoint": place,
        "in_use": in_use(place) if place else None,
        "windowed_as": windowed_as(place) if place else None,
        "layout": str(config.layout),
        "python": platform.python_version(),
        "packages": packages,
        "commit": commit(),
        "command": shlex.join(["python", Path(sys.argv[0]).name, *sys.argv[1:]]),
        "precision": config.train.precision if config.trains else FLOAT32,
        "started": now(),
        "source": None if place else source(str(config.encoder["name"])),
        "described": described(plan),
        "processor": processor(),
        **machine(plan),
    }


def source(name: str) -> dict[str, Any] | None:
    """Return what a report shows of an encoder from outside: description, file, last check; None for one of ours."""
    encoder = pe_zoo.get(name)
    if not outside(encoder):
        return None
    file = Path(inspect.getfile(encoder))
    return {
        "docstring": inspect.getdoc(encoder) or "",
        "knobs": {knob.name: str(knob.default) for knob in knobs(encoder).values()},
        "family": encoder.family,
        "file": file.name,
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "check": check.outcome(file, name),
    }


def described(plan: Plan) -> dict[str, dict[str, str]]:
    """Return the descriptions of a task and of measures from outside, by kind and name, which a report shows."""
    name = str(plan.config.task["name"])
    ours = type(plan.task).__module__.startswith("experiments.")
    measured = {each: inspect.getdoc(measures.get(each)) or "" for each in plan.experiments if each in measures.names()}
    return {"task": {} if ours else {name: inspect.getdoc(plan.task) or ""}, "experiment": measured}


def result(plan: Plan, model: Transformer, log: TrainLog) -> dict[str, Any]:
    """Return how the training ended."""
    trains, (own, trunk) = plan.config.trains, model.num_parameters()
    initial = plan.encoder() if trains and own and not model.encoder_dropped else None
    return {
        "status": log.status,
        "message": log.divergence if log.status == "diverged" else "",
        "model_parameters": trunk,
        "encoder_parameters": own,
        "rotating": model.insight.rotating if isinstance(model, Guest) else None,
        **{note.__name__: note(model.encoder, initial) if initial is not None else None for note in NOTES},
        "trained": trains,
        "steps": log.steps if trains else None,
        "stopped": log.stopped,
        "tuning": log.tuning and log.tuning.record(),
        "train_seconds": round(log.seconds, 3),
        "tokens_per_second": round(log.tokens / log.seconds, 1) if log.tokens else None,
        "final_loss": log.final_loss,
        "in_range": log.quality.get(plan.task.metrics[0]),
        "converged": (plan.task.has_converged(log.quality) if log.quality else False) if trains else None,
    }


def moved(encoder: Encoder, initial: Encoder) -> dict[str, float | None]:
    """Return how far training moved each parameter, as a share of its norm before: ‖θ − θ₀‖ / ‖θ₀‖; None from 0."""
    return {
        name: float(f"{(after - before).norm() / before.norm():.3g}") if before.norm() else None
        for name, before, after in _parameters(encoder, initial)
    }


def turned(encoder: Encoder, initial: Encoder) -> dict[str, str]:
    """Return of how many entries of each parameter training changed the sign: ``2 of 4``; of none, none is told.

    A slope that was declared a penalty is a reward once it has turned.
    """
    turns = {name: before.sign() * after.sign() < 0 for name, before, after in _parameters(encoder, initial)}
    return {name: f"{int(each.sum())} of {each.numel()}" for name, each in turns.items() if each.any()}


def values(encoder: Encoder, initial: Encoder) -> dict[str, list[list[float]]]:
    """Return the entries of each small parameter before training and after, three digits each."""
    return {
        name: [[float(f"{entry:.3g}") for entry in each.flatten().tolist()] for each in (before, after)]
        for name, before, after in _parameters(encoder, initial)
        if after.numel() <= NOTED
    }


def _parameters(encoder: Encoder, initial: Encoder) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield each parameter: its name, its entries before training and after."""
    before = dict(initial.named_parameters())
    for name, parameter in encoder.named_parameters():
        yield name, before[name].detach().double().cpu(), parameter.detach().double().cpu()


NOTES = (moved, turned, values)
"""What is noted of an encoder that has learned, by the function's name."""


def machine(plan: Plan) -> dict[str, Any]:
    """Return what decides the last bits of a run besides its configuration."""
    return {
        "corpus": plan.task.provenance(),
        "torch": torch.__version__,
        "threads": plan.config.threads,
        "device": torch.cuda.get_device_name(plan.device) if plan.device.type == "cuda" else str(plan.device),
    }


def now() -> str:
    """Return the time as it is recorded."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def commit() -> str | None:
    """Return the commit of this code, ``-dirty`` if it was changed; None outside a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "describe"]
    command += ["--always", "--dirty", "--exclude=*", "--abbrev=12"]
    env = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10, env=env).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def processor() -> str:
    """Return the model of this machine's processor, which decides how sums are rounded."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
