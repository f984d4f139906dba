"""A card for each encoder: what it is, from its source, and what it is good and bad at, from the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.figures import style
from experiments.figures import words as _words
from experiments.report.page import Card, Section
from experiments.report.paper import bibliography
from experiments.report.sections.ranking import Standings
from experiments.report.sections.task import OfTask
from experiments.statistics import reach
from pe_zoo import _catalogue

UNFOLDED = 8
"""Encoders whose cards are shown whole from the start; more of them are folded."""


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
    entry = next((entry for entry in _catalogue.encoders() if entry.name == encoder), None)
    findings = (("Good at", tuple(good)), ("Bad at", tuple(bad)), ("Measured", tuple(numbers)))
    slug, short = style.slug(encoder), _words.few(places)
    if entry is None:
        return Card(encoder, slug, short, "Its source is not at hand.", "", findings, unfolded=unfolded)
    knobs = tuple((name, knob.default, _plain(knob.description)) for name, knob in entry.knobs.items())
    papers = tuple((_title(paper.arxiv), paper.arxiv) for paper in entry.papers)
    return Card(encoder, slug, short, _plain(entry.summary), entry.equation, findings, knobs, papers, unfolded)


def _plain(text: str) -> str:
    return text.replace("``", "")


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


def _title(number: str) -> str:
    """Title and year of a paper, by its arXiv id; the id where the bibliography lacks it."""
    fields = next((entry for entry in bibliography.known().values() if entry.get("eprint") == number), None)
    if fields is None:
        return f"arXiv:{number}"
    title = fields["title"].replace("{", "").replace("}", "")  # which keep capitals for BibTeX
    return f"{title} ({fields['year']}), arXiv:{number}"
