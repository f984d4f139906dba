"""The encoders from the command line: what there is, what one does, whether one keeps its promises. Needs torch alone.

python -m pe_zoo                    every encoder, a line each
python -m pe_zoo NAME               one of them: equation, knobs, departures, paper
python -m pe_zoo check FILE.py      does every encoder of a file keep its promises? (also: check NAME)
python -m pe_zoo --markdown         the catalogue as its README has it
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from pathlib import Path
from typing import NoReturn

from pe_zoo import Geometry, PluginError, _catalogue, get, load_file, names
from pe_zoo._contract import check
from pe_zoo._contract.claims import HOOKS
from pe_zoo._knobs import suggestion

OWN = "pe_zoo."


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; see python -m pe_zoo --help")


def main(arguments: list[str]) -> int:
    """The command. Exit code: 0 fine, 1 a promise does not hold, 2 a bad request."""
    try:
        return _command(arguments)
    except (ValueError, PluginError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)  # noqa: T201
        return 2
    except BrokenPipeError:  # piped into head
        return 0


def _command(arguments: list[str]) -> int:
    options = _options(arguments)
    geometry = Geometry(
        model_dim=options.model_dim,
        num_heads=options.num_heads,
        num_layers=options.num_layers,
        train_length=options.train_length,
    )
    match options.words:
        case ["check", target]:
            return _check(target)
        case ["check", *rest]:
            raise ValueError(f"check takes one file or one encoder's name; got {len(rest)}")
        case []:
            listed = _catalogue.entries(names() if not options.markdown else own(), geometry)
            write = _catalogue.markdown if options.markdown else _catalogue.table
            _say(write(listed, geometry))
            return 0
        case [name]:
            get(name)
            _say(_catalogue.card(name, geometry))
            return 0
        case [first, *_]:
            raise ValueError(f"one encoder's name, or check and a file.{suggestion(first, ['check'])}")
    return 2


def own() -> list[str]:
    """The encoders of this package, without those of plug-ins."""
    return [name for name in names() if get(name).__module__.startswith(OWN)]


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = Parser(prog="python -m pe_zoo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="NAME | check FILE.py", help="an encoder, or check and a file")
    parser.add_argument("--markdown", action="store_true", help="the catalogue as a Markdown table")
    sizes = {"--model-dim": 128, "--num-heads": 4, "--num-layers": 3, "--train-length": 33}
    for option, default in sizes.items():
        parser.add_argument(option, type=int, default=default, metavar="N", help=f"to count parameters at; {default}")
    return parser.parse_args(arguments)


# ------------------------------------------------------------------------------------------------------ check


def _check(target: str) -> int:
    failing = 0
    for name in _targets(target):
        failing += not _report(name)
    return 1 if failing else 0


def _targets(target: str) -> list[str]:
    """The names that a file registers, or the one name given."""
    path = Path(target)
    if path.suffix != ".py" and not path.exists() and len(path.parts) == 1:
        get(target)
        return [target]
    before = set(names())
    load_file(path)
    return [name for name in names() if name not in before or _comes_from(name, path)]


def _comes_from(name: str, path: Path) -> bool:
    source = getattr(sys.modules.get(get(name).__module__), "__file__", None)
    return source is not None and Path(source).resolve() == path.resolve()


def _report(name: str) -> bool:
    cls = get(name)
    hooks = [hook for hook in HOOKS if cls.overrides(hook)]
    _say(f"{name}: {cls.__name__}, acts at {', '.join(hooks) or 'no hook'}")
    counts = dict.fromkeys((check.HOLDS, check.FAILS, check.NOT_ASKED), 0)
    for verdict in check.check(cls):
        counts[verdict.outcome] += 1
        _say(_indented(f"{verdict.outcome:9}  {verdict.sentence}", 13))
        if verdict.reason:
            _say(_indented(" " * 11 + verdict.reason, 13))
    holds, fails, not_asked = counts.values()
    _say(f"{name}: {holds} promises hold, {fails} fail, {not_asked} do not apply\n")
    return not fails


def _indented(text: str, indent: int) -> str:
    return textwrap.fill(text, 116, initial_indent="  ", subsequent_indent=" " * indent)


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
