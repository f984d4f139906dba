"""The quality of a run: its task's main metric over lengths."""

import pandas as pd

from experiments.rows.row import main_metric, whole

OVER_LENGTHS = "length_extrapolation"
"""The experiment that measures a task's quality over lengths."""
RELATIVE_DISTANCE = "relative_distance"
"""The metric of how far scores are from a relative's, which the condition names."""


def main_quality(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of each task's main metric over lengths, of whole sequences and not of slices."""
    rows = whole(rows[rows["experiment"] == OVER_LENGTHS])
    parts = [
        of_task[of_task["metric"] == main_metric(of_task["metric"].unique())] for _, of_task in rows.groupby("task")
    ]
    return pd.concat(parts) if parts else rows


def beyond_training(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of each task's main metric at lengths beyond the training length."""
    quality = main_quality(rows)
    return quality[quality["eval_length"] > quality["train_length"]]
