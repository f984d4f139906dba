"""How far does a trained model reach if, without any more training, its encoder is exchanged, limited or dropped?

Some encoders are made to take the place of another in a model that is trained already: at the same angles for near
tokens, they turn distant ones less, so that a long text spans what a short one did in training. The trained model is
asked for longer sequences than it was trained on: as it is; with each such encoder in the place of its own, stretched
as far as the sequence is longer; with no query seeing further back than a training sequence is long (a window); and
with its encoder dropped. The weights stay as they are. Who can stand in is found by trying: an encoder that has
nothing to train and that, unstretched, computes the same as the model's own. All is teacher-forced, one length a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from experiments.measures.context_extension.stand_ins import StandIn
    from experiments.model.transformer import Transformer
    from experiments.rows.row import Row
    from experiments.training.evaluate import Subject

NAME = "context_extension"
NEEDS_TRAINING = True
MAIN = None

QUALITIES = ("bits_per_byte", "token_accuracy", "exact_match")
AS_TRAINED, WINDOW, DROPPED, REPLACED = "as trained", "window", "dropped", "replaced"
CAPTIONS = {
    f"{NAME}_{metric}": "Quality over length, a trained model a panel: as trained; with the named encoder in the place "
    "of its own, stretched to the length at hand; with a window of the training length; and with its encoder dropped. "
    "Nothing was trained again. Bands: 95 % intervals over seeds. Dashed: the training length. Dotted: guessing "
    "without reading, where within the panel." + (" A line along a panel's top is at least as bad." * worse)
    for metric, worse in zip(QUALITIES, (1, 0, 0), strict=True)
}


def check(*, multiples: Iterable[float], samples: int, replacements: Iterable[str]) -> None:
    """Refuse knobs out of range."""
    import pe_zoo
    from pe_zoo._knobs import number, one_of, whole

    if not list(multiples):
        raise ValueError("context_extension.multiples is empty; give at least one, such as [1,2,4]")
    for multiple in multiples:
        number("context_extension.multiples", multiple, above=0)
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
    """Quality at multiples of the training length, of the model as trained and changed without training.

    Args:
        subject: the trained model and its task.
        multiples: lengths to measure at, in training lengths, each above 0.
        samples: sequences per length, at least 1; of a fixed test set, windows of the training length.
        replacements: encoders to put in the place of the model's own; none named: all that can stand in for it.
    """
    from pe_zoo import Unsupported

    found, refused = _stand_ins(subject, replacements)
    rows: list[Row] = []
    train_length = subject.task.train_length
    for length in sorted({max(1, round(train_length * multiple)) for multiple in multiples}):
        for condition, reason in refused.items():
            rows += _cannot(subject, length, {"condition": condition}, reason)
        try:
            question = subject.question(NAME, samples, length)
        except Unsupported as reason:
            for where, _ in _conditions(subject, length, found):
                rows += _cannot(subject, length, where, reason)
            continue
        for where, changed in _conditions(subject, length, found):
            rows += _measure_at(subject, question, length, where, changed)
    return rows


def _stand_ins(subject: Subject, replacements: tuple[str, ...]) -> tuple[list[StandIn], dict[str, str]]:
    """What stands in, and the conditions that cannot be measured, with the reason."""
    from experiments.measures.context_extension.stand_ins import FACTOR, StandIn, stand_ins
    from pe_zoo import Unsupported

    encoder, causal = subject.model.encoder, subject.model.causal
    if subject.model.encoder_dropped:
        return [], dict.fromkeys(replacements or (REPLACED,), "the model was trained to go without its encoder")
    found: list[StandIn] = []
    refused = {}
    for name in replacements or stand_ins(encoder, causal=causal):
        try:
            found.append(StandIn(name, encoder, causal=causal, chosen=True))
        except Unsupported as reason:
            refused[name] = str(reason)
    if not found and not refused:
        refused[REPLACED] = f"no encoder with a knob {FACTOR!r} and nothing to train is {encoder.name} at any factor"
    return found, refused


def _conditions(
    subject: Subject, length: int, found: list[StandIn]
) -> Iterator[tuple[dict[str, Any], AbstractContextManager[Transformer]]]:
    """Condition and coordinates of each change at a length, and the model so changed."""
    from experiments.measures.context_extension.stand_ins import altered

    model, task = subject.model, subject.task
    yield {"condition": AS_TRAINED}, altered(model)
    for stand_in in found:
        encoder, given = stand_in.at(task.sequence_length(length) / task.sequence_length(task.train_length))
        yield {"condition": stand_in.name, **given}, altered(model, encoder=encoder)
    window = model.geometry.train_length
    yield {"condition": WINDOW, "size": window}, altered(model, window=window)
    yield {"condition": DROPPED}, altered(model, dropped=True)


def _measure_at(
    subject: Subject, question: Any, length: int, where: dict[str, Any], changed: AbstractContextManager[Transformer]
) -> list[Row]:
    from experiments.training.evaluate import evaluate
    from pe_zoo import Unsupported

    try:
        with changed as model:
            scored = evaluate(model, *question)
    except Unsupported as reason:
        return _cannot(subject, length, where, reason)
    return [
        subject.row(
            NAME,
            metric,
            eval_length=length,
            **where,
            value=scored.quality()[metric],
            chance=subject.best_guess(metric, length),
            n=scored.n(metric),
        )
        for metric in subject.task.metrics
    ]


def _cannot(subject: Subject, length: int, where: dict[str, Any], reason: object) -> list[Row]:
    say: Callable[..., Row] = partial(subject.cannot, NAME, eval_length=length, **where)
    return [say(metric=metric, reason=reason) for metric in subject.task.metrics]


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean, interval and number of seeds for each label, metric, condition and length. See `_stats.by_measurement`."""
    from experiments.rows.row import rows_of
    from experiments.statistics.intervals import by_measurement

    return by_measurement(rows_of(rows, NAME))


def _by_line(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The rows with a column ``line``, what was done; and all lines in order, ``dropped`` last."""
    from experiments.statistics.intervals import labelled

    rows = labelled(rows)
    rows = rows.assign(line=rows["condition"].where(rows["condition"] != "", AS_TRAINED))
    ends = (AS_TRAINED, WINDOW, DROPPED, REPLACED)
    return rows, [AS_TRAINED, *sorted(set(rows["line"]) - set(ends)), WINDOW, DROPPED]


def shown(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the table: the task's main metric at four times the training length, a column a condition."""
    from experiments.figures.length_panels import columns_at
    from experiments.rows.row import main_metric

    rows, lines = _by_line(rows)
    rows = rows[rows["metric"] == main_metric(rows["metric"].unique())]
    mine = (AS_TRAINED, WINDOW)  # what no encoder can stand in for is said to be so for each that might have
    return columns_at(
        [(rows[rows["line"].isin([line] if line in mine else [line, REPLACED])], 4, line) for line in lines[:-1]]
    )


def plot(rows: pd.DataFrame) -> dict[str, Figure]:
    """Quality over length, a line a condition, a panel a label: stem -> figure, for each task and metric.

    Args:
        rows: of this experiment, of one run or of many.
    """
    from experiments.figures.length_panels import panels
    from experiments.figures.style import slug
    from experiments.rows.row import metric_of, rows_of

    rows, _ = _by_line(rows_of(rows, NAME))
    figures = {}
    for task, of_task in rows.groupby("task"):
        _, lines = _by_line(of_task)
        for metric in QUALITIES:
            of_metric = of_task[of_task["metric"] == metric]
            if (of_metric["status"] == "ok").any():
                text = f"{metric_of(metric).label}, extended without training"
                figures[f"{slug(str(task))}_{NAME}_{metric}"] = panels(of_metric, lines, text, "length measured")
    return figures
