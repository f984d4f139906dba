"""A command line to the points of its sweep: the parts of sweep files, then all combinations of listed values."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml

import pe_zoo
from experiments.plan.request import BadRequest
from experiments.runs import config
from experiments.runs.arguments import is_hydras
from experiments.runs.options import LISTS


def points(lines: Iterable[list[str]], *, multirun: bool) -> Iterator[list[str]]:
    """Yield the overrides of every point that expanded command lines ask for."""
    for line in lines:
        if multirun:
            values = config.values([word for word in line if not is_hydras(word)])
            yield from map(list, itertools.product(*values))
        else:
            yield line


def expand(words: list[str], configs: Path, *, multirun: bool = True) -> list[list[str]]:
    """Return a command line for each part of the sweep file that one names; the line itself if that has no parts.

    Hydra's sweeps are all combinations of some lists. A comparison that is not (these encoders on that task, others on
    another) is a file with ``parts``, each a command line of its own, which may name a sweep of parts in turn. Options
    on the command line replace those of a part. ``encoder=all`` is a list of every encoder.

    Raises:
        BadRequest: parts, or all encoders, without ``-m``.
    """
    for word in words:
        if word.startswith("+reproduce="):
            raise BadRequest(f"{word}: published findings are statements now; use +statements={word.partition('=')[2]}")
    if (every := "encoder=all") in words:
        _check_multirun(every, multirun)
        words = [f"encoder={','.join(pe_zoo.names())}" if word == every else word for word in words]
    named = [word for word in words if word.partition("=")[0] in [f"+{group}" for group in LISTS]]
    file = configs.joinpath(*f"{named[0].lstrip('+')}.yaml".split("=", 1)) if len(named) == 1 else None
    content = yaml.safe_load(file.read_text(encoding="utf-8")) if file is not None and file.is_file() else {}
    if "parts" not in content:
        return [words]
    _check_multirun(named[0], multirun)
    kept = [word for word in words if word != named[0]]
    given = {word.partition("=")[0] for word in kept}
    lines = []
    for part, times in itertools.product(content["parts"], content.get("times", [""])):
        own = (f"name={content['name']}", *part.split(), *times.split())
        lines += expand([*kept, *(word for word in own if word.partition("=")[0] not in given)], configs)
    return lines


def _check_multirun(word: str, multirun: bool) -> None:
    if not multirun:
        raise BadRequest(f"{word} is a list of runs: add -m to run them all")
