"""Figure and table of quality beyond the training length, of a trained model unchanged and changed."""

from functools import partial
from typing import Any

import pandas as pd

from experiments.figures import dots
from experiments.figures.panels import by_task, columns_at
from experiments.figures.style import Chart, Look
from experiments.measures.context_extension import AS_TRAINED, DROPPED, END, LIMITS, NAME, REPLACED, WINDOW, WITH_FIRST
from experiments.measures.context_extension.conditions import NAMES, UNCHANGED, named
from experiments.rows.row import main_metric, metric_of, not_in_parts
from experiments.statistics.intervals import by_measurement, with_series

MODELS = 3
"""Most trained models that are drawn."""
PANEL = "A panel for each trained model, at "
CAPTION = (
    f"{PANEL}the longest length measured: unchanged; with the named encoder in place of its own, extended to the "
    "length; with attention limited to a window of the training length; without its encoder (no encoding). No training "
    "after the change, except where a name says fine-tuned. Line: unchanged, within the training length. Shown are the "
    "encoders with the most replacements; the others are in the table."
)


def shown(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the table: the main metric in range, and at four times the training length as changed."""
    rows, lines = _by_line(rows)
    rows = rows[rows["metric"] == main_metric(rows["metric"].unique())]
    # A model without any possible replacement is listed as unsupported under each replacement.
    of_line = {line: [line] if line in (AS_TRAINED, *LIMITS) else [line, REPLACED] for line in lines[:-1]}
    far = [(rows[rows["line"].isin(among)], 4, NAMES.get(line, line)) for line, among in of_line.items()]
    return columns_at([(rows[rows["line"] == AS_TRAINED], 1, UNCHANGED), *far])


def _figures(rows: pd.DataFrame, looks: dict[str, Look]) -> dict[str, Chart | None]:
    rows = rows[rows["status"] == "ok"]
    if _too_few(rows):
        return {}
    rows = _by_line(rows)[0]
    name = main_metric(rows["metric"].unique())
    rows = rows[rows["metric"] == name]
    others = rows[~rows["line"].isin((AS_TRAINED, *LIMITS, DROPPED, REPLACED))]
    count = others.groupby("series")["line"].nunique().sort_values(ascending=False, kind="stable")
    models = list(count.index[:MODELS])
    if name is None or not models:
        return {}
    metric, rows = metric_of(name), rows[rows["series"].isin(models)]
    far, near = (rows[rows["eval_length"] == end] for end in (rows["eval_length"].max(), rows["train_length"].min()))
    means = far.groupby("line")["value"].mean().sort_values(ascending=not metric.higher_is_better)
    order, best = list(means.index), means[means.index.isin(others["line"])].index[0]
    length, task = int(far["eval_length"].iloc[0]), rows["task"].iloc[0]
    better = means.index.get_loc(best) < means.index.get_loc(AS_TRAINED)
    title = (
        f"{task}: {best} extends a trained model to {length} best" if better else f"{task}: no method helps at {length}"
    )
    if means.index[0] in LIMITS:
        title = f"{task}: best at {length} is a window of the training length" + f", of the methods {best}" * better
    how: dict[str, Any] = {"y": f"{metric.label} ({metric.unit}) at length {length}", "alike": "xy"}
    caption = CAPTION if len(count) > 1 else CAPTION.partition(" Shown are")[0].replace(PANEL, "At ")
    names = [named(line, int(far["train_length"].iloc[0])) for line in order]
    figure, panels = dots.panels(title, caption, names, models, **how)
    for axes, series in zip(panels, models, strict=True):
        dots.draw(axes, far[far["series"] == series], order, looks, by="line")
        within = near[(near["series"] == series) & (near["line"] == AS_TRAINED)]["value"].mean()
        if within == within:
            dots.reference(axes, within)
    return {f"{NAME}_{name}": figure}


def _too_few(rows: pd.DataFrame) -> bool:
    """Whether nothing may be ranked: the longest length is within training, or has no blocks of a checkpoint."""
    far = rows[rows["eval_length"] == rows["eval_length"].max()]
    quality = far[far["metric"] == main_metric(far["metric"].unique())]
    within = not (far["eval_length"] > far["train_length"]).any()
    return within or (END in set(rows["metric"]) and bool(quality["part"].isna().all()))


def _by_line(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    rows = not_in_parts(with_series(rows))
    rows = rows.assign(line=rows["condition"].where(rows["condition"] != "", AS_TRAINED))
    lines = set(rows["line"])
    others = sorted(lines - {AS_TRAINED, *LIMITS, DROPPED, REPLACED})
    return rows, [AS_TRAINED, *others, WINDOW, *[WITH_FIRST] * (WITH_FIRST in lines), DROPPED]


summarise = partial(by_measurement, experiment=NAME)
plot = partial(by_task, experiment=NAME, draw=_figures)
