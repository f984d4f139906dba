"""What each encoder costs: parameters, counted operations, and ratios that were timed in turn."""

import math
from collections.abc import Sequence

import pandas as pd

from experiments.figures import style, words
from experiments.report.page import Section, Table
from experiments.report.sections.task import TaskResults

RATIOS = {
    "relative_operations": "operations",
    "relative_train_time": "training time",
    "relative_inference_time": "inference time",
    "relative_train_peak_memory": "memory of training",
}
"""Metrics of the experiment `cost`, as multiples of those of the same model without encoder."""
NOTE = (
    "Multiples of the same model without encoder, means over tasks and seeds at the longest sequence that all share; "
    "operations are counted, times were taken in turn on one machine."
)


def sections(tasks: Sequence[TaskResults]) -> list[Section]:
    """Make the section, where any run of several series has a cost."""
    data = numbers(tasks)
    if len(data) < 2:
        return []
    shown = [name for name in RATIOS if data[name].notna().any()]
    cells = pd.DataFrame({"encoding": data["series"], "parameters added": data["encoder_parameters"].map(words.number)})
    for name in shown:
        cells[f"{RATIOS[name]}, ×"] = data[name].map(words.fixed)
    if data["kept"].notna().any():
        cells["mean kept, %"] = [words.fixed(100 * kept, ".0f") for kept in data["kept"]]
    note = NOTE if shown else "Operations were not measured: experiment=cost measures them."
    return [Section("Cost", parts=[Table("cost_and_quality", "Cost of each encoding", cells, data, note)])]


def numbers(tasks: Sequence[TaskResults]) -> pd.DataFrame:
    """Return one line for each series: parameters it adds, `RATIOS`, and what it keeps, mean over tasks."""
    rows = pd.concat([task.rows_of("cost") for task in tasks])
    rows = rows[(rows["status"] == "ok") & rows["metric"].isin(RATIOS)].fillna({"sequence_length": 0})
    order = list(style.looks(pd.concat([task.rows for task in tasks])))
    found = {}
    for metric, of_metric in rows.groupby("metric"):
        spread = of_metric.groupby("sequence_length")["series"].nunique()
        longest = max(spread.index[spread == spread.max()])
        found[metric] = of_metric[of_metric["sequence_length"] == longest].groupby("series")["value"].mean()
    runs = pd.concat([task.runs for task in tasks])
    added = pd.to_numeric(runs["encoder_parameters"], errors="coerce")
    trunk = pd.to_numeric(runs["model_parameters"], errors="coerce")
    configs = {run: config for task in tasks for run, config in task.results.configs.items()}
    widened = runs["run_id"].map(lambda run: configs[run].get("model.as_many_as", "null") != "null")
    plain = runs["task"].map(trunk[~widened].groupby(runs["task"]).min())
    added = (added + (trunk - plain).where(widened, 0.0)).groupby(runs["series"]).mean()
    standing = pd.concat([task.standing for task in tasks])
    kept = standing.groupby("series")["kept"].mean() if len(standing) else pd.Series(dtype=float)
    table = pd.DataFrame({"series": order})
    table["encoder_parameters"] = table["series"].map(added)
    for metric in RATIOS:
        table[metric] = table["series"].map(found[metric]) if metric in found else math.nan
    return table.assign(kept=table["series"].map(kept))
