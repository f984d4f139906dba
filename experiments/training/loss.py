"""The loss of a batch, and how it is computed where the vocabulary is large."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from experiments.model.transformer import Transformer
from experiments.tasks import Batch

LARGE = 1024
"""Tokens of a vocabulary from which logits of a whole batch leave the cache of a CPU. Smaller ones round as before.

On a GPU the stream is selected from, always: logits that are would be added up again, place by place, on the way back.
"""
SLICE = 2**19
"""Logits at a time, 2 MB."""


def mean_loss(model: Transformer, batch: Batch, positions: Tensor | None = None) -> Tensor:
    """Return the mean loss of a batch in nats per counted token, a scalar with a gradient."""
    targets, weight = batch.targets[:, batch.counted].flatten(), model.unembedding.weight
    if len(weight) < LARGE and weight.device.type == "cpu":
        return functional.cross_entropy(model(batch.tokens, positions)[:, batch.counted].flatten(0, 1), targets)
    stream = model.last(batch.tokens, positions)[:, batch.counted].flatten(0, 1)
    if weight.device.type != "cpu":
        return functional.cross_entropy(model.unembedding(stream), targets)
    return _Sliced.apply(stream, weight, targets)  # type: ignore[no-untyped-call]


def each_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of each target in nats: ``(batch, length, vocab)`` and ``(batch, length)`` to the latter."""
    if logits.shape[-1] < LARGE:
        return functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
    # A vocabulary whose logits lie side by side is summed eight times as fast, and rounds otherwise.
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view_as(targets)


class _Sliced(torch.autograd.Function):
    """Cross-entropy of ``stream @ weight.T``, some tokens at a time, so that logits stay in the cache.

    The gradient is computed in the same pass: two to three times as fast on a core, and no more than a slice is kept.
    """

    @staticmethod
    def forward(ctx: Any, stream: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        count, at_once = len(stream), max(1, SLICE // len(weight))
        of_stream, of_weight, total = torch.empty_like(stream), torch.zeros_like(weight), stream.new_zeros(())
        for start in range(0, count, at_once):
            rows = slice(start, start + at_once)
            wanted = targets[rows, None]
            logits = stream[rows] @ weight.T
            logits -= logits.amax(-1, keepdim=True)
            total -= logits.gather(1, wanted).sum()
            sums = logits.exp_().sum(-1, keepdim=True)
            total += sums.log().sum()
            logits /= count * sums
            logits.scatter_add_(1, wanted, torch.full_like(sums, -1 / count))
            torch.mm(logits, weight, out=of_stream[rows])
            of_weight.addmm_(logits.T, stream[rows])
        ctx.save_for_backward(of_stream, of_weight)
        return total / count

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        of_stream, of_weight = ctx.saved_tensors
        return gradients[0] * of_stream, gradients[0] * of_weight, None
