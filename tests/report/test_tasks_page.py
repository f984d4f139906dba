"""Several tasks side by side: every number is a mean over the rows, and what is lacking is said."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from experiments.report.page import Table
from experiments.report.sections import tasks
from experiments.rows.row import Row, frame


def rows_of(task: str, label: str, values: dict[int, float], *, seed: int = 0, **more: Any) -> pd.DataFrame:
    """One run: token accuracy by length, and free-running so much less as ``free`` says."""
    free: dict[int, float] = more.pop("free", {})
    shared = {"run_id": f"{label}-{task}-{seed}", "encoder": label, "positions": "sequential", "task": task}
    shared |= {"seed": seed, "experiment": "length_extrapolation", "train_length": 8, "chance": 0.5}
    metric = more.pop("metric", "token_accuracy")
    rows = [Row(**shared, metric=metric, eval_length=length, value=value) for length, value in values.items()]
    rows += [
        Row(**shared, metric="free_running_gap", eval_length=length, value=value) for length, value in free.items()
    ]
    return frame(rows).assign(series=label, converged=more.pop("converged", True))


def cells(table: Any) -> dict[tuple[str, str], str]:
    assert isinstance(table, Table)
    return {
        (str(line["task"]), str(column)): str(line[column])
        for line in table.cells.to_dict("records")
        for column in table.cells.columns
    }


def test_means_over_seeds_at_both_lengths() -> None:
    rows = pd.concat(
        [
            rows_of("copy", "none", {8: 1.0, 16: 0.25, 32: 0.1}, seed=0),
            rows_of("copy", "none", {8: 0.75, 16: 0.75, 32: 0.1}, seed=1, converged=False),
            rows_of("copy", "rope", {8: 1.0, 16: 0.5}, seed=0),
            rows_of("sort", "none", {8: 0.5, 16: math.nan}, seed=0).assign(
                status=lambda table: ["unsupported" if value != value else "ok" for value in table["value"]]
            ),
        ]
    )
    (found,) = tasks.sections(rows, ["none", "rope"])
    within, beyond = map(cells, found.parts[:2])
    assert within["copy", "length"] == "8"
    assert within["copy", "none"].startswith("0.88")
    assert within["copy", "none"].endswith(" †")
    assert beyond["copy", "length"] == "16"
    assert beyond["copy", "none"].startswith("0.50")
    assert beyond["copy", "rope"] == "0.50"
    assert beyond["copy", "guess"] == "0.5"
    assert beyond["sort", "none"] == "unsupported"
    assert within["sort", "rope"] == "not measured"


def test_free_running_is_compared_within_a_run() -> None:
    rows = pd.concat(
        [
            rows_of("copy", "none", {8: 1.0, 16: 0.75}, free={8: 0.0, 16: -0.5}),
            rows_of("copy", "none", {8: 1.0, 16: 0.5}, free={16: -0.25}, seed=1),
            rows_of("copy", "none", {8: 1.0, 16: 0.0}, seed=2),
            rows_of("mode", "none", {8: 1.0, 16: 0.75}),
        ]
    )
    (found,) = tasks.sections(rows, ["none"])
    last = found.parts[-1]
    assert isinstance(last, Table)
    assert last.data["mean"].tolist() == [-0.375]  # −0.5 and −0.25; the third run was not asked
    assert cells(last)["copy", "none"].startswith("-0.38")
    assert "mode" not in set(last.cells["task"])


def test_a_task_is_judged_by_its_own_metric() -> None:
    rows = pd.concat(
        [
            rows_of("copy", "none", {8: 1.0, 16: 0.75}),
            rows_of("text", "none", {8: 3.0, 16: 2.5}, metric="bits_per_byte"),
        ]
    )
    (found,) = tasks.sections(rows, ["none"])
    assert cells(found.parts[0])["text (bits per byte)", "none"] == "3.00"


def test_one_task_is_not_put_beside_itself() -> None:
    assert not tasks.sections(rows_of("copy", "none", {8: 1.0, 16: 0.75}), ["none"])
    other = rows_of("copy", "none", {8: 1.0}).assign(experiment="structure")
    assert not tasks.sections(other, ["none"])
