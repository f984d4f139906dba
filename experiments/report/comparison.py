"""Two folders of results side by side: what changed from one to the other, and what is within noise."""

import itertools
from pathlib import Path

import pandas as pd

from experiments.figures import style, words
from experiments.report import page as pages
from experiments.report.changes import NOISE, SAME, UNTOLD, compare
from experiments.report.page import Page, Section, Table
from experiments.rows.read import MADE_WITH
from experiments.rows.results import Results, read
from experiments.rows.untrusted import stays_within

TESTED = ("difference", "95 % interval", "seeds", "paired by", "p (Holm)", "verdict")
"""Columns of a table of changes behind the two numbers."""


def write(folder: Path, against: Path) -> tuple[Page, Path]:
    """Write ``<folder>/report/against/<other's name>``; return the page and the path of the file that opens it.

    ValueError if a folder cannot be read, or a folder to write into is a link out of it.
    """
    page = build(read(folder), read(against))
    target = folder / "report" / "against" / style.slug(against.resolve().name)
    for part in (target.parent.parent, target.parent, target):
        stays_within(part, folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    return page, pages.write(page, target)


def build(ours: Results, theirs: Results) -> Page:
    """Return the page that compares two folders; differences are ours minus theirs."""
    paths = [results.folder.resolve() for results in (ours, theirs)]
    alike = paths[0].name == paths[1].name
    names = (str(ours.folder), str(theirs.folder)) if alike else (paths[0].name, paths[1].name)
    table = compare(ours.rows, theirs.rows)
    changed = table[~table["verdict"].isin((SAME, NOISE, UNTOLD))]
    settings, alone = _settings(ours, theirs, names), _alone(ours, theirs, names)
    less = f"{names[0]} minus {names[1]}"
    tables = {
        "Settings that differ": Table("settings", "Settings that differ", settings, settings),
        "What changed": Table("changed", f"What changed: {less}", _cells(changed, names), changed),
        "Every number in both": Table("differences", f"Every number in both: {less}", _cells(table, names), table),
        "In one folder only": Table("alone", "Series in one folder only", alone, alone),
    }
    sections = [Section(title, parts=[part]) for title, part in tables.items() if len(part.data)]
    if len(settings):
        caution = "Runs of the same series differ in these settings, which may explain the changes."
        sections[0].paragraphs.append(caution)
    method = [
        f"A difference is {less}, of the same task and series.",
        "Seeds that both have are paired; with fewer than two in common the interval is Welch's, for independent runs.",
        "Intervals are 95 % Student's t intervals; a number counts as changed if p is below 0.05 after Holm's "
        "correction for all numbers on this page.",
        "Only lengths that all seeds of both have are compared.",
    ]
    warnings = [
        f"No run of {name} has rows." for name, side in zip(names, (ours, theirs), strict=True) if side.rows.empty
    ]
    summary = _summary(table, changed, names)
    if differ := [f"{line[1]} ({line[2]} and {line[3]})" for line in settings.drop_duplicates("setting").to_numpy()]:
        summary.append(f"Their runs differ in {words.few(differ)}, which may explain the changes.")
    sections.append(Section("How it was compared", [" ".join(method)]))
    return Page(f"{names[0]} against {names[1]}", summary, sections, warnings=warnings, method=method)


def _summary(table: pd.DataFrame, changed: pd.DataFrame, names: tuple[str, str]) -> list[str]:
    if table.empty:
        return [f"{names[0]} and {names[1]} have no number of the same task and series: there is nothing to compare."]
    same, noise, single = (int((table["verdict"] == name).sum()) for name in (SAME, NOISE, UNTOLD))
    summary = [
        f"{words.count(len(table), 'number')} of the same task and series are in both: {len(changed)} changed, {noise} "
        f"within noise, {same} identical to the last digit"
        + (f", {single} of one seed each, which cannot be tested." if single else ".")
    ]
    for verdict, group in changed.groupby("verdict"):
        largest_first = group.sort_values("difference", key=lambda column: -column.abs())
        changes = [
            f"{line['series']} on {line['task']} ({line['what']}) by {words.fixed(line['difference'], '+.3g')}"
            for line in largest_first.to_dict("records")
        ]
        summary.append(f"In {names[0]} {verdict} than in {names[1]}: {words.few(changes)}.")
    return summary


def _cells(table: pd.DataFrame, names: tuple[str, str]) -> pd.DataFrame:
    lines = [
        [
            *(line["task"], line["series"], line["what"]),
            *(words.fixed(line["ours"], ".3f"), words.fixed(line["theirs"], ".3f")),
            *(words.fixed(line["difference"], "+.3f"), words.between(line["low"], line["high"], "+.3f")),
            *(line["seeds"], line["by"], words.p_value(line["p_holm"]), line["verdict"]),
        ]
        for line in table.to_dict("records")
    ]
    return pd.DataFrame(lines, columns=["task", "series", "number", *names, *TESTED])


def _alone(ours: Results, theirs: Results, names: tuple[str, str]) -> pd.DataFrame:
    mine, other = (set(results.rows[["task", "series"]].itertuples(index=False)) for results in (ours, theirs))
    lines = [[*key, names[0]] for key in sorted(mine - other)] + [[*key, names[1]] for key in sorted(other - mine)]
    return pd.DataFrame(lines, columns=["task", "series", "only in"])


def _settings(ours: Results, theirs: Results, names: tuple[str, str]) -> pd.DataFrame:
    sides = [_of_series(results) for results in (ours, theirs)]
    found: dict[tuple[str, ...], list[str]] = {}
    for task, series in (key for key in sides[0] if key in sides[1]):
        of_both = [side[task, series] for side in sides]
        for name in dict.fromkeys(itertools.chain(*of_both)):
            values = [words.few(sorted(values.get(name, {"unset"}))) for values in of_both]
            if values[0] != values[1]:
                found.setdefault((task, name, *values), []).append(series)
    lines = [[*key, words.few(series)] for key, series in found.items()]
    return pd.DataFrame(lines, columns=["task", "setting", *names, "series"])


def _of_series(results: Results) -> dict[tuple[str, str], dict[str, set[str]]]:
    found: dict[tuple[str, str], dict[str, set[str]]] = {}
    for run in results.finished.to_dict("records"):
        values = found.setdefault((str(run["task"]), str(run["series"])), {})
        config = {key: value for key, value in results.configs[run["run_id"]].items() if key not in ("name", "seeds")}
        for name, value in (config | {name: run[name] for name in MADE_WITH} | (run["packages"] or {})).items():
            if value is not None:
                values.setdefault(str(name), set()).add(str(value))
    return found
