"""Does an encoder that was trained on short sequences still work on long ones?

The trained model is asked for every length by itself: one length a batch, sequences that it was not trained on,
the same for every encoder of a seed. It is teacher-forced: each token is predicted from the true ones before it.
Where answers are read on, some of the sequences are also answered free-running: each token is predicted from the
model's own answers, so that one mistake can bring on others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from experiments.rows.row import among

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from torch import Tensor

    from experiments.figures.style import Look
    from experiments.rows.row import Row
    from experiments.tasks import Batch
    from experiments.training.evaluate import Scored, Subject

NAME = "length_extrapolation"
NEEDS_TRAINING = True
MAIN = None

QUALITIES = ("bits_per_byte", "token_accuracy", "exact_match", "generated_token_accuracy")
GENERATED = "generated_"
"""Before a metric's name: free-running."""
FREE_RUNNING_GAP = "free_running_gap"
TOKENS = "token_accuracy"
POSITION_LOSS = "position_loss"
MULTIPLES = (0.5, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)


def check(*, multiples: Iterable[float], samples: int, position_bins: int, generated: int) -> None:
    """Refuse knobs out of range."""
    from pe_zoo._knobs import number, whole

    if not list(multiples):
        raise ValueError("length_extrapolation.multiples is empty; give at least one, such as [1,2,4]")
    for multiple in multiples:
        number("length_extrapolation.multiples", multiple, above=0)
    whole("length_extrapolation.samples", samples, at_least=1)
    whole("length_extrapolation.position_bins", position_bins, at_least=1)
    whole("length_extrapolation.generated", generated, at_least=0)


def lengths(train_length: int, multiples: Iterable[float]) -> list[int]:
    """The lengths measured at, ascending."""
    return sorted({max(1, round(train_length * multiple)) for multiple in multiples})


def unmeasured(
    subject: Subject, status: str, *, multiples: tuple[float, ...] = MULTIPLES, **others: object
) -> list[Row]:
    """The rows of a model that cannot be asked, one for each metric and length that it would have been asked at."""
    return [
        subject.row(NAME, metric, eval_length=length, status=status)
        for length in lengths(subject.task.train_length, multiples)
        for metric in subject.task.metrics
    ]


def measure(
    subject: Subject,
    *,
    multiples: tuple[float, ...] = MULTIPLES,
    samples: int = 256,
    position_bins: int = 32,
    generated: int = 32,
) -> list[Row]:
    """Quality at multiples of the training length, as a whole and place by place.

    Args:
        subject: the trained model and its task.
        multiples: lengths to measure at, in training lengths, each above 0.
        samples: sequences per length, at least 1; of a fixed test set, windows of the training length.
        position_bins: bins that the scored places of a training-length sequence are divided into, at
            least 1; bins of longer sequences are as wide, so that there are more of them.
        generated: of the sequences, at most so many are also answered free-running, at least 0: by a causal model,
            where a task's answers are read on.
    """
    from pe_zoo import Unsupported

    rows: list[Row] = []
    for length in lengths(subject.task.train_length, multiples):
        try:
            rows += _measure_at(subject, length, samples, position_bins, generated)
        except Unsupported as reason:
            rows += [subject.cannot(NAME, metric, reason, eval_length=length) for metric in subject.task.metrics]
    return rows


def _measure_at(subject: Subject, length: int, samples: int, position_bins: int, generated: int) -> list[Row]:
    from experiments.training.evaluate import evaluate
    from pe_zoo import Unsupported

    task = subject.task
    if length > task.train_length and task.sequence_length(length) <= task.sequence_length(task.train_length):
        raise Unsupported(f"task={task.name} draws sequences of length {length} no longer than those trained on")
    batch, positions = subject.question(NAME, samples, length)
    scored = evaluate(subject.model, batch, positions)
    rows = [
        subject.row(
            NAME,
            metric,
            eval_length=length,
            value=scored.quality()[metric],
            chance=subject.best_guess(metric, length),
            n=scored.n(metric),
        )
        for metric in subject.task.metrics
    ]
    rows += _generated(subject, length, (batch, positions), scored, generated)
    num_places = scored.nats.shape[1]
    width = max(1, math.ceil(subject.task.train_length / position_bins))
    for start in range(0, num_places, width):
        part = scored.nats[:, start : start + width]
        where = {"position": start + 1, "size": part.shape[1] if part.shape[1] > 1 else None}
        bits = part.double().mean().item() / math.log(2)
        rows.append(subject.row(NAME, POSITION_LOSS, eval_length=length, **where, value=bits, n=part.numel()))
    return rows


def _generated(subject: Subject, length: int, question: tuple[Batch, Tensor], forced: Scored, count: int) -> list[Row]:
    """Quality free-running, also beside the same sequences' teacher-forced; nothing where the two are one question."""
    from experiments.training.generate import generate

    metrics = [metric for metric in subject.task.metrics if metric != "bits_per_byte"]
    if not metrics or not count or not subject.model.causal:
        return []
    scored = generate(subject.model, *question, count)
    if scored is None:
        return []
    same = forced.each(lambda answers: answers[:count])
    gap = scored.quality()[TOKENS] - same.quality()[TOKENS]
    rows = [subject.row(NAME, FREE_RUNNING_GAP, eval_length=length, value=gap, n=scored.n(TOKENS))]
    return rows + [
        subject.row(
            NAME,
            GENERATED + metric,
            eval_length=length,
            value=scored.quality()[metric],
            chance=subject.best_guess(metric, length),
            n=scored.n(metric),
        )
        for metric in metrics
    ]


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean, interval and number of seeds for each label at each length. See `_stats.by_measurement`."""
    from experiments.rows.row import rows_of
    from experiments.statistics.intervals import by_measurement

    return by_measurement(rows_of(rows, NAME))


def plot(rows: pd.DataFrame) -> dict[str, Figure]:
    """Quality over length, and loss over the place within the answer: stem -> figure, for each task.

    Args:
        rows: of this experiment, of one run or of many.
    """
    from experiments.figures.style import looks, slug
    from experiments.rows.row import rows_of
    from experiments.statistics.intervals import labelled

    rows = labelled(rows_of(rows, NAME))
    figures = {}
    for task, of_task in rows.groupby("task"):
        found = looks(of_task)
        for metric in QUALITIES:
            of_metric = of_task[of_task["metric"] == metric]
            if len(of_metric):
                figures[f"{slug(str(task))}_{metric}"] = _over_length(of_metric, found)
        of_place = of_task[of_task["metric"] == POSITION_LOSS]
        if (of_place["status"] == "ok").any():
            figures[f"{slug(str(task))}_{POSITION_LOSS}"] = _over_place(of_place, found)
    return figures


def _over_length(rows: pd.DataFrame, looks: dict[str, Look]) -> Figure:
    import seaborn as sns

    from experiments.figures import style
    from experiments.rows.row import metric_of

    summary = summarise(rows)
    metric = metric_of(summary["metric"].iloc[0])
    train_lengths = sorted(set(summary["train_length"]))
    with style.theme():
        figure = style.figure(4.0)
        axes = figure.subplots()
        lengths = sorted(set(summary["eval_length"]))
        style.length_axis(axes, lengths, train_lengths)
        for train_length in train_lengths:
            style.boundary(axes, train_length, f"trained up to {train_length}")
        style.curves(axes, summary, "eval_length", looks)
        chance = summary.groupby("eval_length")["chance"].mean().dropna()
        if len(chance):
            axes.plot(chance.index, chance, color="#888888", linestyle=":", linewidth=1.2, zorder=1.5)
            axes.annotate(
                "guessing without reading",
                (float(chance.index[0]), float(chance.iloc[0])),
                xytext=(0, 3 if metric.higher_is_better else -3),
                textcoords="offset points",
                ha="left",
                va="bottom" if metric.higher_is_better else "top",
                fontsize="small",
                color="#666666",
            )
        if metric.higher_is_better:
            axes.set_ylim(-0.02, 1.02)
        else:
            axes.set_ylim(bottom=0)
        axes.set_xlabel("length measured")
        axes.set_ylabel(f"{metric.label} ({metric.unit})")
        axes.set_title(style.title(rows, metric.label), pad=20)
        sns.despine(ax=axes)
        shown = {label: looks[label] for label in among(looks, rows["label"])}
        style.legend(figure, style.handles(shown, _ends(summary)))
    return figure


def _ends(summary: pd.DataFrame) -> dict[str, str]:
    """Label -> why its line ends early or lacks seeds."""
    notes = {}
    for label, group in summary.groupby("label"):
        parts = []
        for status in ("unsupported", "diverged"):
            lacking = group[group[status] > 0]
            if len(lacking) == len(group) and (group["seeds"] == 0).all():
                parts.append(status)
            elif len(lacking):
                count = "" if (lacking["seeds"] == 0).all() else f"{lacking[status].max()} of its seeds "
                start = "" if len(lacking) == len(group) else f" from {lacking['eval_length'].min()}"
                parts.append(f"{count}{status}{start}")
        if parts:
            notes[str(label)] = "; ".join(parts)
    return notes


def _over_place(rows: pd.DataFrame, looks: dict[str, Look]) -> Figure:
    """Small multiples: a panel a label, a line a length, the place on the horizontal axis."""
    import textwrap

    import seaborn as sns

    from experiments.figures import style as style
    from experiments.rows.row import metric_of
    from experiments.statistics.intervals import over_seeds

    rows = rows[rows["position"].notna()]
    last = rows["position"].astype(int) + rows["size"].fillna(1).astype(int) - 1
    rows = rows.assign(last=last, place=(rows["position"].astype(int) + last) / 2)
    summary = over_seeds(rows, ["label", "eval_length", "place"])
    lengths = sorted(set(rows["eval_length"]))
    colours = dict(zip(lengths, sns.color_palette("viridis_r", len(lengths) + 1)[1:], strict=True))
    shown = among(looks, rows["label"])
    within = rows[rows["eval_length"] == rows["train_length"]]
    ends = within["last"].groupby(within["label"]).max()
    columns = min(3, len(shown))
    height = -(-len(shown) // columns)
    with style.theme():
        figure = style.figure(1.2 + 1.8 * height)
        panels = figure.subplots(height, columns, sharex=True, sharey=True, squeeze=False).ravel()
        for axes in panels[len(shown) :]:
            axes.set_axis_off()
        for axes, label in zip(panels, shown, strict=False):
            of_label = summary[(summary["label"] == label) & (summary["seeds"] > 0)]
            for length in lengths:
                line = of_label[of_label["eval_length"] == length].sort_values("place")
                axes.plot(line["place"], line["mean"], color=colours[length], linewidth=1.5)
            axes.set_title(textwrap.fill(label, 24), fontsize="medium")
        furthest = int(rows["last"].max())
        ticks = [2**power for power in range(0, furthest.bit_length() + 1, 2) if 2**power <= furthest]
        style.length_axis(panels[0], [*ticks], [])
        panels[0].set_xlim(0.9, furthest * 1.1)
        panels[0].set_ylim(bottom=0)
        for axes, label in zip(panels, shown, strict=False):
            if label in ends:
                style.boundary(axes, ends[label], "")
            sns.despine(ax=axes)
        for axes in panels[max(0, len(shown) - columns) : len(shown)]:
            axes.tick_params(labelbottom=True)  # the lowest of its column, even where the last row is not full
        name = metric_of(POSITION_LOSS)
        figure.supxlabel("place within the scored part (dashed: its end at the training length)", fontsize="medium")
        figure.supylabel(f"loss ({name.unit})", fontsize="medium")
        figure.suptitle(style.title(rows, name.label), fontsize="large")
        handles = [axes.plot([], [], color=colours[n], linewidth=2, label=str(n))[0] for n in lengths]
        figure.legend(
            handles=handles, title="length measured", loc="outside right upper", frameon=False, handlelength=1.4
        )
    return figure
