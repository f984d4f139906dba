"""Attention weights of each head over distance, and on a few informative keys."""

import math
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from experiments.measures.attention_pattern import INDUCTION, INITIAL, NAME, OF_DISTANCES, weights
from experiments.rows.row import Row
from experiments.training.evaluate import Subject
from pe_zoo import Unsupported
from pe_zoo._knobs import Count, NotNegative


def measure(subject: Subject, *, samples: Count | None = None, max_histograms: NotNegative = 48) -> list[Row]:
    """Measure each head's weights over distance, and its previous-token, first-token and induction score.

    Args:
        subject: the trained model and its task; measured at the training length.
        samples: sequences, at least 1; of a fixed test set, windows. None: as many as make 4096 tokens, up to 64.
        max_histograms: heads, over all layers, up to which each has its weight over distance measured by itself; of a
            model with more, only the mean over each layer's heads. At least 0.
    """
    length, geometry = subject.task.train_length, subject.model.geometry
    if samples is None:
        samples = max(1, min(64, 4096 // subject.task.sequence_length(length)))
    apart = geometry.num_layers * geometry.num_heads <= max_histograms
    rows: list[Row] = []
    for part, metrics in ((_spread, OF_DISTANCES), (_induction, (INDUCTION,))):
        try:
            rows += part(subject, samples, apart)
        except Unsupported as reason:
            rows += [subject.cannot(NAME, f"{stage}{metric}", reason) for stage in ("", INITIAL) for metric in metrics]
    return rows


def _spread(subject: Subject, samples: int, apart: bool) -> list[Row]:
    batch, positions = subject.question(NAME, samples, subject.task.train_length)
    bins = weights.distance_bins(batch.tokens.shape[1], causal=subject.model.causal)
    return _rows(subject, batch.tokens, positions, weights.spread(bins), bins, apart)


def _induction(subject: Subject, samples: int, apart: bool) -> list[Row]:
    length = subject.task.train_length
    batch, _ = subject.question(NAME, samples, length)
    symbols = batch.tokens[:, subject.task.input_span(length)].unique()
    longest = subject.task.sequence_length(length)
    tokens = weights.repeated(int(batch.tokens[0, 0]), symbols, samples, longest, subject.stream(f"{NAME}/repeated"))
    positions = subject.numbering.read(tokens, subject.stream(f"{NAME}/repeated/positions"))
    return _rows(subject, tokens, positions, weights.induction, [], apart)


def _rows(
    subject: Subject, tokens: Tensor, positions: Tensor, tally: weights.Tally, bins: list[tuple[int, int]], apart: bool
) -> list[Row]:
    trained = weights.patterns(subject.model, tokens, positions, tally)
    initial = weights.patterns(subject.initial(), tokens, positions, tally) if subject.trained else trained
    return [
        row
        for stage, layers in (("", trained), (INITIAL, initial))
        for layer, found in enumerate(layers)
        for metric, pattern in found.items()
        for row in _layer_rows(subject, f"{stage}{metric}", layer, pattern, bins, apart)
    ]


def _layer_rows(
    subject: Subject, metric: str, layer: int, pattern: weights.Pattern, bins: list[tuple[int, int]], apart: bool
) -> Iterator[Row]:
    binned = pattern.value.ndim == 2
    if binned and not apart:
        pattern = pattern.over_heads()
    parts: list[dict[str, Any]] = [{}]
    if binned:
        parts = [{"distance": low, "size": high - low + 1 if high > low else None} for low, high in bins]
    for head, n in enumerate(pattern.n.tolist()):
        where: dict[str, Any] = {"layer": layer, **({"head": head} if apart or not binned else {})}
        values, uniforms = pattern.value[head].reshape(-1).tolist(), pattern.uniform[head].reshape(-1).tolist()
        for part, value, uniform in zip(parts, values, uniforms, strict=True):
            if math.isfinite(value):
                yield subject.row(NAME, metric, **where, **part, value=value, chance=uniform, n=n)
            else:
                yield subject.cannot(NAME, metric, "no query has a choice of keys", **where, **part)
