"""Effects of changes of order on answers, outputs and representations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Literal

import torch
from torch import Tensor

from experiments.measures.permutation_sensitivity import (
    DISTANCES,
    LAYERED,
    MAIN,
    NAME,
    NEEDS_TRAINING,
    POSITIONS,
    SLOPES,
    TOKENS,
    Change,
    permutations,
)
from experiments.measures.permutation_sensitivity.effects import Effects, effects, relative
from experiments.measures.permutation_sensitivity.permutations import Intervention, makers, slope
from experiments.rows.row import Row, lost
from experiments.training.evaluate import Subject
from pe_zoo import Unsupported
from pe_zoo._knobs import number, whole

__all__ = ["MAIN", "NAME", "NEEDS_TRAINING", "check", "measure"]

FOLDS = 8
"""Parts that the sequences are cut into, so that one seed has an interval too."""


def check(*, samples: int, ngrams: Iterable[int], windows: Iterable[int], swap_shares: Iterable[float]) -> None:
    """Refuse knobs out of range."""
    whole("permutation_sensitivity.samples", samples, at_least=1)
    for n in ngrams:
        whole("permutation_sensitivity.ngrams", n, at_least=1)
    for width in windows:
        whole("permutation_sensitivity.windows", width, at_least=2)
    for share in swap_shares:
        number("permutation_sensitivity.swap_shares", share, above=0, at_most=1)


def measure(
    subject: Subject,
    *,
    samples: int = 96,
    ngrams: tuple[int, ...] = (1, 2, 4, 8),
    windows: tuple[int, ...] = (4, 8),
    swap_shares: tuple[float, ...] = (0.1, 0.25, 0.5),
) -> list[Row]:
    """What permuting the input does to quality, answers, outputs and representations.

    The same permutations are put on the tokens (``shuffle``) and on the positions (``positions: shuffle``) of the
    task's input. ``1-gram shuffle`` is ``shuffle`` drawn again: the difference of the two is the noise of sampling.
    At initialisation, positions are permuted by a shuffle and a reversal only.

    Args:
        subject: the model and its task; measured at the training length.
        samples: sequences, at least 1, each with a permutation of its own; of a fixed test set, windows.
        ngrams: sizes of the pieces that are shuffled, each at least 1.
        windows: sizes of the pieces within which order is shuffled, each at least 2.
        swap_shares: shares of neighbouring pairs that are swapped, each in (0, 1].
    """
    span = subject.task.input_span(subject.task.train_length)
    batch, positions = subject.question(NAME, samples, subject.task.train_length)
    chosen = _interventions(subject, len(batch.tokens), span, (ngrams, windows, swap_shares))
    first = {change: done for change, done in chosen.items() if not done.on_positions or _is_layered(change)}
    trained = effects(subject.model, batch, positions, span, chosen)
    initial = effects(subject.initial(), batch, positions, span, first) if subject.trained else trained
    chance = {metric: subject.best_guess(metric, subject.task.train_length) for metric in subject.task.metrics}
    if batch.counted[: span.stop].any():
        # A guess is known for all places together, and not all are asked. Of text it is the same at each.
        chance |= {metric: math.nan for metric in chance if metric != "bits_per_byte"}
    rows = _qualities(subject, trained[""], Change(""), chance)
    for change, intervention in chosen.items():
        rows += _distances(subject, intervention, change)
        rows += _qualities(subject, trained[change], change, chance)
        rows += _losses(subject, trained[""], trained[change], change)
        rows += _changes(subject, trained[change], change, "")
        if change in first:
            rows += _changes(subject, initial[change], change, "initial_")
    return rows + _sensitivities(subject, trained, chosen)


def _interventions(
    subject: Subject, samples: int, span: slice, family: tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...]]
) -> dict[Change, Intervention]:
    """Every change of order; positions are permuted as the tokens are."""
    orders = {}
    for change, make in makers(*family).items():
        generator = subject.stream(f"{NAME}/{change.name}")
        orders[change] = torch.stack([make(span.stop - span.start, generator) for _ in range(samples)])
    tokens = {change: Intervention(order) for change, order in orders.items()}
    return tokens | {
        change._replace(condition=f"{POSITIONS}: {change.condition}"): Intervention(order, on_positions=True)
        for change, order in orders.items()
    }


def _is_layered(change: Change) -> bool:
    return change.condition.removeprefix(f"{POSITIONS}: ") in LAYERED


def _distance(metric: str, orders: Tensor) -> float:
    value: float = getattr(permutations, metric)(orders)
    return value


def _distances(subject: Subject, intervention: Intervention, change: Change) -> list[Row]:
    orders = intervention.orders
    return [
        subject.row(NAME, metric, **change._asdict(), value=_distance(metric, orders), n=len(orders))
        for metric in DISTANCES
    ]


def _qualities(subject: Subject, effect: Effects | Unsupported, change: Change, chance: dict[str, float]) -> list[Row]:
    """How good the answers are."""
    where, metrics = change._asdict(), subject.task.metrics
    if isinstance(effect, Unsupported):
        return [subject.cannot(NAME, metric, effect, **where) for metric in metrics]
    return [
        subject.row(
            NAME, metric, **where, value=effect.quality(metric), chance=chance[metric], n=effect.scored.n(metric)
        )
        for metric in metrics
    ]


def _losses(
    subject: Subject, before: Effects | Unsupported, effect: Effects | Unsupported, change: Change
) -> list[Row]:
    """What a change of order does to the answers."""
    where = change._asdict()
    if isinstance(effect, Unsupported):
        return [subject.cannot(NAME, metric, effect, **where) for metric in ("quality_loss", "answers_changed")]
    damage, scored = _damage(subject, before, effect), effect.scored
    return [
        subject.row(NAME, "quality_loss", **where, value=damage, n=scored.num_sequences),
        subject.row(NAME, "answers_changed", **where, value=effect.share_changed(), n=scored.num_tokens),
    ]


def _damage(subject: Subject, before: Effects | Unsupported, after: Effects, part: Tensor | None = None) -> float:
    """Quality lost, in the task's main metric; positive is worse."""
    assert not isinstance(before, Unsupported)
    main = subject.task.metrics[0]
    return lost(main, before.quality(main, part), after.quality(main, part))


def _changes(subject: Subject, effect: Effects | Unsupported, change: Change, stage: str) -> list[Row]:
    """How far outputs and representations move."""
    wanted: list[tuple[str, str, int | None]] = [("output_change", "output", None)]
    if change.condition in LAYERED:
        wanted.append(("equivariance_error", "equivariance", None))
    if _is_layered(change):
        layers = range(subject.model.geometry.num_layers + 1)
        wanted += [("representation_change", "representation", layer) for layer in layers]
    rows = []
    for metric, of_what, layer in wanted:
        where = {**change._asdict(), "layer": layer}
        if isinstance(effect, Unsupported):
            rows.append(subject.cannot(NAME, f"{stage}{metric}", effect, **where))
            continue
        squares: Tensor = getattr(effect, of_what)
        value = relative(squares if layer is None else squares[:, layer])
        rows.append(subject.row(NAME, f"{stage}{metric}", **where, value=value, n=len(squares)))
    return rows


def _sensitivities(
    subject: Subject, trained: Mapping[Change | Literal[""], Effects | Unsupported], chosen: dict[Change, Intervention]
) -> list[Row]:
    """The slopes of damage over each distance, of all sequences and of each fold, for tokens and for positions."""
    everything = torch.arange(len(next(iter(chosen.values())).orders))
    folds = everything.tensor_split(min(FOLDS, len(everything)))
    parts: dict[int | None, Tensor] = {None: everything}
    if len(folds) > 1:
        parts |= dict(enumerate(folds, 1))
    rows = []
    for kind in (TOKENS, POSITIONS):
        of_kind = {change: done for change, done in chosen.items() if done.on_positions == (kind == POSITIONS)}
        found = [trained[change] for change in of_kind]
        refused = next((reason for reason in found if isinstance(reason, Unsupported)), None)
        if next(iter(of_kind.values())).orders.shape[1] < 2:
            refused = Unsupported("an input of one token has no order; give task.train_length more")
        for (distance, metric), (place, part) in product(SLOPES.items(), parts.items()):
            if refused is not None:
                rows.append(subject.cannot(NAME, metric, refused, condition=kind, part=place))
                continue
            far = [_distance(distance, done.orders[part]) for done in of_kind.values()]
            lost = [_damage(subject, trained[""], e, part) for e in found if not isinstance(e, Unsupported)]
            rows.append(subject.row(NAME, metric, condition=kind, part=place, value=slope(far, lost), n=len(part)))
    return rows
