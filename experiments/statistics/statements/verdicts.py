"""Verdicts on statements: what the rows of a folder say of each.

A comparison holds or fails if it is significant in the published direction or in the other, and is equal if its
interval lies within the test's ``delta`` (see `compare`). A test holds if all of its comparisons do and fails if one of
them does; if none is open, but some are equal, it is equal. A finding with a ``setting`` is decided likewise by its
tests. Other statements are decided case by case, and may hold in some alone.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from experiments.rows import sweeps
from experiments.rows.read import FINISHED
from experiments.rows.results import Results
from experiments.statistics.comparisons import EQUAL, OPEN, UNDECIDED
from experiments.statistics.intervals import bounded
from experiments.statistics.rule import Rule, declared_rule
from experiments.statistics.statements.compare import Comparison, compare
from experiments.statistics.statements.schema import FAILS, HOLDS, NOT_MEASURED, Statement
from experiments.statistics.statements.values import NO_ROWS, Measured, measure, selectable

ONLY, IN_PART = "holds only if: ", "holds if: "
"""How the verdict begins that differs between cases; the second where some decide nothing."""


@dataclass(frozen=True)
class Entry:
    """One contestant of a test, its published number and ours, with a 95 % interval; NaN where there is none."""

    contestant: str
    published: float
    measured: float
    low: float
    high: float
    seeds: int
    unlearned: int
    """Runs that are left out since they did not learn their task."""


@dataclass(frozen=True)
class Outcome:
    """The verdict on one test, its comparisons, and the reason if it could not be made."""

    test: Mapping[str, Any]
    entries: tuple[Entry, ...]
    verdict: str
    reason: str
    compared: tuple[Comparison, ...] = ()


@dataclass(frozen=True)
class Decided:
    """The verdict on a statement, how many runs of its folder have not finished, and whether it was made for this."""

    statement: Statement
    verdict: str
    outcomes: tuple[Outcome, ...]
    unfinished: int
    asked: bool


def decide(statements: list[Statement], results: Results) -> list[Decided]:
    """Decide the statements that a folder's rows can decide, those that it was made for first.

    It was made for a file if a sweep of its runs was written to it, for a finding (with a ``setting``) also if it has
    its name, or its name and ``_``. A finding is decided there alone: other folders have models of another size, or
    trained otherwise.
    """
    noted = sweeps.read(results.folder)[0]
    given = {word for sweep in noted for word in sweep.command.split()}
    folder = f"{results.folder.resolve().name}_"
    asked = {each.name for each in statements if each.setting and folder.startswith(f"{each.name}_")}
    asked |= {each.name for each in statements if f"+statements={each.name}" in given}
    statements = [each for each in statements if not each.setting or each.name in asked]
    statements.sort(key=lambda each: each.name not in asked)
    rule = declared_rule(sweep.rule for sweep in noted)
    parts = [part for each in statements for test in each.tests for part in (test["rows"], test.get("against", {}))]
    rows = selectable(results, {part["metric"] for part in parts if "metric" in part})
    unfinished = int((~results.runs["status"].isin(FINISHED)).sum()) + len(results.missing)
    chosen = [each for each in statements if len(rows) or not each.setting]
    return [Decided(each, *_verdict(each, rows, results, rule), unfinished, each.name in asked) for each in chosen]


def _verdict(
    statement: Statement, rows: pd.DataFrame, results: Results, declared: tuple[Rule, int] | None
) -> tuple[str, tuple[Outcome, ...]]:
    found = [measure(test, rows, results) for test in statement.tests]
    usable = [{} if _lacking(each) else each for each in found]
    waiting = bool(results.waiting)
    compared = compare(list(zip(statement.tests, usable, strict=True)), declared, waiting=waiting)
    outcomes = tuple(map(_outcome, statement.tests, found, compared))
    if not statement.setting:
        return case_by_case(outcomes), outcomes
    verdicts = {outcome.verdict for outcome in outcomes}
    verdict = _together(verdicts | {OPEN} if waiting and NOT_MEASURED in verdicts else verdicts)
    if verdict == FAILS:  # more seeds would change nothing
        closed = [tuple(replace(one, next_look=0) for one in each.compared) for each in outcomes]
        outcomes = tuple(replace(each, compared=ended) for each, ended in zip(outcomes, closed, strict=True))
    return verdict, outcomes


def _lacking(found: Mapping[str, Measured]) -> str:
    reasons = {name: each.reason for name, each in found.items() if each.reason}
    if lacking := [name for name, reason in reasons.items() if reason == NO_ROWS]:
        return f"no rows of {', '.join(lacking)}" if any(lacking) else NO_ROWS
    names_of = {reason: [name for name in reasons if reasons[name] == reason] for reason in reasons.values()}
    return "; ".join(f"{', '.join(names)}: {reason}" if any(names) else reason for reason, names in names_of.items())


def _outcome(test: Mapping[str, Any], found: Mapping[str, Measured], compared: list[Comparison]) -> Outcome:
    entries = tuple(_entry(name, test["published"], each) for name, each in found.items())
    if why := _lacking(found):
        missing = any(each.reason == NO_ROWS for each in found.values())
        return Outcome(test, entries, NOT_MEASURED if missing else UNDECIDED, why)
    return Outcome(test, entries, _together({each.verdict for each in compared}), "", tuple(compared))


def _entry(name: str, published: Mapping[str, float], found: Measured) -> Entry:
    low, high = bounded(np.array(found.values.to_list(), dtype=np.float64), found.bounds, found.noise)
    mean, number = float(found.values.mean()), float(published.get(name, math.nan))
    return Entry(name, number, mean, low, high, len(found.values), found.unlearned)


def _together(verdicts: set[str]) -> str:
    """Return the verdict on what holds if each of these does."""
    if FAILS in verdicts or OPEN in verdicts:
        return FAILS if FAILS in verdicts else OPEN
    return UNDECIDED if not verdicts <= {HOLDS, EQUAL} else EQUAL if EQUAL in verdicts else HOLDS


def case_by_case(outcomes: tuple[Outcome, ...]) -> str:
    """Return the verdict over the cases that were measured: ``holds only if: …`` where they differ."""
    cases = [outcome for outcome in outcomes if outcome.verdict != NOT_MEASURED]
    verdicts = {case.verdict for case in cases}
    if len(verdicts) < 2:
        return verdicts.pop() if verdicts else NOT_MEASURED
    if verdicts <= {FAILS, EQUAL}:
        return FAILS
    if not (HOLDS in verdicts and verdicts & {FAILS, EQUAL}):
        return OPEN if OPEN in verdicts else UNDECIDED
    of = {verdict: "; ".join(str(c.test["of"]) for c in cases if c.verdict == verdict) for verdict in verdicts}
    left = "; ".join(f"{verdict} if: {of[verdict]}" for verdict in (UNDECIDED, OPEN) if verdict in of)
    return f"{IN_PART}{of[HOLDS]} ({left})" if left else f"{ONLY}{of[HOLDS]}"


def comparison_table(decided: Iterable[Decided]) -> pd.DataFrame:
    """Return a line for each comparison: ``statement``, its ``outcome``, ``tested``, and the fields of `Comparison`."""
    lines = [
        {"statement": each.statement.name if each.statement.setting else each.statement.statement}
        | {"outcome": each.verdict, "tested": case.test["of"]}
        | vars(compared)
        for each in decided
        for case in each.outcomes
        for compared in case.compared
    ]
    return pd.DataFrame(lines, columns=["statement", "outcome", "tested", *Comparison.__dataclass_fields__])
