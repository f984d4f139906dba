"""The first screen: a finding with its numbers, one curve, three sentences, the board, and what is left open."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
from markupsafe import Markup

from experiments.figures import words
from experiments.report import board, drawing
from experiments.report.board import at, written
from experiments.report.page import Finding, Front
from experiments.report.sections.curves import learned_only, legend, percent
from experiments.report.sections.likeness import CONTROL
from experiments.report.sections.statements import Told
from experiments.report.sections.task import TaskResults
from experiments.rows.results import Results
from experiments.rows.row import KEEPS, metric_of
from experiments.statistics.comparisons import BETTER, EQUAL, OPEN, TOO_FEW, UNDECIDED, WORSE, over_tasks
from experiments.statistics.rule import FEWEST
from experiments.statistics.scores import UNLEARNED
from experiments.statistics.statements.schema import FAILS, HOLDS

NO_VERDICT = f"no verdict from fewer than {FEWEST} seeds"
HALF = 0.5
"""Quality at twice the training length that some series keeps in a task that counts over tasks."""
SPREAD = 3
"""Fewest places that a series may have, to be told of as without a place."""
WIDER = 2.0
"""Times the deviation of others that seeds of the first must have to be told."""
EACH = 3
"""Most comparisons with what was asked that are findings one by one."""


def ranked(tasks: Sequence[TaskResults]) -> list[TaskResults]:
    """Return the tasks with a quality beyond the training length of two series or more."""
    return [task for task in tasks if (task.standing["status"] == "ok").sum() > 1]


def counted(tasks: Sequence[TaskResults]) -> list[TaskResults]:
    """Return the ranked tasks that count over tasks: those of which some series keeps half of its quality at ×2."""
    return [task for task in ranked(tasks) if (task.standing["kept_2"] >= HALF).any()]


def main_block(tasks: Sequence[TaskResults]) -> list[TaskResults]:
    """Return the tasks over which the report compares: of those that count, the ones with the most series."""
    several = [block for block in board.blocks(counted(tasks)) if len(block) > 1]
    return several[0] if several else []


def shown(tasks: Sequence[TaskResults]) -> TaskResults | None:
    """Return the task whose curve opens the report: of those with the most series, that which sets them apart most."""
    return max((task for task in tasks if len(task.measured)), key=_spread, default=None)


def _spread(task: TaskResults) -> tuple[int, float]:
    kept = task.standing["kept"].dropna()
    return len(kept) // 2, float(kept.max() - kept.min()) if len(kept) else 0.0


def make(
    tasks: Sequence[TaskResults],
    results: Results,
    claims: Sequence[Told] = (),
    first: Sequence[Finding] = (),
    about: str = "",
) -> tuple[str, Front | None]:
    """Return the heading of a report and its first screen; None where nothing was measured over lengths.

    ``claims`` are published statements that the runs test; ``first`` are findings that stand before all others;
    ``about`` is the task to show, if not one or several are to be chosen.
    """
    named = [task for task in tasks if task.key == about]
    task = shown(named or counted(tasks) or tasks)
    if task is None:
        return f"{results.folder.resolve().name}: no quality over lengths was measured", None
    several = [] if named else main_block(tasks)
    in_order = sorted((one for one in tasks if one.asked), key=lambda one: one not in (several or [task]))
    asked = [each for one in in_order for each in _asked(one, one_by_one=True)]
    if len(asked) > EACH:
        asked = [each for one in in_order for each in _asked(one, one_by_one=False)]
    heading, top = of_task(task, claims), None
    # What is kept is not what a heading given from elsewhere is about.
    found = _fall(task) if named else findings(task, () if asked else claims)
    if task.asked and len(task.against) and (task.standing["status"] == "ok").any():
        heading = f"{task.key}: {verdicts(task)}"
    if len(several) > 1:
        heading, top = across(several), board.over_tasks(several)
        found = [*_nobody(tasks), *found]
    found = [*first, *(asked or (_over(several) if top else [])), *found]
    return heading, Front(
        setting=setting(tasks, results),
        caption=task.caption,
        legend=legend(task.curves),
        families=board.families(task),
        curves=curve(task),
        findings=found[:3] or [Finding(task.key, "No comparison could be made: see its page.")],
        board=top or board.of_task(task),
        limits=limits(tasks, results),
        task=(task.key, task.path),
    )


def curve(task: TaskResults) -> Markup:
    """Return the curves of a task, with what they show in words."""
    axes = task.axes
    metric = str(task.quality["metric"].iloc[0])
    means = at(task, 2)
    said = f"{task.caption}, {axes.lengths[0]} to {axes.lengths[-1]}. Trained to {axes.trained}. "
    found = [f"{line.name} {written(means[line.name], metric)}" for line in task.curves if line.name in means.index]
    return drawing.curves(task.curves, axes, said + (f"At {2 * axes.trained}: {words.few(found)}." if found else ""))


def _unit(metric: str) -> str:
    named = metric_of(metric)
    return " %" if percent(metric) else f" {named.label}"


def _what(metric: str) -> str:
    return metric_of(metric).unit.removeprefix("share of ") if percent(metric) else ""


def of_task(task: TaskResults, claims: Sequence[Told] = ()) -> str:
    """Return the finding of one task at twice the training length, or beyond.

    It is the verdict on the first claim that speaks of one encoder, with that one beside the best of those that beat it
    in a test, if any do, or beside itself where it was numbered in several ways; else who is best and who is worst.
    """
    known = task.standing[task.standing["status"] == "ok"]
    metric, trained = str(task.quality["metric"].iloc[0]), int(task.quality["train_length"].max())
    if known.empty:
        return f"No encoding learned {task.key}: nothing can be said of longer lengths"
    multiple = next((m for m in (2, 4, 8) if len(at(task, m))), 0)
    if not multiple:
        return f"{task.key}: nothing was measured beyond length {trained}"
    values = at(task, multiple).reindex(known["series"]).dropna()
    up = metric_of(metric).higher_is_better
    best, worst = map(str, (values.idxmax(), values.idxmin())[:: 1 if up else -1])
    unit, what = _unit(metric), _what(metric)
    get, of = ("gets", f" of {what}") if percent(metric) else ("needs", "")
    first = (
        f"Trained to length {trained}, {best} {get} {written(values[best], metric)}{unit}{of} at {multiple * trained}"
    )
    if best == worst:
        return first
    # One case is enough for a claim to fail, and not for it to hold.
    decided = (
        each for each in claims if each.lengths and (each.verdict == FAILS or (each.verdict == HOLDS and not each.part))
    )
    named = next((each for each in decided if each.encoder in values), None)
    if named is None:
        return f"{first}; {worst} {get} {written(values[worst], metric)}{unit}"
    ahead = [str(name) for name in known["series"] if named.encoder in board.beaten_by(task, str(name))]
    runs = task.runs[(task.runs["encoder"] == named.encoder) & task.runs["positions"].ne("sequential")]
    numbered = values[values.index.isin(runs["series"])]
    if len(numbered):  # its own numberings say more than another encoder, and those that are surely better the most
        surely = numbered[numbered.index.isin(ahead)]
        numbered = surely if len(surely) else numbered
        other = str(getattr(numbered, "idxmax" if up else "idxmin")())
        told = f"{written(values[named.encoder], metric)}{unit}{of} at {multiple * trained}"
        return (
            f"Trained to length {trained}, {named.encoder} {get} {told} with its positions numbered as usual, "
            f"{written(values[other], metric)}{unit} as {other}"
        )
    best = str(getattr(values[ahead], "idxmax" if up else "idxmin")()) if ahead else best
    of_best = f"; {words.quoted(best)} {get} {written(values[best], metric)}{unit}" if named.encoder != best else ""
    return (
        f"“{named.claim.partition(':')[0]}” {named.verdict} here: trained to length {trained}, {named.encoder} {get} "
        f"{written(values[named.encoder], metric)}{unit}{of} at {multiple * trained}{of_best}"
    )


def findings(task: TaskResults, claims: Sequence[Told] = ()) -> list[Finding]:
    """Return findings of a task beside what was asked: the user's own, the first, a claim, who falls, who has no place.

    A report that was asked about one encoder has that one in place of the user's own.
    """
    own = [] if task.asked else [series for series in task.standing["series"] if task.is_own(series)][:1]
    return [
        *(each for series in own for each in _own(task, series)),
        *_first(task) * (not own or task.standing["series"].iloc[0] != own[0]),
        *_claimed(claims),
        *_fall(task) * (not own and not task.asked),
        *_open(task),
    ]


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


def _asked(task: TaskResults, *, one_by_one: bool) -> list[Finding]:
    """Say how the baseline compares with the others; with ``one_by_one``, in a finding for each."""
    lines, before = task.against.to_dict("records"), f"{task.key}: " * (task.tasks > 1)
    status = task.standing.set_index("series")["status"]
    if status.get(task.baseline) == UNLEARNED:
        who = "any encoding" if status.eq(UNLEARNED).all() else task.baseline
        return [Finding(f"{task.key}: no comparison", f"(no run of {who} learned it).")]
    ours = task.standing[task.standing["series"] == task.baseline]
    small = f"{task.baseline} {_far(ours.iloc[0])}{_free(task)}" if task.is_own(task.baseline) else ""
    if one_by_one or len(lines) < 2:
        found = [replace(each, head=before + each.head) for each in (_compared(task, line) for line in lines)]
        return [replace(each, small=small * (each is found[0])) for each in found]
    won, lost = (task.against.loc[task.against["verdict"] == verdict, "series"] for verdict in (WORSE, BETTER))
    left = {verdict: (task.against["verdict"] == verdict).sum() for verdict in (OPEN, UNDECIDED, EQUAL)}
    apart = len(lines) - len(won) - len(lost) - sum(left.values())
    most = f"{f'{words.few(lost)}, most to ' * (len(lost) > 1)}{_highest(task, BETTER)}"
    rest = [f"loses to {most}"] * bool(len(lost))
    rest += [f"{count} {'is' if count == 1 else 'are'} {verdict}" for verdict, count in left.items() if count]
    rest += [f"{apart} did not learn, or in fewer than {FEWEST} seeds"] * bool(apart)
    text = f"{'; '.join([words.quoted(words.few(won)) if len(won) else 'others', *rest])}."
    near_by = [
        line for line in lines if line["verdict"] in (OPEN, UNDECIDED) and line["difference"] == line["difference"]
    ]
    if 0 < len(near_by) <= EACH:
        each = (f"{words.quoted(line['series'])} less {task.baseline}, {board.points(line)}" for line in near_by)
        text += f" {'These' if len(near_by) > 1 else 'This'}, in points: {'; '.join(each)}."
    elif len(won):
        text += f" Of those beaten, nearest: {_highest(task, WORSE)}."
    ahead = sorted((line for line in near_by if line["difference"] > 0), key=lambda line: -line["difference"])
    if task.is_own(task.baseline) and ahead and len(near_by) > EACH:
        each = (f"{words.quoted(line['series'])} +{100 * line['difference']:.1f}" for line in ahead)
        text += f" Ahead by their means, and not decided, in points: {words.few(each)}."
    if len(lines) <= EACH:
        each = (f"{line['series']} {board.points(line) or line['verdict']}" for line in lines)
        text = f"(quality kept, less {task.baseline}, points: {', '.join(each)})."
    head = f"{before}{task.baseline} beats {len(won)} of {len(lines)}"
    return [Finding(head + ":" * (len(won) > 0 and len(lines) > EACH), text, small)]


def _free(task: TaskResults) -> str:
    """Say what the baseline and the others keep free-running, which no test compares; blank where not measured."""
    table = task.free_standing.dropna(subset="kept")
    kept, ours = 100 * table["kept"], table["series"] == str(task.baseline)
    own, others = kept[ours], kept[~ours]
    if own.empty or others.empty:
        return ""
    ends = " to ".join(dict.fromkeys(f"{end:.0f}" for end in (others.min(), others.max())))
    return f" Free-running, reading its own output, it keeps {own.item():.0f} %, the others {ends}: not tested."


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
        text = f"(no run of {who} learned {task.key})." if why == UNLEARNED else f"({who}: {why})."
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


def _own(task: TaskResults, series: str) -> list[Finding]:
    """Say how far an encoder of the user's works, whom it beats, and who beats it."""
    known = task.standing[task.standing["status"] == "ok"]
    if series not in set(known["series"]):
        return [Finding(f"{series}, yours", f"did not learn {task.key}: nothing can be said of longer lengths.")]
    line, beaten = known[known["series"] == series].iloc[0], board.beaten_by(task, series)
    ahead = [str(name) for name in known["series"] if series in board.beaten_by(task, str(name))]
    left = [str(name) for name in known["series"] if name not in (series, *beaten, *ahead)]
    compared = {"better than": beaten, "worse than": ahead, f"{_left(task)} against": left}
    parts = [f"{said} {words.few(names)}" for said, names in compared.items() if names]
    text = f"of its quality kept{_within(line)}, {board.mean_of(line['up_to'])}; {'; '.join(parts)}"
    small = f"It {_far(line)} After {words.count(int(line['seeds_learned']), 'seed')}."
    return [Finding(f"{series}, yours: {words.fixed(100 * line['kept'], '.0f')} %", f"{text}.", small)]


def _far(line: "pd.Series[Any]") -> str:
    """Say whether a series extrapolates, by what the middle one of its runs and the mean of them keep."""
    if line["reach"] > 1:
        of = " by the median of its seeds" * bool(line["seeds_learned"] > 1)
        return f"extrapolates to {line['reach']:g} times the length{of}, keeping {KEEPS:.0%} or more."
    kept = words.fixed(100 * line["kept_2"], ".0f")
    return "does not extrapolate" + (f": at twice the length it keeps {kept} %." if kept else ".")


def _within(line: "pd.Series[Any]") -> str:
    return f" [{100 * line['low']:.0f}, {100 * line['high']:.0f}]" if line["low"] == line["low"] else ""


def _left(task: TaskResults) -> str:
    return OPEN if task.family.open.any() else UNDECIDED


def _first(task: TaskResults) -> list[Finding]:
    known = task.standing[task.standing["status"] == "ok"]
    if len(known) < 2:
        return []
    best = known.iloc[0]
    series = str(best["series"])
    beaten = board.beaten_by(task, series)
    rivals = [str(name) for name in known["series"] if name not in (series, *beaten)]
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
    if rivals and not task.declared and spread[series] > WIDER * spread[rivals].median():
        small += (
            " Its seeds lie further apart than theirs. Each pair has a test, corrected for the number of pairs: with "
        )
        small += "few such seeds two bars that do not touch may be undecided."
    free = task.free_standing.set_index("series")["kept"] if len(task.free_standing) else pd.Series(dtype=float)
    if free.get(series, math.nan) == free.get(series):
        small += f" Free-running, reading its own output: {100 * free[series]:.0f} %."
    head = f"{task.named(series)}: {kept}" if rivals else f"{task.named(series)} is first: {kept}"
    return [Finding(head, text, small.strip())]


def _told_apart(task: TaskResults, beaten: list[str], rivals: list[str], seeds: int) -> str:
    if not rivals:
        return f"better than each of the other {len(beaten)}" if len(beaten) > 1 else "better than the other"
    better = f"better than {words.few(beaten)}; " if beaten else ""
    return f"the most; {better}{_left(task)} against {words.few(rivals)} after {words.count(seeds, 'seed')}"


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


def _fall(task: TaskResults) -> list[Finding]:
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
        series, unit = str(next(iter(lost.index), "")), _unit(metric)
        if series and lost[series] > 0 and written(inside[series], metric) != written(after.mean()[series], metric):
            break
    else:
        return []

    def fall(name: str) -> str:
        return f"{written(inside[name], metric)} → {written(after.mean()[name], metric)}{unit}"

    text = f"from length {trained} to {next_length}" + ", the first beyond training" * (next_length == first)
    second = str(lost.index[1]) if len(lost) > 1 and lost.iloc[1] > lost.iloc[0] / 4 else ""
    text += f"; next is {second}: {fall(second)}." if second else "."
    values = after.get_group(series)
    ends = f"{written(values.min(), metric)} to {written(values.max(), metric)}{unit}"
    small = f"{series} at {next_length}: {ends} over {len(values)} seeds." if len(values) > 1 else "One seed."
    return [Finding(f"{task.named(series)} {'falls' if up else 'rises'} most: {fall(series)}", text, small)]


def _open(task: TaskResults) -> list[Finding]:
    """Say which series has the widest range of places, or who loses least where all have a place."""
    known = task.standing[task.standing["status"] == "ok"]
    width = (known["place_high"] - known["place_low"] + 1).sort_values(ascending=False, kind="stable")
    if len(known) < 2 or width.iloc[0] < SPREAD or task.declared:
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


def _over(tasks: Sequence[TaskResults]) -> list[Finding]:
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


def _nobody(tasks: Sequence[TaskResults]) -> list[Finding]:
    """Say how many tasks no series carries on."""
    known, kept = ranked(tasks), counted(tasks)
    firm = [task.key for task in known if (task.standing["kept_2"] >= KEEPS).any()]
    lost = [task.key for task in known if task not in kept]
    if not lost:
        return []
    text = f"no encoding keeps half of its quality at twice the training length; in {len(firm)} some keeps {KEEPS:.0%}."
    small = f"Not counted above: {words.few(lost)}."
    return [Finding(f"In {len(lost)} of {len(known)} tasks", text, small)]


def setting(tasks: Sequence[TaskResults], results: Results) -> str:
    """Return what was run, in one line."""
    runs = pd.concat([task.runs[task.runs["run_id"].isin(task.quality["run_id"])] for task in tasks])
    seeds = runs.groupby(["task", "series"])["seed"].nunique()
    each = words.count(int(seeds.max()), "seed") if seeds.min() == seeds.max() else f"{seeds.min()}–{seeds.max()} seeds"
    bases = {task.key.partition("(")[0] for task in tasks}
    several = f"{len(tasks)} settings of {min(bases)}" if len(bases) == 1 else f"{len(tasks)} tasks"
    parts = [tasks[0].described if len(tasks) == 1 else several]
    controls = {series for task in tasks for series, mark in task.marks.items() if mark == CONTROL}
    also = f" and {words.count(len(controls), 'control')}" * bool(controls)
    parts.append(f"{words.count(len(set(runs['series']) - controls), 'encoding')}{also} × {each}")
    judged, learned = int(runs["converged"].notna().sum()), int(runs["converged"].eq(True).sum())
    if results.waiting:
        parts.insert(0, f"unfinished: {len(results.finished)} of {len(results.runs) + len(results.missing)} runs")
    if judged:
        parts.append(f"all {judged} runs learned" if learned == judged else f"{learned} of {judged} runs learned")
    steps = pd.to_numeric(runs["steps"], errors="coerce").dropna()
    if steps.nunique() > 1:
        parts.append(f"{steps.min():,.0f}–{steps.max():,.0f} steps of training")
    sizes = pd.to_numeric(runs["model_parameters"], errors="coerce").dropna() / 1e6
    if len(sizes):
        low, high = f"{sizes.min():.2g}", f"{sizes.max():.2g}"
        parts.append(f"{low if low == high else f'{low}–{high}'} M parameters with embeddings, beside the encoding's")
    if len(tasks) == 1 and len(quality := tasks[0].quality):
        parts.append(
            f"trained to {int(quality['train_length'].max())}, measured to {int(quality['eval_length'].max())}"
        )
    spent = sum(
        pd.to_numeric(runs[name], errors="coerce").fillna(0).sum() for name in ("train_seconds", "measure_seconds")
    )
    if spent:
        long = f"{spent / 3600:.1f} hours" if spent > 7200 else f"{spent / 60:.1f} minutes"
        parts.append(f"{long}, all runs added up")
    return " · ".join(parts)


def limits(tasks: Sequence[TaskResults], results: Results) -> list[str]:
    """Return what these runs leave open."""
    runs = pd.concat([task.runs for task in tasks])
    sizes = pd.to_numeric(runs["model_parameters"], errors="coerce").dropna() / 1e6
    rates = {results.configs[run].get("train.learning_rate") for run in runs["run_id"]} - {None}
    seeds = runs.groupby(["task", "series"])["seed"].nunique().max()
    found = [f"models above {sizes.max():.2g} M parameters"] if len(sizes) else []
    found.append(f"tasks other than {tasks[0].key}" if len(tasks) == 1 else "natural tasks at scale")
    if runs["steps"].nunique() > 1:
        found.append("models that all train for as many steps")
    if len(rates) == 1:
        found.append(f"learning rates other than {min(map(str, rates))}")
    return [*found, f"differences that need more than {words.count(int(seeds), 'seed')}"]
