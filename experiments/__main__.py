"""Check a task, a measure or an encoder of your own; look at a trained model's answers.

python -m experiments check FILE.py     everything that a file registers, promise by promise
python -m experiments check NAME        a task or an experiment
python -m experiments answers results/<name>/runs/<run_id> LENGTH [plugin=FILE.py] [sequences=N] [positions_of=LENGTH]
                                        one sequence of a length, symbol by symbol: right, and what the model says;
                                        or of N sequences the right share; positions_of: from the first answer on the
                                        positions are those of a shorter sequence
"""

import re
import sys
from pathlib import Path

from experiments.plan.measures import experiment_names
from experiments.rows.untrusted import message_of
from experiments.runs import answers
from experiments.runs.promises import verdicts
from experiments.tasks import tasks
from pe_zoo import PluginError, Unsupported, get, load_file
from pe_zoo._contract.check import check, show
from pe_zoo._knobs import hint, suggestion
from pe_zoo._registry import registered_by

NUMBER = "a whole number of at least 1", re.compile(r"[1-9]\d*")
OPTIONS = {"plugin": ("a file", re.compile(".+")), "sequences": NUMBER, "positions_of": NUMBER}
"""Options of ``answers``: what each takes, in words and as a pattern."""


def main(arguments: list[str]) -> int:
    """Run the command. Exit code: 0 fine, 1 a promise does not hold, 2 a bad request."""
    try:
        match arguments:
            case ["check", target]:
                found = [
                    show(name, check(get(name)) if kind == "encoder" else verdicts(kind, name))
                    for kind, name in _found(target)
                ]
                return 0 if all(found) else 1
            case ["answers", place, length, *options]:
                _check_answers(place, length, options)
                files = [word.removeprefix("plugin=") for word in options if word.startswith("plugin=")]
                given = dict(word.split("=") for word in options if not word.startswith("plugin="))
                numbers = {name: int(number) for name, number in given.items()}
                print(answers.text(Path(place), int(length), files, **numbers), flush=True)  # noqa: T201
                return 0
            case ["-h" | "--help"]:
                print(__doc__)  # noqa: T201
                return 0
        usage = "answers results/NAME/runs/RUN LENGTH [plugin=FILE.py] [sequences=N] [positions_of=LENGTH]"
        raise ValueError(f"usage: python -m experiments check FILE.py | NAME, or: {usage}")
    except (ValueError, Unsupported, PluginError) as error:
        print(f"error: {message_of(error)}", file=sys.stderr)  # noqa: T201
        return 2
    except BrokenPipeError:  # piped into head
        return 0


def _check_answers(place: str, length: str, options: list[str]) -> None:
    """Refuse several runs, a length that is none, and an option that does not exist."""
    if Path(length).is_dir():
        runs = [word for word in (place, length, *options) if Path(word).is_dir()]
        raise ValueError(f"answers takes one run; {len(runs)} match: {', '.join(Path(run).name for run in runs)}")
    if not length.isdecimal():
        raise ValueError(f"answers takes a length after the run, such as 20; got {length!r}")
    for word in options:
        name, _, value = word.partition("=")
        if name not in OPTIONS:
            raise ValueError(f"answers has no option {name!r}.{hint(name, OPTIONS, 'Its options')}")
        takes, pattern = OPTIONS[name]
        if not pattern.fullmatch(value):
            raise ValueError(f"{name} takes {takes}; got {word!r}")


def _found(target: str) -> list[tuple[str, str]]:
    if target.endswith(".py") or Path(target).exists():
        load_file(target)
        return [of for of in registered_by(Path(target).resolve()) if of[0] != "numbering"]
    known = {**dict.fromkeys(tasks.names(), "task"), **dict.fromkeys(experiment_names(), "experiment")}
    if target not in known:
        raise ValueError(f"no task or experiment named {target!r}, and no such file.{suggestion(target, known)}")
    return [(known[target], target)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
