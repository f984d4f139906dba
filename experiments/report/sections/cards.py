"""A card for each encoder: what it is, from its docstring, and its places in the rankings."""

from collections.abc import Sequence

import pandas as pd

from experiments.figures import style, words
from experiments.report.page import Card, Section
from experiments.report.paper import bibliography
from experiments.report.sections.task import TaskResults
from pe_zoo import _catalogue

UNFOLDED = 8
"""Most cards that are shown unfolded."""


def section(tasks: Sequence[TaskResults], order: Sequence[str]) -> Section:
    """Make the section: a card for every encoder that has rows, in the order of the series."""
    places: dict[str, list[str]] = {}
    for series in order:
        for task in tasks:
            named = task.rows.drop_duplicates("series").set_index("series")["encoder"].str.partition("(")[0]
            if series in named.index:
                plain = named.is_unique and series not in task.marks
                on = task.key if plain else f"{task.key}, {task.display(series)}"
                places.setdefault(named[series], []).extend(_place(on, series, task.standing))
                if series in task.relatives:
                    places[named[series]].append(f"{task.key}: {task.relatives[series]}")
    for task in tasks:
        for extension, method in task.extensions.groupby("series")["method"].first().items():
            places.setdefault(str(method), []).extend(_place(f"{task.key}, {extension}", str(extension), task.standing))
    known = {entry.name: entry for entry in _catalogue.encoders()}
    outside = _catalogue.Entry("", "Its source is not available.")
    unfolded = len(places) <= UNFOLDED
    cards = [_card(name, known.get(name, outside), words.few(found), unfolded) for name, found in places.items()]
    return Section("Encoders", parts=list(cards))


def _place(on: str, series: str, standing: pd.DataFrame) -> list[str]:
    """``copy: place 2–4 of 6``, where the series has a score."""
    ranked = standing[standing["status"] == "ok"]
    return [
        f"{on}: place {words.span(line['place_low'], line['place_high'])} of {len(ranked)}"
        for line in ranked[ranked["series"] == series].to_dict("records")
        if len(ranked) > 1
    ]


def _card(name: str, entry: _catalogue.Entry, short: str, unfolded: bool) -> Card:
    knobs = tuple((knob, each.default, each.description.replace("``", "")) for knob, each in entry.knobs.items())
    papers = tuple((_title(paper), paper.arxiv) for paper in entry.papers)
    summary = entry.summary.replace("``", "")
    return Card(name, style.slug(name), short, summary, entry.equation, knobs, papers, unfolded)


def _title(paper: _catalogue.Paper) -> str:
    fields, number = bibliography.entry_of(paper), f"arXiv:{paper.arxiv}"
    title = fields["title"].replace("{", "").replace("}", "")  # which keep capitals for BibTeX
    return number if title == number else f"{title} ({fields['year']}), {number}"
