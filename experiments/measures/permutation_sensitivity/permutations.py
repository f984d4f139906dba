"""Permutations of an input, their distances from the identity, and how to apply one to tokens or positions."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import torch
from torch import Generator, Tensor

from experiments.measures.permutation_sensitivity import Change

Maker = Callable[[int, Generator], Tensor]
"""From a length and a source of randomness to a permutation, ``(length,)``: place i takes what was at ``[i]``."""


def makers(ngrams: Iterable[int], windows: Iterable[int], swap_shares: Iterable[float]) -> dict[Change, Maker]:
    """Return every change of order and the function that draws its permutations."""
    return {
        Change("shuffle"): partial(ngram_shuffle, n=1),
        **{Change("n-gram shuffle", size=n): partial(ngram_shuffle, n=n) for n in ngrams},
        **{Change("shuffle within", size=width): partial(window_shuffle, width=width) for width in windows},
        **{Change("adjacent swaps", share=share): partial(adjacent_swaps, share=share) for share in swap_shares},
        Change("rotation"): rotation,
        Change("reversal"): lambda length, generator: torch.arange(length).flip(0),
    }


def ngram_shuffle(length: int, generator: Generator, *, n: int) -> Tensor:
    """Shuffle whole pieces of n neighbours (the last may be shorter). Sinha et al. (2021), arXiv:2104.06644."""
    pieces = torch.arange(length).split(n)
    return torch.cat([pieces[i] for i in torch.randperm(len(pieces), generator=generator).tolist()])


def window_shuffle(length: int, generator: Generator, *, width: int) -> Tensor:
    """Shuffle within pieces of ``width`` (the last may be shorter): neighbours are lost, and nothing moves far."""
    pieces = torch.arange(length).split(width)
    return torch.cat([piece[torch.randperm(len(piece), generator=generator)] for piece in pieces])


def adjacent_swaps(length: int, generator: Generator, *, share: float) -> Tensor:
    """Swap a share of the disjoint pairs of neighbours, at least one."""
    order = torch.arange(length)
    num_pairs = length // 2
    lefts = 2 * torch.randperm(num_pairs, generator=generator)[: max(1, round(share * num_pairs))]
    order[lefts], order[lefts + 1] = lefts + 1, lefts
    return order


def rotation(length: int, generator: Generator) -> Tensor:
    """Rotate everything by the same random number of places, at least one."""
    return torch.arange(length).roll(int(torch.randint(1, max(2, length), (), generator=generator)))


def index_displacement(orders: Tensor) -> float:
    """Return the mean |π(i) − i| / length of ``(..., length)``. IDC of Clouatre et al. (2021), arXiv:2107.13955.

    0 for the identity, about 1/3 for a random permutation, 1/2 for a reversal; the same for the inverse.
    """
    length = orders.shape[-1]
    return (orders - torch.arange(length)).abs().double().mean().item() / length


def neighbours_lost(orders: Tensor) -> float:
    """Return the share of neighbours that are parted, of ``(..., length)``. DND of Clouatre et al. (2021).

    0 for the identity, 1 − 1/length on average for a random permutation, 1 for a reversal; the same for the inverse.
    """
    kept = (orders.diff() == 1).double()
    return 1.0 - kept.mean().item() if kept.numel() else 0.0


DISTANCE = {"index_displacement": index_displacement, "neighbours_lost": neighbours_lost}


def slope(distances: Sequence[float], damages: Sequence[float]) -> float:
    """Return the least-squares slope of a line through the origin: Σ distance · damage / Σ distance²."""
    products = sum(distance * damage for distance, damage in zip(distances, damages, strict=True))
    return products / sum(distance * distance for distance in distances)


@dataclass(frozen=True, eq=False)
class Intervention:
    """One change of order, a permutation π for each sequence, ``(batch, span)``, of tokens or of positions.

    Of tokens, place i takes the token of place π(i). Of positions, tokens stay and the one at place π(i) gets the
    position of place i. So both give every token the same position, at different places.
    """

    orders: Tensor
    on_positions: bool = False

    def __call__(self, tokens: Tensor, positions: Tensor, span: slice) -> tuple[Tensor, Tensor]:
        """Return tokens, ``(batch, length)``, and positions, ``(length,)`` or so, with the span permuted."""
        if self.on_positions:
            positions = positions.expand(*tokens.shape, *positions.shape[2:]).clone()
            rows = torch.arange(len(tokens)).unsqueeze(-1)
            positions[:, span] = positions[:, span][rows, self.orders.argsort(-1)]
            return tokens, positions
        tokens = tokens.clone()
        tokens[:, span] = tokens[:, span].gather(1, self.orders)
        return tokens, positions

    def part(self, rows: slice) -> Self:
        return replace(self, orders=self.orders[rows])

    def moved(self, values: Tensor) -> Tensor:
        """Return ``(batch, span, dim)`` values with each at the new place of its token."""
        if self.on_positions:
            return values
        return values.gather(1, self.orders.to(values.device).unsqueeze(-1).expand_as(values))
