"""One value for each run of what a test measures, and why it decides nothing."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from experiments.rows.results import Results
from experiments.rows.row import METRICS, OVER_LENGTHS, metric_of, slice_name

NO_ROWS = "no such rows in this folder"
TAKEN = {"max": "largest ", "min": "smallest ", "mean": "mean ", "range": "range of ", "unsupported": "share refused: "}
EMPTY = pd.Series(dtype=float)


class Measured(NamedTuple):
    """What a folder has of one contestant.

    Args:
        values: seed -> value, of the runs that count.
        noise: variance of a value that the evaluation alone causes; 0 where that is not known.
        bounds: of a value.
        seeds: of all runs that have ended.
        series: task and series of these runs.
        unlearned: number of runs that are left out since they did not learn their task.
        sure: nothing about the value is random: one run that was not trained.
        reason: why it decides nothing; blank where it may.
    """

    values: "pd.Series[float]" = EMPTY
    noise: float = 0.0
    bounds: tuple[float, float] = (-math.inf, math.inf)
    seeds: frozenset[int] = frozenset()
    series: frozenset[tuple[str, str]] = frozenset()
    unlearned: int = 0
    sure: bool = False
    reason: str = ""


def selectable(results: Results, metrics: set[str]) -> pd.DataFrame:
    """Return the rows of some metrics with their ``multiple``, without models widened to be controls."""
    widened = {run for run, config in results.configs.items() if config.get("model.as_many_as", "null") != "null"}
    rows = results.rows[results.rows["metric"].isin(metrics) & ~results.rows["run_id"].isin(widened)]
    rows = rows.assign(multiple=rows["eval_length"] / rows["train_length"])
    text = [column for column in rows if pd.api.types.is_string_dtype(rows[column])]
    return rows.astype(dict.fromkeys(text, "category"))  # much faster to select from


def measure(test: Mapping[str, Any], rows: pd.DataFrame, results: Results) -> dict[str, Measured]:
    """Return what there is of every contestant of a test, by rows of `selectable`."""
    changed = {key for each in (test.get("against", {}), *test["contestants"].values()) for key in each}
    shared = {key: value for key, value in test["rows"].items() if key in rows.columns and key not in changed}
    rows = select(rows, shared, results)
    if rows.empty:  # as with most statements in most folders
        return dict.fromkeys(test["contestants"], Measured(reason=NO_ROWS))
    return {name: _measured(test, test["rows"] | own, rows, results) for name, own in test["contestants"].items()}


def _measured(test: Mapping[str, Any], selection: Mapping[str, Any], rows: pd.DataFrame, results: Results) -> Measured:
    selections = [selection, *([{**selection, **test["against"]}] if "against" in test else [])]
    # An encoder's name stands for the encoder with sequential positions, unless a numbering is named.
    plain = not any(key.partition(".")[0] == "positions" for key in selection)
    usual: dict[str, Any] = {"positions": "sequential"} if plain else {}
    # Quality over lengths is that of the trained model, unless a step of the training is named.
    usual |= {"step": None} if test["rows"].get("experiment") == OVER_LENGTHS else {}
    parts = [select(rows, usual | dict(each), results) for each in selections]
    if any(part.empty for part in parts):
        return Measured(reason=NO_ROWS)
    for part in parts:
        if len(series_names := sorted(part["series"].unique())) > 1:
            return Measured(reason=f"rows of several settings: {'; '.join(series_names)}")
    every = pd.concat(parts)
    if len(parts) > 1 and not set(parts[0]["run_id"]) & set(parts[1]["run_id"]):
        return Measured(reason="against names other runs: make them contestants")
    seeds = frozenset(int(seed) for seed in every["seed"].unique())
    counted = parts if test.get("even_if_not_learned") else [part[part["converged"].ne(False)] for part in parts]
    try:
        values = [_by_seed(part, test) for part in counted]
    except ValueError as error:
        return Measured(reason=str(error))
    by_seed = values[0]
    if len(values) > 1:
        other = values[1]
        by_seed = by_seed / other.where(other != 0) if test.get("as") == "ratio" else by_seed - other
    runs = set(every["run_id"])
    trained = any(results.configs[run]["trained"] == "true" for run in runs)
    ended = results.runs[results.runs["run_id"].isin(runs)]
    return Measured(
        by_seed.dropna(),
        _noise(counted[0], test),
        _bounds(test),
        seeds,
        frozenset(zip(map(str, ended["task"]), map(str, ended["series"]), strict=True)),
        len(runs) - len({run for part in counted for run in part["run_id"]}),
        not trained and len(seeds) == 1 and bool(by_seed.notna().any()),
        _reason(counted, by_seed.dropna()),
    )


def _reason(counted: list[pd.DataFrame], by_seed: "pd.Series[float]") -> str:
    """Return why rows of runs that learned decide nothing; blank where they may, or where no run learned."""
    if len(by_seed) or any(part.empty for part in counted):
        return ""
    return "no value: " + ", ".join(sorted({status for part in counted for status in part["status"]} - {"ok"}))


def _bounds(test: Mapping[str, Any]) -> tuple[float, float]:
    low, high = (0.0, 1.0) if test.get("take") == "unsupported" else metric_of(test["rows"]["metric"]).bounds
    if "table" in test or test.get("take") == "range" or (test.get("as") == "ratio" and low >= 0):
        return 0.0, math.inf
    if test.get("as") == "ratio":
        return -math.inf, math.inf
    return (low - high, high - low) if "against" in test else (low, high)


def _noise(rows: pd.DataFrame, test: Mapping[str, Any]) -> float:
    """Return the variance that a share of answers, or a mean of such, has from the number of its questions; else 0."""
    share = metric_of(test["rows"]["metric"]).unit in ("share of tokens", "share of sequences")
    valued = rows[(rows["status"] == "ok") & (rows["n"] > 0)]
    if not share or valued.empty or test.get("take", "mean") != "mean" or {"table", "against"} & set(test):
        return 0.0
    certain = (valued["value"] * valued["n"] + 0.5) / (valued["n"] + 1)
    rows_of_seed = len(valued) / valued["seed"].nunique()
    return float((certain * (1 - certain) / valued["n"]).mean() / rows_of_seed)


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
    """Return one value for each seed."""
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
    values, take = valued.groupby("seed")["value"], test.get("take", "max")
    return values.max() - values.min() if take == "range" else values.agg(take)


def _furthest(rows: pd.DataFrame, table: Mapping[int, list[float]]) -> float:
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
    if test["rows"].get("trained") is False:
        metric = metric.removesuffix(", trained")
    if "table" in test:
        return f"{metric}, largest difference from the printed one"
    prefix = TAKEN.get(test.get("take", ""), "")
    words = metric if metric.startswith(prefix) else f"{prefix}{metric}"
    if "against" not in test:
        return words
    if test["against"] == {"multiple": 1} and test.get("as") == "ratio":
        return f"{words}, as a multiple of that at the training length"
    what = ", ".join(f"{key} {_text(value)}" for key, value in test["against"].items() if _text(value))
    return f"{words}, {test.get('as', 'difference')} against {what}"
