"""What a report says of the claims that its rows decide."""

from __future__ import annotations

from dataclasses import asdict

import pandas as pd

from experiments.figures.words import count, short
from experiments.report.page import Section, Table
from experiments.statistics import claims

Decided = list[tuple[claims.Claim, str, list[claims.Finding]]]


def said(decided: Decided) -> list[str]:
    """One sentence for the summary: how many statements, and what became of them."""
    tested = [verdict for _, verdict, _ in decided if verdict != claims.NOT_MEASURED]
    if not tested:
        return []
    partly = sum(verdict.startswith((claims.ONLY, claims.IN_PART)) for verdict in tested)
    holding, failing, undecided = (tested.count(word) for word in (claims.HOLDS, claims.FAILS, claims.UNDECIDED))
    return [
        f"Of {count(len(tested), 'statement')} from teaching texts and papers put to the test here, {holding} hold, "
        f"{failing} fail, {partly} hold in some cases and fail in others, and {undecided} could not be decided."
    ]


def sections(decided: Decided) -> list[Section]:
    """A line for each case of each statement that was measured in this folder."""
    lines, numbers = [], []
    for claim, verdict, findings in decided:
        if verdict == claims.NOT_MEASURED:
            continue
        for place, finding in enumerate(f for f in findings if f.outcome != claims.NOT_MEASURED):
            interval = f" [{short(finding.low)}, {short(finding.high)}]" if finding.seeds > 1 else ""
            seeds = f", {count(finding.seeds, 'seed')}" if finding.seeds else "no value"
            value = f"{short(finding.measured)}{interval}{seeds}"
            outcome = f"{finding.outcome}: {finding.reason}" if finding.reason else finding.outcome
            opening = [f"{claim.statement} ({claim.source})", verdict] if place == 0 else ["as above", ""]
            lines.append([*opening, finding.when, f"{finding.what}: {value}", finding.rule, outcome])
            numbers.append({"statement": claim.statement, "verdict": verdict, "source": claim.source} | asdict(finding))
    if not lines:
        return []
    head = ["statement (source)", "verdict", "tested", "measured", "holds if", "outcome"]
    note = (
        "Measured: mean over seeds, with its 95 % t interval where there are two or more. A case holds, or fails, if "
        "its whole interval does; thresholds stand in configs/claims/, written before the measurement. "
    )
    without = sum(verdict == claims.NOT_MEASURED for _, verdict, _ in decided)
    if without:
        note += f"{count(without, 'further statement')} not measured here: python run.py -m +sweep=claims."
    cells = pd.DataFrame(lines, columns=head)
    return [
        Section(
            "Claims",
            parts=[Table("claims", "Statements put to the test", cells, pd.DataFrame(numbers), note, sortable=False)],
        )
    ]
