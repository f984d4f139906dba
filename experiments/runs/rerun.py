"""A run repeated from its configuration: are the rows the same, to the last bit?"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

import pe_zoo
from experiments.figures import words
from experiments.model.layout import Layout
from experiments.plan.prepare import check_name
from experiments.plan.refusal import BadRequest
from experiments.plan.request import ModelConfig, RunConfig, mentioned
from experiments.rows.read import FINISHED, MADE_WITH, TUNED, Table, read_run
from experiments.rows.row import COORDINATES, OVER_LENGTHS, metric_of, slice_name
from experiments.rows.untrusted import message_of, name_of, read_mapping
from experiments.runs import rounding
from experiments.runs.outcome import Outcome
from experiments.runs.record import run
from experiments.training.config import TrainConfig
from experiments.training.parallel import Team

SHOWN = 20
KEY = ("experiment", "metric", "train_length", "eval_length", "condition", *COORDINATES)
"""The columns that distinguish the rows of a run."""
COMPARED = ("value", "chance", "n", "status")


def rerun(place: Path, plugin: Sequence[str] = (), team: Team | None = None) -> tuple[Outcome, bool, str]:
    """Repeat a finished run in ``results/<name>-rerun/`` and compare its rows with the first ones.

    Returns its outcome, whether it has the same rows (times aside), and the comparison.

    Args:
        place: ``results/<name>/runs/<run_id>``; BadRequest if no finished run is there.
        plugin: the files that its encoder, task or measures came from, if they were not ours.
        team: the processes that share the repetition; None: this one alone.
    """
    place = place.resolve()
    folder = place.parent.parent
    try:
        if not (place / "config.yaml").is_file():
            raise ValueError(f"no run in {str(place)!r}: give the folder of one, results/<name>/runs/<run_id>")
        record, _, before = read_run(place, folder)
        if before is None:
            reason = f"{record['status']}: {record['message']}" if record.get("message") else record["status"]
            raise ValueError(f"{place.name} has no rows to compare with ({reason}): give a run that has finished")
        config = config_of(place, record, plugin)
    except (ValueError, OSError, pe_zoo.PluginError) as error:
        raise BadRequest(message_of(error)) from error
    outcome = run(config, force=True, team=team)
    if team is not None and team.rank:
        return outcome, True, ""
    if outcome.status not in FINISHED:
        return outcome, False, f"The second run {outcome.status}: {outcome.message}"
    again = outcome.folder.resolve()
    repeated, _, after = read_run(again, again.parent.parent)
    assert after is not None
    same, text = compare(before, after)
    if outcome.run_id != place.name:
        text += f"\nThe first one is called {place.name}: options, data, or how they are drawn have changed since."
    said = [] if same else _explained(place, before, after)
    return outcome, same, "\n".join([text, *said, *_differences(record, repeated)])


def config_of(place: Path, record: Mapping[str, Any], plugin: Sequence[str]) -> RunConfig:
    """Return the request of a run; ValueError if another version, or with another plug-in, wrote its config.yaml."""
    folder = place.parent.parent
    nested = read_mapping(place / "config.yaml", folder)
    if "checkpoint" in (nested.get("model") or {}):
        raise ValueError("the run measured a model from outside: give its command again, with another name=")
    digest = nested.get("plugin")
    short = f"{name_of(str(digest))[:12]}…" if digest else "no digest"
    if digest and not plugin:
        raise ValueError(f"the run has a plug-in with sha256 {short}: add plugin=FILE.py, the same file")
    # Of several files, only those that the run uses; in earlier releases all of them.
    given = [pe_zoo.load_files(plugin, used) for used in (mentioned(nested), None)]
    if digest and digest not in given:
        raise ValueError(
            f"plugin={', '.join(plugin)} has sha256 {str(given[0])[:12]}…, the run's has {short}: give the same file"
        )
    try:
        train = dict(nested["train"] or {"steps": 0})
        tuned = train.get("learning_rate") == TUNED
        if tuned:
            del train["learning_rate"]
        return RunConfig(
            encoder=dict(nested["encoder"]),
            task=dict(nested["task"]),
            positions=dict(nested["positions"]),
            layout=Layout(**nested["layout"]),
            model=ModelConfig(**nested["model"]),
            train=TrainConfig(**train),
            experiments={experiment: dict(nested[experiment]) for experiment in nested["experiment"]},
            seed=nested["seed"],
            name=check_name(f"{folder.name}-rerun"),
            device="cpu" if record.get("device") == "cpu" else "auto",
            threads=nested.get("threads") or record.get("threads") or 1,
            tune=tuned,
            plugin=digest,
            choice=str(record.get("choice") or ""),
        )
    except (TypeError, KeyError) as error:
        raise ValueError(f"config.yaml was written by another version: {error}") from error


def compare(before: Mapping[str, list[Any]], after: Mapping[str, list[Any]]) -> tuple[bool, str]:
    """Return whether two tables of one run are equal bit for bit, and which rows are not. Times never repeat."""
    first, second = _by_key(before), _by_key(after)
    timed = {key for key in first if not metric_of(key[1]).repeats}
    total = len(first.keys() | second.keys()) - len(timed)
    aside = f"; {words.count(len(timed), 'row')} of times not compared" if timed else ""
    differing = [
        (_distance(first.get(key), second.get(key)), key)
        for key in dict.fromkeys([*first, *second])
        # As text, NaN equals NaN.
        if metric_of(key[1]).repeats and repr(first.get(key)) != repr(second.get(key))
    ]
    if not differing:
        return True, f"The same: {words.count(total, 'row')} are equal, bit for bit{aside}."
    differing.sort(key=lambda pair: -pair[0])
    lines = [
        [*key[:4], slice_name(dict(zip(KEY, key, strict=False))), _shown(first.get(key)), _shown(second.get(key))]
        for _, key in differing[:SHOWN]
    ]
    table = tabulate(lines, headers=[*KEY[:4], "slice", "first", "second"], tablefmt="simple", disable_numparse=True)
    more = f"\nand {len(differing) - SHOWN} more" if len(differing) > SHOWN else ""
    largest = differing[0][0]
    size = f"by {largest:.3g} at most" if largest < math.inf else "some in more than their value"
    return False, f"{table}{more}\n{len(differing)} of {total} rows differ, {size}{aside}."


def _by_key(table: Mapping[str, list[Any]]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    keys, compared = (zip(*(table[column] for column in columns), strict=True) for columns in (KEY, COMPARED))
    counts = Counter[tuple[Any, ...]]()
    rows = {}
    for key, cells in zip(keys, compared, strict=True):
        rows[*key, counts[key]] = cells
        counts[key] += 1
    return rows


def _distance(first: tuple[Any, ...] | None, second: tuple[Any, ...] | None) -> float:
    """Return how far two values are apart; infinity where more than the value differs."""
    if first is None or second is None or repr(first[1:]) != repr(second[1:]):
        return math.inf
    gap = abs(first[0] - second[0])
    return math.inf if math.isnan(gap) else gap


def _shown(cells: tuple[Any, ...] | None) -> str:
    if cells is None:
        return "no such row"
    value, chance, n, status = cells
    return f"{value!r} (chance {chance!r}, n {n})" if status == "ok" else str(status)


def _explained(place: Path, before: Table, after: Table) -> list[str]:
    """Say whether sums rounded in another order explain the differences, where that can be judged."""
    then, now, seeds = rounding.judged(before), rounding.judged(after), list(rounding.other_seeds(place))
    if not then:
        return []
    if off := rounding.astray(then, now, seeds):
        experiment, metric, length, *_ = min(off, key=str)
        return [
            f"Another rounding does not explain this: {words.count(len(off), 'value')} of {len(then)} looked at differ "
            f"by more, such as {metric} at length {length} of {experiment}."
        ]
    among = f" or among that of {words.count(len(seeds), 'other seed')}" * bool(seeds)
    within = {
        "training": f"first losses are within {rounding.START:g}",
        OVER_LENGTHS: f"quality over lengths is within {rounding.DRIFT:g}{among}",
        "structure": f"measures of the encoder are within {rounding.EXACT:g}",
    }
    looked_at = {key[0] for key in then}
    return [f"Another rounding explains this: {', '.join(said for key, said in within.items() if key in looked_at)}."]


def _differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    records = [first, second]
    pairs: dict[str, list[Any]] = {key: [record.get(key) for record in records] for key in MADE_WITH}
    pairs["processes"] = [record.get("processes") or 1 for record in records]
    pairs["steps"] = [record.get("steps") for record in records]
    before, after = (record.get("packages") or {} for record in records)
    pairs |= {str(key): [before.get(key), after.get(key)] for key in dict.fromkeys([*before, *after]) if before}
    pairs["corpus"] = [(record.get("corpus") or {}).get("sha256") for record in records]
    return [f"{key}: {then} then, {now} now" for key, (then, now) in pairs.items() if then != now]
