"""Bits per byte of the same text after different contexts."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import torch

from experiments.measures.context_use import (
    CONTENT,
    CUT,
    GAIN,
    KEPT,
    MAIN,
    NAME,
    NEEDS_TRAINING,
    QUALITY,
    REPLACED,
    SEPARATE,
    SLIDING,
    windows,
)
from experiments.measures.context_use.windows import Places
from experiments.rows.row import Row
from experiments.training.evaluate import Scored, Subject
from pe_zoo import Unsupported
from pe_zoo._knobs import number, whole

__all__ = ["MAIN", "NAME", "NEEDS_TRAINING", "check", "measure"]


def check(*, multiples: Iterable[float], samples: int, target_share: float, stride_share: float) -> None:
    """Refuse knobs out of range."""
    multiples = list(multiples)
    if not multiples:
        raise ValueError("context_use.multiples is empty; give at least one, such as [1,2,4]")
    for multiple in multiples:
        number("context_use.multiples", multiple, above=0)
    whole("context_use.samples", samples, at_least=1)
    number("context_use.target_share", target_share, above=0, at_most=1)
    number("context_use.stride_share", stride_share, above=0)
    for knob, share in (("target_share", target_share), ("stride_share", stride_share)):
        if share > min(multiples):
            raise ValueError(
                f"context_use.{knob}={share:g} is longer than the shortest window, {min(multiples):g} training "
                f"lengths; lower it or raise context_use.multiples"
            )


def measure(
    subject: Subject,
    *,
    multiples: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0),
    samples: int = 64,
    target_share: float = 0.25,
    stride_share: float = 0.125,
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
        subject.task.windows(torch.ones(1, dtype=torch.long), 1, causal=subject.model.causal)  # raises the reason
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
        places = Places.of(text_length, fitting[-1], targets, samples * train_length)
        for length in fitting:
            rows += _at_length(subject, places, length, stride)
    return rows


def _at_length(subject: Subject, places: Places, length: int, stride: int) -> list[Row]:
    train_length = subject.task.train_length
    ways: dict[str, Callable[[], Scored]] = {KEPT: lambda: windows.kept(subject, NAME, places, length)}
    if length >= train_length:
        ways[CUT] = lambda: windows.kept(subject, NAME, places, train_length)
        ways[REPLACED] = lambda: windows.replaced(subject, NAME, places, length, train_length)
    ways[SEPARATE] = lambda: windows.sliding(subject, NAME, places, length, length)
    ways[SLIDING] = lambda: windows.sliding(subject, NAME, places, length, stride)
    rows: list[Row] = []
    found: dict[str, Scored] = {}
    for condition, evaluate in ways.items():
        try:
            found[condition] = evaluate()
        except Unsupported as reason:
            rows.append(subject.cannot(NAME, QUALITY, reason, eval_length=length, condition=condition))
            continue
        rows.append(_row(subject, QUALITY, length, found[condition], condition))
    if length > train_length:
        for metric, other in ((GAIN, CUT), (CONTENT, REPLACED)):
            if KEPT in found and other in found:
                gain = replace(found[KEPT], nats=found[other].nats - found[KEPT].nats)
                rows.append(_row(subject, metric, length, gain))
            else:
                rows.append(subject.cannot(NAME, metric, f"not both {other} and {KEPT}", eval_length=length))
    return rows


def _row(subject: Subject, metric: str, length: int, scored: Scored, condition: str = "") -> Row:
    measured = {"value": scored.quality()[QUALITY], "n": scored.n(QUALITY)}
    if metric == QUALITY:
        measured["chance"] = subject.best_guess(metric, length)
    return subject.row(NAME, metric, eval_length=length, condition=condition, **measured)
