"""The text of ``python run.py --help``: everything there is to choose from, a line each. Imports no torch."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable
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
  python run.py --rerun results/classic/runs/<run_id>                    the same run again: the same rows?
  python report.py results/classic                                       rows -> comparison page
  python report.py results/classic --status                              how far the runs of a sweep are"""

FOOT = """\
Any option but plugin takes a list with -m. Options hang below their group: encoder.base=, task.train_length=,
model.num_layers=, train.steps=, length_extrapolation.samples=. The defaults are in configs/; --cfg job prints what
the command of one run resolves to."""

OPTIONS = {
    "experiment=A or [A,B]": "what to measure: length_extrapolation and permutation_sensitivity unless said; or all",
    "seed=0, seeds=1": "the first seed, and how many from there on: together on a GPU, else in turn",
    "name=scratch": "the folder under results/ (a sweep file brings its own)",
    "device=auto": "auto (the GPU if there is one), cpu, cuda, cuda:1 …",
    "tune=false": "true trains once for each rate of train.learning_rates and keeps the best on held-out data in range",
    "plugin=FILE.py": "a file that registers encoders of your own",
    "force=false": "true runs again what has ended, in place of its files; what was interrupted goes on",
    "retry=null": "failed runs again what has failed",
    "checkpoint_seconds=30": "between one checkpoint and the next, at least; more where that took 2 % of the time",
    "tracker=null": "tensorboard, wandb, mlflow, … or a list: told how a run goes (pip install 'pe-zoo[trackers]')",
    "figures=null": "whether each run gets figures of its own: one asked for alone does, one of a sweep (-m) does not",
}


def text() -> str:
    """The help as it is printed."""
    parts = [HEAD]
    menus: dict[str, Iterable[Entry]] = {
        "encoder=": [*_catalogue.encoders(), *_plugins()],
        "task=": _catalogue.registered(*(ROOT / "experiments" / "tasks").rglob("*.py")),
        "positions=": _catalogue.numberings(),
        "experiment=": measures.entries(),
    }
    parts += [_menu(title, entries) for title, entries in menus.items()]
    for group in ("encoder", "task", "layout", "model", "train", "sweep", "reproduce"):
        files = sorted((ROOT / "configs" / group).glob("*.yaml"))
        if files:
            title = f"+{group}=" if group in ("sweep", "reproduce") else f"{group}="
            parts.append(_menu(f"{title} (configs/{group}/)", [_file_entry(file) for file in files]))
    parts += [_lines("options", OPTIONS), FOOT]
    return "\n\n".join(parts)


def _menu(title: str, entries: Iterable[Entry]) -> str:
    lines = {
        entry.name: entry.sentence
        + (f" ({', '.join(f'{name}={knob.default}' for name, knob in entry.knobs.items())})" if entry.knobs else "")
        for entry in entries
    }
    return _lines(title, lines)


def _lines(title: str, lines: dict[str, str]) -> str:
    width = max(len(name) for name in lines) + 2
    return "\n".join(
        [title]
        + [
            textwrap.fill(said, 118, initial_indent=f"  {name:{width}}", subsequent_indent=" " * (width + 2))
            for name, said in lines.items()
        ]
    )


def _file_entry(file: Path) -> Entry:
    """The comments at a file's head say what it is for."""
    lines = itertools.takewhile(lambda line: line.startswith("#"), file.read_text(encoding="utf-8").splitlines())
    return Entry(file.stem, " ".join(line[2:] for line in lines if not line.startswith("# @package")))


def _plugins() -> list[Entry]:
    return [
        Entry(entry.name, f"from the installed package {entry.dist.name if entry.dist else entry.value}")
        for entry in entry_points(group="pe_zoo.encoders")
    ]
