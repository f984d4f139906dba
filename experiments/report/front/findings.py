"""What the runs show, asked or not: one's own encoder, the first, a published claim, who falls, what is open."""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from experiments.figures import words
from experiments.report import board
from experiments.report.board import written
from experiments.report.front.asked import far
from experiments.report.front.headings import unit_of
from experiments.report.front.tasks import counted, ranked
from experiments.report.page import Finding
from experiments.report.sections.curves import learned_only
from experiments.report.sections.statements import Told
from experiments.report.sections.task import TaskResults
from experiments.rows.row import KEEPS, metric_of
from experiments.statistics.comparisons import OPEN, TOO_FEW, UNDECIDED, WORSE, over_tasks
from experiments.statistics.rule import FEWEST

NO_VERDICT = f"no verdict from fewer than {FEWEST} seeds"
SPREAD = 3
"""Fewest places that a series may have, to be told of as without a place."""
WIDER = 2.0
"""Times the deviation of others that seeds of the first must have to be told."""


def of_task(task: TaskResults, claims: Sequence[Told] = ()) -> list[Finding]:
    """Return findings of a task beside what was asked: the user's own, the first, a claim, who falls, who has no place.

    A report that was asked about one encoder has that one in place of the user's own.
    """
    own = [] if task.asks_of_each else [series for series in task.standing["series"] if task.is_own(series)][:1]
    return [
        *(each for series in own for each in _own(task, series)),
        *_first(task) * (not task.seeks_best and (not own or task.standing["series"].iloc[0] != own[0])),
        *_claimed(claims),
        *fall(task) * (not own and not task.asks_of_each),
        *_open(task),
    ]


def over(tasks: Sequence[TaskResults]) -> list[Finding]:
    """Say how many comparisons the best wins."""
    best = board.compared(tasks).iloc[0]
    rivals = over_tasks(task.family for task in tasks)
    own = rivals[rivals["first"] == best["series"]].sort_values("losses", ascending=False)
    left = OPEN if any(task.family.open.any() for task in tasks) else UNDECIDED
    text = f"comparisons won, {best['losses']} lost, {best['compared'] - best['wins'] - best['losses']} {left}."
    hardest = own.iloc[0]
    small = f"Most often beaten by {hardest['second']}: in {hardest['losses']} of {hardest['tasks']} tasks."
    small = small if hardest["losses"] else "No other encoding beats it on any of them."
    return [Finding(f"{best['series']}: {best['wins']} of {best['compared']}", text, small)]


def nobody(tasks: Sequence[TaskResults]) -> list[Finding]:
    """Say how many tasks no series carries on."""
    known, kept = ranked(tasks), counted(tasks)
    firm = [task.label for task in known if (task.standing["kept_2"] >= KEEPS).any()]
    lost = [task.label for task in known if task not in kept]
    if not lost:
        return []
    text = f"no encoding keeps half of its quality at twice the training length; in {len(firm)} some keeps {KEEPS:.0%}."
    small = f"Not counted above: {words.few(lost)}."
    return [Finding(f"In {len(lost)} of {len(known)} tasks", text, small)]


def _own(task: TaskResults, series: str) -> list[Finding]:
    """Say how far an encoder of the user's works, whom it beats, and who beats it."""
    known = task.ranked
    if series not in set(known["series"]):
        return [Finding(f"{series}, yours", f"did not learn {task.label}: nothing can be said of longer lengths.")]
    line, beaten = known[known["series"] == series].iloc[0], board.beaten_by(task, series)
    ahead = [str(name) for name in known["series"] if series in board.beaten_by(task, str(name))]
    left = [str(name) for name in known["series"] if name not in (series, *beaten, *ahead)]
    compared = {"better than": beaten, "worse than": ahead, f"{_left(task)} against": left}
    parts = [f"{said} {words.few(names)}" for said, names in compared.items() if names]
    text = f"of its quality kept{_within(line)}, {board.mean_of(line['up_to'])}; {'; '.join(parts)}"
    small = f"It {far(line)} After {words.count(int(line['seeds_learned']), 'seed')}."
    return [Finding(f"{series}, yours: {words.fixed(100 * line['kept'], '.0f')} %", f"{text}.", small)]


def _within(line: "pd.Series[Any]") -> str:
    return f" [{100 * line['low']:.0f}, {100 * line['high']:.0f}]" if line["low"] == line["low"] else ""


def _left(task: TaskResults) -> str:
    return OPEN if task.family.open.any() else UNDECIDED


def _first(task: TaskResults) -> list[Finding]:
    if len(task.ranked) < 2:
        return []
    best = task.ranked.iloc[0]
    series = str(best["series"])
    beaten = board.beaten_by(task, series)
    rivals = [str(name) for name in task.ranked["series"] if name not in (series, *beaten)]
    seeds = task.scores.loc[(task.scores["series"] == series) & task.scores["kept"].notna(), "kept"]
    kept = f"{words.fixed(100 * best['kept'], '.0f')} %"
    text = f"of its quality kept{_within(best)}, {board.mean_of(best['up_to'])}"
    text += (
        f", the most{f' (tests are against {task.baseline} alone)' * (series != task.baseline)}."
        if task.declared
        else f", {_told_apart(task, beaten, rivals, len(seeds))}."
    )
    small = f"Seeds: {', '.join(f'{100 * seed:.0f}' for seed in sorted(seeds))} %." if 1 < len(seeds) <= 10 else ""
    spread = task.scores.groupby("series")["kept"].std()
    if rivals and task.placed and spread[series] > WIDER * spread[rivals].median():
        small += " Its seeds lie further apart than theirs. Each pair has a test, corrected for the number of pairs: "
        small += "with few such seeds two bars that do not touch may be undecided."
    if (free := task.free_running.get(series, math.nan)) == free:
        small += f" Free-running, reading its own output: {100 * free:.0f} %."
    head = f"{task.named(series)}: {kept}" if rivals else f"{task.named(series)} is first: {kept}"
    return [Finding(head, text, small.strip())]


def _told_apart(task: TaskResults, beaten: list[str], rivals: list[str], seeds: int) -> str:
    if not rivals:
        return f"better than each of the other {len(beaten)}" if len(beaten) > 1 else "better than the other"
    better = f"better than {words.few(beaten)}; " if beaten else ""
    return f"the most; {better}{_left(task)} against {words.few(rivals)} after {words.count(seeds, 'seed')}"


def of_the_best(task: TaskResults) -> Finding:
    """Say which series are possibly the best, whether the user's own is, and who of the others is nearest to that."""
    names, lost = task.possibly_best, task.rivals[task.rivals["verdict"] == WORSE]
    head, text = f"{task.label}: {len(names)} of {len(task.rivals)}", f"are possibly the best: {words.few(names)}."
    if len(names) == 1:
        head, text = (
            f"{task.label}: {words.quoted(names[0])}",
            f"is the best of {len(task.rivals)}, with 95 % confidence.",
        )
    small = []
    for series, status in task.standing[["series", "status"]].itertuples(index=False):
        if task.is_own(series):
            small.append(f"{series}, yours: {board.possibly_best(task, series) if status == 'ok' else status}.")
    if len(lost):
        near = str(lost["p_holm"].astype(float).idxmax())
        small.append(f"Of the others, nearest to that: {near} ({board.rival(task, near)}).")
    if task.rivals["verdict"].eq(OPEN).any():
        small.append("More seeds may leave fewer: the same command adds them.")
    return Finding(head, text, " ".join(small))


def _claimed(claims: Sequence[Told]) -> list[Finding]:
    """Say of the first published statement on lengths that was decided whether it holds here."""
    found = [each for each in claims if each.numbers and each.lengths][:1]
    return [
        Finding(
            f"“{each.claim.partition(':')[0]}”: {NO_VERDICT if TOO_FEW in each.numbers[0] else each.verdict}",
            f"on {each.numbers[0]}{f' ({each.part})' * bool(each.part)}.",
        )
        for each in found
    ]


def fall(task: TaskResults) -> list[Finding]:
    """Say who loses most from the training length to the next one measured at which anyone does."""
    rows = learned_only(task.measured)
    if rows.empty:
        return []
    trained = int(rows["train_length"].max())
    beyond = rows.loc[rows["eval_length"] > trained, "eval_length"]
    at_end = rows[rows["eval_length"] == trained]
    if beyond.empty or at_end.empty:
        return []
    metric, first = str(rows["metric"].iloc[0]), int(beyond.min())
    inside = at_end.groupby("series")["value"].mean()
    up = metric_of(metric).higher_is_better
    for next_length in sorted(set(beyond)):
        after = rows[rows["eval_length"] == next_length].groupby("series")["value"]
        lost = ((inside - after.mean()) * (1 if up else -1)).dropna().sort_values(ascending=False)
        series, unit = str(next(iter(lost.index), "")), unit_of(metric)
        if series and lost[series] > 0 and written(inside[series], metric) != written(after.mean()[series], metric):
            break
    else:
        return []

    def step(name: str) -> str:
        return f"{written(inside[name], metric)} → {written(after.mean()[name], metric)}{unit}"

    text = f"from length {trained} to {next_length}" + ", the first beyond training" * (next_length == first)
    second = str(lost.index[1]) if len(lost) > 1 and lost.iloc[1] > lost.iloc[0] / 4 else ""
    text += f"; next is {second}: {step(second)}." if second else "."
    values = after.get_group(series)
    ends = f"{written(values.min(), metric)} to {written(values.max(), metric)}{unit}"
    small = f"{series} at {next_length}: {ends} over {len(values)} seeds." if len(values) > 1 else "One seed."
    return [Finding(f"{task.named(series)} {'falls' if up else 'rises'} most: {step(series)}", text, small)]


def _open(task: TaskResults) -> list[Finding]:
    """Say which series has the widest range of places, or who loses least where all have a place."""
    known = task.ranked
    width = (known["place_high"] - known["place_low"] + 1).sort_values(ascending=False, kind="stable")
    if len(known) < 2 or width.iloc[0] < SPREAD or not task.placed:
        return []
    line = known.loc[width.index[0]]
    series, scores = str(line["series"]), task.scores
    seeds = sorted(100 * scores.loc[(scores["series"] == series) & scores["kept"].notna(), "kept"])
    kept = ", ".join(f"{seed:.0f}" for seed in seeds)
    text = f"after {words.count(len(seeds), 'seed')}, which keep {kept} %: that does not place it."
    places = f"place {words.span(line['place_low'], line['place_high'])}".replace("–", " to ")
    more = (
        "The same command adds seeds until it is decided."
        if task.rule
        else "More runs are planned: report.py --status has the command."
        if task.waiting
        else ("More seeds, by a rule that keeps the error rate: seeds=until_decided in place of seed=0,1,2.")
    )
    return [Finding(f"{task.named(series)}: {places}", text, more)]
