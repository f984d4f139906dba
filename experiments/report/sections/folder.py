"""The folder as a whole: how it was measured, warnings of its runs, every run, and what the numbers were made with."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from experiments.figures import words
from experiments.report.page import Section, Table
from experiments.report.sections import fairness
from experiments.rows.read import FINISHED, MADE_WITH
from experiments.rows.results import Results
from experiments.rows.row import OVER_LENGTHS
from experiments.rows.untrusted import name_of
from experiments.statistics.rule import BEST, STATEMENTS, Rule
from experiments.statistics.scores import DOUBLINGS

SHOWN_ELSEWHERE = ("seed", "seeds", "name", "trained")
"""Keys of a configuration that have a column of their own, or decide nothing."""
MOST_RUNS = 300
"""Most lines of the table of runs: 10 000 would make the page two megabytes large."""
STILL = 0.01
"""Share of its size by which training moved a parameter that a reader should know to have stayed."""
CONVERGED = {True: "yes", False: "no †"}


def method(
    rows: pd.DataFrame, declared: tuple[Rule, int] | None, commands: int = 1, *, outside: bool = False
) -> list[str]:
    """Return the sentences on evaluation and comparison; ``declared`` is the rule by which seeds were added.

    ``commands`` is how many asked for runs by that rule, or without it; ``outside``: no model was trained, so there are
    no seeds.
    """
    metrics = set(rows["metric"])
    if outside:
        return _one_model(metrics)
    windows = "Text is scored in separate windows, every byte given the true bytes before it in its window."
    exact = "Exact match is the same teacher-forced as free-running, since the first wrong token decides."
    return [
        "Every encoder was trained in the same model, on the same data in the same order for a seed, and measured "
        "teacher-forced, one length a batch.",
        *[windows] * ("bits_per_byte" in metrics),
        *[exact] * ("exact_match" in metrics),
        *_read(rows),
        "Intervals are 95 % intervals of the mean over seeds, on a scale that stays within the metric's bounds"
        + (", and take no account of the looks; " if declared else "; ")
        + f"comparisons use {_compared(declared)} and Holm's correction within each task"
        + ("." if declared else ": over all pairs, those with the baseline sharing half of the level."),
        *([growth(declared[0], commands)] if declared else []),
    ]


def _compared(declared: tuple[Rule, int] | None) -> str:
    if declared and declared[0].paired:
        return "the seeds with which both learned the task (Student's t test of the differences by seed)"
    return "all runs that learned the task (Welch's test)"


def _read(rows: pd.DataFrame) -> list[str]:
    """Return the sentences on the lengths over which what is kept is averaged; none where no task has one."""
    over = rows[rows["experiment"] == OVER_LENGTHS]
    measured = [set(part["eval_length"] / part["train_length"]) for _, part in over.groupby("task")]
    wanted = [{m for m in DOUBLINGS if m <= max(multiples)} for multiples in measured]
    every = set().union(*wanted)
    if not every:
        return []
    far = ", as far as its task was measured" * (min(wanted, key=len) < every)
    read = (
        "Quality at a length is (value − guess) / (value in range − guess), the guess being the best without reading "
        f"the input; what a run keeps is its mean at {words.listed(sorted(every))} training lengths{far}; other "
        "lengths do not count."
    )
    whole = all(multiples <= found for multiples, found in zip(wanted, measured, strict=True))
    missing = "Where one of these was not measured, it is interpolated over the logarithm of the length."
    return [read, *[missing] * (not whole)]


def _one_model(metrics: set[str]) -> list[str]:
    windows = "Text is scored in separate windows, every token given the true tokens before it in its window; all of "
    windows += "the text is test text, tokenised by the model's own tokenizer if it has one."
    return [
        *[windows] * ("bits_per_byte" in metrics),
        "Changes of a model are compared on the same contiguous blocks of the measured sequences: intervals are 95 % "
        "intervals of Student's t over the paired differences of the blocks, p values have Holm's correction over the "
        "changes. They say nothing of another model, or of another kind of text.",
    ]


def growth(rule: Rule, commands: int = 1) -> str:
    """Say by which rule seeds were added, and what was tested."""
    known = {BEST: "which encoding may be the best", STATEMENTS: "published statements"}
    tested = known.get(rule.question, f"each encoding against {rule.question}, and no other pair")
    delta = f", equal within {rule.delta:g}" if rule.delta else ""
    looks, shares = words.listed(map(str, rule.looks)), words.listed(f"{share:.0%}" for share in rule.weights)
    return (
        "How many seeds a comparison has was decided by a rule that was declared before the first run: tests after "
        f"{looks} seeds, which spend {shares} of the level, until each is decided{delta}. Tested was {tested}; "
        "p values are sequential, with that correction. The intervals of differences hold at every look, each for one "
        "comparison; at a look that decides, a difference is on average a little too large."
        + f" The runs were asked for by {commands} commands: encodings that a later one added joined the same "
        "correction, after results of the others could be seen." * (commands > 1)
    )


def _named(runs: pd.DataFrame) -> Iterator[str]:
    """Return series, task and seed: of a control the name of a folder tells no more than the encoder."""
    for line in runs.to_dict("records"):
        yield f"{line['series']} on {line['task']}, seed {line['seed']}"


def marked(runs: pd.DataFrame, configs: dict[str, dict[str, str]]) -> list[str]:
    """Return the sentences on runs that did not learn, diverged, or have no rows."""
    sentences = []
    if len(unlearned := runs[runs["converged"].eq(False)]):
        those = f"{words.count(len(unlearned), 'run')} did not learn the task within the training length"
        marks = f"in curves a ring, in tables †: {words.few(_named(unlearned))}"
        told = fairness.advice(unlearned["run_id"], configs)
        sentences.append(f"{those} ({marks}). Their results beyond it say little about their encoder. {told}.")
    if len(diverged := runs[runs["status"] == "diverged"]):
        sentences.append(f"{words.count(len(diverged), 'run')} diverged: {words.few(_named(diverged))}.")
    if len(without := runs[~runs["status"].isin(FINISHED)]):
        names = words.few(without["run_id"] + " (" + without["status"] + ")")
        sentences.append(f"{words.count(len(without), 'run')} without rows, and so in no number here: {names}.")
    return sentences


def warnings(results: Results) -> list[str]:
    """Return the warnings of missing runs, and of runs compared with one another that were not made alike."""
    runs, of_all = results.finished, len(results.runs) + len(results.missing)
    configs = [results.configs[run] for run in runs["run_id"]]
    columns: dict[str, list[Any]] = {name: list(runs[name]) for name in MADE_WITH}
    made = zip(runs["precision"], configs, strict=True)
    columns["precision"] = [precision if config["trained"] == "true" else None for precision, config in made]
    packages = [value or {} for value in runs["packages"]]
    columns |= {name: [each.get(name) for each in packages] for name in sorted(set(itertools.chain(*packages)))}
    plugins = [config.get("plugin", "null") for config in configs]
    columns["plugin (sha256)"] = [None if plugin == "null" else plugin[:12] for plugin in plugins]
    columns["corpus"] = [corpus(value or {}) or None for value in runs["corpus"]]
    settings = sorted({key for config in configs for key in config if key.startswith("train.")})
    columns |= {key: [config.get(key) for config in configs] for key in settings}
    found = [_differing(name, runs["series"], values, runs["task"].map(str)) for name, values in columns.items()]
    waiting = results.waiting
    unfinished = (
        f"Unfinished: {len(runs)} of {of_all} runs have ended with rows. In no number here: {words.few(waiting)}. "
        "report.py --status lists them and the command that completes them."
    )
    return [*_unchecked(runs), *_still(runs), *[unfinished] * bool(waiting), *itertools.chain(*found)]


def _unchecked(runs: pd.DataFrame) -> Iterator[str]:
    """Say which encoders from outside broke a promise of the contract, or were not checked, before their training."""
    theirs = runs[runs["source"].notna()].to_dict("records")
    for name, source in {name_of(str(run["choice"])): run["source"] for run in theirs}.items():
        told = name_of(str(source.get("check") or ""))
        if told.startswith("not checked"):
            yield f"{name} was {told.replace(':', ', so that a mistake in it would show nowhere:', 1)}"
        elif told and ", 0 fail" not in told:
            yield f"{name} breaks promises ({told}): its numbers may be those of a mistake."


def _still(runs: pd.DataFrame) -> Iterator[str]:
    """Say which parameters of encoders from outside training left where they were."""
    theirs = runs[runs["source"].notna()]
    for series, of_encoder in theirs.groupby("series") if len(theirs) else ():
        noted = list(of_encoder["moved"].dropna())
        shares = {name: [each.get(name) for each in noted] for name in (noted[0] if noted else ())}
        still = [
            name for name, of in shares.items() if all(isinstance(share, int | float) and share < STILL for share in of)
        ]
        if still:
            moved = f"moved by less than {100 * STILL:g} % in every run"
            yield f"{series}: {words.listed(still)} {moved}: to learn it or to fix it is nearly the same."


def _differing(what: str, series_names: Iterable[Any], values: Iterable[Any], tasks: Iterable[str]) -> list[str]:
    found: dict[str, dict[str, dict[str, None]]] = {}
    for series, value, task in zip(series_names, values, tasks, strict=True):
        if value is not None:
            found.setdefault(task, {}).setdefault(str(value), {})[str(series)] = None
    alike: dict[str, list[str]] = {}
    for task, by_value in found.items():
        if len(by_value) > 1 and not _crossed(what, by_value):
            parts = words.few(f"{value} ({words.few(by_value[value])})" for value in sorted(by_value))
            alike.setdefault(parts, []).append(task)
    return [
        f"The runs{f' of {words.few(tasks)}' if len(tasks) < len(found) else ''} differ in {what}: {parts}."
        for parts, tasks in alike.items()
    ]


def _crossed(what: str, by_value: dict[str, dict[str, None]]) -> bool:
    # Every encoder was trained with every value, and the series' names say with which: that is what was compared.
    others = [{name.replace(f"{what}={value}", "") for name in names} for value, names in by_value.items()]
    told = all(f"{what}={value}" in name for value, names in by_value.items() for name in names)
    return told and all(each == others[0] for each in others)


def corpus(value: dict[str, Any]) -> str:
    """Return the beginning of a corpus's sha256."""
    return str(value.get("sha256") or "")[:12]


def runs_section(results: Results) -> Section:
    """Make a line for every run: how it ended, its numbers, and the settings in which it differs from the others.

    Of more than `MOST_RUNS`, those that did not end well come first; the table's file has all.
    """
    runs, own = results.runs, {}
    for run, task in zip(runs["run_id"], runs["task"], strict=True):
        shared, config = results.settings.get(str(task), {}), results.configs.get(run, {})
        different = {key: value for key, value in config.items() if shared.get(key) != value}
        own[run] = ", ".join(f"{key}={value}" for key, value in different.items() if key not in SHOWN_ELSEWHERE)
    shown = runs.sort_values(["task", "series", "seed", "run_id"], key=lambda column: column.map(str))
    if len(runs) > MOST_RUNS:
        ended_well = shown["status"].eq("ok") & shown["converged"].ne(False)
        shown = shown.loc[ended_well.sort_values(kind="stable").index[:MOST_RUNS]]
    cells = pd.DataFrame([_line(run) | {"settings of its own": own[run["run_id"]]} for run in shown.to_dict("records")])
    note = "In range: the task's main metric at the training length. Final loss: nats per token."
    if len(shown) < len(runs):
        what = "those that did not end well or did not learn first; tables/runs.csv has all"
        note += f" Shown are {len(shown)} of {len(runs)} runs, {what}."
    apart = ["corpus", "tuning", "packages", "source", "described", "in_use", "rotating", "windowed_as"]
    apart += ["moved", "turned", "values"]
    data = runs.drop(columns=apart).assign(configuration=runs["run_id"].map(own))
    return Section("Runs", parts=[Table("runs", "Every run of the folder", cells, data, note)])


def _line(run: dict[Any, Any]) -> dict[str, str]:
    names = {"run": "run_id", "series": "series", "task": "task", "seed": "seed"}
    counts = ("encoder_parameters", "model_parameters", "train_seconds", "measure_seconds", "tokens_per_second")
    return (
        {head: "" if run[key] is None else str(run[key]) for head, key in names.items()}
        | {"status": f"{run['status']}: {run['message']}" if run["message"] else str(run["status"])}
        | {"in range": words.fixed(run["in_range"], ".3g"), "final loss": words.fixed(run["final_loss"], ".3g")}
        | {"converged": CONVERGED.get(run["converged"], "not judged")}
        | {key.replace("_", " "): words.number(run[key]) for key in counts}
    )


def provenance_section(results: Results) -> Section:
    """Make the tables of versions, machine, commit and corpora, and of the settings that the runs of a task share."""
    runs = results.runs

    def values(column: "pd.Series[Any]") -> list[str]:
        return sorted({str(value) for value in column if value is not None})

    found = {name: values(runs[name]) for name in MADE_WITH}
    packages = pd.DataFrame(list(runs["packages"].dropna()), dtype=object)
    found |= {name: values(packages[name].dropna()) for name in sorted(map(str, packages))}
    corpora = [f"{corpus(v)}… ({v.get('bytes')} bytes)" for v in runs["corpus"].dropna()]
    found |= {"corpus (sha256)": sorted(set(corpora))} if corpora else {}
    found |= {"first run started": values(runs["started"])[:1], "last run finished": values(runs["finished"])[-1:]}
    commands = values(runs["command"])
    section = Section("Provenance", [f"Made by: {command}" for command in commands[:3]])
    if len(commands) > 3:
        section.paragraphs.append(f"and {words.count(len(commands) - 3, 'more command')}, listed in tables/runs.csv.")
    lines = [[name, ", ".join(of_name) or "unknown"] for name, of_name in found.items()]
    cells = pd.DataFrame(lines, columns=["what", "value"])
    section.parts.append(Table("provenance", "What the numbers were made with", cells, cells))
    shared = [[task, key, value] for task, keys in results.settings.items() for key, value in keys.items()]
    if shared:
        cells = pd.DataFrame(shared, columns=["task", "setting", "value"])
        section.parts.append(Table("settings", "Settings that all runs of a task share", cells, cells))
    return section
