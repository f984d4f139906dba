"""Sums of attention weights: over ranges of distance, and on a few informative keys."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Generator, Tensor

from experiments.measures.attention_pattern import DISTANCE, ENTROPY, FIRST, INDUCTION, MAIN, MASS
from experiments.model.layout import visible
from experiments.model.transformer import Transformer, View
from experiments.training.evaluate import chunks, evaluating
from pe_zoo import Unsupported

AT_ONCE = 2**23
"""Most weights computed at once, over all layers, unless one sequence has more: 32 MiB."""

SHORTEST = 3
"""Least symbols of a repeated sequence: of two, the token after the last occurrence is the token before."""

Tally = Callable[[Tensor, Tensor], dict[str, tuple[Tensor, Tensor]]]
"""Weights ``(batch, heads, query, key)`` and the mask of visible keys ``(heads, query, key)`` -> by metric, sums over
queries and sequences ``(heads, …)`` and the number of summands ``(heads,)``."""


@dataclass(frozen=True, eq=False)
class Pattern:
    """A metric of one layer's heads, ``(heads, …)`` float64: means over ``n`` queries; NaN where no query counts.

    ``uniform`` is the value for uniform weights on all visible keys.
    """

    value: Tensor
    uniform: Tensor
    n: Tensor

    def over_heads(self) -> Self:
        value, uniform = (part.mean(0, keepdim=True) for part in (self.value, self.uniform))
        return replace(self, value=value, uniform=uniform, n=self.n.sum(0, keepdim=True))


def patterns(model: Transformer, tokens: Tensor, positions: Tensor, tally: Tally) -> list[dict[str, Pattern]]:
    """Return the patterns of each layer's weights, by metric, computed on a few sequences at a time.

    Tokens are ``(batch, length)`` int64, positions ``(length,)`` or ``(batch, length)``.
    """
    place = torch.arange(tokens.shape[1])
    back = place[:, None] - place
    seen = [
        visible(back, layer.windows, model.causal).expand(1, layer.num_heads, -1, -1)[0]
        for layer in model.layers
        if isinstance(layer, View)
    ]
    sums: list[dict[str, tuple[Tensor, Tensor]]] = [{} for _ in seen]
    device, geometry = model.token_embedding.weight.device, model.geometry
    at_once = max(1, AT_ONCE // (geometry.num_layers * geometry.num_heads * tokens.shape[1] ** 2))
    with evaluating(model):
        for _, chunk, numbers in chunks(tokens, positions, at_once):
            parts = model.attention(chunk.to(device), numbers.to(device))
            for weights, mask, total in zip(parts, seen, sums, strict=True):
                # Weights solved from outputs may be below 0 by rounding.
                for metric, (part, count) in tally(weights.cpu().double().clamp_min(0), mask).items():
                    before = total.get(metric, (torch.zeros_like(part), torch.zeros_like(count)))
                    total[metric] = before[0] + part, before[1] + count
    found = []
    for mask, total in zip(seen, sums, strict=True):
        alike = tally((mask.double() / mask.sum(-1, keepdim=True)).unsqueeze(0), mask)
        found.append({key: Pattern(_mean(*both), _mean(*alike[key]), both[1].long()) for key, both in total.items()})
    return found


def _mean(total: Tensor, count: Tensor) -> Tensor:
    return total / count.reshape(-1, *[1] * (total.ndim - 1))


def distance_bins(length: int, *, causal: bool) -> list[tuple[int, int]]:
    """Return ranges of distance, both ends included: 0, 1, 2, 3-4, 5-8, … and keys ahead likewise.

    A range is not cut where the sequence ends within it, so that all lengths share their ranges.
    """
    behind = [(1, 1)] if length > 1 else []
    while behind and behind[-1][1] < length - 1:
        behind.append((behind[-1][1] + 1, 2 * behind[-1][1]))
    ahead = [] if causal else [(-high, -low) for low, high in reversed(behind)]
    return [*ahead, (0, 0), *behind]


def spread(bins: list[tuple[int, int]]) -> Tally:
    """Return a tally of a head's weight by distance, over all queries but the first, which has no key behind it.

    Mean distance and entropy are of weights as shares of their sum. They leave out queries without any weight, and
    entropy those that see one key only.
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
            MASS: (mass, asked),
            DISTANCE: (far.sum((0, 2)), (taken > 0).sum((0, 2))),
            ENTROPY: ((entropy * uncertain).sum((0, 2)), uncertain.sum((0, 2))),
            FIRST: (later[..., 0].sum((0, 2)), asked),
            MAIN: (weights.diagonal(-1, -2, -1).sum((0, 2)), asked),
        }

    return tally


def induction(weights: Tensor, seen: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Tally the weight on the key after the current token's first occurrence, on ``repeated`` sequences.

    The score is the mean of ``weights[t, t − n + 1]`` over the places t of the second copy, n the period: the
    prefix-matching score of Olsson et al. (2022), arXiv:2209.11895, for two copies.
    """
    period = weights.shape[-1] // 2
    found = weights.diagonal(1 - period, -2, -1)[..., 2:]
    count = torch.full((weights.shape[1],), float(found.shape[0] * found.shape[2]), dtype=torch.float64)
    return {INDUCTION: (found.sum((0, 2)), count)}


def repeated(begin: int, symbols: Tensor, count: int, longest: int, generator: Generator) -> Tensor:
    """Return random sequences, each twice after the beginning token: ``(count, 1 + 2 · period)`` int64.

    No symbol occurs twice in a period; the period is as long as the different symbols and the longest length allow.

    Raises:
        Unsupported: the period would be shorter than ``SHORTEST``.
    """
    period = min((longest - 1) // 2, len(symbols))
    if period < SHORTEST:
        raise Unsupported(f"{longest} places and {len(symbols)} symbols do not hold {SHORTEST} symbols, twice over")
    orders = torch.rand(count, len(symbols), generator=generator, dtype=torch.float64).argsort(-1)[:, :period]
    once = symbols[orders]
    return torch.cat([torch.full((count, 1), begin), once, once], 1)
