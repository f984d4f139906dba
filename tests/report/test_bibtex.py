"""The bibliography: entries agree with what docstrings cite, and a report takes along those it uses and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import ROOT, write_run, write_sweep

from experiments.report.paper import bibliography
from experiments.rows import results
from pe_zoo._catalogue import Entry, Paper, encoders, numberings

ENTRIES = (*encoders(), *numberings())
BY_ARXIV = {entry["eprint"]: entry for entry in bibliography.known().values() if "eprint" in entry}


def cited() -> list[tuple[str, Paper]]:
    return [(entry.name, paper) for entry in ENTRIES for paper in entry.papers]


@pytest.mark.parametrize(("name", "paper"), cited(), ids=str)
def test_every_paper_of_a_docstring_has_an_entry_that_agrees(name: str, paper: Paper) -> None:
    entry = bibliography.entry_of(paper)
    assert entry["year"] == paper.year
    assert entry.get("eprint", "") == paper.arxiv
    assert paper.arxiv or entry["url"] == paper.link
    first = entry["author"].split(" and ")[0].split(",")[0]
    assert paper.authors.split()[0].rstrip(",") == re.sub(r"[{}]|\\.", "", first)
    authors = entry["author"].split(" and ")
    assert "et al." not in paper.authors or len(authors) > 2 or authors[1] == "others"


def test_every_arxiv_number_is_read_as_a_citation() -> None:
    texts = [entry.summary for entry in ENTRIES]
    for folder in ("encoder", "layout"):
        texts += [path.read_text(encoding="utf-8") for path in (ROOT / "configs" / folder).glob("*.yaml")]
    for text in texts:
        written = re.sub(r"\n# ?", " ", text)
        read = {paper.arxiv for paper in Entry("", written).papers} - {""}
        assert set(re.findall(r"arXiv:(\d{4}\.\d+)", written)) == read


def test_a_new_encoder_needs_no_entry() -> None:
    entry = bibliography.entry_of(Paper("O’Brien, Doe and Roe", "2027", "2701.00001"))
    assert entry["author"] == "O’Brien and Doe and Roe"
    assert entry["ID"] == "obrien2027arxiv270100001"
    text = bibliography.Cited({entry["ID"]: entry}).text()
    assert "eprint = {2701.00001}" in text
    assert bibliography.entry_of(Paper("Doe et al.", "2027", "2701.00002"))["author"] == "Doe and others"


def test_entries_are_whole_and_keys_are_stable() -> None:
    text = bibliography.FILE.read_text(encoding="utf-8")
    keys = re.findall(r"^@\w+\{(.*),$", text, flags=re.MULTILINE)
    assert len(keys) == len(set(keys)) == len(bibliography.known())
    assert len(BY_ARXIV) == len(re.findall(r"^  eprint", text, flags=re.MULTILINE))
    for entry in bibliography.known().values():
        assert {"title", "author", "year"} <= set(entry)
        surname = re.sub(r"[^a-z]", "", re.sub(r"\\.", "", entry["author"].split(",")[0].lower()))
        assert re.match(rf"{surname}{entry['year']}[a-z0-9]+$", entry["ID"]), entry["ID"]
        for value in entry.values():
            assert value.count("{") == value.count("}")


def test_a_report_takes_along_what_it_uses(tmp_path: Path) -> None:
    write_sweep(tmp_path, ("rope", "alibi"), seeds=1, positions="offset")
    write_run(tmp_path, "fox", record={"choice": "cable", "layout": "swan"}, run_id="a")
    write_run(tmp_path, "mine", run_id="b")
    found = bibliography.cited(results.read(tmp_path), "corrected by Holm's method")
    keys = {"su2021roformer", "press2022alibi", "kiyono2021shape", "lin2025fox", "veisi2025cable", "puvvada2025swan"}
    assert set(found.entries) == {*keys, "holm1979simple", "pezoo"}
    assert found.of["cable"] == ["veisi2025cable"]
    assert "% mine: no paper is cited" in found.text()
    assert "sequential" not in found.text()
    assert "https://arxiv.org/abs/2104.09864" in found.text()
    assert "keywords" not in found.text()


def test_a_setting_calls_for_its_paper(tmp_path: Path) -> None:
    write_run(tmp_path, "none", config={"model": {"temperature": "log_n"}, "train": {"drop_encoder_after": None}})
    found = bibliography.cited(results.read(tmp_path), "")
    assert set(found.entries) == {"kazemnejad2023nope", "haviv2022nope", "chiang2022limitation", "pezoo"}


def test_foreign_names_are_looked_up_nowhere_else(tmp_path: Path) -> None:
    write_run(tmp_path, "rope", record={"choice": "../claims/length", "layout": "a\nb"})
    found = bibliography.cited(results.read(tmp_path), "")
    assert set(found.entries) == {"su2021roformer", "pezoo"}
