"""How much of its quality a run keeps beyond its training length: one line for each run.

Quality at a length is (value - guess) / (in range - guess): 0 is the best blind guess at that length, 1 is the run's
own quality in range. It is read at 2, 4 and 8 training lengths, interpolated over log2 of the length where one of
these was not measured; what a run keeps is the mean of these. A length more changes none of them. Runs that did not
learn their task in range have no score.
"""

import numpy as np
import pandas as pd

from experiments.rows.row import KEEPS, metric_of
from experiments.statistics.intervals import Matrix, Vector, with_series

DOUBLINGS = (2, 4, 8)
"""Multiples of the training length at which quality is read."""
KEPT = [f"kept_{multiple}" for multiple in DOUBLINGS]
UNLEARNED, GUESSING, NOT_MEASURED = "did not learn", "no better than guessing in range", "not measured"
COLUMNS = ["task", "metric", "series", "seed", "in_range", *KEPT, "kept", "up_to", "reach", "noise", "worst", "best"]
COLUMNS += ["status"]
RATES = ["task", "metric", "learning_rate", "series", "seed", "kept"]


def scores(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one line for each task, metric, series and seed.

    Args:
        rows: whole sequences, at lengths in range and beyond, of any number of tasks and metrics. ``converged`` says
            whether the run learned its task in range; None where that was not judged. ``extended``, if it is there,
            names the series whose model was extended: what that has in range is kept, or not.

    Returns:
        ``task``, ``metric``, ``series``, ``seed``, ``in_range`` (value at the longest length in range), ``kept_2``,
        ``kept_4``, ``kept_8`` (quality at these multiples; NaN where the task is not measured that far), ``kept``
        (their mean), ``up_to`` (the last of them, the same for all of a task), ``reach``
        (longest measured length up to which each keeps `KEEPS`, in training lengths), ``noise`` (variance of ``kept``
        that the evaluation alone causes, from the number of questions; 0 for bits, which have no ceiling where all
        seeds meet), ``worst`` and ``best`` (bounds of ``kept``), ``status`` (``ok``, or why nothing is kept). Sorted.
    """
    parts = [_of_task(part) for _, part in with_series(rows).groupby(["task", "metric"])]
    return pd.concat(parts, ignore_index=True)[COLUMNS] if parts else pd.DataFrame(columns=COLUMNS)


def by_rate(rows: pd.DataFrame) -> pd.DataFrame:
    """Return what each run keeps at each learning rate that a search tried.

    Args:
        rows: quality at each length and ``learning_rate`` (experiment ``tuning``), of runs that learned the task at
            that rate; of any number of tasks.

    Returns:
        ``task``, ``metric``, ``learning_rate``, ``series``, ``seed``, ``kept``: a line where something was kept.
    """
    parts = [(float(str(rate)), part.assign(converged=True)) for rate, part in rows.groupby("learning_rate")]
    found = [scores(part).assign(learning_rate=rate) for rate, part in parts]
    return pd.concat(found)[RATES].dropna() if found else pd.DataFrame(columns=RATES)


def _of_task(rows: pd.DataFrame) -> pd.DataFrame:
    metric, trained = metric_of(str(rows["metric"].iloc[0])), int(rows["train_length"].iloc[0])
    table = rows.groupby(["task", "metric", "series", "seed"])["status"].agg(_worst).reset_index()
    learned = rows.groupby(["series", "seed"])["converged"].agg(lambda judged: not any(one is False for one in judged))
    lengths = np.array(sorted(rows["eval_length"].unique()))
    value, guess, count = (_by_run(rows, column, lengths) for column in ("value", "chance", "n"))
    inside = np.flatnonzero(lengths <= trained)
    table["in_range"] = value[:, inside[-1]] if len(inside) else np.nan
    room = _in_range_of_model(table, rows)[:, None] - guess
    useful = ((room > 0) if metric.higher_is_better else (room < 0)).any(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        quality = (value - guess) / room
        certain = (value * count + 0.5) / (count + 1)
        noise = certain * (1 - certain) / count / room**2 if metric.bounds == (0, 1) else np.zeros_like(value)
        ends = [(bound - guess) / room for bound in metric.bounds]
    last = max((multiple for multiple in DOUBLINGS if multiple * trained <= lengths[-1]), default=1)
    read = int(np.log2(last))
    with np.errstate(invalid="ignore"):  # a bound may be infinite
        table[KEPT] = kept = _read(quality, lengths, trained)
        table["kept"] = kept[:, :read].mean(axis=1) if read else np.nan
        table["noise"] = _read(noise, lengths, trained)[:, :read].sum(axis=1) / max(1, read) ** 2
        for name, end in zip(("worst", "best"), ends if metric.higher_is_better else ends[::-1], strict=True):
            table[name] = _read(end, lengths, trained)[:, :read].mean(axis=1) if read else np.nan
    table["up_to"], table["reach"] = last, _reach(quality, lengths, trained)
    status = np.where(useful, np.where(table["kept"].isna(), NOT_MEASURED, "ok"), GUESSING)
    status = np.where(table["status"] != "ok", table["status"], status)
    table["status"] = np.where(learned, status, UNLEARNED)
    table.loc[table["status"] != "ok", [*KEPT, "kept", "reach", "noise"]] = np.nan
    return table


def _in_range_of_model(table: pd.DataFrame, rows: pd.DataFrame) -> Vector:
    """Return what each run has in range, or what the model that it extends had."""
    own = table["in_range"].to_numpy()
    if "extended" not in rows:
        return own
    known = table.set_index(["series", "seed"])["in_range"]
    models = rows.groupby(["series", "seed"])["extended"].first().reindex(known.index)
    pairs = zip(models, known.index.get_level_values("seed"), own, strict=True)
    return np.array([known.get((model, seed), value) for model, seed, value in pairs], dtype=float)


def _worst(statuses: "pd.Series[str]") -> str:
    return next((name for name in ("diverged", "unsupported") if (statuses == name).any()), "ok")


def _by_run(rows: pd.DataFrame, column: str, lengths: Vector) -> Matrix:
    """Return a column as a matrix, runs down, lengths across; NaN where nothing was measured."""
    valued = rows[column].where(rows["status"] == "ok").astype(float)
    found = valued.groupby([rows["series"], rows["seed"], rows["eval_length"]]).mean().unstack("eval_length")
    return found.reindex(columns=lengths).to_numpy(dtype=float)


def _read(curves: Matrix, lengths: Vector, trained: int) -> Matrix:
    """Return each curve at `DOUBLINGS`, interpolated between the two lengths around; NaN beyond the last one."""
    places, wanted = np.log2(lengths / trained), np.log2(DOUBLINGS)
    if len(places) < 2:
        return np.full((len(curves), len(wanted)), np.nan)
    right = np.searchsorted(places, wanted - 1e-9).clip(1, len(places) - 1)
    left = right - 1
    share = (wanted - places[left]) / (places[right] - places[left])
    exact = np.isclose(share, 1)
    with np.errstate(invalid="ignore"):
        found = np.where(exact, curves[:, right], curves[:, left] * (1 - share) + curves[:, right] * share)
    return np.where(wanted <= places[-1] + 1e-9, found, np.nan)


def _reach(quality: Matrix, lengths: Vector, trained: int) -> Vector:
    """Return the last length of each curve, from the training length on, before the first that does not hold."""
    beyond = lengths > trained
    holds = np.logical_and.accumulate(quality[:, beyond] >= KEEPS - 1e-9, axis=1).sum(axis=1)
    return np.array([1.0, *(lengths[beyond] / trained)])[holds]
