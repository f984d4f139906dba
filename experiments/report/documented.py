"""What is documented of encoders, tasks and measures: of ours by their sources, of others by their runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.measures import entries
from experiments.rows.untrusted import name_of, one_line
from pe_zoo import _catalogue
from pe_zoo._catalogue import Entry

MOST = 4000
"""Characters of a docstring from outside that are shown."""
TASKS = Path(__file__).parents[1] / "tasks"


def encoders(runs: pd.DataFrame) -> dict[str, Entry]:
    """Return every encoder, with the file and the last check of one from outside as ``declared``."""
    known = {entry.name: entry for entry in _catalogue.encoders()}
    for record in runs[[isinstance(source, dict) for source in runs["source"]]].to_dict("records"):
        source, name = record["source"], str(record["choice"])
        given = source.get("knobs") if isinstance(source.get("knobs"), dict) else {}
        knobs = {name_of(str(knob)): _catalogue.Knob(name_of(str(value))) for knob, value in given.items()}
        declared = {key: name_of(str(source.get(key) or "")) for key in ("family", "file", "sha256", "check")}
        known.setdefault(name, replace(_parsed(name, source.get("docstring"), knobs), declared=declared))
    return known


def tasks(runs: pd.DataFrame) -> dict[str, Entry]:
    """Return every task."""
    return _with_others({entry.name: entry for entry in _catalogue.tasks(TASKS)}, runs, "task")


def measures(runs: pd.DataFrame) -> dict[str, Entry]:
    """Return every measure."""
    return _with_others({entry.name: entry for entry in entries()}, runs, "experiment")


def _with_others(known: dict[str, Entry], runs: pd.DataFrame, kind: str) -> dict[str, Entry]:
    for described in runs["described"]:
        found = described.get(kind) if isinstance(described, dict) else None
        for name, docstring in found.items() if isinstance(found, dict) else ():
            known.setdefault(str(name), _parsed(str(name), docstring))
    return known


def _parsed(name: str, docstring: Any, knobs: dict[str, _catalogue.Knob] | None = None) -> Entry:
    text = "\n".join(map(one_line, str(docstring or "")[:MOST].split("\n")))
    return _catalogue.parse(name, text, knobs)
