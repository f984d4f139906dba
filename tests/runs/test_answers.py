"""``python -m experiments answers``: what a trained model says to one sequence."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import TINY, Command, run_of

from experiments.__main__ import main


def test_every_symbol_is_shown_with_the_model_s_answer(
    command: Command, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert command(*TINY, "encoder=alibi", "figures=false").code == 0
    assert main(["answers", str(run_of(tmp_path)), "23"]) == 0
    head, _, reads, *tables = capfd.readouterr().out.splitlines()
    word = reads.split()[2:-1]  # within the begin token and the bar
    lines: dict[str, list[str]] = {}
    for name, *cells in (line.split() for line in tables if line):
        lines.setdefault(name, []).extend(cells)
    assert lines["right"] == word
    assert lines["symbol"] == [str(place) for place in range(1, 24)]
    same = sum(right == answer for right, answer in zip(word, lines["answer"], strict=True))
    assert f": {same} of 23 right at length 23, each after the true ones" in head
    assert lines["wrong"] == ["x"] * (23 - same)


def test_what_has_no_answers_is_refused(command: Command, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["answers", str(tmp_path), "8"]) == 2
    assert "no trained weights in" in capfd.readouterr().err
    assert command(*TINY, "task=text", "task.train_length=32", "name=text", "figures=false").code == 0
    assert main(["answers", str(run_of(tmp_path, "text")), "8"]) == 2
    assert "task=text has no right answers to compare with" in capfd.readouterr().err
    assert main(["answers", str(tmp_path), "x"]) == 2
    assert "answers results/NAME/runs/RUN LENGTH" in capfd.readouterr().err
