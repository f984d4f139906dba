"""``task.source=installed``: the sources of installed packages, read once, and no part of the ids of other runs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from support import Command, runs_of

from experiments.tasks import tasks
from experiments.tasks.texts import cache, corpus
from experiments.tasks.texts import source as _source
from experiments.tasks.texts.corpus import Corpus


@pytest.fixture(autouse=True)
def _small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages that every test can read at once; nothing that was cached before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for module in (corpus, _source):
        monkeypatch.setattr(module, "PACKAGES", ("omegaconf", "tqdm"))
    _source._read.cache_clear()
    _source._sha256.cache_clear()


def text(**knobs: Any) -> Any:
    return tasks.build("text", **{"source": "installed", "train_length": 16} | knobs)


def test_it_reads_the_sources_and_says_which() -> None:
    told = text().provenance()
    assert set(told["packages"]) == {"omegaconf", "tqdm"}
    found = {
        path.read_bytes()
        for name in ("omegaconf", "tqdm")
        for path in corpus.package_folder(name).rglob("*.py")
        if path.stat().st_size
    }
    assert (told["files"], told["bytes"]) == (len(found), sum(map(len, found)))
    assert len(told["sha256"]) == 64


def test_files_are_whole_in_one_split() -> None:
    found = Corpus.of_packages().splits
    documents = [set(found[name]) for name in found]
    assert not documents[0] & documents[1]
    assert not documents[0] & documents[2]


def test_what_is_kept_is_what_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "KEPT_FROM_SECONDS", 0)
    told = text().provenance()
    assert len(list((tmp_path / "cache" / "pe_zoo").iterdir())) == 1
    _source._read.cache_clear()
    monkeypatch.setattr(Corpus, "of_packages", lambda: pytest.fail("read again"))
    assert text().provenance() == told
    monkeypatch.undo()


def test_a_file_that_comes_first_is_not_taken_for_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "package"
    package.mkdir()
    for number in range(30):
        (package / f"{number}.py").write_bytes(b"x = %d\n" % number * 30)
    shutil.copy(package / "0.py", package / "copy.py")
    (package / "empty.py").touch()
    monkeypatch.setattr(corpus, "package_folder", lambda name: package)
    assert Corpus.of_packages().provenance["files"] == 30


@pytest.mark.parametrize("other", [{"path": "x"}, {"dataset": "y"}])
def test_two_sources_are_refused(other: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"task.source=installed reads installed packages: leave out task.path"):
        text(**other)
    with pytest.raises(ValueError, match=r"task.source"):
        text(source="elsewhere")


def test_it_enters_an_id_only_where_it_is_chosen(command: Command, tmp_path: Path) -> None:
    words = [
        "model=tiny",
        "task=text",
        "task.train_length=16",
        "train.steps=2",
        "train.rounds=1",
        "name=t",
        "figures=false",
    ]
    words += ["experiment=length_extrapolation", "length_extrapolation.multiples=[1]", "length_extrapolation.samples=2"]
    assert command(*words, "task.source=installed").code == 0
    (run,) = runs_of(tmp_path, "t")
    assert "source: installed" in (run / "config.yaml").read_text()
    (tmp_path / "own.txt").write_bytes(b"some words of our own, " * 100)
    assert command(*words, "task.path=own.txt", "task.duplicates=kept").code == 0
    (other,) = set(runs_of(tmp_path, "t")) - {run}
    assert "source" not in (other / "config.yaml").read_text()
