"""The text of ``python run.py --help``: everything there is to choose from, a line each. Imports no torch."""

import itertools
import textwrap
from collections.abc import Iterable
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path

from experiments import measures
from pe_zoo import _catalogue
from pe_zoo._catalogue import Entry

ROOT = Path(__file__).resolve().parents[2]

HEAD = """\
pe-zoo: what does this positional encoding do to a Transformer?

  python run.py encoder=rope encoder.base=500000 task=reverse seed=3     one run
  python run.py -m encoder=none,sinusoidal,learned seed=0,1,2            all combinations
  python run.py -m +sweep=classic                                        a sweep from a file
  torchrun --nproc_per_node=2 run.py model=base task=text                one run over two devices
  python run.py --rerun results/classic/runs/<run_id>                    repeat a run and compare its rows
  python report.py results/classic                                       rows -> comparison page
  python report.py results/classic --status                              how many runs of a sweep are done"""

FOOT = """\
With -m any option but plugin takes a list. Knobs are set below their group: encoder.base=, task.train_length=,
model.num_layers=, train.steps=, length_extrapolation.samples=. The defaults are in configs/; --cfg job prints the
resolved configuration of one run."""

OPTIONS = {
    "experiment=A or [A,B]": "what to measure, or all; by default length_extrapolation and permutation_sensitivity",
    "seed=0, seeds=1": "the first seed, and how many from there on; batches of one length: together on a GPU",
    "seeds=until_decided against=none": "with -m: add seeds at declared looks until each comparison is decided",
    "against=best": "the same, until it is known which series may be the best",
    "against=statements": "the same, until published statements are decided; +statements= and +sweep=claims imply it",
    "looks=[5,8,12,20] weights=[…]": "numbers of seeds after which is tested, and the share of the level of each",
    "delta=null": "difference below which two series, or contestants of a statement, count as equal",
    "name=scratch": "the folder under results/ (a sweep file brings its own)",
    "device=auto": "auto (the GPU if there is one), cpu, cuda, cuda:1 …",
    "threads=1": "of each run on a CPU; another number rounds differently, so it makes another run",
    "workers=null": "with -m: runs side by side; as many as there are cores, on a GPU one; 1: one after another",
    "tune=false": "true tries each rate of train.learning_rates and keeps the best on held-out data in range",
    "plugin=FILE.py": "a file that registers encoders of your own",
    "force=false": "true repeats runs that have ended, replacing their files; interrupted ones resume",
    "retry=null": "failed repeats runs that failed",
    "checkpoint_seconds=30": "between one checkpoint and the next, at least; more if that took 2 % of the time",
    "tracker=null": "tensorboard, wandb, mlflow, … or a list of them (pip install 'pe-zoo[trackers]')",
    "figures=null": "whether each run gets figures of its own; by default a single run does, one of a sweep does not",
}


def text() -> str:
    """Return what ``--help`` prints."""
    plugins = {each.name: each.dist.name if each.dist else each.value for each in entry_points(group="pe_zoo.encoders")}
    installed = [Entry(name, f"from the installed package {package}") for name, package in plugins.items()]
    menus: dict[str, Iterable[Entry]] = {
        "encoder=": [*_catalogue.encoders(), *installed],
        "task=": _catalogue.registered(*(ROOT / "experiments" / "tasks").rglob("*.py")),
        "positions=": _catalogue.numberings(),
        "experiment=": measures.entries(),
    }
    for group in ("encoder", "task", "layout", "model", "train", "sweep", "statements"):
        if files := sorted((ROOT / "configs" / group).glob("*.yaml")):
            sign = "+" if group in ("sweep", "statements") else ""
            menus[f"{sign}{group}= (configs/{group}/)"] = map(_file_entry, files)
    tables = [_table(title, {entry.name: _line(entry) for entry in entries}) for title, entries in menus.items()]
    return "\n\n".join([HEAD, *tables, _table("options", OPTIONS), FOOT])


def _line(entry: Entry) -> str:
    knobs = ", ".join(f"{name}={knob.default}" for name, knob in entry.knobs.items())
    return f"{entry.sentence} ({knobs})" if knobs else entry.sentence


def _table(title: str, lines: dict[str, str]) -> str:
    width = max(map(len, lines)) + 2
    fill = partial(textwrap.fill, width=118, subsequent_indent=" " * (width + 2))
    return "\n".join([title, *(fill(line, initial_indent=f"  {name:{width}}") for name, line in lines.items())])


def _file_entry(file: Path) -> Entry:
    lines = itertools.takewhile(lambda line: line.startswith("#"), file.read_text(encoding="utf-8").splitlines())
    return Entry(file.stem, " ".join(line[2:] for line in lines if not line.startswith("# @package")))
