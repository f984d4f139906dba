"""Folders that somebody else has written: nothing in them runs, misleads a reader, or takes the report along."""

from __future__ import annotations

import csv
import os
import random
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from support import HOSTILE, main_rows, read_page, scripts_of, write_run

import report
from experiments.report import page as _page
from experiments.rows import results, untrusted
from experiments.rows.row import COLUMNS, Row, write_json

FILES = ("rows.csv", "run.json", "config.yaml")


def hostile_run(folder: Path, text: str, whole: bool) -> Path:
    """A run with a text in every field that takes one, which run.py would have written so."""

    def rows(sound: list[Row]) -> list[Row]:
        chosen = sound if whole else main_rows(sound)
        named = [replace(row, encoder=text, positions=text, task=text) for row in chosen]
        return named + [replace(row, experiment=text, metric=text, condition=text) for row in named[:3]]

    words = ("encoder", "choice", "positions", "layout", "task", "message", "torch", "python", "device", "commit")
    record: dict[str, Any] = {key: text for key in (*words, "precision", "command", "started", "finished", "stopped")}
    record |= {"packages": {text: text}, "corpus": {"sha256": text, "bytes": text}}
    config = {"encoder": {"name": text, text: text}, "train": {"steps": 5, text: text}, "plugin": text}
    return write_run(folder, "rope", rows=rows, record=record, config=config, run_id="hostile")


def written(folder: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted((folder / "report").rglob("*")):
        if path.suffix in (".html", ".md", ".csv", ".tex"):
            yield path, path.read_text(encoding="utf-8")


DRAWN = ("mathtext", "path")
"""Of these every figure is drawn; of others few are made."""


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.drawn] * (kind in DRAWN)) for kind in HOSTILE])
def test_hostile_text_in_every_field_is_only_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    folder = tmp_path / "inner" / "sweep"
    whole = kind in DRAWN
    write_run(folder, "none", rows=list if whole else main_rows)
    hostile_run(folder, HOSTILE[kind], whole)
    assert report.main([str(folder)]) == 0
    assert report.main([str(folder), "--status"]) == 0
    said = "".join(capsys.readouterr())
    assert all(line.isprintable() for line in said.split("\n"))
    page = read_page(folder)
    assert scripts_of(folder) == {'<script src="report.js">'}
    assert not {"iframe", "object"} & {tag for tag, _ in page.tags}
    assert not any("onerror" in attrs for _, attrs in page.tags)
    assert "54439" not in page.text
    for path, text in written(folder):
        assert path.resolve().is_relative_to(folder.resolve())
        lines = text.replace("\N{NO-BREAK SPACE}", " ").split("\n")
        assert all(line.isprintable() or not line.isascii() for line in lines)
        if path.suffix == ".csv":
            cells = {cell for line in csv.reader(lines) for cell in line}
            assert not {cell for cell in cells if cell[:1] in ("=", "+", "@")}
            assert HOSTILE["minus"] not in cells
        if path.suffix == ".tex":
            assert r"\input" not in text
            assert not any(line.startswith(("[", "*")) for line in lines)
        if path.suffix == ".md":
            assert "<script" not in text
            assert "[a](javascript" not in text.replace(r"\]", "")
    assert {path.name for path in tmp_path.iterdir()} == {"inner"}
    assert {path.name for path in folder.iterdir()} == {"runs", "report"}


def test_two_tasks_whose_files_would_be_called_alike(tmp_path: Path) -> None:
    for task in ("a/b", "a:b", "A/b"):
        write_run(tmp_path, "none", task=task, run_id=f"run{ord(task[1])}{task[0]}")
    assert report.main([str(tmp_path)]) == 0
    names = [path.name.lower() for path in (tmp_path / "report" / "tables").glob("*token_accuracy*.csv")]
    assert len(names) == len(set(names)) == 3
    assert len(list((tmp_path / "report" / "tasks").iterdir())) == 3
    for path in (tmp_path / "report").rglob("*.html"):
        for target in re.findall(r'href="([^"#]+)', path.read_text()):
            assert target.startswith("https://arxiv.org/abs/") or (path.parent / target).is_file()


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("config.yaml", LAUGHS, "alias"),
        ("config.yaml", "a: &a [*a]", "alias"),
        ("config.yaml", "[" * 100_000, "nested too deeply"),
        ("config.yaml", "- " * 100_000, "nested too deeply"),
        ("config.yaml", "a: !!python/object/apply:os.system ['touch owned']", "could not determine a constructor"),
        ("config.yaml", "? [a, b]\n: c", "config.yaml cannot be read"),
        ("config.yaml", "a: 0x" + "f" * 9999, "more than 64 bits"),
        ("config.yaml", "seed: 1\n" + "#" * 2**20, "bytes, more than"),
        ("run.json", '{"a": ' + "[" * 100_000, "nested too deeply"),
        ("run.json", '{"status": "ok", "seed": "1"}', "seed is '1'"),
        ("run.json", '{"status": ["ok"]}', "status is ['ok']"),
        ("run.json", '{"status": "fine"}', "is none of ok"),
        ("run.json", '{"status": "ok", "threads": true}', "threads is True"),
        ("run.json", "{" + " " * 2**22 + "}", "bytes, more than"),
        ("run.json", '{"seed": ' + "9" * 5000 + "}", "run.json cannot be read"),
        ("rows.csv", ",".join(COLUMNS) + "\n" + "x," * 13 + '"', "rows.csv cannot be read"),
        ("rows.csv", "x" * 200_000 + "\n", "field larger than field limit"),
    ],
)
def test_what_is_made_to_overwhelm_is_refused(tmp_path: Path, file: str, content: str, said: str) -> None:
    write_run(tmp_path, "none")
    (write_run(tmp_path, "rope", run_id="bomb") / file).write_text(content)
    found = results.read(tmp_path)
    (line,) = found.runs[found.runs["run_id"] == "bomb"].to_dict("records")
    assert line["status"] == "unreadable"
    assert said in line["message"]
    assert set(found.rows["run_id"]) != {"bomb"}


@pytest.mark.parametrize(
    ("column", "cell"),
    [("seed", "-1"), ("train_length", "0"), ("n", "9" * 30), ("eval_length", "1e3"), ("value", "one"), ("seed", "NaN")],
)
def test_numbers_that_are_none_of_ours_are_refused(tmp_path: Path, column: str, cell: str) -> None:
    path = write_run(tmp_path, "none") / "rows.csv"
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    table.loc[0, column] = cell
    table.to_csv(path, index=False)
    assert column in results.read(tmp_path).runs["message"][0]


def test_infinite_and_huge_numbers_are_no_measurements(tmp_path: Path) -> None:
    path = write_run(tmp_path, "none") / "rows.csv"
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    table.loc[[0, 30, 60], "value"] = ["1e308", "-inf", "nan"]
    table.loc[[1, 31], "chance"] = ["inf", "1e300"]
    table.to_csv(path, index=False)
    write_json(path.parent / "run.json", {"status": "ok", "seed": 0})
    (path.parent / "run.json").write_text('{"status": "ok", "final_loss": Infinity, "train_seconds": NaN}')
    assert report.main([str(tmp_path)]) == 0
    assert (results.read(tmp_path).rows["status"] == "diverged").sum() == 3


@pytest.mark.parametrize("what", [*FILES, "the run", "runs", "report", "tables"])
def test_no_link_leads_out_of_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str) -> None:
    folder, secret = tmp_path / "sweep", tmp_path / "secret"
    write_run(folder, "none", rows=main_rows)
    place = write_run(folder, "rope", rows=main_rows, run_id="linked")
    secret.mkdir()
    (secret / "precious.csv").write_text("precious")
    (secret / "token").write_text("hunter2")
    for file in FILES:
        shutil.copy(place / file, secret / file)
    replaced = {"the run": place, "runs": folder / "runs", "report": folder / "report"}.get(what, place / what)
    if what == "tables":
        (folder / "report").mkdir()
        replaced = folder / "report" / "tables"
    shutil.rmtree(replaced) if replaced.is_dir() else replaced.unlink(missing_ok=True)
    replaced.symlink_to(secret / what if what in FILES else secret)
    before = {path.name for path in secret.iterdir()}
    code = report.main([str(folder)])
    refused = what in ("runs", "report", "tables")
    assert code == (2 if refused else 0)
    assert {path.name for path in secret.iterdir()} == before
    if refused:
        assert "leads out of the folder" in capsys.readouterr().err
    else:
        assert set(results.read(folder).rows["run_id"]) != {"linked"}
        assert "leads out of the folder" in read_page(folder).text


def test_a_report_takes_away_what_an_earlier_one_wrote_alone(tmp_path: Path) -> None:
    write_run(tmp_path, "none", task="copy", rows=main_rows)
    gone = write_run(tmp_path, "none", task="sort", rows=main_rows, run_id="gone")
    assert report.main([str(tmp_path)]) == 0
    places = [tmp_path / "report" / name for name in ("tables", "figures")]
    assert all(list(place.glob("sort_*")) for place in places)
    mine = [places[0] / "mine.csv", places[0] / "notes.md", places[1] / "sketch.svg"]
    for path in mine:
        path.write_text("mine")
    shutil.rmtree(gone)
    for _ in range(2):
        assert report.main([str(tmp_path)]) == 0
        assert not [path for place in places for path in place.glob("sort_*")]
        assert {path.read_text() for path in mine} == {"mine"}


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    write_run(tmp_path, "none")
    path = write_run(tmp_path, "rope", run_id="pipe") / "rows.csv"
    path.unlink()
    os.mkfifo(path)
    assert "it is not a file" in str(results.read(tmp_path).runs["message"].tolist())


def test_a_name_that_steers_a_terminal_is_no_run(tmp_path: Path) -> None:
    write_run(tmp_path, "none")
    write_run(tmp_path, "rope", run_id="evil\x1b[2J")
    assert report.main([str(tmp_path)]) == 0
    assert "evil�[2J" in read_page(tmp_path).text


def test_text_stays_what_it_was_where_it_is_harmless() -> None:
    for text in ("rope(base=500000)", "naïve · ü", "位置", "a  b"):
        assert untrusted.name_of(text) == text
    long = ["x" * 600 + end for end in "ab"]
    assert len({untrusted.name_of(text) for text in long}) == 2
    assert all(len(untrusted.name_of(text)) < 520 for text in long)
    assert "-0.5" in _page.spreadsheet(pd.DataFrame({"a": [-0.5], "b": ["rope"]})).splitlines()[1]


def test_a_seed_in_the_first_line_is_read_as_yaml_reads_it(tmp_path: Path) -> None:
    for text in ("seed: 3\na: 1\n", "a: 1\nseed: 3\n", "seed: 007\na: {b: [1, x]}\n", "seed: 1e3\na: 1\n"):
        (tmp_path / "config.yaml").write_text(text)
        found = untrusted.read_mapping(tmp_path / "config.yaml", tmp_path)
        assert found == yaml.safe_load(text) or text.startswith("seed: 007")


def _damaged(content: bytes, chance: random.Random) -> bytes:
    """One of the things that happen to files."""
    place = chance.randrange(len(content) or 1)
    other = chance.randrange(len(content) or 1)
    noise = bytes(chance.randrange(256) for _ in range(chance.randrange(1, 40)))
    lines = content.split(b"\n")
    line = chance.randrange(len(lines))
    cells = lines[line].split(b",")
    cells[chance.randrange(len(cells))] = chance.choice(
        [b"", b"nan", b"-1", b"1e999", b"none", b"=1", b"a=b, c=d", b"0"]
    )
    return chance.choice(
        [
            b"",
            content[:place],
            noise,
            content[:place] + noise + content[place:],
            content[: min(place, other)] + content[max(place, other) :],
            content + content,
            b"\n".join(lines[:line] + lines[line + 1 :]),
            b"\n".join([*lines[:line], b",".join(cells), *lines[line + 1 :]]),
            b"\n".join([*lines[:line], lines[line], *lines[line:]]),
            content.replace(b"e", b"\xff"),
            content.replace(b":", b": - "),
            content.replace(b"length_extrapolation", b"structure"),
            content.replace(b"length_extrapolation", b"attention_pattern"),
            content.replace(b"token_accuracy", b"bits_per_byte"),
        ]
    )


@pytest.mark.parametrize("number", range(5))
def test_damaged_files_take_nothing_along(tmp_path: Path, number: int) -> None:
    """Two runs of four are damaged, everywhere the report reads from; the others are there as they were."""
    chance = random.Random(number)
    sound = ("none", "rope")
    for encoder in (*sound, "alibi", "t5"):
        place = write_run(tmp_path, encoder)
        for file in FILES if encoder not in sound else ():
            if chance.random() < 0.5:
                (place / file).write_bytes(_damaged((place / file).read_bytes(), chance))
    (tmp_path / "sweeps").mkdir()
    note = b'{"command": "python run.py -m", "part": 1, "parts": 1, "runs": ["a"]}'
    (tmp_path / "sweeps" / "a.json").write_bytes(_damaged(note, chance))
    assert report.main([str(tmp_path), "--status"]) == 0
    assert report.main([str(tmp_path)]) == 0
    found = results.read(tmp_path)
    assert set(found.runs.loc[found.runs["status"] == "ok", "encoder"]) >= set(sound)
    assert len(found.runs) == 4
