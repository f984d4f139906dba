"""What an encoder is before any training: its codes, the kernel it puts on scores, and what attention makes of that."""

from __future__ import annotations

import copy

import torch
from torch import Generator, Tensor

from experiments.model.attention import weights
from pe_zoo import Encoder, Site, scores

DRAWS = 16
"""Contents that a kernel is a mean over, each with its negative."""
AT_ONCE = 1 << 21
"""Scores held at a time: a few encoders keep dozens of numbers for each."""


def exact(encoder: Encoder) -> Encoder:
    """A copy on the CPU in float64, without gradients."""
    return copy.deepcopy(encoder).to("cpu").double().requires_grad_(False)


def codes(encoder: Encoder, positions: Tensor) -> Tensor:
    """The vectors that an encoder adds to token embeddings: ``(length, model_dim)`` float64; zeros if it adds none.

    Args:
        encoder: of ``exact``.
        positions: ``(length,)``.
    """
    nothing = torch.zeros(1, len(positions), encoder.geometry.model_dim, dtype=torch.float64)
    return encoder.embed(nothing, positions)[0]


def kernel(
    encoder: Encoder,
    positions: Tensor,
    generator: Generator,
    *,
    causal: bool,
    layer: int = 0,
    draws: int = DRAWS,
    queries: int | None = None,
) -> Tensor:
    """The expected score between query i and key j of equal content, ``(heads, query, key)`` float64.

    Content is random signs (mean 0, variance 1), the same at all places and for query and key: of independent ones
    the expected product is 0 at every distance, whatever the encoder. Each comes with its negative, so that products of
    content and position cancel, and signs give every pair of dimensions the same norm, so that what rotation makes
    of a distance is exact, not an estimate. What an encoder hides itself (−inf) stays hidden.

    Args:
        encoder: of ``exact``.
        positions: ``(length,)``.
        generator: of the contents.
        causal: what the encoder is told; nothing is masked.
        layer: which layer's parameters.
        draws: contents, at least 1.
        queries: only so many, the last of the sequence; None: all.
    """
    geometry = encoder.geometry
    length = len(positions)
    rows = slice(length - (queries or length), length)
    signs = torch.randint(2, (draws, 1, geometry.model_dim), generator=generator).double() * 2 - 1
    total = torch.zeros(geometry.num_heads, rows.stop - rows.start, length, dtype=torch.float64)
    for contents in torch.cat([signs, -signs]).split(max(1, AT_ONCE // total.numel())):
        x = encoder.embed(contents.expand(-1, length, -1), positions)
        heads = x.unflatten(-1, (geometry.num_heads, -1)).transpose(1, 2)
        total += scores(encoder, heads[:, :, rows], heads, positions, layer, x, causal=causal).sum(0)
    return total / (2 * draws)


def kernel_weights(encoder: Encoder, expected: Tensor, positions: Tensor, *, causal: bool, layer: int = 0) -> Tensor:
    """What attention makes of a kernel alone, ``(heads, query, key)``: where it looks if all content is alike.

    Args:
        encoder: of ``exact``.
        expected: of ``kernel``; its queries are the last of the sequence.
        positions: as for ``kernel``.
        causal: whether a query sees only itself and what came before.
        layer: which layer's parameters.
    """
    length = len(positions)
    rows = slice(length - expected.shape[-2], length)
    mask = torch.ones(length, length, dtype=torch.bool)
    site = Site(
        layer=layer,
        query_positions=positions[rows],
        key_positions=positions,
        rows=rows,
        mask=(mask.tril() if causal else mask)[rows],
        causal=causal,
        x=torch.zeros(1, length, encoder.geometry.model_dim, dtype=torch.float64),
    )
    return weights(encoder, expected.unsqueeze(0), site)[0]
