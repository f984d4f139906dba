"""A model's own sense of order, switched off, and that of an encoder's ``embed``, put at the start."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from pe_zoo import Encoder, Unsupported
from pe_zoo.hf.listen import family, read, tokens_for


def silence(model: PreTrainedModel) -> list[RemovableHandle]:
    """Empty tables of positions, and prove that no sense of order is left, all seats being bare.

    Raises:
        Unsupported: with every token visible to every other, their order still matters.
    """
    called: list[nn.Module] = []
    tables = [m for m in model.modules() if isinstance(m, nn.Embedding) and m is not model.get_input_embeddings()]
    watches = [table.register_forward_hook(lambda module, _, __: called.append(module)) for table in tables]
    tokens = tokens_for(model)
    try:
        read(model, tokens)
    finally:
        for watch in watches:
            watch.remove()
    handles: list[RemovableHandle] = []
    for table in dict.fromkeys(called):
        handles += [
            table.register_forward_pre_hook(_from_the_start, with_kwargs=True),
            table.register_forward_hook(_nothing),
        ]
    if model.device.type == "meta":
        return handles
    length = tokens.shape[-1]
    everywhere = torch.ones(1, 1, length, length, dtype=torch.bool, device=tokens.device)
    places = torch.arange(length, device=tokens.device)[None]
    forth = read(model, tokens, attention_mask=everywhere, position_ids=places)
    back = read(model, tokens.flip(-1), attention_mask=everywhere, position_ids=places).flip(1)
    if not torch.allclose(forth, back, rtol=0, atol=0.01 * forth.std().item()):
        for handle in handles:
            handle.remove()
        remedy = "name layers=[…] to leave that as it is"
        raise Unsupported(f"{family(model)} tells order by more than its attention and a table of positions; {remedy}")
    return handles


def table_of(model: PreTrainedModel) -> int | None:
    """Return how many positions a model's table has, the shortest if it has several; None if it has none."""
    tokens = tokens_for(model)
    with _Lookups() as lookups:
        read(model, tokens)
    return min(lookups.ends, default=None)


class _Lookups(TorchDispatchMode):
    """Notes where tables end that are asked for one row after another, as positions are; tokens here are none such."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ends: list[int] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten.embedding.default:
            table, rows = args[0], args[1].flatten()
            if bool((rows.diff() == 1).all()):
                self.ends.append(len(table) - int(rows[0]))  # a table may begin with rows for other uses
        return func(*args, **(kwargs or {}))


def _from_the_start(_: nn.Module, arguments: tuple[Any, ...], given: dict[str, Any]) -> tuple[Any, Any]:
    """Look up the first position in place of each: what is found is thrown away, and a table ends somewhere."""

    def first(one: Any) -> Any:
        return torch.zeros_like(one) if isinstance(one, Tensor) and not one.is_floating_point() else one

    return tuple(map(first, arguments)), {name: first(one) for name, one in given.items()}


def _nothing(_: nn.Module, __: Any, output: Tensor) -> Tensor:
    return torch.zeros_like(output)


def embed(model: PreTrainedModel, attention: nn.Module, encoder: Encoder) -> list[RemovableHandle]:
    """Let an encoder act on what the first layer reads, if it does that at all."""
    if not encoder.overrides("embed"):
        return []
    stacks = [stack for stack in model.modules() if isinstance(stack, nn.ModuleList) and len(stack)]
    block = next(stack[0] for stack in stacks if any(module is attention for module in stack[0].modules()))
    return [block.register_forward_pre_hook(partial(_embedded, encoder), with_kwargs=True)]  # a partial can be copied


def _embedded(
    encoder: Encoder, _: nn.Module, arguments: tuple[Any, ...], given: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    positions = given["position_ids"].float()
    if arguments:
        return (encoder.embed(arguments[0], positions), *arguments[1:]), given
    return arguments, given | {"hidden_states": encoder.embed(given["hidden_states"], positions)}
