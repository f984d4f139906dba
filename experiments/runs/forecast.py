"""``--plan``: the runs, tokens, time and disk of a command line, from training steps and measurements timed here.

Runs that differ in seed, steps or learning rate are equally fast, so one of them is timed. Of many encoders in one
setting a few are timed, and the others are taken to need their mean.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from tabulate import tabulate

from experiments.figures import words
from experiments.plan.request import RunConfig
from experiments.plan.sizes import FLOAT
from experiments.runs.folder import ending
from experiments.runs.timing import Speed, timed
from experiments.training.checkpoint import KEPT
from experiments.training.heartbeat import doing, span
from experiments.training.tune import rates

MOST_TIMED = 4
"""Encoders (with numbering and layout) that are timed in one setting."""
OTHER_BYTES = 60_000
"""Of a run's rows, log and records."""
VARIED = ("encoder", "positions", "layout")


@dataclass(frozen=True)
class Cost:
    """What a run takes if its task is learned in its first round; ``repeated`` are the seconds of all further ones."""

    parameters: float
    tokens: float
    training: float
    measuring: float
    repeated: float

    @property
    def seconds(self) -> float:
        return self.training + self.measuring

    @property
    def bytes(self) -> float:
        """On disk, when it has ended."""
        return OTHER_BYTES + (FLOAT * self.parameters if self.training else 0)


def forecast(configs: Sequence[RunConfig]) -> list[Cost]:
    """Return what each run takes; BadRequest for one that cannot be run. Nothing is written."""
    settings = dict[str, dict[str, RunConfig]]()
    for config in configs:
        settings.setdefault(_key(config, VARIED), {}).setdefault(_key(config), config)
    speeds = dict[str, Speed]()
    for kinds in settings.values():
        names, found = list(kinds), list[Speed]()
        count = min(MOST_TIMED, len(names))
        for name in (names[place * len(names) // count] for place in range(count)):
            with doing(f"timing {kinds[name].name_measured} on {kinds[name].task['name']}"):
                speeds[name] = timed(kinds[name])
                found.append(speeds[name])
        mean = Speed(*(fmean(column) for column in zip(*found, strict=True)))
        speeds |= dict.fromkeys(kinds.keys() - speeds.keys(), mean)
    return [_cost(config, speeds[_key(config)]) for config in configs]


def _key(config: RunConfig, left_out: Sequence[str] = ()) -> str:
    """Return what decides the speed of a run, as text."""
    train: dict[str, Any] = {
        "train": [config.trains, config.tune, config.train.tokens_per_step, config.train.precision]
    }
    others = ("seed", "plugin", *left_out)
    parts = {key: part for key, part in (config.identity() | train).items() if key not in others}
    return json.dumps(parts, sort_keys=True)


def _cost(config: RunConfig, speed: Speed) -> Cost:
    train, times = config.train, len(rates(config.train)) if config.tune else 1
    steps = (train.max_steps or train.steps) * times if config.trains else 0
    training = steps * speed.step + steps / max(1, train.check_every) * speed.check
    measuring = speed.preparing + speed.measuring + times * speed.beyond
    return Cost(speed.parameters, steps * speed.tokens, training, measuring, training * (train.most_rounds - 1))


def left(configs: Sequence[RunConfig]) -> list[RunConfig]:
    """Return the runs that have not ended; BadRequest if the files of one that has were altered."""
    return [config for config in configs if ending(config.folder) is None]


def text(configs: Sequence[RunConfig], ended: int, workers: int) -> tuple[str, float]:
    """Return what ``--plan`` prints of the runs that are left, and their seconds in one process."""
    costs = forecast(configs)
    seconds, repeated = (sum(getattr(cost, part) for cost in costs) for part in ("seconds", "repeated"))
    lines = [f"{words.count(ended + len(configs), 'run')}, {ended} of them finished before."]
    if not costs:
        return lines[0], 0.0
    table = _table(configs, costs)
    workers = min(workers, len(costs))
    longest = max(seconds / workers, *(cost.seconds for cost in costs))
    wall = f", {span(longest)} in {words.count(workers, 'worker')}" if workers > 1 else ""
    lines.append(f"Estimated time: {span(seconds)} in one process{wall}.")
    if repeated:
        more = f"{span(seconds + repeated)} in one process"
        lines.append(f"A task that is not learned is trained in further rounds: at most {more}.")
    size, largest = sum(cost.bytes for cost in costs), max(cost.parameters for cost in costs)
    under_way = 3 * FLOAT * largest * (KEPT + 1) * workers * any(cost.training for cost in costs)
    lines.append(f"Disk: {_bytes(size)} when all have ended, and up to {_bytes(under_way)} for checkpoints until then.")
    operations = sum(6 * cost.parameters * cost.tokens for cost in costs)
    if operations:
        lines.append(f"Training takes about {operations:.1e} operations, 6 for each parameter and token.")
    return f"{table}\n\n" + "\n".join(lines), seconds


def _table(configs: Sequence[RunConfig], costs: Sequence[Cost]) -> str:
    groups = dict[tuple[str, int], list[Cost]]()
    for config, cost in zip(configs, costs, strict=True):
        model = f"{config.model.model_dim} × {config.model.num_layers}"
        setting = str(config.labels()["task"]), model, config.train.last_step * config.trains
        groups.setdefault((f"{setting[0]}, {setting[1]}", setting[2]), []).append(cost)
    lines = []
    for (name, _), found in groups.items():
        mean = [fmean(getattr(cost, part) for cost in found) for part in ("parameters", "tokens", "training")]
        speed = f"{mean[1] / mean[2]:,.0f}" if mean[1] else ""
        measuring = span(fmean(cost.measuring for cost in found))
        lines.append([name, len(found), f"{mean[0]:,.0f}", f"{mean[1]:,.0f}", speed, span(mean[2]), measuring])
    head = ["task, width × layers", "runs", "parameters", "tokens a run", "a second", "training", "measuring"]
    align = ("left", *["right"] * (len(head) - 1))
    return tabulate(lines, headers=head, tablefmt="simple", disable_numparse=True, colalign=align)


def _bytes(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
