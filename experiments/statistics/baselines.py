"""Which series the others are compared with, and whether a rule says so."""

import difflib
from pathlib import Path

import pandas as pd

from experiments.rows import sweeps
from experiments.rows.results import Results
from experiments.statistics.rule import Rule, declared_rule

BASELINES = ("none", "rope")
"""The encoders that boards compare with: what the mask alone does, and what most models have."""


def declared_in(folder: Path) -> tuple[Rule, int] | None:
    """Return the rule by which a sweep of the folder added seeds, and the first of them."""
    return declared_rule(sweep.rule for sweep in sweeps.read(folder)[0])


def of_tasks(results: Results, declared: tuple[Rule, int] | None, wanted: str | None = None) -> dict[str, str]:
    """Return the series that the others are compared with, for every task measured beyond its training length.

    It is ``wanted``, a series or an encoder that has only one, and ValueError if no task has it; else that of the
    ``declared`` rule, the encoder ``none``, or the first series.
    """
    asked = wanted or (declared[0].question if declared and declared[0].of_one_series else "")
    found, misses, quality = {}, [], results.quality
    for task, of_task in quality[quality["eval_length"] > quality["train_length"]].groupby("task"):
        try:
            found[str(task)] = find_baseline(of_task, asked) if asked else default_baseline(of_task)
        except ValueError as error:
            if wanted is None:
                found[str(task)] = default_baseline(of_task)
            else:
                misses.append(error)
    if misses and not found:
        raise misses[0]
    return found


def default_baseline(rows: pd.DataFrame) -> str:
    """Return the series to compare with: encoder ``none``, with sequential numbering if possible, else the first."""
    without = rows[rows["encoder"] == BASELINES[0]]
    plain = without[without["positions"] == "sequential"]
    return str(min(next(set(part["series"].unique()) for part in (plain, without, rows) if len(part))))


def find_baseline(rows: pd.DataFrame, wanted: str) -> str:
    """Return the series ``wanted``, or the only series of the encoder ``wanted``.

    Raises:
        ValueError: none or several match; the message names the series.
    """
    series_names: list[str] = sorted(rows["series"].unique())
    of_encoder: list[str] = sorted(set(rows.loc[rows["encoder"] == wanted, "series"]))
    if wanted in series_names:
        return wanted
    if len(of_encoder) == 1:
        return of_encoder[0]
    near = of_encoder or difflib.get_close_matches(wanted, series_names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"no baseline named {wanted!r}.{hint} Allowed: {'; '.join(series_names)}")
