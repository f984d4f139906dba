"""The words of a command line: read, checked before Hydra composes, and expanded by the parts of sweep files."""

import argparse
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import yaml

import pe_zoo
from experiments.plan.refusal import BadRequest
from experiments.runs import names
from experiments.runs.names import DECLARED, GROUPS, LISTS, UNTIL_DECIDED
from experiments.statistics.rule import STATEMENTS
from pe_zoo._knobs import suggestion

RERUN, PLAN, VERIFY = "--rerun", "--plan", "--verify"
BATCH = "hydra.sweeper.max_batch_size"
LAUNCHER = "hydra/launcher"
OF_HYDRA = (LAUNCHER, "hydra.launcher", BATCH)
"""Hydra's own options that may be given. Where it writes may not: results have their place, and nothing else stays."""
HELP = "python run.py --help lists the options"
EVERY = "encoder=all"


def is_hydras(word: str) -> bool:
    """Whether an override is of Hydra itself, not of a run."""
    return word.lstrip("+").startswith("hydra")


@dataclass(frozen=True)
class Arguments:
    """A command line: its words, and of these the overrides ``option=value``."""

    words: list[str]
    overrides: list[str]
    multirun: bool
    shows: bool
    """Whether it only shows something, such as ``--cfg job``."""
    plans: bool
    """``--plan``: whether it only says what the runs would take."""
    config_dir: str | None
    """Another folder of configuration files."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadRequest(f"{message}; {HELP}")


def read(words: list[str]) -> Arguments:
    """Read a command line; BadRequest for what cannot be read or has no meaning here."""
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("-m", "--multirun", action="store_true")
    parser.add_argument("-cd", "--config-dir")
    parser.add_argument("-c", "--cfg", choices=["job", "hydra", "all"])
    infos = ["all", "config", "defaults", "defaults-tree", "plugins", "searchpath"]
    parser.add_argument("-i", "--info", nargs="?", const="all", choices=infos)
    parser.add_argument("-sc", "--shell-completion", action="store_true")
    for switch in ("--resolve", "--hydra-help", "--version", PLAN):
        parser.add_argument(switch, action="store_true")
    for word, after in itertools.pairwise([*words, ""]):
        flag, _, value = word.partition("=")
        if (option := flag.removeprefix("--")) != flag and option in names.options():
            value = value or ("" if after.startswith("-") or "=" in after else after)
            raise BadRequest(f"{flag} is an option, which has no dashes here: write {option}={value or '…'}")
    given = vars(parser.parse_intermixed_args(words))
    overrides, multirun, config_dir, plans = map(given.pop, ("overrides", "multirun", "config_dir", "plan"))
    if not given["shell_completion"]:
        _check(overrides)
    return Arguments(words, overrides, multirun, any(given.values()), plans, config_dir)


def _check(overrides: Sequence[str]) -> None:
    before, grows = dict[str, str](), f"seeds={UNTIL_DECIDED}"
    for word in overrides:
        key, equals, value = word.partition("=")
        name = key.lstrip("+").partition("@")[0]
        if word.startswith("~"):
            raise BadRequest(f"{word!r} removes an option, and every option is needed; give it another value instead")
        if not name:
            raise BadRequest(f"{word!r} names no option; write option=value")
        if not equals and before and overrides[len(before) - 1].endswith(","):
            rest = itertools.takewhile(lambda other: "=" not in other, overrides[len(before) :])
            joined = "".join([overrides[len(before) - 1], *rest])
            raise BadRequest(f"{word!r} follows a space: write no space after a comma, {joined}")
        if not equals:
            groups = [group for group in names.REGISTERED if word in names.entries(group)]
            meant = f"{groups[0]}={word}" if groups else f"option=value, without spaces; {HELP}"
            raise BadRequest(f"{word!r} is no option; write {meant}")
        if name.partition(".")[0].partition("/")[0] == "hydra" and not name.startswith(OF_HYDRA):
            allowed = f"of its options you may give {', '.join(OF_HYDRA)}"
            raise BadRequest(f"{name} is Hydra's own and fixed here; {allowed}. name= is the folder under results/")
        if name == BATCH and value != "null" and not (value.isdecimal() and int(value) > 0):
            raise BadRequest(f"{BATCH} must be a whole number of at least 1, or null; got {value!r}")
        if name in ("seed", "seeds") and value.isidentifier() and word != grows:
            allowed = f"{name} must be a whole number, or {grows}"
            raise BadRequest(f"{allowed}; got {value!r}.{suggestion(word, [grows])}")
        if name in before:
            single = key.startswith("+") or name.startswith(("hydra", "plugin"))
            several = "" if single else f", or -m {name}={before[name]},{value}"
            raise BadRequest(f"{name} is given twice ({before[name]}, {value}): give one{several}")
        before[name] = value
        group, _, below = name.rpartition(".")
        if below == "name" and group in GROUPS:
            raise BadRequest(f"{name} is no option of its own: write {group}={value}")
        if name in GROUPS:
            _check_choice(name, value)


def _check_choice(group: str, value: str) -> None:
    """Take a name, or several with commas between as a sweep has them; Hydra reads options in braces."""
    try:
        choice = yaml.safe_load(value)
    except yaml.YAMLError:
        return
    if not isinstance(choice, str | dict):
        raise BadRequest(f"{group}={value} is no name; {HELP}, and -m takes {group}=one,another")
    if isinstance(choice, str) and ("/" in choice or ".." in choice):
        raise BadRequest(f"{group}={choice!r} must be a name, not a path; {HELP}")


def expand(words: list[str], *configs: Path, multirun: bool = True) -> list[list[str]]:
    """Return a command line for each part of the sweep file that one names; the line itself if that has no parts.

    Hydra's sweeps are all combinations of some lists. A comparison that is not (these encoders on that task, others on
    another) is a file with ``parts``, each a command line of its own, which may name a sweep of parts in turn. Options
    on the command line replace those of a part. The file, the first of that name in the folders ``configs``, may
    declare by which rule seeds are added; statements do. ``encoder=all`` is a list of every encoder that takes
    positions of the numbering's axes. Both need ``-m``.
    """
    for word in words:
        if word.startswith("+reproduce="):
            raise BadRequest(f"{word}: published findings are statements now; use +statements={word.partition('=')[2]}")
    if EVERY in words:
        _check_multirun(EVERY, multirun)
    named = [word for word in words if word.partition("=")[0] in [f"+{group}" for group in LISTS]]
    given = {word.partition("=")[0] for word in words if word not in named}
    if named and "seeds" in given and "seed" not in given:  # the number of seeds replaces the file's own
        given, words = given | {"seed"}, [*words, "seed=0"]
    place = f"{named[0].lstrip('+')}.yaml".replace("=", "/", 1) if len(named) == 1 else ""
    file = next((folder / place for folder in configs if place and (folder / place).is_file()), None)
    content = yaml.safe_load(file.read_text(encoding="utf-8")) if file else {}
    if "parts" not in content:
        return [[_every_encoder(words) if word == EVERY else word for word in words]]
    _check_multirun(named[0], multirun)
    kept = [word for word in words if word != named[0]]
    grows = f"seeds={UNTIL_DECIDED}" in words
    content |= {"against": STATEMENTS} if "statements" in content else {}
    rule = [f"{key}={content[key]}" for key in DECLARED if grows and key in content]
    lines = []
    for part, times in itertools.product(content["parts"], content.get("times", [""])):
        own = (f"name={content['name']}", *rule, *part.split(), *times.split())
        lines += expand([*kept, *(word for word in own if word.partition("=")[0] not in given)], *configs)
    return lines


def _every_encoder(words: list[str]) -> str:
    """Return ``encoder=`` with all that take the positions of a command line."""
    (given,) = [word for word in words if word.startswith("positions=")] or ["positions=sequential"]
    numberings = [name for name in given.partition("=")[2].split(",") if name in pe_zoo.numberings.names()]
    of = [pe_zoo.numberings.get(name) for name in numberings] or [pe_zoo.Numbering]
    taken = {tuple(pe_zoo.names(one.axes, one.plane)) for one in of}
    if len(taken) > 1:
        raise BadRequest(f"{EVERY} takes numberings of sequences, of grids or of segments, one of them; got {given}")
    return f"encoder={','.join(*taken)}"


def _check_multirun(word: str, multirun: bool) -> None:
    if not multirun:
        raise BadRequest(f"{word} is a list of runs: add -m to run them all")
