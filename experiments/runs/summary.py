"""What a person reads on the terminal when a run has ended."""

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd
from tabulate import tabulate

from experiments.figures import words
from experiments.measures import has_report, report_of
from experiments.measures.permutation_sensitivity import Change
from experiments.rows.row import Row, frame, main_metric, metric_of, slice_name
from experiments.runs.folder import record_of
from experiments.runs.outcome import Outcome
from experiments.statistics.intervals import with_series
from experiments.statistics.scores import DOUBLINGS, scores

TABLED = ("training", "tuning", "length_extrapolation", "permutation_sensitivity")
"""Experiments with a table or a line of their own here, and the training curve."""
MOST = 12
"""Rows that are shown of a measure without a table of its own."""
LOSSES = ("quality_loss", "output_change", "initial_output_change", "equivariance_error")
NOT_RUN = {
    "finished before": "{run_id} finished before; force=true repeats it. files: {folder}",
    "diverged before": "{run_id} finished before, diverged: {message}; force=true repeats it. files: {folder}",
    "running elsewhere": "{run_id} {message}; skipped",
}
ERRORS = {
    "failed before": "error: {run_id} failed before ({message}); retry=failed repeats it",
    "interrupted": "{run_id} {message}; started again, it resumes",
    "unwritten": "error: {run_id}: {message}; fix that and start it again",
    "failed": "error: {run_id} failed: {message} (traceback in {folder}/run.log)",
}
"""What to print of a run by its status, on standard output and standard error."""


def exit_code(outcome: Outcome) -> int:
    """Return 0 where the run ended well, now or before, or is another worker's; 1 where it did not."""
    return int(outcome.status not in ("ok", "finished before", "running elsewhere"))


def tally(outcomes: list[Outcome]) -> None:
    """Print a line for a sweep, and one for each run that did not end well."""
    counts = Counter({"ok": "done"}.get(outcome.status, outcome.status) for outcome in outcomes)
    if counts.total() < 2 or set(counts) == {"refused"}:
        return
    print(f"\n{counts.total()} runs: {', '.join(f'{count} {status}' for status, count in counts.items())}")
    for outcome in outcomes:
        if exit_code(outcome) and outcome.status not in ("refused", "not begun"):
            print(f"  {outcome.status}: {outcome.run_id}: {outcome.message}")


def show(outcome: Outcome) -> None:
    """Print how a run ended, its main numbers and where its files are."""
    if line := NOT_RUN.get(outcome.status):
        print(line.format(**vars(outcome)))
    elif line := ERRORS.get(outcome.status):
        print(line.format(**vars(outcome)), file=sys.stderr)
    elif outcome.status != "refused":
        _show_results(outcome)


def _show_results(outcome: Outcome) -> None:
    record, rows = record_of(outcome.folder), outcome.rows
    assert record is not None, "written just now"
    if record["trained"]:
        learned = "learned in range" if record["converged"] else "NOT learned in range, so read the rest with care"
        trained = f"trained {record['train_seconds']:.0f} s at {record['tokens_per_second'] or 0:,.0f} tokens/s"
        if record["tuning"]:
            trained = f"{_tuned(record['tuning'])}, {trained}"
        if record["stopped"] in ("max_steps", "converged"):
            trained += f", stopped after {record['steps']} steps ({record['stopped'].replace('_', ' ')})"
    else:
        learned = trained = "not trained"
    print("\n{encoder} on {task}, positions {positions}, seed {seed}".format(**record), learned, sep=": ")
    print(f"{trained}, measured {record['measure_seconds']:.0f} s, on {record['device']}")
    if outcome.message:
        print(f"{outcome.status}: {outcome.message}")
    train_length = rows[0].train_length if rows else 0
    whole = [row for row in rows if row.experiment == "length_extrapolation" and row.position is None]
    _table(whole, lambda row: row.eval_length, f"length (trained on up to {train_length})")
    main = main_metric(row.metric for row in whole)
    if main and (line := _kept(whole, main, record["converged"])):
        print(line)
    permuted = [row for row in rows if row.experiment == "permutation_sensitivity" and row.metric in LOSSES]
    title = f"order of the input (length {train_length})"
    _table(permuted, lambda row: Change(row.condition, row.size, row.share).name, title, upright=True)
    for name in dict.fromkeys(row.experiment for row in rows if row.experiment not in TABLED):
        table = with_series(frame(row for row in rows if row.experiment == name))
        shown = report_of(name).shown(table) if has_report(name) else _plain(table)
        lines = [
            (line["head"], f"{line['value']:.3g}" if line["status"] == "ok" else line["status"])
            for line in shown.to_dict("records")
        ]
        _print([(name.replace("_", " "), ""), *lines])
    print(f"files: {outcome.folder}")


def _plain(table: pd.DataFrame) -> pd.DataFrame:
    table = table.head(MOST)
    lines = table.to_dict("records")
    where = [", ".join(filter(None, (f"at {line['eval_length']}", slice_name(line)))) for line in lines]
    return table.assign(head=[f"{line['metric']} {place}" for line, place in zip(lines, where, strict=True)])


def _kept(rows: list[Row], main: str, converged: bool | None) -> str:
    table = scores(frame(row for row in rows if row.metric == main).assign(converged=converged)).to_dict("records")
    if not table or table[0]["status"] != "ok":
        return ""
    shares = {by: table[0][f"kept_{by}"] for by in DOUBLINGS}
    kept = [f"×{by} {words.fixed(share)}" for by, share in shares.items() if not math.isnan(share)]
    return f"quality kept at {', '.join(kept)} of the training length (1: as in range, 0: the best guess)"


def _tuned(tuning: dict[str, Any]) -> str:
    tried = f"of {', '.join(map(str, tuning['grid']))} in {tuning['seconds']:.0f} s"
    if tuning["chosen"] is None:
        return f"no learning rate {tried} gave a finite loss"
    edge = ", at the edge" if tuning["at_edge"] else ""
    return f"learning rate {tuning['chosen']} {tried}{edge}"


def _table(rows: Iterable[Row], across: Callable[[Row], object], title: str, *, upright: bool = False) -> None:
    """Print metrics by lengths or conditions; ``upright`` puts the metrics on top."""
    cells: dict[str, dict[object, str]] = {}
    for row in rows:
        value = row.status if math.isnan(row.value) else f"{row.value:.3f}"
        cells.setdefault(metric_of(row.metric).label, {})[across(row)] = value
    if not cells:
        return
    columns = list(dict.fromkeys(key for line in cells.values() for key in line))
    lines = [[label, *(line.get(column, "") for column in columns)] for label, line in cells.items()]
    grid = [[title, *map(str, columns)], *lines]
    _print(list(zip(*grid, strict=True)) if upright else grid)


def _print(grid: list[Any]) -> None:
    aligned = ("left", *["right"] * (len(grid[0]) - 1))
    print("\n" + tabulate(grid[1:], headers=grid[0], tablefmt="simple", disable_numparse=True, colalign=aligned))
