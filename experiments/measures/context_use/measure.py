"""Bits per byte of the same text after different contexts."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from experiments.measures.context_use import CONTENT, CUT, GAIN, KEPT, NAME, QUALITY, REPLACED, SEPARATE, SLIDING
from experiments.rows.row import Row
from experiments.tasks import Batch
from experiments.training.evaluate import Scored, Subject, evaluate
from pe_zoo import Unsupported
from pe_zoo._knobs import Count, Positive, Several, Share


@dataclass(frozen=True, eq=False)
class Places:
    """Tokens of the running test text to predict; of a seed, the same for every encoder and window.

    ``targets`` tokens are predicted before each of ``target_ends``, ``(batch,)`` int64, where windows with different
    contexts end; stretches of ``size``, the longest window, begin at ``starts``. Both lie evenly over the text.
    """

    target_ends: Tensor
    targets: int
    starts: Tensor
    size: int

    @classmethod
    def of(cls, text_length: int, longest: int, targets: int, budget: int, shift: float) -> Self:
        """Choose about ``budget`` tokens for either comparison; the text has at least twice the ``longest`` window.

        ``shift``, from 0 to 1, moves them on together, 1 being as far as the next begins.
        """
        room = text_length - longest

        def spread(size: int) -> Tensor:
            count = max(1, min(budget, room) // size)
            return longest + torch.arange(count) * room // count + int(shift * (room // count - size))

        return cls(spread(targets) + targets, targets, spread(longest), longest)


def check(*, multiples: Iterable[float], target_share: float, stride_share: float, **others: object) -> None:
    """Refuse knobs that do not go together."""
    shortest = min(multiples)
    for knob, share in (("target_share", target_share), ("stride_share", stride_share)):
        if share > shortest:
            raise ValueError(
                f"context_use.{knob}={share:g} is longer than the shortest window, {shortest:g} training "
                f"lengths; lower it or raise context_use.multiples"
            )


def measure(
    subject: Subject,
    *,
    multiples: Several[Positive] = (0.5, 1.0, 2.0, 4.0),
    samples: Count = 64,
    target_share: Share = 0.25,
    stride_share: Positive = 0.125,
) -> list[Row]:
    """Measure bits per byte of the same text after different contexts, at multiples of the training length.

    Args:
        subject: the trained model and its task, which must have running text.
        multiples: lengths of windows, in training lengths, each above 0.
        samples: tokens predicted in each of the two comparisons, in training lengths, at least 1.
        target_share: tokens predicted at the end of a window, in training lengths, in (0, 1]; at most the shortest
            window.
        stride_share: how far sliding windows move on, in training lengths, above 0; at most the shortest window.
    """
    train_length, text_length = subject.task.train_length, subject.task.running_length
    if not text_length:
        windows(subject, torch.ones(1, dtype=torch.long), 1)  # raises the reason
    targets = max(1, round(target_share * train_length))
    stride = max(1, round(stride_share * train_length))
    lengths = sorted({max(targets, stride, round(train_length * multiple)) for multiple in multiples})
    fitting = [length for length in lengths if 2 * length <= text_length]
    rows = [
        subject.cannot(NAME, QUALITY, f"a test text of {text_length} tokens is too short", eval_length=length)
        for length in lengths
        if length not in fitting
    ]
    if fitting:
        shift = float(torch.rand((), generator=subject.stream(f"{NAME}/places")))
        places = Places.of(text_length, fitting[-1], targets, samples * train_length, shift)
        for length in fitting:
            rows += _at_length(subject, places, length, stride)
    return rows


def _at_length(subject: Subject, places: Places, length: int, stride: int) -> Iterator[Row]:
    train_length = subject.task.train_length
    ways: dict[str, Callable[[], Scored]] = {KEPT: lambda: kept(subject, places, length)}
    if length >= train_length:
        ways[CUT] = lambda: kept(subject, places, train_length)
        ways[REPLACED] = lambda: replaced(subject, places, length, train_length)
    ways[SEPARATE] = lambda: sliding(subject, places, length, length)
    ways[SLIDING] = lambda: sliding(subject, places, length, stride)
    found: dict[str, Scored] = {}
    for condition, predicted in ways.items():
        try:
            found[condition] = predicted()
        except Unsupported as reason:
            yield subject.cannot(NAME, QUALITY, reason, eval_length=length, condition=condition)
            continue
        yield _row(subject, QUALITY, length, found[condition], condition)
    if length > train_length:
        for metric, other in ((GAIN, CUT), (CONTENT, REPLACED)):
            if KEPT in found and other in found:
                gain = replace(found[KEPT], nats=found[other].nats - found[KEPT].nats)
                yield _row(subject, metric, length, gain)
            else:
                yield subject.cannot(NAME, metric, f"not both {other} and {KEPT}", eval_length=length)


def _row(subject: Subject, metric: str, length: int, scored: Scored, condition: str = "") -> Row:
    measured = {"value": scored.quality()[QUALITY], "n": scored.n(QUALITY)}
    if metric == QUALITY:
        measured["chance"] = subject.best_guess(metric, length)
    return subject.row(NAME, metric, eval_length=length, condition=condition, **measured)


def windows(subject: Subject, ends: Tensor, length: int) -> Batch:
    """Return the windows of the text that end at given places."""
    return subject.task.windows(ends, length, causal=subject.model.causal)


def predict(subject: Subject, batch: Batch, length: int) -> Scored:
    """Predict every token of windows of a length, numbered from their start."""
    positions = subject.numbering.read(batch.tokens, subject.stream(f"{NAME}/{length}/positions"))
    return evaluate(subject.model, batch, positions)


def kept(subject: Subject, places: Places, length: int) -> Scored:
    """Predict the targets at the end of windows of a length: ``(batch, targets)``."""
    batch = windows(subject, places.target_ends, length)
    return predict(subject, batch, length).each(lambda answers: answers[:, -places.targets :])


def replaced(subject: Subject, places: Places, length: int, near: int) -> Scored:
    """Predict the targets with all but the last ``near`` tokens of a window taken from half the text away.

    Raises:
        Unsupported: the text is so short that the two windows overlap.
    """
    other = places.target_ends.roll(len(places.target_ends) // 2)
    if int((other - places.target_ends).abs().min()) < length:
        raise Unsupported(f"the test text is too short for another window of {length} tokens beside each")
    batch = windows(subject, places.target_ends, length)
    tokens = batch.tokens.clone()
    far = slice(1, 1 + length - near)  # the first token is the beginning's
    tokens[:, far] = windows(subject, other, length).tokens[:, far]
    batch = replace(batch, tokens=tokens)
    return predict(subject, batch, length).each(lambda answers: answers[:, -places.targets :])


def sliding(subject: Subject, places: Places, length: int, stride: int) -> Scored:
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

    return predict(subject, windows(subject, ends, length), length).each(new)
