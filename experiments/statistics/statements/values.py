"""One value for each seed of what a test measures, and why it decides nothing."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from experiments.rows.results import Results
from experiments.rows.row import METRICS, metric_of, slice_name
from experiments.statistics.statements.schema import COMBINED

NO_ROWS = "no such rows in this folder"
TAKES: dict[str, Callable[[pd.Series], float]] = {
    "max": lambda values: float(values.max()),
    "min": lambda values: float(values.min()),
    "mean": lambda values: float(values.mean()),
    "range": lambda values: float(values.max() - values.min()),
}
TAKEN = {"max": "largest ", "min": "smallest ", "mean": "mean ", "range": "range of ", "unsupported": "share refused: "}
Values = dict[str, tuple[pd.Series, str]]
"""Contestant -> its value for each seed, and why they decide nothing; blank where they may."""


def selectable(results: Results, metrics: set[str]) -> pd.DataFrame:
    """Return the rows of some metrics with their ``multiple``, without models widened to be controls."""
    widened = {run for run, config in results.configs.items() if config.get("model.as_many_as", "null") != "null"}
    rows = results.rows[results.rows["metric"].isin(metrics) & ~results.rows["run_id"].isin(widened)]
    rows = rows.assign(multiple=rows["eval_length"] / rows["train_length"])
    text = [column for column in rows if pd.api.types.is_string_dtype(rows[column])]
    return rows.astype(dict.fromkeys(text, "category"))  # much faster to select from


def measure(test: Mapping[str, Any], rows: pd.DataFrame, results: Results) -> Values:
    """Return the values of every contestant of a test.

    Args:
        test: of a `schema.Statement`.
        rows: of `selectable`.
        results: that the rows are from.
    """
    changes = (test.get("against", {}), *test["contestants"].values(), *test.get("ranked_over", ()))
    changed = {key for each in changes for key in each}
    shared = {key: value for key, value in test["rows"].items() if key in rows.columns and key not in changed}
    rows = select(rows, shared, results)
    if "ranked_over" not in test:
        return _measured(test, {}, rows, results)
    reciprocal: list[pd.DataFrame] = []
    reasons: dict[str, str] = {}
    best_first = metric_of(test["rows"]["metric"]).higher_is_better is False
    for change in test["ranked_over"]:
        found = _measured(test, change, rows, results)
        reasons |= {name: reason for name, (_, reason) in found.items() if reason and reasons.get(name) != NO_ROWS}
        table = pd.DataFrame({name: by_seed for name, (by_seed, _) in found.items()}).dropna()
        reciprocal.append(1 / table.rank(axis="columns", ascending=best_first))
    mean = sum(reciprocal[1:], reciprocal[0]) / len(reciprocal)
    return {name: (mean[name].dropna(), reasons.get(name, "")) for name in test["contestants"]}


def _measured(test: Mapping[str, Any], change: Mapping[str, Any], rows: pd.DataFrame, results: Results) -> Values:
    return {
        name: _values(test, test["rows"] | change | own, rows, results) for name, own in test["contestants"].items()
    }


def _values(
    test: Mapping[str, Any], selection: Mapping[str, Any], rows: pd.DataFrame, results: Results
) -> "tuple[pd.Series, str]":
    selections = [selection, *([{**selection, **test["against"]}] if "against" in test else [])]
    # An encoder's name stands for the encoder with sequential positions, unless a numbering is named.
    plain = not any(key.partition(".")[0] == "positions" for key in selection)
    parts = [select(rows, {"positions": "sequential", **each} if plain else each, results) for each in selections]
    if any(part.empty for part in parts):
        return pd.Series(dtype=float), NO_ROWS
    for part in parts:
        if len(series_names := sorted(part["series"].unique())) > 1:
            return pd.Series(dtype=float), f"rows of several settings: {'; '.join(series_names)}"
    try:
        found = [_by_seed(part, test) for part in parts]
    except ValueError as error:
        return pd.Series(dtype=float), str(error)
    by_seed = found[0]
    if len(found) > 1:
        combine = COMBINED[test.get("as", "difference")]
        common = [seed for seed in by_seed.index if seed in found[1].index]
        by_seed = pd.Series({seed: combine(by_seed[seed], found[1][seed]) for seed in common}, dtype=float)
    by_seed = by_seed.dropna()
    trained = any(results.configs[run]["trained"] == "true" for part in parts for run in set(part["run_id"]))
    return by_seed, _reason(parts, by_seed, trained, test.get("even_if_not_learned", False))


def _reason(parts: list[pd.DataFrame], by_seed: pd.Series, trained: bool, even_if_not_learned: bool) -> str:
    """Return why the rows decide nothing; blank where they may."""
    for part in parts:
        learned = part.drop_duplicates("run_id")["converged"]
        if (failing := sum(judged is False for judged in learned)) and not even_if_not_learned:
            return f"{failing} of {len(learned)} runs did not learn the task"
    if by_seed.empty:
        return "no value: " + ", ".join(sorted({status for part in parts for status in part["status"]} - {"ok"}))
    return "one seed decides nothing that was trained" if trained and len(by_seed) < 2 else ""


def select(rows: pd.DataFrame, selection: Mapping[str, Any], results: Results) -> pd.DataFrame:
    """Return the rows of `selectable` that a test's ``rows`` describe."""
    places = np.arange(len(rows))
    for key, wanted in selection.items():
        allowed = [_text(value) for value in (wanted if isinstance(wanted, list) else [wanted])]
        if key in rows.columns:
            cells = rows[key].iloc[places]
            fitting = [value for value in cells.unique() if _text(value) in allowed]
        elif "." in key or key == "trained":
            cells = rows["run_id"].iloc[places]
            fitting = [run for run in cells.unique() if results.configs[run].get(key, "") in allowed]
        else:
            return rows.iloc[:0]
        places = places[cells.isin(fitting).to_numpy()]
    return rows.iloc[places]


def _text(value: object) -> str:
    """Write a value as rows and configurations do: ``2`` for 2.0, ``false``, blank for null."""
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return format(value, "g") if isinstance(value, float) else str(value)


def _by_seed(rows: pd.DataFrame, test: Mapping[str, Any]) -> "pd.Series":
    """Return one value for each seed.

    Raises:
        ValueError: a seed has several rows, and the test does not say which to take.
    """
    if "table" in test:
        return pd.Series({seed: _furthest(group, test["table"]) for seed, group in rows.groupby("seed")}, dtype=float)
    if test.get("take") == "unsupported":
        return (rows["status"] == "unsupported").groupby(rows["seed"]).mean()
    valued = rows[rows["status"] == "ok"]
    if test.get("take") == "mean":  # the mean of what is left would be over easier lengths, say
        valued = valued[~valued["seed"].isin(rows.loc[rows["status"] != "ok", "seed"])]
    if "take" not in test and len(valued) > valued["seed"].nunique():
        valued = valued.drop_duplicates(["seed", "value"])  # the same measurement from two runs
        if len(valued) > valued["seed"].nunique():
            where = {f"{slice_name(row) or 'blank'} at {row['eval_length']}" for row in valued.to_dict("records")}
            raise ValueError(f"several rows for a seed, and no take: {'; '.join(sorted(where)[:4])}")
    take = TAKES[test.get("take", "max")]
    return pd.Series({seed: take(group["value"]) for seed, group in valued.groupby("seed")}, dtype=float)


def _furthest(rows: pd.DataFrame, table: Mapping[int, list[float]]) -> float:
    """Return the largest difference of codes from a table; NaN where one was not measured."""
    codes = {(row["position"], row["dimension"]): row["value"] for row in rows.to_dict("records")}
    differences = [
        abs(codes.get((position, dimension), math.nan) - value)
        for position, values in table.items()
        for dimension, value in enumerate(values)
    ]
    return math.nan if any(map(math.isnan, differences)) else max(differences)


def in_words(test: Mapping[str, Any]) -> str:
    """Return what a test measures: ``mean token accuracy, difference against encoder rope``."""
    metric = METRICS[test["rows"]["metric"]].label
    if "table" in test:
        return f"{metric}, largest difference from the printed one"
    prefix = TAKEN.get(test.get("take", ""), "")
    words = metric if metric.startswith(prefix) else f"{prefix}{metric}"
    if "against" not in test:
        return words
    what = ", ".join(f"{key} {_text(value) or 'blank'}" for key, value in test["against"].items())
    return f"{words}, {test.get('as', 'difference')} against {what}"
