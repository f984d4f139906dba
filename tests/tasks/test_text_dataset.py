"""Text of a data set: rows in its own splits or cut from its train, and what is said where it cannot be read."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub.constants
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import Command

from experiments.tasks import tasks


@pytest.fixture(autouse=True)
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both libraries read their environment when imported, which another test may have brought about."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def text(dataset: Path | str, train_length: int = 8, **knobs: Any) -> Any:
    return tasks.build("text", dataset=str(dataset), train_length=train_length, **{"duplicates": "kept"} | knobs)


def parquet(folder: Path, **splits: list[str | None]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in splits.items():
        columns = {"text": rows, "size": [len(row or "") for row in rows], "raw": [b""] * len(rows)}
        pq.write_table(
            pa.table(columns, pa.schema([("text", pa.string()), ("size", pa.int64()), ("raw", pa.binary())])),
            folder / f"{name}.parquet",
        )
    return folder


def read(task: Any) -> dict[str, str]:
    return {name: bytes(held.tokens.tolist()).decode() for name, held in task.splits.items()}


def rows(name: str, count: int) -> list[str]:
    return [f"{name} {number}" for number in range(count)]


def lines(texts: list[str]) -> str:
    return "".join(text + "\n" for text in texts)


def test_its_own_splits_are_read_in_order(tmp_path: Path) -> None:
    own = {"train": rows("Käse", 30), "validation": rows("b", 9), "test": [*rows("c", 9), "ends\n", "", None, "last"]}
    task = text(parquet(tmp_path / "set", **own))  # type: ignore[arg-type]
    assert read(task) == {
        "train": lines(own["train"]),
        "validation": lines(own["validation"]),
        "test": lines([*rows("c", 9), "ends", "", "last"]),
    }
    told = task.provenance()
    assert (told["source"], told["column"], told["rows"]) == ("set", "text", 30 + 9 + 12)
    assert told["splits"] == {"test": "own", "validation": "own", "train": "own"}
    assert told["boundary"] == "a line break after each row, its own or one added"
    assert told["bytes"] == sum(len(part.encode()) for part in read(task).values())
    own["train"][3] += "!"
    assert text(parquet(tmp_path / "other", **own)).provenance()["sha256"] != told["sha256"]  # type: ignore[arg-type]


@pytest.mark.parametrize("own", [(), ("test",), ("validation",)])
def test_splits_that_it_lacks_are_cut_from_train(own: tuple[str, ...], tmp_path: Path) -> None:
    given = {name: rows(name, 9) for name in own}
    folder = tmp_path / "set"
    folder.mkdir()
    for name, texts in {"train": rows("a", 100), **given}.items():
        with (folder / f"{name}.jsonl").open("w") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
    task = text(folder)
    found = read(task)
    for name, texts in given.items():
        assert found[name] == lines(texts)
    cut = [name for name in ("test", "validation", "train") if name not in own]
    assert "".join(found[name] for name in cut) == lines(rows("a", 100))
    sizes = [len(found[name].splitlines()) for name in cut]
    assert all(10 <= size <= 13 for size in sizes[:-1]), "a tenth of the bytes"
    assert set(task.provenance()["splits"].values()) == ({"own", "10% of train"})


def test_rows_kept_whole_are_documents_as_they_are(tmp_path: Path) -> None:
    letters = {"train": "a", "validation": "b", "test": "c"}
    own = {name: [letter * 20, letter * 11, letter * 3] for name, letter in letters.items()}
    task = text(parquet(tmp_path / "set", **own), documents="whole")  # type: ignore[arg-type]
    assert task.splits["test"].sizes.tolist() == [20, 11, 3]
    assert read(task)["test"] == "c" * 34
    assert task.provenance()["documents_by_split"] == {"train": 3, "validation": 3, "test": 3}
    with pytest.raises(ValueError, match=r"task\.dataset=.*no document of 21 bytes for .*, the longest has 20"):
        text(tmp_path / "set", 21, documents="whole")


def test_of_rows_kept_whole_equal_ones_are_on_one_side_of_a_cut(tmp_path: Path) -> None:
    once = [f"a row of its own, number {number}" for number in range(50)]
    task = text(parquet(tmp_path / "set", train=once + once[:20] + once[5:]), documents="whole")
    assert read(task) == read(text(parquet(tmp_path / "once", train=list(once)), documents="whole"))
    told, same = task.provenance(), text(tmp_path / "once", documents="whole").provenance()
    assert told | {"source": "once"} == same
    assert (told["rows"], told["bytes"]) == (50, len("".join(once)))
    assert sum(told["documents_by_split"].values()) == 50
    own = {"train": once * 2, "validation": once[:9], "test": once[:9]}
    task = text(parquet(tmp_path / "own", **own), documents="whole")  # type: ignore[arg-type]
    assert task.provenance()["rows"] == 100 + 18, "its own splits are as it has them"


def test_joined_rows_are_running_text_and_all_stay(tmp_path: Path) -> None:
    verse = ["a line", "", "refrain", ""] * 30
    task = text(parquet(tmp_path / "set", train=verse))  # type: ignore[arg-type]
    assert "".join(read(task)[name] for name in ("test", "validation", "train")) == lines(verse)
    assert task.provenance()["rows"] == len(verse)


def test_an_empty_row_is_no_document(tmp_path: Path) -> None:
    own = {name: ["", name * 4, None, "", name * 3] for name in ("train", "validation", "test")}
    told = text(parquet(tmp_path / "set", **own), documents="whole").provenance()  # type: ignore[arg-type]
    assert told["documents_by_split"] == {"train": 2, "validation": 2, "test": 2}
    assert told["rows"] == 6
    none = parquet(tmp_path / "none", train=["", None])
    assert "has no document of 8 bytes for train, the longest has 0" in refusal(none, documents="whole")


def test_a_folder_of_text_files_is_a_set_of_lines(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.txt").write_text(lines(rows("line", 50)))
    task = text(tmp_path / "set", tokenizer="bpe", vocabulary=300)
    spelled = b"".join(task.spelled[t] for n in ("test", "validation", "train") for t in task.splits[n].tokens.tolist())
    assert spelled.decode() == lines(rows("line", 50))


def test_a_run_on_a_local_set(command: Command, tmp_path: Path) -> None:
    parquet(tmp_path / "set", train=rows("some words", 200))
    done = command(
        *(
            "task=text",
            "task.dataset=set",
            "task.train_length=16",
            "figures=false",
            "model=tiny",
            "train.steps=2",
            "train.rounds=1",
        ),
        *("experiment=length_extrapolation", "length_extrapolation.multiples=[1]"),
    )
    assert done.code == 0, done.err
    (place,) = (tmp_path / "results" / "scratch" / "runs").iterdir()
    corpus = json.loads((place / "run.json").read_text())["corpus"]
    assert (corpus["source"], corpus["rows"], corpus["documents"]) == ("set", 200, "joined")


# ------------------------------------------------------------------------------------------------ what cannot be read


def refusal(dataset: Path | str, **knobs: Any) -> str:
    with pytest.raises(ValueError) as refused:  # noqa: PT011  what it says is asked of the string
        text(dataset, **knobs)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_the_column_must_be_there_and_hold_text(tmp_path: Path) -> None:
    folder = parquet(tmp_path / "set", train=rows("a", 50))
    assert "has no column 'body'; set task.column to one of text, size, raw" in refusal(folder, column="body")
    assert "task.column='size'" in (said := refusal(folder, column="size"))
    assert "holds int64; name a column of strings" in said
    assert "holds binary; name a column of strings" in refusal(folder, column="raw")


def test_a_set_needs_text_to_train_on(tmp_path: Path) -> None:
    assert "no split named train, only test" in refusal(parquet(tmp_path / "tests", test=rows("a", 50)))
    assert "leaves 0 bytes for train" in refusal(parquet(tmp_path / "none", train=[None], test=rows("a", 9)))
    assert "leaves 2 bytes for test" in refusal(parquet(tmp_path / "short", train=["a text of a few"]))


def test_offline_a_name_on_the_hub_is_one_line_and_no_traceback(command: Command) -> None:
    done = command("task=text", "task.dataset=Salesforce/wikitext:wikitext-103-raw-v1")
    assert done.code == 2
    last = done.err.strip().splitlines()[-1]
    assert "task.dataset='Salesforce/wikitext:wikitext-103-raw-v1' cannot be loaded: Couldn't reach" in last
    assert "go online once (what was loaded is kept), or give a local folder" in last
    assert "Traceback" not in done.err


def test_what_the_library_cannot_read_is_one_line(tmp_path: Path) -> None:
    for name, file, content, said in [
        ("program", "program.py", "x = 1", "is not run: take one that is stored as files"),
        ("empty", None, "", "doesn't contain any data files"),
        ("junk", "a.xyz", "x", "data files found"),
        ("broken", "a.jsonl", "{not json", "JSON"),
        ("bad", "a.parquet", "no parquet", "Parquet magic bytes not found"),
    ]:
        folder = tmp_path / name
        folder.mkdir()
        if file:
            (folder / file).write_text(content)
        assert f"task.dataset={str(folder)!r} cannot be loaded: " in (line := refusal(folder))
        assert said in line
    assert "cannot be loaded" in refusal(tmp_path / "nowhere")


def test_a_configuration_is_named_after_a_colon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []

    def load(name: str, configuration: str | None) -> Any:
        asked.append((name, configuration))
        raise ValueError("Config name is missing.\nPlease pick one among: ['a', 'b']\nExample of usage:\n\t`load`")

    monkeypatch.setattr(datasets, "load_dataset", load)
    (tmp_path / "set:1").mkdir()
    for given in ("org/set:configuration", "org/set", tmp_path / "set:1"):
        assert refusal(given).endswith(
            "pick one among: ['a', 'b']; name one of them as in task.dataset=" + asked[-1][0] + ":configuration"
        )
    assert asked == [("org/set", "configuration"), ("org/set", None), (str(tmp_path / "set:1"), None)]


def test_without_the_library_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert refusal("org/set") == 'task.dataset needs the package datasets: pip install "pe_zoo[datasets]"'
