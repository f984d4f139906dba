"""How fairly runs were trained: learning rates, early ends, controls with as many parameters."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pandas as pd

from experiments.figures import words
from experiments.report.page import Section, Table
from experiments.report.sections.task import TaskResults
from experiments.rows.read import FINISHED, TUNED
from experiments.rows.results import trained_runs
from experiments.rows.row import metric_of
from experiments.statistics import intervals

Configs = dict[str, dict[str, str]]
"""run_id -> its configuration, dotted keys to text."""

NOTEWORTHY = 0.01
"""Share of the trunk's parameters above which an encoder needs a control."""
OF_THE_TRUNK = ("train", "model", "positions", "layout", "task")
"""Parts of a configuration that a control shares with the run that it controls for."""
COMPARED = ["series", "baseline", "difference", "low", "high", "p", "pairs", "status", "p_holm"]
"""Columns of a comparison with a control."""


def method(runs: pd.DataFrame, configs: Configs) -> list[str]:
    """Return the sentences on how learning rates were chosen and which runs ended early."""
    trained = runs[runs["status"].isin(FINISHED) & runs["run_id"].isin(trained_runs(configs))]
    rates = Counter(configs[run].get("train.learning_rate") for run in trained["run_id"])
    del rates[None]
    sentences, tuned, total = [], rates.pop(TUNED, 0), words.count(len(trained), "run")
    if tuned:
        grids = {tuple(search["grid"]) for search in trained["tuning"] if isinstance(search, dict)}
        grid = words.listed(min(grids)) if len(grids) == 1 else "its list"
        whose = "every run" if not rates else f"{tuned} of {total}"
        sentences.append(
            f"The peak learning rate was tuned in {whose}, for each seed separately: of trainings with {grid}, the one "
            "with the lowest loss on held-out data of the training lengths was kept."
        )
    if rates:
        given, whose = words.listed(sorted(map(str, rates))), "the other runs" if tuned else "all runs"
        many = f"The peak learning rates of {whose}, {given}, were set by hand"
        one = f"One peak learning rate, {given}, was shared by {whose}"
        sentences.append(f"{one if len(rates) == 1 else many}, not tuned, which can decide a ranking of encoders.")
    learned, cut = (trained[trained["stopped"] == why] for why in ("converged", "max_steps"))
    if len(learned):
        sentences.append(
            f"{len(learned)} of {total} ended as soon as the task counted as learned within the training length, so "
            "their steps and tokens differ."
        )
    if len(cut):
        planned = words.listed(sorted({configs[run].get("train.steps", "unknown") for run in cut["run_id"]}))
        sentences.append(
            f"{len(cut)} of {total} ended at train.max_steps, before the {planned} steps of the learning-rate schedule."
        )
    return sentences


def tuning(task: TaskResults) -> Section:
    """Make the section of the learning rates that were tried and chosen."""
    lines, data = [], []
    for series in task.order:
        of_series = task.runs[task.runs["series"] == series].to_dict("records")
        runs = [run for run in of_series if isinstance(run["tuning"], dict)]
        if not runs:
            continue
        searches = [run["tuning"] for run in runs]
        at_edge = sum(search["at_edge"] for search in searches)
        lines.append(
            {
                "series": task.display(series),
                "chosen": _chosen(searches),
                "tried": ", ".join(map(str, searches[0]["grid"])),
                "seconds of the search": words.number(sum(search["seconds"] for search in searches) / len(runs)),
                "of them in the chosen training": words.number(sum(run["train_seconds"] for run in runs) / len(runs)),
                "remark": f"at the edge in {at_edge} of {words.count(len(runs), 'seed')}" if at_edge else "",
            }
        )
        data += [
            {"series": series, "seed": run["seed"], "learning_rate": rate, "validation_loss": loss}
            | {"chosen": rate == run["tuning"]["chosen"], "search_seconds": run["tuning"]["seconds"]}
            for run in runs
            for rate, loss in zip(run["tuning"]["grid"], run["tuning"]["losses"], strict=True)
        ]
    note = (
        "Chosen: the lowest loss on held-out data of the training lengths. Seconds are means over seeds. At the edge: "
        "the lowest or highest rate tried, so a wider list may hold a better one."
    )
    caption = f"Learning rates, {task.key}"
    return Section("Tuning", parts=[Table(task.stem("tuning"), caption, pd.DataFrame(lines), pd.DataFrame(data), note)])


def _chosen(searches: list[dict[str, Any]]) -> str:
    counts = Counter(search["chosen"] for search in searches)
    diverged = counts.pop(None, 0)
    chosen = [f"{rate} ({words.count(count, 'seed')})" for rate, count in sorted(counts.items())]
    return ", ".join([*chosen, *[f"none ({words.count(diverged, 'seed')}, all diverged)"] * bool(diverged)])


@dataclass(frozen=True)
class _Contestant:
    """A series with what decides which other one is its control, from the first of its runs."""

    series: str
    encoder: str
    as_many_as: str
    added: float
    trunk: float
    unit: float
    setting: dict[str, str]

    def controls(self, other: _Contestant) -> bool:
        """Whether it has as many parameters as the other, within one hidden unit a layer, in the same trunk."""
        more = self.added + self.trunk - other.added - other.trunk
        return self.as_many_as == other.encoder and self.setting == other.setting and 0 <= more < self.unit


def controls(task: TaskResults) -> list[Table]:
    """Compare encoders that add more than `NOTEWORTHY` parameters with a trunk widened by as many."""
    known = [
        _contestant(series, runs.iloc[0], task.configs)
        for series in task.order
        if len(runs := task.trained[task.trained["series"] == series])
    ]
    found: list[tuple[_Contestant, _Contestant | None]] = []
    for one in (one for one in known if one.trunk and one.added / one.trunk > NOTEWORTHY):
        found += [(one, other) for other in known if other.controls(one)] or [(one, None)]
    if not found:
        return []
    both = {
        (one.series, other.series): task.beyond[task.beyond["series"].isin([one.series, other.series])]
        for one, other in found
        if other is not None
    }
    tables = [
        intervals.compare(rows, control).assign(metric=rows["metric"].iloc[0])
        for (_, control), rows in both.items()
        if rows["series"].nunique() == 2
    ]
    compared = intervals.corrected(pd.concat(tables)) if tables else pd.DataFrame(columns=COMPARED)
    data = pd.DataFrame(
        [(one.series, one.added, one.trunk, other and other.series) for one, other in found],
        columns=["series", "encoder_parameters", "model_parameters", "control"],
    ).merge(compared.rename(columns={"baseline": "control"}), how="left", on=["series", "control"])
    lines = [
        {
            "series": task.display(line["series"]),
            "parameters added": words.number(line["encoder_parameters"]),
            "of the trunk's": f"{100 * line['encoder_parameters'] / line['model_parameters']:.1f} %",
            "control": task.display(line["control"]) if isinstance(line["control"], str) else "not in this folder",
        }
        | task.comparison(line)
        for line in data.to_dict("records")
    ]
    metric = metric_of(str(task.beyond["metric"].iloc[0])).label if len(task.beyond) else "quality"
    note = (
        f"Encoders that add more than {NOTEWORTHY:.0%} to the trunk's parameters. Control: the same trunk with wider "
        f"feed-forward blocks and as many parameters in all. Difference in mean {metric} beyond the training length, "
        "paired by seed; p after Holm's correction for this table."
    )
    if data["control"].isna().any():
        note += (
            " To add a missing control, repeat the encoder's command with encoder=none model.as_many_as=<encoder>; it "
            "has the parameters of the encoder's default options."
        )
    columns = ["series", "encoder_parameters", "model_parameters", "control", *COMPARED[2:]]
    caption = f"Controls with as many parameters, {task.key}"
    return [Table(task.stem("controls"), caption, pd.DataFrame(lines), data[columns], note)]


def _contestant(series: str, run: pd.Series[Any], configs: Configs) -> _Contestant:
    config = configs[run["run_id"]]
    of_trunk = {key: value for key, value in config.items() if key.partition(".")[0] in OF_THE_TRUNK}
    return _Contestant(
        series=series,
        encoder=config.get("encoder.name", ""),
        as_many_as=of_trunk.pop("model.as_many_as", "null"),
        added=float(pd.to_numeric(run["encoder_parameters"])),
        trunk=float(pd.to_numeric(run["model_parameters"])),
        unit=2 * float(config.get("model.model_dim", "nan")) * float(config.get("model.num_layers", "nan")),
        setting=of_trunk,
    )
