"""What a trained model answers to test sequences, symbol by symbol, beside what is right."""

from collections.abc import Sequence
from pathlib import Path

import safetensors.torch
from tabulate import tabulate
from torch import Tensor

from experiments.measures.answer_positions.measure import as_of
from experiments.model.precision import repeatable
from experiments.plan.prepare import prepare
from experiments.rows.read import read_run
from experiments.rows.row import OVER_LENGTHS
from experiments.runs.rerun import config_of
from experiments.training.evaluate import in_chunks
from experiments.training.log import TrainLog

ACROSS = 20
"""Symbols in a line."""


def text(
    place: Path, length: int, plugin: Sequence[str] = (), sequences: int = 1, positions_of: int | None = None
) -> str:
    """Return the answers of a run's model, each after the true ones: to one sequence, and how sure it is, or the right
    share of many.

    Args:
        place: ``results/<name>/runs/<run_id>``.
        length: of the sequence, in the task's unit.
        plugin: the files that its encoder or task came from, if they were not ours.
        sequences: how many, 1 or more.
        positions_of: a length, at most ``length``; from where the answer is asked for on, the positions are those of a
            sequence of that length.

    Raises:
        ValueError: no trained weights are there, or the task has no right answers, or not this length.
    """
    place = place.resolve()
    weights = place / "model.safetensors"
    if not weights.is_file():
        raise ValueError(
            f"no trained weights in {str(place)!r}: give the folder of a run made here, results/<name>/runs/<run_id>"
        )
    record, _, _ = read_run(place, place.parent.parent)
    plan = prepare(config_of(place, record, plugin))
    task = plan.task
    if task.metrics[0] != "token_accuracy":
        raise ValueError(f"task={task.name} has no right answers to compare with, as copy has")
    task.check_length(length)
    model = plan.model()
    model.load_state_dict(safetensors.torch.load_file(weights, device=str(plan.device)))
    subject = plan.subject(model, TrainLog())
    with repeatable(plan.config.threads):
        batch, positions = subject.question(OVER_LENGTHS, sequences, length)
        first = int(batch.counted.nonzero()[0])
        if positions_of is not None:
            if positions_of > length:
                raise ValueError(f"positions_of={positions_of} must be at most the length, {length}")
            task.check_length(positions_of)
            positions = as_of(subject, positions, length, positions_of)
        logits = in_chunks(model, batch.tokens, positions, model)[:, batch.counted]
    right = batch.targets[:, batch.counted]
    same = logits.argmax(-1) == right
    head = f"{plan.config.name_measured} on {task.name}, seed {plan.config.seed}, trained to {task.train_length}"
    head += f", positions {plan.numbering.name}: " if plan.numbering.name != "sequential" else ": "
    head += f"{_many(same)} right at length {length}, each after the true ones"
    if positions_of:
        head += f"; positions from the first answer on as at length {positions_of}"
    symbols: list[object] = ["symbol", *range(1, right.shape[1] + 1)]
    if sequences > 1:
        shares: list[object] = ["right, %", *(f"{100 * share:.0f}" for share in same.double().mean(0).tolist())]
        return "\n\n".join([head, *_tables([symbols, shares])])
    lines: list[list[object]] = [
        symbols,
        ["right", *right[0].tolist()],
        ["answer", *logits[0].argmax(-1).tolist()],
        ["wrong", *("" if each else "x" for each in same[0].tolist())],
        ["sure, %", *(f"{100 * each:.0f}" for each in logits[0].softmax(-1).amax(-1).tolist())],
    ]
    reads = " ".join(map(str, batch.tokens[0, : first + 1].tolist()))
    return "\n\n".join([head, f"reads   {reads}", *_tables(lines)])


def _many(same: Tensor) -> str:
    sequences, symbols = same.shape
    if sequences == 1:
        return f"{int(same.sum())} of {symbols}"
    return f"{100 * same.double().mean():.0f} % of the symbols of {sequences:,} sequences"


def _tables(lines: list[list[object]]) -> list[str]:
    """Return lines that begin with their names in tables of `ACROSS` columns."""
    parts = [[[line[0], *line[at : at + ACROSS]] for line in lines] for at in range(1, len(lines[0]), ACROSS)]
    return [tabulate(part, (), "plain", disable_numparse=True, colalign=("left",), stralign="right") for part in parts]
