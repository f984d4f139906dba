"""Which encoder is better: on every task the places that each may have, and over tasks how many comparisons it wins."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from experiments.figures import standings as drawings
from experiments.figures import words
from experiments.report.page import Picture, Section, Table
from experiments.report.sections import likeness
from experiments.report.sections.task import MOST, PICTURED, TaskResults
from experiments.statistics import comparisons
from experiments.statistics.scores import DOUBLINGS, KEEPS

WHAT = (
    "Quality at a length is 1 where a run is as good as within its training length, and 0 where it is no better than "
    "the best blind guess. The area is its mean over doublings, from the training length to the longest named. Only "
    "runs that learned the task within the training length count; the column “seeds that learned” has the others."
)
PLACES = (
    "Places: those that a series may have; the true places of all series of a task are within these ranges with 95 % "
    "probability (all pairs tested)."
)
HALF = 0.5
"""Quality at twice the training length that some series keeps in a task that counts over tasks."""
LEARNED = "seeds that learned"
MATRIX = 24
"""Most series in the figure of all pairs."""


def ranked(tasks: Sequence[TaskResults]) -> list[TaskResults]:
    """Return the tasks with a quality beyond the training length of two series or more."""
    return [task for task in tasks if (task.standing["status"] == "ok").sum() > 1]


def counted(tasks: Sequence[TaskResults]) -> list[TaskResults]:
    """Return the ranked tasks that count over tasks: those of which some series keeps half of its quality at ×2."""
    return [task for task in ranked(tasks) if (task.standing["kept_2"] >= HALF).any()]


def _apart(tasks: Sequence[TaskResults]) -> list[str]:
    """Name the tasks that no series keeps."""
    known = {task.key for task in counted(tasks)}
    lost = [task.key for task in ranked(tasks) if task.key not in known] if len(tasks) > 1 else []
    why = "Not counted over tasks, since no series keeps half of its quality at twice the training length:"
    return [f"{why} {words.listed(lost)}."] if lost else []


def summary(tasks: Sequence[TaskResults]) -> list[str]:
    """Count comparisons with the baseline over all tasks; empty where there is one task."""
    known = counted(tasks)
    if len(known) < 2:
        return []
    verdicts = pd.concat([task.against for task in known])["verdict"]
    better, worse, undecided = (int((verdicts == name).sum()) for name in ("better", "worse", "undecided"))
    return [
        f"Over {len(known)} tasks, {better} of {words.count(len(verdicts), 'comparison')} with the baseline are "
        f"better, {worse} worse, {undecided} undecided; {len(verdicts) - better - worse - undecided} could not be made."
    ]


def sections(tasks: Sequence[TaskResults]) -> list[Section]:
    """Make the section: each task, then over tasks. Empty where nothing was measured beyond training."""
    known = ranked(tasks)
    if not known:
        return []
    several = counted(tasks)
    section = Section("Standings", [WHAT, *_apart(tasks)])
    section.parts += [_table(known), *_pictures(known), *(_over_tasks(several) if len(several) > 1 else [])]
    return [section]


def _table(tasks: Sequence[TaskResults]) -> Table:
    lines, data = [], []
    for task in tasks:
        free = task.free_standing.set_index("series")["area"]
        verdicts = task.against.set_index("series")
        data.append(task.standing.merge(task.against.drop(columns=["task", "metric", "seeds", "low", "high"]), "left"))
        data[-1]["free_running_area"] = data[-1]["series"].map(free)
        for line in task.standing.to_dict("records"):
            lines.append({"task": task.key} | _line(task, line, free, verdicts))
    cells = pd.DataFrame(lines)
    cells = cells.drop(columns=[column for column in cells if not cells[column].any()])
    baselines = words.listed(sorted({task.display(task.baseline) for task in tasks}))
    caption = "Standings beyond the training length"
    if len(tasks) == 1:
        caption, cells = f"{caption}, {tasks[0].key}", cells.drop(columns="task")
    note = (
        f"{PLACES} Area: teacher-forced, with the 95 % interval of its mean over seeds; none where seeds are fewer "
        "than three or fall into two clusters. Free-running: the same when the model reads its own output. Reach: "
        "median over seeds of the longest measured length, in training lengths, up to which "
        f"{KEEPS:.0%} of the quality is kept. Verdict: against {baselines}, by Welch's test of all runs. Holm's "
        "correction covers all pairs of a task; those with the baseline share half of the level."
    )
    note += f" {likeness.NOTE}" * ("scores" in cells) + f" {likeness.EXTENDING}" * any(len(t.extensions) for t in tasks)
    return Table("standings", caption, cells, pd.concat(data, ignore_index=True), note)


def _line(task: TaskResults, line: dict[Any, Any], free: "pd.Series[float]", verdicts: pd.DataFrame) -> dict[str, str]:
    known = line["status"] == "ok"
    cells = {
        "series": task.display(line["series"]),
        "places": words.span(line["place_low"], line["place_high"]),
        "in range": words.short(line["in_range"]),
    }
    cells |= {f"×{multiple}": words.fixed(line[f"kept_{multiple}"]) for multiple in DOUBLINGS}
    cells |= {
        "area": words.interval(line["area"], line["low"], line["high"], ".2f") if known else str(line["status"]),
        "free-running": words.fixed(free.get(line["series"])),
        "reach": f"×{line['reach']:.3g}" if known else "",
        LEARNED: f"{line['seeds_learned']} of {line['seeds']}",
        "scores": task.relatives.get(line["series"], ""),
        "verdict": "",
        "difference": "",
    }
    if line["series"] in verdicts.index:
        found = verdicts.loc[line["series"]]
        cells["verdict"] = str(found["verdict"]) if known else ""
        cells["difference"] = words.interval(found["difference"], found["low"], found["high"], "+.2f") if known else ""
    elif line["series"] == task.baseline:
        cells["verdict"] = "baseline"
    return cells


def _pictures(tasks: Sequence[TaskResults]) -> list[Picture]:
    """Draw the tables of several tasks as one figure, those with the most series first; of many only the first."""
    drawn = sorted((task for task in tasks if len(task.standing) <= MOST), key=lambda task: -len(task.standing))
    caption = (
        "Area of each seed (small dots), its mean (large dot; hollow: a run did not learn the task) and 95 % interval, "
        "and the places that a series may have."
    )
    step = drawings.PANELS
    groups = [drawn[first : first + step] for first in range(0, len(drawn), step)]
    return [
        Picture(
            f"standings_{number}" if len(groups) > 1 else "standings",
            caption,
            drawings.standings(
                pd.concat([task.standing.assign(series=task.standing["series"].map(task.named)) for task in group]),
                pd.concat([task.scores.assign(series=task.scores["series"].map(task.named)) for task in group]),
                {task.key: list(map(task.named, task.not_converged)) for task in group},
            ),
        )
        for number, group in enumerate(groups[: 1 if len(tasks) > PICTURED else None], start=1)
    ]


def _over_tasks(tasks: Sequence[TaskResults]) -> list[Table | Picture]:
    table = comparisons.over_tasks(task.family for task in tasks)
    counts = table.groupby("first")[["wins", "losses"]].sum()
    verdicts = pd.concat([task.against for task in tasks])
    against = verdicts.groupby(["series", "verdict"]).size().unstack(fill_value=0)
    standing = pd.concat([task.standing for task in tasks]).groupby("series")
    named = {series: task.named(series) for task in tasks for series in task.marks}
    learned = standing["status"].agg(lambda column: (column == "ok").sum())
    kept = standing["kept_2"].agg(lambda column: (column >= KEEPS).sum())
    data = (
        pd.DataFrame({"tasks": standing.size(), "tasks_learned": learned, "kept": kept})
        .join(counts, how="left")
        .fillna(0)
        .astype(int)
    )
    for name in ("better", "undecided", "worse"):
        data[name] = against.get(name, pd.Series(dtype=int)).reindex(data.index).fillna(0).astype(int)
    data = (
        data.assign(net=data["wins"] - data["losses"])
        .sort_values(["net", "tasks_learned"], ascending=False)
        .reset_index()
    )
    cells = pd.DataFrame(
        {
            "series": data["series"].map(lambda series: named.get(series, series)),
            "tasks learned": [
                f"{learned} of {of}" for learned, of in zip(data["tasks_learned"], data["tasks"], strict=True)
            ],
            f"{KEEPS:.0%} kept at ×2": data["kept"].astype(str),
            "wins": data["wins"].astype(str),
            "losses": data["losses"].astype(str),
            "better, undecided, worse than the baseline": [
                f"{a}, {b}, {c}" for a, b, c in data[["better", "undecided", "worse"]].itertuples(index=False)
            ],
        }
    )
    note = "Wins and losses: decided comparisons with all other series, over all tasks."
    caption = "All pairs: tasks in which the series of the line is better, less those in which it is worse."
    names = [name for name in data["series"] if name in set(table["first"])][:MATRIX]
    return [
        Table("over_tasks", "Over all tasks", cells, data.drop(columns="net"), note),
        Picture("pairs", caption, drawings.pairs(table, names), table),
    ]
