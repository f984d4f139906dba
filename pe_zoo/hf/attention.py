"""Attention as Transformers calls it, through an encoder's hooks where a layer has one."""

import sys
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from pe_zoo import Encoder, Site, raw_scores
from pe_zoo._weights import weights
from pe_zoo.hf import flex
from pe_zoo.hf.bias import by_distance, learned, made
from pe_zoo.hf.seat import Seat, neighbours, seat_of, visible

NAME = "pe_zoo"
"""The attention implementation of a model in which an encoder is used."""


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attend through the encoder of a module, or as the module always did.

    Args:
        module: the attention module that calls.
        query: ``(batch, heads, query, head_dim)``.
        key: ``(batch, groups, key, head_dim)``; a group of heads shares its keys.
        value: as ``key``.
        attention_mask: bool, ``(batch, 1, query, key)``; None: causal.
        scaling: what the model multiplies scores by; None: 1/sqrt(head_dim).
        dropout: of the weights.
        others: what else the model passes; `listen` refused what would be lost.

    Returns:
        ``(batch, query, heads, head_dim)``, and ``(batch, heads, query, key)`` weights where they are asked for.
    """
    seat = seat_of(module)
    if seat is None:
        return _natively(module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **others)
    if seat.window is not None:
        attention_mask = visible(attention_mask, query, key, causal=seat.causal, window=seat.window, first=seat.first)
    query, key = neighbours(query, seat.halves), neighbours(key, seat.halves)
    encoder, heads = seat.encoder, query.shape[1]
    scale = encoder.geometry.head_dim**-0.5
    q = query if scaling in (None, scale) else query * (scaling / scale)
    weighed = bool(others.get("output_attentions"))
    keeps_softmax = not encoder.overrides("mix") and (encoder.static_bias or not encoder.overrides("score"))
    if keeps_softmax and not weighed:
        return _fused(seat, q, key, value, attention_mask, dropout), None
    key, value = _of_each(key, heads), _of_each(value, heads)
    return _plainly(encoder, q, key, value, seat.site(q, key, attention_mask), dropout, weighed=weighed)


def _fused(seat: Seat, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
    """Attend by the kernel that is fastest for a static bias, or for none: ``(batch, query, heads, head_dim)``."""
    encoder, heads = seat.encoder, q.shape[1]
    bias, scale, flexes = None, encoder.geometry.head_dim**-0.5, seat.flexes and flex.serves(q, dropout)
    biases = encoder.overrides("score")
    if encoder.overrides("rotate") or biases:
        if encoder.overrides("rotate"):
            k, v = _of_each(k, heads), _of_each(v, heads)
        site = seat.site(q, k, mask)
        q, k = encoder.rotate(q, k, site)
        if biases:
            row = by_distance(encoder, q, k, site) if flexes else None
            bias = made(encoder, q, k, site) if row is None else row
    if flexes:
        seen = visible(mask, q, k, causal=seat.causal)
        return flex.attend(q, _of_each(k, heads), _of_each(v, heads), bias, seen, scale).transpose(1, 2).contiguous()
    if bias is not None and _lacks_kernel(q, bias, dropout):
        k, v = _of_each(k, heads), _of_each(v, heads)
        return learned(q, k, v, bias, site.mask, scale).transpose(1, 2).contiguous()
    caller = SimpleNamespace(num_key_value_groups=heads // k.shape[1], is_causal=seat.causal)
    given = {"dropout": dropout, "scaling": scale, "position_bias": bias}
    width = v.shape[-1]
    v = functional.pad(v, (0, q.shape[-1] - width))  # flash kernels take one width; an encoder may widen q and k
    attended: Tensor = ALL_ATTENTION_FUNCTIONS["sdpa"](caller, q, k, v, mask, **given)[0]
    return attended[..., :width]


def _lacks_kernel(q: Tensor, bias: Tensor, dropout: float) -> bool:
    """Whether torch's own attention would be slow: on a CPU it has no kernel that gives a bias its gradient."""
    on_cpu = q.device.type == "cpu" and q.dtype == torch.float32 and not torch.compiler.is_compiling()
    return on_cpu and bias.requires_grad and not dropout


def _plainly(
    encoder: Encoder, q: Tensor, k: Tensor, v: Tensor, site: Site, dropout: float, *, weighed: bool
) -> tuple[Tensor, Tensor | None]:
    """Rotate, scale, score, mask, mix: the contract word for word, masked and mixed in float32 or better."""
    if dropout:
        raise ValueError(f"{encoder.name} cannot drop attention weights: set config.attention_dropout=0")
    dtype = torch.promote_types(q.dtype, torch.float32)
    scores = raw_scores(encoder, q, k, site).to(dtype)
    mixed = encoder.mix(scores.masked_fill(~site.mask, -torch.inf), v.to(dtype), site).to(q.dtype)
    return mixed.transpose(1, 2).contiguous(), weights(encoder, scores, site) if weighed else None


def _of_each(shared: Tensor, heads: int) -> Tensor:
    """Keys or values of groups of heads, once for each head."""
    return shared if shared.shape[1] == heads else shared.repeat_interleave(heads // shared.shape[1], 1)


def _natively(
    module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **others: Any
) -> tuple[Tensor, Tensor | None]:
    """Attend as the module does without us: by the fused kernel, or by its own code where it needs more."""
    if all(others.get(more) is None for more in ("softcap", "s_aux", "sinks")) and not others.get("output_attentions"):
        return ALL_ATTENTION_FUNCTIONS["sdpa"](module, q, k, v, mask, **others)
    seen = visible(mask, q, k, causal=getattr(module, "is_causal", True))
    added = torch.zeros(seen.shape, dtype=q.dtype, device=q.device).masked_fill(~seen, torch.finfo(q.dtype).min)
    return sys.modules[type(module).__module__].eager_attention_forward(module, q, k, v, added, **others)


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, sdpa_mask)  # without one, a model would see the future
