"""An encoder before any training, in numbers."""

from __future__ import annotations

from functools import cache, partial

import torch

from experiments.measures.structure import NAME, codes
from experiments.measures.structure import kernel_numbers as shapes
from experiments.measures.structure import model_numbers as action
from experiments.measures.structure.structure import Structure, Values, by_head
from experiments.rows.row import Row
from experiments.training.evaluate import Subject
from pe_zoo import Unsupported

LENGTHS = (1, 2, 4, 8)
"""Training lengths at which the entropy of attention is taken."""
LONGER = (2, 4)
"""Training lengths at which is counted what training did not cover."""


def numbers(subject: Subject, *, reach: int, shifts: tuple[int, ...], draws: int) -> list[Row]:
    """Return all numbers of the untrained encoder as rows; ``results/README.md`` defines them.

    Positions are 0, 1, 2, … whatever the numbering, but for ``uncovered``. Everything is float64 on the CPU, but for
    ``receptive_field``; parameters are those of layer 0. Kernel and weights are those of `kernel`.

    Args:
        subject: only its task's lengths, its model as it was initialised, and its numbering are asked.
        reach: training lengths looked at, at least 2.
        shifts: by how much all positions go up, each above 0.
        draws: contents that a kernel is a mean over, at least 1.
    """
    model = subject.initial().to("cpu").requires_grad_(False)
    it = Structure(subject, model, reach * model.geometry.train_length, draws)
    return [
        *_of_kernel(it),
        *_of_shifts(it, shifts),
        *_of_weights(it),
        *_of_models(it),
        *codes.rows(it),
        *codes.frequency_rows(it),
    ]


def _of_kernel(it: Structure) -> list[Row]:
    return [
        *it.rows(
            "translation_invariance",
            lambda: by_head(shapes.translation_invariance(it.kernel, causal=it.model.causal)),
            n=it.length,
        ),
        *it.rows("monotonicity", lambda: by_head(shapes.falling_steps(it.curve)), n=it.length - 1),
        *it.row(
            "monotonicity",
            lambda: shapes.falling_steps(it.curve, shapes.LOCAL).mean().item(),
            n=min(it.length - 1, shapes.LOCAL),
            condition="within",
            size=shapes.LOCAL,
        ),
        *it.rows("rank_correlation", lambda: by_head(shapes.rank_correlation(it.curve)), n=it.length),
    ]


def _of_shifts(it: Structure, shifts: tuple[int, ...]) -> list[Row]:
    def changed(shift: int) -> float:
        return action.score_shift_change(
            it.encoder, shift, it.subject.stream("structure/shift"), causal=it.model.causal
        )

    return [
        row
        for shift in shifts
        for row in it.row("score_shift_change", partial(changed, shift), n=it.train_length, shift=shift)
    ]


def _of_weights(it: Structure) -> list[Row]:
    lengths = [multiple * it.train_length for multiple in LENGTHS]
    weights = cache(it.weights)  # asked for several times, and slow for some encoders

    def windows(share: float) -> Values:
        return by_head(shapes.window(weights(it.length), share))

    def entropies(keys: int) -> Values:
        return by_head(shapes.entropy(weights(keys)), sequence_length=keys)

    def slopes() -> Values:
        return by_head(shapes.slope(lengths, torch.stack([shapes.entropy(weights(keys)) for keys in lengths])))

    rows = it.rows("half_life", partial(windows, 0.5), n=it.length)
    rows += it.rows("window_99", partial(windows, 0.99), n=it.length)
    for keys in lengths:
        rows += it.rows("attention_entropy", partial(entropies, keys), n=keys, asked=({"sequence_length": keys},))
    return rows + it.rows("entropy_growth", slopes, n=len(lengths))


def _of_models(it: Structure) -> list[Row]:
    rows = it.row("direction_awareness", lambda: action.direction_awareness(it.subject, it.model), n=action.SEQUENCES)
    for keys in (multiple * it.train_length for multiple in LONGER):
        try:
            share, cells = action.uncovered(it.subject, it.encoder, keys, it.draws)
        except Unsupported as reason:
            rows.append(it.subject.cannot(NAME, "uncovered", reason, sequence_length=keys))
        else:
            rows.append(it.subject.row(NAME, "uncovered", sequence_length=keys, value=share, n=cells))
    return rows + it.row(
        "receptive_field", lambda: action.receptive_field(it.subject, it.model, it.length), n=action.SEQUENCES
    )
