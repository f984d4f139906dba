"""Nothing is silent for long: what a process is doing is reported again and again, and how far a training is."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest
from support import TINY, Command, run_of

from experiments.training import heartbeat


def test_a_phase_is_reported_again_and_again(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(heartbeat, "SECONDS", 0.05)
    with heartbeat.beating(), heartbeat.doing("outer"), heartbeat.doing("inner"):
        deadline = time.monotonic() + 60
        while len(caplog.messages) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert len(caplog.messages) >= 3
    assert all(message.startswith("inner, ") for message in caplog.messages)


def test_a_run_s_log_says_how_far_it_is(command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(heartbeat, "SECONDS", 0.01)
    found = command(*TINY, "train.steps=50", "train.rounds=4")
    assert found.code == 0
    log = (run_of(tmp_path) / "run.log").read_text()
    assert "round 1 of at most 4, step " in log
    assert "not learned yet (98% needed), so it trains on, at a high learning rate again: round 2 of at most 4, " in log
    assert " of 50, " in log


def test_without_rounds_there_is_no_word_of_them(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(heartbeat, "SECONDS", 0.01)
    assert command(*TINY, "train.steps=200").code == 0
    log = (run_of(tmp_path) / "run.log").read_text()
    assert "step " in log
    assert "round" not in log


def test_only_a_quiet_handler_leaves_progress_out(capsys: pytest.CaptureFixture[str]) -> None:
    for quiet in (False, True):
        handler = heartbeat._Stderr()
        handler.quiet = quiet
        for name in ("pe_zoo", heartbeat.logger.name):
            handler.emit(logging.makeLogRecord({"name": name, "msg": name, "levelno": logging.INFO}))
        assert ("pe_zoo.progress" in capsys.readouterr().err) == (not quiet)
