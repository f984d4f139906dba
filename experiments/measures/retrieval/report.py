"""Heat maps of accuracy by depth and length, and the ranking by effective length."""

from functools import partial

import pandas as pd

from experiments.figures import dots, words
from experiments.figures.panels import by_task, columns_at, heat, spread, unlearned
from experiments.figures.style import Chart, Look
from experiments.measures.retrieval import EFFECTIVE, NAME
from experiments.rows.row import main_metric, metric_of, whole
from experiments.statistics.intervals import by_measurement, with_series

MAPS = 12
"""Most encoders whose map is drawn."""
CAPTION = (
    "Down: depth of the evidence, in % from the beginning of the context to its end; across: length. Mean over seeds"
)
RANKING = (
    "Longest measured length, in training lengths, up to which 90 % of the accuracy in range above guessing is kept, "
    "over all depths; 0: too little is found in range. Line: the training length. All encoders, the longest on top."
)


def shown(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the table: effective length, and accuracy at one and four training lengths, by depth too."""
    rows, metric = with_series(rows), main_metric(rows["metric"].unique())
    effective = rows[rows["metric"] == EFFECTIVE].assign(head=metric_of(EFFECTIVE).label)
    if metric is None:
        return effective
    of_metric, name = rows[rows["metric"] == metric], metric_of(metric).label
    ends = [(whole(of_metric), "")] + [(of_metric[of_metric["depth"] == at], f", depth {at:g}") for at in (0, 0.5, 1)]
    parts = [(part, multiple, f"{name}{where}") for multiple in (1, 4) for part, where in ends]
    return pd.concat([effective, columns_at(parts)])


def _figures(rows: pd.DataFrame, looks: dict[str, Look]) -> dict[str, Chart | None]:
    rows = rows[rows["status"] == "ok"]
    effective, metric = rows[rows["metric"] == EFFECTIVE], main_metric(rows["metric"].unique())
    if metric is None or effective.empty:
        return {}
    quality = rows[rows["metric"] == metric]
    beyond = quality[quality["eval_length"] > quality["train_length"]]
    kept = pd.DataFrame({"reach": effective.groupby("series")["value"].mean()})
    kept["beyond"] = beyond.groupby("series")["value"].mean()
    order = list(kept.sort_values(["reach", "beyond"], ascending=False, kind="stable").index)
    return {
        "by_depth": _maps(quality, order),
        # Of one series it is one dot, whose number is in the table.
        EFFECTIVE: _ranking(effective, looks, order, unlearned(_in_range(quality))) if len(order) > 1 else None,
    }


def _in_range(quality: pd.DataFrame) -> pd.DataFrame:
    return quality[quality["eval_length"] == quality["train_length"]]


def _maps(quality: pd.DataFrame, order: list[str]) -> Chart:
    metric, task = metric_of(str(quality["metric"].iloc[0])), quality["task"].iloc[0]
    cells = quality[quality["depth"].notna()]
    trained = set(quality["train_length"])
    drawn = [order[place] for place in spread(range(len(order)), MAPS)]
    tables = {
        name: part.pivot_table("value", "depth", "eval_length", "mean")
        .rename(index=lambda depth: f"{100 * depth:.0f}")
        .rename(columns=lambda length: f"{length} (trained)" if length in trained else str(length))
        for name, part in ((name, cells[cells["series"] == name]) for name in drawn)
    }
    caption = CAPTION + ("; all maps have one scale. " if len(drawn) > 1 else ". ")
    if len(drawn) < len(order):
        caption += (
            f"Shown are {len(drawn)} of {len(order)}, evenly along the ranking by effective length, the best first."
        )
    title = unlearned(_in_range(quality)) or f"{task}: what is found, by depth and length"
    return heat(title, caption, tables, f"{metric.label} by depth (%) and length")


def _ranking(effective: pd.DataFrame, looks: dict[str, Look], order: list[str], reason: str) -> Chart:
    task, reach = effective["task"].iloc[0], effective.groupby("series")["value"].mean()
    beyond = reach[reach > 1].sort_values(ascending=False, kind="stable")
    title = f"{task}: no encoder retrieves beyond the training length"
    if len(beyond):
        title = f"{task}: {words.brief(beyond.index, len(reach))} retrieve{'s' * (len(beyond) == 1)} beyond training"
    unit = "effective length (training lengths)"
    figure, (axes,) = dots.panels(reason or title, RANKING, order, [""], y=unit)
    dots.draw(axes, effective, order, looks)
    dots.reference(axes, 1)
    axes.set_xlim(-0.2, 1.05 * max(2.0, float(effective["value"].max())))
    return figure


summarise = partial(by_measurement, experiment=NAME)
plot = partial(by_task, experiment=NAME, draw=_figures)
