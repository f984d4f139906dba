"""Attention by FlexAttention, which reads a bias by distance where it needs it: no tensor of all pairs is made."""

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask
from transformers.integrations.flex_attention import compile_friendly_flex_attention


def serves(q: Tensor, dropout: float) -> bool:
    """Whether FlexAttention can: on a CPU it gives no gradient, and it drops no weights."""
    return q.device.type != "cpu" and not dropout


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, mask: Tensor, scale: float) -> Tensor:
    """Attend with a static bias: ``(batch, heads, query, head_dim)``.

    Args:
        q: ``(batch, heads, query, head_dim)``.
        k: ``(batch, heads, key, head_dim)``.
        v: as ``k``.
        bias: ``(batch or 1, heads, query, key)``, or one row for all distances, as `bias.by_distance` has it; None: 0.
        mask: bool, ``(batch or 1, 1, query, key)``.
        scale: what scores are multiplied by.
    """
    queries, keys = mask.shape[-2:]

    def biased(score: Tensor, sample: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        if bias is None:
            return score
        if bias.ndim == 3:
            return score + bias[0, head, key - query + queries - 1]
        return score + bias[sample if len(bias) > 1 else 0, head, query, key]

    def sees(sample: Tensor, _: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return mask[sample if len(mask) > 1 else 0, 0, query, key]

    blocks = create_block_mask(sees, len(mask) if len(mask) > 1 else None, None, queries, keys, device=str(q.device))
    given = {"training": torch.is_grad_enabled(), "score_mod": biased, "block_mask": blocks, "scale": scale}
    attended = compile_friendly_flex_attention(q, k, v, **given)
    assert isinstance(attended, Tensor)  # a pair only where more is asked for
    return attended
