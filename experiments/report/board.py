"""The boards: each series of a task with its places, curve, quality and seeds; and all series over all tasks."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from experiments.figures import style, words
from experiments.report import drawing
from experiments.report.page import Board, Cell, Entry, heat
from experiments.report.sections import likeness
from experiments.report.sections.curves import learned_only
from experiments.report.sections.task import TaskResults
from experiments.rows.row import OVER_LENGTHS, is_share, metric_of
from experiments.statistics import comparisons
from experiments.statistics.intervals import SIGNIFICANCE
from experiments.statistics.rule import FEWEST
from experiments.statistics.scores import DOUBLINGS

FEW = 5
"""Most tasks whose shares kept are columns of the board over tasks."""
AGREE = 0.5
"""Correlation over seeds from which on the paired difference is told beside an undecided test, which pairs none."""
NO_INTERVAL = (
    "Two groups: one or some of the seeds stand apart from the others. An interval from fewer than twelve such seeds "
    "would leave out the true mean too often."
)
ABOVE = (
    "The order is that of means. Tests show less where seeds lie apart, so that a lower series may beat more others."
)
AT_A_LOOK = (
    "The column of what is kept has means of all runs that learned. Δ, interval and p are of the look that decided, or "
    "of the last, and of its runs alone. At a look that decides, a difference is on average a little too large."
)
OF_THE_BEST = (
    "Possibly the best: no other keeps more in a test (one-sided, corrected for the number of others, over all looks). "
    "With 95 % confidence the best of a task is one of these. That is sure of the set: of a single pair it decides "
    "nothing. Difference and 95 % interval beside the strongest rival are those of the last look."
)
LONGER = 1.25
"""Times the shortest training of a series from which on it is told of one."""
TRAINED_ON = (
    "Trained n×: for n times as many steps, on average, as the series that took fewest, since what has not learned the "
    "task trains on."
)
OTHER_TEXTS = (
    "Not ranked here, because context_extension read other texts than length_extrapolation: {}. Give both the same "
    "samples."
)


def written(value: float, metric: str) -> str:
    """Return a value of a metric as a reader sees it: per cent without its sign, or two decimals."""
    if math.isnan(value):
        return "–"
    return words.fixed(100 * value, ".0f") if is_share(metric) else words.fixed(value)


def at(task: TaskResults, multiple: float) -> "pd.Series[float]":
    """Return the mean of each series' runs that learned, at a multiple of the training length."""
    rows = learned_only(task.measured)
    there = (rows["eval_length"] - multiple * rows["train_length"]).abs() < 0.5
    return rows[there].groupby("series")["value"].mean()


def of_task(task: TaskResults) -> Board:
    """Return the board of one task."""
    axes = task.axes
    sparks = {line.name: drawing.small([line], axes, 100, 26) for line in task.curves}
    values = {multiple: means for multiple in (1, *DOUBLINGS) if len(means := at(task, multiple))}
    seeds = {str(name): part["kept"].dropna() for name, part in task.scores.groupby("series")}
    times, free, ranked = trained_for(task), task.free_running, len(task.ranked)
    entries = []
    for line in task.standing.to_dict("records"):
        series, status = str(line["series"]), str(line["status"])
        relative = [task.relatives[series]] if series in task.relatives else []
        entry = Entry(
            name=task.named(series),
            css=drawing.css(task.kind_of(series)),
            page=task.page_of(series),
            remark=", ".join([status, *relative]),
            spark=sparks.get(series, ""),
            cells=tuple(Cell("", why=status) for _ in values),
            pinned=task.is_own(series) or series == task.baseline,
        )
        if status == "ok":
            cells = (
                Cell(written(means.get(series, math.nan), task.metric), heat(line.get(f"kept_{multiple}", math.nan)))
                for multiple, means in values.items()
            )
            remarks = [f"{line['seeds_learned']} of {line['seeds']} learned"] * (line["seeds_learned"] < line["seeds"])
            remarks += [f"trained {times[series]:.1f}×"] if times.get(series, 1) >= LONGER else []
            entry = replace(
                entry,
                places=words.span(line["place_low"], line["place_high"]) if task.placed else "",
                track=drawing.track(line["place_low"], line["place_high"], line["place"], ranked),
                remark=", ".join([*remarks, *relative]),
                cells=tuple(cells),
                mean=words.fixed(100 * line["kept"], ".0f"),
                ends=_ends(line),
                strip=drawing.strip(list(seeds[series]), line["kept"], line["low"], line["high"]),
                better=_better(task, series, ranked),
                last=words.fixed(100 * free.get(series, math.nan), ".0f"),
            )
        entries.append(entry)
    last = int(task.standing["up_to"].max()) if len(task.standing) else 1
    return Board(
        caption=f"Standings, {task.key}",
        heads=tuple((f"×{multiple}", str(axes.trained * multiple)) for multiple in values),
        place=("Place", "and its range") if task.placed else ("", ""),
        curve=("Curve", f"{axes.lengths[0]} … {axes.lengths[-1]}"),
        mean=(f"Kept, %, {mean_of(last)}", "dots: seeds, bar: 95 % interval"),
        better=_compared_with(task),
        last="Free-running" if free.notna().any() else "",
        entries=tuple(entries),
        note=_note(task),
        stem="standings",
        asked=task.asks_of_each,
    )


def _compared_with(task: TaskResults) -> str:
    if task.seeks_best:
        return "Possibly the best"
    return f"Kept, minus {task.baseline}, points" if task.asked else "Better than"


def trained_for(task: TaskResults) -> dict[str, float]:
    """Return the mean steps of the runs of each series, over those of the series that took fewest."""
    runs = task.trained[task.trained["run_id"].isin(task.quality["run_id"])]
    steps = pd.to_numeric(runs["steps"], errors="coerce").groupby(runs["series"]).mean()
    return (steps / steps.min()).to_dict()


def _ends(line: Mapping[Any, Any]) -> str:
    """Return the interval of what is kept, per cent, or why there is none although there are seeds enough."""
    in_two = "two groups" * (line["seeds_learned"] >= FEWEST)
    return words.between(100 * line["low"], 100 * line["high"], ".0f") or in_two


def mean_of(last: float) -> str:
    """Return the multiples of the training length, up to the last, over which what is kept is averaged."""
    read = [f"×{multiple}" for multiple in DOUBLINGS if multiple <= last]
    return f"mean of {words.listed(read)}" if len(read) > 1 else f"at {words.listed(read) or 'no length beyond it'}"


def _note(task: TaskResults) -> str:
    named = metric_of(task.metric)
    unit = "%" if is_share(task.metric) else named.unit
    note = f"Columns ×1, ×2 …: {named.label}, {unit}, teacher-forced. Kept: share of the quality in range, "
    note += "0 being a guess without reading, averaged over these multiples of the length."
    known = task.ranked[task.ranked["seeds_learned"] >= FEWEST]
    note += f" {NO_INTERVAL}" * bool(known["low"].isna().any())
    beaten = [len(beaten_by(task, str(series))) for series in task.standing["series"]]
    note += f" {ABOVE}" * (beaten != sorted(beaten, reverse=True) and task.placed)
    note += f" {TRAINED_ON}" * (max(trained_for(task).values(), default=1) >= LONGER)
    note += _whole(task)
    note += f" {OF_THE_BEST}" * task.seeks_best
    note += f" {AT_A_LOOK}" * (task.rule is not None and not task.seeks_best)
    note += f" {OTHER_TEXTS.format(words.few(task.on_other_texts))}" * bool(task.on_other_texts)
    return note + f" {likeness.NOTE}" * bool(task.relatives) + f" {likeness.EXTENDING}" * bool(len(task.extensions))


def _whole(task: TaskResults) -> str:
    """Say how many sequences are right as a whole at twice the training length, where tokens are what is compared."""
    rows = learned_only(task.rows_of(OVER_LENGTHS))
    rows = rows[(rows["metric"] == "exact_match") & (rows["status"] == "ok") & rows["position"].isna()]
    means = rows[rows["eval_length"] == 2 * rows["train_length"]].groupby("series")["value"].mean()
    if means.empty:
        return ""
    best = written(float(means.max()), "exact_match")
    return f" Whole answers at ×2 without a mistake: {best} % at best ({means.idxmax()})."


def rival(task: TaskResults, series: str) -> str:
    """Return a series less its strongest rival, in points of quality kept, with the test."""
    line = task.rivals.loc[series].to_dict()
    return f"beside {line['against']} {points(line)}, p {words.p_value(line['p_holm'])}"


def possibly_best(task: TaskResults, series: str) -> str:
    """Return whether a series that learned is possibly the best, and why not; a dash where nothing was compared."""
    if series not in task.rivals.index:
        return "–"
    return "yes" if series in task.possibly_best else f"no: {rival(task, series)}"


def _better(task: TaskResults, series: str, ranked: int) -> str:
    if task.seeks_best:
        return possibly_best(task, series)
    if task.asked:
        lines = task.against[task.against["series"] == series].to_dict("records")
        return against(task, lines[0]) if lines else "–"
    beaten = beaten_by(task, series)
    if len(beaten) == ranked - 1 > 1:
        return f"all {ranked - 1} others" if ranked > 3 else "both others"
    return words.listed(beaten) if 0 < len(beaten) <= 3 else f"{len(beaten)} others" if beaten else "–"


def beaten_by(task: TaskResults, series: str) -> list[str]:
    """Return the series that keep less of their quality than this one, by tests that were made."""
    family = task.family
    if series not in family.names:
        return []
    return [name for name, won in zip(family.names, family.wins[family.names.index(series)], strict=True) if won]


def points(line: Mapping[Any, Any]) -> str:
    """Return a series less the baseline, with the interval of the difference, in points of quality kept."""
    return words.signed(100 * line["difference"], 100 * line["low"], 100 * line["high"], 1)


def tested(line: Mapping[Any, Any]) -> str:
    """Return p of a comparison with the baseline, after a comma; blank where nothing was tested."""
    if line["p_holm"] != line["p_holm"]:
        return ""
    beside = line["p_holm"] >= SIGNIFICANCE and line["low"] * line["high"] > 0
    why = " (corrected for all comparisons; the interval is of this one alone)" * beside
    return f", p {words.p_value(line['p_holm'])}{why}"


def runs(line: Mapping[Any, Any]) -> str:
    """Return how many runs of both sides of a comparison with the baseline were compared, after a comma."""
    count = words.count(line["baseline_seeds"], "run")
    return f", {count} each" if line["seeds"] == line["baseline_seeds"] else f", {line['seeds']} and {count}"


def against(task: TaskResults, line: Mapping[Any, Any]) -> str:
    """Return a comparison with the baseline: difference in points of quality kept, interval, p, runs and verdict."""
    paired = _by_seed(task, line) * (task.about_own and line["verdict"] == comparisons.UNDECIDED)
    numbers = f"{points(line)}{tested(line)}{runs(line) * (task.rule is not None)}: "
    return f"{numbers if line['difference'] == line['difference'] else ''}{line['verdict']}{paired}"


def _by_seed(task: TaskResults, line: Mapping[Any, Any]) -> str:
    """Return the difference paired by seed where the seeds of a series and the baseline agree, as relatives' do."""
    if task.rule is None or task.rule[0].paired:
        return ""
    level = SIGNIFICANCE * task.rule[0].weights[-1]  # as that of the interval beside it, which is of the last look
    agree, test = comparisons.by_seed(task.scores, line["series"], str(task.baseline), level)
    difference, low, high = (100 * float(numbers[0]) for numbers in test[:3])
    less = words.signed(difference, low, high, 1)
    told = f" (by seed the two correlate by {words.fixed(agree)}; paired, {less}: not declared, so it decides nothing)"
    return told if agree >= AGREE else ""


def blocks(tasks: Sequence[TaskResults]) -> list[list[TaskResults]]:
    """Group tasks by the series that were measured on them, those with the most series first."""
    found: dict[frozenset[str], list[TaskResults]] = {}
    for task in tasks:
        found.setdefault(frozenset(task.standing["series"]), []).append(task)
    return [found[names] for names in sorted(found, key=lambda names: (-len(names), -len(found[names])))]


def compared(tasks: Sequence[TaskResults]) -> pd.DataFrame:
    """Return one line for each series over tasks, most wins less losses first: counts, tasks learned, mean kept.

    Of equals those come first that learned more tasks, since a mean over fewer is of other tasks.
    """
    pairs = comparisons.over_tasks(task.family for task in tasks)
    standing = pd.concat([task.standing for task in tasks])
    known, measured = standing[standing["status"] == "ok"].groupby("series"), standing.groupby("series").size()
    counts = pairs.groupby("first")[["wins", "losses", "tasks"]].sum().rename(columns={"tasks": "compared"})
    counts = counts.assign(tasks_learned=known.size()).reindex(measured.index).fillna(0).astype(int)
    table = counts.assign(kept=known["kept"].mean(), tasks=measured, net=counts["wins"] - counts["losses"])
    return table.reset_index().sort_values(["net", "tasks_learned", "kept"], ascending=False, ignore_index=True)


def over_tasks(tasks: Sequence[TaskResults]) -> Board:
    """Return the board over tasks: of a few what is kept and places on each, of many how often each place was taken."""
    table, few = compared(tasks), len(tasks) <= FEW
    known = pd.concat([task.ranked for task in tasks])
    lines = {task.key: {line["series"]: line for line in task.standing.to_dict("records")} for task in tasks}
    task_of = {series: task for task in reversed(tasks) for series in task.standing["series"]}
    most, entries = int(table[["wins", "losses"]].to_numpy().max()), []
    question, told = _question(tasks)
    heads: list[tuple[str, str]] = []
    if few:
        heads = [(task.label, "kept" if question else "kept, place") for task in tasks]
    elif not tasks[0].seeks_best:
        heads = [("better", "in"), ("worse", "in"), ("compared", "in")]
    for line in table.to_dict("records"):
        series = str(line["series"])
        task, own = task_of[series], known[known["series"] == series]
        lost = line["tasks"] - line["tasks_learned"]
        cells = [Cell(str(line[name])) for name in ("wins", "losses", "compared")][: len(heads)]
        if few:
            cells = [_on(lines[task.key].get(series), 0 if question else len(task.ranked)) for task in tasks]
        entries.append(
            Entry(
                track=drawing.taken(list(own["place"]), len(table)),
                name=task.named(series),
                css=drawing.css(task.kind_of(series)),
                page=task.page_of(series),
                remark=f"learned {line['tasks_learned']} of {line['tasks']} tasks" if lost else "",
                spark="" if question else drawing.diverging(line["wins"], line["losses"], most),
                cells=tuple(cells),
                mean=words.fixed(100 * line["kept"], ".0f") if not lost else "–",
                strip=drawing.strip(list(own["kept"]), math.nan if lost else line["kept"], math.nan, math.nan),
                better=_where(tasks, series) if question else "",
            )
        )
    return Board(
        caption=f"Standings over {len(tasks)} tasks",
        heads=tuple(heads),
        place=("", "") if few or not tasks[0].placed else ("Places", f"1 … {len(table)}"),
        curve=("", "") if question else ("Comparisons", "worse ┊ better"),
        mean=("Kept, mean, %", "dots: tasks"),
        better=question,
        last="",
        entries=tuple(entries),
        note=f"{told} Mean: where every task was learned.",
        stem="over_tasks",
        asked=bool(question),
    )


def _question(tasks: Sequence[TaskResults]) -> tuple[str, str]:
    """Return the head of what was asked of each series, blank where nothing was, and what the columns say."""
    if tasks[0].seeks_best:
        return "Possibly the best on", OF_THE_BEST
    if asked := words.few({str(task.baseline) for task in tasks if task.asked}):
        return f"Than {asked}", "Better, worse: decided within a task (Holm)."
    return "", "Worse, better: comparisons decided within a task (Holm), added up. Places: a dot or cell for each task."


def _on(line: dict[Any, Any] | None, count: int) -> Cell:
    """Return what a series keeps on a task, and its places among ``count``; hatched where it did not learn."""
    if line is None:
        return Cell("")
    if line["status"] != "ok":
        return Cell("", why=str(line["status"]))
    track = drawing.track(line["place_low"], line["place_high"], line["place"], count) if count else ""
    return Cell(words.fixed(100 * line["kept"], ".0f"), heat(line["kept"]), track=track)


def _where(tasks: Sequence[TaskResults], series: str) -> str:
    """Say on which tasks a series is better, worse and so on than what was asked about, or may be the best."""
    if tasks[0].seeks_best:
        return words.few(task.label for task in tasks if series in task.possibly_best) or "–"
    found: dict[str, list[str]] = {}
    for task in tasks:
        for verdict in task.against.loc[task.against["series"] == series, "verdict"]:
            found.setdefault(str(verdict), []).append(task.label)
    decided_first = sorted(found.items(), key=lambda group: group[0] not in (comparisons.BETTER, comparisons.WORSE))
    return "; ".join(f"{verdict}: {words.listed(keys)}" for verdict, keys in decided_first) or "–"


def families(task: TaskResults) -> list[tuple[str, str]]:
    """Return the classes and names of the families that curve and board colour."""
    shown = [*task.coloured, *task.standing["series"]]
    blank = "your own" if any(map(task.is_own, shown)) else "other"
    return [(drawing.css(kind), kind or blank) for kind in dict.fromkeys(map(task.kind_of, shown))]


def heat_map(tasks: Sequence[TaskResults]) -> dict[str, Any]:
    """Return tasks by series: what each keeps, hatched where it was not learned; the longer side goes down."""
    order = list(dict.fromkeys(series for task in tasks for series in style.looks(task.rows)))
    table: dict[tuple[str, str], Cell] = {}
    for task in tasks:
        for line in task.standing.to_dict("records"):
            if line["series"] not in order:
                continue
            kept, said = line["kept"], str(line["status"])
            if said == "ok":
                said = f"keeps {words.fixed(kept)}"
                said += f", place {words.span(line['place_low'], line['place_high'])}" * task.placed
            said = f"{line['series']} on {task.label}: {said}"
            table[task.key, line["series"]] = Cell(words.fixed(100 * kept, ".0f"), heat(kept), said)
    total = {series: sum(cell.heat or 0 for (_, name), cell in table.items() if name == series) for series in order}
    ranked = sorted(order, key=lambda series: -total[series])
    kinds = {s: drawing.css(next(task.kind_of(s) for task in tasks if s in task.order)) for s in ranked}
    hardest_last = sorted(tasks, key=lambda task: -task.standing["kept"].fillna(0).mean())
    return {
        "corner": "task",
        "caption": f"Quality kept, by task and encoding, %: {words.few(task.label for task in tasks)}",
        "note": "Share of the quality in range, mean of 2, 4 and 8 times the length, as far as measured, %. Hatched: "
        "not learned in range.",
        "stem": "standings",
        "series": [(series, kinds[series]) for series in ranked],
        "lines": [
            (task.label, task.path, [table.get((task.key, series), Cell("")) for series in ranked])
            for task in hardest_last
        ],
    }
