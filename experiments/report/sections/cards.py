"""A page for each encoder: what it is, from its docstring, a curve for each task, claims about it, and its cost."""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from experiments.figures import style, words
from experiments.measures.context_extension import AS_TRAINED, FINE_TUNED, WINDOW
from experiments.measures.context_extension import NAME as EXTENDED
from experiments.report import board, drawing
from experiments.report.page import Block, Page, Section
from experiments.report.paper import bibliography
from experiments.report.sections.curves import learned_only
from experiments.report.sections.statements import OF_ITS_OWN, claim
from experiments.report.sections.task import TaskResults
from experiments.rows.row import main_metric, metric_of, not_in_parts
from experiments.statistics.scores import NOT_MEASURED
from experiments.statistics.statements.verdicts import Decided
from pe_zoo import _catalogue

CHANGED = (
    "Quality at the longest length, over that of the same model at its training length, best first; trained no further "
    "unless fine-tuned. Window: attention limited to the training length."
)
RIVALS = 3
"""Most others, the best first, that are drawn beside the baseline itself."""
COMPARED = 8
"""Most comparisons with the baseline that its own page has."""
MOVED = 6
"""Most parameters of an encoder whose change in training is told: those that moved most."""
OUTSIDE = "Its source is not available: it was not part of this package when its runs were made."


def _encoders(tasks: Sequence[TaskResults]) -> dict[str, list[tuple[TaskResults, list[str]]]]:
    """Return encoder -> the tasks that have rows of it, with its series there."""
    found: dict[str, list[tuple[TaskResults, list[str]]]] = {}
    for task in tasks:
        named = task.encoders
        for encoder in dict.fromkeys(named.values()):
            of_encoder = [series for series in named if named[series] == encoder]
            found.setdefault(encoder, []).append((task, of_encoder))
    return {name: found[name] for name in sorted(found, key=style._encoder_order)}


def links(tasks: Sequence[TaskResults]) -> list[dict[str, str]]:
    """Return a link to the page of each encoder, with what it is."""
    found = []
    for name, ((task, (series, *_)), *_) in _encoders(tasks).items():
        said = task.catalogue[name].sentence if name in task.catalogue else ""
        kind = {"css": drawing.css(task.kind_of(series)), "drawing": ""}
        found.append({"name": name, "page": task.page_of(series), "said": said} | kind)
    return found


def pages(tasks: Sequence[TaskResults], decided: Sequence[Decided]) -> list[Page]:
    """Make the page of every encoder that has rows."""
    return [_page(name, of_tasks, decided) for name, of_tasks in _encoders(tasks).items()]


def _page(name: str, of_tasks: list[tuple[TaskResults, list[str]]], decided: Sequence[Decided]) -> Page:
    task, names = of_tasks[0]
    entry = task.catalogue.get(name, _catalogue.Entry("", OUTSIDE))
    beside = "the best others" if task.baseline in names else "the baseline"
    what = Section("What it is", parts=[Block("card", _card(entry, of_tasks))])
    found = Section(f"On each task, beside {beside}", parts=[Block("smalls", _smalls(of_tasks))])
    sections = [found, what] if entry.declared.get("file") else [what, found]  # an author knows what it is
    if changed := _changed(name, of_tasks):
        sections.insert(0, Section("In a trained model, beyond its length", [CHANGED], [Block("list", changed)]))
    ours = {(each.key, series) for each, of_encoder in of_tasks for series in of_encoder}
    claims = [
        claim(each) for each in decided if any(one.concerns & ours for case in each.outcomes for one in case.compared)
    ]
    if claims:
        sections.append(Section("Claims", [OF_ITS_OWN], [Block("claims", claims)]))
    marks = {each.marks.get(series, "") for each, of_encoder in of_tasks for series in of_encoder} - {""}
    title = f"{name}{marks.pop() if len(marks) == 1 else ''}"
    return Page(title, [], sections, path=task.page_of(names[0]), name=name)


def _card(entry: _catalogue.Entry, of_tasks: list[tuple[TaskResults, list[str]]]) -> dict[str, Any]:
    knobs = [(knob, each.default, each.description.replace("``", "")) for knob, each in entry.knobs.items()]
    paragraphs = [entry.summary, *(block for block in entry.paragraphs if not block.startswith(" "))]
    runs = pd.concat([task.runs[task.runs["series"].isin(names)] for task, names in of_tasks])
    facts = [("Departures", entry.departures)] if entry.departures else []
    if entry.declared.get("file"):
        facts.append(("File", f"{entry.declared['file']}, sha256 {entry.declared['sha256'][:12]}"))
        facts.append(("Contract", entry.declared["check"]))
    parameters = pd.to_numeric(runs["encoder_parameters"], errors="coerce").dropna()
    if len(parameters):
        low, high = words.number(float(parameters.min())), words.number(float(parameters.max()))
        facts.append(("Parameters", low if low == high else f"{low} to {high}"))
    changes = {str(series): _moved(part) for series, part in runs.groupby("series", sort=False)}
    several = sum(map(bool, changes.values())) > 1
    facts += [(what + f", {series}" * several, said) for series, of in changes.items() for what, said in of]
    facts += _values(runs)
    rows = pd.concat([task.rows_of("cost") for task, _ in of_tasks])
    of_encoder = rows[rows["series"].isin({name for _, names in of_tasks for name in names}) & (rows["status"] == "ok")]
    for metric, what in (("relative_operations", "Operations"), ("relative_train_time", "Training time")):
        values = of_encoder.loc[of_encoder["metric"] == metric, "value"]
        facts += [(what, f"{values.mean():.2f} times those without encoder")] if len(values) else []
    return {
        "description": " ".join(paragraphs).replace("``", ""),
        "equation": entry.equation,
        "knobs": knobs,
        "facts": facts,
        "papers": [(_title(paper), paper.link) for paper in entry.papers],
    }


def _moved(runs: pd.DataFrame) -> list[tuple[str, str]]:
    """Say how far training moved the parameters of an encoder, of runs that noted it."""
    noted = [each for each in runs.get("moved", ()) if isinstance(each, dict)]
    if not noted:
        return []
    shares = {  # of a folder from elsewhere, too
        name: [100 * each[name] for each in noted if isinstance(each.get(name), int | float)] for name in noted[0]
    }
    names, told = list(shares), []
    if len(names) > MOVED:
        names = sorted(names, key=lambda name: max(shares[name], default=math.inf), reverse=True)
    for name in names[:MOVED]:
        of_runs = shares[name]
        ends = dict.fromkeys(f"{float(f'{end:.2g}'):,g}" for end in (min(of_runs), max(of_runs))) if of_runs else ()
        told.append(f"{name} by {' to '.join(ends)} % of its size" if ends else f"{name} from 0")
    told += [f"{len(names) - MOVED} more by less"] * (len(names) > MOVED)
    found = [("Moved in training", f"{'; '.join(told)}; {words.count(len(noted), 'run')}")]
    signs = [each for each in runs.get("turned", ()) if isinstance(each, dict)]
    counts = {name: [each[name] for each in signs if name in each] for name in names[:MOVED]}
    changed = [
        f"{name} in {len(of)} of {words.count(len(signs), 'run')} (entries: {words.few(dict.fromkeys(map(str, of)))})"
        for name, of in counts.items()
        if of
    ]
    return found + [("Changed sign in training", "; ".join(changed))] * bool(changed)


def _values(runs: pd.DataFrame) -> list[tuple[str, str]]:
    """List the entries of small parameters before training and after, of the first run of each series that has them."""
    noted = runs[[isinstance(each, dict) for each in runs.get("values", [None] * len(runs))]]
    found = []
    for run in noted.drop_duplicates("series").to_dict("records"):
        told = [
            f"{name} {' → '.join(' '.join(words.minus(f'{entry:g}') for entry in entries) for entries in ends)}"
            for name, ends in run["values"].items()
            if _are_entries(ends)
        ]
        if told:
            found.append((f"Values before training → after, {run['series']} ({run['run_id']})", "; ".join(told)))
    return found


def _are_entries(ends: object) -> bool:  # of a folder from elsewhere, too
    return isinstance(ends, list) and all(
        isinstance(entries, list) and all(isinstance(entry, int | float) for entry in entries) for entries in ends
    )


def _smalls(of_tasks: list[tuple[TaskResults, list[str]]]) -> list[dict[str, Any]]:
    found = []
    for task, names in of_tasks:
        if task.measured.empty:
            continue
        known = [line for line in task.curves if line.mean]
        own, others = ([line for line in known if (line.name in names) is ours] for ours in (True, False))
        if task.baseline not in names:
            others = [line for line in others if line.name == task.baseline]
        drawn = drawing.named(others[:RIVALS], own, task.axes) if own else ""
        said = [line for series in names for line in _numbers(task, series)]
        relative = [task.relatives[series] for series in names if series in task.relatives]
        found.append({"name": task.caption, "page": task.path, "drawing": drawn, "said": [*said, *relative]})
    return found


def _numbers(task: TaskResults, series: str) -> list[str]:
    """Return what a task's board says of a series: what it keeps, places, seeds, and how it compares, line by line."""
    line = next((line for line in task.standing.to_dict("records") if line["series"] == series), None)
    if line is None:
        return [f"{series}: {NOT_MEASURED}"]
    learned = words.count(line["seeds"], "seed")
    if line["status"] != "ok":
        return [f"{series}: {line['status']}, {learned}"]
    if line["seeds_learned"] < line["seeds"]:
        learned = f"{line['seeds_learned']} of {learned} learned"
    kept, low, high = (100 * line[end] for end in ("kept", "low", "high"))
    place = f"place {words.span(line['place_low'], line['place_high'])} of {len(task.ranked)}, " * task.placed
    text = [f"{series}: keeps {words.interval(kept, low, high, '.0f')} %, {place}{learned}"]
    if task.seeks_best:
        return [*text, f"possibly the best on {task.label}: {board.possibly_best(task, series)}"]
    own = series == task.baseline
    other = task.against.sort_values("difference", ascending=False, kind="stable").to_dict("records")
    baseline = words.quoted(str(task.baseline))
    if own and task.asked:
        text += [
            f"{words.quoted(each['series'])} less {baseline} {board.against(task, each)}" for each in other[:COMPARED]
        ]
        text += [f"{len(other) - COMPARED} more on the page of {task.label}"] * (len(other) > COMPARED)
    text += [f"less {baseline} {board.against(task, each)}" for each in other if each["series"] == series]
    return text


def _changed(name: str, of_tasks: list[tuple[TaskResults, list[str]]]) -> list[str]:
    """Say what models keep that this encoding extends, and what models of this encoding keep as each method has it."""
    found = []
    for task, _ in of_tasks:
        rows = not_in_parts(task.rows_of(EXTENDED))
        rows = learned_only(rows[(rows["status"] == "ok") & (rows["metric"] == main_metric(rows["metric"].unique()))])
        near = rows[(rows["condition"] == AS_TRAINED) & (rows["eval_length"] == rows["train_length"])]
        if near.empty:
            continue
        far = rows[rows["eval_length"] == rows["eval_length"].max()]
        kept = far["value"] / far["run_id"].map(near.set_index("run_id")["value"])
        far = far.assign(kept=kept).dropna(subset="kept")
        for series, part in far.groupby("series"):
            metric, (length, trained) = metric_of(part["metric"].iloc[0]), part[["eval_length", "train_length"]].iloc[0]
            means = part.groupby("condition")["kept"].mean().sort_values(ascending=not metric.higher_is_better)
            own = means.index.str.removesuffix(f" {FINE_TUNED}") == name
            if task.encoders.get(str(series)) != name:
                means = means[own | means.index.isin((AS_TRAINED, WINDOW))] if own.any() else means.head(0)
            if len(means) > 1:
                times = ", ".join(f"{line} {mean:.2f}" for line, mean in means.items())
                found.append(f"{task.key}, {series} at {length} (×{length / trained:g}), {metric.label}: {times}")
    return found


def _title(paper: _catalogue.Paper) -> str:
    fields, number = bibliography.entry_of(paper), paper.number
    title = fields["title"].replace("{", "").replace("}", "")  # which keep capitals for BibTeX
    return number if title == number else f"{title} ({fields['year']}), {number}"
