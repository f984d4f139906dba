"""What the terminal says of a run and of a sweep when they have ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import TINY, Command, run_of, write_run

from experiments.rows.row import Row
from experiments.runs import summary
from experiments.runs.outcome import Outcome

LABELS: dict[str, Any] = {"run_id": "r", "encoder": "e", "positions": "sequential", "task": "copy", "seed": 0}
LABELS |= {"train_length": 16, "experiment": "length_extrapolation"}


def rows(values: dict[int, float], metric: str = "token_accuracy", chance: float = 0.1) -> list[Row]:
    return [
        Row(**LABELS, metric=metric, eval_length=length, value=value, chance=chance, n=9)
        for length, value in values.items()
    ]


def headline(folder: Path, found: list[Row], **record: Any) -> str:
    run = write_run(folder, "rope", record={"trained": True, "converged": True, **record})
    return summary.headline(Outcome("ok", run.name, run, found))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            {8: 1.0, 16: 0.99, 20: 0.23, 32: 0.11},
            "learned, works up to 16; at length 20, 23 % of tokens are right (chance 10 %)",
        ),
        ({16: 0.99, 20: 0.95, 32: 0.6}, "learned, works up to 20; at length 32, 60 %"),
        ({16: 0.99, 32: 0.98}, "learned, works up to 32, the longest measured"),
        ({16: 0.99, 20: 0.5, 32: 0.98}, "works up to 16; at length 20, 50 %"),
    ],
)
def test_a_run_in_a_line(tmp_path: Path, values: dict[int, float], expected: str) -> None:
    assert expected in headline(tmp_path, rows(values))


def test_a_run_that_did_not_learn_reaches_nothing(tmp_path: Path) -> None:
    found = rows({16: 0.984, 32: 0.12, 128: 0.12})
    line = headline(tmp_path, found, converged=False, in_range=0.938)
    told = "did NOT learn the task (93.8 % of tokens are right at the last check, learned from 98 % on, chance 10 %)"
    assert told in line, "by the number that decided"
    assert "works" not in line
    assert "nothing here is about extrapolation" in summary.meaning(found, converged=False)


def test_bits_are_judged_by_the_loss(tmp_path: Path) -> None:
    found = rows({128: 2.0, 256: 2.1, 512: 3.95}, "bits_per_byte", 4.0)
    found = [Row(**{**vars(row), "train_length": 128}) for row in found]
    assert "works up to 256; at length 512, 3.950 bits per byte (guessing: 4.00)" in headline(tmp_path, found)
    assert summary.meaning(found, converged=True) == (
        "This model extrapolates, keeping at least 90 % of its quality (what it has above guessing), to 2 times the "
        "longest length in training; from 512 on it keeps next to none."
    )


def test_the_next_command_compares_or_trains_longer(tmp_path: Path, command: Command) -> None:
    done = command(*TINY, "encoder=alibi", "seed=1")
    assert done.code == 0
    assert "did NOT learn" in done.out
    assert "longer    python run.py encoder=alibi seed=1" in done.out
    assert "train.steps=18" in done.out
    assert str(run_of(tmp_path).relative_to(tmp_path)) in done.out
    record = {"trained": True, "converged": True, "choice": "alibi"}
    words = summary._next(
        record | {"command": "python run.py encoder=alibi model=tiny name=x seed=4 figures=false"}, "x"
    )
    assert "python run.py -m encoder=none,alibi,rope seed=0,1,2 model=tiny name=compared" in words


def test_a_run_that_learned_points_to_its_wrong_answers(tmp_path: Path) -> None:
    record = {"converged": True, "command": "python run.py plugin=x.py"}
    found = rows({8: 1.0, 16: 0.99, 20: 0.23, 32: 0.11})
    assert not summary._look(record, tmp_path, found), "packed runs have no weights"
    (tmp_path / "model.safetensors").touch()
    asked = f"python -m experiments answers {tmp_path} 20 plugin=x.py"
    assert summary._look(record, tmp_path, found) == asked
    assert not summary._look(record, tmp_path, rows({8: 1.0, 16: 0.99, 20: 0.98}))
    assert not summary._look(record | {"converged": False}, tmp_path, found)


@pytest.mark.parametrize(("asked", "ends"), [("true", "page: results/scratch/report/index.html"), ("false", "")])
def test_a_sweep_that_adds_seeds_ends_with_its_report(command: Command, asked: str, ends: str) -> None:
    rule = ("seeds=until_decided", "against=none", "looks=[3]", "weights=[1.0]")
    found = command("-m", *TINY, "encoder=none,alibi", *rule, f"report={asked}")
    assert found.code == 0, found.err
    assert found.out.rstrip().endswith(ends or "report: python report.py results/scratch")


def test_a_sweep_ends_with_its_standings(command: Command) -> None:
    found = command("-m", *TINY, "encoder=none,alibi", "seed=0,1", "report=true")
    assert found.code == 0
    assert "copy: % of tokens right at each length, trained up to 4" in found.out
    assert "did not learn" in found.out
    assert "4 of 4 runs did not learn it. They had 1 round of 9 steps: try train.rounds=4 or tune=true" in found.out
    assert found.out.rstrip().endswith("page: results/scratch/report/index.html")
