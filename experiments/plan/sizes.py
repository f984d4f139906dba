"""Whether a run can fit into memory: what surely cannot is refused before anything is built, not killed half-way."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pe_zoo import Unsupported
from pe_zoo._knobs import whole

if TYPE_CHECKING:
    from experiments.plan.plan import ModelConfig, Plan, RunConfig

FLOAT = 4
"""Bytes of a number: everything is float32."""
TOKEN = 8
TRAINED = 4
"""What a trained parameter takes, in numbers: itself, its gradient and Adam's two moments."""
LENGTHS = ("multiples", "reach")
"""Knobs of experiments that are lengths, in training lengths."""
PLACES = ("memory_lengths",)
"""Knobs of experiments that are lengths, in places of the sequence."""


def machine_memory(device: torch.device) -> int:
    """Bytes that the device has, whoever holds them now; of a CPU, what the operating system grants at most."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    granted = Path("/sys/fs/cgroup/memory.max")
    limit = granted.read_text(encoding="utf-8").strip() if granted.is_file() else "max"
    here = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**63
    return min(here, int(limit)) if limit.isdigit() else here


def check_sizes(config: RunConfig, device: torch.device) -> None:
    """Refuse a trunk or training sequences that cannot fit, before any part is built.

    What is counted is a lower bound: parameters, and the numbers of a sequence that training has to keep.

    Raises:
        ValueError: with how much it would take.
    """
    model, memory = config.model, machine_memory(device)
    matrices = model.num_layers * (4 + 2 * model.ffn_multiple) * model.model_dim**2
    _refuse_above(
        memory,
        FLOAT * matrices * (TRAINED if config.trains else 1),
        f"a model of model.model_dim={model.model_dim}, model.num_layers={model.num_layers} and "
        f"model.ffn_multiple={model.ffn_multiple}",
    )
    length = config.task.get("train_length")
    if isinstance(length, int):
        whole("task.train_length", length, at_least=min(length, 1))  # how short it may be, the task knows
        mask = length**2 if config.trains else 0  # of bytes; without gradients, queries come a block at a time
        needed = mask + length * _bytes_a_place(model, trains=config.trains)
        _refuse_above(memory, needed, f"a sequence of task.train_length={length}")
    if config.trains:
        places = config.train.tokens_per_step
        _refuse_above(memory, places * _bytes_a_place(model, trains=True), f"a step of train.tokens_per_step={places}")


def check_parts(plan: Plan) -> None:
    """Refuse more tokens than there can be embeddings and logits for, and an encoder with too many parameters.

    Raises:
        ValueError: with how much it would take.
    """
    config, tokens = plan.config, plan.task.vocab_size
    memory, each = machine_memory(plan.device), FLOAT * (TRAINED if config.trains else 1)
    embeddings = 2 * tokens * config.model.model_dim * each
    logits = FLOAT * tokens * plan.geometry.train_length
    _refuse_above(memory, embeddings + logits, f"the {tokens} different tokens of task={config.labels()['task']}")
    try:
        with torch.device("meta"):
            parameters = sum(p.numel() for p in plan.encoder().parameters())
    except Exception:  # noqa: BLE001
        return  # it needs numbers to be made, or cannot be made at all: building it says so
    _refuse_above(memory, parameters * each, f"encoder={config.encoder['name']} with {parameters} parameters")


def check_measurements(plan: Plan) -> None:
    """Refuse experiments whose sequences cannot fit, one by itself or all tokens of them.

    Raises:
        ValueError: names the option.
    """
    task, memory = plan.task, machine_memory(plan.device)
    for name, given in plan.config.experiments.items():
        for knob in (*LENGTHS, *PLACES):
            asked = _numbers(given.get(knob))
            if not asked:
                continue
            longest = max(asked)
            try:
                places = longest if knob in PLACES else task.sequence_length(max(1, round(longest * task.train_length)))
            except Unsupported:
                continue
            said = f"a sequence of {name}.{knob}={longest:g}"
            _refuse_above(memory, int(places) * _bytes_a_place(plan.config.model, trains=False), said)
        samples = given.get("samples") or 0
        _refuse_above(memory, 2 * TOKEN * samples * plan.geometry.train_length, f"{name}.samples={samples}")


@contextmanager
def within_memory(said: str) -> Iterator[None]:
    """Within, what the machine has no memory for is an error of ours, whatever the system would do about it.

    Args:
        said: what is made there.

    Raises:
        ValueError: it was too much.
    """
    try:
        with _limited():
            yield
    except (MemoryError, OverflowError) as error:
        raise ValueError(_too_large(said, error)) from error
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in OUT_OF_MEMORY):
            raise ValueError(_too_large(said, error)) from error
        raise


OUT_OF_MEMORY = ("can't allocate memory", "Storage size calculation overflowed", "numel: integer multiplication")
"""How torch says that there is no memory for a tensor on a CPU."""


@contextmanager
def _limited() -> Iterator[None]:
    """No more address space than the machine has memory, on top of what the process has reserved by now."""
    try:
        import resource

        reserved = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0]) * resource.getpagesize()
    except (ImportError, OSError):  # not Linux: left to the system
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = reserved + machine_memory(torch.device("cpu"))
    bounds = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min([wanted, *bounds]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _bytes_a_place(model: ModelConfig, *, trains: bool) -> int:
    """What a place of a sequence takes at least: its state; in training, what each layer keeps for the way back."""
    # Of each layer: input, queries, keys, values, outputs, the stream between, and the hidden units twice.
    kept = model.num_layers * (6 + 2 * model.ffn_multiple) if trains else 1
    return FLOAT * model.model_dim * kept


def _numbers(given: Any) -> list[float]:
    return list(given) if isinstance(given, list | tuple) else [] if given is None else [given]


def _refuse_above(memory: int, needed: int, said: str) -> None:
    if needed > memory:
        raise ValueError(
            f"not enough memory for {said}: at least {_gigabytes(needed)}, and there are {_gigabytes(memory)}; "
            f"ask for less"
        )


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.4g} GB"


def _too_large(said: str, error: BaseException) -> str:
    why = str(error).partition("DefaultCPUAllocator: ")[2] or str(error) or "it asks for more than there is"
    return f"not enough memory for {said}: {why.splitlines()[0]}; ask for less"
