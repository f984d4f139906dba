"""How far the runs of a folder are, and the command that completes those that are not done."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas as pd
from scipy.stats import norm
from tabulate import tabulate

from experiments.figures import words
from experiments.rows import sweeps as sweep_notes
from experiments.rows.read import FINISHED, read_run, run_folders, training_seconds
from experiments.rows.results import Results, load
from experiments.rows.untrusted import check_file, name_of
from experiments.runs import lease
from experiments.statistics.baselines import find_baseline
from experiments.statistics.comparisons import BETTER, UNDECIDED, WORSE
from experiments.statistics.intervals import SIGNIFICANCE
from experiments.statistics.rule import BEST, NEEDS_LENGTHS, STATEMENTS, Rule, declared_rule
from experiments.statistics.scores import scores
from experiments.statistics.sequential import decide, wanted
from experiments.statistics.statements import schema, verdicts

WIDTH = 100
LISTED = 20
"""Runs named of one state; the report's table of runs has them all."""
UNFINISHED = ("running", "interrupted", "missing")
STATES = {
    "done": "",
    "running": "Nothing to do. If its worker stops, the same command resumes it:",
    "interrupted": "To resume:",
    "failed": "To retry:",
    "diverged": "The same configuration would diverge again. Changed settings are other runs.",
    "unreadable": "Move their folders away, then:",
    "missing": "To begin:",
}
"""The states of a run, and what to do about each; a colon stands before a command."""


@dataclass(frozen=True)
class Standing:
    """The state of one run, a key of `STATES`, and why it is in it."""

    run_id: str
    state: str
    reason: str
    command: str
    """What completes it; blank where it is done, or where nobody knows."""
    seconds: float | None
    """Of training and measuring, so far as they are recorded."""


def standings(folder: Path) -> tuple[list[Standing], list[sweep_notes.Sweep], list[str]]:
    """Return every run of a folder, the sweeps that asked for them, and a line for each unreadable note of a sweep."""
    places: list[Path] = []
    nothing: ValueError | None = None
    try:
        places = run_folders(folder)  # unpacks what is packed, notes of sweeps too
    except ValueError as reason:
        nothing = reason
    sweeps, broken = sweep_notes.read(folder)
    sweeps = sweeps or sweep_notes.read(folder, planned=True)[0]
    commands = sweep_notes.asked(sweeps)
    if nothing and not commands:
        raise nothing
    runs = [_standing(place, folder, commands) for place in places]
    for run in sorted(set(commands) - {standing.run_id for standing in runs}):
        runs.append(Standing(run, "missing", "asked for, not begun", sweep_notes.to_type(commands[run]), None))
    return runs, sweeps, broken


def _standing(place: Path, folder: Path, commands: dict[str, str]) -> Standing:
    record: dict[str, Any] = read_run(place, folder)[0]
    state, reason = str(record["status"]), str(record.get("message") or "")
    if state in ("running", "unfinished"):
        worker = None
        with suppress(OSError, ValueError):
            for lock in place.glob(lease.PATTERN):  # a folder from elsewhere may hold any file
                check_file(lock, folder)
            worker = lease.holder(place)
        state = "running" if worker else "interrupted"
        reason = f"by {name_of(worker)}" if worker else reason.partition(":")[0] or "no end is recorded"
    state = {"ok": "done"}.get(state, state)
    command = sweep_notes.to_type(commands.get(record["run_id"]) or record.get("command"))
    if not STATES.get(state, ":").endswith(":"):
        command = ""
    elif command and state == "failed":
        command += " retry=failed"
    spent = [each for each in (training_seconds(record), record.get("measure_seconds")) if each is not None]
    return Standing(record["run_id"], state, reason, command, sum(spent) if spent else None)


def text(folder: Path) -> str:
    """Return what ``--status`` prints: counts, time, then every run that is not done; ValueError if there is none."""
    runs, sweeps, broken = standings(folder)
    counts = Counter(run.state for run in runs)
    table = [[state, counts[state]] for state in STATES if counts[state]]
    parts = [
        f"{words.count(len(runs), 'run')} in {folder}" + ("" if sweeps else "; no sweep is noted there"),
        tabulate([*table, ["in all", len(runs)]], headers=["state", "runs"], tablefmt="simple"),
        "\n".join([*_time(runs, sweeps), *(f"Not readable: {line}" for line in broken)]),
    ]
    if declared := declared_rule(sweep.rule for sweep in sweeps):
        try:
            found = [load(folder)]
            parts.append(decisions_text(decisions(found, *declared)[0], *declared, found))
        except ValueError as error:  # until runs of both sides have ended
            parts.append(f"Nothing to decide yet: {error}")
        ended = {run.run_id.rpartition("-seed")[0] for run in runs if run.state not in UNFINISHED}
        if waiting := sorted({run.run_id.rpartition("-seed")[0] for run in runs} - ended):
            parts[-1] += f"\nNo run has ended yet of {words.few(waiting)}, which are counted in none of this."
    told: set[str] = set()
    for state, advice in STATES.items():
        of_state = [run for run in runs if run.state == state] if advice else []
        if state == "missing" and counts["running"]:
            advice = "The sweep that is at work begins them. If it was stopped:"
        for command in dict.fromkeys(run.command for run in of_state):
            alike = [run for run in of_state if run.command == command]
            parts.append(_group(state, advice, "the same command" if command in told else command, alike))
            told |= {command} - {""}
    return "\n\n".join(parts)


def _time(runs: list[Standing], sweeps: list[sweep_notes.Sweep]) -> list[str]:
    spent = sum(run.seconds for run in runs if run.seconds is not None)
    lines = [f"Runs that have ended took {_span(spent)}, all machines together."] * bool(spent)
    done = [run.seconds for run in runs if run.state == "done" and run.seconds is not None]
    left = sum(run.state in UNFINISHED for run in runs)
    if left and done:
        mean = sum(done) / len(done)
        each = f"{words.count(left, 'run')} at {_span(mean)}, the mean of the {len(done)} done"
        now = sum(run.state == "running" for run in runs)
        beside = f", or {_span(mean * left / now)} with {now} at a time, as now" if now > 1 else ""
        lines.append(f"About {_span(mean * left)} left, workers added up{beside}: {each}.")
    elif left and (planned := [sweep for sweep in sweeps if sweep.seconds is not None]):
        seconds, count = sum(sweep.seconds or 0.0 for sweep in planned), sum(len(sweep.runs) for sweep in planned)
        lines.append(f"About {_span(seconds)} for {words.count(count, 'run')}, workers added up, as --plan estimated.")
    return lines


def _span(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds))) if abs(seconds) < 1e11 else "unknown"


def _group(state: str, advice: str, command: str, runs: list[Standing]) -> str:
    lines = [[run.run_id, run.reason] for run in runs] if state != "missing" else _by_setting(runs)
    if len(lines) > LISTED:
        lines[LISTED:] = [[f"and {len(lines) - LISTED} more", ""]]
    room = max(WIDTH - max(len(line[0]) for line in lines) - 2, 30)
    head = [f"{words.count(len(runs), 'run')} {state}", "reason"]
    table = tabulate(lines, headers=head, tablefmt="simple", disable_numparse=True, maxcolwidths=[None, room])
    if not advice.endswith(":"):
        return f"{table}\n{advice}"
    return f"{table}\n{advice}\n  {command}" if command else f"{table}\nThe command that asked for them is not known."


def _by_setting(runs: list[Standing]) -> list[list[str]]:
    """Return the runs that differ in their seed, or in settings that their ids do not name, in one line each."""
    alike: dict[str, list[str]] = {}
    for run in runs:
        name, _, rest = run.run_id.partition("-seed")
        alike.setdefault(name, []).append(rest.partition("-")[0])
    lines = []
    for name, seeds in alike.items():
        which = f"seed{'s' * (len(set(seeds)) > 1)} {', '.join(sorted(set(seeds), key=words.by_number))}"
        more = f", {words.count(len(seeds), 'run')}" * (len(seeds) > len(set(seeds)))
        lines.append([f"{name}, {which}{more}" if any(seeds) else name, runs[0].reason])
    return lines


def decisions(found: Sequence[Results], rule: Rule, first_seed: int) -> tuple[pd.DataFrame, Rule]:
    """Return what some results decide, and the rule with the name of the series in place of an encoder's.

    ValueError if nothing was measured that the rule asks for, or there is no such series.
    """
    if rule.question == STATEMENTS:
        decided = [each for one in found for each in verdicts.decide(schema.load(), one)]
        if (table := verdicts.comparison_table(decided)).empty:
            raise ValueError("against=statements: no file of configs/statements/ asks for what these runs measure")
        return table, rule
    quality = pd.concat([each.quality for each in found])
    if not (quality["eval_length"] > quality["train_length"]).any():
        raise ValueError(NEEDS_LENGTHS)
    if rule.question != BEST:
        try:
            rule = replace(rule, question=find_baseline(quality, rule.question))
        except ValueError as error:
            runs = pd.concat([each.runs for each in found])
            asked = runs[(runs["encoder"] == rule.question) | (runs["series"] == rule.question)]
            failed = f"no run of {rule.question} has ended well; retry=failed repeats those that failed"
            reason = failed if len(asked) and not asked["status"].isin(FINISHED).any() else error
            raise ValueError(f"against={rule.question}: {reason}") from error
    return decide(scores(quality), rule, first_seed), rule


def decisions_text(decided: pd.DataFrame, rule: Rule, first_seed: int, found: Sequence[Results]) -> str:
    """Return what is decided and how many runs the next look still takes, as a table for the terminal."""
    if decided.empty:
        return "nothing to decide yet"
    published = rule.question == STATEMENTS
    shown = decided[["tested", "comparison"] if published else ["task", "series"]].copy()
    ends, written = decided[["difference", "low", "high"]].astype(float), "+.3f"
    if not published:
        ends, written = 100 * ends, "+.1f"
    intervals = zip(ends["difference"], ends["low"], ends["high"], strict=True)
    shown["seeds"], shown["difference"] = decided["seeds"], [words.interval(*each, written) for each in intervals]
    ended = pd.concat([each.rows for each in found]).groupby(["task", "series"])["seed"].agg(set).to_dict()
    if not published:  # a look is at all its seeds: those that have ended until then are not judged
        run = [len(ended.get(key, ())) for key in zip(decided["task"], decided["series"], strict=True)]
        pairs = zip(decided["seeds"], run, decided["seeds_learned"], strict=True)
        shown["seeds"] = [
            (f"{judged} of {count}" if count > judged else f"{judged}") + f", {learned} learned" * (learned < count)
            for judged, count, learned in pairs
        ]
    other = "its strongest rival" if rule.question == BEST else rule.question
    named = {BETTER: f"better than {other}", WORSE: f"worse than {other}"} if rule.of_one_series else {}
    shown = shown.assign(p=decided["p_holm"].map(words.p_value), verdict=decided["verdict"].replace(named))
    head = ["task", "series", "seeds judged", f"kept, minus {other}, points", "p (Holm)", "verdict"]
    if published:
        head[:4] = ["tested", "comparison", "seeds", "difference, as published: positive"]
    waiting = decided["next_look"] > 0
    more = {
        key: sum(seed not in ended.get(key, ()) for seed in range(first_seed, first_seed + needed))
        for key, needed in wanted(decided[waiting], rule).items()
    }
    counts = ", ".join(f"{count} {verdict}" for verdict, count in decided["verdict"].value_counts(sort=False).items())
    summary = f"{words.count(len(decided), 'comparison')}: {counts}"
    if waiting.any():
        summary += f"; the next look takes {words.count(sum(more.values()), 'more run')}"
    width = [34, 42] if published else None
    table = tabulate(shown.values.tolist(), headers=head, disable_numparse=True, maxcolwidths=width)
    if published:
        verdicts_on = decided[["statement", "outcome"]].drop_duplicates().to_numpy()
        summary = "\n".join([*(f"{statement}: {outcome}" for statement, outcome in verdicts_on), summary])
    else:
        summary += "\nkept: share of the quality in range, mean of 2, 4 and 8 times the length, as far as measured"
        summary += "; open: gets more seeds"
        summary += "\np: over all looks, with Holm's correction over a task; intervals: of one comparison each, so "
        summary += "that one may leave out 0 where nothing is decided"
        summary = "\n".join([summary, *(_not_separated(decided, rule) if rule.of_one_series else ())])
    return f"{table}\n{summary}"


def _not_separated(decided: pd.DataFrame, rule: Rule) -> Iterator[str]:
    """Say of each comparison that is out of looks which difference would have been seen, and how to go on.

    By the width of its last interval, at the level of the last look and of one of the comparisons of its task that are
    left, which Holm's correction asks for once the others are decided. A width falls with the root of the number of
    seeds. The measured difference says little of the seeds that it needs: it is as uncertain as the verdict.
    """
    undecided = decided[decided["verdict"] == UNDECIDED]
    for line in undecided.to_dict("records"):
        level, left = SIGNIFICANCE * rule.weights[-1], (undecided["task"] == line["task"]).sum()
        half = (line["high"] - line["low"]) / 2 / norm.ppf(1 - level / 2)
        seen = half * norm.ppf(1 - level / left / 2)
        yield (
            f"{line['series']} on {line['task']}: {line['seeds']} seeds would show a difference of about "
            f"{100 * seen:.1f} points in half of such sweeps; half as large a one takes four times as many"
        )
    if len(undecided):
        delta = rule.delta or 0.05
        equal = f"delta={delta:g} counts series as equal that are surely within {100 * delta:g} points"
        yield (
            "To go on, with N seeds that nobody has seen: the same command with name=again seed=100 'looks=[N]' "
            f"'weights=[1]'; {equal}{', as declared' * (rule.delta is not None)}"
        )
