"""Ask a model how it attends, by one short pass, and refuse what an encoder would silently change or lose."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import sdpa_mask

from pe_zoo import Unsupported

LISTENING = "pe_zoo_listening"
KEPT = {
    *("dropout", "scaling", "position_ids", "is_causal", "sliding_window"),
    *("use_cache", "cache_position", "output_attentions", "output_hidden_states", "output_router_logits"),
}
"""What models pass to their attention and an encoder's keeps: a sliding window is in the mask, too."""
LOST = {
    "softcap": "caps its scores (softcapping)",
    "s_aux": "has learned attention sinks",
    "sinks": "has learned attention sinks",
    "position_bias": "adds a bias of its own",
    "indices": "attends to selected keys only",
}


@dataclass(frozen=True)
class Heard:
    """An attention module, and the sizes and extras that it attends with."""

    module: nn.Module
    layer: int
    query: torch.Size
    key: torch.Size
    value: torch.Size
    extras: dict[str, Any]
    given: frozenset[str]
    """The names of what its layer passes to it."""


def listen(model: PreTrainedModel) -> list[Heard]:
    """Return the attention modules of a model, in order.

    Raises:
        Unsupported: the model is no decoder, or does not attend by the interface that Transformers has for it.
        TypeError: it is no model of Transformers.
    """
    given: object = model
    if not isinstance(given, PreTrainedModel):
        remedy = "an encoder in a module of your own is in docs/your_own.md; of a wrapper, give the model inside"
        raise TypeError(f"a {type(given).__name__} is no model of Transformers; {remedy}")
    if model.config.is_encoder_decoder:
        raise Unsupported(f"{family(model)} has an encoder and a decoder; only decoders alone can be used")
    if len(places := {*getattr(model, "hf_device_map", {"": 0}).values()}) > 1:
        raise Unsupported(f"the model's layers are on {len(places)} devices; put all of them on one")
    heard: list[Heard] = []
    passed: dict[nn.Module, frozenset[str]] = {}

    def attend(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None = None,
        **extras: Any,
    ) -> tuple[Tensor, None]:
        layer = int(getattr(module, "layer_idx", len(heard)))
        kept = {name: extra for name, extra in extras.items() if extra is not None and extra is not False}
        if attention_mask is not None and attention_mask.dtype != torch.bool:
            kept["position_bias"] = attention_mask
        heard.append(Heard(module, layer, query.shape, key.shape, value.shape, kept, passed.get(module, frozenset())))
        batch, heads, length, _ = query.shape
        return value.new_zeros(batch, length, heads, value.shape[-1]), None

    def note(module: nn.Module, arguments: tuple[Any, ...], given: dict[str, Any]) -> None:
        names = {name for name, value in given.items() if value is not None}
        passed[module] = frozenset(names | ({"hidden_states"} if arguments else set()))

    watches = [module.register_forward_pre_hook(note, with_kwargs=True) for module in model.modules()]
    try:
        attending_with(model, attend)
    finally:
        for watch in watches:
            watch.remove()
    if not heard:
        raise Unsupported(f"{family(model)} does not attend by Transformers' AttentionInterface")
    return heard


def check(model: PreTrainedModel, heard: list[Heard]) -> None:
    """Refuse what would be lost: Unsupported, with what it is."""
    for one in heard:
        name = f"{family(model)}'s {type(one.module).__name__}"
        if lost := sorted(one.extras.keys() & LOST):
            raise Unsupported(f"{name} {LOST[lost[0]]}, which would be lost")
        if unknown := sorted(one.extras.keys() - KEPT):
            raise Unsupported(f"{name} attends with {', '.join(unknown)}, which would be lost")
        if not one.query[-1] == one.key[-1] == one.value[-1]:
            sizes = f"queries {one.query[-1]} wide, values {one.value[-1]}"
            raise Unsupported(f"{name} has {sizes}: multi-head latent attention, which rotates a part of each head")
        if missing := {"hidden_states", "position_ids"} - one.given:
            causal = getattr(one.module, "is_causal", True) or getattr(model.config, "is_decoder", False)
            known = "" if causal else f"{family(model)} is no causal decoder: "
            raise Unsupported(f"{known}{name} is not given {' or '.join(sorted(missing))}")
    if len({(one.query[1], one.query[-1]) for one in heard}) > 1:
        raise Unsupported(f"{family(model)} has layers with different heads; name layers=[…] that are alike")


def family(model: PreTrainedModel) -> str:
    """What the model calls its kind: ``llama``."""
    return str(model.config.model_type)


def tokens_for(model: PreTrainedModel, length: int = 5) -> Tensor:
    """A few different tokens, without padding."""
    num_tokens = model.config.get_text_config().vocab_size
    return (torch.arange(length, device=model.device) * 7 + 3).remainder(num_tokens)[None]


def read(model: PreTrainedModel, tokens: Tensor, **given: Any) -> Tensor:
    """The model's output for tokens, logits where it has them; modes, caches and gradients stay as they are."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            return model(input_ids=tokens, use_cache=False, **given)[0]
    finally:
        for module, mode in modes.items():
            module.training = mode


def attending_with(model: PreTrainedModel, attend: Callable[..., tuple[Tensor, None]], length: int = 5) -> None:
    """Let a model read a few tokens, each layer attending by a function."""
    AttentionInterface.register(LISTENING, attend)
    AttentionMaskInterface.register(LISTENING, sdpa_mask)
    with attending_by(model, LISTENING):
        read(model, tokens_for(model, length))


@contextmanager
def attending_by(model: PreTrainedModel, implementation: str) -> Iterator[None]:
    """Attend by another implementation for a while."""
    before = model.config._attn_implementation
    model.set_attn_implementation(implementation)
    try:
        yield
    finally:
        model.set_attn_implementation(before)
