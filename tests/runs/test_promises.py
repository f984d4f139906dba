"""``python -m experiments check``: what it says of tasks and measures, good and broken ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import examples

from experiments.__main__ import main
from experiments.measures import entries
from experiments.runs.promises import verdicts
from experiments.tasks import tasks
from pe_zoo._contract.bench import FAILS

TASK, MEASURE = examples()["my_task"], examples()["my_measure"]


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_the_guides_examples_keep_every_promise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(f"{TASK}\n\n{MEASURE}")
    assert main(["check", str(tmp_path / "mine.py")]) == 0
    printed = said(capsys)
    assert "last_repeat: 7 promises hold, 0 fail, 0 do not apply" in printed
    assert "confidence: 3 promises hold, 0 fail, 0 do not apply" in printed


LINE = "    shortest = 2\n"
SAMPLE = """
    def sample(self, batch_size, length, generator, *, split, causal):
        batch = super().sample(batch_size, length, generator, split=split, causal=causal)
        return Batch(batch.tokens, batch.targets[:, 1:], batch.counted[1:])
"""
BROKEN = {
    "length": (TASK.replace(LINE, f"{LINE}    def check_length(self, length): ...\n"), "check_length"),
    "batch": (TASK.replace("Question, ", "Batch, Question, ").replace(LINE, LINE + SAMPLE), "`sequence_length` says"),
    "seed": (TASK.replace("(problems[:, :-1] ==", "(problems[:, :-1] == torch.rand(1).round().long() +"), "decides"),
    "chance": (TASK.replace(LINE, "    shortest, num_answers = 2, 5\n"), "set `num_answers`"),
    "guess": (TASK.replace("return [absent, 1 - absent]", "return [0.5, 0.5]"), "`position_guess` of token_accuracy"),
    "memoriser": (TASK.replace(LINE, f"{LINE}    converged_at = 0.5\n"), "raise `converged_at`"),
    "value": (MEASURE.replace("sure.mean().item()", "float('inf')"), "give numbers, or `subject.cannot`"),
    "repeated": (
        MEASURE.replace("sure.mean()", "(sure + sure.clone().uniform_()).mean()"),
        "draw by `subject.question`",
    ),
    "place": (MEASURE.replace('"eval_length": length, ', ""), "tell them apart"),
    "cells": (MEASURE.replace('"n": sure.numel()', '"n": float(sure.numel())'), "n: invalid literal for int()"),
    "taken": (MEASURE.replace('register("confidence")', 'register("cost")'), "one of this repository's"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_promise_fails_with_its_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    source, remedy = BROKEN[name]
    assert source not in (TASK, MEASURE)
    (tmp_path / "mine.py").write_text(source)
    assert main(["check", str(tmp_path / "mine.py")]) == 1
    printed = said(capsys)
    assert "FAILS " in printed
    assert remedy in printed.partition("FAILS ")[2]


@pytest.mark.parametrize("name", [*tasks.names(), *("context_use", "structure", "shift_sensitivity")])
def test_ours_keep_their_promises(name: str) -> None:
    kind = "experiment" if name in {entry.name for entry in entries()} else "task"
    assert not [verdict for verdict in verdicts(kind, name) if verdict.outcome == FAILS]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "usage"),
        (["check"], "usage"),
        (["check", "copyy"], "Did you mean 'copy'?"),
        (["check", "nowhere.py"], "does not exist"),
        (["check", "empty.py"], "registers nothing"),
    ],
)
def test_a_bad_request_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    reason: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.py").write_text("x = 1\n")
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert reason in error
