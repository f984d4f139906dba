"""Predictions of the same text after more context, less of it, or other text."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from experiments.tasks import Batch
from experiments.training.evaluate import CHUNK_TOKENS, Scored, Subject, evaluate
from pe_zoo import Unsupported


@dataclass(frozen=True, eq=False)
class Places:
    """Tokens of the running test text to predict; the same for every encoder, seed and window.

    Args:
        target_ends: ``(batch,)`` int64, ends of the windows whose contexts are compared, evenly over the text.
        targets: number of tokens to predict before each end.
        starts: ``(stretches,)`` int64, beginnings of the stretches that windows are cut from, evenly over the text.
        size: length of a stretch: that of the longest window.
    """

    target_ends: Tensor
    targets: int
    starts: Tensor
    size: int

    @classmethod
    def of(cls, text_length: int, longest: int, targets: int, budget: int) -> Self:
        """Choose about ``budget`` tokens for either comparison; the text has at least twice the ``longest`` window."""
        room = text_length - longest
        windows, stretches = (max(1, min(budget, room) // size) for size in (targets, longest))
        ends = longest + torch.arange(1, windows + 1) * room // windows
        return cls(ends, targets, longest + torch.arange(stretches) * room // stretches, longest)


def predict(subject: Subject, purpose: str, ends: Tensor, length: int, change: Callable[[Batch], Batch]) -> Scored:
    """Predict every token of windows that end at given places, numbered from their start."""
    numbers = subject.stream(f"{purpose}/{length}/positions")
    positions = subject.numbering.evaluate(len(ends), length, numbers)
    batch = change(subject.task.windows(ends, length, causal=subject.model.causal))
    at_once = max(1, CHUNK_TOKENS // length)
    parts = []
    for start in range(0, len(ends), at_once):  # logits of all windows at once would be large
        rows = slice(start, start + at_once)
        numbered = positions if positions.ndim == 1 else positions[rows]
        parts.append(evaluate(subject.model, batch.part(rows), numbered))
    return Scored.joined(parts)


def kept(subject: Subject, purpose: str, places: Places, length: int) -> Scored:
    """Predict the targets at the end of windows of a length: ``(batch, targets)``."""
    scored = predict(subject, purpose, places.target_ends, length, lambda batch: batch)
    return scored.each(lambda answers: answers[:, -places.targets :])


def replaced(subject: Subject, purpose: str, places: Places, length: int, near: int) -> Scored:
    """Predict the targets with all but the last ``near`` tokens of a window taken from half the text away.

    Raises:
        Unsupported: the text is so short that the two windows overlap.
    """
    other = places.target_ends.roll(len(places.target_ends) // 2)
    if int((other - places.target_ends).abs().min()) < length:
        raise Unsupported(f"the test text is too short for another window of {length} tokens beside each")

    def swap(batch: Batch) -> Batch:
        tokens = batch.tokens.clone()
        far = slice(1, 1 + length - near)  # the first token is the beginning's
        tokens[:, far] = subject.task.windows(other, length, causal=subject.model.causal).tokens[:, far]
        return replace(batch, tokens=tokens)

    scored = predict(subject, purpose, places.target_ends, length, swap)
    return scored.each(lambda answers: answers[:, -places.targets :])


def sliding(subject: Subject, purpose: str, places: Places, length: int, stride: int) -> Scored:
    """Predict every token of the stretches in windows that end at most ``stride`` - 1 tokens after it.

    Every token has at least ``length - stride`` tokens before it; with a stride of ``length``, windows are separate.

    Returns:
        ``(stretches, tokens)``, a stretch being cut to whole windows.
    """
    size = places.size // length * length
    steps = torch.arange(stride, size + stride, stride).clamp(max=size)
    ends = (places.starts.unsqueeze(1) + steps).flatten()
    last = size - stride * (len(steps) - 1)  # the last step may be a shorter one

    def new(answers: Tensor) -> Tensor:
        stretches = answers[:, -stride:].unflatten(0, (-1, len(steps)))
        return torch.cat([stretches[:, :-1].flatten(1), stretches[:, -1, -last:]], 1)

    return predict(subject, purpose, ends, length, lambda batch: batch).each(new)
