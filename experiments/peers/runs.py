"""The three things that are compared: a training step, a whole run, and reading a long text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

import pe_zoo
from experiments.model.precision import AUTO, FLOAT32
from experiments.model.streams import initialising, stream
from experiments.peers.models import Contender, contenders, logits_of, ours, peer_step
from experiments.tasks import Batch, Task, tasks
from experiments.training.evaluate import CHUNK_TOKENS, evaluate
from experiments.training.loop import Step, TrainConfig, train
from experiments.training.progress import LENGTHS
from pe_zoo import Geometry

OURS = "pe-zoo"
VOCAB = 64
EVALUATED = (1, 2, 4, 8)
"""Training lengths at which a whole run is evaluated."""
SEQUENCES = 256
"""Of each of them."""

Does = dict[str, Callable[[], object]]
"""What is timed, by who does it; ours comes first."""


def steps(encoder: str, geometry: Geometry, tokens_per_step: int, *, compiled: bool = False) -> Does:
    """A training step at the geometry's training length: ours in both precisions, then every peer in every setting."""
    length = geometry.train_length
    tokens = torch.randint(VOCAB, (max(1, tokens_per_step // length), length), generator=stream(0, "peers"))
    does: Does = {}
    for name, precision in ((OURS, AUTO), (f"{OURS}, float32", FLOAT32)):
        step = Step(ours(encoder, geometry, VOCAB).train(), TrainConfig(precision=precision))
        does[name] = partial(step, _next_token(tokens))
    for contender in contenders(encoder, geometry, VOCAB):
        does[contender.name] = peer_step(contender.build(), tokens, autocast=contender.autocast)
        if compiled:
            model = torch.compile(contender.build())
            assert isinstance(model, nn.Module)
            does[f"{contender.name}, compiled"] = peer_step(model, tokens, autocast=contender.autocast)
    return does


def whole_runs(encoder: str, geometry: Geometry, num_steps: int, tokens_per_step: int) -> Does:
    """Training on ``copy`` words of up to the geometry's training length, then answers at up to eight times that."""
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

    does: Does = {OURS: run_ours}
    for contender in contenders(encoder, wide, task.vocab_size):
        does[contender.name] = partial(_run_of, contender, task, config)
    return does


def long_texts(encoder: str, geometry: Geometry) -> Does:
    """Reading one sequence of the geometry's training length without gradients: ours, and no encoder in plain torch."""
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
    """The same batches to a peer, in the loop that one writes for it; answers in chunks as ours are."""
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
