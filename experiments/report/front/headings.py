"""The heading of a report: what was found in a task or over tasks, or how what was asked about compares."""

from collections.abc import Sequence

import pandas as pd

from experiments.figures import words
from experiments.report import board
from experiments.report.board import at, written
from experiments.report.front.asked import EACH
from experiments.report.sections.statements import Told
from experiments.report.sections.task import TaskResults
from experiments.rows.row import is_share, metric_of
from experiments.statistics.comparisons import BETTER, EQUAL, OPEN, UNDECIDED, WORSE
from experiments.statistics.scores import DOUBLINGS, UNLEARNED
from experiments.statistics.statements.schema import FAILS, HOLDS


def of_task(task: TaskResults, claims: Sequence[Told] = ()) -> str:
    """Return the finding of one task at twice the training length, or beyond.

    It is the verdict on the first claim that speaks of one encoder, with that one beside the best of those that beat it
    in a test, if any do, or beside itself where it was numbered in several ways; else who is best and who is worst.
    """
    known, metric, trained = task.ranked, task.metric, int(task.quality["train_length"].max())
    if known.empty:
        return f"No encoding learned {task.label}: nothing can be said of longer lengths"
    multiple = next((m for m in DOUBLINGS if len(at(task, m))), 0)
    if not multiple:
        return f"{task.label}: nothing was measured beyond length {trained}"
    values = at(task, multiple).reindex(known["series"]).dropna()
    quality = values if metric_of(metric).higher_is_better else -values
    best, worst = str(quality.idxmax()), str(quality.idxmin())
    what = metric_of(metric).unit.removeprefix("share of ")
    get, of = ("gets", f" of {what}") if is_share(metric) else ("needs", "")
    told = {series: f"{written(value, metric)}{unit_of(metric)}" for series, value in values.items()}
    there = f"{of} at {multiple * trained}"
    first = f"Trained to length {trained}, {best} {get} {told[best]}{there}"
    if best == worst:
        return first
    # One case is enough for a claim to fail, and not for it to hold.
    decided = (
        each for each in claims if each.lengths and (each.verdict == FAILS or (each.verdict == HOLDS and not each.part))
    )
    named = next((each for each in decided if each.encoder in values), None)
    if named is None:
        return f"{first}; {worst} {get} {told[worst]}"
    ahead = [str(name) for name in known["series"] if named.encoder in board.beaten_by(task, str(name))]
    runs = task.runs[(task.runs["encoder"] == named.encoder) & task.runs["positions"].ne("sequential")]
    numbered = quality[quality.index.isin(runs["series"])]
    if len(numbered):  # its own numberings say more than another encoder, and those that are surely better the most
        surely = numbered[numbered.index.isin(ahead)]
        other = str((surely if len(surely) else numbered).idxmax())
        return (
            f"Trained to length {trained}, {named.encoder} {get} {told[named.encoder]}{there} with its positions "
            f"numbered as usual, {told[other]} as {other}"
        )
    best = str(quality[ahead].idxmax()) if ahead else best
    of_best = f"; {words.quoted(best)} {get} {told[best]}" * (named.encoder != best)
    return (
        f"“{named.claim.partition(':')[0]}” {named.verdict} here: trained to length {trained}, {named.encoder} {get} "
        f"{told[named.encoder]}{there}{of_best}"
    )


def across(tasks: Sequence[TaskResults]) -> str:
    """Return the finding over tasks: who wins most comparisons, and who fewest."""
    table = board.compared(tasks)
    best, worst = table.iloc[0], table.iloc[-1]
    if asked := {task.baseline for task in tasks if task.asked}:
        counts = pd.concat([task.against["verdict"] for task in tasks if task.asked]).value_counts()
        named = {BETTER: "extrapolate better", WORSE: "worse", EQUAL: EQUAL, UNDECIDED: UNDECIDED, OPEN: OPEN}
        decided = [f"{counts.get(verdict, 0)} {said}" for verdict, said in named.items() if verdict in counts]
        compared = sum(int(counts.get(verdict, 0)) for verdict in named)
        return f"Against {words.listed(asked)}, {compared} comparisons on {len(tasks)} tasks: {', '.join(decided)}"
    if not best["wins"]:
        return f"Over {len(tasks)} tasks, none of {int(table['compared'].sum()) // 2} comparisons is decided"
    return (
        f"{len(table)} encodings on {len(tasks)} tasks: of {best['compared']} comparisons {best['series']} wins "
        f"{best['wins']} and loses {best['losses']}; {worst['series']} wins {worst['wins']} and loses {worst['losses']}"
    )


def of_the_best(tasks: Sequence[TaskResults]) -> str:
    """Return which series are possibly the best: of one task, or how many on each of several and which on all."""
    names, of = tasks[0].possibly_best, len(tasks[0].rivals)
    if len(tasks) > 1:
        counts = [
            f"{words.quoted(best[0]) if len(best) == 1 else f'{len(best)} of {len(task.rivals)}'} on {task.label}"
            for task, best in ((task, task.possibly_best) for task in tasks)
        ]
        everywhere = [name for name in names if all(name in task.possibly_best for task in tasks)]
        named = f"; on all: {words.few(everywhere)}" * bool(everywhere)
        return f"Possibly the best, with 95 % confidence on each task: {words.listed(counts)}{named}"
    one = f"{words.quoted(names[0])} is" if len(names) == 1 else f"one of {len(names)} is"
    which = f": {words.few(names)}" * (len(names) > 1)
    return f"{tasks[0].label}: with 95 % confidence {one} the best of {of}{which}"


def verdicts(task: TaskResults) -> str:
    """Return how the baseline compares with the others, without the numbers."""
    if task.against["difference"].isna().all():
        return f"no comparison with {task.baseline}"
    names = {str(verdict): list(part) for verdict, part in task.against.groupby("verdict")["series"]}
    verbs = {WORSE: "beats", BETTER: "loses to", EQUAL: "equals"}
    size = len(task.against)
    known = [f"{verb} {_few(names.pop(verdict), size)}" for verdict, verb in verbs.items() if verdict in names]
    against = f" against {task.baseline}" * (not known)
    left = [
        f"{_few(series, size)} {'is' if len(series) == 1 else 'are'} {verdict}{against}"
        if verdict in (OPEN, UNDECIDED)
        else f"{_few(series, size)} {verdict}"
        if verdict == UNLEARNED
        else f"{_few(series, size)}: {verdict}"
        for verdict, series in sorted(names.items(), key=lambda group: group[0] not in (OPEN, UNDECIDED))
    ]
    said = "; ".join([f"{task.baseline} {', '.join(known)}"] * bool(known) + left)
    first, of, more = said.partition(f" of {size} others")
    return first + of + more.replace(of, "")


def _few(names: Sequence[str], size: int) -> str:
    """Return up to three names for a title, or how many of ``size`` they are."""
    return words.listed(names) if len(names) <= EACH else words.brief(names, size, "others")


def unit_of(metric: str) -> str:
    """Return what follows a value of a metric in a sentence."""
    named = metric_of(metric)
    return " %" if is_share(metric) else f" {named.label}"
