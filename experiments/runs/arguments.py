"""What Hydra would take on a command line and nothing here has a use for: refused before it composes anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from experiments.plan.plan import BadRequest

BATCH = "hydra.sweeper.max_batch_size"
OF_HYDRA = ("hydra.launcher", BATCH, "hydra.mode", "hydra.verbose")
"""What may be said of Hydra itself. Where it writes is not: results have their place, and nothing else stays."""
FLAGS_OF_HYDRA = ("config_path", "config_name", "package", "experimental_rerun")
"""Flags of Hydra's that ask for another application than this one, or read files that may execute code."""


def check_overrides(arguments: Iterable[str], groups: Iterable[str]) -> None:
    """Refuse what deletes, what is Hydra's own affair, choices that are no names, and options given twice.

    Args:
        arguments: the command line; flags are passed over.
        groups: keys that choose by name (``encoder``).

    Raises:
        BadRequest: for the first that is refused.
    """
    before: dict[str, str] = {}
    for argument in arguments:
        key, equals, given = argument.partition("=")
        name = key.lstrip("+").partition("@")[0]
        if argument.startswith("-"):
            continue
        if argument.startswith("~"):
            raise BadRequest(f"{argument!r} takes an option away, and all are needed; give it another value instead")
        if not name:
            raise BadRequest(f"{argument!r} names no option; write option=value")
        if name.partition(".")[0].partition("/")[0] == "hydra" and not name.replace("/", ".").startswith(OF_HYDRA):
            raise BadRequest(
                f"{name} is Hydra's own and fixed here; of its options there are {', '.join(OF_HYDRA)}. "
                f"name= is the folder under results/"
            )
        if equals and name in before:
            alone = argument.startswith("+") or name.startswith(("hydra", "plugin"))
            several = "" if alone else f", or -m {name}={before[name]},{given}"
            raise BadRequest(f"{name} is given twice ({before[name]}, {given}): give one{several}")
        before[name] = given
        if name == BATCH and (not given.isdecimal() or int(given) < 1) and given != "null":
            raise BadRequest(f"{BATCH} must be a whole number of at least 1, or null; got {given!r}")
        group, _, below = name.rpartition(".")
        if below == "name" and group in groups:
            raise BadRequest(f"{name} is no option of its own: write {group}={given}")
        if equals and name in groups:
            _check_choice(name, given)


def _check_choice(group: str, given: str) -> None:
    """A name, or several with commas between, as a sweep has them; options in braces are Hydra's to read."""
    try:
        read = yaml.safe_load(given)
    except yaml.YAMLError:
        return
    if isinstance(read, dict):
        return
    if not isinstance(read, str):
        raise BadRequest(f"{group}={given} is no name; --help lists what there is, and -m takes {group}=one,another")
    if "/" in read or ".." in read:
        raise BadRequest(f"{group}={given!r} must be a name, not a path; python run.py --help lists what there is")


def check_words(words: Iterable[str], menus: Mapping[str, Iterable[str]]) -> None:
    """Refuse words that are no options, with the option that one of them is a choice of.

    Args:
        words: what is on the command line besides flags.
        menus: key -> its choices.

    Raises:
        BadRequest: for the first.
    """
    for word in words:
        if word and "=" not in word and not word.startswith("~"):
            keys = [key for key, choices in menus.items() if word in choices]
            meant = f"{keys[0]}={word}" if keys else "option=value; python run.py --help lists what there is"
            raise BadRequest(f"{word!r} is no option; write {meant}")


def check_hydra_flags(given: Mapping[str, Any]) -> None:
    """Refuse flags of Hydra's that change what is run.

    Args:
        given: flag -> value; None where it is not on the command line.

    Raises:
        BadRequest: for the first that is refused.
    """
    for flag in FLAGS_OF_HYDRA:
        if given.get(flag) is not None:
            raise BadRequest(f"--{flag.replace('_', '-')} has no use here; python run.py --help lists what there is")
