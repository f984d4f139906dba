"""How far a run made again may be off on another processor, where sums are rounded in another order.

Looked at are the first losses of training, how well the model answers over lengths, and smooth measures of an untrained
encoder. What counts, ranks or measures rounding itself may jump from one processor to another, and is left out.

By the end of training rounding may have decided what a seed decides: of twenty runs of recall that were made again on
another processor one kept .10 less beyond the training length, and two others learned a round later
(docs/log/2026-11-28.md). So the quality of a run may be what any of its seeds has, and its first losses may not.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments.rows.read import Table, read_run
from experiments.rows.row import COORDINATES, OVER_LENGTHS

SMOOTH = ("code", "wave", "kernel", "kernel_at", "attention_entropy", "translation_invariance", "score_shift_change")
"""Of `structure`."""
EXACT = 1e-4
EARLY = 200
"""Last step of the first losses."""
START = 1e-3
"""How far the loss may be off after so few steps, however sums are rounded; other data or weights are further off."""
JUDGED = ("token_accuracy", "exact_match", "bits_per_byte")
DRIFT = 0.05
"""How far quality may drift by the end of training."""

Key = tuple[Any, ...]
Rows = dict[Key, tuple[float, str]]


def judged(table: Table) -> Rows:
    """Return the rows of a run that are looked at: place -> value and status."""
    keys = zip(
        *(table[column] for column in ("experiment", "metric", "eval_length", "condition", *COORDINATES)), strict=True
    )
    cells = zip(table["value"], table["status"], strict=True)
    return {key: cell for key, cell in zip(keys, cells, strict=True) if allowed(key) is not None}


def allowed(key: Key) -> float | None:
    """Return how far a value may be off; None where it is not looked at."""
    experiment, metric, *_ = key
    step = key[4 + list(COORDINATES).index("step")]
    if experiment == "training":
        return START if metric == "loss" and step <= EARLY else None
    if experiment == "structure":
        return EXACT if metric in SMOOTH else None
    return DRIFT if experiment == OVER_LENGTHS and metric in JUDGED else None


def other_seeds(place: Path) -> Iterator[Rows]:
    """Yield what is looked at of the finished runs that differ from one, ``results/<name>/runs/<run_id>``, in seed."""
    _, own, _ = read_run(place, place.parent.parent)
    for run in sorted(place.parent.glob(f"{place.name.rpartition('-seed')[0]}-seed*")):
        _, config, table = read_run(run, place.parent.parent)
        if run != place and table is not None and config | {"seed": ""} == own | {"seed": ""}:
            yield judged(table)


def astray(before: Rows, after: Rows, others: Sequence[Rows] = ()) -> list[Key]:
    """Return the places that only one has, or that differ by more than another processor explains.

    ``others`` are runs with other seeds: how well a model answers may lie anywhere between these and ``before``.
    """
    return [key for key in before.keys() | after.keys() if not _explained(key, before, after, others)]


def _explained(key: Key, before: Rows, after: Rows, others: Sequence[Rows]) -> bool:
    if key not in before or key not in after or before[key][1] != after[key][1]:
        return False
    (first, status), (second, _), off = before[key], after[key], allowed(key) or 0
    seeds = [rows[key][0] for rows in others if key in rows and rows[key][1] == "ok"] * (key[0] == OVER_LENGTHS)
    return status != "ok" or min([first, *seeds]) - off <= second <= max([first, *seeds]) + off
