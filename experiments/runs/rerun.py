"""A run made again from its config: are the rows the same, to the last bit?"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate

import pe_zoo
from experiments.figures import words
from experiments.model.layout import Layout
from experiments.plan.plan import BadRequest, ModelConfig, RunConfig, check_name
from experiments.rows.results import FINISHED, TUNED, kept_cells, read_record, read_run
from experiments.rows.row import COORDINATES, metric_of, slice_name
from experiments.rows.untrusted import message_of, name_of, read_mapping
from experiments.runs.record import Outcome, run
from experiments.training.loop import TrainConfig
from experiments.training.parallel import Team

SHOWN = 20
KEY = ("experiment", "metric", "train_length", "eval_length", "condition", *COORDINATES)
"""What tells the rows of a run apart."""
COMPARED = ("value", "chance", "n", "status")
MADE_WITH = ("torch", "python", "device", "precision", "threads", "commit")


@dataclass(frozen=True)
class Repeated:
    """How a repetition came out.

    Args:
        outcome: of the second run.
        same: whether it has the same rows, timed ones aside.
        text: what there is to say of it.
    """

    outcome: Outcome
    same: bool
    text: str


def rerun(place: Path, plugin: str | None = None, team: Team | None = None) -> Repeated:
    """Make a run again, in ``results/<name>-rerun/``, and compare its rows with what it made the first time.

    Args:
        place: the folder of a run that has finished, ``results/<name>/runs/<run_id>``.
        plugin: the file that its encoder came from, if that was not one of ours.
        team: the processes that share the repetition; None: this one alone.

    Raises:
        BadRequest: there is no such run, it has no rows, or it cannot be made here.
    """
    try:
        folder = place.resolve().parent.parent
        if not (place / "config.yaml").is_file():
            raise ValueError(f"no run in {str(place)!r}: give the folder of one, results/<name>/runs/<run_id>")
        record, _, before = read_run(place.resolve(), folder, kept_cells())
        if before is None:
            said = f"{record['status']}: {record['message']}" if record.get("message") else record["status"]
            raise ValueError(f"{place.name} has no rows to compare with ({said}): give a run that has finished")
        config = config_of(read_mapping(place.resolve() / "config.yaml", folder), record, plugin, folder.name)
    except (ValueError, OSError, pe_zoo.PluginError) as error:
        raise BadRequest(message_of(error)) from error
    if 0 < (record.get("threads") or 0) <= (os.cpu_count() or 1):
        torch.set_num_threads(record["threads"])  # sums are rounded in another order with another number
    outcome = run(config, force=True, team=team)
    if team is not None and team.rank:
        return Repeated(outcome, True, "")
    notes = [f"The first one is called {place.name}: options have come or gone since."] * (outcome.run_id != place.name)
    if outcome.status not in FINISHED:
        return Repeated(outcome, False, f"The second run {outcome.status}: {outcome.message}")
    again = outcome.folder.resolve()
    _, _, after = read_run(again, again.parent.parent, kept_cells())
    assert after is not None
    notes += _made_differently(record, read_record(again, again.parent.parent))
    same, said = compare(before, after)
    return Repeated(outcome, same, "\n".join([said, *notes]))


def config_of(nested: Mapping[str, Any], record: Mapping[str, Any], plugin: str | None, name: str) -> RunConfig:
    """The request that a ``config.yaml`` is the resolution of.

    Raises:
        ValueError: it cannot be one of this version's, or the plugin is not the one it was made with.
    """
    digest = nested.get("plugin")
    if digest and plugin is None:
        raise ValueError(
            f"the encoder came from a file with sha256 {name_of(str(digest))[:12]}…: add plugin=FILE.py, the same file"
        )
    given = pe_zoo.load_file(plugin) if plugin else None
    if given != digest:
        raise ValueError(
            f"plugin={plugin} has sha256 {str(given)[:12]}…, the run was made with "
            f"{name_of(str(digest))[:12] + '…' if digest else 'no digest'}: give the same file, or none"
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
            name=check_name(f"{name}-rerun"),
            device="cpu" if record.get("device") == "cpu" else "auto",
            tune=tuned,
            plugin=digest,
            choice=str(record.get("choice") or ""),
        )
    except (TypeError, KeyError) as error:
        raise ValueError(f"config.yaml is none of this version's: {error}") from error


def compare(before: Mapping[str, list[Any]], after: Mapping[str, list[Any]]) -> tuple[bool, str]:
    """Whether two tables of one run say the same bit for bit, and which rows do not. Times never repeat."""
    first, second = _by_key(before), _by_key(after)
    timed = sum(not metric_of(key[1]).repeats for key in first)
    differing = []
    for key in dict.fromkeys([*first, *second]):
        if metric_of(key[1]).repeats and not _alike(first.get(key, ()), second.get(key, ())):
            differing.append((_distance(first.get(key), second.get(key)), key))
    aside = f"; {words.count(timed, 'row')} of times not compared" if timed else ""
    if not differing:
        return True, f"The same: {words.count(len(first) - timed, 'row')} came out alike, bit for bit{aside}."
    differing.sort(key=lambda pair: -pair[0])
    lines = [[*key[:4], _slice(key), _shown(first.get(key)), _shown(second.get(key))] for _, key in differing[:SHOWN]]
    table = tabulate(lines, headers=[*KEY[:4], "slice", "first", "second"], tablefmt="simple", disable_numparse=True)
    more = f"\nand {len(differing) - SHOWN} more" if len(differing) > SHOWN else ""
    largest = differing[0][0]
    said = f"by {largest:.3g} at most" if largest < math.inf else "some in more than their value"
    return False, f"{table}{more}\n{len(differing)} of {len(first) - timed} rows differ, {said}{aside}."


def _by_key(table: Mapping[str, list[Any]]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Row by row; a key that comes again is counted on."""
    found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    keys, compared = (zip(*(table[column] for column in columns), strict=True) for columns in (KEY, COMPARED))
    for key, cells in zip(keys, compared, strict=True):
        again = 0
        while (*key, again) in found:
            again += 1
        found[*key, again] = cells
    return found


def _alike(first: Iterable[Any], second: Iterable[Any]) -> bool:
    """NaN is like NaN, and nothing else is like it."""
    return [repr(cell) for cell in first] == [repr(cell) for cell in second]


def _distance(first: tuple[Any, ...] | None, second: tuple[Any, ...] | None) -> float:
    """Between two values, infinite where there is more to it than that."""
    if first is None or second is None or not _alike(first[1:], second[1:]):
        return math.inf
    gap = abs(first[0] - second[0])
    return math.inf if math.isnan(gap) else gap


def _slice(key: tuple[Any, ...]) -> str:
    return slice_name(dict(zip(KEY, key, strict=False)))


def _shown(cells: tuple[Any, ...] | None) -> str:
    if cells is None:
        return "no such row"
    value, chance, n, status = cells
    return f"{value!r} (chance {chance!r}, n {n})" if status == "ok" else str(status)


def _made_differently(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """A line for everything that the two were not both made with."""
    pairs: dict[str, tuple[Any, Any]] = {key: (first.get(key), second.get(key)) for key in MADE_WITH}
    for key in ("processes", "seeds_together"):
        pairs[key] = (first.get(key) or 1, second.get(key) or 1)
    ours, theirs = first.get("packages") or {}, second.get("packages") or {}
    pairs |= {str(key): (ours.get(key), theirs.get(key)) for key in dict.fromkeys([*ours, *theirs])} if ours else {}
    pairs["corpus"] = ((first.get("corpus") or {}).get("sha256"), (second.get("corpus") or {}).get("sha256"))
    return [f"{key}: {then} then, {now} now" for key, (then, now) in pairs.items() if then != now]
