"""Does a model use text that lies far back, or do longer windows merely give each token more text before it?

A model's loss often falls as windows grow, even where it makes nothing of distant text: cut into longer windows, fewer
tokens stand near a beginning, where little is known (the early token curse of Press et al. 2021, arXiv:2108.12409,
appendix B). Two comparisons tell these apart. First, the same tokens are asked for after a whole long context (kept),
after its last part only, as long as in training (cut), and after a context whose distant part is other text (replaced).
Whoever uses distant text does better with it kept. Second, all tokens of some stretches of text are asked for in
windows that follow one another (separate), where a token has as much before it as its place allows, and in windows that
move on by a few tokens (sliding), where all have about the same. All is teacher-forced: the text before a token is the
true one, but for what was replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from experiments.measures.context_use.contexts import Places
    from experiments.rows.row import Row
    from experiments.training.evaluate import Scored, Subject

NAME = "context_use"
NEEDS_TRAINING = True
MAIN = "far_context_gain"

QUALITY, GAIN, CONTENT = "bits_per_byte", "far_context_gain", "far_context_content"
KEPT, CUT, REPLACED, SEPARATE, SLIDING = "kept", "cut", "replaced", "separate windows", "sliding windows"
CONDITIONS = (KEPT, CUT, REPLACED, SEPARATE, SLIDING)
CAPTIONS = {
    NAME: "Bits per byte over the length of windows. Kept, cut and replaced ask for the same tokens: after the whole "
    "window, after its last part only, as long as in training, and with all before that part replaced by other text. "
    "Separate and sliding windows ask for others, all those of some stretches. Lower is better; the gap from cut "
    "down to kept is what distant text gives. Bands: 95 % intervals over seeds. Dashed: the training length. Dotted, "
    "where within the panel: guessing by how often each token occurs. A line along a panel's top is at least as bad.",
}


def check(*, multiples: Iterable[float], samples: int, target_share: float, stride_share: float) -> None:
    """Refuse knobs out of range."""
    from pe_zoo._knobs import number, whole

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
    """Bits per byte of the same text with different text before them, at multiples of the training length.

    Args:
        subject: the trained model and its task, which must have running text.
        multiples: lengths of windows, in training lengths, each above 0.
        samples: tokens asked for in each of the two comparisons, in training lengths, at least 1.
        target_share: tokens asked for at the end of a window, in training lengths, in (0, 1]; at most the shortest
            window.
        stride_share: how far sliding windows move on, in training lengths, above 0; at most the shortest window.
    """
    import torch

    from experiments.measures.context_use.contexts import Places

    train_length, text_length = subject.task.train_length, subject.task.running_length
    if not text_length:
        subject.task.windows(torch.ones(1, dtype=torch.long), 1, causal=subject.model.causal)  # says why not
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
        asked = Places.of(text_length, fitting[-1], targets, samples * train_length)
        for length in fitting:
            rows += _measure_at(subject, asked, length, stride)
    return rows


def _measure_at(subject: Subject, asked: Places, length: int, stride: int) -> list[Row]:
    from experiments.measures.context_use import contexts
    from pe_zoo import Unsupported

    train_length = subject.task.train_length
    asks: dict[str, Callable[[], Scored]] = {KEPT: lambda: contexts.kept(subject, NAME, asked, length)}
    if length >= train_length:
        asks[CUT] = lambda: contexts.kept(subject, NAME, asked, train_length)
        asks[REPLACED] = lambda: contexts.replaced(subject, NAME, asked, length, train_length)
    asks[SEPARATE] = lambda: contexts.separate(subject, NAME, asked, length)
    asks[SLIDING] = lambda: contexts.sliding(subject, NAME, asked, length, stride)
    rows: list[Row] = []
    found: dict[str, Scored] = {}
    for condition, ask in asks.items():
        try:
            found[condition] = ask()
        except Unsupported as reason:
            rows.append(subject.cannot(NAME, QUALITY, reason, eval_length=length, condition=condition))
            continue
        rows.append(_row(subject, QUALITY, length, found[condition], condition))
    if length > train_length:
        for metric, other in ((GAIN, CUT), (CONTENT, REPLACED)):
            if KEPT in found and other in found:
                more = replace(found[KEPT], nats=found[other].nats - found[KEPT].nats)
                rows.append(_row(subject, metric, length, more))
            else:
                rows.append(subject.cannot(NAME, metric, f"not both {other} and {KEPT}", eval_length=length))
    return rows


def _row(subject: Subject, metric: str, length: int, scored: Scored, condition: str = "") -> Row:
    measured = {
        "eval_length": length,
        "condition": condition,
        "value": scored.quality()[QUALITY],
        "n": scored.n(QUALITY),
    }
    if metric == QUALITY:
        measured["chance"] = subject.best_guess(metric, length)
    return subject.row(NAME, metric, **measured)


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean, interval and number of seeds for each label, condition and length. See `_stats.by_measurement`."""
    from experiments.rows.row import rows_of
    from experiments.statistics.intervals import by_measurement

    return by_measurement(rows_of(rows, NAME))


def shown(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the table: bits at the training length and at four times it, and the gains at four times it."""
    from experiments.figures.length_panels import columns_at

    quality = rows[rows["metric"] == QUALITY]
    parts = [
        (quality[quality["condition"] == condition], multiple, condition)
        for multiple in (1, 4)
        for condition in (SEPARATE, SLIDING)
    ]
    gains = ((GAIN, "far context gives"), (CONTENT, "its content gives"))
    return columns_at([*parts, *((rows[rows["metric"] == metric], 4, said) for metric, said in gains)])


def plot(rows: pd.DataFrame) -> dict[str, Figure]:
    """Bits per byte over the length of the windows, a panel a label: stem -> figure, for each task.

    Args:
        rows: of this experiment, of one run or of many.
    """
    from experiments.figures.length_panels import panels
    from experiments.figures.style import slug
    from experiments.rows.row import rows_of
    from experiments.statistics.intervals import labelled

    rows = labelled(rows_of(rows, NAME))
    figures = {}
    for task, of_task in rows.groupby("task"):
        quality = of_task[(of_task["metric"] == QUALITY) & of_task["condition"].isin(CONDITIONS)]
        if (quality["status"] == "ok").any():
            quality = quality.assign(line=quality["condition"])
            figures[f"{slug(str(task))}_{NAME}"] = panels(quality, CONDITIONS, "use of context", "length of windows")
    return figures
