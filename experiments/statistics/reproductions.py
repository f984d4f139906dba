"""Published findings, put to the test at a smaller scale: what was published, what rows say, whether they agree.

A file of ``configs/reproduce/`` is a sweep (``name``, ``parts``, ``times``; see `_config.expand`) and says, under
``finding``, what it is to find, written before its rows are looked at:

    statement   what was found
    source      by whom, and where it is written
    checked     where the published numbers were read, and which could not be checked
    there, here the setting of the paper, and ours
    expected    what we expect at our scale
    gpu         options that make the sweep one for a GPU, for where two cores are too little; may be left out
    tests       what is compared, each with
      of          what that is, in words
      rows, against, as, take, even_if_not_learned    which rows decide, as in a claim (see `_claims`)
      ranked_over a list of changes of ``rows``: within each seed and each of them the contestants are ranked, and a
                  contestant's value is the mean of 1/rank (mean reciprocal rank); ties share the mean rank
      published   contestant -> the published number; those without one are left out
      unit        what the published number is
      contestants contestant -> its changes of ``rows``; left out: the encoders of ``published``
      rule        what must hold, one of `RULES`

Differences are paired by seed. A test is PASS if every interval (95 % t, over seeds) keeps to the published side, which
needs no correction: all must. It is DIFFERENT if one of them lies wholly on the other side, at a level divided by the
number of comparisons of the finding (Bonferroni), for any would do. Else it is UNDECIDED. A finding is DIFFERENT if one
of its tests is, PASS if all are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from scipy.special import stdtrit

from experiments.rows import sweeps
from experiments.rows.results import FINISHED, Results
from experiments.rows.row import metric_of
from experiments.statistics import claims
from experiments.statistics.claims import NO_ROWS, Rule
from experiments.statistics.intervals import ROUNDING, SIGNIFICANCE

FOLDER = Path(__file__).resolve().parents[2] / "configs" / "reproduce"
PASS, DIFFERENT, UNDECIDED, NOT_MEASURED = "PASS", "DIFFERENT", "UNDECIDED", "not measured"
RULES = {
    "higher": "groups of contestants, highest first: each is higher than each of all later groups",
    "lower": "groups of contestants, lowest first: each is lower than each of all later groups",
    "holds": "contestant -> 'below X', 'above X' or 'within X to Y'",
}
FINDING_KEYS = ("statement", "source", "checked", "there", "here", "expected", "tests")
TEST_KEYS = ("of", "rows", "rule", "unit")
MORE_TEST_KEYS = ("against", "as", "take", "even_if_not_learned", "ranked_over", "published", "contestants")


@dataclass(frozen=True)
class Reproduction:
    """A published finding, as in its file; ``tests`` as in the module's docstring, ``contestants`` filled in."""

    name: str
    statement: str
    source: str
    checked: str
    there: str
    here: str
    expected: str
    tests: tuple[Mapping[str, Any], ...]
    gpu: str = ""


@dataclass(frozen=True)
class Entry:
    """One contestant of a test: the published number and ours, NaN where there is none."""

    contestant: str
    published: float
    measured: float
    low: float
    high: float
    seeds: int


@dataclass(frozen=True)
class Outcome:
    """What one test came to, and why not to more."""

    test: Mapping[str, Any]
    entries: tuple[Entry, ...]
    verdict: str
    reason: str


@dataclass(frozen=True)
class Decided:
    """A finding, its verdict, what its tests came to, and how many runs of its folder have not finished."""

    reproduction: Reproduction
    verdict: str
    outcomes: tuple[Outcome, ...]
    unfinished: int


# ---- the files ----------------------------------------------------------------------------------------


def load(folder: Path = FOLDER) -> list[Reproduction]:
    """Every reproduction there is.

    Raises:
        ValueError: a file that cannot be read or says what means nothing; the message names it.
    """
    found = []
    for file in sorted(folder.glob("*.yaml")):
        try:
            found.append(_read(yaml.safe_load(file.read_text(encoding="utf-8")), file.stem))
        except (ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
            raise ValueError(f"{file.name}: {' '.join(str(error).split())}") from error
    return found


def _read(content: Mapping[str, Any], stem: str) -> Reproduction:
    if not isinstance(content, dict) or not content.get("parts") or not isinstance(content.get("finding"), dict):
        raise ValueError("a reproduction has name, parts and finding")
    _check_keys(content, ("name", "parts", "finding"), ("times",), "of a reproduction")
    if content["name"] != stem:
        raise ValueError(f"name: {content['name']!r} is not that of its file, {stem!r}")
    finding = content["finding"]
    _check_keys(finding, FINDING_KEYS, ("gpu",), "of a finding")
    if not finding["tests"]:
        raise ValueError("tests: there is none")
    said = {key: str(value) for key, value in finding.items() if key != "tests"}
    return Reproduction(stem, tests=tuple(_test(test) for test in finding["tests"]), **said)


def _check_keys(given: Mapping[str, Any], needed: tuple[str, ...], more: tuple[str, ...], where: str) -> None:
    for key in given:
        if key not in (*needed, *more):
            raise ValueError(f"no key {key!r} {where}; known: {', '.join((*needed, *more))}")
    for key in needed:
        if key not in given:
            raise ValueError(f"the key {key!r} {where} is missing")


def _test(test: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        _check_keys(test, TEST_KEYS, MORE_TEST_KEYS, "of a test")
        claims.check_measure(test)
        published = test.get("published", {})
        contestants = test.get("contestants", {name: {"encoder": name} for name in published})
        for name, number in published.items():
            if name not in contestants:
                raise ValueError(f"published: {name!r} is none of the contestants {', '.join(contestants)}")
            if not isinstance(number, int | float) or isinstance(number, bool):
                raise ValueError(f"published: {name}: {number!r} is no number")
        _check_rule(test["rule"], contestants)
    except ValueError as error:
        raise ValueError(f"test {test.get('of')!r}: {error}") from error
    return dict(test) | {"contestants": contestants, "published": published}


def _check_rule(rule: Mapping[str, Any], contestants: Mapping[str, Any]) -> None:
    if len(rule) != 1 or not set(rule) <= set(RULES):
        raise ValueError(f"rule: {rule} is not one of {', '.join(RULES)}")
    kind, said = next(iter(rule.items()))
    if kind == "holds":
        named = list(said)
        for text in said.values():
            Rule.of(text)
    else:
        named = [name for group in said for name in group]
        if len(said) < 2 or not all(said):
            raise ValueError(f"rule: {kind} takes two groups at least, none of them empty")
    if len(set(named)) < len(named):
        raise ValueError(f"rule: {kind} names a contestant twice")
    if strangers := set(named) ^ set(contestants):
        raise ValueError(f"rule: {kind} and the contestants do not agree on {', '.join(sorted(strangers))}")


# ---- the verdicts -------------------------------------------------------------------------------------


def decide(reproductions: list[Reproduction], results: Results) -> list[Decided]:
    """What the rows of a folder say of each finding that the folder is for.

    Other runs are of another size, or trained otherwise than the finding says of ours: a folder is for a finding if it
    has its name, or begins with that and ``_``, or if one of its sweeps asked for it.
    """
    asked = {word for sweep in sweeps.read(results.folder)[0] for word in sweep.command.split()}
    folder = results.folder.resolve().name
    reproductions = [
        each for each in reproductions if f"{folder}_".startswith(f"{each.name}_") or f"+reproduce={each.name}" in asked
    ]
    tests = [test for each in reproductions for test in each.tests]
    wanted = {part["metric"] for test in tests for part in (test["rows"], test.get("against", {})) if "metric" in part}
    rows = results.rows[results.rows["metric"].isin(wanted)]
    if rows.empty:
        return []
    rows = claims.selectable(results, rows)
    unfinished = int((~results.runs["status"].isin(FINISHED)).sum()) + len(results.missing)
    decided = []
    for each in reproductions:
        share = SIGNIFICANCE / sum(_comparisons(test) for test in each.tests)
        outcomes = tuple(_outcome(test, rows, results, share) for test in each.tests)
        decided.append(Decided(each, verdict([found.verdict for found in outcomes]), outcomes, unfinished))
    return decided


def verdict(verdicts: list[str]) -> str:
    """Of a finding, from those of its tests."""
    if DIFFERENT in verdicts:
        return DIFFERENT
    return PASS if set(verdicts) == {PASS} else UNDECIDED


def _comparisons(test: Mapping[str, Any]) -> int:
    kind, said = next(iter(test["rule"].items()))
    return len(said) if kind == "holds" else len(list(_pairs(said)))


def _pairs(groups: list[list[str]]) -> Iterator[tuple[str, str]]:
    """Each contestant with each of all later groups."""
    for earlier, later in combinations(groups, 2):
        yield from ((one, other) for one in earlier for other in later)


def _outcome(test: Mapping[str, Any], rows: pd.DataFrame, results: Results, share: float) -> Outcome:
    changes = (test.get("against", {}), *test["contestants"].values(), *test.get("ranked_over", ()))
    changed = {key for each in changes for key in each}
    shared = {key: value for key, value in test["rows"].items() if key in rows.columns and key not in changed}
    rows = claims.select(rows, shared, results)
    found = _ranked(test, rows, results) if "ranked_over" in test else _measured(test, rows, results)
    entries = tuple(_entry(name, test["published"], by_seed) for name, (by_seed, _) in found.items())
    reasons = {name: reason for name, (_, reason) in found.items() if reason}
    if lacking := [name for name, reason in reasons.items() if reason == NO_ROWS]:
        return Outcome(test, entries, NOT_MEASURED, f"no rows of {', '.join(lacking)}")
    if reasons:
        of_reason = {reason: [name for name in reasons if reasons[name] == reason] for reason in reasons.values()}
        told = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in of_reason.items())
        return Outcome(test, entries, UNDECIDED, told)
    return Outcome(test, entries, *_judge(test["rule"], {name: by_seed for name, (by_seed, _) in found.items()}, share))


Found = dict[str, tuple[pd.Series, str]]
"""Contestant -> its value of each seed, and why it decides nothing."""


def _measured(test: Mapping[str, Any], rows: pd.DataFrame, results: Results) -> Found:
    return {
        name: claims.values(dict(test) | {"rows": test["rows"] | changes}, rows, results)
        for name, changes in test["contestants"].items()
    }


def _ranked(test: Mapping[str, Any], rows: pd.DataFrame, results: Results) -> Found:
    """Mean reciprocal ranks of each seed that all contestants have."""
    reciprocal: list[pd.DataFrame] = []
    reasons: dict[str, str] = {}
    for changes in test["ranked_over"]:
        found = _measured(dict(test) | {"rows": test["rows"] | changes}, rows, results)
        reasons |= {name: reason for name, (_, reason) in found.items() if reason and reasons.get(name) != NO_ROWS}
        table = pd.DataFrame({name: by_seed for name, (by_seed, _) in found.items()}).dropna()
        best_first = metric_of(test["rows"]["metric"]).higher_is_better is False
        reciprocal.append(1 / table.rank(axis="columns", ascending=best_first))
    mean = sum(reciprocal[1:], reciprocal[0]) / len(reciprocal)
    return {name: (mean[name].dropna(), reasons.get(name, "")) for name in test["contestants"]}


def _entry(name: str, published: Mapping[str, float], by_seed: pd.Series) -> Entry:
    mean, half = _mean_and_half(by_seed, SIGNIFICANCE)
    return Entry(name, float(published.get(name, math.nan)), mean, mean - half, mean + half, len(by_seed))


def _mean_and_half(values: pd.Series, share: float) -> tuple[float, float]:
    """Mean and half its two-sided t interval, which misses with probability ``share``; one value has none."""
    count = len(values)
    mean = float(values.mean()) if count else math.nan
    if count < 2:
        return mean, math.nan
    return mean, float(stdtrit(count - 1, 1 - share / 2)) * float(values.std(ddof=1)) / math.sqrt(count)


def _judge(rule: Mapping[str, Any], values: Mapping[str, pd.Series], share: float) -> tuple[str, str]:
    """Verdict and reason, from the values of each seed."""
    kind, said = next(iter(rule.items()))
    compared: dict[str, tuple[pd.Series, Says]] = {}
    if kind == "holds":
        compared = {f"{name} {text}": (values[name], Rule.of(text).verdict) for name, text in said.items()}
    else:
        sign = 1 if kind == "higher" else -1
        for one, other in _pairs(said):
            compared[f"{one} {kind} than {other}"] = (sign * (values[one] - values[other]).dropna(), _side)
    least = min(2, *map(len, values.values()))
    if short := [what for what, (by_seed, _) in compared.items() if len(by_seed) < least]:
        return UNDECIDED, f"fewer than {least} seeds in common: {', '.join(short)}"
    said_of = {
        what: (_at(by_seed, says, SIGNIFICANCE), _at(by_seed, says, share))
        for what, (by_seed, says) in compared.items()
    }
    if opposite := [what for what, (_, strict) in said_of.items() if strict == claims.FAILS]:
        return DIFFERENT, f"the opposite of {', of '.join(opposite)}"
    left = [what for what, (usual, _) in said_of.items() if usual != claims.HOLDS]
    return (UNDECIDED, f"not separable with these seeds: {', '.join(left)}") if left else (PASS, "")


Says = Callable[[float, float], str]
"""What an interval, low and high, comes to: ``holds``, ``fails`` or ``undecided``."""


def _side(low: float, high: float) -> str:
    """Of a difference that is to be above 0; two that are equal contradict no order."""
    if low > ROUNDING:
        return claims.HOLDS
    return claims.FAILS if high < -ROUNDING else claims.UNDECIDED


def _at(by_seed: pd.Series, says: Says, share: float) -> str:
    mean, half = _mean_and_half(by_seed, share)
    return says(mean, mean) if math.isnan(half) else says(mean - half, mean + half)
