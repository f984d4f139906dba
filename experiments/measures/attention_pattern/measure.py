"""Where do heads look: at a distance of their own, the first token, the one before, or what came next the last time?

Attention weights say how much of each earlier token (key) a token (query) takes in. They are measured of every head,
before training and after, on test sequences of the training length, as sums over ranges of distance; a wide range or
a short sequence holds more by itself, so each number comes with what a head that looks at all keys alike would give.
Distance counts places in the sequence, whatever the positions are. Two habits are known from language models: heads
that look at the token before, and induction heads, which find the last occurrence of the current token and look at
what followed it. The latter are looked for on random sequences that come twice.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from torch import Tensor

    from experiments.measures.attention_pattern.weights import Pattern, Tally
    from experiments.rows.row import Row
    from experiments.training.evaluate import Subject

NAME = "attention_pattern"
NEEDS_TRAINING = True
MAIN = "previous_token_score"

MASS = "attention_mass"
INDUCTION = "induction_score"
FIRST = "first_token_mass"
SCORES = (MAIN, INDUCTION, FIRST)
SPREADS = ("mean_distance", "attention_entropy_share")
STAGES = ("", "initial_")
"""What stands before a metric's name: after training, before it."""

CAPTIONS = {
    "attention_histogram": "Where each head looks: bars are the share of its weight at each distance, in tokens "
    "(negative: ahead), mean over queries and sequences; circles the same before training. The line is what looking at "
    "all visible keys alike would give: only what stands out from it is a preference. Models of many heads have one "
    "panel a layer.",
    "attention_lift": "Where heads look: a panel a label, a line a head of one seed, by layer and within it the "
    "nearest-looking first. Colour is its weight at a distance, in tokens (negative: ahead), over that of looking at "
    "all visible keys alike: white is no preference, the ends of the scale stand for all beyond them. Grey: no such "
    "distance.",
    "attention_heads": "What the most pronounced head does. Large: the largest of all heads, mean over seeds; bars: "
    "95 % t interval, not cut to the axis; hollow: the same before training; small dots: every head of every seed; "
    "vertical strokes: that head, had it looked at all visible keys alike. For one label, a line a layer.",
    "attention_spread": "How widely heads look. Large: mean over heads and seeds; bars: 95 % t interval over seeds; "
    "hollow: the same before training; small dots: every head of every seed; vertical strokes: looking at all visible "
    "keys alike. For one label, a line a layer.",
}


def check(*, samples: int | None, max_histograms: int) -> None:
    """Refuse knobs out of range."""
    from pe_zoo._knobs import whole

    if samples is not None:
        whole(f"{NAME}.samples", samples, at_least=1)
    whole(f"{NAME}.max_histograms", max_histograms, at_least=0)


def measure(subject: Subject, *, samples: int | None = None, max_histograms: int = 48) -> list[Row]:
    """Each head's weights over distance, their spread, and its previous-token, first-token and induction score.

    Args:
        subject: the trained model and its task; measured at the training length.
        samples: sequences, at least 1; of a fixed test set, windows. None: as many as make 4096 tokens, up to 64.
        max_histograms: heads, over all layers, up to which each has its weight over distance measured by itself; of a
            model with more, only the mean over each layer's heads. At least 0.
    """
    from pe_zoo import Unsupported

    length, geometry = subject.task.train_length, subject.model.geometry
    if samples is None:
        samples = max(1, min(64, 4096 // subject.task.sequence_length(length)))
    apart = geometry.num_layers * geometry.num_heads <= max_histograms
    rows: list[Row] = []
    for question, metrics in ((_spread, (MASS, *SPREADS, FIRST, MAIN)), (_induction, (INDUCTION,))):
        try:
            rows += question(subject, samples, apart)
        except Unsupported as reason:
            rows += [subject.cannot(NAME, f"{stage}{metric}", reason) for stage in STAGES for metric in metrics]
    return rows


def _spread(subject: Subject, samples: int, apart: bool) -> list[Row]:
    """On the task's own sequences."""
    from experiments.measures.attention_pattern.weights import distance_bins, spread

    batch, positions = subject.question(NAME, samples, subject.task.train_length)
    bins = distance_bins(batch.tokens.shape[1], causal=subject.model.causal)
    return _rows(subject, batch.tokens, positions, spread(bins), bins, apart)


def _induction(subject: Subject, samples: int, apart: bool) -> list[Row]:
    """On random sequences, twice over, of the symbols that stand in the task's inputs."""
    from experiments.measures.attention_pattern.weights import induction, repeated

    length = subject.task.train_length
    batch, _ = subject.question(NAME, samples, length)
    symbols = batch.tokens[:, subject.task.input_span(length)].unique()
    room = subject.task.sequence_length(length)
    tokens = repeated(int(batch.tokens[0, 0]), symbols, samples, room, subject.stream(f"{NAME}/repeated"))
    batch_size, size = tokens.shape
    positions = subject.numbering.evaluate(batch_size, size, subject.stream(f"{NAME}/repeated/positions"))
    return _rows(subject, tokens, positions, induction, [], apart)


def _rows(
    subject: Subject, tokens: Tensor, positions: Tensor, tally: Tally, ranges: list[tuple[int, int]], apart: bool
) -> list[Row]:
    """Of every layer, head and metric, after training and before."""
    from experiments.measures.attention_pattern.weights import patterns

    trained = patterns(subject.model, tokens, positions, tally)
    initial = patterns(subject.initial(), tokens, positions, tally) if subject.trained else trained
    rows = []
    for stage, layers in zip(STAGES, (trained, initial), strict=True):
        for layer, found in enumerate(layers):
            for metric, pattern in found.items():
                rows += _layer_rows(subject, f"{stage}{metric}", layer, pattern, ranges, apart)
    return rows


def _layer_rows(
    subject: Subject, metric: str, layer: int, pattern: Pattern, ranges: list[tuple[int, int]], apart: bool
) -> list[Row]:
    """Of one layer: a row a head; of what has ranges of distance, a row a head and range, or a range."""
    ranged = pattern.value.ndim == 2
    if ranged and not apart:
        pattern = pattern.over_heads()
    parts: list[dict[str, Any]] = [{}]
    if ranged:
        parts = [{"distance": low, "size": high - low + 1 if high > low else None} for low, high in ranges]
    rows = []
    for head, n in enumerate(pattern.n.tolist()):
        where: dict[str, Any] = {"layer": layer, **({"head": head} if apart or not ranged else {})}
        values, uniforms = pattern.value[head].reshape(-1).tolist(), pattern.uniform[head].reshape(-1).tolist()
        for part, value, uniform in zip(parts, values, uniforms, strict=True):
            if math.isfinite(value):
                rows.append(subject.row(NAME, metric, **where, **part, value=value, chance=uniform, n=n))
            else:
                rows.append(subject.cannot(NAME, metric, "no query has a choice of keys", **where, **part))
    return rows


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean, interval and number of seeds for each label, metric, layer, head and range. See `_stats.by_measurement`."""
    from experiments.rows.row import rows_of
    from experiments.statistics.intervals import by_measurement

    return by_measurement(rows_of(rows, NAME))


def plot(rows: pd.DataFrame) -> dict[str, Figure]:
    """Weight over distance, and how pronounced heads are and how widely they look: stem -> figure, for each task.

    Args:
        rows: of this experiment, of one run or of many.
    """
    from experiments.figures.style import looks, slug
    from experiments.measures.attention_pattern.dots import dots
    from experiments.measures.attention_pattern.figures import histograms, lifts
    from experiments.rows.row import rows_of
    from experiments.statistics.intervals import labelled

    rows = labelled(rows_of(rows, NAME))
    drawn = {}
    for task, of_task in rows.groupby("task"):
        found, stem = looks(of_task), slug(str(task))
        valued = set(of_task.loc[of_task["status"] == "ok", "metric"])
        if MASS in valued and of_task["run_id"].nunique() == 1:
            drawn[f"{stem}_attention_histogram"] = histograms(of_task, MASS)
        elif MASS in valued:
            drawn[f"{stem}_attention_lift"] = lifts(of_task, MASS, found)
        for name, metrics, largest in (("attention_heads", SCORES, True), ("attention_spread", SPREADS, False)):
            measured = [metric for metric in metrics if metric in valued]
            if measured:
                drawn[f"{stem}_{name}"] = dots(of_task, measured, found, largest=largest)
    return drawn


def shown(rows: pd.DataFrame) -> pd.DataFrame:
    """For the table: the largest score of all heads of a run, and how far they look on average; before training too.

    Returns:
        A row a run and metric, with a column ``head``: the column's heading.
    """
    import pandas as pd

    from experiments.measures.attention_pattern.dots import over_heads
    from experiments.rows.row import metric_of
    from experiments.statistics.intervals import labelled

    parts = []
    for metric in (*SCORES, SPREADS[0]):
        for stage in STAGES:
            of_metric = labelled(rows[rows["metric"] == f"{stage}{metric}"])
            if of_metric.empty:
                continue
            named = f"{metric_of(f'{stage}{metric}').label}{', largest' if metric in SCORES else ''}"
            parts.append(over_heads(of_metric, [], largest=metric in SCORES).assign(head=named))
    return pd.concat(parts, ignore_index=True) if parts else rows.assign(head="")
