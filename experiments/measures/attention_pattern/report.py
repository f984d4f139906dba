"""Figures and table of attention weights over distance and of each head's scores."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from experiments.figures import dots, lines, style, words
from experiments.figures.panels import by_task, chart, wide
from experiments.figures.style import Chart, Look
from experiments.measures.attention_pattern import DISTANCE, FIRST, INDUCTION, INITIAL, MAIN, MASS, NAME
from experiments.rows.row import COORDINATES, among, metric_of
from experiments.statistics.intervals import by_measurement, with_series

SCORES = (MAIN, INDUCTION, FIRST)
SHOWN = [f"{stage}{metric}" for metric in (*SCORES, DISTANCE) for stage in ("", INITIAL)]
PANELS = 6
"""Most series whose profile is drawn."""
PROFILES = (
    "Share of the attention weight at each distance, in tokens back (negative: ahead): mean over queries, heads and "
    "layers (of one run: a panel for each layer). Line: uniform weights on all that can be seen, so bars above it "
    "are a preference; dots: before training."
)
CHOSEN = " Shown is the strongest preference of each family; the others are in the table."
HEADS = (
    "The most pronounced head of each model: share of its weight on the token before, on the token that followed the "
    "last occurrence of the same token, and on the first token. Filled: trained; ring: before training; line: uniform "
    "weights. All encoders, by the first panel."
)
PREFERENCE = 0.05
"""Share of the weight, beyond that of uniform weights, from which on a distance is preferred."""
CLEAR = 0.5
"""Share of its weight that a head of a kind gives to one place."""


def over_heads(rows: pd.DataFrame, by: list[str], *, largest: bool) -> pd.DataFrame:
    """Return one row for each run: the largest of its heads' rows of one metric, or their mean. Without coordinates.

    The rows have a ``series``; ``by`` are columns that make groups within a run. A run without a value keeps one row
    with its status.
    """
    parts = []
    for _, group in rows.groupby([*by, "series", "run_id"], sort=False):
        valued = group[group["status"] == "ok"]
        if valued.empty:
            parts.append(group.head(1))
        elif largest:
            parts.append(valued.loc[[valued["value"].idxmax()]])
        else:
            parts.append(valued.head(1).assign(value=valued["value"].mean(), chance=valued["chance"].mean()))
    found = pd.concat(parts) if parts else rows.head(0)
    return found.assign(condition="", **dict.fromkeys(COORDINATES, None))


def shown(rows: pd.DataFrame, metrics: Sequence[str] = SHOWN) -> pd.DataFrame:
    """Return a row for each run with the largest score of its heads, or their mean where that is a distance."""
    parts = []
    for metric in metrics:
        of_metric, largest = with_series(rows[rows["metric"] == metric]), not metric.endswith(DISTANCE)
        if len(of_metric):
            head = f"{metric_of(metric).label}{', largest' * largest}"
            parts.append(over_heads(of_metric, [], largest=largest).assign(head=head))
    return pd.concat(parts, ignore_index=True) if parts else rows.assign(head="")


def _figures(rows: pd.DataFrame, looks: dict[str, Look]) -> dict[str, Chart | None]:
    rows = rows[rows["status"] == "ok"]
    return {"attention_heads": _heads(rows, looks), "attention_profile": _profiles(rows, looks)}


def _profiles(rows: pd.DataFrame, looks: dict[str, Look]) -> Chart | None:
    now, before = (rows[rows["metric"] == name] for name in (MASS, INITIAL + MASS))
    if now.empty:
        return None
    by, caption = "series", PROFILES
    colours: Mapping[str, str]
    if now["run_id"].nunique() == 1:
        series = str(now["series"].iloc[0])
        now, before = (part.assign(layer="layer " + part["layer"].astype(str)) for part in (now, before))
        by, names, colours = "layer", sorted(set(now["layer"])), defaultdict(lambda: looks[series].colour)
    means = now.groupby([by, "distance"])[["value", "chance"]].mean()
    if by == "series":
        apart = (means["value"] - means["chance"]).abs().groupby("series").sum().sort_values(ascending=False)
        chosen = style.chosen(looks, apart.index, PANELS)
        names, colours = list(chosen), {name: look.colour for name, look in chosen.items()}
        caption += CHOSEN * (len(names) < len(apart))
    lows = sorted(set(now["distance"].astype(int)))
    last = (now["distance"] + now["size"].fillna(1) - 1).groupby(now["distance"]).max().astype(int)
    texts = [f"{low}" if low == last[low] else f"{low}–{last[low]}" for low in lows]
    texts = [text.replace("-", "−") for text in texts]
    initial = before.groupby([by, "distance"])["value"].mean()
    title = f"{rows['task'].iloc[0]}: {_preferred(means.loc[names], dict(zip(lows, texts, strict=True)))}"
    how: dict[str, Any] = {"x": "tokens back", "y": "share of the attention weight", "height": 0.9}
    figure, panels = chart(title, caption, names, low=wide(texts) - 0.1, **how)
    places, scale = np.arange(len(lows)), style.scale()
    for axes, name in zip(panels, names, strict=True):
        part = means.loc[name].reindex(lows)
        axes.bar(places, part["value"], width=0.75, color=colours[name], alpha=0.75)
        axes.stairs(part["chance"], np.arange(len(lows) + 1) - 0.5, color=style.INK, linewidth=1.1 * scale)
        if name in initial.index.get_level_values(0):
            lines.dots(axes, places, initial[name].reindex(lows), 2.6, color=style.MUTED)
        axes.set_xticks(places, texts, rotation=90)
        axes.tick_params(bottom=False)
    panels[0].set_ylim(0, 1.05 * max(means.max().max(), initial.max() if len(initial) else 0))
    return figure


def _preferred(means: pd.DataFrame, texts: Mapping[int, str]) -> str:
    """Say which distance gets most weight beyond uniform weights, and of what; ``means`` by name and distance."""
    beyond = means["value"] - means["chance"]
    if beyond.max() < PREFERENCE:
        return "heads look nearly alike at all distances"
    name, distance = beyond.index.tolist()[int(beyond.argmax())]
    place = {0: "the token itself", 1: "the token before"}.get(distance, f"{texts[distance]} tokens back")
    return f"{name} prefers {place}"


def _heads(rows: pd.DataFrame, looks: dict[str, Look]) -> Chart | None:
    metrics = among(SCORES, rows["metric"])
    if not metrics:
        return None
    best = {name: over_heads(rows[rows["metric"] == name], [], largest=True) for name in metrics}
    means = {name: best[name].groupby("series")["value"].mean() for name in metrics}
    having = {name: of[of > CLEAR].sort_values(ascending=False, kind="stable").index for name, of in means.items()}
    titles = [metric_of(name).label.removesuffix(" score").removesuffix(" weight") for name in metrics]
    kinds = [name for name in metrics if len(having[name])]
    kinds.sort(key=lambda name: len(having[name]) == len(means[name]))  # what some have tells more than what all have
    title = f"{rows['task'].iloc[0]}: the most pronounced heads"
    if kinds:
        kind, grown = titles[metrics.index(kinds[0])], words.brief(having[kinds[0]], len(means[kinds[0]]))
        title = f"{rows['task'].iloc[0]}: {'an' if kind[0] in 'aeiou' else 'a'} {kind} head grows with {grown}"
    order = list(means[metrics[0]].sort_values(ascending=False, kind="stable").index)
    figure, panels = dots.panels(title, HEADS, order, titles, y="share of the head's weight", alike="xy")
    for axes, name in zip(panels, metrics, strict=True):
        before = over_heads(rows[rows["metric"] == INITIAL + name], [], largest=True)
        dots.draw(axes, before, order, looks, ring=True, shift=0.15)
        dots.draw(axes, best[name], order, looks, shift=-0.15)
        dots.reference(axes, best[name]["chance"].mean())
    panels[0].set_xlim(-0.03, 1.03)
    return figure


summarise = partial(by_measurement, experiment=NAME)
plot = partial(by_task, experiment=NAME, draw=_figures)
