"""What is timed, in turn: a training step, a pass over a long text, a step through ``pe_zoo.hf.use``."""

import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from experiments.measures.cost.timing import finish
from experiments.model.precision import AUTO, BFLOAT16, FLOAT32
from experiments.model.streams import stream
from experiments.peers.models import contenders, llama, logits_of, ours, peer_step
from experiments.tasks import Batch
from experiments.training.config import TrainConfig
from experiments.training.step import Step, next_token
from pe_zoo import Geometry, hf

OURS = "pe-zoo"
VOCAB = 64
ON_GPU = 8
"""Calls that a GPU is given at a time, see `in_turn`."""
DEFAULT_LENGTHS = {"step": (40, 128, 512), "long": (16384,), "hf": (128, 512)}
DEFAULT_TOKENS = {"step": 8192, "hf": 4096}
"""Tokens in a training step."""

Functions = dict[str, Callable[[], object]]
"""What is timed, by who does it; the first is what others are compared with."""


def measure(what: str, encoders: list[str], options: Namespace) -> Iterator[dict[str, Any]]:
    """Time a training step or long texts, of ours and every peer; yield a record of each."""
    tokens, rounds, device = options.tokens or DEFAULT_TOKENS.get(what, 0), options.rounds, options.device or "cpu"
    for length in options.lengths or DEFAULT_LENGTHS[what]:
        geometry = Geometry(model_dim=options.model_dim, num_heads=4, num_layers=options.layers, train_length=length)
        for encoder in encoders:
            if what == "step":
                functions = training_steps(encoder, geometry, tokens, device, compiled=options.compile)
            elif what == "hf":
                functions = steps_through_use(encoder, geometry, tokens, device)
            else:
                functions = long_texts(encoder, geometry, device)
            seconds = in_turn(functions, rounds, device)
            for name, of_name in seconds.items():
                beside = ratio(of_name, next(iter(seconds.values())))
                times = {"milliseconds": 1000 * median(of_name), "ratio": beside}
                yield {"encoder": encoder, "length": length, "who": name, **times}


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


def long_texts(encoder: str, geometry: Geometry, device: str = "cpu") -> Functions:
    """Return forward passes over one long sequence without gradients: ours, and plain torch without encoder."""
    tokens = _tokens(geometry.train_length, geometry.train_length).to(device)
    models: dict[str, nn.Module] = {OURS: ours(encoder, geometry, VOCAB)}
    for contender in contenders("none", geometry, VOCAB):
        if contender.library == "plain torch" and not contender.autocast:
            models[f"{contender.name}, no encoder"] = contender.build()
    read = torch.no_grad()(logits_of)
    return {name: partial(read, model.to(device).eval(), tokens) for name, model in models.items()}
