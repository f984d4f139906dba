"""The words of a command line, read; what Hydra would take and has no meaning here is refused before it composes."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

import yaml

from experiments.plan.request import BadRequest
from experiments.runs.options import GROUPS, MENUS

RERUN = "--rerun"
BATCH = "hydra.sweeper.max_batch_size"
LAUNCHER = "hydra/launcher"
OF_HYDRA = (LAUNCHER, "hydra.launcher", BATCH)
"""Hydra's own options that may be given. Where it writes may not: results have their place, and nothing else stays."""
HELP = "python run.py --help lists the options"


def is_hydras(word: str) -> bool:
    """Whether an override is of Hydra itself, not of a run."""
    return word.lstrip("+").startswith("hydra")


@dataclass(frozen=True)
class Arguments:
    """A command line.

    Args:
        words: as given.
        overrides: ``option=value``.
        multirun: whether ``-m`` was given.
        shows: whether it only shows something, such as ``--cfg job``.
        config_dir: another folder of configuration files.
    """

    words: list[str]
    overrides: list[str]
    multirun: bool
    shows: bool
    config_dir: str | None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadRequest(f"{message}; {HELP}")


def read(words: list[str]) -> Arguments:
    """Read a command line.

    Raises:
        BadRequest: for what cannot be read or has no meaning here.
    """
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("-m", "--multirun", action="store_true")
    parser.add_argument("-cd", "--config-dir")
    parser.add_argument("-c", "--cfg", choices=["job", "hydra", "all"])
    infos = ["all", "config", "defaults", "defaults-tree", "plugins", "searchpath"]
    parser.add_argument("-i", "--info", nargs="?", const="all", choices=infos)
    parser.add_argument("-sc", "--shell-completion", action="store_true")
    for switch in ("--resolve", "--hydra-help", "--version"):
        parser.add_argument(switch, action="store_true")
    given = vars(parser.parse_intermixed_args(words))
    overrides, multirun, config_dir = (given.pop(name) for name in ("overrides", "multirun", "config_dir"))
    if not given["shell_completion"]:
        _check(overrides)
    return Arguments(words, overrides, multirun, any(given.values()), config_dir)


def _check(overrides: Iterable[str]) -> None:
    before: dict[str, str] = {}
    for word in overrides:
        key, equals, value = word.partition("=")
        name = key.lstrip("+").partition("@")[0]
        if word.startswith("~"):
            raise BadRequest(f"{word!r} removes an option, and every option is needed; give it another value instead")
        if not name:
            raise BadRequest(f"{word!r} names no option; write option=value")
        if not equals:
            groups = [group for group, (names, _) in MENUS.items() if word in names()]
            meant = f"{groups[0]}={word}" if groups else f"option=value; {HELP}"
            raise BadRequest(f"{word!r} is no option; write {meant}")
        if name.partition(".")[0].partition("/")[0] == "hydra" and not name.startswith(OF_HYDRA):
            allowed = ", ".join(OF_HYDRA)
            raise BadRequest(
                f"{name} is Hydra's own and fixed here; of its options you may give {allowed}. "
                f"name= is the folder under results/"
            )
        if name == BATCH and value != "null" and not (value.isdecimal() and int(value) > 0):
            raise BadRequest(f"{BATCH} must be a whole number of at least 1, or null; got {value!r}")
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
