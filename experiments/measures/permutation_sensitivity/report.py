"""Summary, figures and tables of the effects of changes of order."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from experiments.figures.style import slug
from experiments.measures.permutation_sensitivity import (
    NAME,
    POSITIONS,
    SLOPES,
    TOKENS,
)
from experiments.measures.permutation_sensitivity.figures import figures
from experiments.rows.row import rows_of
from experiments.statistics.intervals import by_measurement, half_width, with_series

CAPTIONS = {
    "quality_loss": "Quality lost by each change of order, the changes that part the fewest neighbours first. Left: "
    "tokens permuted; right: positions permuted, tokens in place. Dots: mean over seeds; bars: 95 % t interval over "
    "seeds. Further right, or darker: the order of the input is relied upon more.",
    "output_change": "How far the outputs move, relative to what they were: before training, which is what the encoder "
    "and the mask bring along, and after it. Mean and 95 % t interval over seeds.",
    "damage": "Quality lost when tokens are permuted, over how far they moved (share of the length) and over the share "
    "of neighbours parted. A dot is a change of order, mean over seeds; the slope of the line is the sensitivity.",
    "damage_positions": "The same for permuted positions, tokens in place.",
    "sensitivity": "Quality lost per unit of each distance: the slopes of the lines above. Filled: tokens permuted; "
    "hollow: positions permuted. Bars: 95 % t interval, over seeds where there are two or more; over eight parts of "
    "the input sequences where there is one, which says nothing of other trainings.",
    "representation_change": "How much a change of order changes what each layer makes of the input, relative to the "
    "untouched input, token by token; layer 0 is the embedded input. Bands: 95 % t interval over seeds.",
}


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean, interval and number of seeds for each series, metric and condition. See `by_measurement`.

    A sensitivity of one seed has an interval over the parts of its inputs. Column ``interval_over`` says which it is:
    ``seeds``, ``inputs``, or blank where there is none.
    """
    rows = rows_of(rows, NAME)
    table = by_measurement(rows, ("layer", "part", "size", "share"))
    table["interval_over"] = ["seeds" if seeds > 1 else "" for seeds in table["seeds"]]
    slopes = with_series(rows[rows["metric"].isin(SLOPES.values()) & (rows["status"] == "ok")])
    folds = slopes[slopes["part"].notna()]
    keys = ["task", "metric", "series", "train_length", "eval_length", "condition"]
    spread = folds.groupby(keys)["value"].agg(["std", "count"])
    for place, line in table[
        (table["seeds"] == 1) & table["metric"].isin(SLOPES.values()) & table["part"].isna()
    ].iterrows():
        key = tuple(line[keys])
        if key in spread.index:
            half = half_width(float(spread.loc[key, "std"]), int(spread.loc[key, "count"]))
            bounds = [line["mean"] - half, line["mean"] + half, half, "inputs"]
            table.loc[[place], ["low", "high", "half_width", "interval_over"]] = [bounds]
    return table


def plot(rows: pd.DataFrame) -> dict[str, Figure]:
    """Damage, sensitivity, and changes of outputs and representations: stem -> figure, for each task.

    Args:
        rows: of this experiment, of one run or of many.
    """
    return {
        f"{slug(str(task))}_{stem}": figure
        for task, of_task in with_series(rows_of(rows, NAME)).groupby("task")
        for stem, figure in figures(of_task, summarise(of_task)).items()
    }


def shown(rows: pd.DataFrame) -> pd.DataFrame:
    """What stands for the experiment in one table: two changes of order, and the sensitivities."""
    heads = {
        ("quality_loss", "shuffle"): "quality lost, tokens shuffled",
        ("quality_loss", "positions: shuffle"): "quality lost, positions shuffled",
        ("answers_changed", "shuffle"): "answers changed, tokens shuffled",
        ("answers_changed", "positions: shuffle"): "answers changed, positions shuffled",
        ("displacement_sensitivity", TOKENS): "displacement sensitivity, tokens",
        ("neighbour_sensitivity", TOKENS): "neighbour sensitivity, tokens",
        ("displacement_sensitivity", POSITIONS): "displacement sensitivity, positions",
        ("neighbour_sensitivity", POSITIONS): "neighbour sensitivity, positions",
    }
    place = {key: number for number, key in enumerate(heads)}
    rows = rows[rows["part"].isna()]
    keys = list(zip(rows["metric"], rows["condition"], strict=True))
    found = rows.assign(head=[heads.get(key, "") for key in keys], place=[place.get(key, -1) for key in keys])
    return found[found["head"] != ""].sort_values("place", kind="stable").drop(columns="place")
