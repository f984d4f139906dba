"""The comparisons of a statement, tested as one family: a contestant with another, or with a threshold.

They are tested as series are (see `sequential`): Welch's test of all runs that learned, at the looks that a sweep of
the folder declared, or once where it declared none. Holm's correction covers the comparisons of a statement, so another
statement changes no verdict.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.statistics import sequential
from experiments.statistics.comparisons import BETTER, OPEN, TOO_FEW, UNDECIDED, WORSE
from experiments.statistics.rule import FEWEST, STATEMENTS, Rule
from experiments.statistics.statements.schema import FAILS, HOLDS, comparisons
from experiments.statistics.statements.values import Measured

ROUNDING = 1e-9
"""Largest difference that is put down to rounding where a test has no ``delta``."""
VERDICTS = {BETTER: HOLDS, WORSE: FAILS}


@dataclass(frozen=True)
class Comparison:
    """One comparison of a test; ``difference`` is positive in the published direction.

    Args:
        comparison: in words.
        seeds: of the last look done.
        seeds_learned: of these, that learned and have a value, of the side with fewer.
        difference: of means at the last look done, with its repeated interval from ``low`` to ``high``.
        p_holm: sequential, corrected within the statement.
        verdict: ``holds``, ``fails``, ``equal``, ``open``, ``undecided``, or the reason why it cannot be tested.
        next_look: seeds that it needs next; 0: none.
        concerns: task and series of the runs that it compares.
    """

    comparison: str
    seeds: int
    seeds_learned: int
    difference: float
    low: float
    high: float
    p_holm: float
    verdict: str
    next_look: int
    concerns: frozenset[tuple[str, str]]


def compare(
    tests: Sequence[tuple[Mapping[str, Any], Mapping[str, Measured]]],
    declared: tuple[Rule, int] | None,
    *,
    waiting: bool = False,
) -> list[list[Comparison]]:
    """Return the comparisons of each test of a statement.

    Args:
        tests: of the statement, each with what there is of its contestants; empty where it cannot be decided.
        declared: by which rule seeds were added, and the first of them; None: their number was fixed.
        waiting: runs that were asked for have not ended; a declared rule says itself what is open.
    """
    ended = {seed for _, found in tests for each in found.values() for seed in each.seeds}
    first = declared[1] if declared else min(ended, default=0)
    seeds = sorted(ended | {first + place for place in range(FEWEST)})  # what is certain has a value for as many
    rule = declared[0] if declared else Rule(STATEMENTS, looks=(seeds[-1] - first + 1,), weights=(1.0,))
    columns: list[tuple[list[float], float, int]] = []

    def add(side: Measured | float, factor: float) -> None:
        if isinstance(side, Measured) and not side.sure:
            values = [factor * float(side.values.get(seed, math.nan)) for seed in seeds]
            done = sequential.looks_done(set(side.seeds), rule, first) if declared else 1
            columns.append((values, factor**2 * side.noise, done))
        else:
            value = float(side.values.iloc[0]) if isinstance(side, Measured) else side
            columns.append(([factor * value] * len(seeds), 0.0, len(rule.looks)))

    asked = []
    for place, (test, found) in enumerate(tests):
        for each in comparisons(test) if found else ():
            one, other = found[each.one], found[each.other] if isinstance(each.other, str) else each.other
            add(one, each.sign)
            add(other, each.sign * (float(test.get("factor", 1)) if isinstance(other, Measured) else 1))
            asked.append((place, each.words, [side for side in (one, other) if isinstance(side, Measured)]))
    deltas = [tests[place][0].get("delta") for place, *_ in asked]
    lines = _judged(columns, deltas, np.array(seeds) - first, rule) if asked else []
    compared: list[list[Comparison]] = [[] for _ in tests]
    for (place, words, sides), line in zip(asked, lines, strict=True):
        verdict = VERDICTS.get(line["verdict"], line["verdict"])
        if verdict == UNDECIDED:
            few = TOO_FEW if line["seeds_learned"] < FEWEST else UNDECIDED
            verdict = OPEN if waiting and not declared else few
        numbers = ("seeds", "difference", "low", "high", "p_holm", "next_look")
        own: dict[str, Any] = {name: line[name] for name in numbers}
        learned = min(int((side.values.index < first + line["seeds"]).sum()) for side in sides)
        own |= {"comparison": words, "verdict": verdict, "seeds_learned": learned}
        compared[place].append(Comparison(**own, concerns=frozenset(key for side in sides for key in side.series)))
    return compared


def _judged(
    columns: list[tuple[list[float], float, int]], deltas: Sequence[float | None], order: sequential.Counts, rule: Rule
) -> list[dict[Any, Any]]:
    values = np.array([values for values, _, _ in columns]).T
    noise = np.broadcast_to(np.array([noise for _, noise, _ in columns]), values.shape)
    pairs = (np.arange(0, len(columns), 2), np.arange(1, len(columns), 2))
    within = np.array([float(each or rule.delta or ROUNDING) for each in deltas])
    table = sequential.tested(values, noise, pairs, np.array([done for *_, done in columns]), order, rule, within)
    table = table.assign(seeds_learned=(~np.isnan(values)).sum(axis=0).reshape(-1, 2).min(axis=1))
    return sequential.with_next_look(sequential.judged(table, rule), rule).to_dict("records")
