"""Effects of changes of order on answers, outputs and representations."""

import math
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from typing import Annotated, Literal

import torch
from torch import Tensor

from experiments.measures.permutation_sensitivity import DISTANCES, LAYERED, NAME, POSITIONS, SLOPES, TOKENS, Change
from experiments.measures.permutation_sensitivity.effects import Effects, effects, relative
from experiments.measures.permutation_sensitivity.permutations import DISTANCE, Intervention, Maker, makers, slope
from experiments.rows.row import Row, lost
from experiments.training.evaluate import Subject
from pe_zoo import Unsupported
from pe_zoo._knobs import Count, Share, whole

FOLDS = 8
"""Parts that the sequences are cut into, so that one seed has an interval too."""


def measure(
    subject: Subject,
    *,
    samples: Count = 96,
    ngrams: tuple[Count, ...] = (1, 2, 4, 8),
    windows: tuple[Annotated[int, partial(whole, at_least=2)], ...] = (4, 8),
    swap_shares: tuple[Share, ...] = (0.1, 0.25, 0.5),
) -> list[Row]:
    """Measure what permuting the input does to quality, answers, outputs and representations.

    The same permutations are applied to the tokens (``shuffle``) and to the positions (``positions: shuffle``) of the
    task's input. An n-gram shuffle of size 1 is a second draw of ``shuffle``: their difference is the noise of
    sampling. At initialisation, positions are permuted by a shuffle and a reversal only.

    Args:
        subject: the model and its task; measured at the training length.
        samples: sequences, at least 1, each with a permutation of its own; of a fixed test set, windows.
        ngrams: sizes of the pieces that are shuffled, each at least 1.
        windows: sizes of the pieces within which order is shuffled, each at least 2.
        swap_shares: shares of neighbouring pairs that are swapped, each in (0, 1].
    """
    length = subject.task.train_length
    span = subject.task.input_span(length)
    batch, positions = subject.question(NAME, samples, length)
    chosen = _interventions(subject, len(batch.tokens), span, makers(ngrams, windows, swap_shares))
    first = {change: done for change, done in chosen.items() if not done.on_positions or _is_layered(change)}
    trained = effects(subject.model, batch, positions, span, chosen)
    initial = effects(subject.initial(), batch, positions, span, first) if subject.trained else trained
    chance = {metric: subject.best_guess(metric, length) for metric in subject.task.metrics}
    if batch.counted[: span.stop].any():
        # A guess is known for all places together, and not all are scored here. Of text it is the same at each.
        chance |= {metric: math.nan for metric in chance if metric != "bits_per_byte"}
    rows = _answers(subject, trained[""], trained[""], Change(""), chance)
    for change, intervention in chosen.items():
        where, orders = change._asdict(), intervention.orders
        rows += [subject.row(NAME, name, **where, value=DISTANCE[name](orders), n=len(orders)) for name in DISTANCES]
        rows += _answers(subject, trained[""], trained[change], change, chance)
        rows += _changes(subject, trained[change], change, "")
        if change in first:
            rows += _changes(subject, initial[change], change, "initial_")
    return [*rows, *_sensitivities(subject, trained, chosen)]


def _interventions(subject: Subject, samples: int, span: slice, by: dict[Change, Maker]) -> dict[Change, Intervention]:
    orders = {}
    for change, make in by.items():
        generator = subject.stream(f"{NAME}/{change.key}")
        orders[change] = torch.stack([make(span.stop - span.start, generator) for _ in range(samples)])
    tokens = {change: Intervention(order) for change, order in orders.items()}
    return tokens | {
        change._replace(condition=f"{POSITIONS}: {change.condition}"): Intervention(order, on_positions=True)
        for change, order in orders.items()
    }


def _is_layered(change: Change) -> bool:
    return change.condition.removeprefix(f"{POSITIONS}: ") in LAYERED


def _answers(
    subject: Subject,
    before: Effects | Unsupported,
    after: Effects | Unsupported,
    change: Change,
    chance: dict[str, float],
) -> list[Row]:
    where = change._asdict()
    if isinstance(after, Unsupported):
        return [subject.cannot(NAME, metric, after, **where) for metric in (*chance, "quality_loss", "answers_changed")]
    scored = after.scored
    rows = [
        subject.row(NAME, metric, **where, value=after.quality(metric), chance=guess, n=scored.n(metric))
        for metric, guess in chance.items()
    ]
    if change.condition:
        damage, changed = _damage(subject, before, after), after.changed.double().mean().item()
        rows.append(subject.row(NAME, "quality_loss", **where, value=damage, n=scored.n("exact_match")))
        rows.append(subject.row(NAME, "answers_changed", **where, value=changed, n=scored.n("token_accuracy")))
    return rows


def _damage(subject: Subject, before: Effects | Unsupported, after: Effects, part: Tensor | None = None) -> float:
    assert not isinstance(before, Unsupported)
    main = subject.task.metrics[0]
    return lost(main, before.quality(main, part), after.quality(main, part))


def _changes(subject: Subject, effect: Effects | Unsupported, change: Change, stage: str) -> Iterator[Row]:
    wanted: list[tuple[str, str, int | None]] = [("output_change", "output", None)]
    if change.condition in LAYERED:
        wanted.append(("equivariance_error", "equivariance", None))
    if _is_layered(change):
        layers = range(subject.model.num_streams)
        wanted += [("representation_change", "representation", layer) for layer in layers]
    for metric, of_what, layer in wanted:
        where = {**change._asdict(), "layer": layer}
        if isinstance(effect, Unsupported):
            yield subject.cannot(NAME, f"{stage}{metric}", effect, **where)
            continue
        squares: Tensor = getattr(effect, of_what)
        value = relative(squares if layer is None else squares[:, layer])
        yield subject.row(NAME, f"{stage}{metric}", **where, value=value, n=len(squares))


def _sensitivities(
    subject: Subject, trained: Mapping[Change | Literal[""], Effects | Unsupported], chosen: dict[Change, Intervention]
) -> Iterator[Row]:
    everything = torch.arange(len(next(iter(chosen.values())).orders))
    folds = everything.tensor_split(min(FOLDS, len(everything)))
    parts: dict[int | None, Tensor] = {None: everything, **(dict(enumerate(folds, 1)) if len(folds) > 1 else {})}
    for kind in (TOKENS, POSITIONS):
        of_kind = {change: done for change, done in chosen.items() if done.on_positions == (kind == POSITIONS)}
        found = [trained[change] for change in of_kind]
        refused = next((reason for reason in found if isinstance(reason, Unsupported)), None)
        if next(iter(of_kind.values())).orders.shape[1] < 2:
            refused = Unsupported("an input of one token has no order; give task.train_length more")
        for (distance, metric), (place, part) in product(SLOPES.items(), parts.items()):
            if refused is not None:
                yield subject.cannot(NAME, metric, refused, condition=kind, part=place)
                continue
            far = [DISTANCE[distance](done.orders[part]) for done in of_kind.values()]
            lost = [_damage(subject, trained[""], e, part) for e in found if not isinstance(e, Unsupported)]
            yield subject.row(NAME, metric, condition=kind, part=place, value=slope(far, lost), n=len(part))
