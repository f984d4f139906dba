"""A function of tensors on a GPU, recorded once for each set of shapes and replayed as a whole (a CUDA graph).

A training step of a small model is hundreds of kernels, each done before Python has launched the next one.
"""

import logging
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

noted = logging.getLogger("pe_zoo.noted")
WARM = 3
"""Calls of a shape before it is recorded: what is allocated once, such as moments, is there by then."""
MOST = 256
"""Recordings kept; shapes beyond are computed as they come."""


def recorded(function: Callable[..., Tensor], device: str) -> Callable[..., Tensor]:
    """Return a function of tensors that also takes ``state``, see `Graphs`; on a CPU it is computed as it comes."""
    return Graphs(function) if device == "cuda" else lambda *tensors, state=None: function(*tensors)


class Graphs:
    """``function`` as it is, faster: it takes tensors, changes others in place, and returns one.

    What cannot be recorded, such as a function that looks at a number to decide how to go on, is computed as it comes,
    and ``refused`` says why.
    """

    def __init__(self, function: Callable[..., Tensor]) -> None:
        self.function, self.refused = function, ""
        self._calls = Counter[Hashable]()
        self._known: dict[Hashable, tuple[torch.cuda.CUDAGraph, tuple[Tensor, ...], Tensor]] = {}
        self._pool: Any = None

    def __call__(self, *tensors: Tensor, state: Hashable = None) -> Tensor:
        """Call the function; ``state`` is what it depends on besides, and tells recordings apart."""
        key = (state, *((tensor.shape, tensor.dtype) for tensor in tensors))
        if key not in self._known and not self._record(key, tensors):
            return self.function(*tensors)
        graph, inputs, output = self._known[key]
        for held, given in zip(inputs, tensors, strict=True):
            held.copy_(given)
        graph.replay()
        return output.clone()

    def _record(self, key: Hashable, tensors: tuple[Tensor, ...]) -> bool:
        self._calls[key] += 1
        if self.refused or self._calls[key] <= WARM or len(self._known) == MOST:
            return False
        graph, inputs = torch.cuda.CUDAGraph(), tuple(tensor.clone() for tensor in tensors)
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        try:
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                output = self.function(*inputs)
        except RuntimeError as error:
            self.refused = str(error).splitlines()[0]
            noted.info("a training step is launched kernel by kernel, since it cannot be recorded: %s", self.refused)
            return False
        self._known[key] = graph, inputs, output
        return True
