"""The text of ``python run.py --help``: one screen; of ``--help encoders``: a line for each. Imports no torch."""

import textwrap
from functools import partial
from importlib.metadata import entry_points

from experiments.plan.refusal import BadRequest
from experiments.runs import names
from pe_zoo._catalogue import Entry, of_file
from pe_zoo._knobs import hint

CONFIGS = names.CODE.parent / "configs"

HEAD = """\
pe-zoo: what does this positional encoding do to a Transformer?

  python run.py -m +sweep=hello                                      compare five, in two minutes
  python run.py encoder=sinusoidal                                   one run
  python run.py encoder=rope encoder.base=500000 task=copy seed=3    one run; knobs stand below their group
  python run.py -m encoder=none,rope seed=0,1,2 name=mine            -m: all combinations, on all cores
  python run.py plugin=my_encoder.py encoder=mine                    an encoder of your own
  python run.py checkpoint=my_model task=text task.path=file.txt     measure a model that you have
  python run.py -m +sweep=decided --plan                             runs, tokens, time and disk; trains nothing
  python run.py --rerun results/mine/runs/<run_id>                   repeat a run and compare its rows
  python run.py --verify results/submissions/<who>/<name>            check what somebody submitted
  python report.py results/mine                                      rows -> comparison page; --status: what is done
"""
FOOT = """
Each has a list: --help encoders, tasks, positions, experiments, layouts, models, train, sweeps, statements, options.
Defaults are in configs/; --cfg job prints the configuration of a run. Results: results/<name>/runs/<run_id>/."""
SHOWN = 92
"""Columns that the names of a group take on the first screen."""

OPTIONS = {
    "experiment=A or [A,B]": "what to measure, or all; by default length_extrapolation and permutation_sensitivity",
    "seed=0, seeds=1": "the first seed, and how many from there on",
    "seeds=until_decided against=none": "with -m: add seeds at declared looks until each comparison is decided",
    "against=best": "the same, until it is known which series may be the best",
    "against=statements": "the same, until published statements are decided; +statements= and +sweep=claims imply it",
    "looks=[5,8,12,20] weights=[…]": "numbers of seeds after which is tested, and each one's share of the level",
    "delta=null": "difference below which two series, or contestants of a statement, count as equal",
    "paired=false": "true compares runs of the same seed; for close relatives, whose seeds agree, fewer are enough",
    "name=scratch": "the folder under results/ (a sweep file brings its own)",
    "device=auto": "auto (the GPU if there is one), cpu, cuda, cuda:1 …",
    "threads=1": "of each run on a CPU; another number rounds differently, so it makes another run",
    "workers=null": "with -m: runs side by side; as many as there are cores, on a GPU one; 1: one after another",
    "report=false": "with -m: true writes the report when the runs have ended",
    "budget_minutes=null": "stop after this time with exit code 3, progress saved; the same command resumes",
    "tune=false": "true tries each rate of train.learning_rates and keeps the best on held-out data in range",
    "plugin=FILE.py or [A.py,B.py]": "files that register encoders, tasks or measures of your own",
    "checkpoint=PLACE": "measure a saved model (a folder, a name on the hub) or my_model:logits; nothing is trained",
    "force=false": "true repeats runs that have ended, replacing their files; interrupted ones resume",
    "retry=null": "failed repeats runs that failed",
    "checkpoint_seconds=30": "between one checkpoint and the next, at least; more if that took 2 % of the time",
    "tracker=null": "tensorboard, wandb, mlflow, … or a list of them (pip install 'pe-zoo[trackers]')",
    "figures=null": "whether each run gets figures of its own; by default a single run does, one of a sweep does not",
}


def text(topic: str = "") -> str:
    """Return what ``--help`` prints: of one topic, such as ``encoders``, everything there is; BadRequest if unknown."""
    groups = {names.topic_of(group): group for group in (*names.REGISTERED, "experiment", *names.PARTS, *names.LISTS)}
    if topic == "options":
        return _table("options of a run", OPTIONS)
    if topic in groups:
        return _list(groups[topic])
    if topic in names.entries("encoder"):
        raise BadRequest(f"no list of {topic!r}, which is one encoder: python -m pe_zoo {topic} shows it")
    for plural, group in groups.items():
        if topic in names.choices(group, CONFIGS):
            raise BadRequest(f"no list of {topic!r}, which is one of the {plural}: python run.py --help {plural}")
    if topic:
        raise BadRequest(f"no list of {topic!r}.{hint(topic, groups)}")
    lines = [line for group in groups.values() for line in _glance(group)]
    lines.append(_short("options", list(dict.fromkeys(option.partition("=")[0] for option in OPTIONS))))
    return "\n".join([HEAD, *lines, FOOT])


def _glance(group: str) -> list[str]:
    own, title = sorted(names.entries(group)), f"{'+' * (group in names.LISTS)}{group}="
    files = [name for name in names.choices(group, CONFIGS) if name not in own]
    named = {title: own, "  variants": files} if own else {title: files}
    return [_short(title, found) for title, found in named.items() if found]


def _short(title: str, choices: list[str]) -> str:
    shown = textwrap.shorten(", ".join(choices), SHOWN, placeholder=" …")
    return f"  {title:13}{len(choices):3}: {shown}"


def _list(group: str) -> str:
    entries = [*names.entries(group).values(), *_installed(group)]
    files = [of_file(file) for file in sorted((CONFIGS / group).glob("*.yaml"))]
    sign = "+" if group in names.LISTS else ""
    titled = {f"{group}=": entries, f"{sign}{group}= (configs/{group}/)": files}
    tables = [_table(title, {entry.name: _line(entry) for entry in found}) for title, found in titled.items() if found]
    if group in names.PARTS:
        tables.append(_table("options", {f"{group}.": ", ".join(names.fields(*names.PARTS[group]))}))
    return "\n\n".join(tables)


def _installed(group: str) -> list[Entry]:
    kind = "measures" if group == "experiment" else names.topic_of(group)
    offered = {each.name: each for each in entry_points(group=f"pe_zoo.{kind}")}.values()
    return [Entry(of.name, f"from the installed package {of.dist.name if of.dist else of.value}") for of in offered]


def _line(entry: Entry) -> str:
    knobs = ", ".join(f"{name}={knob.default}" for name, knob in entry.knobs.items())
    return f"{entry.sentence} ({knobs})" if knobs else entry.sentence


def _table(title: str, lines: dict[str, str]) -> str:
    width = max(map(len, lines)) + 2
    fill = partial(textwrap.fill, width=118, subsequent_indent=" " * (width + 2))
    return "\n".join([title, *(fill(line, initial_indent=f"  {name:{width}}") for name, line in lines.items())])
