"""What a person reads on the terminal when a run has ended."""

import itertools
import math
import shlex
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from tabulate import tabulate

from experiments.figures import words
from experiments.measures import has_report, report_of
from experiments.measures.context_extension import TEXTS
from experiments.measures.permutation_sensitivity import Change
from experiments.measures.retrieval.answer import MEASURES as ABOUT_PLACES
from experiments.measures.retrieval.answer import Answer as Places
from experiments.measures.retrieval.answer import answer as answer_places
from experiments.rows.read import read_run, refusals, used_as
from experiments.rows.row import KEEPS, OVER_LENGTHS, Row, frame, lost, main_metric, slice_name
from experiments.rows.untrusted import read_mapping
from experiments.runs.folder import record_of
from experiments.runs.outcome import Outcome
from experiments.tasks import tasks
from experiments.training.heartbeat import span

if TYPE_CHECKING:
    from experiments.measures.context_extension.answer import Answer

TABLED = ("training", "tuning", "length_extrapolation", "permutation_sensitivity")
"""Experiments with lines of their own here, and the training curve."""
LINES = 16
"""Lines of an experiment; its rows and figures have the rest."""
GUESSES = 0.05
"""Share at which it guesses."""
BLIND = 1e-4
"""Share of the outputs by which a model that sees no order differs at most, from rounding."""
CHANGES = ("shuffle", "reversal", "rotation", "adjacent swaps 10%", "adjacent swaps 50%", "shuffle within 4")
"""Changes of order that are shown: far and near."""
OTHERS = "none,{},rope"
"""What a run's encoder is compared with in the next command."""
SET_ANEW = ("encoder", "seed", "seeds", "name", "workers", "figures", "force")
"""Options that the next command does not take over."""
FREE_RUNNING = "generated_token_accuracy"
NOT_RUN = {
    "finished before": "{run_id} finished before; force=true repeats it",
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
            why = f": {outcome.message}" * (outcome.message != outcome.status)
            print(f"  {outcome.status}: {outcome.run_id}{why}")


def show(outcome: Outcome, *, brief: bool = False) -> None:
    """Print how a run ended, its main numbers and where its files are; ``brief``: not those of an earlier command."""
    if outcome.status == "finished before" and not brief:
        _show_results(outcome)
    if line := NOT_RUN.get(outcome.status):
        print(line.format(**vars(outcome)))
    elif line := ERRORS.get(outcome.status):
        print(line.format(**vars(outcome)), file=sys.stderr)
    elif outcome.status != "refused":
        _show_results(outcome)


def headline(outcome: Outcome) -> str:
    """Return a line on what a run that ended has shown."""
    record = record_of(outcome.folder)
    if record is None or outcome.status not in ("ok", "diverged", "finished before"):
        return f"{outcome.run_id}: {outcome.status} {outcome.message}".rstrip()
    name = "{encoder} on {task}, seed {seed}".format(**record)
    if wide := read_mapping(outcome.folder / "config.yaml", outcome.folder)["model"].get("as_many_as"):
        name += f", with as many parameters as {wide}"
    if record["positions"] != "sequential":
        name += f", positions {record['positions']}"
    if outcome.status == "diverged":
        return f"{name}: diverged, {outcome.message}"
    outside = record.get("checkpoint")
    name += f", with {held} by pe_zoo.hf.use" if (held := used_as(record)) else ""
    if outside and (told := _told(outcome, record)):
        return told.heading
    if not record["trained"] and not outside:
        return f"{name}: not trained"
    if not (lengths := _lengths(_rows(outcome))):
        if outside:
            places = _places(outcome)
            return places.heading if places else f"{name}: measured as it is"
        return f"{name}: learned" if record["converged"] else f"{name}: did NOT learn the task"
    in_range = max(row.eval_length for row in lengths if row.eval_length <= row.train_length)
    known = next(row for row in lengths if row.eval_length == in_range)
    if outside and not _does_its_task(known):
        return f"{name}: does NOT do the task ({_right(known)} at length {in_range}, {_guess(known)})"
    if not record["converged"] and not outside:
        checked = known if record["in_range"] is None else replace(known, value=record["in_range"])
        right = f"{_right(checked, 1)} at the last check"
        from_here = f"learned from {100 * needed:g} % on, " if (needed := _needed(known)) is not None else ""
        return f"{name}: did NOT learn the task ({right}, {from_here}{_guess(known)})"
    works = _works(lengths)
    text = f"{name}: learned, works up to {works}"
    if outside:
        text = f"{name}: {_right(known)} at length {in_range}" + f", as good up to {works}" * (works > in_range)
    if fails := _fails(lengths):
        return f"{text}; at length {fails.eval_length}, {_right(fails)} ({_guess(fails)})"
    return text + ", the longest measured" * (works > in_range or not outside)


def _told(outcome: Outcome, record: dict[str, Any]) -> "Answer | None":
    """Return what a run says of how a model from outside reads longer texts, if that was measured."""
    rows = _rows(outcome)
    if not any(row.experiment == "context_extension" for row in rows):
        return None
    from experiments.measures.context_extension.answer import answer  # with scipy

    given = shlex.split(record["command"])
    text = next((word for word in given if word.partition("=")[0] in TEXTS), None)
    return answer(frame(rows), record, text)


def _places(outcome: Outcome) -> Places | None:
    """Return what a run says of where a model from outside finds things, if that was measured."""
    rows = [row for row in _rows(outcome) if row.experiment in ABOUT_PLACES]
    return answer_places(frame(rows)) if rows else None


def _does_its_task(row: Row) -> bool:
    """Whether a model that nobody trained here is as good in range as one that counts as having learned the task."""
    if row.status != "ok":
        return False
    if (needed := _needed(row)) is not None:
        return row.value >= needed
    return math.isnan(row.chance) or lost(row.metric, row.value, row.chance) > 0


def _rows(outcome: Outcome) -> list[Row]:
    """Return the measurements of a run that ended well, now or before."""
    if outcome.status != "finished before":
        return outcome.rows
    table = read_run(outcome.folder, outcome.folder.parent.parent)[2] or {}
    return [Row(**dict(zip(table, line, strict=True))) for line in zip(*table.values(), strict=True)]


def _lengths(rows: Iterable[Row]) -> list[Row]:
    """Return the task's quality over lengths; nothing where no length in range was measured."""
    whole = [row for row in rows if row.experiment == OVER_LENGTHS and row.position is row.step is row.part is None]
    main = main_metric(row.metric for row in whole)
    found = sorted((row for row in whole if row.metric == main), key=lambda row: row.eval_length)
    return found if any(row.eval_length <= row.train_length and row.status == "ok" for row in found) else []


def _kept(row: Row, lengths: list[Row]) -> float:
    in_range = [each for each in lengths if each.eval_length <= each.train_length][-1]
    above = in_range.value - in_range.chance
    return (row.value - row.chance) / above if above else math.nan


def _works(lengths: list[Row]) -> int:
    """Return the longest length up to which the model works."""
    trained = [row.eval_length for row in lengths if row.eval_length <= row.train_length][-1]
    longer = (row for row in lengths if row.eval_length > trained)
    beyond = itertools.takewhile(lambda row: _kept(row, lengths) >= KEEPS, longer)
    return max([trained, *(row.eval_length for row in beyond)])


def _fails(lengths: list[Row]) -> Row | None:
    """Return the first length at which the model works no longer."""
    works = _works(lengths) if lengths else 0
    return next((row for row in lengths if row.eval_length > works), None)


def _right(row: Row, digits: int = 0) -> str:
    if row.status != "ok":
        return row.status
    if row.metric == "bits_per_byte":
        return f"{row.value:.3f} bits per byte"
    return f"{_percent(row, digits)} % of tokens are right"


def _needed(row: Row) -> float | None:
    """Return the share of tokens from which on the row's task counts as learned, where that is what decides."""
    name = row.task.partition("(")[0]
    return tasks.get(name).converged_at if row.metric == "token_accuracy" and name in tasks.names() else None


def _guess(row: Row) -> str:
    return f"guessing: {row.chance:.2f}" if row.metric == "bits_per_byte" else f"chance {100 * row.chance:.0f} %"


def _percent(row: Row, digits: int = 0) -> str:
    return row.status if math.isnan(row.value) else f"{100 * row.value:.{digits}f}"


def meaning(lengths: list[Row], converged: bool | None) -> str:
    """Return what qualities over lengths mean, in words."""
    if not converged:
        return "It did not learn its task, so nothing here is about extrapolation."
    beyond = [row for row in lengths if row.eval_length > row.train_length and row.status == "ok"]
    if not beyond:
        return ""
    trained, works = lengths[0].train_length, _works(lengths)
    far = (
        f"This model extrapolates, keeping at least {100 * KEEPS:.0f} % of its quality (what it has above guessing), to"
    )
    if works >= beyond[-1].eval_length:
        return f"{far} all measured, {works / trained:g} times the longest in training."
    guesses = next((row.eval_length for row in beyond if _kept(row, lengths) <= GUESSES), None)
    end = f"; from {guesses} on it keeps next to none" if guesses else ""
    if works > trained:
        return f"{far} {works / trained:.3g} times the longest length in training{end}."
    first, kept = beyond[0].eval_length, max(0.0, _kept(beyond[0], lengths))
    share = f"{100 * kept:.0f} % of its quality, what it has above guessing"
    return f"This model does not extrapolate: at {first}, beyond those trained, it keeps {share}{end}."


def _show_results(outcome: Outcome) -> None:
    record, rows = record_of(outcome.folder), _rows(outcome)
    assert record is not None, "read or written just now"
    print(f"\n{headline(outcome)}")
    told = _told(outcome, record) if record.get("checkpoint") else None
    places = _places(outcome) if record.get("checkpoint") else None
    if told:
        _show_answer(told)
    for sentence in places.sentences if places else ():
        print(textwrap.fill(sentence, 110))
    lengths = _lengths(rows)
    if lengths:
        _show_lengths(rows, lengths)
        if text := meaning(lengths, record["converged"]) if record["trained"] else "":
            print(textwrap.fill(text, 110))
    _show_changes(rows, record["trained"])
    shown = {*TABLED, *(told.covers if told else ())}
    shown |= {*ABOUT_PLACES} if places and not places.known else set()
    if others := [row for row in rows if row.experiment not in shown]:
        _show_others(others, record)
    if told and "context_use" in told.covers & {row.experiment for row in rows}:
        print("\ncontext_use read other windows: python report.py shows it on the page of method and data")
    if record["tuning"]:
        print(f"rate      {_tuned(record['tuning'])}")
    spent = f"measuring {span(record['measure_seconds'])}, on {record['device']}"
    if record["trained"]:
        spent = f"training {span(record['train_seconds'])} ({record['tokens_per_second'] or 0:,.0f} tokens/s), {spent}"
        stopped = {"max_steps": "train.max_steps", "converged": "convergence"}.get(record["stopped"] or "")
        spent += f"; ended after {record['steps']:,} steps" + (f" by {stopped}" if stopped else "")
    print(f"\ntime      {spent}")
    if "-m" not in shlex.split(record["command"]):
        if lengths and record["converged"]:
            print("One seed says nothing about which encoding is better.")
        print("\n" + _next(record, outcome.folder.parent.parent.name))
        if look := _look(record, outcome.folder, lengths):
            print(f"look      {look}")
    drawn = len(list((outcome.folder / "figures").glob("*")))
    print(f"files     {outcome.folder}" + (f", {words.count(drawn, 'picture')} in figures/" if drawn else ""))


def _show_answer(told: "Answer") -> None:
    """Print what to do with a saved model, the lines to type, and then why."""
    for sentence in told.advice:
        print(textwrap.fill(sentence, 110))
    if told.rankings:
        _print(told.table)
    if told.code:
        print("\n" + "\n".join(told.code))
    if told.command:
        print(f"\n{textwrap.fill(told.next, 110)}\n\n{told.command}")
    if told.evidence:
        print("\nWhy, and how sure that is")
    for sentence in told.evidence:
        print(textwrap.fill(sentence, 110, initial_indent="- ", subsequent_indent="  "))


def _show_others(rows: list[Row], record: Mapping[str, Any]) -> None:
    from experiments.statistics.intervals import with_series  # with scipy, which most runs need not wait for

    for name in dict.fromkeys(row.experiment for row in rows):
        table = with_series(frame(row for row in rows if row.experiment == name))
        shown = report_of(name).shown(table) if has_report(name) else _plain(table)
        lines = [
            (line["head"], words.measured(line["value"]) if line["status"] == "ok" else line["status"])
            for line in shown.head(LINES).to_dict("records")
        ]
        _print([(name.replace("_", " "), ""), *dict.fromkeys(lines)])
        if "meaning" in shown:
            meant = shown.head(LINES).drop_duplicates("head")
            for line in meant.to_dict("records"):
                print(textwrap.fill(f"{line['head']}: {line['meaning']}", 110, subsequent_indent="  "))
        if (shown["status"] != "ok").any():
            print("\n".join(textwrap.fill(f"unsupported: {why}", 110) for why in refusals(record, name)))
        if len(shown) > LINES:
            print(f"{len(shown) - LINES} more are in rows.csv")


def _plain(table: pd.DataFrame) -> pd.DataFrame:
    lines = table.to_dict("records")
    where = [", ".join(filter(None, (f"at {line['eval_length']}", slice_name(line)))) for line in lines]
    return table.assign(head=[f"{line['metric']} {place}" for line, place in zip(lines, where, strict=True)])


def _next(record: dict[str, Any], folder: str) -> str:
    """Return the command to type next: a comparison, or more training where the task was not learned."""
    if record.get("checkpoint"):
        return f"report    python report.py results/{folder}"
    own = [word for word in shlex.split(record["command"])[2:] if word != "-m" and not word.startswith("+")]
    chosen = [word for word in own if word.partition("=")[0] not in SET_ANEW]
    name = record["choice"] or record["encoder"]
    if record["trained"] and not record["converged"]:
        chosen = [word for word in chosen if not word.startswith("train.steps=")]
        typed = [f"encoder={name}", f"seed={record['seed']}", *chosen, f"train.steps={2 * (record['steps'] or 1)}"]
        return f"longer    {shlex.join(['python', 'run.py', *typed])}"
    names = ",".join(dict.fromkeys(OTHERS.format(name).split(",")))
    theirs = any(word.startswith("plugin=") for word in chosen)
    lengths = all(OVER_LENGTHS in word for word in chosen if word.startswith("experiment="))
    seeds = ["seeds=until_decided", f"against={name}"] if theirs and lengths else ["seed=0,1,2"]
    typed = ["python", "run.py", "-m", f"encoder={names}", *seeds, *chosen, "name=compared"]
    return f"compare   {shlex.join(typed)}\n          then: python report.py results/compared"


def _look(record: Mapping[str, Any], folder: Path, lengths: list[Row]) -> str:
    """Return the command that shows what the model answers where it fails; empty if it does not, or has no weights."""
    fails = _fails(lengths) if record["converged"] else None
    if not fails or fails.metric != "token_accuracy" or not (folder / "model.safetensors").is_file():
        return ""
    plugins = (word for word in shlex.split(record["command"]) if word.startswith("plugin="))
    return shlex.join(["python", "-m", "experiments", "answers", str(folder), str(fails.eval_length), *plugins])


def _show_lengths(rows: list[Row], lengths: list[Row]) -> None:
    """Print qualities at all lengths, with a bar behind the longest in training."""
    trained, main = lengths[0].train_length, lengths[0].metric
    labels = {"bits_per_byte": "bits", "token_accuracy": "right, %", "exact_match": "whole, %", FREE_RUNNING: "free, %"}
    columns = [row.eval_length for row in lengths]
    grid = [["length", *map(str, columns)]]
    for metric in (main, "exact_match", FREE_RUNNING):
        measured = [row for row in rows if row.experiment == OVER_LENGTHS and row.step is row.part is None]
        of = {row.eval_length: row for row in measured if row.metric == metric}
        if of:
            cells = [f"{row.value:.3f}" if metric == "bits_per_byte" else _percent(row) for row in of.values()]
            grid.append([labels[metric], *(dict(zip(of, cells, strict=True)).get(length, "") for length in columns)])
    split = sum(length <= trained for length in columns) + 1
    lines = [[*line[:split], "|", *line[split:]] for line in grid]
    drawn = tabulate(lines, tablefmt="plain", disable_numparse=True, colalign=("left",), stralign="right")
    guess = f"   {_guess(lengths[-1])}"
    legend = "right: tokens after the true ones; whole: sequences without a mistake"
    legend += "; free: tokens after the model's own" if any(line[0] == labels[FREE_RUNNING] for line in grid) else ""
    print("\n" + drawn.replace("\n", guess + "\n", 1))
    if len(grid) > 2:
        print(legend)


def _show_changes(rows: list[Row], trained: bool) -> None:
    """Print what a few changes of order cost, of the tokens and of the positions alone; and whether any is seen."""
    lost = {
        Change(row.condition, row.size, row.share).name: row.value
        for row in rows
        if row.experiment == "permutation_sensitivity" and row.metric == "quality_loss" and row.status == "ok"
    }
    lines = []
    for name in (name for name in CHANGES if name in lost):
        both = [-100 * lost.get(key, math.nan) for key in (name, f"positions: {name}")]
        lines.append([name, *(words.fixed(points, "+.0f") for points in both)])
    if lines and trained:
        _print([["changed order: points of accuracy", "tokens moved", "positions alone"], *lines])
        print("another question: what it costs when tokens of the input change places, or the positions they are given")
    seen = {row.metric: row.value for row in rows if row.condition == "shuffle" and row.status == "ok"}
    if not trained and (error := seen.get("equivariance_error")) is not None:
        blind = ": it is blind to order" if error < BLIND else ": it sees order"
        print(f"\nWhen its input is shuffled, outputs move along, and change by {100 * error:.2g} %{blind}.")


def _tuned(tuning: dict[str, Any]) -> str:
    tried = f"of {', '.join(map(str, tuning['grid']))} in {tuning['seconds']:.0f} s"
    if tuning["chosen"] is None:
        return f"no learning rate {tried} gave a finite loss"
    edge = ", at the edge" if tuning["at_edge"] else ""
    return f"learning rate {tuning['chosen']} {tried}{edge}"


def _print(grid: list[Any]) -> None:
    print("\n" + tabulate(grid[1:], grid[0], "simple", disable_numparse=True, colalign=("left",), stralign="right"))
