"""Evaluate a trained model beyond its training length, unchanged and changed without training."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pe_zoo
from experiments.measures.context_extension import AS_TRAINED, DROPPED, MAIN, NAME, NEEDS_TRAINING, REPLACED, WINDOW
from experiments.measures.context_extension.replacements import FACTOR, Replacement, altered, replacing
from experiments.model.transformer import Transformer
from experiments.rows.row import Row
from experiments.training.evaluate import Subject, evaluate
from pe_zoo import Unsupported
from pe_zoo._knobs import each, number, one_of, whole

__all__ = ["MAIN", "NAME", "NEEDS_TRAINING", "check", "measure"]


def check(*, multiples: Iterable[float], samples: int, replacements: Iterable[str]) -> None:
    """Refuse knobs out of range."""
    each("context_extension.multiples", multiples, number, above=0)
    whole("context_extension.samples", samples, at_least=1)
    for name in replacements:
        one_of("context_extension.replacements", name, pe_zoo.names())


def measure(
    subject: Subject,
    *,
    multiples: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0),
    samples: int = 64,
    replacements: tuple[str, ...] = (),
) -> list[Row]:
    """Measure quality at multiples of the training length, of the model as trained and changed without training.

    Args:
        subject: the trained model and its task.
        multiples: lengths to measure at, in training lengths, each above 0.
        samples: sequences per length, at least 1; of a fixed test set, windows of the training length.
        replacements: encoders to put in place of the model's own; empty: all that compute the same in training range.
    """
    found, refused = _replacements(subject, replacements)
    rows: list[Row] = []
    train_length = subject.task.train_length
    for length in sorted({max(1, round(train_length * multiple)) for multiple in multiples}):
        for condition, reason in refused.items():
            rows += _cannot(subject, length, {"condition": condition}, reason)
        try:
            question = subject.question(NAME, samples, length)
        except Unsupported as error:
            for where, _ in _conditions(subject, length, found):
                rows += _cannot(subject, length, where, str(error))
            continue
        for where, changed in _conditions(subject, length, found):
            rows += _at_length(subject, question, length, where, changed)
    return rows


def _replacements(subject: Subject, names: tuple[str, ...]) -> tuple[list[Replacement], dict[str, str]]:
    """Return the replacements, and the reason for each that is not possible."""
    encoder, causal = subject.model.encoder, subject.model.causal
    if subject.model.encoder_dropped:
        return [], dict.fromkeys(names or (REPLACED,), "the model was trained to go without its encoder")
    found: list[Replacement] = []
    refused = {}
    for name in names or replacing(encoder, causal=causal):
        try:
            found.append(Replacement(name, encoder, causal=causal, chosen=True))
        except Unsupported as reason:
            refused[name] = str(reason)
    if not found and not refused:
        refused[REPLACED] = f"no encoder with a knob {FACTOR!r} and nothing to train is {encoder.name} at any factor"
    return found, refused


def _conditions(
    subject: Subject, length: int, found: list[Replacement]
) -> Iterator[tuple[dict[str, Any], AbstractContextManager[Transformer]]]:
    """Yield condition and coordinates of each change at a length, and the model so changed."""
    model, task = subject.model, subject.task
    yield {"condition": AS_TRAINED}, altered(model)
    for replacement in found:
        encoder, given = replacement.at(task.sequence_length(length) / task.sequence_length(task.train_length))
        yield {"condition": replacement.name, **given}, altered(model, encoder=encoder)
    window = model.geometry.train_length
    yield {"condition": WINDOW, "size": window}, altered(model, window=window)
    yield {"condition": DROPPED}, altered(model, dropped=True)


def _at_length(
    subject: Subject, question: Any, length: int, where: dict[str, Any], changed: AbstractContextManager[Transformer]
) -> list[Row]:
    try:
        with changed as model:
            return subject.qualities(NAME, evaluate(model, *question), length, **where)
    except Unsupported as reason:
        return _cannot(subject, length, where, str(reason))


def _cannot(subject: Subject, length: int, where: dict[str, Any], reason: str) -> list[Row]:
    return [subject.cannot(NAME, metric, reason, eval_length=length, **where) for metric in subject.task.metrics]
