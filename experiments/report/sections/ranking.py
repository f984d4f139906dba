"""Who is better than whom: places with groups in every task, and over tasks where there are several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from experiments.figures import ranks, words
from experiments.report.page import Picture, Section, Table
from experiments.report.sections.task import MOST, PICTURED, OfTask
from experiments.rows.quality import OVER_LENGTHS
from experiments.rows.row import metric_of
from experiments.statistics import groups, intervals
from experiments.statistics import ranks as _ranks

Standings = dict[str, pd.DataFrame]
"""Task -> its lines of `groups.ranking`."""
GROUPS = (
    "Group: labels that share a letter cannot be told apart by these seeds; of the differences between labels that "
    "share none, at most 5 % are expected to be false (Benjamini and Hochberg 1995, paired by seed)."
)


def standings(tasks: Sequence[OfTask]) -> Standings:
    """The ranking of every task that has quality beyond the training length of two labels or more."""
    found = {}
    for of in tasks:
        if of.beyond["label"].nunique() > 1:
            found[of.task] = groups.ranking(of.beyond)
    return found


def said(tasks: Sequence[OfTask], standings: Standings) -> list[str]:
    """Who leads over all tasks, and over those that most labels have; nothing where there is one."""
    if len(standings) < 2:
        return []
    beyond = _all_beyond(tasks, standings)
    common = _ranks.common(beyond)
    over = words.count(len(_ranks.ranks(beyond).columns), "task")
    told = _leads(f"Over {over}", beyond)
    if len(common):
        over = f"{words.count(common['task'].nunique(), 'task')} that most labels have"
        told += _leads(f"Over the {over} ({words.few(sorted(common['task'].unique()))})", common)
    return told


def _leads(over: str, beyond: pd.DataFrame) -> list[str]:
    """Who leads over some tasks."""
    table = _ranks.over_tasks(beyond)
    if len(table) < 2:
        return []
    best = table.iloc[0]
    told = (
        f"{over}, {best['label']} has the best mean rank beyond the training length "
        f"({best['mean_rank']:.2f} of {len(table)})."
    )
    if best["first"] == best["first"]:
        told += f" With tasks drawn anew it is first in {best['first']:.0%} of the draws."
    shares = [line["label"] for line in table[1:].to_dict("records") if set(line["group"]) & set(best["group"])]
    if not best["group"]:
        told += " These tasks are too few, or agree too little, to tell labels apart by their ranks."
    elif shares:
        told += f" By their ranks it cannot be told apart from {words.few(shares)}."
    return [told]


def sections(tasks: Sequence[OfTask], standings: Standings, order: Sequence[str]) -> list[Section]:
    """The ranking: over tasks, then in each of them. Empty where nothing was measured beyond a training length."""
    if not standings:
        return []
    section = Section(
        "Ranking",
        [
            "Which encoder is better? Labels by their mean quality over all lengths beyond the training length, best "
            f"first. {GROUPS}"
        ],
    )
    if len(standings) > 1:
        beyond = _all_beyond(tasks, standings)
        section.parts += _over_tasks(beyond)
        if len(common := _ranks.common(beyond)):
            section.parts += _over_tasks(common, "common_", "the tasks that most labels have")
        section.parts += _by_metric(tasks)
    section.parts += [_in_each(tasks, standings), *_drawn(tasks, standings)]
    return [section]


def _all_beyond(tasks: Sequence[OfTask], standings: Standings) -> pd.DataFrame:
    return pd.concat([of.beyond for of in tasks if of.task in standings])


def _drawn(tasks: Sequence[OfTask], standings: Standings) -> list[Picture]:
    """The tables of several tasks as one figure, those with the most labels first; of very many the first alone."""
    unlearned = {of.task: list(map(str, of.not_converged)) for of in tasks}
    drawn = {task: table for task, table in standings.items() if 2 <= (table["status"] == "ok").sum() <= MOST}
    ordered = sorted(drawn.values(), key=len, reverse=True)
    caption = (
        "Mean quality beyond the training length (dot), its 95 % interval over seeds (bar; one that ends at the edge "
        "goes on) and the letters of the table above; b–e is bcde. Hollow: not every run learned the task within the "
        "training length."
    )
    step = ranks.PANELS
    parts = [pd.concat(ordered[first : first + step]) for first in range(0, len(ordered), step)]
    return [
        Picture(f"ranking_{number}" if len(parts) > 1 else "ranking", caption, ranks.ranking(part, unlearned))
        for number, part in enumerate(parts[: 1 if len(standings) > PICTURED else None], start=1)
    ]


def _in_each(tasks: Sequence[OfTask], standings: Standings) -> Table:
    """A line for each label of each task."""
    lines = []
    for of in (of for of in tasks if of.task in standings):
        compared = {line["label"]: line for line in of.compared.to_dict("records")}
        for line in standings[of.task].to_dict("records"):
            lines.append([*([of.task] if len(standings) > 1 else []), *_line(of, line, compared.get(line["label"]))])
    head = [*(["task"] if len(standings) > 1 else []), "label", "place", "group", "mean", "95 % interval", "seeds"]
    head += ["against", "difference", "verdict"]
    data = pd.concat(standings.values())
    metrics = words.listed(metric_of(name).label for name in sorted(data["metric"].unique()))
    note = (
        f"Mean: {metrics} over the lengths beyond the training length, then over seeds; its t interval. Places alone "
        "promise more than they hold: go by the groups. The verdict is on the difference from the label it was "
        "compared against, after Holm's correction for all such comparisons on this page."
    )
    one = f"Ranking beyond the training length, {data['task'].iloc[0]}"
    return Table(
        "ranking", "Places in every task" if len(standings) > 1 else one, pd.DataFrame(lines, columns=head), data, note
    )


def _line(of: OfTask, line: dict[Any, Any], compared: dict[Any, Any] | None) -> list[str]:
    known = line["status"] == "ok"
    told = [
        of.name(line["label"]),
        f"{line['rank']:g}" if known else "",
        str(line["group"]),
        f"{line['mean']:.3f}" if known else str(line["status"]),
        f"{line['low']:.3f} to {line['high']:.3f}" if line["low"] == line["low"] else "",
        f"{line['seeds']:.0f} of {of.seeds[OVER_LENGTHS][line['label']]}",
    ]
    if compared is None:
        return [*told, "", "", ""]
    verdict = intervals.in_words(words.said(compared["verdict"]), compared["more_seeds"])
    difference = f"{compared['difference']:+.3f}" if compared["pairs"] else ""
    return [*told, of.name(compared["baseline"]), difference, verdict]


# ---- over tasks ------------------------------------------------------------------------------------

OVERALL = {
    "group": "Group: labels that share a letter differ in mean rank by no more than Nemenyi's critical difference.",
    "mean rank": "Mean rank: over the tasks that all labels of the table have, 1 the best; labels that lack too many "
    "tasks are left out.",
    "place with other tasks": "Place with other tasks, first, in the top three: 95 % range and share of draws of as "
    "many tasks out of these, with replacement.",
    "score": "Score: interquartile mean over all runs of (value − chance)/(best − chance): 0 is guessing, 1 perfect.",
    "score with other seeds": "With other seeds: its 95 % interval by a bootstrap of the seeds of each task.",
    "score with other tasks": "With other tasks: the same by a bootstrap of the tasks.",
}
"""What the columns of the ranking over tasks mean, of those that are there."""


def _over_tasks(beyond: pd.DataFrame, kind: str = "", which: str = "all tasks") -> list[Table | Picture]:
    """Ranks and scores over tasks, how firm they are, and the critical differences; none without labels in common."""
    places, scores = _ranks.over_tasks(beyond), _ranks.aggregate(beyond)
    order = dict.fromkeys([*places["label"], *scores["label"]])
    data = places.merge(scores, on="label", how="outer").set_index("label").loc[list(order)].reset_index()
    compared = data["mean_rank"].notna() | data["iqm"].notna()
    if not compared.any():
        return []
    cells = pd.DataFrame([_overall(line) for line in data[compared].to_dict("records")])
    blank = [column for column in cells if not cells[column].any()]
    told = [OVERALL[column] for column in cells if column not in blank and column in OVERALL]
    if "group" in blank:
        told.append("No groups: Friedman's test finds no difference between mean ranks, or cannot be made.")
    left_out = data[~compared].groupby("status")["label"]
    told += [f"Left out, {status}: {words.few(sorted(labels))}." for status, labels in left_out]
    parts: list[Table | Picture] = [
        Table(f"ranking_over_{kind}tasks", f"Ranking over {which}", cells.drop(columns=blank), data, " ".join(told))
    ]
    ranked = _ranks.ranks(beyond)
    if 3 <= len(ranked) <= MOST and len(ranked.columns) > 1:
        caption = (
            "Mean ranks over tasks, 1 the best. Bars join labels whose mean ranks differ by less than Nemenyi's "
            "critical difference: they cannot be told apart."
        )
        parts.append(Picture(f"{kind}critical_difference", caption, ranks.critical_difference(ranked), places))
    if 2 <= len(places) <= MOST and places["first"].notna().any():
        caption = (
            "How firm places are: each label's place by mean rank (dot), the places that 95 % of other choices of as "
            "many of these tasks, drawn with replacement, give it (bar), and how often it is first and among the first "
            "three there."
        )
        parts.append(Picture(f"{kind}places", caption, ranks.places(places)))
    return parts


def _by_metric(tasks: Sequence[OfTask]) -> list[Table]:
    """How much the order hangs on what is counted; nothing where there is but one way of counting."""
    found = _ranks.by_metric(pd.concat([of.rows_of(OVER_LENGTHS) for of in tasks]))
    lines = found.drop_duplicates(["metric", "lengths"]).to_dict("records")
    if len(lines) < 2:
        return []
    cells = pd.DataFrame(
        [
            {
                "metric": "each task's own" if line["metric"] == "main" else metric_of(line["metric"]).label,
                "lengths": _LENGTHS[line["lengths"]],
                "tasks": f"{line['tasks']}",
                "first": words.few(_first(found, line)),
                "agreement": words.short(round(line["agreement"], 3)),
            }
            for line in lines
        ]
    )
    note = (
        "Agreement: Kendall's τ-b with the order by each task's own metric beyond the training length; 1 is the same "
        "order, 0 nothing in common, −1 the reverse. First: the best mean rank. Tasks: those that all compared labels "
        "have. Every label's place under each is in the CSV file."
    )
    return [Table("ranking_by_metric", "The ranking over tasks by other metrics and lengths", cells, found, note)]


_LENGTHS = {"in range": "the longest trained on", "beyond": "all beyond training", "twice": "twice the longest trained"}


def _first(found: pd.DataFrame, line: dict[Any, Any]) -> list[str]:
    """The labels in the first place where a line counts."""
    alike = (found["metric"] == line["metric"]) & (found["lengths"] == line["lengths"]) & (found["place"] == 1)
    return list(found.loc[alike, "label"])


def _overall(line: dict[Any, Any]) -> dict[str, str]:
    ranked = line["mean_rank"] == line["mean_rank"]
    redrawn = ranked and line["first"] == line["first"]
    scored = line["iqm"] == line["iqm"]
    return {
        "label": str(line["label"]),
        "place": f"{line['place']:g}" if ranked else "",
        "group": str(line["group"]) if ranked else "",
        "mean rank": f"{line['mean_rank']:.2f}" if ranked else str(line["status"]),
        "place with other tasks": f"{line['place_low']:g} to {line['place_high']:g}" if redrawn else "",
        "first": f"{line['first']:.0%}" if redrawn else "",
        "in the top three": f"{line['top_three']:.0%}" if redrawn else "",
        "score": f"{line['iqm']:.3f}" if scored else "",
        "score with other seeds": _range(line["low"], line["high"]),
        "score with other tasks": _range(line["tasks_low"], line["tasks_high"]),
    }


def _range(low: float, high: float) -> str:
    return f"{low:.3f} to {high:.3f}" if low == low else ""
