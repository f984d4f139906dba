"""Attention as an encoder wants it: what a layer attends with, the plain definition, and the fused kernel beside it."""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional

from experiments.model.precision import fused_pays
from pe_zoo import Encoder, Site, raw_scores
from pe_zoo._positions import at

PLAIN = "plain"
FUSED = "fused"


class Past:
    """A layer's cache: input, keys and values of up to ``longest`` tokens read so far, in memory allocated once."""

    def __init__(self, longest: int) -> None:
        self.longest, self.length = longest, 0
        self._kept: list[Tensor] = []

    def and_now(self, *new: Tensor) -> list[Tensor]:
        """Append and return all so far, ``(..., length, dim)`` each."""
        if not self._kept:
            self._kept = [part.new_empty(*part.shape[:-2], self.longest, part.shape[-1]) for part in new]
        start, self.length = self.length, self.length + new[0].shape[-2]
        for kept, part in zip(self._kept, new, strict=True):
            kept[..., start : self.length, :] = part
        return [kept[..., : self.length, :] for kept in self._kept]


@dataclass(frozen=True, eq=False)
class Heads:
    """Queries (of the last tokens), keys and values of a layer: ``(batch, heads, query or key, head_dim)``.

    ``x`` is the normalised input of all tokens, ``(batch, key, model_dim)``; positions are as in `Site`.
    ``rotated``: the encoder's ``rotate`` was applied, or does nothing.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    x: Tensor
    positions: Tensor
    rotated: bool

    @property
    def new(self) -> int:
        return self.q.shape[-2]

    @property
    def places(self) -> int:
        return self.k.shape[-2]

    def upto(self, stop: int) -> Self:
        keys, values = self.k[:, :, :stop], self.v[:, :, :stop]
        return replace(self, k=keys, v=values, x=self.x[:, :stop], positions=at(self.positions, slice(stop)))


def attend(
    encoder: Encoder,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    site: Site,
    attention: str = FUSED,
    *,
    rotated: bool = False,
    sharpen: Tensor | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Attend through the encoder's hooks: ``(batch, heads, query, head_dim)``.

    The plain path is the definition. The fused kernel replaces it where it is faster and the encoder keeps the softmax
    and changes scores by a static bias at most. ``rotated``: q and k come from the encoder's ``rotate``.

    ``sharpen``, ``(…, query, 1)``, multiplies scores as the encoder leaves them. ``sinks``, ``(heads,)``, are logits
    that take their share of a softmax over these scores, and what attention mixes shrinks by it.
    """
    changes_scores = encoder.overrides("score")
    may_fuse = not encoder.overrides("mix") and (encoder.static_bias or not changes_scores)
    if attention == FUSED and may_fuse and fused_pays(q, k):
        if not rotated:
            q, k = encoder.rotate(q, k, site)
        mask = site.mask
        if changes_scores:
            nothing = torch.zeros(1, 1, *site.mask.shape[-2:], dtype=q.dtype, device=q.device)
            bias = encoder.score(nothing, q, k, site)
            mask = (bias if sharpen is None else bias * sharpen).masked_fill(~site.mask, -torch.inf)
        if sharpen is not None:
            q = q * sharpen
        if sinks is not None:
            k, v, mask = with_sinks(k, v, mask, sinks)
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=encoder.geometry.head_dim**-0.5)
    scores = unmasked_scores(encoder, q, k, site, rotated=rotated, sharpen=sharpen)
    scores = scores + scores.new_zeros(site.mask.shape).masked_fill(~site.mask, -torch.inf)
    mixed = encoder.mix(scores, v, site)
    return mixed if sinks is None else mixed * left_by_sinks(scores, sinks)


def unmasked_scores(
    encoder: Encoder, q: Tensor, k: Tensor, site: Site, *, rotated: bool, sharpen: Tensor | None = None
) -> Tensor:
    """Return scores before the mask, ``(batch, heads, query, key)``."""
    if rotated:
        scores = encoder.score(q * encoder.geometry.head_dim**-0.5 @ k.mT, q, k, site)
    else:
        scores = raw_scores(encoder, q, k, site)
    return scores if sharpen is None else scores * sharpen


def left_by_sinks(scores: Tensor, sinks: Tensor) -> Tensor:
    """Return the share of a softmax over masked scores and the head's sink that is not the sink's: ``(…, query, 1)``.

    Agarwal et al. (2025), arXiv:2508.10925, §2.2: gpt-oss learns a logit for each head, and drops what it takes.
    """
    return (scores.logsumexp(-1, keepdim=True) - sinks[:, None, None].to(scores.dtype)).sigmoid()


def with_sinks(k: Tensor, v: Tensor, mask: Tensor, sinks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Append a key and a value of zeros whose score is the head's sink."""
    bias = mask if mask.is_floating_point() else k.new_zeros(mask.shape).masked_fill(~mask, -torch.inf)
    bias = (bias if bias.ndim == 4 else bias[None, None]).expand(-1, len(sinks), -1, -1)
    column = sinks[None, :, None, None].to(bias.dtype).expand(len(bias), -1, bias.shape[-2], 1)
    k, v = (functional.pad(part, (0, 0, 0, 1)) for part in (k, v))
    return k, v, torch.cat([bias, column], -1)
