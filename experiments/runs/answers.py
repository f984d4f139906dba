"""What a trained model answers to one test sequence, symbol by symbol, beside what is right."""

from collections.abc import Sequence
from pathlib import Path

import safetensors.torch
from tabulate import tabulate

from experiments.model.precision import repeatable
from experiments.plan.prepare import prepare
from experiments.rows.read import read_run
from experiments.rows.row import OVER_LENGTHS
from experiments.rows.untrusted import read_mapping
from experiments.runs.rerun import config_of
from experiments.training.evaluate import in_chunks
from experiments.training.log import TrainLog

ACROSS = 20
"""Symbols in a line."""


def text(place: Path, length: int, plugin: Sequence[str] = ()) -> str:
    """Return the answers of a run's model to one sequence, each after the true ones, and how sure it is of them.

    Args:
        place: ``results/<name>/runs/<run_id>``.
        length: of the sequence, in the task's unit.
        plugin: the files that its encoder or task came from, if they were not ours.

    Raises:
        ValueError: no trained weights are there, or the task has no right answers, or not this length.
    """
    place, folder = place.resolve(), place.resolve().parent.parent
    weights = place / "model.safetensors"
    if not weights.is_file():
        raise ValueError(
            f"no trained weights in {str(place)!r}: give the folder of a run made here, results/<name>/runs/<run_id>"
        )
    record, _, _ = read_run(place, folder)
    plan = prepare(config_of(read_mapping(place / "config.yaml", folder), record, plugin, folder.name))
    task = plan.task
    if task.metrics[0] != "token_accuracy":
        raise ValueError(f"task={task.name} has no right answers to compare with, as copy has")
    task.check_length(length)
    model = plan.model()
    model.load_state_dict(safetensors.torch.load_file(weights, device=str(plan.device)))
    with repeatable(plan.config.threads):
        batch, positions = plan.subject(model, TrainLog()).question(OVER_LENGTHS, 1, length)
        logits = in_chunks(model, batch.tokens, positions, model)[0, batch.counted]
    right, answers = batch.targets[0, batch.counted], logits.argmax(-1)
    sure = logits.softmax(-1).amax(-1)
    first = int(batch.counted.nonzero()[0]) + 1
    lines = [
        ["symbol", *range(1, len(right) + 1)],
        ["right", *right.tolist()],
        ["answer", *answers.tolist()],
        ["wrong", *("" if same else "x" for same in (right == answers).tolist())],
        ["sure, %", *(f"{100 * each:.0f}" for each in sure.tolist())],
    ]
    parts = [[[line[0], *line[at : at + ACROSS]] for line in lines] for at in range(1, len(lines[0]), ACROSS)]
    tables = [
        tabulate(part, tablefmt="plain", disable_numparse=True, colalign=("left", *["right"] * (len(part[0]) - 1)))
        for part in parts
    ]
    head = f"{plan.config.name_measured} on {task.name}, seed {plan.config.seed}, trained to {task.train_length}: "
    head += f"{int((right == answers).sum())} of {len(right)} right at length {length}, each after the true ones"
    reads = " ".join(map(str, batch.tokens[0, :first].tolist()))
    return "\n\n".join([head, f"reads   {reads}", *tables])
