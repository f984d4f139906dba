"""Verdicts on statements: what the rows of a folder say of each.

A test holds if every 95 % t interval over seeds lies on the published side. It fails if one lies wholly on the other
side. A finding with a ``setting`` is decided as a whole: it holds if all of its tests hold, and fails if one of them
does, at a level divided by the number of its comparisons (Bonferroni). Other statements are decided case by case, and
may hold in some alone. Differences are paired by seed.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from experiments.rows import sweeps
from experiments.rows.read import FINISHED
from experiments.rows.results import Results
from experiments.statistics.intervals import ROUNDING, SIGNIFICANCE, half_width
from experiments.statistics.statements.schema import (
    FAILS,
    HOLDS,
    NOT_MEASURED,
    UNDECIDED,
    Bounds,
    Statement,
    ordered_pairs,
)
from experiments.statistics.statements.values import NO_ROWS, Values, measure, selectable

ONLY, IN_PART = "holds only if: ", "holds if: "
"""How the verdict begins that differs between cases; the second where some are undecided."""


@dataclass(frozen=True)
class Entry:
    """One contestant of a test, its published number and ours, with a 95 % interval; NaN where there is none."""

    contestant: str
    published: float
    measured: float
    low: float
    high: float
    seeds: int


@dataclass(frozen=True)
class Outcome:
    """The verdict on one test, and the reason if it is not ``holds``."""

    test: Mapping[str, Any]
    entries: tuple[Entry, ...]
    verdict: str
    reason: str


@dataclass(frozen=True)
class Decided:
    """The verdict on a statement, and how many runs of its folder have not finished."""

    statement: Statement
    verdict: str
    outcomes: tuple[Outcome, ...]
    unfinished: int


def decide(statements: list[Statement], results: Results) -> list[Decided]:
    """Decide the statements that a folder's rows can decide.

    A finding with a ``setting`` is decided only in a folder for it: one of its name, or of its name and ``_``, or one
    that a sweep of its runs was written to. Other folders have models of another size, or trained otherwise.
    """
    given = {word for sweep in sweeps.read(results.folder)[0] for word in sweep.command.split()}
    folder = f"{results.folder.resolve().name}_"
    statements = [
        each
        for each in statements
        if not each.setting
        or folder.startswith(f"{each.name}_")
        or {f"+statements={each.name}", f"+reproduce={each.name}"} & given
    ]
    parts = [part for each in statements for test in each.tests for part in (test["rows"], test.get("against", {}))]
    rows = selectable(results, {part["metric"] for part in parts if "metric" in part})
    unfinished = int((~results.runs["status"].isin(FINISHED)).sum()) + len(results.missing)
    return [_decided(each, rows, results, unfinished) for each in statements if len(rows) or not each.setting]


def _decided(statement: Statement, rows: pd.DataFrame, results: Results, unfinished: int) -> Decided:
    comparisons = sum(_comparisons(test["rule"]) for test in statement.tests) if statement.setting else 1
    outcomes = tuple(
        _outcome(test, measure(test, rows, results), SIGNIFICANCE / comparisons) for test in statement.tests
    )
    decide_all = as_a_whole if statement.setting else case_by_case
    return Decided(statement, decide_all(outcomes), outcomes, unfinished)


def as_a_whole(outcomes: tuple[Outcome, ...]) -> str:
    """Return the verdict on a finding."""
    verdicts = {outcome.verdict for outcome in outcomes}
    if FAILS in verdicts:
        return FAILS
    return HOLDS if verdicts == {HOLDS} else UNDECIDED


def case_by_case(outcomes: tuple[Outcome, ...]) -> str:
    """Return the verdict over the cases that were measured: ``holds only if: …`` where they differ."""
    cases = [outcome for outcome in outcomes if outcome.verdict != NOT_MEASURED]
    verdicts = {case.verdict for case in cases}
    if len(verdicts) < 2:
        return verdicts.pop() if verdicts else NOT_MEASURED
    if not {HOLDS, FAILS} <= verdicts:
        return UNDECIDED
    holding, undecided = ("; ".join(str(c.test["of"]) for c in cases if c.verdict == v) for v in (HOLDS, UNDECIDED))
    return f"{IN_PART}{holding} (undecided if: {undecided})" if undecided else f"{ONLY}{holding}"


def _comparisons(rule: Mapping[str, Any]) -> int:
    kind, what = next(iter(rule.items()))
    return len(what) if kind == "holds" else len(list(ordered_pairs(what)))


def _outcome(test: Mapping[str, Any], values: Values, significance: float) -> Outcome:
    entries = tuple(_entry(name, test["published"], by_seed) for name, (by_seed, _) in values.items())
    reasons = {name: reason for name, (_, reason) in values.items() if reason}
    if lacking := [name for name, reason in reasons.items() if reason == NO_ROWS]:
        return Outcome(test, entries, NOT_MEASURED, f"no rows of {', '.join(lacking)}" if any(lacking) else NO_ROWS)
    if reasons:
        names_of = {reason: [name for name in reasons if reasons[name] == reason] for reason in reasons.values()}
        why = "; ".join(f"{', '.join(names)}: {reason}" if any(names) else reason for reason, names in names_of.items())
        return Outcome(test, entries, UNDECIDED, why)
    return Outcome(
        test, entries, *_judge(test["rule"], {name: found for name, (found, _) in values.items()}, significance)
    )


def _entry(name: str, published: Mapping[str, float], by_seed: pd.Series) -> Entry:
    mean, half = float(by_seed.mean()), half_width(by_seed)
    return Entry(name, float(published.get(name, math.nan)), mean, mean - half, mean + half, len(by_seed))


def _judge(rule: Mapping[str, Any], values: Mapping[str, pd.Series], significance: float) -> tuple[str, str]:
    """Return verdict and reason, from the values of each seed."""
    kind, what = next(iter(rule.items()))
    compared: dict[str, tuple[pd.Series, Callable[[float, float], str]]] = {}
    if kind == "holds":
        compared = {f"{name} {text}".strip(): (values[name], Bounds.of(text).verdict) for name, text in what.items()}
    else:
        sign = 1 if kind == "higher" else -1
        for one, other in ordered_pairs(what):
            compared[f"{one} {kind} than {other}"] = (sign * (values[one] - values[other]).dropna(), _above_zero)
    least = min([2, *map(len, values.values())])
    if short := [words for words, (by_seed, _) in compared.items() if len(by_seed) < least]:
        return UNDECIDED, f"fewer than {least} seeds in common: {', '.join(short)}"
    unnamed = list(values) == [""]
    if opposite := [words for words, case in compared.items() if _at(*case, significance) == FAILS]:
        return FAILS, "" if unnamed else f"the opposite of {', of '.join(opposite)}"
    if left := [words for words, case in compared.items() if _at(*case, SIGNIFICANCE) != HOLDS]:
        return UNDECIDED, (
            "the interval includes the threshold" if unnamed else f"not separable with these seeds: {', '.join(left)}"
        )
    return HOLDS, ""


def _above_zero(low: float, high: float) -> str:
    """Judge a difference that must be above 0; equal values contradict no order."""
    if low > ROUNDING:
        return HOLDS
    return FAILS if high < -ROUNDING else UNDECIDED


def _at(by_seed: pd.Series, judge: Callable[[float, float], str], significance: float) -> str:
    mean, half = float(by_seed.mean()), half_width(by_seed, 1 - significance)
    return judge(mean, mean) if math.isnan(half) else judge(mean - half, mean + half)
