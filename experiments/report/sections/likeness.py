"""Like with like: methods that extend a trained model as they are used, controls, and encoders nearly alike."""

from collections.abc import Mapping

import pandas as pd

from experiments.measures.context_extension import FINE_TUNED
from experiments.measures.context_extension import NAME as EXTENDED
from experiments.rows.row import RELATIVE_DISTANCE, not_in_parts
from experiments.statistics.scores import DOUBLINGS
from pe_zoo import _catalogue

SAME, NEAR = 0.01, 0.1
"""Largest distances of scores that are the same, and nearly the same, relative to the other encoder's scores."""
NOTE = (
    "Scores: distance from those of a relative, ‖S − S'‖ / ‖S'‖ over training sequences; the same up to "
    f"{SAME:.0%}, nearly up to {NEAR:.0%}."
)
CONTROL = " (control)"
SAME_TEXT = ["run_id", "eval_length", "n"]
"""What rows of two experiments share that read the same texts."""
EXTENDING = (
    "Extending: the trained model with this encoder in place of its own, zero-shot or, where its paper does so, "
    "fine-tuned for that share of the steps."
)


def extensions(rows: pd.DataFrame, quality: pd.DataFrame) -> pd.DataFrame:
    """Return the quality of trained models with a method that extends their encoder in its place, as series.

    A method whose paper trains the model on is taken fine-tuned where that was measured. Only methods count that were
    measured at the training length and at each of its `DOUBLINGS` that the task has, on the texts that the encoders
    read there.

    Args:
        rows: all rows of a task, with ``series``.
        quality: those of its main metric over lengths.
    """
    rows = _methods(rows, quality)
    rows = rows[_on_the_same(rows, quality)]
    wanted = {
        int(length) for length in quality["train_length"] for length in (length, *(length * m for m in DOUBLINGS))
    }
    wanted &= set(quality["eval_length"])
    parts = []
    for (series, name), part in rows.groupby(["series", "method"]):
        used = part[part["tuned"]] if part["tuned"].any() else part
        if wanted <= set(used["eval_length"]):
            share = f", {FINE_TUNED} {100 * used['share'].iloc[0]:.3g} %" if part["tuned"].any() else ""
            parts.append(used.assign(series=f"{name} (extending {series}{share})", extended=str(series)))
    return pd.concat(parts) if parts else rows.head(0)


def on_other_texts(rows: pd.DataFrame, quality: pd.DataFrame) -> list[str]:
    """Return the methods that `extensions` leaves out because they read other texts than the encoders."""
    rows = _methods(rows, quality)
    rows = rows[rows["eval_length"].isin(quality["eval_length"])]
    return sorted(rows.loc[~_on_the_same(rows, quality), "method"].unique())


def _methods(rows: pd.DataFrame, quality: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of methods on the model that they extend, with ``method``, and whether they are ``tuned``."""
    rows = not_in_parts(rows[rows["experiment"] == EXTENDED])
    rows = rows[rows["metric"].isin(quality["metric"].unique())]
    method = rows["condition"].str.removesuffix(f" {FINE_TUNED}")
    extends = method.map({entry.name: entry.declared.get("extends") for entry in _catalogue.encoders()})
    return rows.assign(method=method, tuned=method != rows["condition"])[extends == rows["encoder"].map(_plain)]


def _on_the_same(rows: pd.DataFrame, quality: pd.DataFrame) -> "pd.Series[bool]":
    read = pd.MultiIndex.from_frame(quality[SAME_TEXT])
    return pd.Series(pd.MultiIndex.from_frame(rows[SAME_TEXT]).isin(read), index=rows.index)


def marks(rows: pd.DataFrame, configs: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return what stands behind the name of a series: that it is a control, or an extension trained by itself."""
    known, found = {entry.name: entry.declared for entry in _catalogue.encoders()}, {}
    for run in rows.drop_duplicates("series").to_dict("records"):
        declared, config = known.get(_plain(run["encoder"]), {}), configs.get(run["run_id"], {})
        if declared.get("control") or config.get("model.as_many_as", "null") != "null":
            found[str(run["series"])] = CONTROL
        elif declared.get("extends") and "train.elsewhere" not in config:
            found[str(run["series"])] = ", trained from scratch"
    return found


def relatives(rows: pd.DataFrame) -> dict[str, str]:
    """Return how far the scores of a series are from those of its relative, where that was measured."""
    measured = rows[(rows["metric"] == RELATIVE_DISTANCE) & (rows["status"] == "ok")]
    found = {}
    for line in measured.groupby(["series", "condition"])["value"].mean().reset_index().to_dict("records"):
        other, away = line["condition"], line["value"]
        how = f"the same as {other}" if away <= SAME else f"nearly {other}" if away <= NEAR else f"unlike {other}"
        found[str(line["series"])] = f"{how} here ({100 * away:.2g} %)"
    return found


def _plain(encoder: str) -> str:
    return encoder.partition("(")[0]
