"""What is timed, in turn: a training step, a whole run, a pass over a long text, a step through ``pe_zoo.hf.use``."""

import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

import pe_zoo
from experiments.measures.cost.timing import finish
from experiments.model.precision import AUTO, BFLOAT16, FLOAT32
from experiments.model.streams import initialising, stream
from experiments.peers.models import Contender, contenders, llama, logits_of, ours, peer_step
from experiments.tasks import Batch, Task, tasks
from experiments.training.config import TrainConfig
from experiments.training.evaluate import CHUNK_TOKENS, evaluate
from experiments.training.loop import train
from experiments.training.step import Step, next_token
from pe_zoo import Geometry, hf

OURS = "pe-zoo"
VOCAB = 64
ON_GPU = 8
"""Calls that a GPU is given at a time, see `in_turn`."""
EVALUATED = (1, 2, 4, 8)
"""Training lengths at which a whole run is evaluated."""
SEQUENCES = 256
"""Test sequences of each length."""
DEFAULT_LENGTHS = {"step": (40, 128, 512), "run": (16,), "long": (16384,), "hf": (128, 512)}
DEFAULT_TOKENS = {"step": 8192, "run": 256, "hf": 4096}
"""Tokens in a training step."""

Functions = dict[str, Callable[[], object]]
"""What is timed, by who does it; the first is what others are compared with."""


def measure(what: str, encoders: list[str], options: Namespace) -> Iterator[dict[str, Any]]:
    """Time a training step, whole runs or long texts, of ours and every peer; yield a record of each."""
    tokens, rounds, device = options.tokens or DEFAULT_TOKENS.get(what, 0), options.rounds, options.device or "cpu"
    for length in options.lengths or DEFAULT_LENGTHS[what]:
        geometry = Geometry(model_dim=options.model_dim, num_heads=4, num_layers=options.layers, train_length=length)
        fastest = None
        if what == "step":
            batch_size = max(1, tokens // length)
            rates = product_rates(geometry, batch_size, length, rounds, device)
            fastest = step_operations(geometry, VOCAB, batch_size, length) / max(rates.values())
        for encoder in encoders:
            if what == "step":
                functions = training_steps(encoder, geometry, tokens, device, compiled=options.compile)
            elif what == "run":
                functions = whole_runs(encoder, geometry, options.steps or 200, tokens)
            elif what == "hf":
                functions = steps_through_use(encoder, geometry, tokens, device)
            else:
                functions = long_texts(encoder, geometry, device)
            seconds = in_turn(functions, rounds, device)
            for name, of_name in seconds.items():
                yield {
                    "encoder": encoder,
                    "length": length,
                    "who": name,
                    "milliseconds": 1000 * median(of_name),
                    "ratio": ratio(of_name, next(iter(seconds.values()))),
                    "share_of_product_rate": fastest and fastest / median(of_name),
                }


def in_turn(functions: Mapping[str, Callable[[], object]], rounds: int, device: str = "cpu") -> dict[str, list[float]]:
    """Return seconds of each function, in turn so that drift affects all; a first round warms up.

    A GPU is given several calls at a time, of which each is ascribed a share: the next before it has done the last.
    """
    repeated, where = 1 if device == "cpu" else ON_GPU, torch.device(device)
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for round_number in range(rounds + 1):
        for name, function in functions.items():
            finish(where)
            started = time.perf_counter()
            for _ in range(repeated):
                function()
            finish(where)
            if round_number:
                seconds[name].append((time.perf_counter() - started) / repeated)
    return seconds


def ratio(of: list[float], to: list[float]) -> float:
    """Return the median over rounds of one's seconds by the other's of the same round."""
    return median(one / other for one, other in zip(of, to, strict=True))


def step_operations(geometry: Geometry, vocab: int, batch_size: int, length: int) -> float:
    """Count the operations of a step's matrix products, forward and backward (twice); attention in full."""
    dim = geometry.model_dim
    per_token = geometry.num_layers * (2 * 12 * dim**2 + 4 * length * dim) + 2 * dim * vocab
    return 3.0 * batch_size * length * per_token


def product_rates(
    geometry: Geometry, batch_size: int, length: int, rounds: int, device: str = "cpu"
) -> dict[str, float]:
    """Return operations per second in each precision, for the four products of a layer, forward only."""
    dim, tokens = geometry.model_dim, batch_size * length
    shapes = ((dim, 3 * dim), (dim, dim), (dim, 4 * dim), (4 * dim, dim))

    def multiply(pairs: list[tuple[Tensor, Tensor]]) -> None:
        for x, weight in pairs:
            nn.functional.linear(x, weight)

    functions = {}
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        pairs = [(torch.randn(tokens, i).to(device, dtype), torch.randn(o, i).to(device, dtype)) for i, o in shapes]
        functions[name] = partial(multiply, pairs)
    operations = sum(2.0 * tokens * i * o for i, o in shapes)
    with torch.no_grad():
        return {name: operations / min(seconds) for name, seconds in in_turn(functions, 3 * rounds, device).items()}


def training_steps(
    encoder: str, geometry: Geometry, tokens_per_step: int, device: str = "cpu", *, compiled: bool = False
) -> Functions:
    """Return a training step at the training length: ours in both precisions, every peer in every setting."""
    tokens = _tokens(geometry.train_length, tokens_per_step).to(device)
    steps: dict[str, Callable[[Batch], object]] = {}
    for name, precision in ((OURS, AUTO if device == "cpu" else BFLOAT16), (f"{OURS}, float32", FLOAT32)):
        steps[name] = Step(ours(encoder, geometry, VOCAB).to(device).train(), TrainConfig(precision=precision))
    for contender in contenders(encoder, geometry, VOCAB):
        steps[contender.name] = peer_step(contender.build().to(device), autocast=contender.autocast)
        if compiled:
            peer: Any = torch.compile(contender.build().to(device))
            steps[f"{contender.name}, compiled"] = peer_step(peer, autocast=contender.autocast)
    return {name: partial(step, next_token(tokens)) for name, step in steps.items()}


def steps_through_use(encoder: str, geometry: Geometry, tokens_per_step: int, device: str = "cpu") -> Functions:
    """Return a training step of Llama with the rotary positions it comes with, and with an encoder of ours."""
    models = [llama(geometry, VOCAB).to(device) for _ in range(2)]
    tokens = _tokens(geometry.train_length, tokens_per_step).to(device)
    hf.use(models[1], encoder)
    native, through = (partial(peer_step(model, autocast=False), next_token(tokens)) for model in models)
    return {"transformers, as it comes": native, f"{OURS}, through use": through}


def _tokens(length: int, tokens_per_step: int) -> Tensor:
    return torch.randint(VOCAB, (max(1, tokens_per_step // length), length), generator=stream(0, "peers"))


def whole_runs(encoder: str, geometry: Geometry, num_steps: int, tokens_per_step: int) -> Functions:
    """Return runs: training on ``copy`` up to the training length, evaluation at up to eight times that."""
    task = tasks.build("copy", train_length=geometry.train_length)
    config = TrainConfig(steps=num_steps, rounds=1, tokens_per_step=tokens_per_step)
    wide = replace(geometry, train_length=task.sequence_length(EVALUATED[-1] * task.train_length))
    numbering = pe_zoo.numberings.get("sequential")()

    def run_ours() -> None:
        with initialising(0, "model"):
            model = ours(encoder, wide, task.vocab_size)
        train(model, task, numbering, config, seed=0)
        for batch in _questions(task):
            evaluate(model, batch, torch.arange(batch.tokens.shape[1], dtype=torch.float32))

    peers = {each.name: partial(_run_of, each, task, config) for each in contenders(encoder, wide, task.vocab_size)}
    return {OURS: run_ours, **peers}


def long_texts(encoder: str, geometry: Geometry, device: str = "cpu") -> Functions:
    """Return forward passes over one long sequence without gradients: ours, and plain torch without encoder."""
    tokens = _tokens(geometry.train_length, geometry.train_length).to(device)
    models: dict[str, nn.Module] = {OURS: ours(encoder, geometry, VOCAB)}
    for contender in contenders("none", geometry, VOCAB):
        if contender.library == "plain torch" and not contender.autocast:
            models[f"{contender.name}, no encoder"] = contender.build()
    read = torch.no_grad()(logits_of)
    return {name: partial(read, model.to(device).eval(), tokens) for name, model in models.items()}


def _questions(task: Task) -> list[Batch]:
    generator = stream(0, "peers/test")
    lengths = [multiple * task.train_length for multiple in EVALUATED]
    return [task.evaluation(SEQUENCES, length, generator, causal=True) for length in lengths]


def _run_of(contender: Contender, task: Task, config: TrainConfig) -> None:
    with initialising(0, "model"):
        model = contender.build()
    lengths, data = stream(0, "training lengths"), stream(0, "training data")
    step = peer_step(model, autocast=contender.autocast)
    for _ in range(config.steps):
        length = int(torch.randint(task.min_length, task.train_length + 1, (), generator=lengths))
        batch_size = max(1, config.tokens_per_step // task.sequence_length(length))
        step(task.draw_split(batch_size, length, data, split="train", causal=True))
    with torch.no_grad():
        for batch in _questions(task):
            for tokens in batch.tokens.split(max(1, CHUNK_TOKENS // batch.tokens.shape[1])):
                logits_of(model.eval(), tokens).argmax(-1)
