"""Names of series: a series is all runs that differ in their seed alone.

A series is named by its own run: the encoder with the knobs that are not at their defaults, the numbering unless it is
sequential, and the layout unless it is uniform. Adding a run changes these parts of no other name. Other settings
(``train.*``, ``model.*``, knobs of the task …) follow as ``key=value`` where runs of one task differ in them, for the
runs that depart from the project's default; where ``configs/`` has no default, from the value that most runs have.
Two runs share a name only if they differ in their seed, or in the experiments that they measured.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

from experiments.rows.untrusted import name_of

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
PLAIN = {"positions": "sequential", "layout": "uniform"}
"""Parts of a name that are left out at this value."""
SHORT = 8
"""Digits of a plug-in's sha256 in a name."""
USUAL = 0.75
"""Share of a task's runs from which on a value is the one that most have."""
AS_BEFORE = {
    "layout.windows": "null",
    "model.sinks": "false",
    "task.index_hints": "0",
    "task.source": "library",
    "task.measured": "split",
    "encoder.rotate_values": "false",
    "length_extrapolation.during": "[]",
}
"""Keys that runs lack where they have this value, the default, which is what earlier releases did."""
OUTSIDE = "model.checkpoint"
OF_NAME = {"plugin": "plugin", **dict.fromkeys((OUTSIDE, "model.sha256", "task.tokenizer"), OUTSIDE)}
"""Keys that the encoder's name stands for, which may be a model's from outside, in runs that have another key."""
DIGESTS = ("plugin", "model.sha256")
"""Keys whose value is told in `SHORT` digits."""
CHOICE = ("experiment", "trained")
"""Keys that change no number of an experiment that only one of two runs measured."""
Runs = list[tuple[dict[str, Any], dict[str, str]]]
"""Each run's record and its configuration, dotted keys to text."""


def name_series(runs: Runs) -> dict[str, dict[str, str]]:
    """Set the ``series`` of each record to the name of its series.

    Returns:
        task -> the settings, dotted keys to text, that its names do not mention.
    """
    settings = {}
    for task in dict.fromkeys(record.get("task") for record, _ in runs):
        of_task = [(record, config) for record, config in runs if record.get("task") == task]
        settings[str(task)] = _name_task([run for run in of_task if run[1]])
        for record, _ in of_task:
            record.setdefault("series", _brief(str(record.get("encoder") or "unknown")))
    return settings


def _brief(encoder: str) -> str:
    """Count what is repeated in the lists of an encoder's name.

    >>> _brief("layered(layers=['rope', 'rope', 'rope base=1000000'])")
    'layered(layers=[2 × rope, rope base=1000000])'
    """

    def counted(found: re.Match[str]) -> str:
        items = ((item, len(list(alike))) for item, alike in groupby(re.findall("'([^']*)'", found[0])))
        return f"[{', '.join(f'{count} × {item}' if count > 1 else item for item, count in items)}]"

    return re.sub(r"\['[^\]]*'\]", counted, encoder)


def flat(nested: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield dotted keys and their values as text."""
    for key, value in nested.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value if isinstance(value, str) else json.dumps(value)


def _name_task(runs: Runs) -> dict[str, str]:
    # Runs without training, or without an experiment, have no value for its keys; others that lack a key are older.
    optional = {"train", *(name for _, config in runs for name in _experiments(config))}
    keys = dict.fromkeys(key for _, config in runs for key in config if key not in ("seed", "seeds", "name"))
    lacking = {key: None if key.partition(".")[0] in optional else "unset" for key in keys}
    lacking |= AS_BEFORE
    values = {key: [config.get(key, lacking[key]) for _, config in runs] for key in keys}
    for key in keys:
        if (part := key.partition(".")[0]) in ("encoder", *PLAIN):  # a knob of another encoder is not lacking
            having = {record.get(part) for record, config in runs if key in config}
            named = zip(values[key], runs, strict=True)
            values[key] = [value if record.get(part) in having else None for value, (record, _) in named]
    different = {key for key in keys if len({*values[key]} - {None}) > 1}
    varying = [key for key in keys if key in different - {*CHOICE} and _is_unsaid(key, runs)]
    plain = {key: _plain_value(key, values[key]) for key in keys}

    said = _said_by_recipes(runs, values)

    def write(named: list[str]) -> None:
        for place, (record, _) in enumerate(runs):
            own = said.get(record.get("encoder"), set())
            parts = [record[part] for part, usual in PLAIN.items() if record.get(part) not in (None, usual)]
            parts = [part for part in parts if not own or part != record.get("layout")]
            told = [key for key in named if key not in own and values[key][place] not in (None, plain[key])]
            parts += [f"{key}={str(values[key][place])[: SHORT if key in DIGESTS else None]}" for key in told]
            record["series"] = name_of(" · ".join([_brief(str(record.get("encoder"))), *map(str, parts)]))

    write(varying)
    measured = [(record["series"], record["seed"], name) for record, config in runs for name in _experiments(config)]
    if len(set(measured)) < len(measured):  # two runs of one name and seed measured the same experiment
        write([*varying, *(key for key in CHOICE if key in different)])
    return {
        key: f"{value}, unless a series says otherwise" if key in different else value
        for key, value in plain.items()
        if value in values[key] and value is not None and (key not in different or key in varying)
        if None not in values[key] or key.partition(".")[0] not in ("encoder", *PLAIN)
    }


def _said_by_recipes(runs: Runs, values: dict[str, list[str | None]]) -> dict[Any, set[str]]:
    """Return the keys of layout and trunk that the name of a shipped model's recipe says: its runs agree in them."""
    places: dict[Any, list[int]] = {}
    for place, (record, config) in enumerate(runs):
        name = str(record.get("encoder") or "")
        if config.get("encoder.name", name) != name.partition("(")[0]:
            places.setdefault(record.get("encoder"), []).append(place)
    of_recipe = [key for key in values if key.partition(".")[0] in ("layout", "model")]
    return {
        name: {key for key in of_recipe if len({values[key][place] for place in where}) == 1}
        for name, where in places.items()
    }


def _plain_value(key: str, values: list[str | None]) -> str | None:
    """Return the value of a key that names do not mention; None if they always do."""
    counts = Counter(value for value in values if value is not None)
    if len(counts) < 2:
        return next(iter(counts), None)
    if key in (known := AS_BEFORE | defaults()):
        return known[key]
    value, count = counts.most_common(1)[0]
    return "null" if "null" in counts else value if count > USUAL * counts.total() else None


@cache
def defaults() -> dict[str, str]:
    """Return the project's defaults of layout, model and training, dotted keys to text; none outside a checkout."""
    try:
        chosen = yaml.safe_load((CONFIGS / "config.yaml").read_text(encoding="utf-8"))["defaults"]
        files = {group: name for entry in chosen if isinstance(entry, dict) for group, name in entry.items()}
        groups = {group: CONFIGS / group / f"{files[group]}.yaml" for group in ("layout", "model", "train")}
        return dict(flat({group: yaml.safe_load(file.read_text(encoding="utf-8")) for group, file in groups.items()}))
    except OSError:
        return {}


def _is_unsaid(key: str, runs: Runs) -> bool:
    """Return whether runs differ in a key although their encoder, numbering or layout has the same name.

    The file of an encoder is told by its name, too, or by the model that is widened to as many parameters.
    """
    of_name: dict[tuple[Any, str | None], set[str | None]] = {}
    for record, config in runs:
        component = "encoder" if OF_NAME.get(key) in config else key.partition(".")[0]
        name = record.get(component) if component in ("encoder", *PLAIN) else None
        wide = config.get("model.as_many_as") if key == "plugin" else None
        of_name.setdefault((name, wide), set()).add(config.get(key))
    return any(len(values) > 1 for values in of_name.values())


def _experiments(config: dict[str, str]) -> list[str]:
    try:
        return [str(name) for name in json.loads(config.get("experiment", "[]"))]
    except (ValueError, TypeError):  # a single name, or a file that is not ours
        return [config["experiment"]]
