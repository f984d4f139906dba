"""Statements from teaching texts and papers, put to the test: which rows decide them, and what those rows say.

A claim is an entry of a file in ``configs/claims/``, written before its rows are looked at:

    statement   what is said
    source      who says so
    cases       the conditions it is tested under, each with
      when        the condition, in words
      rows        which rows decide: columns of a row (``condition: shuffle``, ``layer: 2``), ``multiple`` (length in
                  training lengths), keys of the configuration (``model.causal: false``), ``trained``; a list means
                  any of them, null means blank; positions are sequential unless it says otherwise
      take        what is made of a seed's rows if there are several: max, min, mean (of all, or there is none), range,
                  or unsupported (the share of them that is)
      table       position -> codes: the value is then the largest difference from it
      against     what is changed in ``rows`` for a second value; ``as`` difference (the default) or ratio
      holds       ``below 1e-6``, ``above 0.9`` or ``within 6.28 to 6.29``; whatever does not hold fails

A value is decided by its interval over seeds: it holds, or fails, if the whole interval does. One seed decides what
needed no training, and nothing else. Runs that did not learn their task decide nothing, unless a case says
``even_if_not_learned: true`` because that is what it is about.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from experiments.rows.results import Results
from experiments.rows.row import METRICS, slice_name
from experiments.statistics import intervals

FOLDER = Path(__file__).resolve().parents[2] / "configs" / "claims"

HOLDS, FAILS, UNDECIDED, NOT_MEASURED = "holds", "fails", "undecided", "not measured"
ONLY, IN_PART = "holds only if: ", "holds if: "
"""How the verdict of a statement begins that holds in some cases and fails in others."""

TAKES: dict[str, Callable[[pd.Series], float]] = {
    "max": lambda values: float(values.max()),
    "min": lambda values: float(values.min()),
    "mean": lambda values: float(values.mean()),
    "range": lambda values: float(values.max() - values.min()),
}
UNSUPPORTED = "unsupported"
NO_ROWS = "no such rows in this folder"
COMBINED = {"difference": lambda a, b: a - b, "ratio": lambda a, b: a / b if b else math.nan}
KEYS = {"statement", "source", "cases"}
CASE_KEYS = {"when", "rows", "take", "table", "against", "as", "holds", "even_if_not_learned"}


@dataclass(frozen=True)
class Rule:
    """What a value must be: between two bounds, one of which may be infinite."""

    low: float
    high: float

    @classmethod
    def of(cls, text: str) -> Rule:
        """``below 1e-6``, ``above 0.9``, ``within 6.28 to 6.29``.

        Raises:
            ValueError: it is none of these, or nothing lies between its bounds.
        """
        number = r"(-?[\d.]+(?:e-?\d+)?)"
        if found := re.fullmatch(rf"below {number}", text):
            return cls(-math.inf, float(found[1]))
        if found := re.fullmatch(rf"above {number}", text):
            return cls(float(found[1]), math.inf)
        if found := re.fullmatch(rf"within {number} to {number}", text):
            low, high = float(found[1]), float(found[2])
            if low >= high:
                raise ValueError(f"holds: {text!r} holds for nothing: the first bound must be below the second")
            return cls(low, high)
        raise ValueError(f"holds: {text!r} is none of 'below X', 'above X', 'within X to Y'")

    def verdict(self, low: float, high: float) -> str:
        """Of a value that lies between ``low`` and ``high``."""
        if self.low < low and high < self.high:
            return HOLDS
        return FAILS if high <= self.low or low >= self.high else UNDECIDED


@dataclass(frozen=True)
class Finding:
    """What one case came to.

    Args:
        when: the condition.
        measured: mean over seeds, NaN where there is none; ``low`` and ``high`` its interval, NaN for one seed.
        seeds: how many.
        rule: as written.
        what: what was measured, in words.
        outcome: ``holds``, ``fails``, ``undecided`` or ``not measured``.
        reason: why not, where it was not decided.
    """

    when: str
    measured: float
    low: float
    high: float
    seeds: int
    rule: str
    what: str
    outcome: str
    reason: str = ""


@dataclass(frozen=True)
class Claim:
    """A statement, who makes it, and the cases it is tested under, as in its file."""

    statement: str
    source: str
    cases: tuple[Mapping[str, Any], ...]


def load(folder: Path = FOLDER) -> list[Claim]:
    """Every claim there is.

    Raises:
        ValueError: a file that cannot be read or says what means nothing; the message names file and statement.
    """
    claims = []
    for file in sorted(folder.glob("*.yaml")):
        for entry in yaml.safe_load(file.read_text(encoding="utf-8")):
            try:
                claims.append(_checked(entry))
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{file.name}, {entry.get('statement', entry)!r}: {error}") from error
    return claims


def _checked(entry: Mapping[str, Any]) -> Claim:
    if unknown := set(entry) - KEYS:
        raise ValueError(f"no key {sorted(unknown)[0]!r}; known: {', '.join(sorted(KEYS))}")
    for case in entry["cases"]:
        if unknown := set(case) - CASE_KEYS:
            raise ValueError(f"no key {sorted(unknown)[0]!r} in a case; known: {', '.join(sorted(CASE_KEYS))}")
        Rule.of(case["holds"])
        check_measure(case)
        if "table" in case and ("take" in case or "against" in case):
            raise ValueError("a table is compared by its largest difference: it goes without take and against")
        str(case["when"])
    return Claim(entry["statement"], entry["source"], tuple(entry["cases"]))


def check_measure(case: Mapping[str, Any]) -> None:
    """Refuse what a case cannot mean by ``rows``, ``take`` and ``as``.

    Raises:
        ValueError: what is given, and what is allowed.
    """
    if case.get("take", "max") not in (*TAKES, UNSUPPORTED):
        raise ValueError(f"take: {case['take']!r} is none of {', '.join((*TAKES, UNSUPPORTED))}")
    if case.get("as", "ratio") not in COMBINED:
        raise ValueError(f"as: {case['as']!r} is none of {', '.join(COMBINED)}")
    if case["rows"].get("metric") not in METRICS:
        raise ValueError(f"rows: metric {case['rows'].get('metric')!r} is not known")


def selectable(results: Results, rows: pd.DataFrame) -> pd.DataFrame:
    """Some of the rows, as cases choose from them: with multiples, without widened trunks."""
    # A trunk widened to be a control is not what a statement is about.
    widened = {run for run, config in results.configs.items() if config.get("model.as_many_as", "null") != "null"}
    rows = rows[~rows["run_id"].isin(widened)]
    rows = rows.assign(multiple=rows["eval_length"] / rows["train_length"])
    text = [column for column in rows if pd.api.types.is_string_dtype(rows[column])]
    return rows.astype(dict.fromkeys(text, "category"))  # to choose by a number for each text, not by the text


def decide(claims: list[Claim], results: Results) -> list[tuple[Claim, str, list[Finding]]]:
    """Each claim with its verdict and what each of its cases came to."""
    chosen = [case[part] for claim in claims for case in claim.cases for part in ("rows", "against") if part in case]
    metrics = {metric for part in chosen for metric in _listed(part.get("metric"))}
    rows = selectable(results, results.rows[results.rows["metric"].isin(metrics)])
    decided = []
    for claim in claims:
        findings = [_finding(case, rows, results) for case in claim.cases]
        decided.append((claim, verdict(findings), findings))
    return decided


def verdict(findings: list[Finding]) -> str:
    """Of a statement, from those of its cases that were measured: ``holds only if …`` where they differ.

    A case that is undecided may hold too: then it is ``holds if …``, and which these are.
    """
    findings = [finding for finding in findings if finding.outcome != NOT_MEASURED]
    found = {finding.outcome for finding in findings}
    if len(found) < 2:
        return found.pop() if found else NOT_MEASURED
    if not {HOLDS, FAILS} <= found:
        return UNDECIDED
    holding, undecided = ("; ".join(f.when for f in findings if f.outcome == what) for what in (HOLDS, UNDECIDED))
    return f"{IN_PART}{holding} (undecided if: {undecided})" if undecided else f"{ONLY}{holding}"


def _finding(case: Mapping[str, Any], rows: pd.DataFrame, results: Results) -> Finding:
    by_seed, reason = values(case, rows, results)
    measured = float(by_seed.mean()) if len(by_seed) else math.nan
    half = intervals.half_width(float(by_seed.std(ddof=1)), len(by_seed)) if len(by_seed) > 1 else math.nan
    low, high = measured - half, measured + half
    outcome = NOT_MEASURED if reason == NO_ROWS else UNDECIDED
    if not reason:
        rule = Rule.of(case["holds"])
        outcome = rule.verdict(measured if math.isnan(low) else low, measured if math.isnan(high) else high)
        reason = "the interval reaches across the threshold" if outcome == UNDECIDED else ""
    return Finding(
        str(case["when"]), measured, low, high, len(by_seed), case["holds"], _in_words(case), outcome, reason
    )


def values(case: Mapping[str, Any], rows: pd.DataFrame, results: Results) -> tuple[pd.Series, str]:
    """One value a seed of what a case measures, and why they decide nothing; blank where they may.

    Args:
        case: its ``rows``, and ``take``, ``table``, ``against``, ``as``, ``even_if_not_learned`` where it has them.
        rows: of `selectable`.
        results: that they are from.
    """
    selections = [case["rows"]] + ([case["rows"] | case["against"]] if "against" in case else [])
    parts = [select(rows, _plainly_numbered(selection), results) for selection in selections]
    if any(part.empty for part in parts):
        return pd.Series(dtype=float), NO_ROWS
    for part in parts:
        if len(labels := sorted(part["label"].unique())) > 1:
            return pd.Series(dtype=float), f"rows of several settings: {'; '.join(labels)}"
    try:
        found = [_by_seed(part, case) for part in parts]
    except ValueError as error:
        return pd.Series(dtype=float), str(error)
    by_seed = found[0] if len(found) == 1 else _combined(found[0], found[1], COMBINED[case.get("as", "difference")])
    by_seed = by_seed.dropna()
    trained = any(results.configs[run]["trained"] == "true" for part in parts for run in set(part["run_id"]))
    return by_seed, _reason(parts, by_seed, trained, case.get("even_if_not_learned", False))


def _plainly_numbered(selection: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a case says of an encoder it says of the encoder alone, unless it names a numbering."""
    named = any(key.partition(".")[0] == "positions" for key in selection)
    return selection if named else {"positions": "sequential", **selection}


def _combined(ours: pd.Series, theirs: pd.Series, combine: Callable[[float, float], float]) -> pd.Series:
    """Two values of each seed that has both to one."""
    seeds = [seed for seed in ours.index if seed in theirs.index]
    return pd.Series({seed: combine(ours[seed], theirs[seed]) for seed in seeds}, dtype=float)


def _reason(parts: list[pd.DataFrame], by_seed: pd.Series, trained: bool, even_if_not_learned: bool) -> str:
    """Why the rows decide nothing; blank where they do."""
    for part in parts:
        learned = part.drop_duplicates("run_id")["converged"]
        if (failing := sum(judged is False for judged in learned)) and not even_if_not_learned:
            return f"{failing} of {len(learned)} runs did not learn the task"
    if by_seed.empty:
        return "no value: " + ", ".join(sorted({status for part in parts for status in part["status"]} - {"ok"}))
    return "one seed decides nothing that was trained" if trained and len(by_seed) < 2 else ""


def select(rows: pd.DataFrame, selection: Mapping[str, Any], results: Results) -> pd.DataFrame:
    """The rows of `selectable` that are as a case's ``rows`` say."""
    places = np.arange(len(rows))  # each key is looked at where those before it left something
    for key, wanted in selection.items():
        allowed = [_plain(value) for value in _listed(wanted)]
        if key in rows.columns:
            cells = rows[key].iloc[places]
            fitting = [value for value in cells.unique() if _plain(value) in allowed]
        elif "." in key or key == "trained":
            cells = rows["run_id"].iloc[places]
            fitting = [run for run in cells.unique() if results.configs[run].get(key, "") in allowed]
        else:
            return rows.iloc[:0]  # a column that no row has
        places = places[cells.isin(fitting).to_numpy()]
    return rows.iloc[places]


def _listed(wanted: Any) -> list[Any]:
    return wanted if isinstance(wanted, list) else [wanted]


def _plain(value: object) -> str:
    """A value as it is written in rows or a configuration: ``2`` for 2.0, ``false``, blank for null."""
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return format(value, "g") if isinstance(value, float) else str(value)


def _by_seed(rows: pd.DataFrame, case: Mapping[str, Any]) -> pd.Series:
    """One value a seed."""
    if "table" in case:
        return pd.Series({seed: _furthest(group, case["table"]) for seed, group in rows.groupby("seed")}, dtype=float)
    if case.get("take") == UNSUPPORTED:
        return (rows["status"] == UNSUPPORTED).groupby(rows["seed"]).mean()
    valued = rows[rows["status"] == "ok"]
    if case.get("take") == "mean":  # over what is left it would be a mean over easier lengths, say
        valued = valued[~valued["seed"].isin(rows.loc[rows["status"] != "ok", "seed"])]
    if "take" not in case and len(valued) > valued["seed"].nunique():
        valued = valued.drop_duplicates(["seed", "value"])  # the same measurement, made in two runs
        if len(valued) > valued["seed"].nunique():
            raise ValueError(f"several rows a seed and no take: {_few_conditions(valued)}")
    take = TAKES[case.get("take", "max")]
    return pd.Series({seed: take(group["value"]) for seed, group in valued.groupby("seed")}, dtype=float)


def _few_conditions(rows: pd.DataFrame) -> str:
    places = {f"{slice_name(line) or 'blank'} at {line['eval_length']}" for line in rows.to_dict("records")}
    return "; ".join(sorted(places)[:4])


def _furthest(rows: pd.DataFrame, table: Mapping[int, list[float]]) -> float:
    """Largest difference of codes from a table; NaN where a cell was not measured."""
    codes = {(line["position"], line["dimension"]): line["value"] for line in rows.to_dict("records")}
    cells = [
        codes.get((position, dimension), math.nan) - value
        for position, values in table.items()
        for dimension, value in enumerate(values)
    ]
    return math.nan if any(map(math.isnan, cells)) else max(map(abs, cells))


def _in_words(case: Mapping[str, Any]) -> str:
    metric = METRICS[case["rows"]["metric"]].label
    if "table" in case:
        return f"{metric}, largest difference from the printed one"
    taken = {
        "max": "largest ",
        "min": "smallest ",
        "mean": "mean ",
        "range": "range of ",
        UNSUPPORTED: "share refused: ",
    }
    prefix = taken.get(case.get("take", ""), "")
    said = metric if metric.startswith(prefix) else f"{prefix}{metric}"
    if "against" not in case:
        return said
    what = ", ".join(f"{key} {_plain(value) or 'blank'}" for key, value in case["against"].items())
    return f"{said}, {case.get('as', 'difference')} against {what}"
