"""A card for each encoder: what it is, from its source, and what it is good and bad at, from the rows."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from experiments.figures import style
from experiments.figures import words as _words
from experiments.report import catalogue
from experiments.report.page import Card, Section
from experiments.report.paper import bibliography
from experiments.report.sections.ranking import Standings
from experiments.report.sections.task import OfTask
from experiments.statistics import reach

UNFOLDED = 8
"""Encoders whose cards are shown whole from the start; more of them are folded."""


@dataclass(frozen=True)
class Source:
    """What an encoder's docstring says."""

    said: str
    equation: str
    knobs: tuple[tuple[str, str, str], ...]
    papers: tuple[tuple[str, str], ...]


def section(tasks: Sequence[OfTask], standings: Standings) -> Section:
    """The cards of all encoders that have rows, in the order of the tables."""
    found = [_Findings(of, standings) for of in tasks]
    labels: dict[str, list[str]] = {}
    for of in found:
        for encoder, names in of.labels.items():
            labels[encoder] = list(dict.fromkeys([*labels.get(encoder, ()), *names]))
    cards = [
        _card(encoder, found, unfolded=len(labels) <= UNFOLDED)
        for encoder in sorted(labels, key=lambda name: _place(labels[name], tasks))
    ]
    told = (
        "What each encoder is, as its source says, and what it did here. Numbers are means over seeds; a label is an "
        "encoder with the settings in which it departs from the others."
    )
    return Section("Encoders", [told], list(cards))


def _place(labels: list[str], tasks: Sequence[OfTask]) -> int:
    return min(of.order.index(label) for of in tasks for label in labels if label in of.order)


def labels_of(of: OfTask) -> dict[str, list[str]]:
    """Encoder, without its knobs -> its labels in this task."""
    found: dict[str, list[str]] = {}
    encoders = of.rows.drop_duplicates("label").set_index("label")["encoder"]
    for label in of.order:
        found.setdefault(str(encoders[label]).partition("(")[0], []).append(label)
    return found


def _card(encoder: str, found: Sequence[_Findings], *, unfolded: bool) -> Card:
    good: list[str] = []
    bad: list[str] = []
    numbers: list[str] = []
    places: list[str] = []
    for of in found:
        for label in of.labels.get(encoder, ()):
            one_good, one_bad, number, place = of.of(label)
            good += one_good
            bad += one_bad
            numbers += number
            places += place
    source = sources().get(encoder)
    findings = (("Good at", tuple(good)), ("Bad at", tuple(bad)), ("Measured", tuple(numbers)))
    short = _words.few(places)
    if source is None:
        return Card(encoder, style.slug(encoder), short, "Its source is not at hand.", "", findings, unfolded=unfolded)
    return Card(
        encoder,
        style.slug(encoder),
        short,
        source.said,
        source.equation,
        findings,
        source.knobs,
        source.papers,
        unfolded,
    )


class _Findings:
    """What the rows of one task say of a label."""

    def __init__(self, of: OfTask, standings: Standings) -> None:
        self.task, self.labels = of, labels_of(of)
        standing = standings.get(of.task)
        self.places = {} if standing is None else {line["label"]: line for line in standing.to_dict("records")}
        self.ranked = sum(line["status"] == "ok" for line in self.places.values())
        self.compared = {line["label"]: line for line in of.compared.to_dict("records")}
        self.reach = {line["label"]: line for line in of.reach.to_dict("records")}
        lacking = of.quality[of.quality["status"] != "ok"]
        self.next = of.quality.loc[of.quality["eval_length"] > of.quality["train_length"], "eval_length"].min()
        self.lacking: dict[Any, int] = lacking.groupby(["label", "status"])["eval_length"].min().to_dict()
        self.judged = of.runs.assign(failed=[judged is False for judged in of.runs["converged"]])

    def of(self, label: str) -> tuple[list[str], list[str], list[str], list[str]]:
        """Good, bad, numbers, place: each a list of lines."""
        good: list[str] = []
        bad: list[str] = []
        on = f"{self.task.task}, {label}" if len(self.labels) != len(self.task.order) else self.task.task
        place, numbers, short = self.places.get(label), [], []
        if place is not None and place["status"] == "ok":
            interval = _words.interval(place["mean"], place["low"], place["high"])
            group = f", group {place['group']}" if place["group"] else ""
            said = f"{on}: {interval} beyond the training length, place {place['rank']:g} of {self.ranked}{group}"
            short.append(f"{on}: place {place['rank']:g} of {self.ranked}{group}")
            numbers.append(f"{said}.")
            if "a" in str(place["group"]) and self._has_others(place["group"]):
                good.append(f"{on}: in the best group, which not every label is.")
        self._compare(label, on, good, bad)
        self._reached(label, on, good, bad)
        self._failed(label, on, bad)
        return good, bad, numbers, short

    def _has_others(self, group: str) -> bool:
        return any(line["group"] and not set(line["group"]) & set(group) for line in self.places.values())

    def _compare(self, label: str, on: str, good: list[str], bad: list[str]) -> None:
        line = self.compared.get(label)
        if line is None or line["verdict"] not in ("better", "worse"):
            return
        amount = _words.amount(line["difference"], line["low"], line["high"])
        said = f"{on}: {line['verdict']} than {line['baseline']} beyond the training length, by {amount}"
        (good if line["verdict"] == "better" else bad).append(f"{said} (p {_equal(line['p_holm'])} after Holm).")

    def _reached(self, label: str, on: str, good: list[str], bad: list[str]) -> None:
        line = self.reach.get(label)
        if line is None or line["multiple"] != line["multiple"] or line["longest"] <= line["train_length"]:
            return
        kept = f"{reach.KEEPS:.0%} of its quality within the training length"
        if line["multiple"] > 1:
            more = ", the longest measured" if line["reach"] == line["longest"] else ""
            if label not in self.task.not_converged:  # what was never learned is easily kept
                good.append(f"{on}: keeps {kept} up to {line['multiple']:.3g} times that length{more}.")
        elif not self.lacking.get((label, "unsupported"), self.next + 1) <= self.next:
            multiple = self.next / line["train_length"]
            bad.append(f"{on}: does not keep {kept} up to the next length measured, {multiple:.3g} times that length.")

    def _failed(self, label: str, on: str, bad: list[str]) -> None:
        for (of_label, status), length in self.lacking.items():
            if of_label == label and status == "unsupported":
                bad.append(f"{on}: cannot be asked from length {length} on.")
            elif of_label == label:
                bad.append(f"{on}: {status} from length {length} on, in some seed.")
        runs = self.judged[self.judged["label"] == label]
        if failed := int(runs["failed"].sum()):
            bad.append(f"{on}: did not learn the task within the training length in {failed} of {len(runs)} runs.")


def _equal(p: float) -> str:
    written = _words.p_value(p)
    return written if written.startswith("<") else f"= {written}"


# ---- docstrings ------------------------------------------------------------------------------------


@cache
def sources() -> dict[str, Source]:
    """Every encoder of the zoo with what its docstring says, read from the files without importing them."""
    docstrings = bibliography.registered()
    return {entry.name: read(docstrings["encoder", entry.name], entry.knobs) for entry in catalogue.encoders()}


def read(docstring: str, knobs: dict[str, str]) -> Source:
    """A docstring of the project's order: summary, equation, ``Args``, ``Departures``."""
    text = docstring.partition("\nDepartures:")[0]
    text, _, arguments = text.partition("\nArgs:\n")
    summary, *body = text.strip().split("\n\n")
    equation = "\n\n".join(inspect.cleandoc(block) for block in body if block.startswith("    "))
    told = {
        name: " ".join(words.split()).replace("``", "")
        for name, words in re.findall(r"^ {4}(\w+): ((?:.*\n?)(?: {8}.*\n?|\n)*)", arguments, flags=re.MULTILINE)
    }
    cited = dict.fromkeys(re.findall(r"arXiv:(\d{4}\.\d{4,5})", summary))
    return Source(
        " ".join(summary.split()).replace("``", ""),
        equation,
        tuple((name, default.strip("'\""), told.get(name, "")) for name, default in knobs.items()),
        tuple((_title(number), number) for number in cited),
    )


def _title(number: str) -> str:
    """Title and year of a paper, by its arXiv id; the id where the bibliography lacks it."""
    fields = next((entry.fields for entry in bibliography.known().values() if entry.arxiv == number), None)
    if fields is None:
        return f"arXiv:{number}"
    title = fields["title"].replace("{", "").replace("}", "")  # which keep capitals for BibTeX
    return f"{title} ({fields['year']}), arXiv:{number}"
