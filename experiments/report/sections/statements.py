"""What a report says of the published statements that its rows decide."""

import math
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import pandas as pd

from experiments.figures.words import count, interval, listed, p_value, quoted
from experiments.report import drawing
from experiments.report.page import Block, Part, Section, Table
from experiments.rows.row import OVER_LENGTHS
from experiments.statistics.comparisons import EQUAL, OPEN, UNDECIDED
from experiments.statistics.rule import FEWEST
from experiments.statistics.statements.compare import Comparison
from experiments.statistics.statements.schema import FAILS, HOLDS, NOT_MEASURED, Directed, comparisons
from experiments.statistics.statements.values import in_words
from experiments.statistics.statements.verdicts import IN_PART, ONLY, Decided, Outcome, comparison_table

HOW = (
    "Measured: mean over the runs that learned (over all where a test counts them), with its 95 % interval. Each "
    "comparison is a Welch test with Holm's correction within the statement. Rules stand in configs/statements/, "
    "written before the runs."
)
DIFFERENCES = (
    "Difference: from the other side or from the threshold; positive: as claimed. Intervals: 95 % before correction, "
    "valid at every look where seeds were added by a rule. Equal: the interval lies within what the file declares not "
    "to matter."
)
OF_ITS_OWN = (
    "Each claim has a scale, a measure and tests of its own: it may be decided where places in the table are not, and "
    "a share of right answers counts guesses, too."
)
BARS = (
    "A dot: what was measured, as far as it lies from what the claim needs (the line); a bar: its 95 % interval. To "
    f"the right of the line the claim holds. {OF_ITS_OWN} Cases that no run of this folder measures are named below it."
)
FEW = 2
"""Statements of a file up to which the first is the title of its folder's report, and not how many hold."""
STRIPS = 6
"""Most comparisons of a statement that are drawn; the tables have all."""
FROM = {"text": "from the paper", "code": "from its code", "data": "from its data", "from memory": "from memory"}
"""Where a published number is from, by what it was checked against."""


def summary_sentences(decided: list[Decided]) -> list[str]:
    """Return the verdicts on all findings but the first, which is the title, and a sentence on the other statements."""
    findings = [f"{_with_verdict(each)}." for each in decided if each.statement.setting]
    tested = [each for each in decided if not each.statement.setting and each.verdict != NOT_MEASURED]
    of = "These runs test other published statements, too" if findings else "Published statements that these runs test"
    return findings[1:] + [f"{of}: {_counted(tested)}."] * bool(tested)


def _counted(decided: list[Decided]) -> str:
    """Return how many statements have each verdict: ``5 hold, 1 fails and 2 hold in some cases alone``."""
    verdicts = [each.verdict for each in decided]
    partly = sum(verdict.startswith((ONLY, IN_PART)) for verdict in verdicts)
    counts = {("holds", "hold"): verdicts.count(HOLDS), ("fails", "fail"): verdicts.count(FAILS)}
    counts |= {("holds in some cases alone", "hold in some cases alone"): partly}
    counts |= {(f"is {verdict}", f"are {verdict}"): verdicts.count(verdict) for verdict in (EQUAL, UNDECIDED, OPEN)}
    part = sum(bool(_of_all(each)) for each in decided)
    some = f" ({part} of these measured in part)" * bool(part)
    return listed(f"{number} {how[number > 1]}" for how, number in counts.items() if number) + some


class Told(NamedTuple):
    """What a statement claims, its verdict, and the numbers of each case that has this verdict.

    ``part`` says how many cases were measured, if not all, ``lengths`` whether it is about quality over lengths,
    ``encoder`` of which one, if of one alone.
    """

    claim: str
    verdict: str
    part: str
    numbers: tuple[str, ...]
    encoder: str
    lengths: bool


def told(decided: list[Decided]) -> list[Told]:
    """Return what the rows say of each statement that was measured."""
    found = []
    for each in decided:
        if each.statement.setting or each.verdict == NOT_MEASURED:
            continue
        numbers = (
            f"{case.test['of']}: {in_words(case.test)} {measured}; needed: {quoted(one.comparison)}{_left(one)}"
            for case, one, asked in _compared(each)
            if (measured := _measured(case, asked)) and _css(one.verdict) == _css(each.verdict)
        )
        (encoder, *others) = {case.test["rows"].get("encoder") for case in each.outcomes}
        of = encoder if isinstance(encoder, str) and not others else ""
        told_of = (each.statement.statement, each.verdict, _of_all(each), tuple(numbers), of)
        found.append(Told(*told_of, _on_lengths(each)))
    return found


def _compared(each: Decided) -> list[tuple[Outcome, Comparison, Directed]]:
    """Return the comparisons of a statement that were made, each with its case and what was asked."""
    return [
        (case, one, asked)
        for case in each.outcomes
        if case.compared
        for one, asked in zip(case.compared, comparisons(case.test), strict=True)
    ]


def _on_lengths(each: Decided) -> bool:
    return all(case.test["rows"].get("experiment") == OVER_LENGTHS for case in each.outcomes)


def verdict(decided: list[Decided], *, asked: bool) -> str:
    """Return the verdict on what the folder was made for, or not: of few statements the first, of many how many hold.

    Blank if nothing of it was measured.
    """
    of = [each for each in decided if each.asked == asked and each.verdict != NOT_MEASURED]
    if asked and len(of) > FEW:
        return f"Of {len(of)} published statements {_counted(of)}"
    return next(map(_with_verdict, of), "")


def _with_verdict(each: Decided) -> str:
    return f"“{each.statement.statement}”: {each.verdict}"


def sections(decided: list[Decided]) -> tuple[list[Section], list[Section]]:
    """Return what the first page has, claims and what the folder was made for, and the numbers of other statements."""
    general = [each for each in decided if not each.statement.setting]
    measured = [each for each in general if each.verdict != NOT_MEASURED]
    # After what the folder was made for comes what most folders are about.
    measured.sort(key=lambda each: (not each.asked, not _on_lengths(each)))
    findings = [each for each in decided if each.statement.setting]
    section = Section("Claims", [BARS], parts=[Block("claims", [claim(each) for each in [*findings, *measured]])])
    first = [*[section] * bool(measured or findings), *map(_finding, findings)]
    own, others = ([each for each in measured if each.asked == asked] for asked in (True, False))
    missing = len(general) - len(measured)
    more = f"{count(missing, 'further statement')} not measured here: python run.py -m +sweep=claims." * bool(missing)
    return [*first, *_in_numbers(own, "")], _in_numbers(others, more)


def _in_numbers(measured: list[Decided], note: str) -> list[Section]:
    if not measured:
        return []
    table = _table("statements", "Published statements", measured, note)
    compared = _comparisons("statement_comparisons", "Comparisons of the statements", measured)
    tables: list[Part] = [replace(each, pasted=measured[0].asked) for each in (table, compared)]
    return [Section("Claims in numbers", [HOW], tables, folded=True)]


def claim(each: Decided) -> dict[str, Any]:
    """Return what the page shows of a statement: its verdict, and each comparison beside what it must be beyond."""
    compared = _compared(each)
    ends = [end for _, one, _ in compared for end in (one.low, one.high, one.difference) if end == end]
    delta = max((float(case.test.get("delta", 0)) for case, *_ in compared), default=0.0)
    scale = min([*ends, -delta, 0.0]), max([*ends, delta, 0.0])
    tests = [
        {
            "of": ": ".join(filter(None, (case.test["of"], quoted(one.comparison)))),
            "strip": drawing.interval(one.low, one.difference, one.high, scale),
            "said": ", ".join(filter(None, (_measured(case, asked), one.verdict))),
            "css": _css(one.verdict),
        }
        for case, one, asked in compared[:STRIPS]
    ]
    statement = each.statement
    verdict = ", ".join(filter(None, (each.verdict, _of_all(each))))
    what = "; ".join(dict.fromkeys(in_words(case.test) for case, *_ in compared[:STRIPS]))
    shown = {"statement": statement.statement, "source": statement.source, "what": what, "verdict": verdict}
    return shown | {"css": _css(each.verdict), "tests": tests, "missing": _missing(each)}


def _of_all(each: Decided) -> str:
    """Return how many cases of a statement were measured; blank where all were."""
    measured, every = sum(case.verdict != NOT_MEASURED for case in each.outcomes), len(each.outcomes)
    return f"{measured} of its {every} cases measured" * (measured < every)


def _missing(each: Decided) -> str:
    """Name the cases of a statement that were not measured, and the command that measures them; blank if none."""
    cases = "; ".join(str(case.test["of"]) for case in each.outcomes if case.verdict == NOT_MEASURED)
    command = f"python run.py -m +statements={each.statement.name}"
    return f"Not measured here: {cases}. All: docs/results.md, or {command} (--plan: how long)." if cases else ""


def _measured(case: Outcome, asked: Directed) -> str:
    """Return what was measured of the two sides of a comparison, or of the one that has a threshold."""
    entries = {entry.contestant: entry for entry in case.entries}
    sides = [entries[side] for side in (asked.one, asked.other) if isinstance(side, str)]
    if any(math.isnan(each.measured) for each in sides):
        return ""
    return " and ".join(interval(each.measured, each.low, each.high, "#.3g") for each in sides)


def _left(one: Comparison) -> str:
    """Return why a comparison decides nothing, in brackets; blank where it does."""
    return f" ({one.verdict})" if one.verdict not in (HOLDS, FAILS, EQUAL) else ""


def _css(verdict: str) -> str:
    return {HOLDS: "yes", FAILS: "no"}.get(verdict, "open")


def _finding(each: Decided) -> Section:
    finding, setting = each.statement, each.statement.setting
    paragraphs = [
        f"There: {setting['there']} Here: {setting['here']} Expected before running: {setting['expected']}",
        f"The published numbers: {setting['checked'].removesuffix('.')}. Ours are of a smaller scale.",
    ]
    if each.unfinished:
        paragraphs.append(f"{count(each.unfinished, 'run')} of this folder failed or did not finish.")
    if each.verdict == UNDECIDED and "gpu" in setting:
        words = f"+statements={finding.name} name={finding.name}_gpu {setting['gpu']}"
        paragraphs.append(f"At a larger scale, on a GPU: python run.py -m {words}")
    what = "Published and measured" if finding.numbers else "Measured"
    table = _table(f"statement_{finding.name}", f"{what}, {finding.name}", [each])
    compared = _comparisons(f"comparisons_{finding.name}", f"Comparisons, {finding.name}", [each])
    tables: list[Part] = [replace(part, pasted=True) for part in (table, compared)]
    return Section(f"{finding.statement}: setting and numbers", paragraphs, tables, folded=True)


def _comparisons(stem: str, caption: str, decided: list[Decided]) -> Table:
    data = comparison_table(decided).drop(columns="concerns")
    cells = data[["statement", "tested", "comparison", "seeds_learned"]].rename(columns={"seeds_learned": "seeds"})
    cells = cells.astype(str).drop(columns=["statement"] * (len(decided) == 1))
    ends = zip(data["difference"], data["low"], data["high"], strict=True)
    cells["difference"] = [interval(*numbers, "+#.3g") for numbers in ends]
    cells = cells.assign(**{"p (Holm)": data["p_holm"].map(p_value), "verdict": data["verdict"]})
    return Table(stem, caption, cells, data, DIFFERENCES, sortable=False)


def _table(stem: str, caption: str, decided: list[Decided], note: str = "") -> Table:
    lines, numbers = [], []
    for each in decided:
        named = {"statement": each.statement.statement, "source": each.statement.source, "verdict": each.verdict}
        opening = [f"{each.statement.statement} ({each.statement.source})", each.verdict]
        for case in each.outcomes:
            if case.verdict == NOT_MEASURED and not each.statement.setting:
                continue
            what = in_words(case.test)
            why = f": {case.reason}" * bool(case.reason)
            tested = [str(case.test["of"]), f"{case.verdict}{why}"]
            for entry in case.entries:
                seeds = f", {count(entry.seeds, 'seed')}" if entry.seeds else "no value"
                unlearned = f" ({entry.unlearned} more did not learn)" if entry.unlearned else ""
                unit = ", ".join(filter(None, (case.test["unit"], FROM.get(each.statement.numbers))))
                published = "" if math.isnan(entry.published) else f"{entry.published:g} ({unit})"
                ours = interval(entry.measured, entry.low, entry.high, "#.3g")
                groups = " in two groups" * (entry.seeds >= FEWEST and math.isnan(entry.low))
                measured = f"{what}: {ours}{seeds}{groups}{unlearned}"
                lines.append([*opening, *tested, entry.contestant, published, measured])
                test = {"tested": case.test["of"], "what": what, "unit": case.test["unit"]}
                test["numbers"] = each.statement.numbers
                numbers.append(named | test | asdict(entry) | {"outcome": case.verdict, "reason": case.reason})
                opening, tested = ["as above", ""], ["as above", ""]
    head = ["statement (source)", "verdict", "tested", "outcome", "contestant", "published", "measured"]
    cells = pd.DataFrame(lines, columns=head)
    empty = [name for name in ("contestant", "published") if not cells[name].any()]
    if decided[0].statement.setting:  # its section says what the statement is
        empty += head[:2]
    return Table(stem, caption, cells.drop(columns=empty), pd.DataFrame(numbers), note, sortable=False)
