"""Evaluate a trained model beyond its training length: unchanged, changed, and changed and trained on."""

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from itertools import product
from statistics import median
from typing import Annotated, Any

import torch
from torch import Tensor

import pe_zoo
from experiments.measures.context_extension import (
    AS_TRAINED,
    CONTENT,
    DROPPED,
    END,
    FINE_TUNED,
    FIRST_TOKENS,
    LIMITS,
    NAME,
    REPLACED,
    TIME,
    WINDOW,
    WITH_FIRST,
)
from experiments.measures.context_extension.replacements import Replacement, altered, replacing
from experiments.measures.cost.timing import in_turn
from experiments.measures.retrieval import finds
from experiments.model.guest import Guest
from experiments.model.transformer import Transformer
from experiments.rows.row import OVER_LENGTHS, Row
from experiments.tasks import Task
from experiments.training.config import TrainConfig
from experiments.training.evaluate import Scored, Subject, chunks, evaluate, in_chunks
from experiments.training.heartbeat import doing
from experiments.training.loop import train
from pe_zoo import Encoder, Unsupported
from pe_zoo._knobs import Count, Positive, Several, number, one_of

Change = tuple[dict[str, Any], AbstractContextManager[Transformer]]
RATE = 0.1
"""Peak learning rate, as a share of the training's: 2e-5 after 3e-4 in Chen et al. (2023) and Peng et al. (2023)."""
QUALITY = "bits_per_byte"
FAR = 4
"""Training lengths at which a model from outside is asked what distant text is worth, beside the longest."""
BEST = 3
"""Replacements for which that is asked, the best ones."""
LAST = 0.25
"""Tokens that are scored for it at the end of each window, in training lengths, as in `context_use`."""
PAIRS, TIMED_TOKENS = 6, 1024
"""Times that a few windows are read in turn with the model as trained, and their tokens. The range of six ratios is a
97 % interval of their median, and its ends say whether a method takes longer at all."""
AS_BEFORE = ("tokens_per_step", "warmup", "beta2", "weight_decay", "gradient_clip", "precision")


def _registered(knob: str, name: str) -> None:
    one_of(knob, name, pe_zoo.names())


def measure(
    subject: Subject,
    *,
    multiples: Several[Positive] = (1.0, 2.0, 4.0, 8.0),
    samples: Count = 256,
    replacements: tuple[Annotated[str, _registered], ...] = (),
    fine_tuning_share: Annotated[float, partial(number, at_least=0, at_most=1)] = 0.0,
) -> list[Row]:
    """Measure quality at multiples of the training length, of the model as trained and changed without training.

    Args:
        subject: the trained model and its task.
        multiples: lengths to measure at, in training lengths, each above 0; with ``checkpoint=`` by default 1 and 4.
        samples: sequences per length, at least 1; of a fixed test set, windows of the training length. They are those
            of ``length_extrapolation``, so that the two can be compared.
        replacements: encoders to put in place of the model's own; empty: all that compute the same in training range.
        fine_tuning_share: share of the training's steps, 0 to 1, for which copies of the model are trained on, each
            with a replacement whose paper does so, at a tenth of the peak learning rate and on the longest of these
            lengths; 0: none. The papers' own shares are below .001 of a far longer training.
    """
    found, refused = _replacements(subject, replacements)
    task = subject.task
    lengths = sorted({max(1, round(task.train_length * multiple)) for multiple in multiples})
    pairs = product(lengths, refused.items())
    rows = [row for length, (name, why) in pairs for row in _cannot(subject, length, why, condition=name)]

    def reach(length: int) -> float:
        return task.sequence_length(length) / task.sequence_length(task.train_length)

    if _too_rarely_right(subject, samples, lengths):  # methods could not be compared, and take minutes
        for length in lengths:
            rows += _at_length(subject, samples, length, [({"condition": AS_TRAINED}, altered(subject.model))])
        return rows
    asked = _asked(task.train_length, lengths) if subject.outside and task.metrics[0] == QUALITY else set()
    saved = sorted(asked) if task.train_length in lengths else []
    conditions = sum(1 for _ in _changes(subject.model, found, 1.0))
    factors = sum(bool(each.at(reach(lengths[-1]))[1]) for each in found)
    readings = len(lengths) * conditions + len(asked) * (min(BEST, len(found)) + 2 + conditions) + len(saved) * factors
    with doing(NAME, parts=readings):
        for length in lengths:
            scored: dict[str, Scored] = {}
            rows += _at_length(subject, samples, length, _changes(subject.model, found, reach(length)), scored)
            if length in asked and scored:
                rows += _ends(subject, length, scored)
                changes = partial(_changes, subject.model, found, reach(length))
                rows += _distant(subject, samples, length, changes(), scored)
                rows += _times(subject, samples, length, changes, scored)
        rows += [row for length in saved for row in _as_saved(subject, samples, found, reach(length))]
    for replacement in found if fine_tuning_share else ():
        cls = pe_zoo.get(replacement.name)
        if cls.fine_tuned and cls.extends == subject.model.encoder.name:
            encoder, given = replacement.at(reach(lengths[-1]))
            where = {"condition": f"{replacement.name} {FINE_TUNED}", "share": fine_tuning_share, **given}
            rows += _fine_tuned(subject, samples, lengths, encoder, where)
    return rows


def _too_rarely_right(subject: Subject, samples: int, lengths: list[int]) -> bool:
    """Whether a model from outside finds too few answers at its own length for what it finds beyond to mean a thing."""
    task = subject.task
    if not subject.outside or task.metrics[0] == QUALITY or task.train_length not in lengths:
        return False
    found: dict[str, Scored] = {}
    _at_length(subject, samples, task.train_length, [({"condition": AS_TRAINED}, altered(subject.model))], found)
    if AS_TRAINED not in found:
        return False
    return not finds(found[AS_TRAINED].quality()[task.metrics[0]], task.chance(task.metrics[0], task.train_length))


def _asked(train_length: int, lengths: list[int]) -> set[int]:
    """Return the lengths at which a model from outside is asked what distant text is worth: four times, the longest."""
    beyond = [length for length in lengths if length > train_length]
    return {min(beyond, key=lambda length: abs(length - FAR * train_length)), beyond[-1]} if beyond else set()


def _as_saved(subject: Subject, samples: int, found: list[Replacement], reach: float) -> list[Row]:
    """Measure replacements with the factor of a longer length at the training length: a saved model has one factor."""
    changes: list[Change] = []
    for replacement in found:
        encoder, given = replacement.at(reach)
        if given:  # without a factor it is what was measured there
            changes.append(({"condition": replacement.name, **given}, altered(subject.model, encoder=encoder)))
    return _at_length(subject, samples, subject.task.train_length, changes)


def _ends(subject: Subject, length: int, scored: dict[str, Scored]) -> Iterator[Row]:
    """Measure bits of the last quarter of each window, where a model that fails at new positions fails."""
    last = max(1, length // 4)
    for name, answers in scored.items():
        end = answers.each(lambda each: each[:, -last:])
        for part, block in [(None, end), *enumerate(end.blocks(), 1)]:
            measured = {"condition": name, "value": block.quality()[QUALITY], "n": block.n(QUALITY), "part": part}
            yield subject.row(NAME, END, eval_length=length, **measured)


def _times(
    subject: Subject, samples: int, length: int, changes: Callable[[], Iterable[Change]], scored: dict[str, Scored]
) -> Iterator[Row]:
    """Measure how long a few windows take to read, over the time of the model as trained: ratios, and their median."""
    if AS_TRAINED not in scored:  # its rows say why
        return
    batch, positions = subject.question(OVER_LENGTHS, samples, length)
    _, tokens, places = next(chunks(batch.tokens, positions, max(1, TIMED_TOKENS // length)))
    for name in scored:
        with doing(f"{NAME}: length {length}, {name}, time"):
            ratios = [1.0] * PAIRS if name == AS_TRAINED else _ratios(changes, name, tokens, places)
        for part, value in [(None, median(ratios)), *enumerate(ratios, 1)]:
            measured = {"condition": name, "value": value, "n": 1 if part else PAIRS, "part": part}
            yield subject.row(NAME, TIME, eval_length=length, **measured)


def _ratios(changes: Callable[[], Iterable[Change]], name: str, tokens: Tensor, positions: Tensor) -> list[float]:
    """Return how many times as long as the model as trained a changed one reads, of each pair of readings."""
    ready: list[AbstractContextManager[Transformer]] = []

    def prepare(which: int) -> None:
        wanted = (name, AS_TRAINED)[which]
        ready[:] = [change for where, change in changes() if where["condition"] == wanted]

    def read(which: int) -> None:
        with ready[0] as model:
            in_chunks(model, tokens, positions, model)

    pairs = in_turn(read, tokens.device, 0, least=PAIRS, before=prepare)
    return [changed / unchanged for changed, unchanged in pairs]


def _distant(
    subject: Subject, samples: int, length: int, changes: Iterable[Change], scored: dict[str, Scored]
) -> Iterator[Row]:
    """Measure the bits that distant text saves the model as trained, in a window, and under the best replacements.

    The text before the last training length is replaced by that of another window, and the last tokens are scored.
    """
    batch, positions = subject.question(OVER_LENGTHS, samples, length)
    if len(batch.tokens) < 2:
        return
    replaced = [name for name in scored if name not in (AS_TRAINED, *LIMITS, DROPPED)]
    best = sorted(replaced, key=lambda name: scored[name].quality()[QUALITY])[:BEST]
    near, far = subject.task.train_length, slice(1, 1 + length - subject.task.train_length)
    tokens = batch.tokens.clone()
    tokens[:, far] = tokens.roll(len(tokens) // 2, 0)[:, far]
    last = max(1, round(LAST * near))
    for where, changed in changes:
        name = where["condition"]
        if name in scored and name in (AS_TRAINED, WINDOW, *best):
            with changed as model, doing(f"{NAME}: length {length}, {name}, other text in the distance"):
                other = evaluate(model, replace(batch, tokens=tokens), positions)
            gain = replace(scored[name], nats=other.nats - scored[name].nats).each(lambda each: each[:, -last:])
            for part, block in [(None, gain), *enumerate(gain.blocks(), 1)]:
                measured = {"value": block.quality()[QUALITY], "n": block.n(QUALITY), "part": part}
                yield subject.row(NAME, CONTENT, eval_length=length, **where, **measured)


def _fine_tuned(
    subject: Subject, samples: int, lengths: list[int], encoder: Encoder, where: dict[str, Any]
) -> list[Row]:
    try:
        model, status = fine_tuned(subject, encoder, lengths[-1], where["share"])
    except Unsupported as reason:
        return [row for length in lengths for row in _cannot(subject, length, reason, **where)]
    if status == "ok":
        return [row for length in lengths for row in _at_length(subject, samples, length, [(where, altered(model))])]
    places = product(lengths, subject.task.metrics)
    return [subject.row(NAME, metric, status=status, eval_length=length, **where) for length, metric in places]


def _replacements(subject: Subject, names: tuple[str, ...]) -> tuple[list[Replacement], dict[str, str]]:
    encoder, causal = subject.model.encoder, subject.model.causal
    dropped = "the model was trained to go without its encoder" * subject.model.encoder_dropped
    if fixed := dropped or subject.model.fixed:
        return [], dict.fromkeys(names or (REPLACED,), fixed)
    found: list[Replacement] = []
    refused = {}
    for name in names or replacing(encoder, causal=causal):
        try:
            found.append(Replacement(name, encoder, causal=causal, chosen=True))
        except Unsupported as reason:
            refused[name] = str(reason)
    if not found and not refused:
        refused[REPLACED] = f"no method extends {encoder.name} without training"
    return found, refused


def _changes(model: Transformer, found: list[Replacement], reach: float) -> Iterator[Change]:
    yield {"condition": AS_TRAINED}, altered(model)
    for replacement in found:
        encoder, given = replacement.at(reach)
        yield {"condition": replacement.name, **given}, altered(model, encoder=encoder)
    window = model.geometry.train_length
    yield {"condition": WINDOW, "size": window}, altered(model, window=window)
    if isinstance(model, Guest) and not model.fixed:
        yield {"condition": WITH_FIRST, "size": window}, altered(model, window=window, first=FIRST_TOKENS)
    yield {"condition": DROPPED}, altered(model, dropped=True)


def _at_length(
    subject: Subject, samples: int, length: int, changes: Iterable[Change], found: dict[str, Scored] | None = None
) -> list[Row]:
    """Return the rows of a length; ``found`` takes the scored answers of each condition."""
    rows = []
    for where, changed in changes:
        try:
            question = subject.question(OVER_LENGTHS, samples, length)
            with changed as model, doing(f"{NAME}: length {length}, {where['condition']}"):
                scored = evaluate(model, *question)
            rows += subject.qualities(NAME, scored, length, **where) + subject.in_blocks(NAME, scored, length, where)
            if found is not None:
                found[where["condition"]] = scored
        except Unsupported as reason:
            rows += _cannot(subject, length, reason, **where)
        except torch.OutOfMemoryError:  # the others may need less
            torch.cuda.empty_cache()
            rows += _cannot(subject, length, f"{where['condition']} needs more memory than the GPU has", **where)
    return rows


def _cannot(subject: Subject, length: int, reason: object, **where: Any) -> list[Row]:
    return [subject.cannot(NAME, metric, reason, eval_length=length, **where) for metric in subject.task.metrics]


def fine_tuned(subject: Subject, encoder: Encoder, length: int, share: float) -> tuple[Transformer, str]:
    """Train a copy of the subject's model on, with another encoder; return it and ``ok`` or ``diverged``.

    It takes a share of the steps of the training, on batches up to a length (that alone where training had one alone);
    data and their order are decided by the subject's seed.

    Raises:
        Unsupported: the share is less than one step, or the task or the numbering does not reach the length.
    """
    config = subject.training
    steps = round(share * config.steps) if config else 0
    if config is None or not steps:
        raise Unsupported(f"a share of {share:g} of the training is less than one step")
    model = copy.deepcopy(subject.model)
    model.encoder = encoder.to(model.token_embedding.weight.device)
    given = {name: getattr(config, name) for name in AS_BEFORE}
    how = TrainConfig(steps=steps, rounds=1, learning_rate=RATE * config.learning_rate, curve_points=1, **given)
    log = train(model, at_length(subject.task, length), subject.numbering, how, seed=subject.seed, label=encoder.name)
    return model, log.status


def at_length(task: Task, length: int) -> Task:
    """Return the task with batches of up to another length; of that length alone if it had one alone."""
    task.check_length(length)
    longer = copy.copy(task)
    longer.min_length = length if task.min_length == task.train_length else task.min_length
    longer.train_length = length
    return longer
