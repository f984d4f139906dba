"""Every test starts from the same random state, on one thread; the command line is called in an empty folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import run  # noqa: E402  the command line lies beside the packages, not in one
from pe_zoo import _registry  # noqa: E402

torch.set_num_threads(1)


@dataclass(frozen=True)
class Done:
    """What a command left: exit code, standard output, standard error."""

    code: int
    out: str
    err: str


Command = Callable[..., Done]


def last_of_each(words: Iterable[str]) -> list[str]:
    """A command line whose later words replace earlier ones of the same option, which `run.py` refuses to guess."""
    return list({word.partition("=")[0].lstrip("+"): word for word in words}.values())


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


def record_of(run: Path) -> dict[str, Any]:
    """What a run says of itself."""
    record = json.loads((run / "run.json").read_text())
    assert isinstance(record, dict)
    return record
