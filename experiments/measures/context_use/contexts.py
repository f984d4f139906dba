"""What a model makes of the same text with more context before them, less of it, or another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from experiments.tasks import Batch
from experiments.training.evaluate import CHUNK_TOKENS, Scored, Subject, evaluate
from pe_zoo import Unsupported


@dataclass(frozen=True, eq=False)
class Places:
    """Which tokens of the running test text are asked for; the same for every encoder, seed and window.

    Args:
        target_ends: ``(batch,)`` int64, where the windows of the comparison of contexts end, evenly over the text.
        targets: how many tokens before each end are asked for.
        starts: ``(stretches,)`` int64, where the stretches begin that windows are cut from, evenly over the text.
        size: length of a stretch, that of the longest window.
    """

    target_ends: Tensor
    targets: int
    starts: Tensor
    size: int

    @classmethod
    def of(cls, text_length: int, longest: int, targets: int, budget: int) -> Places:
        """About ``budget`` tokens for either comparison, each with ``longest`` of them before it or its window.

        Args:
            text_length: of the running text in tokens, at least twice ``longest``.
            longest: window.
            targets: tokens asked for at a window's end.
            budget: tokens, at least 1.
        """
        room = text_length - longest
        windows, stretches = (max(1, min(budget, room) // size) for size in (targets, longest))
        ends = longest + torch.arange(1, windows + 1) * room // windows
        return cls(ends, targets, longest + torch.arange(stretches) * room // stretches, longest)


def told(subject: Subject, purpose: str, ends: Tensor, length: int, change: Callable[[Batch], Batch]) -> Scored:
    """Every token of windows up to given places, numbered from the start as any sequence is."""
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


def kept(subject: Subject, purpose: str, asked: Places, length: int) -> Scored:
    """The targets with all that a window of a length holds before them: ``(batch, targets)``."""
    scored = told(subject, purpose, asked.target_ends, length, lambda batch: batch)
    return scored.each(lambda answers: answers[:, -asked.targets :])


def replaced(subject: Subject, purpose: str, asked: Places, length: int, near: int) -> Scored:
    """The same, but what lies before the last ``near`` tokens of a window is that of the window half the text away.

    Raises:
        Unsupported: the text is so short that the two windows overlap.
    """
    other = asked.target_ends.roll(len(asked.target_ends) // 2)
    if int((other - asked.target_ends).abs().min()) < length:
        raise Unsupported(f"the test text is too short for another window of {length} tokens beside each")

    def swap(batch: Batch) -> Batch:
        tokens = batch.tokens.clone()
        far = slice(1, 1 + length - near)  # the first token is the beginning's
        tokens[:, far] = subject.task.windows(other, length, causal=subject.model.causal).tokens[:, far]
        return replace(batch, tokens=tokens)

    scored = told(subject, purpose, asked.target_ends, length, swap)
    return scored.each(lambda answers: answers[:, -asked.targets :])


def separate(subject: Subject, purpose: str, asked: Places, length: int) -> Scored:
    """Every token of the stretches in windows that follow one another: ``(stretches, tokens)``."""
    return sliding(subject, purpose, asked, length, length)


def sliding(subject: Subject, purpose: str, asked: Places, length: int, stride: int) -> Scored:
    """Every token of the stretches by a window that ends at most ``stride`` - 1 tokens after it.

    So every token has at least ``length - stride`` before it.

    Returns:
        ``(stretches, tokens)``, those that ``separate`` asks for: a stretch in whole windows.
    """
    size = asked.size // length * length
    steps = torch.arange(stride, size + stride, stride).clamp(max=size)
    ends = (asked.starts.unsqueeze(1) + steps).flatten()
    last = size - stride * (len(steps) - 1)  # the last step may be a shorter one

    def new(answers: Tensor) -> Tensor:
        stretches = answers[:, -stride:].unflatten(0, (-1, len(steps)))
        return torch.cat([stretches[:, :-1].flatten(1), stretches[:, -1, -last:]], 1)

    return told(subject, purpose, ends, length, lambda batch: batch).each(new)
