"""What is documented of encoders, tasks and measures: of ours by their sources, of others by their runs."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from experiments.measures import entries
from experiments.rows.untrusted import name_of, one_line
from pe_zoo import _catalogue
from pe_zoo._catalogue import Entry

MOST = 4000
"""Characters of a docstring from outside that are shown."""
TASKS = Path(__file__).parents[1] / "tasks"
CONFIGS = Path(__file__).parents[2] / "configs"


def encoders(runs: pd.DataFrame) -> dict[str, Entry]:
    """Return every encoder and recipe, with the file and the last check of one from outside as ``declared``."""
    known = {entry.name: entry for entry in _catalogue.encoders()}
    known |= {entry.name: entry for entry in _recipes(known)}
    for record in runs[runs["source"].notna()].to_dict("records"):
        source, name = record["source"], str(record["choice"])
        given = source.get("knobs") if isinstance(source.get("knobs"), dict) else {}
        knobs = {name_of(str(knob)): _catalogue.Knob(name_of(str(value))) for knob, value in given.items()}
        declared = {key: name_of(str(source.get(key) or "")) for key in ("family", "file", "sha256", "check")}
        known.setdefault(name, replace(_parsed(name, source.get("docstring"), knobs), declared=declared))
    return known


def variant(group: str, name: str) -> Entry | None:
    """Return what the file of a named variant says of it; None if there is none."""
    path = CONFIGS / group / f"{name}.yaml"
    if not re.fullmatch(r"\w+", name) or not path.is_file():
        return None
    return _catalogue.of_file(path)


def _recipes(known: Mapping[str, Entry]) -> Iterator[Entry]:
    """Encoder, layout and trunk of shipped models, each of the family of its encoder."""
    for path in sorted((CONFIGS / "encoder").glob("*.yaml")):
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
        told = variant("encoder", path.stem)
        if told and "recipe" in given:
            of = known[given["defaults"][0].partition("@")[0]]
            yield replace(told, name=given["recipe"], declared={"family": of.declared.get("family", "")})


def tasks(runs: pd.DataFrame) -> dict[str, Entry]:
    """Return every task."""
    return _with_others({entry.name: entry for entry in _catalogue.tasks(TASKS)}, runs, "task")


def measures(runs: pd.DataFrame) -> dict[str, Entry]:
    """Return every measure."""
    return _with_others({entry.name: entry for entry in entries()}, runs, "experiment")


def _with_others(known: dict[str, Entry], runs: pd.DataFrame, kind: str) -> dict[str, Entry]:
    for described in runs["described"].dropna():
        found = described.get(kind)
        for name, docstring in found.items() if isinstance(found, dict) else ():
            known.setdefault(str(name), _parsed(str(name), docstring))
    return known


def _parsed(name: str, docstring: Any, knobs: dict[str, _catalogue.Knob] | None = None) -> Entry:
    text = "\n".join(map(one_line, str(docstring or "")[:MOST].split("\n")))
    return _catalogue.parse(name, text, knobs)
