"""Permutations of an input, how far each is from leaving it alone, and what a model makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Generator, Tensor

from experiments._evaluate import Scored, logits_of, score
from experiments._model import Transformer
from experiments.tasks import Batch

Maker = Callable[[int, Generator], Tensor]
"""A length and a source of randomness to a permutation, ``(length,)``: place i takes what stood at ``[i]``."""


def makers(ngrams: Iterable[int], swap_shares: Iterable[float]) -> dict[str, Maker]:
    """Every kind of permutation by the name of its condition."""
    return {
        "shuffle": partial(ngram_shuffle, n=1),
        **{f"{n}-gram shuffle": partial(ngram_shuffle, n=n) for n in ngrams},
        **{f"adjacent swaps {100 * share:g}%": partial(adjacent_swaps, share=share) for share in swap_shares},
        "rotation": rotation,
        "reversal": lambda length, generator: torch.arange(length).flip(0),
    }


def ngram_shuffle(length: int, generator: Generator, *, n: int) -> Tensor:
    """Pieces of n neighbours (the last may be shorter) change places, whole. Sinha et al. (2021), arXiv:2104.06644."""
    pieces = torch.arange(length).split(n)
    return torch.cat([pieces[i] for i in torch.randperm(len(pieces), generator=generator).tolist()])


def adjacent_swaps(length: int, generator: Generator, *, share: float) -> Tensor:
    """A share of the disjoint pairs of neighbours, at least one, change places within themselves."""
    order = torch.arange(length)
    num_pairs = length // 2
    lefts = 2 * torch.randperm(num_pairs, generator=generator)[: max(1, round(share * num_pairs))]
    order[lefts], order[lefts + 1] = lefts + 1, lefts
    return order


def rotation(length: int, generator: Generator) -> Tensor:
    """Everything moves round by the same random number of places, at least one."""
    return torch.arange(length).roll(int(torch.randint(1, max(2, length), (), generator=generator)))


def index_displacement(orders: Tensor) -> float:
    """Mean |π(i) − i| / length: how far tokens moved. IDC of Clouatre et al. (2021), arXiv:2107.13955.

    0 for the identity, about 1/3 for a random permutation, 1/2 for a reversal.

    Args:
        orders: ``(..., length)``.
    """
    length = orders.shape[-1]
    return (orders - torch.arange(length)).abs().double().mean().item() / length


def neighbours_lost(orders: Tensor) -> float:
    """Share of neighbours that no longer follow one another. DND of Clouatre et al. (2021), arXiv:2107.13955.

    0 for the identity, 1 − 1/length on average for a random permutation, 1 for a reversal; 0 if there is one token.

    Args:
        orders: ``(..., length)``.
    """
    kept = (orders.diff() == 1).double()
    return 1.0 - kept.mean().item() if kept.numel() else 0.0


def permute(batch: Batch, span: slice, orders: Tensor) -> Batch:
    """The batch with the tokens of a span in another order for each sequence; targets as they were."""
    tokens = batch.tokens.clone()
    tokens[:, span] = batch.tokens[:, span].gather(1, orders)
    return replace(batch, tokens=tokens)


@dataclass(frozen=True, eq=False)
class Outputs:
    """A model's logits on one batch, less their mean over the vocabulary, which softmax cannot see.

    Args:
        logits: ``(batch, length, vocab)``.
        answer: ``(length,)`` bool, the scored places after the input.
        span: where the input stands.
    """

    logits: Tensor
    answer: Tensor
    span: slice

    @classmethod
    def of(cls, model: Transformer, batch: Batch, positions: Tensor, span: slice) -> Outputs:
        logits = logits_of(model, batch.tokens, positions)
        answer = batch.counted & (torch.arange(len(batch.counted)) >= span.stop)
        return cls(logits - logits.mean(-1, keepdim=True), answer, span)

    def scored(self, batch: Batch) -> Scored:
        """The answer against a batch's targets."""
        return score(self.logits[:, self.answer], batch.targets[:, self.answer])

    def change(self, untouched: Outputs) -> float:
        """‖f(πx) − f(x)‖ / ‖f(x)‖ over the answer."""
        before = untouched.logits[:, self.answer]
        return ((self.logits[:, self.answer] - before).norm() / before.norm()).item()

    def equivariance_error(self, untouched: Outputs, orders: Tensor) -> float:
        """‖f(πx) − πf(x)‖ / ‖f(x)‖ over the input itself: 0 if the outputs just move with their tokens."""
        before = untouched.logits[:, self.span]
        moved = before.gather(1, orders.unsqueeze(-1).expand_as(before))
        return ((self.logits[:, self.span] - moved).norm() / before.norm()).item()
