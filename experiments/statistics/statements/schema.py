"""The files of ``configs/statements/``: what was published, which rows decide it, and by which rule.

`docs/statistics.md` has the keys of such a file.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from experiments.rows.row import METRICS
from experiments.rows.untrusted import Loader

FOLDER = Path(__file__).resolve().parents[3] / "configs" / "statements"
HOLDS, FAILS, NOT_MEASURED = "holds", "fails", "not measured"
NUMBERS = ("text", "code", "data", "from memory")
TAKES = ("max", "min", "mean", "range", "unsupported")
COMBINED = ("difference", "ratio")
RULES = {
    "higher": "groups of contestants, highest first: each is higher than each of all later groups",
    "lower": "groups of contestants, lowest first: each is lower than each of all later groups",
    "holds": "contestant -> 'below X', 'above X' or 'within X to Y'",
}
FILE_KEYS, MORE_FILE_KEYS = ("name", "parts", "statements"), ("times", "looks", "weights")
KEYS, MORE_KEYS = ("statement", "source", "tests"), ("setting", "numbers")
SETTING_KEYS, MORE_SETTING_KEYS = ("checked", "there", "here", "expected"), ("gpu",)
TEST_KEYS = ("of", "rows", "rule")
MORE_TEST_KEYS = (
    *("take", "table", "against", "as", "even_if_not_learned", "contestants", "published", "unit", "factor", "delta"),
)


class Directed(NamedTuple):
    """A comparison as published: ``one`` is higher (``sign`` 1) or lower (-1) than ``other`` or than a threshold."""

    words: str
    one: str
    other: str | float
    sign: int


def thresholds(text: str) -> list[tuple[str, float, int]]:
    """Read ``below 1e-6``, ``above 0.9`` or ``within 6.28 to 6.29``.

    Returns:
        In words, the threshold, and 1 where a value must be above it, -1 where it must be below.

    Raises:
        ValueError: another text, or an empty range.
    """
    number = r"(-?[\d.]+(?:e-?\d+)?)"
    found = re.fullmatch(rf"(below|above) {number}|within {number} to {number}", str(text))
    if found is None:
        raise ValueError(f"rule: {text!r} is none of 'below X', 'above X', 'within X to Y'")
    if found[1]:
        return [(str(text), float(found[2]), 1 if found[1] == "above" else -1)]
    if float(found[3]) >= float(found[4]):
        raise ValueError(f"rule: {text!r} holds for nothing: the first bound must be below the second")
    return [(f"above {found[3]}", float(found[3]), 1), (f"below {found[4]}", float(found[4]), -1)]


@dataclass(frozen=True)
class Statement:
    """A published statement, as in its file.

    Args:
        name: of the file.
        statement: what was published.
        source: by whom, and where.
        tests: each with ``rule`` (kind -> what), ``contestants`` and ``published`` filled in.
        setting: of a published finding; empty for others.
        numbers: what its published numbers were checked against; blank where there are none.
    """

    name: str
    statement: str
    source: str
    tests: tuple[Mapping[str, Any], ...]
    setting: Mapping[str, str]
    numbers: str = ""


def load(folder: Path = FOLDER) -> list[Statement]:
    """Read every statement, in alphabetical order of the files.

    Raises:
        ValueError: a file cannot be read or means nothing; the message names the file and the statement.
    """
    found = []
    for file in sorted(folder.glob("*.yaml")):
        try:
            content = yaml.load(file.read_text(encoding="utf-8"), Loader=Loader)
            if not isinstance(content, dict):
                raise ValueError("a file of statements has name, parts and statements")
            _check_keys(content, FILE_KEYS, MORE_FILE_KEYS, "of a file")
            found += [_statement(entry, file.stem) for entry in content["statements"]]
            if any(entry.get("setting") for entry in content["statements"]) and content["name"] != file.stem:
                raise ValueError(f"name: {content['name']!r} is not that of its file, {file.stem!r}")
        except (ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
            raise ValueError(f"{file.name}: {' '.join(str(error).split())}") from error
    return found


def _check_keys(given: Mapping[str, Any], needed: tuple[str, ...], more: tuple[str, ...], where: str) -> None:
    for key in given:
        if key not in (*needed, *more):
            raise ValueError(f"no key {key!r} {where}; known: {', '.join((*needed, *more))}")
    for key in needed:
        if not given.get(key):
            raise ValueError(f"the key {key!r} {where} is missing")


def _statement(entry: Mapping[str, Any], stem: str) -> Statement:
    try:
        _check_keys(entry, KEYS, MORE_KEYS, "of a statement")
        setting = {key: str(value) for key, value in entry.get("setting", {}).items()}
        if setting:
            _check_keys(setting, SETTING_KEYS, MORE_SETTING_KEYS, "of a setting")
        tests = tuple(_test(test) for test in entry["tests"])
        numbers = entry.get("numbers", "")
        if numbers not in (NUMBERS if any(test["published"] for test in tests) else ("",)):
            raise ValueError(f"numbers: {numbers!r} is not one of {', '.join(NUMBERS)}, or nothing is published")
    except ValueError as error:
        raise ValueError(f"{entry.get('statement', entry)!r}: {error}") from error
    return Statement(stem, str(entry["statement"]), str(entry["source"]), tests, setting, numbers)


def _test(test: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        _check_keys(test, TEST_KEYS, MORE_TEST_KEYS, "of a test")
        if test.get("take", "max") not in TAKES:
            raise ValueError(f"take: {test['take']!r} is none of {', '.join(TAKES)}")
        if test.get("as", "ratio") not in COMBINED:
            raise ValueError(f"as: {test['as']!r} is none of {', '.join(COMBINED)}")
        if test["rows"].get("metric") not in METRICS:
            raise ValueError(f"rows: metric {test['rows'].get('metric')!r} is not known")
        if "table" in test and ("take" in test or "against" in test):
            raise ValueError("a table is compared by its largest difference, without take and against")
        published = test.get("published", {})
        contestants = test.get("contestants", {name: {"encoder": name} for name in published} or {"": {}})
        for name, number in published.items():
            if name not in contestants:
                raise ValueError(f"published: {name!r} is none of the contestants {', '.join(contestants)}")
            if not isinstance(number, int | float) or isinstance(number, bool):
                raise ValueError(f"published: {name}: {number!r} is not a number")
        for name in ("factor", "delta"):
            if not float(test.get(name, 1)) > 0:
                raise ValueError(f"{name}: {test[name]!r} must be above 0")
        rule = test["rule"] if isinstance(test["rule"], dict) else {"holds": {"": test["rule"]}}
        _check_rule(rule, contestants)
    except ValueError as error:
        raise ValueError(f"test {test.get('of')!r}: {error}") from error
    return {"unit": ""} | dict(test) | {"contestants": contestants, "published": published, "rule": rule}


def _check_rule(rule: Mapping[str, Any], contestants: Mapping[str, Any]) -> None:
    if len(rule) != 1 or not set(rule) <= set(RULES):
        raise ValueError(f"rule: {rule} is not one of {', '.join(RULES)}")
    kind, what = next(iter(rule.items()))
    if kind == "holds":
        named = list(what)
        for text in what.values():
            thresholds(text)
    else:
        named = [name for group in what for name in group]
        if len(what) < 2 or not all(what):
            raise ValueError(f"rule: {kind} takes at least two groups, none of them empty")
    if len(set(named)) < len(named):
        raise ValueError(f"rule: {kind} names a contestant twice")
    if strangers := set(named) ^ set(contestants):
        raise ValueError(f"rule: {kind} and the contestants do not agree on {', '.join(sorted(strangers))}")


def comparisons(test: Mapping[str, Any]) -> Iterator[Directed]:
    """Yield what a test compares: contestants with thresholds, or each with each of all later groups."""
    kind, what = next(iter(test["rule"].items()))
    if kind == "holds":
        for name, text in what.items():
            yield from (Directed(f"{name} {words}".strip(), name, value, s) for words, value, s in thresholds(text))
        return
    times = f"{test['factor']:g} times " if "factor" in test else ""
    for earlier, later in combinations(what, 2):
        for one in earlier:
            for other in later:
                yield Directed(f"{one} {kind} than {times}{other}", one, other, 1 if kind == "higher" else -1)
