"""A run repeated from its configuration: are the rows the same, to the last bit?"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate

import pe_zoo
from experiments.figures import words
from experiments.model.layout import Layout
from experiments.plan.prepare import check_name
from experiments.plan.request import BadRequest, ModelConfig, RunConfig
from experiments.rows.packed import RETIRED
from experiments.rows.read import FINISHED, TUNED, read_record, read_run
from experiments.rows.row import COORDINATES, metric_of, slice_name
from experiments.rows.untrusted import message_of, name_of, read_mapping
from experiments.runs.record import Outcome, run
from experiments.training.config import TrainConfig
from experiments.training.parallel import Team

SHOWN = 20
KEY = ("experiment", "metric", "train_length", "eval_length", "condition", *COORDINATES)
"""The columns that distinguish the rows of a run."""
COMPARED = ("value", "chance", "n", "status")
MADE_WITH = ("torch", "python", "device", "precision", "threads", "commit")


@dataclass(frozen=True)
class Repeated:
    """How a repetition ended.

    Args:
        outcome: of the second run.
        same: whether it has the same rows, times aside.
        text: the comparison.
    """

    outcome: Outcome
    same: bool
    text: str


def rerun(place: Path, plugin: str | None = None, team: Team | None = None) -> Repeated:
    """Repeat a run in ``results/<name>-rerun/`` and compare its rows with the first ones.

    Args:
        place: the folder of a run that has finished, ``results/<name>/runs/<run_id>``.
        plugin: the file that its encoder came from, if it was not one of ours.
        team: the processes that share the repetition; None: this one alone.

    Raises:
        BadRequest: there is no such run, it has no rows, or it cannot be repeated here.
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
        config = config_of(read_mapping(place / "config.yaml", folder), record, plugin, folder.name)
    except (ValueError, OSError, pe_zoo.PluginError) as error:
        raise BadRequest(message_of(error)) from error
    if 0 < (record.get("threads") or 0) <= (os.cpu_count() or 1):
        torch.set_num_threads(record["threads"])  # another number rounds sums in another order
    outcome = run(config, force=True, team=team)
    if team is not None and team.rank:
        return Repeated(outcome, True, "")
    if outcome.status not in FINISHED:
        return Repeated(outcome, False, f"The second run {outcome.status}: {outcome.message}")
    again = outcome.folder.resolve()
    _, _, after = read_run(again, again.parent.parent)
    assert after is not None
    same, text = compare(before, after)
    notes = _differences(record, read_record(again, again.parent.parent))
    if outcome.run_id != place.name:
        notes.insert(0, f"The first one is called {place.name}: options were added or removed since.")
    return Repeated(outcome, same, "\n".join([text, *notes]))


def config_of(nested: Mapping[str, Any], record: Mapping[str, Any], plugin: str | None, name: str) -> RunConfig:
    """Return the request that a ``config.yaml`` resolves.

    Raises:
        ValueError: another version wrote it, or the plug-in is not the one it was made with.
    """
    digest = nested.get("plugin")
    short = f"{name_of(str(digest))[:12]}…" if digest else "no digest"
    if digest and plugin is None:
        raise ValueError(f"the encoder came from a file with sha256 {short}: add plugin=FILE.py, the same file")
    given = pe_zoo.load_file(plugin) if plugin else None
    if given != digest:
        raise ValueError(f"plugin={plugin} has sha256 {str(given)[:12]}…, the run's has {short}: give the same file")
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
        raise ValueError(f"config.yaml was written by another version: {error}") from error


def compare(before: Mapping[str, list[Any]], after: Mapping[str, list[Any]]) -> tuple[bool, str]:
    """Return whether two tables of one run are equal bit for bit, and which rows are not. Times never repeat."""
    first, second = _by_key(before), _by_key(after)
    retired = [key for key in first if key[:1] == ("structure",) and key[1] in RETIRED and key not in second]
    first = {key: cells for key, cells in first.items() if key not in set(retired)}
    timed = sum(not metric_of(key[1]).repeats for key in first)
    aside = f"; {words.count(timed, 'row')} of times not compared" if timed else ""
    differing = [
        (_distance(first.get(key), second.get(key)), key)
        for key in dict.fromkeys([*first, *second])
        if metric_of(key[1]).repeats and not _equal(first.get(key, ()), second.get(key, ()))
    ]
    aside += f"; {words.count(len(retired), 'row')} of metrics that are no longer measured" if retired else ""
    if not differing:
        return True, f"The same: {words.count(len(first) - timed, 'row')} are equal, bit for bit{aside}."
    differing.sort(key=lambda pair: -pair[0])
    lines = [[*key[:4], _slice(key), _shown(first.get(key)), _shown(second.get(key))] for _, key in differing[:SHOWN]]
    table = tabulate(lines, headers=[*KEY[:4], "slice", "first", "second"], tablefmt="simple", disable_numparse=True)
    more = f"\nand {len(differing) - SHOWN} more" if len(differing) > SHOWN else ""
    largest = differing[0][0]
    size = f"by {largest:.3g} at most" if largest < math.inf else "some in more than their value"
    return False, f"{table}{more}\n{len(differing)} of {len(first) - timed} rows differ, {size}{aside}."


def _by_key(table: Mapping[str, list[Any]]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Return the rows by their key, with a number at its end for keys that occur again."""
    rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    keys, compared = (zip(*(table[column] for column in columns), strict=True) for columns in (KEY, COMPARED))
    counts = Counter[tuple[Any, ...]]()
    for key, cells in zip(keys, compared, strict=True):
        rows[*key, counts[key]] = cells
        counts[key] += 1
    return rows


def _equal(first: Iterable[Any], second: Iterable[Any]) -> bool:
    """Compare cells; NaN equals NaN."""
    return [repr(cell) for cell in first] == [repr(cell) for cell in second]


def _distance(first: tuple[Any, ...] | None, second: tuple[Any, ...] | None) -> float:
    """Return how far two values are apart; infinity where more than the value differs."""
    if first is None or second is None or not _equal(first[1:], second[1:]):
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


def _differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """Return a line for everything that the two runs were not both made with."""
    pairs: dict[str, tuple[Any, Any]] = {key: (first.get(key), second.get(key)) for key in MADE_WITH}
    for key in ("processes", "seeds_together"):
        pairs[key] = (first.get(key) or 1, second.get(key) or 1)
    before, after = first.get("packages") or {}, second.get("packages") or {}
    pairs |= {str(key): (before.get(key), after.get(key)) for key in dict.fromkeys([*before, *after]) if before}
    pairs["corpus"] = ((first.get("corpus") or {}).get("sha256"), (second.get("corpus") or {}).get("sha256"))
    return [f"{key}: {then} then, {now} now" for key, (then, now) in pairs.items() if then != now]
