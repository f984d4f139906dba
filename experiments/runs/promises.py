"""What every task and every measure promises, as checks that run: ``python -m experiments check``."""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Generator, Tensor

from experiments.model.layout import Layout
from experiments.pipeline import train
from experiments.plan.prepare import prepare
from experiments.plan.request import ModelConfig, RunConfig
from experiments.rows.read import read_rows
from experiments.rows.row import Row, cells, metric_of, write_rows
from experiments.tasks import Batch, Task, tasks
from experiments.training.config import TrainConfig
from experiments.training.loop import Session
from pe_zoo import Unsupported, names
from pe_zoo._contract.bench import NotApplicable, hold, promise
from pe_zoo._contract.check import Verdict, judge

DRAWS = 2000
"""Sequences that guesses are tried on."""
ON_COPY: dict[str, Any] = {"encoder": {"name": min(names())}, "task": {"name": "copy"}}
SMALL: dict[str, Any] = {"layout": Layout(), "model": ModelConfig(model_dim=32, num_heads=2, num_layers=2)}


def verdicts(kind: str, name: str) -> Iterator[Verdict]:
    """Check every promise of a ``task``, or of an ``experiment``, each knob at its default."""
    build: Callable[[str], Any] = tasks.build if kind == "task" else _measured
    built: list[Any] = []
    yield judge("It can be built, every knob at its default.", {"": lambda: built.append(build(name))})
    for each in (_lengths, _batches, _seeds, _chance, _guess, _memoriser) if kind == "task" else (_rows, _columns):
        if built:
            yield judge(each.sentence, {"": partial(each.check, *built)})


@promise("A length below `shortest` raises Unsupported; a longer one than in training can be drawn.")
def _lengths(task: Task) -> None:
    _draw(task, 2 * task.train_length, 2)
    try:
        task.sample(2, task.shortest - 1, Generator(), split="test", causal=True)
    except Unsupported:
        return
    hold(False, f"length {task.shortest - 1} is drawn: begin `sample` with `self.check_length(length)`")


@promise("A batch has the size asked for, the length told, known tokens, and places scored after its input.")
def _batches(task: Task) -> None:
    for length in (task.min_length, task.train_length):
        batch, told = _draw(task, length, 5), (5, task.sequence_length(length))
        for part, tensor in (("tokens", batch.tokens), ("targets", batch.targets)):
            shape = tuple(tensor.shape)
            hold(shape == told, f"{part} have shape {shape} at length {length}: `sequence_length` says {told}")
            known = tensor.dtype == torch.long and 0 <= int(tensor.min()) <= int(tensor.max()) < task.vocab_size
            hold(known, f"{part} are not int64 from 0 to `vocab_size` − 1 = {task.vocab_size - 1}")
        scored = batch.counted.dtype == torch.bool and batch.counted.shape == told[1:] and batch.counted.any()
        hold(scored, "`counted` is not (length,) bool with a place that is scored")
    span = task.input_span(task.train_length)
    hold(batch.counted[span.stop :].any(), f"nothing is scored after the input, {span}: end `input_span` before")


@promise("A seed draws the same batch again, another seed another one; nothing else decides.")
def _seeds(task: Task) -> None:
    state = torch.random.get_rng_state()
    one, again, other = (_draw(task, task.train_length, 50, seed).tokens for seed in (0, 0, 1))
    same = torch.equal(one, again) and torch.equal(torch.random.get_rng_state(), state)
    hold(same, "the global random state decides: draw with `generator=generator`")
    hold(not torch.equal(one, other), "every seed gives the same sequences: draw with `generator=generator`")


@promise("A uniform guess over the answers gets what `chance` says.")
def _chance(task: Task) -> None:
    answers = _answers(_draw(task, task.train_length))
    kinds = answers.unique()
    for metric, found in _scores(task, kinds[torch.randint(len(kinds), answers.shape)], answers).items():
        said = task.chance(metric, task.train_length)
        remedy = f"{len(kinds)} tokens are answers, so set `num_answers`, or override `chance`"
        hold(abs(found - said) <= _off(said), f"`chance` of {metric} is {said:.3g}, a guess gets {found:.3g}: {remedy}")


@promise("The likeliest answer at each place, without reading the input, gets what `position_guess` says.")
def _guess(task: Task) -> None:
    for length in {task.min_length, task.train_length}:
        seen, other = _answers(_draw(task, length, 2 * DRAWS)).split(DRAWS)
        words, counts = seen.unique(dim=0, return_counts=True)
        likeliest = {"token_accuracy": seen.mode(0).values, "exact_match": words[counts.argmax()]}
        for metric in _scores(task, seen, seen):
            said = task.position_guess(metric, length)
            least, most = (_scores(task, likeliest[metric], answers)[metric] for answers in (other, seen))
            right = least - _off(said) <= said <= most + _off(said)
            hold(right, f"`position_guess` of {metric} is {said:.3g} at length {length}, a guess gets {most:.3g}")


@promise("Test inputs of the training length are held out: a memoriser does not count as having learned.")
def _memoriser(task: Task) -> None:
    if not task.own_split and not task.has_split(causal=True):
        raise NotApplicable("it has too few inputs of the training length to hold some out: make that longer")
    learned, asked = (_draw(task, task.train_length, split=split) for split in ("train", "test"))
    met = sum(tokens in learned.tokens.tolist() for tokens in asked.tokens[:100].tolist())
    hold(not met, f"{met} of 100 test inputs are trained on: leave `draw_split` and `evaluation` as they are")
    scores = _scores(task, _answers(learned).flatten().mode().values, _answers(asked))
    hold(not task.has_converged(scores), f"a memoriser gets {scores} and has learned: raise `converged_at`")


def _draw(task: Task, length: int, count: int = DRAWS, seed: int = 0, split: str = "train") -> Batch:
    return task.draw_split(count, length, Generator().manual_seed(seed), split=split, causal=True)


def _answers(batch: Batch) -> Tensor:
    return batch.targets[:, batch.counted]


def _scores(task: Task, guess: Tensor, answers: Tensor) -> dict[str, float]:
    right = (guess == answers).double()
    scores = {"token_accuracy": right.mean().item(), "exact_match": right.prod(1).mean().item()}
    if not (known := {metric: scores[metric] for metric in task.metrics if metric in scores}):
        raise NotApplicable(f"it is scored by {', '.join(task.metrics)}, not by right answers")
    return known


def _off(share: float) -> float:
    """How far a share of `DRAWS` may be off: five binomial errors, and as many stray hits."""
    return 5 * (share * (1 - share) / DRAWS) ** 0.5 + 5 / DRAWS


def _measured(name: str) -> Callable[[], list[Row]]:
    how: dict[str, Any] = {"train": TrainConfig(steps=2, rounds=1), "positions": {"name": "sequential"}}
    plan = prepare(RunConfig(**ON_COPY, **SMALL, **how, experiments={name: {}}, seed=0, name=name, device="cpu"))
    subject = plan.subject(*train(plan, Session()))
    return partial(plan.experiments[name].measure, subject, **plan.config.experiments[name])


@promise("It gives rows, the same each time, each with a finite number or a status that says why not.")
def _rows(ask: Callable[[], list[Row]]) -> None:
    rows, state = _asked(ask), torch.random.get_rng_state()
    hold(bool(rows) and all(isinstance(row, Row) for row in rows), "it gives no rows: make them by `subject.row`")
    for row in rows:
        fine = row.status != "ok" or (math.isfinite(row.value) and row.n > 0)
        hold(fine, f"{row.metric} has value={row.value} and n={row.n}: give numbers, or `subject.cannot`")
    one, other = ([repr(row) for row in some if metric_of(row.metric).repeats] for some in (rows, _asked(ask)))
    again = one == other and torch.equal(torch.random.get_rng_state(), state)
    hold(again, "a second time rows differ: draw by `subject.question` and `subject.stream`, change no model")


@promise("Its rows fit the columns of rows.csv: they are read back unchanged, and no two are of the same place.")
def _columns(ask: Callable[[], list[Row]]) -> None:
    rows = _asked(ask)
    with TemporaryDirectory() as folder:
        write_rows(path := Path(folder) / "rows.csv", rows)
        read = read_rows(path, path.parent, rows[0].run_id)
    for column, after in read.items():
        before = [cells(row)[column] for row in rows]
        hold(repr(before) == repr(after), f"{column} is {before} and read back as {after}: give plain Python numbers")
    places = {tuple(cell for key, cell in asdict(row).items() if key not in ("value", "chance", "n")) for row in rows}
    alone = len(places) == len(rows)
    hold(alone, "two rows are of the same metric and place: tell them apart by `condition` or a column")


def _asked(ask: Callable[[], list[Row]]) -> list[Row]:
    try:
        return ask()
    except Unsupported as reason:
        raise NotApplicable(f"on copy: {reason}") from reason
