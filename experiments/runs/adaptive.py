"""``seeds=until_decided``: run a sweep in looks, until its question is decided for every series or the looks are spent.

The rule is declared on the command line or in the sweep's file, before the first run, and noted with the sweep. Runs
that ended are not run again, so the same command resumes at any point.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from experiments.plan.request import BadRequest
from experiments.rows import results
from experiments.rows.results import Results
from experiments.runs.status import decisions, decisions_text
from experiments.statistics.sequential import Rule, wanted

Point = tuple[str, ...]
Asked = tuple[Point, int, int]
"""A point, the first seed that it is to be run with, and how many from there on."""
Launched = Callable[[Iterable[Asked]], tuple[int, dict[Point, list[Path]]]]
"""Runs points of a sweep; returns the exit code and each point's run folders."""


def run(points: Sequence[Point], rule: Rule, first_seed: int, launch: Launched) -> int:
    """Run looks until nothing is open; return the exit code.

    Args:
        points: of the sweep, without their seeds.
        rule: declared for it.
        first_seed: of every point.
        launch: runs some points.
    """
    counts, folders = dict.fromkeys(points, 0), dict[Point, list[Path]]()
    goals = dict.fromkeys(points, rule.looks[0])
    while True:
        due = [point for point in points if goals[point] > counts[point]]
        code, found = launch((point, first_seed + counts[point], goals[point] - counts[point]) for point in due)
        for point, runs in found.items():
            folders.setdefault(point, []).extend(runs)
        if code and not all((folder / "rows.csv").is_file() for runs in folders.values() for folder in runs):
            return code  # a run failed, was interrupted or refused; one that diverged has rows
        counts = goals
        places = {folder.parent.parent for runs in folders.values() for folder in runs}
        found_results = [results.load(place) for place in sorted(places)]
        try:
            decided, named = decisions(found_results, rule, first_seed)
        except ValueError as error:
            raise BadRequest(str(error)) from error
        print(f"\n{decisions_text(decided, rule)}", flush=True)
        needed = _needed(wanted(decided, named), found_results, folders)
        goals = {point: max(counts[point], needed[point]) for point in points}
        if goals == counts:
            return code


def _needed(
    goals: Mapping[tuple[str, str], int], found: Sequence[Results], folders: Mapping[Point, Sequence[Path]]
) -> dict[Point, int]:
    """Return how many seeds each point needs."""
    runs = pd.concat([each.runs for each in found]).set_index("run_id")
    series_of = dict(zip(runs.index, zip(runs["task"], runs["series"], strict=True), strict=True))
    return {
        point: max(goals.get(series_of[folder.name], 0) for folder in of_point) for point, of_point in folders.items()
    }
