"""Figures of permutation sensitivity, from rows alone."""

from typing import Any

import pandas as pd

from experiments.figures import dots, lines, style, words
from experiments.figures.panels import chart, heat, unlearned
from experiments.figures.style import Chart, Look
from experiments.measures.permutation_sensitivity import POSITIONS, TOKENS
from experiments.rows.row import metric_of

Looks = dict[str, Look]
KINDS = (TOKENS, POSITIONS)
GENTLE, HARD = "adjacent swaps 10%", "shuffle"
FELT = 0.05
"""Quality lost by a model that needs the order of its input."""


def quality_loss(rows: pd.DataFrame, _: Looks) -> Chart | None:
    """Plot the quality lost by each change of order as a map for each kind."""
    tables = _tables(rows, {f"{kind} permuted": (kind, "quality_loss") for kind in KINDS})
    if not tables:
        return None
    means = next(iter(tables.values())).mean().sort_values()
    title = f"{_task(rows)}: {means.index[-1]} costs most, {means.index[0]} least"
    caption = (
        "Quality lost by each change of order. Tokens permuted: they change places. Positions permuted: they stay, and "
        "their positions change. All encoders, those that lose most on top; the changes that cost most on the right. "
        "Mean over seeds; blank: nothing is lost, or the encoder refuses."
    )
    return heat(title, caption, tables, f"quality lost, {_unit(rows)}")


def output_change(rows: pd.DataFrame, _: Looks) -> Chart | None:
    """Plot the change of the outputs as a map for each kind, before training and after."""
    stages = {"before training": "initial_output_change", "trained": "output_change"}
    panels = {f"{kind}, {stage}": (kind, metric) for kind in KINDS for stage, metric in stages.items()}
    tables = _tables(rows, panels)
    caption = (
        "Change of the outputs, relative to those for the untouched input. Before training it is due to the encoder "
        "and the mask alone. All encoders. Mean over seeds; blank: no change, or the encoder refuses."
    )
    return heat(f"{_task(rows)}: change of the outputs", caption, tables, "relative change") if tables else None


def sensitivity(rows: pd.DataFrame, looks: Looks) -> Chart | None:
    """Plot the quality lost by a gentle change of order and by the hardest, seed by seed."""
    reason = unlearned(rows[rows["condition"] == ""])
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
    titles, unit = list(changes.values()), f"quality lost, {_unit(rows)}"
    figure, panels = dots.panels(reason or _finding(rows, tokens), caption, order, titles, y=unit, alike="xy")
    for axes, change in zip(panels, changes, strict=True):
        for kind in KINDS:
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
    parts = {
        title: rows[(rows["metric"] == metric) & (rows["kind"] == kind)] for title, (kind, metric) in panels.items()
    }
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
    title = f"{_task(rows)}: where the order of the input shows"
    figure, found = chart(title, caption, list(parts), **how)
    for axes, part in zip(found, parts.values(), strict=True):
        lines.draw(axes, part.assign(layer=part["layer"].astype(int)), "layer", named)
    found[0].set_ylim(bottom=0)
    found[0].set_xticks(sorted(set(rows["layer"].astype(int))))
    return figure


def _tables(rows: pd.DataFrame, panels: dict[str, tuple[str, str]]) -> dict[str, pd.DataFrame]:
    """Return means by series and change for each panel, the largest of the first on top and on the right."""
    found = {}
    for title, (kind, metric) in panels.items():
        part = rows[(rows["metric"] == metric) & (rows["kind"] == kind) & (rows["status"] == "ok")]
        if len(part):
            found[title] = part.pivot_table(index="series", columns="change", values="value")
    if not found:
        return {}
    first = next(iter(found.values()))
    order = first.mean(axis=1).sort_values(ascending=False, kind="stable").index
    columns = first.mean().sort_values(kind="stable").index
    return {name: table.reindex(index=order, columns=columns) for name, table in found.items()}


def _task(rows: pd.DataFrame) -> str:
    return str(rows["task"].iloc[0])


def _unit(rows: pd.DataFrame) -> str:
    named = set(rows["metric"])
    return metric_of("bits_per_byte").unit if "bits_per_byte" in named else "share of the answer"
