"""Figures of permutation sensitivity, from rows alone."""

from typing import Any

import pandas as pd

from experiments.figures import dots, lines, style, words
from experiments.figures.panels import chart, unlearned
from experiments.figures.style import Chart, Look
from experiments.measures.permutation_sensitivity import POSITIONS, TOKENS
from experiments.rows.row import metric_of

Looks = dict[str, Look]
GENTLE, HARD = "adjacent swaps 10%", "shuffle"
FELT = 0.05
"""Quality lost by a model that needs the order of its input."""


def sensitivity(rows: pd.DataFrame, looks: Looks) -> Chart | None:
    """Plot the quality lost by a gentle change of order and by the hardest, seed by seed."""
    reason = unlearned(rows[rows["condition"] == ""])
    in_bits = (rows["metric"] == "bits_per_byte").any()
    unit = f"quality lost, {metric_of('bits_per_byte').unit if in_bits else 'share of the answer'}"
    rows = rows[(rows["metric"] == "quality_loss") & (rows["status"] == "ok") & rows["change"].isin((GENTLE, HARD))]
    tokens = rows[(rows["change"] == HARD) & (rows["kind"] == TOKENS)].groupby("series")["value"].mean()
    order = list(tokens.sort_values(ascending=False, kind="stable").index)
    if not order:
        return None
    caption = (
        "Quality lost when a tenth of adjacent pairs swap places, and when all are shuffled. Filled: tokens permuted; "
        "ring: positions permuted, tokens in place. All encoders, those that lose most on top."
    )
    changes = {GENTLE: "10 % of neighbours swapped", HARD: "all shuffled"}
    titles = list(changes.values())
    figure, panels = dots.panels(reason or _finding(rows, tokens), caption, order, titles, y=unit, alike="xy")
    for axes, change in zip(panels, changes, strict=True):
        for kind in (TOKENS, POSITIONS):
            part, ring = rows[(rows["change"] == change) & (rows["kind"] == kind)], kind == POSITIONS
            dots.draw(axes, part, order, looks, ring=ring, shift=0.17 if ring else -0.17)
        dots.reference(axes, 0)
    return figure


def _finding(rows: pd.DataFrame, tokens: "pd.Series[float]") -> str:
    task, without = rows["task"].iloc[0], list(tokens[tokens.abs() < FELT].index)
    if len(tokens) == 1:
        return f"{task}: {tokens.index[0]} loses {tokens.iloc[0]:.2f} when its input is shuffled"
    if not without:
        return f"{task}: shuffling the input costs every model more than {FELT:g}"
    if len(without) == len(tokens):
        return f"{task}: shuffling the input costs no model more than {FELT:g}"
    return f"{task}: with {words.brief(without, len(tokens))}, shuffling the input costs less than {FELT:g}"


def representation_change(rows: pd.DataFrame, looks: Looks) -> Chart | None:
    """Plot the change of the representation from layer to layer under a full shuffle."""
    name = "representation_change"
    panels = {
        "tokens, before training": (TOKENS, f"initial_{name}"),
        "tokens, trained": (TOKENS, name),
        "positions, trained": (POSITIONS, name),
    }
    rows = rows[(rows["change"] == HARD) & rows["layer"].notna() & (rows["status"] == "ok")]
    parts = {name: rows[(rows["metric"] == metric) & (rows["kind"] == kind)] for name, (kind, metric) in panels.items()}
    parts = {title: part for title, part in parts.items() if len(part)}
    if not parts:
        return None
    last = parts.get("tokens, trained", next(iter(parts.values())))
    named = style.chosen(looks, last.groupby("series")["value"].mean().sort_values(ascending=False).index)
    caption = (
        "Change of each layer's representation of the input when all is shuffled, relative to that of the untouched "
        "input, token by token; layer 0 is the embedded input. Colour: the largest change of each family; grey: the "
        "others. Thick: mean, thin: seeds."
    )
    how: dict[str, Any] = {"x": "layer", "y": "relative change", "key": named, "height": 1.4}
    title = f"{rows['task'].iloc[0]}: where the order of the input shows"
    figure, found = chart(title, caption, list(parts), **how)
    for axes, part in zip(found, parts.values(), strict=True):
        lines.draw(axes, part.assign(layer=part["layer"].astype(int)), "layer", named)
    found[0].set_ylim(bottom=0)
    found[0].set_xticks(sorted(set(rows["layer"].astype(int))))
    return figure
