"""Every test starts from the same random state, on one thread; the command line is called in an empty folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from support import ROOT, Command, Done, last_of_each

import run
from experiments.figures import style
from pe_zoo import _registry

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _registry_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it: others go through all encoders."""
    monkeypatch.setattr(_registry.encoders, "_classes", dict(_registry.encoders._classes))
    monkeypatch.setattr(_registry, "_loaded", set(_registry._loaded))


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """``python run.py …`` in an empty folder, in this process."""

    def call(*arguments: str) -> Done:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [str(ROOT / "run.py"), *last_of_each(arguments)])
        capfd.readouterr()
        code = run.main()
        out, err = capfd.readouterr()
        return Done(code, out, err)

    return call


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make figures without rendering them, where a test is about words and tables: most of the time goes there."""
    monkeypatch.setattr(style, "render", lambda *_: b"")
