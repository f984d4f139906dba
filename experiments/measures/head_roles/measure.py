"""How invariant and how equivariant the weights of each head are under permutations of the tokens they look at."""

import torch
from torch import Tensor

from experiments.measures.attention_pattern.weights import AT_ONCE
from experiments.measures.head_roles import INITIAL, MAIN, NAME, OVERLAP, SYMBOLIC
from experiments.model.transformer import Transformer
from experiments.rows.row import Row
from experiments.training.evaluate import Subject, chunks, evaluating
from pe_zoo import Unsupported
from pe_zoo._knobs import Count

ALIKE = 1e-12
"""Squared difference between weights and permuted weights, a query, below which they are all alike."""
METRICS = (MAIN, SYMBOLIC, OVERLAP)


def measure(subject: Subject, *, samples: Count = 128) -> list[Row]:
    """Place each head between positional and symbolic, before training and after.

    Args:
        subject: the trained model and its task; measured at the training length.
        samples: sequences, at least 1, each with its own permutation; of a fixed test set, windows.
    """
    task = subject.task
    batch, positions = subject.question(NAME, samples, task.train_length)
    span = task.input_span(task.train_length)
    if span.stop - span.start < 2:
        raise Unsupported("an input of one token has no order; give task.train_length more")
    keys = torch.rand(len(batch.tokens), span.stop - span.start, generator=subject.stream(f"{NAME}/permutations"))
    order, rows = keys.argsort(-1), list[Row]()
    for stage, model in (("", subject.model), (INITIAL, subject.initial())):
        for layer, squares in enumerate(changes(model, batch.tokens, positions, span, order)):
            for head, parts in enumerate(squares.tolist()):
                rows += _head(subject, stage, {"layer": layer, "head": head}, parts, len(order))
    return rows


def _head(subject: Subject, stage: str, where: dict[str, int], squares: list[float], n: int) -> list[Row]:
    invariance, equivariance, permuted = squares
    if permuted < ALIKE * n:
        reason = "the weights are all alike: invariant and equivariant at once"
        return [subject.cannot(NAME, f"{stage}{metric}", reason, **where) for metric in METRICS]
    scores = 1 - invariance / permuted, 1 - equivariance / permuted
    values = dict(zip(METRICS, (*scores, min(scores)), strict=True))
    return [subject.row(NAME, f"{stage}{metric}", **where, value=value, n=n) for metric, value in values.items()]


def changes(model: Transformer, tokens: Tensor, positions: Tensor, span: slice, order: Tensor) -> list[Tensor]:
    """Return three sums of squares for each layer's heads, ``(heads, 3)`` float64, over all sequences.

    They are of the weights on the span after a permutation of its tokens less those before, less those before moved
    with their tokens, and of the latter two's difference. The query is the place after the span; ``order`` has the
    permutations, ``(batch, size)`` int64. Positions are ``(length,)`` or ``(batch, length)``.
    """
    permuted = tokens.clone()
    permuted[:, span] = tokens[:, span].gather(1, order)
    device, heads = model.token_embedding.weight.device, model.geometry.num_layers * model.geometry.num_heads
    at_once, sums = max(1, AT_ONCE // (heads * tokens.shape[1] ** 2)), list[Tensor]()

    def weights(read: Tensor, places: Tensor) -> list[Tensor]:
        found = model.attention(read.to(device), places.to(device))
        return [layer[:, :, span.stop, span].cpu().double() for layer in found]

    with evaluating(model):
        for rows, part, places in chunks(tokens, positions, at_once):
            both = zip(weights(part, places), weights(permuted[rows], places), strict=True)
            for layer, (before, after) in enumerate(both):
                moved = before.gather(2, order[rows].unsqueeze(1).expand_as(before))
                found = torch.stack([after - before, after - moved, moved - before], -1).square().sum((0, 2))
                if layer == len(sums):
                    sums.append(torch.zeros_like(found))
                sums[layer] += found
    return sums
