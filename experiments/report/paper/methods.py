"""A methods paragraph with the settings and numbers of the runs that it is about, and what is not the same in all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd

from experiments.figures import words
from experiments.report.page import Table
from experiments.report.paper import latex as _latex
from experiments.report.paper.bibliography import Cited
from experiments.rows.results import FINISHED, TUNED, Results, trained_runs

NAMED = 12
"""Labels from which on they are counted and not named."""
TABULATED = 8
"""Tasks from which on a table says how each was set, and the paragraph no more than from where to where."""
_OF_A_TASK = {"model.causal": "model", "train.steps": "steps", "train.learning_rate": "peak learning rate"}
"""Titles of the table's columns; other settings go by their key."""
_UNITS = ((3600, "hours"), (60, "minutes"), (0, "seconds"))
_SAID = ("model.", "train.", "layout.")
_ELSEWHERE = ("encoder.", "positions.", "task.name", "plugin", "trained", "experiment", "model.as_many_as")


def paragraph(results: Results, statistics: list[str]) -> tuple[list[str], Table | None]:
    """The sentences of the paragraph, and of many tasks a table of how each was set.

    Args:
        results: of `experiments.rows.results.load`.
        statistics: what the report says of evaluation and comparison; put behind the settings.
    """
    runs = results.runs[results.runs["status"].isin(FINISHED)]
    if runs.empty:
        return statistics, None
    told = _Told(runs, results.configs)
    lengths = _lengths(results)
    sentences = [_design(results, runs, told.tabulated), *_model(told, runs), *_training(told, runs)]
    if not told.tabulated:
        sentences += _lengths_said(lengths)
    sentences += [*statistics, *_software(runs), *told.rest()]
    return sentences, _table(told, lengths) if told.tabulated else None


def latex(sentences: list[str], cited: Cited) -> str:
    """The paragraph for LaTeX: encoders and methods with the keys of their papers."""
    waiting = {key: entry for key, entry in cited.entries.items() if "keywords" in entry.fields}
    written: list[str] = []
    for sentence in sentences:
        keys = [key for key, entry in waiting.items() if entry.is_called_for(sentence)]
        for key in keys:
            del waiting[key]
        text = _latex.escape(sentence)
        if not written:
            text = _with_keys(text, cited)
        written.append(re.sub(r"\.$", rf"~\\cite{{{','.join(keys)}}}.", text) if keys else text)
    return "\n".join(written) + "\n"


def _with_keys(text: str, cited: Cited) -> str:
    """The first sentence with each encoder's papers behind its name."""
    for name, keys in cited.of.items():
        if keys:
            shown = rf"(?<![\w\\]){re.escape(_latex.escape(name))}(?![\w\\])"
            text = re.sub(shown, rf"\g<0>~\\cite{{{','.join(keys)}}}", text, count=1)
    return text


class _Told:
    """Settings as a sentence says them: one value, or several and which runs have which."""

    def __init__(self, runs: pd.DataFrame, configs: dict[str, dict[str, str]]) -> None:
        self.runs, self.configs = runs.to_dict("records"), configs
        self.asked: set[str] = set()
        self.of_tasks: dict[str, dict[str, str]] = {}
        """Setting -> task -> value, of the settings that the table has."""
        self.tabulated = runs["task"].nunique() >= TABULATED

    def __call__(self, key: str, written: Callable[[str], str] = str) -> str | None:
        """The value of a key; None where no run has one."""
        self.asked.add(key)
        found = self._values(key)
        return self._listed(key, found, written) if found else None

    def rest(self) -> list[str]:
        """A sentence on the settings that differ and that no other sentence has named."""
        keys = dict.fromkeys(key for run in self.runs for key in self.configs.get(run["run_id"], {}))
        different = []
        for key in keys:
            if key in self.asked or key.startswith(_ELSEWHERE) or key in ("seed", "seeds", "name"):
                continue
            found = self._values(key)
            if len(set(found.values())) > 1 and (key.startswith(_SAID) or not self._by("task", found)):
                different.append(f"{key}: {self._listed(key, found, str)}")
        if not different:
            return []
        more = f"; and {len(different) - 6} more, see the settings in the table of runs" if len(different) > 6 else ""
        return [f"The runs differ besides in {'; '.join(different[:6])}{more}."]

    def _values(self, key: str) -> dict[str, str]:
        found = {run["run_id"]: self.configs.get(run["run_id"], {}).get(key) for run in self.runs}
        return {run: value for run, value in found.items() if value is not None}

    def _listed(self, key: str, found: dict[str, str], written: Callable[[str], str]) -> str:
        if len(set(found.values())) == 1:
            return written(next(iter(found.values())))
        by_task = self._by("task", found)
        if by_task and self.tabulated:
            self.of_tasks[key] = {task: value for value, tasks in by_task.items() for task in tasks}
            values = [written(value) for value in by_task]
            return f"{words.listed(values) if len(values) <= 3 else f'{values[0]} to {values[-1]}'} (by task)"
        groups = by_task or self._by("encoder", found) or self._by("label", found)
        if not groups:
            return f"{words.listed(map(written, sorted(set(found.values()), key=_as_number)))} (by run)"
        return words.listed(f"{written(value)} ({words.few(names)})" for value, names in groups.items())

    def _by(self, what: str, found: dict[str, str]) -> dict[str, list[str]]:
        """Value -> the tasks or labels that have it; nothing where that does not decide it."""
        of: dict[str, set[str]] = {}
        for run in self.runs:
            if run["run_id"] in found:
                of.setdefault(str(run[what]), set()).add(found[run["run_id"]])
        if any(len(values) > 1 for values in of.values()):
            return {}
        values = sorted({value for some in of.values() for value in some}, key=_as_number)
        return {value: sorted(name for name, some in of.items() if value in some) for value in values}


def _as_number(text: str) -> tuple[float, str]:
    try:
        return float(text), text
    except ValueError:
        return float("inf"), text


def _design(results: Results, runs: pd.DataFrame, tabulated: bool) -> str:
    encoders = sorted({str(name) for name in runs["encoder"]})
    tasks = sorted({str(name) for name in runs["task"]})
    numberings = sorted({str(name) for name in runs["positions"]} - {"sequential", "None"})
    seeds = runs.groupby(["task", "label"])["seed"].nunique()
    low, high = int(seeds.min()), int(seeds.max())
    said = f"We compared {words.count(len(encoders), 'positional encoder')}"
    said += f" ({words.listed(encoders)})" if len(encoders) <= NAMED else f" ({', '.join(encoders)})"
    named = "see the table of tasks" if tabulated else words.listed(tasks)
    said += f" on {words.count(len(tasks), 'task')} ({named})"
    said += f", with positions numbered by {words.listed(numberings)} in some or all of them" if numberings else ""
    said += f", with {words.count(high, 'seed') if low == high else f'{low} to {high} seeds'} each: "
    said += f"{words.count(len(runs), 'run')}"
    lacking = len(results.runs) - len(runs)
    return f"{said}, besides {words.count(lacking, 'run')} without results." if lacking else f"{said}."


def _model(told: _Told, runs: pd.DataFrame) -> list[str]:
    sizes = [
        (told("model.num_layers"), "layers"),
        (told("model.num_heads"), "heads"),
        (told("model.model_dim"), "dimensions"),
    ]
    parts = [f"{value} {what}" for value, what in sizes if value]
    multiple = told("model.ffn_multiple")
    parts += [f"a feed-forward block {multiple} times as wide"] if multiple else []
    causal = told("model.causal", _direction)
    if not parts:
        return []
    said = (
        f"Each was put into the same pre-norm Transformer ({causal}, "
        if causal
        else "Each was put into a Transformer ("
    )
    said += f"{', '.join(parts)}, no dropout), with {_span(runs['model_parameters'])} parameters"
    own = pd.to_numeric(runs["encoder_parameters"], errors="coerce")
    said += f", to which the encoder adds {_span(own)}." if own.notna().any() and own.max() > 0 else "."
    return [said]


def _training(told: _Told, runs: pd.DataFrame) -> list[str]:
    if trained_runs(told.configs).isdisjoint(runs["run_id"]):
        return ["No model was trained."]
    steps, tokens = told("train.steps"), told("train.tokens_per_step")
    rate = told("train.learning_rate", lambda value: f"{value} for each run" if value == TUNED else f"of {value}")
    said = "Training was by AdamW"
    settings = {
        "train.beta2": "second decay {}",
        "train.weight_decay": "weight decay {} on the trunk's matrices alone",
        "train.gradient_clip": "gradients clipped to norm {}",
    }
    told_of = [text.format(value) for key, text in settings.items() if (value := told(key))]
    said += f" ({', '.join(told_of)})" if told_of else ""
    said += f" over {steps} steps" if steps else ""
    said += f" of about {tokens} tokens" if tokens else ""
    said += f", at a peak learning rate {rate}" if rate else ""
    warmup = told("train.warmup", lambda value: f"{float(value):.0%}" if _as_number(value)[0] <= 1 else value)
    said += f", reached in the first {warmup} of the steps and falling to 0 along a cosine" if warmup else ""
    precision = sorted({str(value) for value in runs["precision"] if value is not None})
    return [f"{said}, in {words.listed(precision)}." if precision else f"{said}."]


def _direction(causal: str) -> str:
    return "causal" if causal == "true" else "bidirectional"


_Lengths = dict[str, tuple[list[int], list[int], list[int]]]
"""Task -> longest length trained on (several where runs differ), lengths measured, scored tokens of those; in order."""


def _lengths(results: Results) -> _Lengths:
    found = {}
    for task, rows in results.quality.groupby("task"):
        columns = (rows["train_length"], rows["eval_length"], rows.loc[rows["status"] == "ok", "n"])
        trained, measured, counts = (sorted(set(map(int, column))) for column in columns)
        found[str(task)] = trained, measured, counts
    return found


def _lengths_said(lengths: _Lengths) -> list[str]:
    """Where each task was trained and measured; tasks alike in one sentence."""
    alike: dict[str, list[str]] = {}
    for task, (trained, measured, counts) in lengths.items():
        said = f"lengths up to {words.listed(trained)} were trained on and {words.listed(measured)} measured"
        alike.setdefault(said + (f", over {_span(counts)} scored tokens each" if counts else ""), []).append(task)
    return [f"On {words.listed(tasks)}, {said}." for said, tasks in alike.items()]


def _table(told: _Told, lengths: _Lengths) -> Table:
    """How each task was set, where that is not the same for all, and the lengths of each."""
    cells, data = [], []
    for task in sorted({str(run["task"]) for run in told.runs}):
        settings = {_OF_A_TASK.get(key, key): values.get(task, "") for key, values in told.of_tasks.items()}
        trained, measured, counts = lengths.get(task, ([], [], []))
        data.append(
            {"task": task, **settings, "trained_on_up_to": " ".join(map(str, trained))}
            | {"measured": " ".join(map(str, measured)), "scored_tokens": " ".join(map(str, counts))}
        )
        if "model" in settings:
            settings["model"] = _direction(settings["model"])
        cells.append(
            {"task": task, **settings, "trained on up to": words.listed(trained)}
            | {"measured at": ", ".join(map(str, measured)), "scored tokens": _span(counts) if counts else ""}
        )
    note = (
        "Trained on up to, measured at: lengths in the task's own unit. Scored tokens: of one seed at one length. "
        "What is the same for all tasks is said above."
    )
    return Table("tasks", "Tasks as they were set", pd.DataFrame(cells), pd.DataFrame(data), note)


def _software(runs: pd.DataFrame) -> list[str]:
    def all_of(column: str) -> str:
        return words.listed(sorted({str(value) for value in runs[column] if value is not None}))

    parts = [
        f"{name} {value}" for name, column in (("PyTorch", "torch"), ("Python", "python")) if (value := all_of(column))
    ]
    said = f"Runs were made with {' and '.join(parts)}" if parts else "Runs were made"
    said += f" on {device}" if (device := all_of("device")) else ""
    said += f", with pe-zoo at commit {commit}" if (commit := all_of("commit")) else ""
    seconds = pd.to_numeric(runs["train_seconds"], errors="coerce").sum()
    size, unit = next((size, unit) for size, unit in _UNITS if seconds >= size)
    return [f"{said}; training took {seconds / (size or 1):.3g} {unit} in all."]


def _span(values: Iterable[Any]) -> str:
    known = pd.to_numeric(pd.Series(list(values)), errors="coerce").dropna()
    if known.empty:
        return "an unknown number of"
    low, high = int(known.min()), int(known.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
