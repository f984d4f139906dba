"""Refuse what surely does not fit into memory before anything is built: lower bounds, not estimates."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from experiments.plan.plan import Plan
from experiments.plan.request import ModelConfig, RunConfig
from pe_zoo import Unsupported
from pe_zoo._knobs import whole

FLOAT = 4
"""Bytes of a number: everything is float32."""
TOKEN = 8
TRAINED = 4
"""Numbers per trained parameter: itself, its gradient and Adam's two moments."""
LENGTHS = {"multiples": True, "reach": True, "memory_lengths": False}
"""Knobs of measures that are lengths, in training lengths or in tokens."""
OUT_OF_MEMORY = ("can't allocate memory", "Storage size calculation overflowed", "numel: integer multiplication")
"""How torch reports that a CPU tensor does not fit."""


def machine_memory(device: torch.device) -> int:
    """Return the bytes of the device; of a CPU, what the operating system grants at most."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    granted = Path("/sys/fs/cgroup/memory.max")
    limit = granted.read_text(encoding="utf-8").strip() if granted.is_file() else "max"
    here = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**63
    return min(here, int(limit)) if limit.isdigit() else here


def check_sizes(config: RunConfig, device: torch.device) -> None:
    """Refuse a trunk or training sequences that cannot fit: ValueError with the option and how much it would take."""
    model, memory = config.model, machine_memory(device)
    _refuse_above(
        memory,
        FLOAT * model.layer_parameters * (TRAINED if config.trains else 1),
        f"a model of model.model_dim={model.model_dim}, model.num_layers={model.num_layers} and "
        f"model.ffn_multiple={model.ffn_multiple}",
    )
    length = config.task.get("train_length")
    if isinstance(length, int):
        whole("task.train_length", length, at_least=min(length, 1))  # the task knows how short it may be
        mask = length**2 if config.trains else 0  # of bytes; without gradients, queries come a block at a time
        needed = mask + length * _bytes_per_token(model, trains=config.trains)
        _refuse_above(memory, needed, f"a sequence of task.train_length={length}")
    if config.trains:
        tokens = config.train.tokens_per_step
        needed = tokens * _bytes_per_token(model, trains=True)
        _refuse_above(memory, needed, f"a step of train.tokens_per_step={tokens}")


def check_parts(plan: Plan) -> None:
    """Refuse, as `check_sizes` does, a vocabulary or an encoder with more parameters than fit."""
    config, tokens = plan.config, plan.task.vocab_size
    memory, each = machine_memory(plan.device), FLOAT * (TRAINED if config.trains else 1)
    embeddings = 2 * tokens * config.model.model_dim * each
    logits = FLOAT * tokens * plan.geometry.train_length
    _refuse_above(memory, embeddings + logits, f"the {tokens} different tokens of task={config.labels()['task']}")
    try:
        with torch.device("meta"):
            parameters = sum(p.numel() for p in plan.encoder().parameters())
    except Exception:  # noqa: BLE001  # it needs numbers to be made, or cannot be made at all: building it reports that
        return
    _refuse_above(memory, parameters * each, f"encoder={config.encoder['name']} with {parameters} parameters")


def check_measurements(plan: Plan) -> None:
    """Refuse, as `check_sizes` does, measures whose sequences cannot fit, one by itself or all tokens of them."""
    task, memory = plan.task, machine_memory(plan.device)
    for name, knobs in plan.config.experiments.items():
        for knob, relative in LENGTHS.items():
            given = knobs.get(knob)
            longest = max(given, default=None) if isinstance(given, list | tuple) else given
            if longest is None:
                continue
            with suppress(Unsupported):
                symbols = max(1, round(longest * task.train_length))
                tokens = task.sequence_length(symbols) if relative else int(longest)
                needed = tokens * _bytes_per_token(plan.config.model, trains=False)
                _refuse_above(memory, needed, f"a sequence of {name}.{knob}={longest:g}")
        samples = knobs.get("samples") or 0
        _refuse_above(memory, 2 * TOKEN * samples * plan.geometry.train_length, f"{name}.samples={samples}")


@contextmanager
def within_memory(what: str) -> Iterator[None]:
    """Turn a failed allocation within into a ValueError: ``what`` is too large for this machine."""
    try:
        yield
    except (MemoryError, OverflowError, RuntimeError) as error:
        known = isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in OUT_OF_MEMORY)
        if isinstance(error, RuntimeError) and not known:
            raise
        reason = str(error).partition("DefaultCPUAllocator: ")[2] or str(error) or "the allocation failed"
        raise ValueError(f"not enough memory for {what}: {reason.splitlines()[0]}; ask for less") from error


def _bytes_per_token(model: ModelConfig, *, trains: bool) -> int:
    # Of each layer: input, queries, keys, values, outputs, the stream between, and the hidden units twice.
    states = model.num_layers * (6 + 2 * model.ffn_multiple) if trains else 1
    return FLOAT * model.model_dim * states


def _refuse_above(memory: int, needed: int, what: str) -> None:
    if needed > memory:
        sizes = f"at least {needed / 1e9:.4g} GB needed, {memory / 1e9:.4g} GB here"
        raise ValueError(f"not enough memory for {what}: {sizes}; ask for less")
