"""The findings of a report that was asked about one series: how it compares with each other one, or with all."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from experiments.figures import words
from experiments.report import board
from experiments.report.page import Finding
from experiments.report.sections.task import TaskResults
from experiments.rows.row import KEEPS
from experiments.statistics.comparisons import BETTER, EQUAL, OPEN, UNDECIDED, WORSE
from experiments.statistics.scores import UNLEARNED

EACH = 3
"""Most comparisons that are findings, and most others that a heading names, one by one."""


def findings(tasks: Sequence[TaskResults]) -> list[Finding]:
    """Return a finding for each comparison, or, where these are many, one for each task: most decided first."""
    found = [each for task in tasks for each in one_by_one(task)]
    if len(found) <= EACH:
        return found
    order = sorted(tasks, key=lambda task: -task.against["verdict"].isin([WORSE, BETTER]).sum())
    return [each for task in order for each in in_one(task)]


def one_by_one(task: TaskResults) -> list[Finding]:
    """Say how the baseline compares with each other series."""
    if _unlearned(task):
        who = "any encoding" if task.standing["status"].eq(UNLEARNED).all() else task.baseline
        return [Finding(f"{task.label}: no comparison", f"(no run of {who} learned it).")]
    found = [_compared(task, line) for line in task.against.to_dict("records")]
    return [replace(each, head=_before(task) + each.head, small=_own(task) * (each is found[0])) for each in found]


def in_one(task: TaskResults) -> list[Finding]:
    """Say in one finding how the baseline compares: first who beats it, or whom the user's own beats."""
    lines = task.against.to_dict("records")
    if len(lines) < 2 or _unlearned(task):
        return one_by_one(task)
    ordered = task.against.sort_values("difference", kind="stable")
    won, lost = (list(ordered.loc[ordered["verdict"] == verdict, "series"]) for verdict in (WORSE, BETTER))
    own, name = task.is_own(task.baseline), words.quoted(str(task.baseline))
    head = f"{task.baseline} beats {len(won)} of {len(lines)}"
    if not own:
        head = f"{len(lost)} of {len(lines)} {'beats' if len(lost) == 1 else 'beat'} {name}"
    if len(lines) <= EACH:
        numbers = (f"{line['series']} {board.points(line) or line['verdict']}" for line in lines)
        text = f"(quality kept, less {task.baseline}, points: {', '.join(numbers)})."
    else:
        most = f"{_highest(task, BETTER)}{f', then {words.quoted(words.few(lost[-2::-1]))}' * (len(lost) > 1)}"
        below = words.quoted(words.few(won))
        sides = [(won, below), (lost, f"loses to {most}")] if own else [(lost, most), (won, f"{name} beats {below}")]
        parts = [*(said for names, said in sides if names), *_rest(task)]
        head, text = f"{head}:", f"{'; '.join(parts)}.{_nearest(task)}"
    return [Finding(_before(task) + head, text, _own(task))]


def _unlearned(task: TaskResults) -> bool:
    return task.standing.set_index("series")["status"].get(task.baseline) == UNLEARNED


def _before(task: TaskResults) -> str:
    return f"{task.label}: " * (task.tasks > 1)


def _own(task: TaskResults) -> str:
    """Say how far an encoder of the user's works, if it is the baseline."""
    if not task.is_own(task.baseline):
        return ""
    ours = task.standing[task.standing["series"] == task.baseline]
    return f"{task.baseline} {far(ours.iloc[0])}{_free(task)}"


def _rest(task: TaskResults) -> list[str]:
    """Count the others by why they are neither better nor worse."""
    verdicts = task.against["verdict"]
    left = {verdict: int((verdicts == verdict).sum()) for verdict in (OPEN, UNDECIDED, EQUAL)}
    apart = verdicts[~verdicts.isin([WORSE, BETTER, *left])].value_counts()
    return [
        *(f"{count} {'is' if count == 1 else 'are'} {verdict}" for verdict, count in left.items() if count),
        *[f"not compared: {', '.join(f'{count} ({why})' for why, count in apart.items())}"] * bool(len(apart)),
    ]


def _nearest(task: TaskResults) -> str:
    """Say what the undecided differ by, if they are few; else, of the user's own, who is nearest below and ahead."""
    near = [
        line
        for line in task.against.to_dict("records")
        if line["verdict"] in (OPEN, UNDECIDED) and line["difference"] == line["difference"]
    ]
    if 0 < len(near) <= EACH:
        each = (f"{words.quoted(line['series'])} less {task.baseline}, {board.points(line)}" for line in near)
        return f" {'These' if len(near) > 1 else 'This'}, in points: {'; '.join(each)}."
    if not task.is_own(task.baseline):
        return ""
    nearest = _highest(task, WORSE)
    said = f" Of those beaten, nearest: {nearest}." if nearest else ""
    ahead = sorted((line for line in near if line["difference"] > 0), key=lambda line: -line["difference"])
    if not ahead:
        return said
    each = (f"{words.quoted(line['series'])} +{100 * line['difference']:.1f}" for line in ahead)
    return f"{said} Ahead by their means, and not decided, in points: {words.few(each)}."


def _free(task: TaskResults) -> str:
    """Say what the baseline and the others keep free-running, which no test compares; blank where not measured."""
    kept = 100 * task.free_running.dropna()
    others = kept[kept.index != task.baseline]
    if others.empty or task.baseline not in kept:
        return ""
    ends = " to ".join(dict.fromkeys(f"{end:.0f}" for end in (others.min(), others.max())))
    own = kept[str(task.baseline)]
    return f" Free-running, reading its own output, it keeps {own:.0f} %, the others {ends}: not tested."


def _highest(task: TaskResults, verdict: str) -> str:
    """Return who of those with this verdict keeps most beside the baseline, and the test; blank if nobody has it."""
    lines = task.against[task.against["verdict"] == verdict].to_dict("records")
    line = max(lines, key=lambda line: line["difference"], default={})
    return f"{words.quoted(line['series'])} ({board.points(line)} points{board.tested(line)})" if line else ""


def _compared(task: TaskResults, line: Mapping[Any, Any]) -> Finding:
    ours, other, verdict = str(task.baseline), line["series"], line["verdict"]
    if line["difference"] != line["difference"]:
        who, _, why = verdict.rpartition(": ")
        who = who or other
        text = f"(no run of {who} learned {task.label})." if why == UNLEARNED else f"({who}: {why})."
        return Finding(f"{ours} and {other}: no comparison", text)
    points = words.count(round(abs(100 * line["difference"])), "point")
    head = {
        WORSE: f"{ours} beats {other} by {points}",
        BETTER: f"{ours} loses to {other} by {points}",
        EQUAL: f"{ours} and {other} are equal",
    }.get(verdict, f"{ours} and {other}: {verdict}")
    look = "the look that decided" if verdict in (WORSE, BETTER, EQUAL) else "the last look"
    when = f" at {look}" * task.declared
    numbers = f"{board.points(line)} points of quality kept{board.tested(line)}{board.runs(line)}"
    return Finding(head, f"({other} less {ours}{when}: {numbers}).")


def far(line: "pd.Series[Any]") -> str:
    """Say whether a series extrapolates, by what the middle one of its runs and the mean of them keep."""
    if line["reach"] > 1:
        of = " by the median of its seeds" * bool(line["seeds_learned"] > 1)
        return f"extrapolates to {line['reach']:g} times the length{of}, keeping {KEEPS:.0%} or more."
    kept = words.fixed(100 * line["kept_2"], ".0f")
    return "does not extrapolate" + (f": at twice the length it keeps {kept} %." if kept else ".")
