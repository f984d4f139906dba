"""Time several functions in turn, and the matrix products of this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median

import torch
from torch import Tensor
from torch.nn import functional

from pe_zoo import Geometry


def in_turn(functions: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Return seconds of each function on a CPU, in turn so that drift affects all; a first round warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for round_number in range(rounds + 1):
        for name, function in functions.items():
            started = time.perf_counter()
            function()
            if round_number:
                seconds[name].append(time.perf_counter() - started)
    return seconds


def ratio(of: list[float], to: list[float]) -> float:
    """Return the median over rounds of one's seconds by the other's of the same round."""
    return median(one / other for one, other in zip(of, to, strict=True))


def step_operations(geometry: Geometry, vocab: int, batch_size: int, length: int) -> float:
    """Count the operations of a step's matrix products, forward and backward (twice); attention in full."""
    dim = geometry.model_dim
    per_token = geometry.num_layers * (2 * 12 * dim**2 + 4 * length * dim) + 2 * dim * vocab
    return 3.0 * batch_size * length * per_token


def product_rates(geometry: Geometry, batch_size: int, length: int, rounds: int) -> dict[str, float]:
    """Return operations per second in each precision, for the four products of a layer, forward only."""
    dim, tokens = geometry.model_dim, batch_size * length
    shapes = ((dim, 3 * dim), (dim, dim), (dim, 4 * dim), (4 * dim, dim))

    def multiply(pairs: list[tuple[Tensor, Tensor]]) -> None:
        for x, weight in pairs:
            functional.linear(x, weight)

    functions = {}
    for dtype in (torch.float32, torch.bfloat16):
        pairs = [(torch.randn(tokens, i).to(dtype), torch.randn(o, i).to(dtype)) for i, o in shapes]
        functions[str(dtype).removeprefix("torch.")] = lambda pairs=pairs: multiply(pairs)
    operations = sum(2.0 * tokens * i * o for i, o in shapes)
    with torch.no_grad():
        return {name: operations / min(seconds) for name, seconds in in_turn(functions, 3 * rounds).items()}
