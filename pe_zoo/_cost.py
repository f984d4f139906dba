"""What an encoder adds to a model's arithmetic, counted operation by operation: the same on every machine."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from pe_zoo._contract.bench import site_of
from pe_zoo._contract.line import Line
from pe_zoo._encoder import Encoder, raw_scores


class Operations(TorchDispatchMode):
    """Counts what is computed within: 2·m·n·k for a matrix product, one for each number that anything else makes.

    A complex number counts as the two that it is, and a product of them as the six operations that it takes.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func._overloadpacket in flop_registry:
            self.count += int(flop_registry[func._overloadpacket](*args, **(kwargs or {}), out_val=result))
        elif not func.is_view:
            product = 6 if func._overloadpacket is torch.ops.aten.mul else 2
            parts = result if isinstance(result, list | tuple) else [result]
            tensors = [part for part in parts if isinstance(part, Tensor)]
            self.count += sum(tensor.numel() * (product if tensor.is_complex() else 1) for tensor in tensors)
        return result


def extra_operations(encoder: Encoder) -> float:
    """Operations that the hooks add to one forward pass over a sequence of the training length.

    Returns:
        as a share of what the trunk takes without an encoder: 24 · length · model_dim² in a layer for its matrix
        products, and plain attention.
    """
    geometry = encoder.geometry
    products = 24 * geometry.train_length * geometry.model_dim**2 * geometry.num_layers
    bare = _operations(Encoder(geometry))
    return (_operations(encoder) - bare) / (products + bare)


def _operations(encoder: Encoder) -> int:
    geometry, length = encoder.geometry, encoder.geometry.train_length
    with torch.no_grad(), torch.random.fork_rng(devices=[]), Operations() as operations:
        positions = torch.arange(length, dtype=torch.float32)
        encoder = encoder if encoder.axes == 1 else Line(encoder)
        x = encoder.embed(torch.randn(1, length, geometry.model_dim), positions)
        q, k, v = torch.randn(3, 1, geometry.num_heads, length, geometry.head_dim).unbind()
        site = site_of(positions, True, x)
        for layer in range(geometry.num_layers):
            site = replace(site, layer=layer)
            scores = raw_scores(encoder, q, k, site)
            encoder.mix(scores.masked_fill(~site.mask, -torch.inf), v, site)
    return operations.count
