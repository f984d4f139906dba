"""Test text that stands in the training text: what is removed, what stays, and what a run then says of its data."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.tasks import tasks
from experiments.tasks.texts import corpus as _corpus
from experiments.tasks.texts import duplicates
from experiments.tasks.texts.corpus import Corpus
from experiments.tasks.texts.duplicates import WINDOW, without_duplicates


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def left(test: list[bytes], train: list[bytes], *, joined: bool = False) -> list[bytes]:
    corpus = Corpus({"test": test, "validation": [b"v"], "train": train}, {"bytes": 7}, "a test")
    found = without_duplicates(corpus, joined=joined)
    assert {**found.splits, "test": test} == corpus.splits
    removed = sum(map(len, test)) - sum(map(len, found.splits["test"]))
    assert found.provenance == {"bytes": 7, "test_bytes_removed": removed}
    return found.splits["test"]


def by_hand(test: bytes, train: bytes) -> bytes:
    repeated = {
        place + step
        for place in range(len(test) - WINDOW + 1)
        if test[place : place + WINDOW] in train
        for step in range(WINDOW)
    }
    return bytes(byte for place, byte in enumerate(test) if place not in repeated)


def test_a_piece_of_fifty_bytes_is_removed_and_one_of_forty_nine_is_not() -> None:
    shared = noise(50, 1)
    test, train = noise(300, 2), noise(300, 3)
    assert left([test[:100] + shared + test[100:]], [train[:200] + shared + train[200:]]) == [test]
    near = test[:100] + shared[:49] + test[100:]
    assert left([near], [train + shared[:49] + train]) == [near]


@given(st.integers(0, 10**6), st.sampled_from([60, 64, 300]))
@settings(max_examples=60, deadline=None)
def test_what_is_removed_is_what_a_search_finds(seed: int, chunk: int) -> None:
    words = random.Random(seed)
    parts = [words.randbytes(words.randrange(120)) for _ in range(6)]
    test, train = (b"".join(words.choices(parts, k=words.randrange(9))) for _ in range(2))
    before, duplicates.CHUNK = duplicates.CHUNK, chunk
    try:
        assert b"".join(left([test], [train])) == by_hand(test, train)
    finally:
        duplicates.CHUNK = before


def test_windows_stay_within_documents_unless_they_are_joined() -> None:
    one, other = noise(40, 1), noise(40, 2)
    assert left([one, other], [one, other]) == [one, other]
    assert left([one, other], [one, other], joined=True) == []
    assert left([one + other, b"", b"short"], [other, one + other]) == [b"", b"short"]


def files(folder: Path) -> Path:
    """A corpus whose test file has a piece of seven training files."""
    texts = {f"{number}.txt": noise(400, number).hex().encode() for number in range(10)}
    folder.mkdir(exist_ok=True)
    order = sorted(texts, key=lambda name: _corpus.hashlib.sha256(name.encode()).digest())
    texts[order[0]] += b"".join(texts[name][:60] for name in order[3:])
    for name, content in texts.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("documents", ["joined", "whole"])
def test_the_task_removes_them_records_how_many_and_can_keep_them(tmp_path: Path, documents: str) -> None:
    def text(**knobs: Any) -> Any:
        return tasks.build("text", path=str(files(tmp_path)), train_length=16, documents=documents, **knobs)

    found, kept = text(), text(duplicates="kept")
    assert (len(kept.splits["test"]), len(found.splits["test"])) == (800 + 7 * 60, 800)
    assert found.provenance()["test_bytes_removed"] == 7 * 60
    assert "test_bytes_removed" not in kept.provenance()
    assert text(tokenizer="bpe", vocabulary=300).provenance()["test_bytes_removed"] == 7 * 60
    assert found.provenance()["splits_sha256"] != kept.provenance()["splits_sha256"]
    with pytest.raises(ValueError, match=r"task\.duplicates must be one of removed, kept"):
        text(duplicates="some")


def test_text_that_only_repeats_itself_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"again and again, " * 100)
    with pytest.raises(ValueError, match=r"leaves 0 bytes for test, .* or task\.duplicates=kept \(170 bytes of the"):
        tasks.build("text", path=str(tmp_path), train_length=16)


def test_the_hash_of_the_data_is_of_the_splits_and_is_read_again_only_if_files_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    of_files = Corpus.of_files
    monkeypatch.setattr(Corpus, "of_files", lambda path, **options: read.append(path) or of_files(path, **options))
    knobs = {"path": str(files(tmp_path)), "train_length": 16, "tokenizer": "bytes"}
    digest = tasks.get("text").data_sha256(**knobs)
    task = tasks.build("text", **knobs)
    assert digest == task.provenance()["splits_sha256"] == tasks.get("text").data_sha256(**knobs)
    assert len(read) == 1
    assert tasks.get("text").data_sha256(**knobs, duplicates="kept") != digest
    (tmp_path / "0.txt").write_bytes(b"something else " * 60)
    assert tasks.get("text").data_sha256(**knobs) != digest
    assert len(read) == 3
    assert tasks.get("copy").data_sha256() is None
