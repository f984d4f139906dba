"""What tests of several folders share: sweeps made up, models without training, runs and their processes."""

from __future__ import annotations

import csv
import itertools
import json
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy import stats as scipy_stats
from torch import Generator

import pe_zoo
from experiments.model.streams import initialising
from experiments.model.transformer import Transformer
from experiments.rows.row import Row, frame, write_json, write_rows
from experiments.runs import lease
from experiments.statistics.intervals import over_seeds, with_series
from experiments.tasks import Batch, Task, tasks
from experiments.training.evaluate import Subject
from pe_zoo import Geometry
from pe_zoo._knobs import knobs

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Done:
    """What a command left: exit code, standard output, standard error."""

    code: int
    out: str
    err: str


Command = Callable[..., Done]

QUICK = (
    *("figures=false", "model=tiny", "train.steps=2", "train.rounds=1"),
    *("length_extrapolation.samples=2", "length_extrapolation.generated=0", "permutation_sensitivity.samples=2"),
)
"""Options of a run of a second."""


def examples(page: str = "your_own") -> dict[str, str]:
    """Name -> source of the files that a guide has, such as those for an encoder, a task and a measure of one's own."""
    guide = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    return {name: block for block, name in re.findall(r"```python\n(# (\w+)\.py\n.*?)```", guide, flags=re.DOTALL)}


def as_new(name: str) -> dict[str, Any]:
    """Knobs with which `pe_zoo.hf.use` takes nothing over from the rotation of a model."""
    cls = pe_zoo.get(name)
    return {"base": knobs(cls)["base"].default} if "rope" in (name, cls.extends) else {}


def generator(seed: int = 0) -> Generator:
    """Return a generator of random numbers that starts from a seed."""
    return Generator().manual_seed(seed)


def draw(
    task: Task, length: int, batch_size: int = 8, *, causal: bool = True, seed: int = 0, split: str = "train"
) -> Batch:
    """Draw a batch of one length from a seed."""
    return task.sample(batch_size, length, generator(seed), split=split, causal=causal)


def close(drawn: Iterable[Hashable], expected: Mapping[Any, float]) -> bool:
    """Compare draws with their probabilities: Pearson's chi-squared, within five standard deviations of its mean."""
    observed = Counter(drawn)
    assert sum(expected.values()) == pytest.approx(1)
    assert set(observed) <= set(expected)
    total, cells = observed.total(), len(expected) - 1
    distance = sum((observed[key] - total * p) ** 2 / (total * p) for key, p in expected.items())
    return abs(distance - cells) < 5 * (2 * cells) ** 0.5


def last_of_each(words: Iterable[str]) -> list[str]:
    """Return a command line whose later words replace earlier ones of the same option: `run.py` refuses both."""
    return list({word.partition("=")[0].lstrip("+"): word for word in words}.values())


def record_of(run: Path) -> dict[str, Any]:
    """Return the run.json of a run."""
    record = json.loads((run / "run.json").read_text())
    assert isinstance(record, dict)
    return record


ENCODERS = ("none", "sinusoidal", "learned", "rope", "alibi", "t5")


EXTRAPOLATE = ("none", "alibi", "t5")


LENGTHS = (8, 16, 20, 24, 32, 48, 64, 96, 128)


ORDERS = {  # change of order -> index displacement, neighbours lost
    "shuffle": (0.33, 0.88),
    "1-gram shuffle": (0.33, 0.88),
    "2-gram shuffle": (0.32, 0.45),
    "4-gram shuffle": (0.29, 0.2),
    "8-gram shuffle": (0.25, 0.07),
    "adjacent swaps 10%": (0.01, 0.15),
    "adjacent swaps 25%": (0.03, 0.35),
    "adjacent swaps 50%": (0.06, 0.65),
    "rotation": (0.4, 0.07),
    "reversal": (0.5, 0.0),
}


def change_of(change: str) -> tuple[str, dict[str, Any]]:
    """The condition of a change of order, and its coordinates."""
    if sized := re.fullmatch(r"(\d+)-gram shuffle", change):
        return "n-gram shuffle", {"size": int(sized[1])}
    if swaps := re.fullmatch(r"adjacent swaps (\d+)%", change):
        return "adjacent swaps", {"share": int(swaps[1]) / 100}
    return change, {}


def write_run(folder: Path, encoder: str = "none", seed: int = 0, **changed: Any) -> Path:
    """A run folder as run.py leaves it, with made-up but plausible numbers; ``changed`` goes into its parts.

    Keys: ``rows`` (a function on the rows), ``record`` and ``config`` (updates), ``task``, ``experiments``.
    """
    task = changed.get("task", "copy")
    positions = changed.get("positions", "sequential")
    run_id = changed.get("run_id", f"{encoder}-{task}-seed{seed}-{len(encoder) * 7 + seed:07x}")
    place: Path = folder / "runs" / run_id
    place.mkdir(parents=True)
    labels = {"run_id": run_id, "encoder": encoder, "positions": positions, "task": task}
    labels |= {"seed": seed, "train_length": 16}
    rows = made_up_rows(labels, np.random.default_rng([seed, *map(ord, encoder)]))
    write_rows(place / "rows.csv", changed.get("rows", list)(rows))
    in_range = next((r.value for r in rows if r.experiment == "length_extrapolation" and r.eval_length == 16), math.nan)
    record = {"run_id": run_id, "status": "ok", "message": None, "encoder": encoder, "choice": encoder}
    record |= {"positions": positions, "layout": "uniform", "task": task, "seed": seed, "model_parameters": 412_345}
    record |= {"encoder_parameters": 2048 if encoder in ("learned", "t5") else 0, "train_seconds": 12.5 + seed}
    record |= {"measure_seconds": 3.25, "tokens_per_second": 51_234.5, "final_loss": 0.0123, "in_range": in_range}
    record |= {"converged": True, "torch": "2.13.0", "python": "3.11.2", "device": "cpu", "precision": "float32"}
    record |= {"threads": 1, "commit": "0123456", "command": f"python run.py encoder={encoder} seed={seed}"}
    record |= {"corpus": None, "started": "2026-11-20T10:00:00", "finished": "2026-11-20T10:01:00"}
    write_json(place / "run.json", record | changed.get("record", {}))
    config = {"name": "sweep", "seed": seed, "encoder": {"name": encoder}, "positions": {"name": positions}}
    config |= {"task": {"name": task, "train_length": 16}, "model": {"num_layers": 2, "model_dim": 64}}
    config |= {"train": {"steps": 2000}, "experiment": ["length_extrapolation", "permutation_sensitivity"]}
    (place / "config.yaml").write_text(yaml.safe_dump(config | changed.get("config", {})))
    return place


def made_up_rows(labels: dict[str, Any], random: np.random.Generator) -> list[Row]:
    encoder = labels["encoder"]
    rows: list[Row] = []

    def add(experiment: str, metric: str, value: float, eval_length: int = 16, **more: Any) -> None:
        measured: dict[str, Any] = {"experiment": experiment, "metric": metric, "n": 512}
        rows.append(Row(**labels, **(measured | {"eval_length": eval_length, "value": value} | more)))

    for step in range(100, 2001, 100):
        add("training", "loss", 2.3 * math.exp(-step / 400) + 0.01 * random.random(), step=step)
        if step % 500 == 0:
            add("training", "token_accuracy", 1 - 0.9 * math.exp(-step / 400), step=step)
    for length in LENGTHS:
        unsupported = {"status": "unsupported"} if encoder == "learned" and length > 16 else {}
        beyond = max(0.0, math.log2(length / 16))
        fall = 0.02 * beyond if encoder in EXTRAPOLATE else 0.8 * min(1.0, 1.5 * beyond)
        accuracy = min(1.0, max(0.0, 0.995 - fall + random.normal(0, 0.004 + 0.02 * (beyond > 0))))
        for metric, value, chance in (
            ("token_accuracy", accuracy, 0.1),
            ("exact_match", accuracy**length, 10.0**-length),
        ):
            value = math.nan if unsupported else value
            add("length_extrapolation", metric, value, length, chance=chance, **unsupported)
        for first, last in ((1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (17, 32), (33, 64), (65, 128)):
            if first <= length:
                where = {"position": first, "size": min(last, length) - first + 1 if last > first else None}
                loss = 0.05 + (3.0 * (1 - accuracy)) * (1 + 0.2 * math.log2(first)) + 0.05 * random.random()
                value = math.nan if unsupported else loss
                add("length_extrapolation", "position_loss", value, length, **where, **unsupported)
    measured = "permutation_sensitivity"
    add(measured, "token_accuracy", 0.99, chance=0.1)
    for change, (displacement, lost) in ORDERS.items():
        condition, where = change_of(change)
        loss = (0.3 if encoder == "none" else 0.85) * min(1.0, 0.2 + lost) + random.normal(0, 0.02)
        for metric, value in (
            ("token_accuracy", 0.99 - loss),
            ("quality_loss", loss),
            ("output_change", 0.4 + lost + 0.1 * random.random()),
            ("initial_output_change", 0.2 + 0.5 * lost + 0.1 * random.random()),
            ("index_displacement", displacement),
            ("neighbours_lost", lost),
        ):
            add(measured, metric, value, condition=condition, **where)
    for metric in ("equivariance_error", "initial_equivariance_error"):
        add(measured, metric, 2e-7 if encoder == "none" else 0.5 + 0.1 * random.random(), condition="shuffle")
    return rows


def main_rows(rows: list[Row]) -> list[Row]:
    """The rows that most of a report rests on, which take half of its time."""
    return [row for row in rows if row.experiment == "length_extrapolation" and row.metric == "token_accuracy"]


def write_sweep(folder: Path, encoders: tuple[str, ...] = ENCODERS, seeds: int = 3, **changed: Any) -> Path:
    for encoder in encoders:
        for seed in range(seeds):
            write_run(folder, encoder, seed, **changed)
    return folder


class PageReader(HTMLParser):
    """Tables by caption, as lists of rows of cell texts; the text of everything; the links; the images."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._rows: list[list[str]] = []
        self._into: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "table":
            self._rows = []
        if tag == "tr":
            self._rows.append([])
        if tag in ("td", "th", "caption"):
            self._into = []

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._rows[-1].append("".join(self._into))
        if tag == "caption":
            self.tables["".join(self._into)] = self._rows

    def handle_data(self, data: str) -> None:
        data = data.replace("\N{NO-BREAK SPACE}", " ")
        self._into.append(data)
        self.text += data


def read_page(folder: Path) -> PageReader:
    """Read all pages of a report, one after the other, the index first."""
    reader, report = PageReader(), folder / "report"
    for path in [report / "index.html", *sorted(report.glob("*/*.html")), *report.glob("data.html")]:
        reader.feed(path.read_text())
    return reader


def scripts_of(folder: Path) -> set[str]:
    """Return the scripts of all pages of a report, by their source; each page has one, and no handler of events."""
    found = set()
    for path in (folder / "report").rglob("*.html"):
        (opened,) = re.findall(r"<script[^>]*>", path.read_text(encoding="utf-8"))
        found.add(opened.replace("../", ""))
    return found


def values_of(folder: Path, **where: Any) -> dict[tuple[str, int], float]:
    """(encoder, seed) -> mean value, straight from the CSV files and with nothing of the report's own."""
    found: dict[tuple[str, int], list[float]] = {}
    for path in sorted(folder.glob("runs/*/rows.csv")):
        for line in csv.DictReader(path.read_text().splitlines()):
            if line["value"] and all(line[key] in value for key, value in where.items()):
                found.setdefault((line["encoder"], int(line["seed"])), []).append(float(line["value"]))
    return {key: statistics.fmean(values) for key, values in found.items()}


def mean_and_interval(values: list[float], questions: int = 512) -> tuple[float, float, float]:
    """The mean of shares and its 95 % interval on the logit scale, with the noise of that many questions as a floor.

    NaN where the values fall into two clusters.
    """
    mean, count = statistics.fmean(values), len(values)
    certain = (mean * questions + 0.5) / (questions + 1)
    noise = certain * (1 - certain) / questions
    error = math.sqrt(max(statistics.variance(values), noise) / count)
    margin = math.sqrt(noise / count) + 1e-12
    inner = min(max(mean, margin), 1 - margin)
    half = float(scipy_stats.t.ppf(0.975, count - 1)) * error / (inner * (1 - inner))
    low, high = (1 / (1 + math.exp(-(math.log(inner / (1 - inner)) + sign * half))) for sign in (-1, 1))
    low, high = min(low, mean), max(high, mean)
    ordered = sorted(values)
    gap = max(after - before for before, after in itertools.pairwise(ordered))
    if count < 12 and gap > 0.1 and gap > 1.2 / math.sqrt(count - 1) * (ordered[-1] - ordered[0]):
        return mean, math.nan, math.nan
    return mean, low, high


def rows_of(values: dict[str, dict[int, list[float | None]]], metric: str = "token_accuracy") -> pd.DataFrame:
    """``{encoder: {eval_length: [value of seed 0, of seed 1, …]}}``; None is an unsupported measurement."""
    rows = [
        Row(
            run_id=f"{encoder}-{seed}",
            encoder=encoder,
            positions="sequential",
            task="copy",
            seed=seed,
            experiment="length_extrapolation",
            metric=metric,
            train_length=16,
            eval_length=length,
            value=math.nan if value is None else value,
            chance=0.1,
            status="unsupported" if value is None else "ok",
        )
        for encoder, of_length in values.items()
        for length, of_seed in of_length.items()
        for seed, value in enumerate(of_seed)
    ]
    return with_series(frame(rows))


def summary_of(values: dict[str, dict[int, list[float | None]]], metric: str = "token_accuracy") -> pd.DataFrame:
    return over_seeds(rows_of(values, metric), ["task", "metric", "series", "train_length", "eval_length"])


def only(table: pd.DataFrame, **where: Any) -> dict[Any, Any]:
    for column, value in where.items():
        table = table[table[column] == value]
    assert len(table) == 1
    return table.to_dict("records")[0]


def subject_of(
    encoder: str,
    *,
    causal: bool = True,
    task: Task | None = None,
    numbering: pe_zoo.Numbering | None = None,
    layers: int = 2,
    seed: int = 0,
    **knobs: Any,
) -> Subject:
    """An untrained tiny model of a seed, as a run would hand it to an experiment."""
    asked = task or tasks.build("copy", train_length=6)
    geometry = Geometry(
        model_dim=32, num_heads=2, num_layers=layers, train_length=asked.sequence_length(asked.train_length)
    )

    def initial() -> Transformer:
        with initialising(seed, "encoder"):
            built = pe_zoo.build(encoder, geometry, **knobs)
        with initialising(seed, "trunk"):
            return Transformer(asked.vocab_size, geometry, built, causal=causal)

    labels: dict[str, str | int] = {"run_id": f"{encoder}-{seed}", "encoder": encoder, "positions": "sequential"}
    labels |= {"task": asked.name, "seed": seed, "train_length": asked.train_length}
    return Subject(
        model=initial(),
        initial=initial,
        trained=False,
        task=asked,
        numbering=numbering or pe_zoo.numberings.build("sequential"),
        seed=seed,
        labels=labels,
    )


def many(rows: list[Row], labels: int, seeds: int) -> pd.DataFrame:
    """The rows again for many encoders and seeds, each a little different."""
    noise = np.random.default_rng(0)
    return frame(
        replace(row, encoder=f"encoder_{label}", seed=seed, run_id=f"{label}-{seed}", value=row.value + noise.random())
        for label in range(labels)
        for seed in range(seeds)
        for row in rows
    )


TINY = [
    *("model=tiny", "task.train_length=4", "train.steps=9", "train.rounds=1", "train.curve_points=3"),
    *("checkpoint_seconds=0", "figures=false"),
    *("experiment=length_extrapolation", "length_extrapolation.samples=4", "length_extrapolation.multiples=[1,2]"),
]


def run_of(folder: Path, name: str = "scratch") -> Path:
    (found,) = (folder / "results" / name / "runs").iterdir()
    return found


SLOW = '''
import time
from pathlib import Path
import pe_zoo

@pe_zoo.register("slow_to_go")
class Slow(pe_zoo.Encoder):
    """Takes its time until told to go on."""
    def embed(self, x, positions):
        for _ in range(200):
            if Path("go").exists():
                break
            time.sleep(0.02)
        return x

@pe_zoo.register("breaks")
class Broken(pe_zoo.Encoder):
    """Cannot."""
    def embed(self, x, positions):
        if len(x) > 1:  # not where a run is only rehearsed
            raise RuntimeError("planted")
        return x
'''


SHORT = last_of_each([*TINY, "train.steps=50", "checkpoint_seconds=0.3"])


LONG = [*SHORT, "plugin=slow.py", "encoder=slow_to_go"]
"""A run that takes minutes, unless there is a file named go."""


RUN = "import pathlib, run, sys; run.CONFIGS = pathlib.Path('configs').resolve(); sys.exit(run.main())"


@contextmanager
def start(folder: Path, *words: str, env: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """``python run.py -m …`` as a user would, ended at the end; with a folder's own ``configs`` if it has some."""
    script = ["-c", RUN] if (folder / "configs").exists() else [str(ROOT / "run.py")]
    (folder / "slow.py").write_text(SLOW)
    process = subprocess.Popen(
        [sys.executable, *script, "-m", *words],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # workers too, which would hold the pipes open
        process.communicate()


def ended(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    out, err = process.communicate(timeout=300)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def until(said: Callable[[], object], what: str, seconds: float = 900) -> None:
    """Wait for something."""
    last = time.monotonic() + seconds
    while not said():
        assert time.monotonic() < last, f"waited for {what}"
        time.sleep(0.1)


def runs_of(folder: Path, name: str) -> list[Path]:
    return sorted((folder / "results" / name / "runs").glob("*"))


def at_work(folder: Path, name: str) -> dict[Path, int]:
    """Slow runs with a checkpoint to go on from, and the processes that are at them."""
    slow = (
        run for run in runs_of(folder, name) if run.name.startswith("slow_to_go-") and any(run.glob("checkpoint-*"))
    )
    found = {run: lease.holder(run) for run in slow}
    return {run: int(worker.split()[1]) for run, worker in found.items() if worker is not None}


def two_at_work(folder: Path, name: str, process: subprocess.Popen[str]) -> dict[Path, int]:
    """The same, when there are two."""
    until(lambda: len(at_work(folder, name)) == 2 or process.poll() is not None, "two runs at once")
    assert process.poll() is None, process.communicate()
    return at_work(folder, name)


def tally(said: str) -> dict[str, int]:
    """How many runs ended how, as a command's last paragraph tells it."""
    (counts,) = re.findall(r"^\d+ runs: (.+)$", said, re.MULTILINE)
    return {status: int(count) for count, status in (part.split(" ", 1) for part in counts.split(", "))}


HOSTILE = {
    "html": "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "latex": r"\input{/etc/passwd}\write18{id}%&$x$_^~#",
    "mathtext": r"$\frac{$ $\undefined{x}$",
    "formula": "=cmd|' /C calc'!A0",
    "plus": "+1+1",
    "minus": "-2+3",
    "at": "@SUM(1)",
    "terminal": "\x1b]0;owned\x07\x1b[2J\x9b31m\r\nerror: no",
    "bidirectional": "\u202eevil\u2066",
    "path": "../../../../tmp/evil",
    "bracket": "[2cm] *x",
    "markdown": "[a](javascript:alert(1)) ![b](c) ``` | ~~~",
    "jinja": "{{ 7777*7 }}{% raw %}",
    "long": "x" * 5000,
    "formatted": "%s{0}{label}",
}
