"""List the encoders, show one, or check one against the contract. Needs torch alone.

python -m pe_zoo                    list every encoder
python -m pe_zoo NAME               show one: equation, knobs, departures, paper
python -m pe_zoo check FILE.py      check every encoder that a file registers (also: check NAME)
python -m pe_zoo check FILE.py encoder.gate=true    the same, with a knob that is not at its default
python -m pe_zoo --markdown         print the table of docs/encoders.md
"""

import argparse
import inspect
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from pe_zoo import Encoder, Geometry, PluginError, get, load_file, names
from pe_zoo._catalogue import encoders
from pe_zoo._contract import check
from pe_zoo._contract.check import write_line
from pe_zoo._contract.effect import effect, kin
from pe_zoo._encoder import HOOKS
from pe_zoo._knobs import check_knobs, check_value, knobs, suggestion
from pe_zoo._pages import card, markdown, table
from pe_zoo._profile import profile
from pe_zoo._registry import outside, registered_by

SIZES = {"model_dim": 128, "num_heads": 4, "num_layers": 3, "train_length": 33}
KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; see python -m pe_zoo --help")


def main(arguments: list[str]) -> int:
    """Run the command. Exit code: 0 fine, 1 a promise does not hold, 2 a bad request."""
    try:
        return _command(_options(arguments))
    except (ValueError, PluginError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)  # noqa: T201
        return 2
    except BrokenPipeError:  # piped into head
        return 0


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = Parser(prog="python -m pe_zoo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="NAME | check FILE.py", help="an encoder, or check and a file")
    parser.add_argument("--markdown", action="store_true", help="print the catalogue as a Markdown table")
    for size, default in SIZES.items():
        option, text = f"--{size.replace('_', '-')}", f"size to count at (default: {default})"
        parser.add_argument(option, type=int, default=default, metavar="N", help=text)
    return parser.parse_args(arguments)


def _command(options: argparse.Namespace) -> int:
    geometry = Geometry(**{size: getattr(options, size) for size in SIZES})
    match options.words:
        case ["check"]:
            raise ValueError("check takes one file or one encoder's name; got none")
        case ["check", target, *given]:
            asked = [(name, _given(name, given)) for name in _targets(target)]
            return 0 if all([_check(name, chosen) for name, chosen in asked]) else 1
        case []:
            listed = [entry.name for entry in encoders()] if options.markdown else names(None)
            write = markdown if options.markdown else table
            write_line(write([profile(name, geometry) for name in listed], geometry))
        case [name] if Path(name).suffix == ".py":
            raise ValueError(f"{name} is a file; to check it: python -m pe_zoo check {name}")
        case [name]:
            write_line(card(profile(_class(name).name, geometry), geometry))
        case [first, *_]:
            raise ValueError(f"one encoder's name, or check and a file.{suggestion(first, ['check'])}")
    return 0


def _class(name: str) -> type[Encoder]:
    try:
        return get(name)
    except ValueError as error:
        raise ValueError(f"{error} Your own: python -m pe_zoo check FILE.py") from error


def _targets(target: str) -> list[str]:
    path = Path(target)
    if path.suffix != ".py" and not path.exists() and len(path.parts) == 1:
        return [target]
    load_file(path)
    found = [name for kind, name in registered_by(path.resolve()) if kind == "encoder"]
    if not found:
        raise ValueError(f"{target!r} registers no encoder; python -m experiments check is for tasks and measures")
    return found


def _given(name: str, words: list[str]) -> dict[str, Any]:
    """Read knobs such as ``encoder.slope=0.5``."""
    known, chosen = knobs(_class(name)), {}
    for word in words:
        knob, equals, text = word.partition("=")
        if not equals:
            raise ValueError(f"after the file or name, check takes knobs such as encoder.slope=0.5; got {word!r}")
        knob = knob.removeprefix("encoder.")
        check_knobs(name, known, [knob])
        try:
            value = json.loads(text)
        except json.JSONDecodeError:
            value = text
        kind = known[knob].type
        if kind in KINDS and type(value) not in ((int, float) if kind is float else (kind,)):
            raise ValueError(f"encoder.{knob} takes {KINDS[kind]}; got {text!r}")
        chosen[knob] = tuple(value) if isinstance(value, list) else value
        check_value(knob, known[knob].limited, chosen[knob])
    return chosen


def _check(name: str, chosen: dict[str, Any]) -> bool:
    """Print the verdict on every promise of an encoder; return whether none fails."""
    cls, make = _class(name), partial(_class(name), **chosen)
    title = " ".join([name, *(f"encoder.{knob}={json.dumps(value)}" for knob, value in chosen.items())])
    hooks = [hook for hook in HOOKS if cls.overrides(hook)]
    write_line(f"{title}: {cls.__name__}, acts at {', '.join(hooks) or 'no hook'}")
    source = Path(inspect.getfile(cls)) if outside(cls) else None

    def told() -> str:
        return "\n".join(filter(None, (effect(make), kin(make) if source else "")))

    return check.show(title, check.check(make), None if chosen else source, told)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
