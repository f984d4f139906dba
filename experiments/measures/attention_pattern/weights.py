"""Where attention looks: each head's weights over distance, their spread, and how much goes to a few telling keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from experiments.model.layout import visible
from experiments.model.transformer import Layer, Transformer
from pe_zoo import Unsupported

AT_ONCE = 2**23
"""Weights held at once, all layers together, unless one sequence has more: 32 MiB."""

SHORTEST = 3
"""Symbols of a sequence that comes twice, at least: of two, what came next the last time is the token before."""

Tally = Callable[[Tensor, Tensor], dict[str, tuple[Tensor, Tensor]]]
"""Weights, ``(batch, heads, query, key)``, and which of them may be other than 0, ``(heads, query, key)``, to sums over
queries and sequences, ``(heads, …)``, by metric, each with how many were summed, ``(heads,)``."""


@dataclass(frozen=True, eq=False)
class Pattern:
    """What one layer's heads do, as a mean over queries and sequences.

    Args:
        value: ``(heads, …)`` float64; NaN where no query could be asked.
        uniform: what weights that are alike on all visible keys would give; of the same shape.
        n: how many queries each is a mean over, ``(heads,)``.
    """

    value: Tensor
    uniform: Tensor
    n: Tensor

    def over_heads(self) -> Pattern:
        """The mean of the heads, as if they were one."""
        value, uniform = (part.mean(0, keepdim=True) for part in (self.value, self.uniform))
        return Pattern(value, uniform, self.n.sum(0, keepdim=True))


def patterns(model: Transformer, tokens: Tensor, positions: Tensor, tally: Tally) -> list[dict[str, Pattern]]:
    """What a tally makes of each layer's weights, by metric; of each its value for uniform attention too.

    Args:
        model: any; a few sequences at a time go through it.
        tokens: ``(batch, length)`` int64.
        positions: ``(length,)`` or ``(batch, length)``.
        tally: of one layer's weights.
    """
    seen = [_seen(model, layer, tokens.shape[1]) for layer in model.layers if isinstance(layer, Layer)]
    sums: list[dict[str, tuple[Tensor, Tensor]]] = [{} for _ in seen]
    for parts in _weights(model, tokens, positions):
        for weights, mask, total in zip(parts, seen, sums, strict=True):
            # Weights that were solved for, not computed as such, may fall short of 0 by rounding.
            for metric, (part, count) in tally(weights.cpu().double().clamp_min(0), mask).items():
                before = total.get(metric, (torch.zeros_like(part), torch.zeros_like(count)))
                total[metric] = before[0] + part, before[1] + count
    found = []
    for mask, total in zip(seen, sums, strict=True):
        alike = tally((mask.double() / mask.sum(-1, keepdim=True)).unsqueeze(0), mask)
        found.append(
            {metric: Pattern(_mean(*both), _mean(*alike[metric]), both[1].long()) for metric, both in total.items()}
        )
    return found


def _mean(total: Tensor, count: Tensor) -> Tensor:
    return total / count.reshape(-1, *[1] * (total.ndim - 1))


def _seen(model: Transformer, layer: Layer, length: int) -> Tensor:
    place = torch.arange(length)
    return visible(place[:, None] - place, layer.windows, model.causal).expand(1, layer.num_heads, -1, -1)[0]


def _weights(model: Transformer, tokens: Tensor, positions: Tensor) -> Iterator[list[Tensor]]:
    """Each layer's weights, without gradients, a few sequences at a time."""
    device = model.token_embedding.weight.device
    batch_size, length = tokens.shape
    at_once = max(1, AT_ONCE // (model.geometry.num_layers * model.geometry.num_heads * length**2))
    was_training = model.training
    model.eval()
    try:
        for start in range(0, batch_size, at_once):
            rows = slice(start, start + at_once)
            where = positions if positions.ndim == 1 else positions[rows]
            with torch.no_grad():
                parts = model.attention(tokens[rows].to(device), where.to(device))
            yield parts
    finally:
        model.train(was_training)


def distance_bins(length: int, *, causal: bool) -> list[tuple[int, int]]:
    """Ranges of distances, query minus key, both ends included: 0, 1, 2, 3-4, 5-8, … and keys ahead likewise.

    A range is whole even where the sequence ends within it, so that lengths share their ranges.
    """
    behind = [(1, 1)] if length > 1 else []
    while behind and behind[-1][1] < length - 1:
        behind.append((behind[-1][1] + 1, 2 * behind[-1][1]))
    ahead = [] if causal else [(-high, -low) for low, high in reversed(behind)]
    return [*ahead, (0, 0), *behind]


def spread(bins: list[tuple[int, int]]) -> Tally:
    """How a head spreads its weight: ``attention_mass`` in each bin, ``mean_distance``, ``attention_entropy_share``,
    ``first_token_mass``, ``previous_token_score``; over all queries but the first, which has no key behind it.

    Distance and entropy are of the weights as shares of their sum, and leave out queries that take nothing at all;
    entropy those too that see one key only.
    """

    def tally(weights: Tensor, seen: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        length = weights.shape[-1]
        place = torch.arange(length)
        distance = place[1:, None] - place
        later, choice = weights[:, :, 1:], seen[:, 1:].sum(-1)
        asked = torch.full((weights.shape[1],), float(later.shape[0] * later.shape[2]), dtype=torch.float64)
        bin_of = sum((distance > high).long() for _, high in bins[:-1])
        mass = torch.zeros(weights.shape[1], len(bins), dtype=torch.float64)
        mass.index_add_(1, torch.as_tensor(bin_of).expand_as(distance).flatten(), later.sum(0).flatten(1))
        taken = later.sum(-1)
        shares = later / taken.unsqueeze(-1).where(taken.unsqueeze(-1) > 0, 1.0)
        far = (shares * distance.abs()).sum(-1)
        entropy = -torch.xlogy(shares, shares).sum(-1) / choice.clamp_min(2).log()
        uncertain = (taken > 0) & (choice > 1)
        return {
            "attention_mass": (mass, asked),
            "mean_distance": (far.sum((0, 2)), (taken > 0).sum((0, 2))),
            "attention_entropy_share": ((entropy * uncertain).sum((0, 2)), uncertain.sum((0, 2))),
            "first_token_mass": (later[..., 0].sum((0, 2)), asked),
            "previous_token_score": (weights.diagonal(-1, -2, -1).sum((0, 2)), asked),
        }

    return tally


def induction(weights: Tensor, seen: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """How much the second copy takes of the key after the same token's first occurrence, on ``repeated`` sequences.

    The mean of ``weights[t, t − n + 1]`` over the places t of the second copy, n the period: the prefix-matching
    score of Olsson et al. (2022), arXiv:2209.11895, for two copies.
    """
    period = weights.shape[-1] // 2
    found = weights.diagonal(1 - period, -2, -1)[..., 2:]
    count = torch.full((weights.shape[1],), float(found.shape[0] * found.shape[2]), dtype=torch.float64)
    return {"induction_score": (found.sum((0, 2)), count)}


def repeated(begin: int, symbols: Tensor, count: int, room: int, generator: Generator) -> Tensor:
    """Random sequences, each twice over after the beginning token: ``(count, 1 + 2 · period)`` int64.

    No symbol occurs twice in a period, so that each has one earlier occurrence; the period is as long as symbols and
    room allow.

    Args:
        begin: the token that sequences begin with.
        symbols: to draw from, all different.
        count: sequences.
        room: longest sequence allowed.
        generator: of the drawing.

    Raises:
        Unsupported: there is no period of at least ``SHORTEST``.
    """
    period = min((room - 1) // 2, len(symbols))
    if period < SHORTEST:
        raise Unsupported(f"{room} places and {len(symbols)} symbols do not hold {SHORTEST} symbols, twice over")
    orders = torch.rand(count, len(symbols), generator=generator, dtype=torch.float64).argsort(-1)[:, :period]
    once = symbols[orders]
    return torch.cat([torch.full((count, 1), begin), once, once], 1)
