"""``seeds=until_decided``: run a sweep in looks, until its question is decided for every series or the looks are spent.

The rule is declared on the command line or in the sweep's file, before the first run, and noted with the sweep. Runs
that ended are not run again, so the same command resumes at any point.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from experiments.plan.refusal import refusing
from experiments.rows import results
from experiments.runs.status import decisions, decisions_text
from experiments.statistics.rule import Rule
from experiments.statistics.sequential import wanted

Point = tuple[str, ...]
Launched = Callable[[Mapping[Point, range]], tuple[int, dict[Point, list[Path]]]]
"""Runs points of a sweep with their seeds; returns the exit code and each point's run folders."""


def run(points: Sequence[Point], rule: Rule, first_seed: int, launch: Launched) -> int:
    """Run looks at points (without their seeds) until nothing is open; return the exit code."""
    counts, folders = dict.fromkeys(points, 0), dict[Point, list[Path]]()
    goals = dict.fromkeys(points, rule.looks[0])
    while True:
        due = {point: range(first_seed + counts[point], first_seed + goals[point]) for point in points}
        code, found = launch({point: seeds for point, seeds in due.items() if seeds})
        for point, runs in found.items():
            folders.setdefault(point, []).extend(runs)
        if code and not all((folder / "rows.csv").is_file() for runs in folders.values() for folder in runs):
            return code  # a run failed, was interrupted or refused; one that diverged has rows
        counts = goals
        places = {folder.parent.parent for runs in folders.values() for folder in runs}
        found_results = [results.load(place) for place in sorted(places)]
        with refusing():
            decided, named = decisions(found_results, rule, first_seed)
        print(f"\n{decisions_text(decided, rule, first_seed, found_results)}", flush=True)
        ended = pd.concat([each.runs for each in found_results])
        series_of = {run: (task, series) for run, task, series in ended[["run_id", "task", "series"]].to_numpy()}
        needed = wanted(decided, named)
        asked = {point: [needed.get(series_of[folder.name], 0) for folder in folders[point]] for point in points}
        goals = {point: max([counts[point], *asked[point]]) for point in points}
        if goals == counts:
            return code


def replay(found: results.Results, rule: Rule, first_seed: int) -> dict[tuple[str, str], int]:
    """Return how many seeds the rule asks for of each (task, series), deciding at each look by its own seeds alone."""
    keys = list(zip(found.rows["task"], found.rows["series"], strict=True))
    goals = dict.fromkeys(keys, rule.looks[0])
    while True:
        seen = found.rows["seed"] < first_seed + pd.Series([goals[key] for key in keys], found.rows.index)
        decided, named = decisions([replace(found, rows=found.rows[seen])], rule, first_seed)
        counts, needed = goals, wanted(decided, named)
        goals = {key: max(count, needed.get(key, 0)) for key, count in counts.items()}
        if goals == counts:
            return counts
