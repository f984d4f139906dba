"""Seconds of several things done in turn, and how fast the machine multiplies matrices."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median

import torch
from torch import Tensor
from torch.nn import functional

from pe_zoo import Geometry


def in_turn(does: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each on a CPU, round after round so that a machine's drift falls on all; a first one is not counted.

    Args:
        does: what is timed, by name.
        rounds: how often, at least 1.
    """
    seconds: dict[str, list[float]] = {name: [] for name in does}
    for done in range(rounds + 1):
        for name, do in does.items():
            started = time.perf_counter()
            do()
            if done:
                seconds[name].append(time.perf_counter() - started)
    return seconds


def ratio(of: list[float], to: list[float]) -> float:
    """Median over rounds of one's seconds by the other's of the same round."""
    return median(one / other for one, other in zip(of, to, strict=True))


def step_operations(geometry: Geometry, vocab: int, batch_size: int, length: int) -> float:
    """Of a training step's matrix products: forward, and twice that backward; attention in full, masked or not."""
    dim = geometry.model_dim
    a_token = geometry.num_layers * (2 * 12 * dim**2 + 4 * length * dim) + 2 * dim * vocab
    return 3.0 * batch_size * length * a_token


def product_rates(geometry: Geometry, batch_size: int, length: int, rounds: int) -> dict[str, float]:
    """Operations a second of this machine in each precision, at the four products of a layer, forward alone."""
    dim, tokens = geometry.model_dim, batch_size * length
    shapes = ((dim, 3 * dim), (dim, dim), (dim, 4 * dim), (4 * dim, dim))

    def multiply(pairs: list[tuple[Tensor, Tensor]]) -> None:
        for x, weight in pairs:
            functional.linear(x, weight)

    does = {}
    for dtype in (torch.float32, torch.bfloat16):
        pairs = [(torch.randn(tokens, i).to(dtype), torch.randn(o, i).to(dtype)) for i, o in shapes]
        does[str(dtype).removeprefix("torch.")] = lambda pairs=pairs: multiply(pairs)
    operations = sum(2.0 * tokens * i * o for i, o in shapes)
    with torch.no_grad():
        return {name: operations / min(seconds) for name, seconds in in_turn(does, 3 * rounds).items()}
