"""Figures of quality over length, of loss over position, and of quality at each length in the course of training."""

import math
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.ticker import MaxNLocator, NullLocator

from experiments.figures import lines, style, words
from experiments.figures.panels import boundary, by_task, chart, length_axis, unlearned
from experiments.figures.style import Chart, Look
from experiments.measures.length_extrapolation import GENERATED, NAME, POSITION_LOSS, TOKENS_SEEN
from experiments.rows.row import main_metric, metric_of, not_in_parts
from experiments.statistics.intervals import by_measurement

QUALITIES = ("bits_per_byte", "token_accuracy", "exact_match", f"{GENERATED}token_accuracy")
NEAR = 0.05
"""Shares that differ by less are named together."""
RISE = 0.5
"""Bits per token by which the loss of a place has risen."""

DURING = "during_training"
"""Stem of the figure of quality in the course of training."""
WORSE = 0.02
"""Share, or bits per byte, by which quality must fall to count as falling."""
PLACES = 32
"""Most points of a line; neighbouring places are averaged."""


def _figures(rows: pd.DataFrame, looks: dict[str, Look]) -> dict[str, Chart | None]:
    rows = not_in_parts(rows)
    rows, before = rows[rows["step"].isna()], rows[rows["step"].notna()]
    by_metric = {str(name): part for name, part in rows[rows["status"] == "ok"].groupby("metric")}
    metric = main_metric(by_metric)
    return {
        DURING: _over_training(before, looks),
        str(metric): None if metric is None else _over_length(by_metric, metric, looks),
        POSITION_LOSS: _over_position(by_metric, looks) if POSITION_LOSS in by_metric else None,
    }


def _over_length(by_metric: dict[str, pd.DataFrame], name: str, looks: dict[str, Look]) -> Chart:
    rows, metric = by_metric[name], metric_of(name)
    beyond = rows[rows["eval_length"] > rows["train_length"]].groupby("series")["value"].mean()
    named = style.chosen(looks, beyond.sort_values(ascending=not metric.higher_is_better).index)
    panels = {"": rows}
    if (free := f"{GENERATED}{name}") in by_metric:
        panels = {"reading the true answer so far": rows, "reading its own answer": by_metric[free]}
    caption = (
        f"{metric.label.capitalize()} at each length. Thick: mean, thin: seeds; shaded: lengths trained on. "
        + "Colour: the best of each family beyond the training length; grey: the others." * (len(named) < len(looks))
    )
    many = len(panels) > 1
    how: dict[str, Any] = {"x": "length", "height": 1.9 if many else 2.5, "key": named if many else None}
    unit = f"{metric.label} ({metric.unit})"
    figure, found = chart(_finding(rows, name), caption, list(panels), y=unit, left=0.32, **how)
    for axes, part in zip(found, panels.values(), strict=True):
        drawn = lines.draw(axes, part, "eval_length", named)
        length_axis(axes, sorted(set(part["eval_length"])), sorted(set(part["train_length"])))
        lines.value_axis(axes, rows, "eval_length")
        for train_length in sorted(set(part["train_length"])):
            boundary(axes, train_length, "" if many else "trained")
        lines.chance(axes, part, "eval_length", "" if many else "guessing")
        if not many:
            lines.name(axes, drawn)
    return figure


def _finding(rows: pd.DataFrame, name: str) -> str:
    task, metric = rows["task"].iloc[0], metric_of(name)
    twice = rows[rows["eval_length"] >= 2 * rows["train_length"]]
    at = twice[twice["eval_length"] == twice["eval_length"].min()]
    if at.empty or name != "token_accuracy":
        return f"{task}: {metric.label} by length"
    if reason := unlearned(rows[rows["eval_length"] == rows["train_length"]]):
        return reason
    length, means = int(at["eval_length"].iloc[0]), at.groupby("series")["value"].mean()
    best, chance = float(means.max()), float(at["chance"].mean())
    if best < chance + NEAR:
        return f"{task}: nothing is better than guessing at length {length}"
    leaders = list(means[means > best - NEAR].sort_values(ascending=False).index)
    right = f"{'up to ' * (len(leaders) > 1)}{100 * best:.0f} % right at length {length}"
    if len(means) == 1:
        return f"{task}: {leaders[0]} gets {right}"
    highest = "has the highest mean" if len(leaders) == 1 else "have the highest means"
    return f"{task}: {words.brief(leaders, len(means))} {highest}, {right}"


def _over_training(rows: pd.DataFrame, looks: dict[str, Look]) -> Chart | None:
    name = main_metric(rows["metric"].unique())
    if name is None:
        return None
    # Seeds draw other lengths, so they have seen about as many tokens after a step, not as many.
    tokens = rows[rows["metric"] == TOKENS_SEEN].groupby("step")["value"].mean()
    rows = rows[(rows["metric"] == name) & (rows["status"] == "ok")]
    rows = rows.assign(tokens=rows["step"].map(tokens), multiple=rows["eval_length"] / rows["train_length"])
    multiples = sorted(set(rows["multiple"]))
    wanted = list(dict.fromkeys(min(multiples, key=lambda at: abs(at - goal)) for goal in (1, 2, 4)))
    parts = [rows[rows["multiple"] == multiple] for multiple in wanted]
    metric, last = metric_of(name), parts[-1].sort_values("tokens").groupby("series")["value"].last()
    named = style.chosen(looks, last.sort_values(ascending=not metric.higher_is_better).index)
    caption = f"{metric.label.capitalize()} against the tokens that training has seen. Thick: mean, thin: seeds."
    caption += " Colour: the best of each family at the longest length; grey: the others." * (len(named) < len(looks))
    titles = ["training length" if multiple == 1 else f"{multiple:.3g} times that" for multiple in wanted]
    how: dict[str, Any] = {"x": "tokens seen", "y": f"{metric.label} ({metric.unit})", "height": 1.7}
    figure, panels = chart(_course(parts[-1], name), caption, titles, key=named, left=0.32, **how)
    ends = tokens.iloc[[0, -1]].round().astype(int)
    for axes, part in zip(panels, parts, strict=True):
        axes.set_xscale("log")
        lines.draw(axes, part, "tokens", named)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticks(ends, [f"{count / 1000:,.3g} k" for count in ends])
        first, last = axes.get_xticklabels()
        first.set_horizontalalignment("left")
        last.set_horizontalalignment("right")
    lines.value_axis(panels[0], pd.concat(parts), "tokens")
    return figure


def _course(rows: pd.DataFrame, name: str) -> str:
    """Say with which series quality at the longest length drawn falls, from its best until training ends."""
    task, length = rows["task"].iloc[0], int(rows["eval_length"].max())
    up = 1 if metric_of(name).higher_is_better else -1
    course = (up * rows.groupby(["series", "step"])["value"].mean()).groupby("series")
    falling = course.max() - course.last()
    found = falling[falling > WORSE].sort_values(ascending=False)
    if falling.empty or found.empty:
        return f"{task}: quality at length {length} does not fall as training goes on"
    which = words.brief(found.index, len(falling))
    return f"{task}: with {which}, quality at length {length} falls as training goes on"


def _over_position(by_metric: dict[str, pd.DataFrame], looks: dict[str, Look]) -> Chart | None:
    rows = by_metric[POSITION_LOSS]
    rows = rows[rows["position"].notna()]
    last = rows["position"].astype(int) + rows["size"].fillna(1).astype(int) - 1
    rows = rows.assign(last=last, middle=(rows["position"].astype(int) + last) / 2)
    rows = rows.assign(multiple=rows["eval_length"] / rows["train_length"])
    multiples = sorted(set(rows["multiple"][rows["multiple"] >= 1]))
    longer = next((multiple for multiple in multiples if multiple > 1), 1)
    wanted = list(dict.fromkeys(min(multiples, key=lambda at: abs(at - goal)) for goal in (1, longer, 8))) or [0.0]
    ends = rows[rows["multiple"] == 1]["last"].max()
    rows = rows[rows["multiple"].isin(wanted)]
    if rows.empty:
        return None
    wide = (rows.groupby("eval_length")["last"].transform("max") / PLACES).clip(lower=1)
    rows = rows.assign(middle=((rows["middle"] - 0.5) // wide + 0.5) * wide + 0.5)
    right = by_metric.get("token_accuracy", rows)["chance"].mean()
    guess = -math.log2(right) if right > 0 else math.nan
    rows = rows.assign(chance=guess)
    far = rows[rows["multiple"] == wanted[-1]].groupby("series")["value"].mean()
    named = style.chosen(looks, far.sort_values().index)
    caption = (
        "Loss at each place of the answer, teacher-forced, mean over seeds. Shaded: where trained answers went. "
        + "Dotted: guessing; above it a model is sure of something wrong. " * (guess == guess)
        + "Colour: the best of each family at the longest length; grey: the others." * (len(named) < len(looks))
    )
    names = ["training length" if multiple == 1 else f"{multiple:.3g} × the training length" for multiple in wanted]
    how: dict[str, Any] = {"x": "place in the answer", "y": "loss (bits per token)", "alike": "y", "height": 1.5}
    figure, panels = chart(_rise(rows, ends), caption, names, key=named, left=0.3, **how)
    panels[0].set_ylim(0, 1.04 * float(rows.groupby(["series", "eval_length", "middle"])["value"].mean().max()))
    for axes, multiple in zip(panels, wanted, strict=True):
        part = rows[rows["multiple"] == multiple]
        lines.draw(axes, part, "middle", named, seeds=False)
        axes.set_xlim(0, part["last"].max())
        if ends == ends:
            boundary(axes, ends)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, prune="lower"))
        lines.chance(axes, part, "middle", "")
    return figure


def _rise(rows: pd.DataFrame, ends: float) -> str:
    task, longer = rows["task"].iloc[0], rows[rows["multiple"].between(1, 3, inclusive="neither")]
    before = rows[rows["multiple"] == 1].groupby("series")["value"].mean()
    seen, new = (
        longer[part].groupby("series")["value"].mean() for part in (longer["last"] <= ends, longer["last"] > ends)
    )
    spreading = seen[seen > before.reindex(seen.index) + RISE]
    rising = new[new > before.reindex(new.index) + RISE]
    if len(spreading):
        share = words.brief(spreading.index, len(seen))
        return f"{task}: with {share}, a longer answer is wrong at places that trained answers had, too"
    if len(rising) * 2 > len(new):
        return f"{task}: the loss rises where trained answers had ended"
    return f"{task}: loss by place"


summarise = partial(by_measurement, experiment=NAME)
plot = partial(by_task, experiment=NAME, draw=_figures)
