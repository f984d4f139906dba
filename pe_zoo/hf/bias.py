"""A static bias of scores: made of one row where distance decides, and learned on a CPU, where no kernel learns one."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pe_zoo import Encoder, Site
from pe_zoo._positions import evenly_spaced

BLOCK = 64
"""Queries whose weights are made at once: keys that none of them sees are left out."""


def made(encoder: Encoder, q: Tensor, k: Tensor, site: Site) -> Tensor:
    """What an encoder that claims ``static_bias`` adds to scores: ``(batch or 1, heads, query, key)``."""
    row = by_distance(encoder, q, k, site)
    if row is not None:
        return row.unfold(-1, k.shape[-2], 1).flip(-2)
    return encoder.score(q.new_zeros(1, 1, q.shape[-2], k.shape[-2]), q, k, site)


def by_distance(encoder: Encoder, q: Tensor, k: Tensor, site: Site) -> Tensor | None:
    """The bias of query i and key j at ``j − i + queries − 1``, ``(1, heads, keys + queries − 1)``.

    It is the last query's, with as many keys ahead as the first query has. None: the bias does not depend on distance
    alone, or distance not on i − j.
    """
    places, keys, ahead = site.key_positions, k.shape[-2], q.shape[-2] - 1
    if not encoder.distance_bias or torch.compiler.is_compiling() or not evenly_spaced(places):
        return None
    last = places[-1:]
    step = last - places[-2:-1] if keys > 1 else torch.ones_like(last)
    further = torch.cat([places, last + step * torch.arange(1, ahead + 1, device=places.device)])
    mask = torch.ones(1, keys + ahead, dtype=torch.bool, device=places.device)
    alone = replace(site, query_positions=last, key_positions=further, rows=slice(keys - 1, keys), mask=mask)
    return encoder.score(q.new_zeros(1, 1, 1, keys + ahead), q[:, :, -1:], k, alone).squeeze(-2)


def learned(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Attend with a bias that gets a gradient: ``(batch, heads, query, head_dim)``."""
    attended: Tensor = _Learned.apply(q, k, v, bias, mask, scale)  # type: ignore[no-untyped-call]
    return attended


class _Learned(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, mask: Tensor, scale: float) -> Tensor:
        biased, out, kept = bias.masked_fill(~mask, -torch.inf), torch.empty_like(q), []
        for rows, seen in _blocks(mask):
            scores = (q[:, :, rows] * scale) @ k[:, :, seen].mT
            kept.append(scores.add_(biased[:, :, rows, seen]).softmax(-1))
            out[:, :, rows] = kept[-1] @ v[:, :, seen]
        ctx.save_for_backward(q, k, v, mask, out, *kept)
        ctx.scale, ctx.shape = scale, bias.shape
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, mask, out, *kept = ctx.saved_tensors
        of_q, of_k, of_v = (torch.zeros_like(each) for each in (q, k, v))
        of_bias, common = q.new_zeros(ctx.shape), (grad * out).sum(-1, keepdim=True)
        for (rows, seen), weights in zip(_blocks(mask), kept, strict=True):
            of_v[:, :, seen] += weights.mT @ grad[:, :, rows]
            of_scores = (grad[:, :, rows] @ v[:, :, seen].mT).sub_(common[:, :, rows]).mul_(weights)
            of_bias[:, :, rows, seen] = of_scores.sum_to_size(*ctx.shape[:2], *of_scores.shape[-2:])
            of_q[:, :, rows] = of_scores @ k[:, :, seen] * ctx.scale
            of_k[:, :, seen] += of_scores.mT @ (q[:, :, rows] * ctx.scale)
        return of_q, of_k, of_v, of_bias, None, None


def _blocks(mask: Tensor) -> Iterator[tuple[slice, slice]]:
    """Blocks of queries, and the keys up to the last that one of them sees."""
    for start in range(0, mask.shape[-2], BLOCK):
        rows = slice(start, start + BLOCK)
        yield rows, slice(0, int(mask[..., rows, :].flatten(0, -2).any(0).nonzero().max()) + 1)
