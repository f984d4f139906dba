"""A card for each encoder: what it is, from its docstring, and its places in the rankings."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from experiments.figures import style, words
from experiments.report.page import Card, Section
from experiments.report.paper import bibliography
from experiments.report.sections.ranking import Standings
from experiments.report.sections.task import TaskResults
from pe_zoo import _catalogue

UNFOLDED = 8
"""Most cards that are shown unfolded."""


def section(tasks: Sequence[TaskResults], standings: Standings, order: Sequence[str]) -> Section:
    """Make the section: a card for every encoder that has rows, in the order of the series."""
    places: dict[str, list[str]] = {}
    encoders = [
        task.rows.drop_duplicates("series").set_index("series")["encoder"].str.partition("(")[0] for task in tasks
    ]
    for series in order:
        for task, named in zip(tasks, encoders, strict=True):
            if series in named.index:
                on = task.key if named.is_unique else f"{task.key}, {task.display(series)}"
                places.setdefault(named[series], []).extend(_place(on, series, standings.get(task.key)))
    cards = [_card(encoder, places[encoder], unfolded=len(places) <= UNFOLDED) for encoder in places]
    return Section("Encoders", parts=list(cards))


def _place(on: str, series: str, standing: pd.DataFrame | None) -> list[str]:
    """``copy: place 2 of 6, group ab``, where there is a ranking of the task that has the series."""
    if standing is None:
        return []
    ranked = standing[standing["status"] == "ok"]
    return [
        f"{on}: place {line['rank']:g} of {len(ranked)}" + (f", group {line['group']}" if line["group"] else "")
        for line in ranked[ranked["series"] == series].to_dict("records")
    ]


def _card(encoder: str, places: list[str], *, unfolded: bool) -> Card:
    found = (entry for entry in _catalogue.encoders() if entry.name == encoder)
    entry = next(found, _catalogue.Entry(encoder, "Its source is not available."))
    return Card(
        name=encoder,
        stem=style.slug(encoder),
        short=words.few(places),
        description=_plain(entry.summary),
        equation=entry.equation,
        knobs=tuple((name, knob.default, _plain(knob.description)) for name, knob in entry.knobs.items()),
        papers=tuple((_title(paper.arxiv), paper.arxiv) for paper in entry.papers),
        unfolded=unfolded,
    )


def _plain(text: str) -> str:
    return text.replace("``", "")


def _title(number: str) -> str:
    """Title and year of a paper, by its arXiv id; the id where the bibliography lacks it."""
    fields = next((entry for entry in bibliography.known().values() if entry.get("eprint") == number), None)
    if fields is None:
        return f"arXiv:{number}"
    title = fields["title"].replace("{", "").replace("}", "")  # which keep capitals for BibTeX
    return f"{title} ({fields['year']}), arXiv:{number}"
