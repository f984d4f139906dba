"""``--plan``: the runs, tokens, time and disk of a command line, from training steps and measurements timed here.

Runs that differ in seed, steps or learning rate are equally fast, so one of them is timed. Of many encoders in one
setting a few are timed, as many as half a minute allows, and the others are taken to need their mean.
"""

import json
import math
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, zip_longest
from statistics import fmean

import torch
from tabulate import tabulate

import pe_zoo
from experiments.figures import words
from experiments.plan.request import RunConfig
from experiments.plan.sizes import FLOAT
from experiments.runs import pool
from experiments.runs.timing import Speed, timed
from experiments.training.checkpoint import KEPT
from experiments.training.heartbeat import BEGAN, ahead, doing, span
from experiments.training.tune import rates

MOST_TIMED = 4
"""Encoders (with numbering and layout) that are timed in one setting."""
PATIENCE = 30.0
"""Seconds of timing after which no further encoder of a setting is timed, once each setting has one."""
TOLD = 0.1
"""Share of the time from which on the start of the command is told."""
OFTEN = 2.0
"""Times that a run reads its text from which on that is told."""
SLOW = 300.0
"""Seconds of a model from outside from which on cores that it leaves idle are told of."""
LONG = 86_400.0
"""Seconds from which on a missing GPU is told of."""
BUSY = 1.3
"""Seconds that pass for a second of work from which on other programs are told of."""
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
    wait: float
    text: float
    """Tokens of the text to train on; 0 without one."""
    least: bool
    """Whether it takes longer: timing was ended before it was known how long."""

    @property
    def seconds(self) -> float:
        return self.training + self.measuring

    @property
    def bytes(self) -> float:
        """On disk, when it has ended."""
        return OTHER_BYTES + (FLOAT * self.parameters if self.training else 0)


def forecast(configs: Sequence[RunConfig], workers: int = 1, plugins: Sequence[str] = ()) -> list[Cost]:
    """Return what each run takes where as many are under way as there are workers, on this machine's cores.

    BadRequest for one that cannot be run. Nothing is written. Workers load the files ``plugins``.
    """
    settings = dict[str, dict[str, RunConfig]]()
    for config in configs:
        settings.setdefault(_key(config, VARIED), {}).setdefault(_key(config), config)
    rounds = zip_longest(*(_spread(kinds).items() for kinds in settings.values()))
    chosen = dict(filter(None, chain.from_iterable(rounds)))  # the first of each setting before any second
    speeds, began = dict[str, Speed](), time.monotonic()
    with closing(_timings(chosen, min(workers, len(configs)), plugins)) as timings:
        for name, speed in timings:
            speeds[name] = speed
            each = all(kinds.keys() & speeds.keys() for kinds in settings.values())
            if each and time.monotonic() - began > PATIENCE:
                break
    for kinds in settings.values():
        found = [speeds[name] for name in kinds if name in speeds]
        mean = Speed(*(fmean(column) for column in zip(*found, strict=True)))
        speeds |= dict.fromkeys(kinds.keys() - speeds.keys(), mean)
    return [_cost(config, speeds[_key(config)]) for config in configs]


def _spread(kinds: Mapping[str, RunConfig]) -> dict[str, RunConfig]:
    names, count = list(kinds), min(MOST_TIMED, len(kinds))
    return {name: kinds[name] for name in (names[place * len(names) // count] for place in range(count))}


def _timings(chosen: Mapping[str, RunConfig], workers: int, plugins: Sequence[str]) -> Generator[tuple[str, Speed]]:
    """Time in as many processes as the sweep will have: cores that share caches and units slow one another."""
    if workers < 2:
        for name, config in chosen.items():
            with doing(f"timing {config.name_measured} on {config.task['name']}"):
                yield name, timed(config)
        return
    times = -(-workers // len(chosen))
    tasks = [(name, config, plugins) for name, config in chosen.items()] * times
    ended = list[float]()
    began = time.monotonic()

    def progress() -> str:
        text, done, to_do = f"timing: {len(ended)} of {len(tasks)} done", len(ended), len(tasks) - len(ended)
        if not done:
            return text
        left = ahead(time.monotonic() - began, ended[-1], done, to_do, min(workers, to_do))
        return f"{text}, about {span(left)} left"

    with doing(progress), closing(pool.launch(_timed_there, tasks, workers)) as timings:
        for ((name, speed),) in timings:
            ended.append(time.monotonic() - began)
            yield name, speed


def _timed_there(task: tuple[str, RunConfig, Sequence[str]]) -> list[tuple[str, Speed]]:
    name, config, plugins = task
    pe_zoo.load_files(plugins)
    return [(name, timed(config))]


def _key(config: RunConfig, left_out: Sequence[str] = ()) -> str:
    """Return what decides the speed of a run, as text."""
    train = {"train": [config.trains, config.tune, config.train.tokens_per_step, config.train.precision]}
    others = ("seed", "plugin", *left_out)
    parts = {key: part for key, part in (config.identity() | train).items() if key not in others}
    return json.dumps(parts, sort_keys=True)


def _cost(config: RunConfig, speed: Speed) -> Cost:
    train, times = config.train, len(rates(config.train)) if config.tune else 1
    steps = (train.max_steps or train.steps) * times if config.trains else 0
    training = steps * speed.step + steps / max(1, train.check_every) * speed.check
    measuring = speed.preparing + speed.measuring + times * speed.beyond
    repeated = training * (train.most_rounds - 1)
    parts = speed.parameters, steps * speed.tokens, training, measuring, repeated, speed.wait, speed.text
    return Cost(*parts, least=speed.least > 0)


def text(
    configs: Sequence[RunConfig], workers: int, here: bool, plugins: Sequence[str], minutes: float | None
) -> tuple[str, float]:
    """Return what ``--plan`` prints of the runs that are left, and their seconds, all added up.

    ``here``: whether the workers are on this machine. ``minutes``: after which the command stops itself.
    """
    start = time.monotonic() - BEGAN  # as the command itself will have it
    costs = forecast(configs, workers if here else 1, plugins)
    seconds, repeated = (sum(getattr(cost, part) for cost in costs) for part in ("seconds", "repeated"))
    if not costs:
        return "Nothing is left to run.", 0.0
    table = _table(configs, costs)
    workers = min(workers, len(costs))
    whole = span(start + max(seconds / workers, *(cost.seconds for cost in costs)))
    several = f" in {words.count(workers, 'worker')}" * (workers > 1)
    told = f", {span(start)} of it to start" if start > TOLD * seconds / workers else ""
    told += f"; {span(seconds)} for all runs added up" * (workers > 1)
    alone = ", if nothing else needs these cores" * here
    more = "more than " * any(cost.least for cost in costs)
    lines = [f"Estimated time: {more}{whole}{several}{told}{alone}."]
    cores = pool.cores()
    on_cpu = here and not torch.cuda.is_available()
    if on_cpu and len(costs) == 1 and configs[0].checkpoint and configs[0].threads == 1 < cores and seconds > SLOW:
        lines.append(f"It uses one of {cores} cores: threads={cores} takes all.")
    if on_cpu and seconds / workers > LONG:
        lines.append("That is without a GPU: none was found here.")
    if minutes and seconds / workers > 60 * minutes:
        often = f"about {math.ceil(seconds / workers / 60 / minutes)} times in all"
        lines.append(f"budget_minutes={minutes:g} stops it before; the same command goes on, {often}.")
    wait = sum(cost.seconds * cost.wait for cost in costs) / seconds
    if here and wait > BUSY:
        lines.append(f"Beside what runs here now it takes about {wait:.1f} times as long.")
    if repeated:
        more = f"at most {span(seconds + repeated)}{', added up' if workers > 1 else ''}"
        lines.append(f"A task that is not learned is trained in further rounds: {more}.")
    if (times := max(cost.tokens / cost.text if cost.text else 0.0 for cost in costs)) >= OFTEN:
        most = "The largest run" if len({cost.tokens for cost in costs}) > 1 else "A run"
        lines.append(f"{most} reads its text {times:.0f} times: of more text it would learn more.")
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
        model = config.name_measured if config.checkpoint else f"{config.model.model_dim} × {config.model.num_layers}"
        setting = f"{config.labels()['task']}, {model}", config.train.last_step * config.trains
        groups.setdefault(setting, []).append(cost)
    lines = []
    for (name, _), found in groups.items():
        mean = [fmean(getattr(cost, part) for cost in found) for part in ("parameters", "tokens", "training")]
        speed = f"{mean[1] / mean[2]:,.0f}" if mean[1] else ""
        measuring = span(fmean(cost.measuring for cost in found))
        lines.append([name, len(found), f"{mean[0]:,.0f}", f"{mean[1]:,.0f}", speed, span(mean[2]), measuring])
    head = ["task, width × layers", "runs", "parameters", "tokens a run", "a second", "training", "measuring"]
    return tabulate(lines, head, "simple", disable_numparse=True, colalign=("left",), stralign="right")


def _bytes(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
