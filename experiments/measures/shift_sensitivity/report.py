"""Figures and tables of quality and outputs over the shift of positions."""

from functools import partial
from typing import Any

import pandas as pd

from experiments.figures import lines, style, words
from experiments.figures.panels import by_task, chart, spread, ticks, under_heads, unlearned
from experiments.figures.style import Chart, Look
from experiments.measures.shift_sensitivity import CHANGE, INITIAL, MAIN, NAME
from experiments.rows.row import main_metric, metric_of
from experiments.statistics.intervals import by_measurement

MOST_SHIFTS = 5
NAMED = 6
"""Most encoders with a colour and a name in the figure."""
ALIKE = 0.02
"""Most quality lost by a model that does not mind a shift."""
ROUNDED = 5e-4
"""Quality lost that shows in no digit of a table."""
ABSOLUTE = "input"
"""The family that adds positions themselves."""


def shown(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the table, with their column's heading in ``head``: quality, loss, change."""
    rows = _shifted(rows)
    shifts = spread([int(shift) for shift in rows["shifted"] if shift], MOST_SHIFTS)
    quality, lost = main_metric(rows["metric"].unique()), rows[rows["metric"] == MAIN]
    parts = []
    if quality is not None:
        untouched = rows[(rows["metric"] == quality) & (rows["shifted"] == 0)]
        parts.append(untouched.assign(head=f"{metric_of(quality).label}, shift 0"))
    parts += [lost[lost["shifted"] == shift].assign(head=f"lost at shift {shift}") for shift in shifts]
    changes = {INITIAL: ", untrained", CHANGE: ", trained"}
    for metric, when in changes.items() if (rows["metric"] == INITIAL).any() else [(CHANGE, "")]:
        far = rows[(rows["metric"] == metric) & rows["shifted"].isin(shifts[-1:])]
        parts.append(far.assign(head=f"output change at shift {max(shifts, default=0)}{when}"))
    return under_heads(parts, rows).drop(columns="shifted")


def _figures(rows: pd.DataFrame, looks: dict[str, Look]) -> dict[str, Chart | None]:
    """Draw quality by shift: those that lose most in colour, beside the others."""
    rows = _shifted(rows)
    rows = rows[rows["status"] == "ok"]
    name, lost = main_metric(rows["metric"]), rows[(rows["metric"] == MAIN) & (rows["shifted"] > 0)]
    if name is None or lost.empty:
        return {}
    of_metric, metric = rows[rows["metric"] == name], metric_of(name)
    most = lost.groupby(["series", "shifted"])["value"].mean().groupby("series").max().sort_values(ascending=False)
    breaking = list(most[most > ALIKE].index)
    some = len(most) > NAMED
    named = style.dashed(looks, (breaking if some and breaking else list(most.index))[:NAMED])
    calm = len(most) - len(breaking)
    caption = (
        f"{metric.label.capitalize()} of the trained model with all positions shifted by the same number. Colour: "
        f"{words.listed(named)}, which {'lose most' if some else 'is every encoder here'}"
        f"{f'; grey: the other {len(most) - len(named)}' * some}. Thick: mean, thin: seeds. "
        "A line ends where the encoder refuses the positions."
    )
    if len(most) == 1 and rows["seed"].nunique() == 1:
        caption = f"{metric.label.capitalize()} with all positions shifted by the same number."
    how: dict[str, Any] = {"x": "added to all positions", "y": f"{metric.label} ({metric.unit})", "height": 1.9}
    figure, (axes,) = chart(_finding(rows, looks, breaking, calm), caption, **how)
    drawn = lines.draw(axes, of_metric, "shifted", named)
    shifts = sorted(set(of_metric["shifted"]))
    axes.set_xscale("symlog", base=2, linthresh=1, linscale=1)  # linear below 1, so that 0 has a place
    axes.set_xlim(-0.35 if 0 in shifts else min(shifts) / 1.8, max(shifts) * 1.8)
    ticks(axes.xaxis, shifts, spread(shifts, 6))
    lines.value_axis(axes, of_metric, "shifted")
    low, high = axes.get_ylim()
    if high - low < ALIKE:  # rounding alone, which no axis should show large
        middle = round((low + high) / 2, 2)
        axes.set_ylim(middle - ALIKE, middle + ALIKE)
        axes.set_yticks([middle - ALIKE, middle, middle + ALIKE])
        axes.yaxis.set_major_formatter("{x:.2f}")
    lines.chance(axes, of_metric, "shifted")
    lines.name(axes, drawn)
    return {"shift_quality": figure}


def _finding(rows: pd.DataFrame, looks: dict[str, Look], breaking: list[str], calm: int) -> str:
    task = rows["task"].iloc[0]
    if reason := unlearned(rows[rows["shifted"] == 0]):
        return reason
    if not breaking:
        most = float(rows.loc[rows["metric"] == MAIN, "value"].abs().max())
        return f"{task}: a shift of all positions changes {'nothing' if most < ROUNDED else f'less than {ALIKE:g}'}"
    absolute = {series for series, look in looks.items() if look.family == ABSOLUTE} & set(rows["series"])
    if calm and set(breaking) == absolute:
        return f"{task}: only absolute codes mind a shift"
    return f"{task}: {words.brief(breaking, len(breaking) + calm)} mind{'s' * (len(breaking) == 1)} a shift"


def _shifted(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(shifted=rows["shift"].fillna(0).astype(int))


summarise = partial(by_measurement, experiment=NAME)
plot = partial(by_task, experiment=NAME, draw=_figures)
