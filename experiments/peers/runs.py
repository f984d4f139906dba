"""The three things that are timed: a training step, a whole run, and a forward pass over a long text."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

import pe_zoo
from experiments.model.precision import AUTO, FLOAT32
from experiments.model.streams import initialising, stream
from experiments.peers.models import Contender, contenders, logits_of, ours, peer_step
from experiments.peers.timing import in_turn, product_rates, ratio, step_operations
from experiments.tasks import Batch, Task, tasks
from experiments.training.config import TrainConfig
from experiments.training.evaluate import CHUNK_TOKENS, evaluate
from experiments.training.loop import train
from experiments.training.progress import LENGTHS
from experiments.training.step import Step
from pe_zoo import Geometry

OURS = "pe-zoo"
VOCAB = 64
EVALUATED = (1, 2, 4, 8)
"""Training lengths at which a whole run is evaluated."""
SEQUENCES = 256
"""Test sequences of each length."""
DEFAULT_LENGTHS = {"step": (40, 128, 512), "run": (16,), "long": (16384,)}
DEFAULT_TOKENS = {"step": 8192, "run": 256}
"""Tokens in a training step."""

Functions = dict[str, Callable[[], object]]
"""What is timed, by who does it; ours comes first."""


def measure(what: str, encoders: list[str], options: Namespace) -> Iterator[dict[str, Any]]:
    """Time a training step, whole runs or long texts, of ours and every peer; yield a record of each."""
    tokens, rounds = options.tokens or DEFAULT_TOKENS.get(what, 0), options.rounds
    for length in options.lengths or DEFAULT_LENGTHS[what]:
        geometry = Geometry(model_dim=options.model_dim, num_heads=4, num_layers=options.layers, train_length=length)
        fastest = None
        if what == "step":
            batch_size = max(1, tokens // length)
            rates = product_rates(geometry, batch_size, length, rounds)
            fastest = step_operations(geometry, VOCAB, batch_size, length) / max(rates.values())
        for encoder in encoders:
            if what == "step":
                functions = training_steps(encoder, geometry, tokens, compiled=options.compile)
            elif what == "run":
                functions = whole_runs(encoder, geometry, options.steps or 200, tokens)
            else:
                functions = long_texts(encoder, geometry)
            seconds = in_turn(functions, rounds)
            for name, of_name in seconds.items():
                yield {
                    "encoder": encoder,
                    "length": length,
                    "who": name,
                    "milliseconds": 1000 * median(of_name),
                    "ratio": ratio(of_name, seconds[OURS]),
                    "share_of_product_rate": fastest and fastest / median(of_name),
                }


def training_steps(encoder: str, geometry: Geometry, tokens_per_step: int, *, compiled: bool = False) -> Functions:
    """Return a training step at the training length: ours in both precisions, every peer in every setting."""
    length = geometry.train_length
    tokens = torch.randint(VOCAB, (max(1, tokens_per_step // length), length), generator=stream(0, "peers"))
    functions: Functions = {}
    for name, precision in ((OURS, AUTO), (f"{OURS}, float32", FLOAT32)):
        step = Step(ours(encoder, geometry, VOCAB).train(), TrainConfig(precision=precision))
        functions[name] = partial(step, _next_token(tokens))
    for contender in contenders(encoder, geometry, VOCAB):
        functions[contender.name] = peer_step(contender.build(), tokens, autocast=contender.autocast)
        if compiled:
            model = torch.compile(contender.build())
            assert isinstance(model, nn.Module)
            functions[f"{contender.name}, compiled"] = peer_step(model, tokens, autocast=contender.autocast)
    return functions


def whole_runs(encoder: str, geometry: Geometry, num_steps: int, tokens_per_step: int) -> Functions:
    """Return runs: training on ``copy`` up to the training length, evaluation at up to eight times that."""
    task = tasks.build("copy", train_length=geometry.train_length)
    config = TrainConfig(steps=num_steps, tokens_per_step=tokens_per_step)
    longest = task.sequence_length(EVALUATED[-1] * task.train_length)
    wide = replace(geometry, train_length=longest)
    numbering = pe_zoo.numberings.get("sequential")()

    def run_ours() -> None:
        with initialising(0, "model"):
            model = ours(encoder, wide, task.vocab_size)
        train(model, task, numbering, config, seed=0)
        for batch in _questions(task):
            evaluate(model, batch, torch.arange(batch.tokens.shape[1], dtype=torch.float32))

    functions: Functions = {OURS: run_ours}
    for contender in contenders(encoder, wide, task.vocab_size):
        functions[contender.name] = partial(_run_of, contender, task, config)
    return functions


def long_texts(encoder: str, geometry: Geometry) -> Functions:
    """Return forward passes over one long sequence without gradients: ours, and plain torch without encoder."""
    tokens = torch.randint(VOCAB, (1, geometry.train_length), generator=stream(0, "peers"))
    models: dict[str, nn.Module] = {OURS: ours(encoder, geometry, VOCAB)}
    for contender in contenders("none", geometry, VOCAB):
        if contender.library == "plain torch" and not contender.autocast:
            models[f"{contender.name}, no encoder"] = contender.build()
    return {name: partial(_read, model.eval(), tokens) for name, model in models.items()}


def _read(model: nn.Module, tokens: Tensor) -> Tensor:
    with torch.no_grad():
        return logits_of(model, tokens)


def _next_token(tokens: Tensor) -> Batch:
    targets = torch.cat([tokens[:, 1:], tokens[:, :1]], 1)
    return Batch(tokens, targets, torch.arange(tokens.shape[1]) < tokens.shape[1] - 1)


def _questions(task: Task) -> list[Batch]:
    generator = stream(0, "peers/test")
    lengths = [multiple * task.train_length for multiple in EVALUATED]
    return [task.evaluation(SEQUENCES, length, generator, causal=True) for length in lengths]


def _run_of(contender: Contender, task: Task, config: TrainConfig) -> None:
    """Train a peer on the same batches in a plain loop; evaluate it in chunks as ours is."""
    with initialising(0, "model"):
        model = contender.build()
    lengths, data = stream(0, LENGTHS), stream(0, "training data")
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=config.learning_rate, fused=True)
    for _ in range(config.steps):
        length = int(torch.randint(task.min_length, task.train_length + 1, (), generator=lengths))
        batch_size = max(1, config.tokens_per_step // task.sequence_length(length))
        batch = task.sample(batch_size, length, data, split="train", causal=True)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=contender.autocast):
            logits = logits_of(model, batch.tokens)[:, batch.counted]
        targets = batch.targets[:, batch.counted]
        nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), config.gradient_clip)
        optimizer.step()
    with torch.no_grad():
        for batch in _questions(task):
            at_once = max(1, CHUNK_TOKENS // batch.tokens.shape[1])
            for start in range(0, len(batch.tokens), at_once):
                logits_of(model.eval(), batch.tokens[start : start + at_once]).argmax(-1)
