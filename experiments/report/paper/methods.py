"""A methods section from the runs: setting, model, training, lengths, statistics and versions."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd

from experiments.figures import words
from experiments.report import documented
from experiments.report.page import Table
from experiments.report.paper import latex as tex
from experiments.report.paper.bibliography import Cited, calls_for
from experiments.rows.read import TUNED
from experiments.rows.results import Results, from_outside, trained_runs, training_time

NAMED = 12
"""Encoders from which on they are counted and not joined by ``and``."""
TABULATED = 8
"""Tasks from which on a table has the settings and lengths of each."""
OF_A_TASK = {"model.causal": "model", "train.steps": "steps", "train.learning_rate": "peak learning rate"}
"""Settings in that table, and the titles of their columns."""
MODEL = {
    "model.causal": "{}",
    "model.num_layers": "{} layers",
    "model.num_heads": "{} heads",
    "model.model_dim": "{} dimensions",
    "model.ffn_multiple": "a feed-forward block {} times as wide",
}
TRAINING = {
    "train.beta2": " (β₂ {})",
    "train.weight_decay": ", weight decay {} on the trunk's matrices alone",
    "train.gradient_clip": ", gradients clipped to norm {}",
    "train.steps": ", for {} steps",
    "train.tokens_per_step": " of about {} tokens",
    "train.learning_rate": ", at a peak learning rate of {}",
    "train.warmup": ", reached in the first {} of the steps and falling to 0 along a cosine",
}
UNITS = ((3600, "hours"), (60, "minutes"), (0, "seconds"))


def paragraph(results: Results, statistics: list[str]) -> tuple[list[str], Table | None]:
    """Return the sentences of the methods section, and for many tasks a table of the settings of each.

    ``statistics``, the report's sentences on evaluation and comparison, follow the settings.
    """
    runs = results.finished
    if runs.empty:
        return statistics, None
    configs = [results.configs.get(run, {}) for run in runs["run_id"]]
    trained = not trained_runs(results.configs).isdisjoint(runs["run_id"])
    table = _table(results) if runs["task"].nunique() >= TABULATED else None
    sentences = [_design(results, table), *_model(configs, runs)]
    precision = words.listed(sorted({str(value) for value in runs["precision"] if value is not None}))
    training = f"{''.join(_written(configs, TRAINING))}{f', in {precision}' if precision else ''}"
    if from_outside(runs, results.configs):
        sentences.append("The models are from outside and were measured as they are.")
    else:
        sentences.append(f"Training was by AdamW{training}." if trained else "No model was trained.")
    sentences += [] if table else _lengths(results)
    parts = ("model.", "train.", "layout.")
    keys = {key for config in configs for key in config if key.startswith(parts)} - {"model.as_many_as"}
    if different := sorted(key for key in keys if len({config[key] for config in configs if key in config}) > 1):
        sentences.append(f"The runs differ in {words.few(different)}: see the settings in the table of runs.")
    return [*sentences, *_outside(runs), *statistics, _software(runs)], table


def _outside(runs: pd.DataFrame) -> list[str]:
    """Say which encoders are not of this package: their files, and whether they keep the promises of an encoder."""
    found = [entry for entry in documented.encoders(runs).values() if entry.declared.get("file")]
    return [
        f"{entry.name} is from {entry.declared['file']} (sha256 {str(entry.declared['sha256'])[:12]}): "
        f"{entry.sentence}. Its contract: {entry.declared['check']}."
        for entry in found
    ]


def latex(sentences: list[str], cited: Cited) -> str:
    """Return the sentences for LaTeX, with citations of encoders in the first and of methods where named first."""
    waiting = {key: entry for key, entry in cited.entries.items() if "keywords" in entry}
    written: list[str] = []
    for sentence in sentences:
        keys = [key for key, entry in waiting.items() if calls_for(sentence, entry)]
        waiting = {key: entry for key, entry in waiting.items() if key not in keys}
        text = tex.escape(sentence)
        for name, papers in cited.of.items() if not written else ():
            shown = rf"(?<![\w\\]){re.escape(tex.escape(name))}(?![\w\\])"
            text = re.sub(shown, rf"\g<0>~\\cite{{{','.join(papers)}}}", text, count=1) if papers else text
        written.append(re.sub(r"\.$", rf"~\\cite{{{','.join(keys)}}}.", text) if keys else text)
    return "\n".join(written) + "\n"


WRITTEN: dict[str, Callable[[str], str]] = {
    "model.causal": lambda value: "causal" if value == "true" else "bidirectional",
    "train.learning_rate": lambda value: "a value tuned for each run" if value == TUNED else value,
    "train.warmup": lambda value: f"{float(value):.0%}" if _as_number(value)[0] <= 1 else value,
}
"""Settings whose values a sentence has in other words."""


def _setting(configs: list[dict[str, str]], key: str) -> str:
    """Return the value of a setting, or the different ones that runs have; blank where no run has one."""
    values = sorted({config[key] for config in configs if key in config}, key=_as_number)
    written = list(dict.fromkeys(map(WRITTEN.get(key, str), values)))
    return f"{written[0]} to {written[-1]}" if len(written) > 3 else words.listed(written)


def _written(configs: list[dict[str, str]], texts: dict[str, str]) -> list[str]:
    return [text.format(value) for key, text in texts.items() if (value := _setting(configs, key))]


def _as_number(text: str) -> tuple[float, str]:
    try:
        return float(text), text
    except ValueError:
        return float("inf"), text


def _design(results: Results, table: Table | None) -> str:
    runs = results.finished
    encoders, tasks = (sorted({str(name) for name in runs[column]}) for column in ("encoder", "task"))
    if from_outside(runs, results.configs):
        return f"We measured {words.listed(encoders)} on {words.listed(tasks)}: {words.count(len(runs), 'run')}."
    numberings = sorted({str(name) for name in runs["positions"]} - {"sequential", "None"})
    seeds = runs.groupby(["task", "series"])["seed"].nunique()
    low, high = int(seeds.min()), int(seeds.max())
    named = words.listed(encoders) if len(encoders) <= NAMED else ", ".join(encoders)
    sentence = f"We compared {words.count(len(encoders), 'positional encoder')} ({named})"
    controls = {
        f"{encoder} with feed-forward blocks widened to as many parameters as {wide}"
        for encoder, run in zip(runs["encoder"], runs["run_id"], strict=True)
        if (wide := results.configs.get(run, {}).get("model.as_many_as", "null")) != "null"
    }
    sentence += (
        f" and, as {'a control' if len(controls) == 1 else 'controls'}, {words.listed(sorted(controls))},"
        * bool(controls)
    )
    sentence += f" on {words.count(len(tasks), 'task')} ({'see the table of tasks' if table else words.listed(tasks)})"
    sentence += f", some of them with {words.listed(numberings)} positions" if numberings else ""
    sentence += f", with {words.count(high, 'seed') if low == high else f'{low} to {high} seeds'} each: "
    sentence += words.count(len(runs), "run")
    lacking = len(results.runs) - len(runs)
    return f"{sentence}, and {words.count(lacking, 'run')} without results." if lacking else f"{sentence}."


def _model(configs: list[dict[str, str]], runs: pd.DataFrame) -> list[str]:
    parts = _written(configs, MODEL)
    if not parts:
        return []
    own = pd.to_numeric(runs["encoder_parameters"], errors="coerce")
    added = f", to which the encoder adds {_span(own)}" if own.max() > 0 else ""
    most = runs.loc[own == own.max(), "encoder"].unique()
    added += f" (most: {words.listed(most)})" * bool(added and own.min() < own.max())
    return [
        f"Each was put into the same pre-norm Transformer ({', '.join(parts)}, no dropout), with "
        f"{_span(runs['model_parameters'])} parameters{added}."
    ]


def _spans(rows: pd.DataFrame) -> list[list[int]]:
    """Return the longest lengths trained on, the lengths measured, and the scored tokens of those, each in order."""
    columns = (rows["train_length"], rows["eval_length"], rows.loc[rows["status"] == "ok", "n"])
    return [sorted(set(map(int, column))) for column in columns]


def _lengths(results: Results) -> list[str]:
    alike: dict[str, list[str]] = {}
    for task, rows in results.quality.groupby("task"):
        trained, measured, counts = _spans(rows)
        text = f"lengths up to {words.listed(trained)} were trained on and {words.listed(measured)} measured"
        alike.setdefault(text + (f", over {_span(counts)} scored tokens each" if counts else ""), []).append(str(task))
    return [f"On {words.listed(tasks)}, {text}." for text, tasks in alike.items()]


def _table(results: Results) -> Table:
    cells, data = [], []
    for task, runs in sorted(results.finished.groupby("task")["run_id"], key=lambda item: str(item[0])):
        configs = [results.configs.get(run, {}) for run in runs]
        settings = {title: _setting(configs, key) for key, title in OF_A_TASK.items()}
        trained, measured, counts = _spans(results.quality[results.quality["task"] == task])
        lists = {"trained_on_up_to": trained, "measured": measured, "scored_tokens": counts}
        data.append({"task": task, **settings, **{name: " ".join(map(str, some)) for name, some in lists.items()}})
        of_cells = {"trained on up to": words.listed(trained), "measured at": ", ".join(map(str, measured))}
        cells.append({"task": task, **settings, **of_cells, "scored tokens": _span(counts) if counts else ""})
    alike = [title for title in OF_A_TASK.values() if len({line[title] for line in data}) == 1]
    shown, numbers = (pd.DataFrame(lines).drop(columns=alike) for lines in (cells, data))
    note = "Lengths are in the task's own unit. Scored tokens: of one seed at one length."
    return Table("tasks", "Settings and lengths of each task", shown, numbers, note)


def _software(runs: pd.DataFrame) -> str:
    parts = {"torch": " with PyTorch {}", "python": " and Python {}", "device": " on {}"}
    sentence = ""
    for column, text in (parts | {"commit": ", with pe-zoo at commit {}"}).items():
        value = words.listed(sorted({str(value) for value in runs[column] if value is not None}))
        sentence += text.format(value) if value else ""
    seconds = training_time(runs)
    if not seconds:
        return f"Runs were made{sentence}."
    size, unit = next((size, unit) for size, unit in UNITS if seconds >= size)
    return f"Runs were made{sentence}; training took {seconds / (size or 1):.3g} {unit} in all."


def _span(values: Iterable[Any]) -> str:
    known = pd.to_numeric(pd.Series(list(values)), errors="coerce").dropna()
    if known.empty:
        return "an unknown number of"
    low, high = int(known.min()), int(known.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
