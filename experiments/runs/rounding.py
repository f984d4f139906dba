"""How far a run made again may be off on another processor, where sums are rounded in another order.

Looked at are the first losses of training, how well the model answers over lengths, and smooth measures of an untrained
encoder. What counts, ranks or measures rounding itself may jump from one processor to another, and is left out.
"""

import math
from collections.abc import Mapping
from typing import Any

from experiments.rows.read import Table
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


def astray(before: Mapping[Key, tuple[float, str]], after: Mapping[Key, tuple[float, str]]) -> list[Key]:
    """Return the places that only one has, or that differ by more than another processor explains."""
    return [
        key
        for key in before.keys() | after.keys()
        if key not in before
        or key not in after
        or before[key][1] != after[key][1]
        or (before[key][1] == "ok" and not math.isclose(before[key][0], after[key][0], abs_tol=allowed(key) or 0))
    ]
