"""The end of a sweep on the terminal: the places that its encoders may have, and the next command."""

from collections.abc import Collection
from itertools import compress
from pathlib import Path

import pandas as pd
from tabulate import tabulate

from experiments.figures import words
from experiments.report.sections.curves import learned_only
from experiments.report.sections.fairness import advice
from experiments.rows import rungs
from experiments.rows.results import load
from experiments.rows.row import is_share, metric_of
from experiments.statistics import baselines, comparisons, sequential
from experiments.statistics.rule import BEST, STATEMENTS
from experiments.statistics.scores import UNLEARNED, scores

MOST_TASKS = 2
"""Tasks with a table here; the report has all."""
LENGTHS = (1, 2, 4, 8)
SHOWN = 12
PLACE, BETTER_THAN = "place", "better than"
UNTESTED = {BEST: {PLACE, BETTER_THAN}, STATEMENTS: set[str]()}
"""Columns that have no test behind them, by what a declared rule asks; one that asks of one series has no places."""


def text(place: Path, run_ids: Collection[str]) -> str:
    """Return what the runs that a command asked for say: a table for each of few tasks.

    Places are among all series of the folder, as on its page.
    """
    declared = baselines.declared_in(place)
    results = rungs.apart(load(place))
    found, asked = baselines.of_tasks(results, declared), results.quality["run_id"].isin(run_ids)
    tables = []
    for task in sorted(set(results.quality.loc[asked, "task"]), key=words.by_number)[:MOST_TASKS]:
        rows = results.quality[results.quality["task"] == task]
        if rows["series"].nunique() > 1:
            verdicts_of = sequential.verdicts(kept := scores(rows), declared, found.get(task))
            untested = set[str]() if declared is None else UNTESTED.get(declared[0].question, {PLACE})
            tables.append(_of_task(task, rows, kept, verdicts_of, set(rows.loc[asked, "series"]), untested))
            if failed := int((kept["status"] == UNLEARNED).sum()):
                unlearned = rows.loc[rows["converged"].eq(False), "run_id"].unique()
                tables[-1] += f"\n{failed} of {words.count(len(kept), 'run')} did not learn it. "
                tables[-1] += advice(unlearned, results.configs)
    return "\n\n".join(tables)


def _of_task(
    task: str,
    rows: pd.DataFrame,
    part: pd.DataFrame,
    found: comparisons.Family,
    asked: set[str],
    untested: Collection[str],
) -> str:
    metric, table = str(rows["metric"].iloc[0]), comparisons.standings(part, found)
    table = table[table["series"].isin(asked)]
    lengths = sorted({length for length in rows["eval_length"] if length / rows["train_length"].iloc[0] in LENGTHS})
    means = learned_only(rows).groupby(["series", "eval_length"])["value"].mean()
    share = is_share(metric)
    better = {
        name: [found.names[i] for i in wins.nonzero()[0]] for name, wins in zip(found.names, found.wins, strict=True)
    }
    lines: list[list[str]] = []
    for line in table.to_dict("records")[:SHOWN]:
        name = str(line["series"])
        values = [_value(means.get((name, length)), share) for length in lengths]
        of_seeds = part.loc[(part["series"] == name) & part["kept"].notna(), "kept"]
        seeds = " ".join(f"{100 * seed:.0f}" for seed in of_seeds)
        kept = line["status"] if line["status"] != "ok" else f"{100 * line['kept']:.0f} ({seeds})"
        if line["status"] == "ok" and line["seeds_learned"] < line["seeds"]:
            kept += f", {line['seeds_learned']} of {line['seeds']} learned"
        losers = "all others" if len(better[name]) == len(found.names) - 1 else words.few(better[name]) or "–"
        lines.append([words.span(line["place_low"], line["place_high"]), name, *values, kept, losers])
    head = [PLACE, "encoding", *map(str, lengths), "kept, % (seeds)", BETTER_THAN]
    unit = "% of tokens right" if share else metric_of(metric).label
    aligned = ["left", "left", *["right"] * len(lengths), "left", "left"]
    shown = [name not in untested for name in head]
    head, aligned, *lines = (list(compress(line, shown)) for line in (head, aligned, *lines))
    drawn = tabulate(lines, headers=head, tablefmt="plain", disable_numparse=True, colalign=aligned)
    more = f"\n{len(table) - SHOWN} more are in the report" if len(table) > SHOWN else ""
    return f"{task}: {unit} at each length, trained up to {rows['train_length'].iloc[0]}\n{drawn}{more}"


def _value(mean: float | None, share: bool) -> str:
    return "" if mean is None or mean != mean else f"{100 * mean:.0f}" if share else f"{mean:.2f}"
