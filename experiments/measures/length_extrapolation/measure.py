"""Evaluate a trained model at multiples of its training length."""

import math
from collections.abc import Iterable

from torch import Tensor

from experiments.measures.length_extrapolation import GENERATED, NAME, POSITION_LOSS, TOKENS_SEEN
from experiments.measures.structure.behaviour import relative_distances
from experiments.rows.row import Row
from experiments.tasks import Batch
from experiments.training.config import TrainConfig
from experiments.training.evaluate import Scored, Subject, evaluate
from experiments.training.generate import generate
from pe_zoo import Unsupported
from pe_zoo._knobs import Count, NotNegative, Positive, Several

MULTIPLES = (0.5, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)


def lengths(train_length: int, multiples: Iterable[float], shortest: int = 1) -> list[int]:
    """Return the lengths to measure at, ascending, none below the shortest."""
    return sorted({max(shortest, round(train_length * multiple)) for multiple in multiples})


def unmeasured(
    subject: Subject, status: str, *, multiples: tuple[float, ...] = MULTIPLES, **others: object
) -> list[Row]:
    """Return a row with a status for each metric and length, of a model that cannot be evaluated."""
    return [
        subject.row(NAME, metric, eval_length=length, status=status)
        for length in lengths(subject.task.train_length, multiples)
        for metric in subject.task.metrics
    ]


def pauses(train: TrainConfig | None, *, during: Iterable[float] = (), **others: object) -> set[int]:
    """Return the steps of a training after which the model is measured; ValueError for one that it does not have."""
    found = set[int]()
    for moment in during:
        if train is None:
            raise ValueError(f"{NAME}.during={during} changes nothing where nothing is trained; leave it out")
        step = max(1, round(moment * train.steps)) if moment <= 1 else round(moment)
        if moment > 1 and step != moment:
            raise ValueError(f"{NAME}.during={moment} must be a share of train.steps, up to 1, or a whole step")
        if step > train.last_step:
            raise ValueError(f"{NAME}.during={moment} comes after the last of {train.last_step} steps; lower it")
        found.add(step)
    return found


def at_pause(
    subject: Subject, step: int, tokens: int, *, multiples: Iterable[float], samples: int, **others: object
) -> list[Row]:
    """Measure quality over lengths in the middle of training, teacher-forced, and how many tokens that took."""
    rows = [subject.row(NAME, TOKENS_SEEN, step=step, value=float(tokens), n=1)]
    for length in lengths(subject.task.train_length, multiples):
        try:
            scored = _answered(subject, length, samples)[1]
            rows += subject.qualities(NAME, scored, length, step=step)
        except Unsupported as reason:
            metrics = subject.task.metrics
            rows += [subject.cannot(NAME, metric, reason, eval_length=length, step=step) for metric in metrics]
    return rows


def measure(
    subject: Subject,
    *,
    multiples: Several[Positive] = MULTIPLES,
    samples: Count = 256,
    position_bins: Count = 32,
    generated: NotNegative = 32,
    during: tuple[Positive, ...] = (),
) -> list[Row]:
    """Measure quality at multiples of the training length, over all answers and by position.

    A row says how far the encoder's scores are from those of its relative, if it declares one.

    Args:
        subject: the trained model and its task.
        multiples: lengths to measure at, in training lengths, each above 0.
        samples: sequences per length, at least 1; of a fixed test set, windows of the training length.
        position_bins: bins that the scored places of a training-length sequence are divided into, at
            least 1; bins of longer sequences are as wide, so that there are more of them.
        generated: most sequences that are also answered free-running, at least 0: by a causal model,
            for tasks whose answers have several tokens.
        during: moments of the training at which quality over lengths is measured too, teacher-forced: steps, or shares
            of ``train.steps`` up to 1; and at its end, if there are any. Changes nothing else of the run.
    """
    rows = relative_distances(subject, NAME)
    for length in lengths(subject.task.train_length, multiples):
        try:
            rows += _at_length(subject, length, samples, position_bins, generated)
        except Unsupported as reason:
            rows += [subject.cannot(NAME, metric, reason, eval_length=length) for metric in subject.task.metrics]
    return rows


def _answered(subject: Subject, length: int, samples: int) -> tuple[tuple[Batch, Tensor], Scored]:
    task = subject.task
    if length > task.train_length and task.sequence_length(length) <= task.sequence_length(task.train_length):
        raise Unsupported(f"task={task.name} draws sequences of length {length} no longer than those trained on")
    question = subject.question(NAME, samples, length)
    return question, evaluate(subject.model, *question)


def _at_length(subject: Subject, length: int, samples: int, position_bins: int, generated: int) -> list[Row]:
    question, scored = _answered(subject, length, samples)
    return [
        *subject.qualities(NAME, scored, length),
        *subject.in_blocks(NAME, scored, length, {}),
        *_free_running(subject, length, question, scored, generated),
        *_position_losses(subject, length, scored, position_bins),
    ]


def _free_running(
    subject: Subject, length: int, question: tuple[Batch, Tensor], forced: Scored, count: int
) -> Iterable[Row]:
    metrics = [metric for metric in subject.task.metrics if metric != "bits_per_byte"]
    asked = metrics and count and subject.model.causal
    scored = generate(subject.model, *question, count, subject.numbering) if asked else None
    if scored is not None:
        same = forced.each(lambda answers: answers[:count])
        gap = scored.quality()["token_accuracy"] - same.quality()["token_accuracy"]
        n = scored.n("token_accuracy")
        yield subject.row(NAME, "free_running_gap", eval_length=length, value=gap, n=n)
        yield from subject.qualities(NAME, scored, length, metrics, GENERATED)


def _position_losses(subject: Subject, length: int, scored: Scored, bins: int) -> Iterable[Row]:
    width = max(1, math.ceil(subject.task.train_length / bins))
    for start in range(0, scored.nats.shape[1], width):
        part = scored.nats[:, start : start + width]
        size = part.shape[1] if part.shape[1] > 1 else None
        bits = part.double().mean().item() / math.log(2)
        where = {"eval_length": length, "position": start + 1, "size": size}
        yield subject.row(NAME, POSITION_LOSS, **where, value=bits, n=part.numel())
