"""What the page says of how fairly runs were trained: learning rates, steps, controls with as many parameters."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from experiments.figures import words as _words
from experiments.report.page import Section, Table
from experiments.rows.results import FINISHED, TUNED, trained_runs
from experiments.rows.row import metric_of
from experiments.statistics import intervals

Configs = dict[str, dict[str, str]]
"""run_id -> its configuration, dotted keys to text."""

NOTEWORTHY = 0.01
"""Share of the trunk's parameters from which on an encoder's own want a control."""
OF_THE_TRUNK = ("train", "model", "positions", "layout", "task")
"""Parts of a configuration that a control shares with what it is a control for."""
GIVEN_ANEW = ("encoder=", "encoder.", "+encoder.", "seed=", "seeds=", "model.as_many_as=", "force=")
"""Options that the command for a control says itself, or does without."""


# ---- learning rates and steps ---------------------------------------------------------------------


def method(runs: pd.DataFrame, configs: Configs) -> list[str]:
    """How learning rates were come by, and which runs ended early: sentences for the method."""
    trained = runs[runs["status"].isin(FINISHED) & runs["run_id"].isin(trained_runs(configs))]
    rates = Counter(configs[run].get("train.learning_rate") for run in trained["run_id"])
    del rates[None]
    return [*_how_tuned(trained, rates), *_how_stopped(trained, configs)]


def _how_tuned(trained: pd.DataFrame, rates: Counter[str | None]) -> Iterator[str]:
    tuned = rates.pop(TUNED, 0)
    if tuned:
        grids = {tuple(search["grid"]) for search in trained["tuning"] if isinstance(search, dict)}
        grid = _words.listed(min(grids)) if len(grids) == 1 else "its list"
        whose = "every run" if not rates else f"{tuned} of {len(trained)} runs"
        yield (
            f"The peak learning rate was tuned in {whose}, each seed for itself: trained once for each rate of {grid}, "
            "all else the same, and kept as the rate left it that had the lowest loss on held-out data of the lengths "
            "trained on. Longer lengths were not looked at."
        )
    if rates:
        given, whose = _words.listed(sorted(map(str, rates))), "the other runs" if tuned else "all runs"
        said = f"One peak learning rate, {given}, was shared by {whose}"
        if len(rates) > 1:
            said = f"The peak learning rates of {whose}, {given}, were set by hand"
        yield f"{said}, not tuned; a ranking of encoders can hinge on that (tune=true searches for each run)."


def _how_stopped(trained: pd.DataFrame, configs: Configs) -> Iterator[str]:
    learned = trained[trained["stopped"] == "converged"]
    if len(learned):
        yield (
            f"{len(learned)} of {_words.count(len(trained), 'run')} ended as soon as the task counted as learned "
            "within the training length, so steps and tokens differ: see Training cost."
        )
    cut = trained[trained["stopped"] == "max_steps"]
    if len(cut):
        laid_out = sorted({configs[run].get("train.steps", "unknown") for run in cut["run_id"]})
        yield (
            f"{len(cut)} of {_words.count(len(trained), 'run')} ended at train.max_steps, before the "
            f"{_words.listed(laid_out)} steps that the learning rate was laid out for."
        )


def tuning(runs: pd.DataFrame, order: Sequence[str], name: Callable[[Any], str], stem: str, task: str) -> Section:
    """The rates that were chosen, and what that took.

    Args:
        runs: the finished runs of one task.
        order: its labels.
        name: a label as it is shown.
        stem: of the table's files.
        task: as it is shown.
    """
    lines, data = [], []
    for label in order:
        of_label = runs[runs["label"] == label]
        found = [run for run in of_label.to_dict("records") if isinstance(run["tuning"], dict)]
        if not found:
            continue
        searches = [run["tuning"] for run in found]
        at_edge = sum(search["at_edge"] for search in searches)
        lines.append(
            [
                name(label),
                _chosen(searches),
                ", ".join(map(str, searches[0]["grid"])),
                _words.number(sum(search["seconds"] for search in searches) / len(searches)),
                _words.number(sum(run["train_seconds"] for run in found) / len(found)),
                f"at the edge in {at_edge} of {_words.count(len(found), 'seed')}" if at_edge else "",
            ]
        )
        data += [
            {"label": label, "seed": run["seed"], "learning_rate": rate, "validation_loss": loss}
            | {"chosen": rate == run["tuning"]["chosen"], "search_seconds": run["tuning"]["seconds"]}
            for run in found
            for rate, loss in zip(run["tuning"]["grid"], run["tuning"]["losses"], strict=True)
        ]
    head = ["label", "chosen", "tried", "seconds of the search", "of them in the chosen training", "remark"]
    note = "Seconds are means over seeds."
    if any(line[-1] for line in lines):
        note += " At the edge: the lowest or highest rate tried, so that a better one may lie beyond; widen the list."
    said = (
        "Which peak learning rate did each run choose? The one whose model had the lowest loss, in nats per scored "
        "token, on held-out data of the lengths trained on. Loss and not accuracy, for that ties at 1."
    )
    table = Table(stem, f"Learning rates, {task}", pd.DataFrame(lines, columns=head), pd.DataFrame(data), note)
    return Section("Tuning", [said], [table])


def _chosen(searches: list[dict[str, Any]]) -> str:
    counts = Counter(search["chosen"] for search in searches)
    rated = sorted((rate, count) for rate, count in counts.items() if rate is not None)
    told = [f"{rate} ({_words.count(count, 'seed')})" for rate, count in rated]
    return ", ".join(told + ([f"none ({_words.count(counts[None], 'seed')}, all diverged)"] * bool(counts[None])))


# ---- controls with as many parameters -------------------------------------------------------------


@dataclass(frozen=True)
class _Contestant:
    """A label with what decides who is its control: the first of its runs stands for all."""

    label: str
    encoder: str
    as_many_as: str
    seeds: list[int]
    added: float
    trunk: float
    unit: float
    setting: dict[str, str]
    command: str

    @property
    def share(self) -> float:
        return self.added / self.trunk if self.trunk else math.nan

    def controls(self, other: _Contestant) -> bool:
        """Whether it has as many parameters as the other, within a hidden unit a layer, in the same trunk else."""
        more = self.added + self.trunk - other.added - other.trunk
        return self.as_many_as == other.encoder and self.setting == other.setting and 0 <= more < self.unit

    def recipe(self) -> str:
        """The command that makes its control: its own, without an encoder and widened."""
        words = (self.command or "python run.py").split()
        swept = len(self.seeds) > 1 or bool({"-m", "--multirun"} & set(words))
        kept = [word for word in words[2:] if not word.startswith(GIVEN_ANEW) and word not in ("-m", "--multirun")]
        made = ["encoder=none", f"model.as_many_as={self.encoder}", f"seed={','.join(map(str, self.seeds))}"]
        return " ".join([*words[:2], *["-m"] * swept, *kept, *made])


def controls(
    runs: pd.DataFrame,
    configs: Configs,
    beyond: pd.DataFrame,
    order: Sequence[str],
    name: Callable[[Any], str],
    stem: str,
    task: str,
) -> tuple[list[str], list[Table]]:
    """Encoders that add more than `NOTEWORTHY` parameters, each against a trunk that was widened to make up for them.

    Args:
        runs: the finished runs of one task that were trained.
        configs: of all runs.
        beyond: the rows of its main metric beyond the training length.
        order: its labels.
        name: a label as it is shown.
        stem: of the table's files.
        task: as it is shown.

    Returns:
        what is to be said, and the table; both empty if no encoder adds so many.
    """
    of_labels = {label: runs[runs["label"] == label] for label in order}
    known = [_contestant(label, of_label, configs) for label, of_label in of_labels.items() if len(of_label)]
    found: list[tuple[_Contestant, _Contestant | None]] = []
    for one in (contestant for contestant in known if contestant.share > NOTEWORTHY):
        matched = [other for other in known if other.controls(one)]
        found += [(one, other) for other in matched] or [(one, None)]
    if not found:
        return [], []
    compared: list[dict[str, Any]] = [
        {} if other is None else _compare(beyond, one.label, other.label) for one, other in found
    ]
    corrected = intervals.holm([line.get("p", math.nan) for line in compared])
    lines: list[list[str]] = []
    said: list[str] = []
    for (one, other), line, p in zip(found, compared, corrected, strict=True):
        told = [name(one.label), _words.number(one.added), f"{100 * one.share:.1f} %"]
        control = "not in this folder" if other is None else name(other.label)
        lines.append([*told, control, *_told(line, p)])
        if other is None:
            knobs = " It goes by the encoder's default options." if "(" in one.label.partition(" · ")[0] else ""
            said.append(f"A control with as many parameters as {name(one.label)} is made by: {one.recipe()}{knobs}")
    head = ["label", "parameters added", "of the trunk's", "control", "difference", "95 % interval", "seeds paired"]
    head += ["p (Holm)", "verdict"]
    metric = metric_of(str(beyond["metric"].iloc[0])).label if len(beyond) else "quality"
    note = (
        f"Encoders that add more than {NOTEWORTHY:.0%} to the trunk's parameters. Control: the same trunk with "
        "feed-forward blocks widened until it has as many in all (model.as_many_as). Difference of the mean "
        f"{metric} over the lengths beyond the training length, label minus control, paired by seed; p after Holm's "
        "correction for the comparisons of this table."
    )
    cells = pd.DataFrame(lines, columns=head)
    data = pd.DataFrame(
        [
            {"label": one.label, "encoder_parameters": one.added, "model_parameters": one.trunk}
            | {"control": other and other.label}
            | {key: line.get(key) for key in ("difference", "low", "high", "p", "pairs", "status")}
            | {"p_holm": p}
            for (one, other), line, p in zip(found, compared, corrected, strict=True)
        ]
    )
    return said, [Table(stem, f"Controls with as many parameters, {task}", cells, data, note)]


def _contestant(label: str, runs: pd.DataFrame, configs: Configs) -> _Contestant:
    first = runs.iloc[0]
    config = configs[first["run_id"]]
    added, trunk = (float(pd.to_numeric(first[f"{part}_parameters"])) for part in ("encoder", "model"))
    return _Contestant(
        label=label,
        encoder=config.get("encoder.name", ""),
        as_many_as=config.get("model.as_many_as", "null"),
        seeds=sorted(set(runs["seed"])),
        added=added,
        trunk=trunk,
        unit=2 * float(config.get("model.model_dim", "nan")) * float(config.get("model.num_layers", "nan")),
        setting={
            key: value
            for key, value in config.items()
            if key.partition(".")[0] in OF_THE_TRUNK and key != "model.as_many_as"
        },
        command=_words.text(first["command"]),
    )


def _compare(beyond: pd.DataFrame, label: str, control: str) -> dict[str, Any]:
    """The label against its control; empty where nothing was measured beyond the training length."""
    both = beyond[beyond["label"].isin([label, control])]
    if both["label"].nunique() < 2:
        return {}
    (line,) = intervals.compare(both, control).to_dict("records")
    return {str(key): value for key, value in line.items()} | {"metric": str(both["metric"].iloc[0])}


def _told(line: dict[str, Any], p: float) -> list[str]:
    """Difference, interval, pairs, p and verdict of a comparison, in words."""
    if not line:
        return ["", "", "", "", ""]
    if line["status"] != "ok":
        return ["", "", str(line["pairs"]), "", _words.said(line["status"])]
    tested = line["pairs"] > 1
    return [
        f"{line['difference']:+.3f}",
        f"{line['low']:+.3f} to {line['high']:+.3f}" if tested else "",
        str(line["pairs"]),
        _words.p_value(p),
        _words.said(intervals.verdict(line["metric"], line["difference"], p)),
    ]
