"""Does it matter where counting starts: what happens if all positions are shifted by the same number?

The trained model reads the sequences it is tested on as they are, but their positions start later: 16, 17, 18, …
instead of 0, 1, 2, …. Nothing else changes, and neither does the right answer. An encoder that sees distances alone
is not touched by this; that is measured here, not assumed. One that sees positions themselves may meet positions
that training never showed it, or may have learned the answer for the positions it knows.

Measured is the quality at each shift, how much of it is lost, and how much the outputs change, before training and
after. Teacher-forced, at the training length; every place is scored that the task scores.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

    from experiments.figures.style import Look
    from experiments.model.transformer import Transformer
    from experiments.rows.row import Row
    from experiments.tasks import Batch
    from experiments.training.evaluate import Scored, Subject

NAME = "shift_sensitivity"
NEEDS_TRAINING = True
MAIN = "quality_loss"

INITIAL, CHANGE = CHANGES = ("initial_output_change", "output_change")
FURTHEST = 2**23
"""Beyond twice this, float32 has no place left for every whole number."""
MOST_SHIFTS = 5
"""Shifts that the report's table has room for."""

CAPTIONS = {
    "shift_quality": (
        "Quality of the trained model with all positions shifted by the same number; at the training length. Dotted: "
        "guessing without reading. Bands: 95 % intervals over seeds. A line ends where the encoder takes no such "
        "positions."
    ),
    "shift_output_change": (
        "How much the outputs change when all positions are shifted, relative to the outputs at shift 0. Solid: "
        "trained. Dashed: before training. Bands: 95 % intervals over seeds. A line ends where the encoder takes no "
        "such positions."
    ),
}


def check(*, shifts: Iterable[int], samples: int) -> None:
    """Refuse knobs out of range."""
    from pe_zoo._knobs import number, whole

    if not list(shifts):
        raise ValueError("shift_sensitivity.shifts is empty; give at least one, such as [1,16,256]")
    for shift in shifts:
        number("shift_sensitivity.shifts", whole("shift_sensitivity.shifts", shift, at_least=1), at_most=FURTHEST)
    whole("shift_sensitivity.samples", samples, at_least=1)


def measure(subject: Subject, *, shifts: tuple[int, ...] = (1, 4, 16, 64, 256), samples: int = 128) -> list[Row]:
    """What shifting all positions does to outputs and quality, at initialisation and after training.

    Phase shift of Sinha et al. (2022), arXiv:2210.12574. Positions are those of the run's numbering in evaluation,
    plus the shift; tokens, mask and the answer asked for stay as they are.

    Args:
        subject: the trained model and its task; measured at the training length.
        shifts: numbers added to all positions, each at least 1; absolute, not in training lengths.
        samples: sequences, at least 1; of a fixed test set, windows.
    """
    from experiments.rows.row import lost
    from experiments.training.evaluate import score
    from pe_zoo import Unsupported

    main = subject.task.metrics[0]
    batch, positions = subject.question(NAME, samples, subject.task.train_length)
    models = {CHANGE: subject.model, INITIAL: subject.initial()}
    before = {change: _answers(model, batch, positions) for change, model in models.items()}
    untouched = score(before[CHANGE], batch)
    rows = _quality(subject, untouched, None)
    for shift in sorted(set(shifts)):
        try:
            after = {change: _answers(model, batch, positions + shift) for change, model in models.items()}
        except Unsupported as reason:
            metrics = (*subject.task.metrics, MAIN, *CHANGES)
            rows += [subject.cannot(NAME, metric, reason, shift=shift) for metric in metrics]
            continue
        scored = score(after[CHANGE], batch)
        values = {MAIN: lost(main, untouched.quality()[main], scored.quality()[main])}
        values |= {change: _change(before[change], after[change]) for change in CHANGES}
        rows += _quality(subject, scored, shift)
        rows += [subject.row(NAME, m, shift=shift, value=v, n=len(batch.tokens)) for m, v in values.items()]
    return rows


def _answers(model: Transformer, batch: Batch, positions: Tensor) -> Tensor:
    """Logits at the scored places, less their mean over the vocabulary, which softmax cannot see."""
    from experiments.training.evaluate import logits_of

    logits = logits_of(model, batch.tokens, positions)[:, batch.counted]
    return logits - logits.mean(-1, keepdim=True)


def _change(before: Tensor, after: Tensor) -> float:
    """‖after − before‖ / ‖before‖."""
    return ((after - before).norm() / before.norm()).item()


def _quality(subject: Subject, scored: Scored, shift: int | None) -> list[Row]:
    return [
        subject.row(
            NAME,
            metric,
            shift=shift,
            value=scored.quality()[metric],
            chance=subject.best_guess(metric, subject.task.train_length),
            n=scored.n(metric),
        )
        for metric in subject.task.metrics
    ]


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean, interval and number of seeds for each label, metric and shift. See `_stats.by_measurement`."""
    from experiments.rows.row import rows_of
    from experiments.statistics.intervals import by_measurement

    return by_measurement(rows_of(rows, NAME))


def shown(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the report's table, with their column's heading in ``head``: quality, what is lost, change."""
    from experiments.figures.panels import spread, under_heads
    from experiments.rows.row import main_metric, metric_of

    rows = _shifted(rows)
    shifts = spread([int(shift) for shift in rows["shifted"] if shift], MOST_SHIFTS)
    quality, lost = main_metric(rows["metric"].unique()), rows[rows["metric"] == MAIN]
    parts = []
    if quality is not None:
        untouched = rows[(rows["metric"] == quality) & (rows["shifted"] == 0)]
        parts.append(untouched.assign(head=f"{metric_of(quality).label}, shift 0"))
    parts += [lost[lost["shifted"] == shift].assign(head=f"lost at shift {shift}") for shift in shifts]
    for metric, when in ((INITIAL, "untrained"), (CHANGE, "trained")):
        far = rows[(rows["metric"] == metric) & rows["shifted"].isin(shifts[-1:])]
        parts.append(far.assign(head=f"output change at shift {max(shifts, default=0)}, {when}"))
    return under_heads(parts, rows).drop(columns="shifted")


def plot(rows: pd.DataFrame) -> dict[str, Figure]:
    """Quality over shift, and change of the outputs before and after training: stem -> figure, for each task.

    Args:
        rows: of this experiment, of one run or of many.
    """
    import pandas as pd

    from experiments.figures.panels import failed
    from experiments.figures.style import looks, slug
    from experiments.rows.row import main_metric, rows_of
    from experiments.statistics.intervals import labelled

    rows = _shifted(labelled(rows_of(rows, NAME)))
    figures = {}
    for task, of_task in rows.groupby("task"):
        valued = set(of_task.loc[of_task["status"] == "ok", "metric"])
        found, quality = looks(of_task), main_metric(valued)
        without = failed(of_task)
        for stem, metrics, draw in (("quality", [quality], _of_quality), (CHANGE, [*CHANGES], _of_change)):
            if valued & set(metrics):
                drawn = pd.concat([of_task[of_task["metric"].isin(metrics)], without])
                figures[f"{slug(str(task))}_shift_{stem}"] = draw(drawn, found)
    return figures


def _shifted(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with ``shifted``: the shift, 0 where there is none."""
    return rows.assign(shifted=rows["shift"].fillna(0).astype(int))


def _of_quality(rows: pd.DataFrame, looks: dict[str, Look]) -> Figure:
    from matplotlib.lines import Line2D

    from experiments.figures.panels import GREY, highest, line, small_multiples
    from experiments.rows.row import metric_of
    from experiments.statistics.intervals import over_seeds

    metric = metric_of(str(rows["metric"].iloc[0]))
    summary = over_seeds(rows, ["label", "shifted"])
    chance = rows.groupby("label")["chance"].mean()
    top = 1.0 if metric.higher_is_better else max(highest(summary), chance.max())
    chance_style: dict[str, Any] = {"color": GREY, "linewidth": 1.2, "linestyle": ":"}

    def draw(axes: Axes, label: str, look: Look) -> None:
        line(axes, summary[summary["label"] == label], "shifted", look.colour, linewidth=1.6, **_marked(look))
        if chance.notna()[label]:
            axes.axhline(chance[label], **chance_style)
        _shift_axis(axes, sorted(set(rows["shifted"])))
        axes.set_ylim(-0.03 * top, 1.05 * top)

    key = [Line2D([], [], **chance_style, label="guessing without reading")]
    what = {"title": f"{metric.label}, positions shifted", "x": "shift"}
    return small_multiples(rows, looks, draw, **what, y=f"{metric.label} ({metric.unit})", key=key)


def _of_change(rows: pd.DataFrame, looks: dict[str, Look]) -> Figure:
    from matplotlib.lines import Line2D

    from experiments.figures.panels import highest, line, small_multiples
    from experiments.rows.row import metric_of
    from experiments.statistics.intervals import over_seeds

    summary = over_seeds(rows, ["label", "metric", "shifted"])
    # At least a tenth high: rounding, where nothing changes, is not to fill the panel.
    top = max(0.1, highest(summary))
    dashed: dict[str, Any] = {"linewidth": 1.3, "linestyle": (0, (3, 2))}

    def draw(axes: Axes, label: str, look: Look) -> None:
        for metric, style in ((INITIAL, dashed), (CHANGE, {"linewidth": 1.6, **_marked(look)})):
            part = summary[(summary["label"] == label) & (summary["metric"] == metric)]
            line(axes, part, "shifted", look.colour, **style)
        _shift_axis(axes, sorted(set(rows["shifted"]) - {0}))
        axes.set_ylim(-0.03 * top, 1.05 * top)

    key = [
        Line2D([], [], color="#222222", linewidth=1.6, marker="o", markersize=4, label="trained"),
        Line2D([], [], color="#222222", **dashed, label="before training"),
    ]
    what = {"title": "change of the outputs, positions shifted", "x": "shift"}
    return small_multiples(rows, looks, draw, **what, y=f"change ({metric_of(CHANGE).unit})", key=key)


def _marked(look: Look) -> dict[str, Any]:
    return look.marking() | {"markersize": 5}


def _shift_axis(axes: Axes, shifts: list[int]) -> None:
    """Logarithmic above 1, linear below, so that 0 has a place; a tick at every shift, numbers while there is room."""
    from experiments.figures import style as _style
    from experiments.figures.panels import spread

    axes.set_xscale("symlog", base=2, linthresh=1, linscale=1)
    axes.set_xlim(-0.35 if 0 in shifts else min(shifts) / 1.8, max(shifts) * 1.8)
    _style.ticks(axes.xaxis, shifts, spread(shifts, 6))
