"""What an encoder adds to a model's arithmetic, counted operation by operation: the same on every machine."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from pe_zoo._encoder import Encoder, Site, raw_scores


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
        made = func(*args, **(kwargs or {}))
        if func._overloadpacket in flop_registry:
            self.count += int(flop_registry[func._overloadpacket](*args, **(kwargs or {}), out_val=made))
        elif not func.is_view:
            self.count += sum(part.numel() * _each(part, func) for part in _tensors(made))
        return made


def _each(made: Tensor, func: Any) -> int:
    """Operations for each number made."""
    if not made.is_complex():
        return 1
    return 6 if func._overloadpacket is torch.ops.aten.mul else 2


def _tensors(made: Any) -> list[Tensor]:
    parts = made if isinstance(made, list | tuple) else [made]
    return [part for part in parts if isinstance(part, Tensor)]


def extra_operations(encoder: Encoder) -> float:
    """Operations that the hooks add to one forward pass over a sequence of the training length.

    Returns:
        as a share of what the trunk takes without an encoder: 24 · length · model_dim² in a layer for its matrix
        products, and plain attention.
    """
    geometry = encoder.geometry
    length, dim, layers = geometry.train_length, geometry.model_dim, geometry.num_layers
    products = 24 * length * dim**2 * layers
    bare = _counted(lambda: _pass(Encoder(geometry)))
    return (_counted(lambda: _pass(encoder)) - bare) / (products + bare)


def _counted(forward: Callable[[], None]) -> int:
    with torch.no_grad(), torch.random.fork_rng(devices=[]), Operations() as operations:
        forward()
    return operations.count


def _pass(encoder: Encoder) -> None:
    geometry = encoder.geometry
    length = geometry.train_length
    positions = torch.arange(length, dtype=torch.float32)
    mask = torch.ones(length, length, dtype=torch.bool).tril()
    x = encoder.embed(torch.randn(1, length, geometry.model_dim), positions)
    q, k, v = torch.randn(3, 1, geometry.num_heads, length, geometry.head_dim).unbind()
    for layer in range(geometry.num_layers):
        site = Site(
            layer=layer,
            query_positions=positions,
            key_positions=positions,
            rows=slice(0, length),
            mask=mask,
            causal=True,
            x=x,
        )
        encoder.mix(raw_scores(encoder, q, k, site).masked_fill(~mask, -torch.inf), v, site)
