"""Which encoder is better: places with significance groups in every task, and over tasks where there are several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from experiments.figures import ranks as drawings
from experiments.figures import words
from experiments.report.page import Picture, Section, Table
from experiments.report.sections.task import MOST, PICTURED, TaskResults
from experiments.rows.quality import OVER_LENGTHS
from experiments.rows.row import metric_of
from experiments.statistics import groups, intervals, ranks

Standings = dict[str, pd.DataFrame]
"""Task -> its lines of `groups.ranking`."""
GROUPS = (
    "Series sharing a letter do not differ significantly. At most 5 % of the differences between series without a "
    "common letter are expected to be false (Benjamini and Hochberg 1995, paired by seed)."
)
LENGTHS = {"in range": "the longest trained on", "beyond": "all beyond training", "twice": "twice the longest trained"}
OVERALL = {
    "group": "Group: mean ranks of series sharing a letter differ by no more than Nemenyi's critical difference.",
    "mean rank": "Mean rank: over the tasks that all series of the table have; 1 is best.",
    "place with other tasks": "Place with other tasks, first, in the top three: 95 % range and shares over resamples "
    "of the tasks.",
    "score": "Score: interquartile mean over all runs of (value − chance)/(best − chance): 0 is guessing, 1 perfect.",
    "score with other seeds": "With other seeds, with other tasks: 95 % bootstrap interval of the score.",
}
"""What the columns of the ranking over tasks mean."""


def standings(tasks: Sequence[TaskResults]) -> Standings:
    """Rank the series of every task with quality beyond the training length of two or more."""
    return {task.key: groups.ranking(task.beyond) for task in tasks if task.beyond["series"].nunique() > 1}


def summary(tasks: Sequence[TaskResults], standings: Standings) -> list[str]:
    """Name the leader over all tasks, and over those that most series have; empty where there is one task."""
    if len(standings) < 2:
        return []
    beyond = _all_beyond(tasks, standings)
    common = ranks.common(beyond)
    sentences = _leader(f"Over {words.count(len(ranks.ranks(beyond).columns), 'task')}", beyond)
    if len(common):
        names = sorted(common["task"].unique())
        sentences += _leader(f"Over the {len(names)} tasks that most series have ({words.few(names)})", common)
    return sentences


def _leader(over: str, beyond: pd.DataFrame) -> list[str]:
    table = ranks.over_tasks(beyond)
    if len(table) < 2:
        return []
    best = table.iloc[0]
    sentence = (
        f"{over}, {best['series']} has the best mean rank beyond the training length "
        f"({best['mean_rank']:.2f} of {len(table)})."
    )
    if not best["group"]:
        return [f"{sentence} With these tasks, no differences between mean ranks are significant."]
    tied = [line["series"] for line in table[1:].to_dict("records") if set(line["group"]) & set(best["group"])]
    return [f"{sentence} It does not differ significantly from {words.few(tied)}." if tied else sentence]


def sections(tasks: Sequence[TaskResults], standings: Standings, order: Sequence[str]) -> list[Section]:
    """Make the section: over tasks, then in each of them. Empty where nothing was measured beyond training."""
    if not standings:
        return []
    section = Section("Ranking", [f"Mean quality over all lengths beyond the training length, best first. {GROUPS}"])
    if len(standings) > 1:
        beyond = _all_beyond(tasks, standings)
        section.parts += _over_tasks(beyond)
        if len(common := ranks.common(beyond)):
            section.parts += _over_tasks(common, "common_", "the tasks that most series have")
        section.parts += _by_metric(tasks)
    section.parts += [_in_each(tasks, standings), *_pictures(tasks, standings)]
    return [section]


def _all_beyond(tasks: Sequence[TaskResults], standings: Standings) -> pd.DataFrame:
    return pd.concat([task.beyond for task in tasks if task.key in standings])


def _pictures(tasks: Sequence[TaskResults], standings: Standings) -> list[Picture]:
    """Draw the tables of several tasks as one figure, those with the most series first; of many only the first."""
    unlearned = {task.key: list(map(str, task.not_converged)) for task in tasks}
    drawn = {task: table for task, table in standings.items() if 2 <= (table["status"] == "ok").sum() <= MOST}
    ordered = sorted(drawn.values(), key=len, reverse=True)
    caption = (
        "Mean quality beyond the training length, its 95 % interval over seeds (cut at the edge), and the groups of "
        "the table above (b–e is bcde). Hollow: not every run learned the task within the training length."
    )
    step = drawings.PANELS
    parts = [pd.concat(ordered[first : first + step]) for first in range(0, len(ordered), step)]
    return [
        Picture(f"ranking_{number}" if len(parts) > 1 else "ranking", caption, drawings.ranking(part, unlearned))
        for number, part in enumerate(parts[: 1 if len(standings) > PICTURED else None], start=1)
    ]


def _in_each(tasks: Sequence[TaskResults], standings: Standings) -> Table:
    lines = []
    for task in (task for task in tasks if task.key in standings):
        compared = {line["series"]: line for line in task.compared.to_dict("records")}
        for line in standings[task.key].to_dict("records"):
            lines.append({"task": task.key} | _line(task, line, compared.get(line["series"])))
    cells, data = pd.DataFrame(lines), pd.concat(standings.values())
    caption = "Places in every task"
    if len(standings) == 1:
        caption, cells = f"Ranking beyond the training length, {data['task'].iloc[0]}", cells.drop(columns="task")
    metrics = words.listed(metric_of(name).label for name in sorted(data["metric"].unique()))
    note = (
        f"Mean: {metrics} over the lengths beyond the training length, then over seeds, with its t interval. Compare "
        "groups, not places. Verdict: on the difference from the series in column “against”, after Holm's correction "
        "for all such comparisons on this page."
    )
    return Table("ranking", caption, cells, data, note)


def _line(task: TaskResults, line: dict[Any, Any], compared: dict[Any, Any] | None) -> dict[str, str]:
    known = line["status"] == "ok"
    cells = {
        "series": task.display(line["series"]),
        "place": f"{line['rank']:g}" if known else "",
        "group": str(line["group"]),
        "mean": f"{line['mean']:.3f}" if known else str(line["status"]),
        "95 % interval": words.between(line["low"], line["high"]),
        "seeds": f"{line['seeds']:.0f} of {task.seeds[OVER_LENGTHS][line['series']]}",
    }
    if compared is None:
        return cells | dict.fromkeys(("against", "difference", "verdict"), "")
    found = task.comparison(compared)
    verdict = intervals.in_words(found["verdict"], compared["more_seeds"])
    return cells | {
        "against": task.display(compared["baseline"]),
        "difference": found["difference"],
        "verdict": verdict,
    }


def _over_tasks(beyond: pd.DataFrame, kind: str = "", which: str = "all tasks") -> list[Table | Picture]:
    """Ranks and scores over tasks, their uncertainty, and the critical differences; empty without common series."""
    places, scores = ranks.over_tasks(beyond), ranks.aggregate(beyond)
    order = dict.fromkeys([*places["series"], *scores["series"]])
    data = places.merge(scores, on="series", how="outer").set_index("series").loc[list(order)].reset_index()
    compared = data["mean_rank"].notna() | data["iqm"].notna()
    if not compared.any():
        return []
    cells = pd.DataFrame([_overall(line) for line in data[compared].to_dict("records")])
    blank = [column for column in cells if not cells[column].any()]
    notes = [note for column, note in OVERALL.items() if column in cells and column not in blank]
    if "group" in blank:
        notes.append("No groups: Friedman's test finds no difference between mean ranks, or cannot be made.")
    left_out = data[~compared].groupby("status")["series"]
    notes += [f"Left out, {status}: {words.few(sorted(series_names))}." for status, series_names in left_out]
    parts: list[Table | Picture] = [
        Table(f"ranking_over_{kind}tasks", f"Ranking over {which}", cells.drop(columns=blank), data, " ".join(notes))
    ]
    ranked = ranks.ranks(beyond)
    if 3 <= len(ranked) <= MOST and len(ranked.columns) > 1:
        caption = "Mean ranks over tasks, 1 is best. Bars join series within Nemenyi's critical difference."
        parts.append(Picture(f"{kind}critical_difference", caption, drawings.critical_difference(ranked), places))
    if 2 <= len(places) <= MOST and places["first"].notna().any():
        caption = (
            "Place by mean rank (dot), its 95 % range over resamples of the tasks (bar), and the shares of resamples "
            "in which a series is first and among the first three."
        )
        parts.append(Picture(f"{kind}places", caption, drawings.places(places)))
    return parts


def _overall(line: dict[Any, Any]) -> dict[str, str]:
    ranked = line["mean_rank"] == line["mean_rank"]
    resampled = ranked and line["first"] == line["first"]
    return {
        "series": str(line["series"]),
        "place": f"{line['place']:g}" if ranked else "",
        "group": str(line["group"]) if ranked else "",
        "mean rank": f"{line['mean_rank']:.2f}" if ranked else str(line["status"]),
        "place with other tasks": words.between(line["place_low"], line["place_high"], "g") if resampled else "",
        "first": f"{line['first']:.0%}" if resampled else "",
        "in the top three": f"{line['top_three']:.0%}" if resampled else "",
        "score": f"{line['iqm']:.3f}" if line["iqm"] == line["iqm"] else "",
        "score with other seeds": words.between(line["low"], line["high"]),
        "score with other tasks": words.between(line["tasks_low"], line["tasks_high"]),
    }


def _by_metric(tasks: Sequence[TaskResults]) -> list[Table]:
    """How much the order depends on the metric and the lengths; empty where there is only one choice."""
    found = ranks.by_metric(pd.concat([task.rows_of(OVER_LENGTHS) for task in tasks]))
    choices = [part for _, part in found.groupby(["metric", "lengths"], sort=False)]
    if len(choices) < 2:
        return []
    cells = pd.DataFrame(
        [
            {
                "metric": "main metric of each task" if line["metric"] == "main" else metric_of(line["metric"]).label,
                "lengths": LENGTHS[line["lengths"]],
                "tasks": f"{line['tasks']}",
                "first": words.few(part.loc[part["place"] == 1, "series"]),
                "agreement": words.short(round(line["agreement"], 3)),
            }
            for part in choices
            for line in part.head(1).to_dict("records")
        ]
    )
    note = (
        "First: best mean rank. Tasks: those that all compared series have. Agreement: Kendall's τ-b with the order by "
        "main metrics beyond the training length; 1 is the same order, −1 the reverse. The CSV file has every place."
    )
    return [Table("ranking_by_metric", "The ranking over tasks by other metrics and lengths", cells, found, note)]
