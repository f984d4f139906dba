"""The bibliography: entries agree with what docstrings cite, and a report takes along those it uses and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import ROOT, write_run, write_sweep

from experiments.report.paper import bibliography
from experiments.rows import results
from pe_zoo._catalogue import Paper, encoders, numberings

ENTRIES = (*encoders(), *numberings())
BY_ARXIV = {entry.arxiv: entry for entry in bibliography.known().values() if entry.arxiv}


def cited() -> list[tuple[str, Paper]]:
    return [(entry.name, paper) for entry in ENTRIES for paper in entry.papers]


@pytest.mark.parametrize(("name", "paper"), cited(), ids=str)
def test_every_paper_of_a_docstring_has_an_entry_that_agrees(name: str, paper: Paper) -> None:
    entry = BY_ARXIV[paper.arxiv]
    assert entry.fields["year"] == paper.year
    first = entry.fields["author"].split(",")[0]
    assert paper.authors.split()[0].rstrip(",") == re.sub(r"[{}]|\\.", "", first)
    authors = entry.fields["author"].split(" and ")
    assert "et al." not in paper.authors or len(authors) > 2


def test_every_arxiv_number_in_them_has_an_entry() -> None:
    numbers = {number for entry in ENTRIES for number in re.findall(r"arXiv:(\d{4}\.\d+)", entry.summary)}
    for folder in ("encoder", "layout"):
        for path in (ROOT / "configs" / folder).glob("*.yaml"):
            numbers |= set(re.findall(r"arXiv:(\d{4}\.\d+)", path.read_text(encoding="utf-8")))
    assert numbers <= set(BY_ARXIV)
    assert len(numbers) > 40


def test_entries_are_whole_and_keys_are_stable() -> None:
    text = bibliography.FILE.read_text(encoding="utf-8")
    keys = re.findall(r"^@\w+\{(.*),$", text, flags=re.MULTILINE)
    assert len(keys) == len(set(keys)) == len(bibliography.known())
    assert len(BY_ARXIV) == len(re.findall(r"^  eprint", text, flags=re.MULTILINE))
    for entry in bibliography.known().values():
        assert {"title", "author", "year"} <= set(entry.fields)
        surname = re.sub(r"[^a-z]", "", re.sub(r"\\.", "", entry.fields["author"].split(",")[0].lower()))
        assert re.match(rf"{surname}{entry.fields['year']}[a-z0-9]+$", entry.key), entry.key
        for value in entry.fields.values():
            assert value.count("{") == value.count("}")


def test_a_report_takes_along_what_it_uses(tmp_path: Path) -> None:
    write_sweep(tmp_path, ("rope", "alibi"), seeds=1, positions="offset")
    write_run(tmp_path, "fox", record={"choice": "cable", "layout": "swan"}, run_id="a")
    write_run(tmp_path, "mine", run_id="b")
    found = bibliography.cited(results.load(tmp_path), "corrected by Holm's method")
    keys = {"su2021roformer", "press2022alibi", "kiyono2021shape", "lin2025fox", "veisi2025cable", "puvvada2025swan"}
    assert set(found.entries) == {*keys, "holm1979simple", "pezoo"}
    assert found.of["cable"] == ["veisi2025cable"]
    assert "% mine: no paper is known" in found.text()
    assert "sequential" not in found.text()
    assert "https://arxiv.org/abs/2104.09864" in found.text()
    assert "keywords" not in found.text()


def test_a_setting_calls_for_its_paper(tmp_path: Path) -> None:
    write_run(tmp_path, "none", config={"model": {"temperature": "log_n"}, "train": {"drop_encoder_after": None}})
    found = bibliography.cited(results.load(tmp_path), "")
    assert set(found.entries) == {"kazemnejad2023nope", "haviv2022nope", "chiang2022limitation", "pezoo"}


def test_foreign_names_are_looked_up_nowhere_else(tmp_path: Path) -> None:
    write_run(tmp_path, "rope", record={"choice": "../claims/length", "layout": "a\nb"})
    found = bibliography.cited(results.load(tmp_path), "")
    assert set(found.entries) == {"su2021roformer", "pezoo"}
