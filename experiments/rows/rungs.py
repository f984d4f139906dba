"""Sizes of trunk and budgets of training: of a folder with several, each is compared by itself."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from experiments.rows.results import Results
from experiments.rows.series import name_series

SIZES = ("model.model_dim", "model.num_layers", "model.ffn_multiple")
TRAINING = ("train.steps", "train.tokens_per_step")


class Rung(NamedTuple):
    """Parameters of the trunk's layers, and the tokens of a round of training for each; NaN if unknown."""

    parameters: float
    budget: float

    def __str__(self) -> str:
        return f"{amount(self.parameters)}, {self.budget:g} tokens a parameter"


def rung_of(config: Mapping[str, str]) -> Rung:
    """Return the rung of a run by its configuration, dotted keys to text."""
    wide, deep, widened, steps, tokens = (float(config.get(key, "nan")) for key in (*SIZES, *TRAINING))
    parameters = deep * (4 + 2 * widened) * wide**2
    return Rung(parameters, float(f"{steps * tokens / parameters:.2g}"))


def amount(parameters: float) -> str:
    """Return a number of parameters in words.

    >>> amount(147456)
    '0.15M'
    """
    return f"{parameters / 1e6:.2g}M"


def apart(results: Results) -> Results:
    """Return results in which every rung of a task that was trained with several sizes is a task by itself.

    It is named by its rung in place of its options, unless another task has the same name without them.
    """
    known = {run: rung_of(config) for run, config in results.configs.items()}
    rungs = {run: rung for run, rung in known.items() if not math.isnan(rung.budget)}
    tasks = dict(zip(results.runs["run_id"], results.runs["task"], strict=True))
    sizes: dict[str, set[float]] = {}
    for run, rung in rungs.items():
        sizes.setdefault(tasks[run], set()).add(rung.parameters)
    several = {task for task, of_task in sizes.items() if len(of_task) > 1}
    if not several:
        return results
    shared = Counter(str(task).partition("(")[0] for task in set(tasks.values()) if task)

    def named(run: str) -> str:
        task, rung = tasks[run], rungs.get(run)
        if task not in several or rung is None:
            return task
        base, _, options = task.rstrip(")").partition("(")
        return f"{base}({', '.join([*[options] * (shared[base] > 1 and bool(options)), str(rung)])})"

    tasks = {run: named(run) for run in tasks}
    records: list[dict[str, Any]] = [
        {**record, "task": tasks[record["run_id"]]}  # type: ignore[dict-item]
        for record in results.runs.to_dict("records")
    ]
    settings = name_series([(record, results.configs.get(record["run_id"], {})) for record in records])
    series = {record["run_id"]: record["series"] for record in records}
    runs = results.runs.assign(task=results.runs["run_id"].map(tasks), series=results.runs["run_id"].map(series))
    rows = results.rows.assign(task=results.rows["run_id"].map(tasks), series=results.rows["run_id"].map(series))
    return replace(results, rows=rows, runs=runs, settings=settings)
