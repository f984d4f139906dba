"""What a report says of the published findings that its rows put to the test."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import pandas as pd

from experiments.figures.words import count, interval, listed
from experiments.report.page import Section, Table
from experiments.statistics.reproductions import DIFFERENT, PASS, UNDECIDED, Decided, Outcome

HOW = (
    f"Published numbers beside ours, at a smaller scale. {PASS}: every interval keeps to the published side. "
    f"{DIFFERENT}: one of them lies wholly on the other side, at a level divided by the number of comparisons of the "
    f"finding. {UNDECIDED}: neither, or something is lacking. Measured: mean over seeds with its 95 % t interval; "
    "contestants are compared by differences paired by seed. Rules and expectations stand in configs/reproduce/, "
    "written before the runs."
)


def said(decided: list[Decided]) -> list[str]:
    """One sentence for the summary."""
    told = listed(f"{each.reproduction.name} {each.verdict}" for each in decided)
    return [f"Published findings put to the test here: {told}."] if decided else []


def sections(decided: list[Decided]) -> list[Section]:
    """A heading, and a section below it for each finding."""
    return [Section("Published findings", [HOW]), *map(_section, decided)] if decided else []


def _section(each: Decided) -> Section:
    finding = each.reproduction
    open_ = [
        f"{outcome.test['of']}: {outcome.verdict}, {outcome.reason}" for outcome in each.outcomes if outcome.reason
    ]
    paragraphs = [
        f"{each.verdict}. {finding.statement} ({finding.source}).",
        f"There: {finding.there} Here: {finding.here} Expected before running: {finding.expected}",
        f"The published numbers: {finding.checked.removesuffix('.')}.",
        *([f"Not as published, or not decided: {'; '.join(open_)}."] if open_ else []),
    ]
    if each.unfinished:
        paragraphs.append(f"{count(each.unfinished, 'run')} of this folder failed or did not finish.")
    if each.verdict == UNDECIDED and finding.gpu:
        words = f"+reproduce={finding.name} name={finding.name}_gpu {finding.gpu}"
        paragraphs.append(f"At a larger scale, on a GPU: python run.py -m {words}")
    lines = [line for outcome in each.outcomes for line in _lines(outcome)]
    numbers = [
        {"finding": finding.name, "tested": outcome.test["of"], "unit": outcome.test["unit"]}
        | {"verdict": outcome.verdict, "reason": outcome.reason}
        | asdict(entry)
        for outcome in each.outcomes
        for entry in outcome.entries
    ]
    head = ["tested", "verdict", "rule", "contestant", "published", "measured"]
    table = Table(
        f"reproduction_{finding.name}",
        f"Published and measured, {finding.name}",
        pd.DataFrame(lines, columns=head),
        pd.DataFrame(numbers),
        sortable=False,
    )
    return Section(finding.name, paragraphs, [table], level=3)


def _lines(outcome: Outcome) -> Iterator[list[str]]:
    for place, entry in enumerate(outcome.entries):
        opening = ["as above", "", ""]
        if place == 0:
            opening = [str(outcome.test["of"]), outcome.verdict, in_words(outcome.test["rule"])]
        published = f"{entry.published:g} ({outcome.test['unit']})" if not math.isnan(entry.published) else ""
        ours = interval(entry.measured, entry.low, entry.high) if entry.seeds else "no value"
        seeds = f", {count(entry.seeds, 'seed')}" if entry.seeds else ""
        yield [*opening, entry.contestant, published, f"{ours}{seeds}"]


def in_words(rule: Mapping[str, Any]) -> str:
    """``none and t5 higher than rope; …``."""
    kind, what = next(iter(rule.items()))
    if kind == "holds":
        return "; ".join(f"{name} {text}" for name, text in what.items())
    return f" {kind} than ".join(listed(group) for group in what)
