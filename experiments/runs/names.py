"""The names on a command line, checked from the sources before torch is imported: a typing mistake costs no time."""

import ast
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache, partial
from importlib.metadata import entry_points
from pathlib import Path

import yaml

from experiments import measures
from experiments.plan import places
from experiments.plan.refusal import BadRequest, refusing
from experiments.statistics.rule import BEST, STATEMENTS
from pe_zoo import _catalogue
from pe_zoo._catalogue import Entry
from pe_zoo._knobs import hint

CODE = Path(__file__).resolve().parents[1]
REGISTERED = ("encoder", "task", "positions")
"""Groups whose choices are classes; a choice's options are the class's knobs."""
LISTS = ("sweep", "statements")
"""Groups whose choices are lists of runs."""
PARTS = {
    "layout": ("model/layout.py", "Layout"),
    "model": ("plan/request.py", "ModelConfig"),
    "train": ("training/config.py", "TrainConfig"),
}
"""Groups whose options are the fields of a class: its file and its name."""
GROUPS = (*REGISTERED, *PARTS, *LISTS)
"""Every group that is chosen from by name."""
OTHERS = 4
"""Entries named that have an option which the chosen one lacks."""
PLAIN = re.compile(r"[\w./~@:+-]+")
"""A value that Hydra reads as it stands, and that is one."""
LIST = re.compile(r"\w+(,\w+)+")
"""Several names."""
UNTIL_DECIDED = "until_decided"
"""The value of ``seeds`` with which a sweep adds seeds by a rule, see `statistics.sequential`."""
AGAINST = "against"
DECLARED = (AGAINST, "looks", "weights", "delta", "paired")
"""The options of that rule."""
KINDS = {"positions": "numbering"}


@cache
def entries(group: str) -> Mapping[str, Entry]:
    """Return what the sources say of every registered encoder, task, numbering or experiment, by name."""
    sources: dict[str, Callable[[], Iterable[Entry]]] = {
        "encoder": _catalogue.encoders,
        "task": partial(_catalogue.tasks, CODE / "tasks"),
        "positions": _catalogue.numberings,
        "experiment": measures.entries,
    }
    return {entry.name: entry for entry in sources[group]()} if group in sources else {}


def choices(group: str, *configs: Path) -> list[str]:
    """Return every name that may be chosen: registered ones and those of files."""
    return sorted({*entries(group), *(file.stem for folder in configs for file in (folder / group).glob("*.yaml"))})


@cache
def fields(path: str, name: str) -> tuple[str, ...]:
    """Return the names of a dataclass's fields, from its source."""
    body = ast.parse((CODE / path).read_text(encoding="utf-8")).body
    (found,) = (item for item in body if isinstance(item, ast.ClassDef) and item.name == name)
    return tuple(ast.unparse(item.target) for item in found.body if isinstance(item, ast.AnnAssign))


@cache
def options() -> frozenset[str]:
    """Return every option and group."""
    return frozenset({*GROUPS, *entries("experiment"), *fields("runs/options.py", "Request")})


def several(word: str) -> str:
    """Return why one run cannot have a list of values."""
    return f"{word}: a list of values needs -m, as in python run.py -m {word}"


def check(overrides: Iterable[str], configs: Path, own: str | None = None, *, multirun: bool = False) -> None:
    """Refuse an unknown name; ``own`` is a folder with further configuration files.

    Whatever cannot be judged from the sources alone passes, as all that a plug-in may add.
    """
    given = {key.lstrip("+"): value for key, _, value in (word.partition("=") for word in overrides)}
    chosen = _defaults(configs) | given
    added = "plugin" in given or any(group.startswith("pe_zoo.") for group in entry_points().groups)
    for word in overrides:
        key, _, value = word.partition("=")
        name = key.lstrip("+")
        group, _, knob = name.partition(".")
        if key in LISTS:
            raise BadRequest(f"{word} is a list of runs: write -m +{word}")
        if name.startswith("hydra") or (key.startswith("+") and name not in LISTS):
            continue
        if name in GROUPS and not multirun and LIST.fullmatch(value):
            raise BadRequest(several(word))
        if added and group not in (*PARTS, *LISTS):
            continue
        if knob and group in options():
            _check_knob(name, chosen)
        elif name == "experiment" or name in GROUPS:
            if re.fullmatch(r"\[?\w+(,\w+)*\]?", value):
                _check_choices(name, re.findall(r"\w+", value), configs, *([Path(own)] if own else ()))
        elif name == AGAINST and re.fullmatch(r"\w+", value):
            known = {*choices("encoder", configs), BEST, STATEMENTS}
            if value not in known:
                _refuse(f"encoder named {value!r} to compare with", value, known, "encoders")
        elif name not in options():
            _refuse(f"option {name!r}", name, options() | _nested(chosen), "options")
    if not added:
        _check_places(given, chosen)


@refusing()
def _check_places(given: Mapping[str, str], chosen: Mapping[str, str]) -> None:
    """Refuse files that are not here, and a task that a saved model cannot be asked."""
    text, place, task = given.get("task.path", ""), given.get("checkpoint", ""), chosen["task"]
    if PLAIN.fullmatch(text):
        places.check_text(text)
    if PLAIN.fullmatch(place) and place != "null":
        places.files_of(place)
        if task in entries("task") and set(given).isdisjoint(LISTS):
            knobs, has_tokenizer = entries("task")[task].knobs, places.TOKENIZER in given
            has_text = not given.keys().isdisjoint((*places.TEXTS, places.SOURCE))
            places.check_question(place, task, knobs, given.get("experiment"), has_text, has_tokenizer)


def _defaults(configs: Path) -> dict[str, str]:
    config = yaml.safe_load((configs / "config.yaml").read_text(encoding="utf-8"))
    groups = [default for default in config["defaults"] if isinstance(default, dict)]
    chosen = {group: name for default in groups for group, name in default.items()}
    return chosen | {"experiment": ",".join(config["experiment"])}


def _check_choices(group: str, names: Iterable[str], *configs: Path) -> None:
    known = choices(group, *configs)
    for name in names:
        if name not in (*known, "all", "null"):
            kind = KINDS.get(group, group)
            own = " Your own: plugin=its_file.py." if group in ("encoder", "task", "experiment") else ""
            _refuse(f"{kind} named {name!r}", name, known, topic_of(group), own)


def _check_knob(name: str, given: Mapping[str, str]) -> None:
    group, _, knob = name.partition(".")
    topic, others = "options", list[str]()
    if group in PARTS:
        known: Collection[str] = fields(*PARTS[group])
    elif group in entries("experiment"):
        known, topic = entries("experiment")[group].knobs, "experiments"
    elif group in REGISTERED and set(given).isdisjoint(LISTS):
        chosen = given[group].split(",")
        if not set(chosen) <= set(entries(group)):
            return
        known, topic = [one for choice in chosen for one in entries(group)[choice].knobs], topic_of(group)
        others = [other for other, entry in entries(group).items() if knob in entry.knobs]
    else:
        return
    if knob.partition(".")[0] not in (*known, "name"):
        if others:
            own = ", ".join(f"{group}.{one}" for one in dict.fromkeys(known)) or "nothing"
            some = ", ".join(others[:OTHERS]) + ", …" * (len(others) > OTHERS)
            chosen_is = f"{group}={given[group]}, given or by default, has {own}"
            raise BadRequest(f"{name!r} is an option of {group}={some}: add that; {chosen_is}")
        # ``train.length`` is ``task.train_length``
        near = _nested(given) if group in PARTS else [f"{group}.{one}" for one in known]
        _refuse(f"option {name!r}", name, near, topic)


def _nested(given: Mapping[str, str]) -> set[str]:
    """Return the options of all groups, of registered classes and experiments those of the chosen ones."""
    found = {f"{group}.{field}" for group, place in PARTS.items() for field in fields(*place)}
    measured = [entry for name, entry in entries("experiment").items() if name in given.get("experiment", "")]
    found |= {f"{entry.name}.{knob}" for entry in measured for knob in entry.knobs}
    chosen = [(group, entries(group).get(name)) for group in REGISTERED for name in given[group].split(",")]
    return found | {f"{group}.{knob}" for group, entry in chosen if entry for knob in entry.knobs}


def _refuse(what: str, given: str, known: Collection[str], topic: str, more: str = "") -> None:
    raise BadRequest(f"no {what}.{hint(given, known)}{more} All: python run.py --help {topic}")


def topic_of(group: str) -> str:
    """Return what ``--help`` takes to list a group: encoders, sweeps, positions, train …"""
    return group if group.endswith("s") or group == "train" else f"{group}s"
