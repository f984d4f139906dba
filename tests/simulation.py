"""How often intervals cover, tests are wrong, and differences are found.

``python tests/simulation.py`` prints the tables of ``docs/statistics.md``. The noise is that of our
runs: normal, skewed (gamma, skewness 1), at a ceiling (beta near 1), and one seed in five failing (two clusters). With
a results folder as argument, its own means and deviations are drawn from.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.rows.results import load
from experiments.statistics.baselines import default_baseline
from experiments.statistics.comparisons import BETTER, OPEN, WORSE
from experiments.statistics.intervals import Matrix, Vector, over_seeds
from experiments.statistics.rule import Rule
from experiments.statistics.scores import scores
from experiments.statistics.sequential import decide, wanted

Noise = Callable[[np.random.Generator, tuple[int, int]], Matrix]
NOISES: dict[str, tuple[Noise, float]] = {
    "normal": (lambda draw, shape: draw.normal(0.6, 0.05, shape), 0.6),
    "skewed": (lambda draw, shape: 0.6 + 0.05 * (draw.gamma(4, 1, shape) - 4) / 2, 0.6),
    "ceiling": (lambda draw, shape: draw.beta(50, 2, shape), 50 / 52),
    "one seed in five fails": (
        lambda draw, shape: np.where(draw.random(shape) < 0.2, 0.3, 0.9) + draw.normal(0, 0.02, shape),
        0.9,
    ),
}
"""Name -> how values of each series (line) and seed (column) are drawn, and the mean of the seeds that do not fail."""


def coverage(noise: str, seeds: int, repeats: int = 2000) -> tuple[float, float]:
    """Return how often a 95 % interval has the mean, and the share of samples that have an interval."""
    draw, mean = NOISES[noise]
    values = draw(np.random.default_rng(seeds), (repeats, seeds)).clip(0, 1)
    rows = pd.DataFrame({"value": values.ravel(), "sample": np.repeat(np.arange(repeats), seeds)})
    rows = rows.assign(seed=rows.index % seeds, metric="token_accuracy", status="ok", chance=0.0, n=0)
    found = over_seeds(rows, ["sample"])
    shown = found[found["low"].notna()]
    return float(((shown["low"] <= mean) & (mean <= shown["high"])).mean()), len(shown) / repeats


def play(values: Matrix, rule: Rule, noise: float = 0.0) -> tuple[pd.DataFrame, int]:
    """Grow a sweep by a rule; return the last decisions and the number of runs.

    Args:
        values: what is kept, of each series (line) and seed (column), as many as the last look; NaN: did not learn.
        rule: its question names a series ``s0``, ``s1``, ….
        noise: variance that the evaluation causes.
    """
    names, most = [f"s{number}" for number in range(len(values))], values.shape[1]
    table = pd.DataFrame({"task": "", "metric": "", "series": np.repeat(names, most), "kept": values.ravel()})
    table = table.assign(seed=np.tile(np.arange(most), len(values)), noise=noise)
    table["status"] = np.where(table["kept"].isna(), "did not learn", "ok")
    counts = np.full(len(values), rule.looks[0])
    while True:
        decided = decide(table[table["seed"] < np.repeat(counts, most)], rule)
        next_counts = wanted(decided, rule)
        grown = np.maximum(counts, [next_counts.get(("", name), 0) for name in names])
        if (grown == counts).all():
            return decided, int(counts.sum())
        counts = grown


def false_alarms(noise: str, series: int, repeats: int = 400, *, paired: bool = False) -> float:
    """Return how often a sweep of equal series calls any of them better or worse than the first."""
    random, rule = np.random.default_rng(series), Rule("s0", paired=paired)
    games = (play(NOISES[noise][0](random, (series, 20)).clip(0, 1), rule) for _ in range(repeats))
    return float(np.mean([decided["verdict"].isin((BETTER, WORSE)).any() for decided, _ in games]))


def power(means: Vector, deviations: Vector, rule: Rule, repeats: int = 40) -> dict[str, float]:
    """Return the share decided, the share decided wrongly and the mean number of runs, with known means."""
    random = np.random.default_rng(0)
    names = [f"s{number}" for number in range(len(means))]
    truth = dict(zip(names, np.sign(means - means[names.index(rule.question)]), strict=True))
    found = []
    for _ in range(repeats):
        decided, runs = play(random.normal(means[:, None], deviations[:, None], (len(means), 20)), rule)
        sign = decided["verdict"].map({BETTER: 1, WORSE: -1})
        wrong = sign.notna() & (sign != decided["series"].map(truth))
        found.append([float((~decided["verdict"].isin(("undecided", OPEN))).mean()), float(wrong.any()), float(runs)])
    return dict(zip(("decided", "wrong", "runs"), np.mean(found, axis=0), strict=True))


def of_folder(folder: Path) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield task and `power` against the default baseline for each task of a folder with five series or more."""
    rows = load(folder).quality
    for task, table in scores(rows).groupby("task"):
        known = table[table["status"] == "ok"].groupby("series")["kept"].agg(["mean", "std", "count"])
        known = known[known["count"] > 2]
        baseline = default_baseline(rows[rows["task"] == task])
        if len(known) > 4 and baseline in known.index:
            rule = Rule(f"s{known.index.get_loc(baseline)}")
            yield str(task), power(known["mean"].to_numpy(), known["std"].to_numpy(), rule)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python tests/simulation.py", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="results whose means and deviations are drawn from")
    folder = parser.parse_args().folder
    cells = {noise: [coverage(noise, seeds) for seeds in (3, 5, 8)] for noise in NOISES}
    shown = {noise: [f"{cover:.3f} ({share:.0%})" for cover, share in line] for noise, line in cells.items()}
    _table("Coverage of the 95 % interval (share of samples that have one)", shown, ["3 seeds", "5 seeds", "8 seeds"])
    for paired in (False, True):
        alarms = {
            noise: [f"{false_alarms(noise, series, paired=paired):.3f}" for series in (6, 20, 40)] for noise in NOISES
        }
        title = f"False alarms of the sequential rule in any comparison{', paired' * paired}"
        _table(title, alarms, ["6 series", "20 series", "40 series"])
    if folder is not None:
        decided = {
            task: [f"{line['decided']:.2f}", f"{line['wrong']:.3f}", f"{line['runs']:.0f}"]
            for task, line in of_folder(folder)
        }
        _table(
            f"Against the default baseline, with the means and deviations of {folder}",
            decided,
            ["decided", "any wrong", "runs"],
        )


def _table(title: str, lines: dict[str, list[str]], heads: list[str]) -> None:
    print(f"\n{title}\n\n{pd.DataFrame.from_dict(lines, orient='index', columns=heads).to_markdown()}", flush=True)


if __name__ == "__main__":
    main()
