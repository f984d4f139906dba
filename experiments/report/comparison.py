"""Two folders of results side by side: what changed from one to the other, and what is within noise."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from experiments.figures import style, words
from experiments.report import page as pages
from experiments.report.changes import BEYOND, NOISE, SAME, UNTOLD, compare
from experiments.report.page import Page, Picture, Section, Table
from experiments.rows.read import FINISHED
from experiments.rows.results import Results, load
from experiments.rows.row import among, metric_of
from experiments.rows.untrusted import stays_within

MADE_WITH = ("torch", "python", "device", "precision", "threads", "commit")


def write(folder: Path, against: Path) -> tuple[Page, Path]:
    """Write ``<folder>/report/against/<other's name>``; return the page and the path of the file that opens it."""
    page = build(load(folder), load(against))
    return page, pages.write(page, place(folder, against))


def place(folder: Path, against: Path) -> Path:
    """Return ``<folder>/report/against/<other's name>``, and make the folders above it.

    Raises:
        ValueError: one of them is a link out of the folder.
    """
    found = folder / "report" / "against" / style.slug(against.resolve().name)
    for part in (found.parent.parent, found.parent, found):
        stays_within(part, folder)
    found.parent.mkdir(parents=True, exist_ok=True)
    return found


def build(ours: Results, theirs: Results) -> Page:
    """Return the page that compares two folders; differences are ours minus theirs."""
    names = _names(ours, theirs)
    table = compare(ours.rows, theirs.rows)
    changed = table[~table["verdict"].isin((SAME, NOISE, UNTOLD))]
    sections = [
        _changes("What changed", "changed", changed, names) if len(changed) else None,
        _everything(table, names) if len(table) else None,
        _alone(ours, theirs, names),
        _settings(ours, theirs, names),
    ]
    return Page(
        f"{names[0]} against {names[1]}",
        _summary(table, changed, names),
        [f"No run of {names[side]} has rows." for side in (0, 1) if (ours, theirs)[side].rows.empty],
        _method(names),
        [section for section in sections if section],
    )


def _names(ours: Results, theirs: Results) -> tuple[str, str]:
    first, second = ours.folder.resolve(), theirs.folder.resolve()
    return (first.name, second.name) if first.name != second.name else (str(ours.folder), str(theirs.folder))


def _summary(table: pd.DataFrame, changed: pd.DataFrame, names: tuple[str, str]) -> list[str]:
    if table.empty:
        return [f"{names[0]} and {names[1]} have no number of the same task and series: there is nothing to compare."]
    counts = table["verdict"].value_counts()
    same, noise, single = (int(counts.get(name, 0)) for name in (SAME, NOISE, UNTOLD))
    summary = [
        f"{words.count(len(table), 'number')} of the same task and series are in both: {len(changed)} changed, {noise} "
        f"within noise, {same} identical to the last digit"
        + (f", {single} of one seed each, which cannot be tested." if single else ".")
    ]
    for verdict, group in changed.groupby("verdict"):
        largest_first = group.reindex(group["difference"].abs().sort_values(ascending=False).index)
        changes = [
            f"{line['series']} on {line['task']} ({line['what']}) by {line['difference']:+.3g}"
            for line in largest_first.to_dict("records")
        ]
        summary.append(f"In {names[0]} {verdict} than in {names[1]}: {words.few(changes)}.")
    return summary


def _method(names: tuple[str, str]) -> list[str]:
    return [
        f"A difference is {names[0]} minus {names[1]}, of the same task and series.",
        "Seeds that both have are paired; with fewer than two in common the interval is Welch's, for independent runs.",
        "Intervals are 95 % Student's t intervals; a number counts as changed if p is below 0.05 after Holm's "
        "correction for all numbers on this page.",
        "Only lengths that all seeds of both have are compared.",
    ]


def _everything(table: pd.DataFrame, names: tuple[str, str]) -> Section:
    section = _changes("Every number in both", "differences", table, names)
    for task, of_task in table[table["what"].str.endswith(BEYOND)].groupby("task"):
        caption = f"Difference beyond the training length, {task}: {names[0]} minus {names[1]}. Bars: 95 % interval."
        figure = _forest(of_task, f"{task}: {names[0]} minus {names[1]}")
        section.parts.insert(0, Picture(f"{style.slug(str(task))}_difference", caption, figure))
    return section


def _changes(title: str, stem: str, table: pd.DataFrame, names: tuple[str, str]) -> Section:
    lines = [
        [
            *(line["task"], line["series"], line["what"], f"{line['ours']:.3f}", f"{line['theirs']:.3f}"),
            f"{line['difference']:+.3f}",
            f"{line['low']:+.3f} to {line['high']:+.3f}" if line["low"] == line["low"] else "",
            *(line["seeds"], line["by"], words.p_value(line["p_holm"]), line["verdict"]),
        ]
        for line in table.to_dict("records")
    ]
    head = [
        "task",
        "series",
        "number",
        *names,
        "difference",
        "95 % interval",
        "seeds",
        "paired by",
        "p (Holm)",
        "verdict",
    ]
    cells = pd.DataFrame(lines, columns=head)
    return Section(title, parts=[Table(stem, f"{title}: {names[0]} minus {names[1]}", cells, table)])


def _forest(table: pd.DataFrame, title: str) -> Figure:
    """Draw the difference of each series with its interval, and a line at 0."""
    encoders = table.assign(encoder=table["series"].str.partition(" · ")[0])
    looks = style.looks(encoders)
    series_names = among(looks, table["series"])[::-1]
    with style.theme():
        figure = style.figure(1.2 + 0.28 * len(series_names))
        axes = figure.subplots()
        axes.axvline(0, color="#666666", linewidth=1.0, zorder=1)
        for height, series in enumerate(series_names):
            (line,) = table[table["series"] == series].to_dict("records")
            axes.plot([line["low"], line["high"]], [height, height], color=looks[series].colour, linewidth=1.8)
            axes.plot([line["difference"]], [height], **{**looks[series].marking(), "linestyle": ""})
        axes.set_yticks(range(len(series_names)), series_names)
        axes.set_ylim(-0.6, len(series_names) - 0.4)
        axes.set_xlabel(
            f"difference in {metric_of(str(table['metric'].iloc[0])).label}, mean beyond the training length"
        )
        axes.set_title(title)
        sns.despine(ax=axes)
    return figure


def _alone(ours: Results, theirs: Results, names: tuple[str, str]) -> Section | None:
    """List the series that only one folder has rows of."""
    there = [set(results.rows[["task", "series"]].itertuples(index=False, name=None)) for results in (ours, theirs)]
    lines = [
        [task, series, name]
        for name, mine, other in ((names[0], there[0], there[1]), (names[1], there[1], there[0]))
        for task, series in sorted(mine - other)
    ]
    if not lines:
        return None
    cells = pd.DataFrame(lines, columns=["task", "series", "only in"])
    return Section("In one folder only", parts=[Table("alone", "Series in one folder only", cells, cells)])


def _settings(ours: Results, theirs: Results, names: tuple[str, str]) -> Section | None:
    """List settings and versions that differ between runs of the same series."""
    sides = [_by_series(results) for results in (ours, theirs)]
    found: dict[tuple[str, str, str, str], list[str]] = {}
    for key in sides[0]:
        task, series = key
        if key not in sides[1]:
            continue
        mine, other = sides[0][key], sides[1][key]
        for name in dict.fromkeys([*mine, *other]):
            values = [words.few(sorted(side.get(name, {"unset"}))) for side in (mine, other)]
            if values[0] != values[1]:
                found.setdefault((task, name, *values), []).append(series)  # type: ignore[arg-type]
    if not found:
        return None
    cells = pd.DataFrame(
        [[*key, words.few(series_names)] for key, series_names in found.items()],
        columns=["task", "setting", *names, "series"],
    )
    caution = "Runs of the same series differ in these settings, which may explain the changes."
    return Section("Settings that differ", [caution], [Table("settings", "Settings that differ", cells, cells)])


def _by_series(results: Results) -> dict[tuple[str, str], dict[str, set[str]]]:
    """Return (task, series) -> setting -> its values over the finished runs, seeds among them."""
    found: dict[tuple[str, str], dict[str, set[str]]] = {}
    for run in results.runs[results.runs["status"].isin(FINISHED)].to_dict("records"):
        values = found.setdefault((str(run["task"]), str(run["series"])), {})
        config = {key: value for key, value in results.configs[run["run_id"]].items() if key not in ("name", "seeds")}
        made = {name: str(run[name]) for name in MADE_WITH if run[name] is not None}
        packages = run["packages"] if isinstance(run["packages"], dict) else {}
        for name, value in (config | made | {str(name): str(value) for name, value in packages.items()}).items():
            values.setdefault(name, set()).add(value)
    return found
