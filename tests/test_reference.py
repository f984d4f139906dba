"""The results that come with the code are its own: a cheap part of them is made again."""

from __future__ import annotations

import math
import shutil
import tarfile
from pathlib import Path

import pytest
from support import ROOT

import report
from experiments.rows.read import ALSO, ARCHIVE, read_run, run_folders
from experiments.runs import rerun, rounding
from experiments.runs.rounding import allowed, astray, other_seeds

AGAIN = "bidirectional/rope-solve_equation-seed0-5cbf140d"
"""Trained in seconds."""
UNTRAINED = "claims/sinusoidal-copy-seed0-e464f2a1"
OF_THE_BOARD = [
    "decided/alibi-copy-seed1-1985b70c",
    "decided/rope-text-seed3-fab297ff",
    "decided/sandwich-associative_recall-seed2-9c50bea6",
]
"""One of each of its tasks, of those that train for a quarter of a minute."""
OF_OTHERS = [
    "decided_more/none-selective_copy-seed1-53794c1d",
    "retrieval/alibi-passkey-seed0-3a7efc00",
    "grid/axial_rope-grid-above-seed1-2ebbaf25",
]
"""Of boards of other tasks."""
BUDGETS = {"index.html": 250, "data.html": 300, "tasks/*.html": 150, "encoders/*.html": 60, "report.*": 40}
"""Most kB of a page of a report, so that a phone opens it at once; style and script together."""


def unpacked(folder: Path, run: str) -> Path:
    """A run of an archive, ``<name>/<run_id>``, in ``<folder>/results/<name>/runs``, with those of its other seeds."""
    name, _, run_id = run.partition("/")
    place = folder / "results" / name
    with tarfile.open(ROOT / "results" / name / ARCHIVE) as archive:
        wanted = [file for file in archive if file.name.startswith(f"runs/{run_id.rpartition('-seed')[0]}-seed")]
        archive.extractall(place, wanted, filter="data")
    return place / "runs" / run_id


def judged(run: Path) -> rounding.Rows:
    table = read_run(run, run.parent.parent)[2]
    assert table is not None
    return rounding.judged(table)


@pytest.mark.parametrize("name", [AGAIN, UNTRAINED, *OF_THE_BOARD, *OF_OTHERS])
def test_a_run_made_again_says_the_same(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = unpacked(tmp_path, name)
    outcome, same, _ = rerun.rerun(run)
    before = judged(run)
    expected = "structure" if name == UNTRAINED else "length_extrapolation"
    assert expected in {key[0] for key in before}
    after = judged(outcome.folder.resolve())
    assert same or astray(before, after, list(other_seeds(run))) == []


@pytest.mark.parametrize("name", [AGAIN, UNTRAINED])
def test_what_has_changed_is_noticed(name: str, tmp_path: Path) -> None:
    before = judged(unpacked(tmp_path, name))
    assert astray(before, dict(before)) == []
    measured = [key for key, (_, status) in before.items() if status == "ok"]
    for key in (min(measured, key=str), max(measured, key=str)):
        off = 2 * (allowed(key) or 0)
        assert astray(before, before | {key: (before[key][0] - off, "ok")}) == [key]
    assert astray(before, before | {key: (math.nan, "unsupported")}) == [key]
    assert astray(before, {other: cell for other, cell in before.items() if other != key}) == [key]


def test_packed_runs_are_unpacked_for_a_report(tmp_path: Path) -> None:
    run = unpacked(tmp_path, UNTRAINED)
    place = run.parent.parent
    with tarfile.open(place / ARCHIVE, "w:xz") as archive:
        archive.add(run.parent, "runs")
    before = run_folders(place)
    shutil.rmtree(place / "runs")
    assert run_folders(place) == before
    assert read_run(run, place)[2] is not None


def test_a_folder_that_builds_on_another_has_its_runs_and_not_its_sweeps(tmp_path: Path) -> None:
    for name, run in (("first", "none-copy-seed0-1"), ("second", "none-copy-seed1-2")):
        (tmp_path / name / "runs" / run).mkdir(parents=True)
        (tmp_path / name / "sweeps").mkdir()
        (tmp_path / name / "sweeps" / f"{name}.json").write_text("{}")
        with tarfile.open(tmp_path / name / ARCHIVE, "w:xz") as archive:
            for part in ("runs", "sweeps"):
                archive.add(tmp_path / name / part, part)
                shutil.rmtree(tmp_path / name / part)
    (tmp_path / "second" / ALSO).write_text("first\n")
    assert [place.name for place in run_folders(tmp_path / "second")] == ["none-copy-seed0-1", "none-copy-seed1-2"]
    assert [path.name for path in (tmp_path / "second/sweeps").iterdir()] == ["second.json"]
    assert not (tmp_path / "first/runs").exists()
    (tmp_path / "third").mkdir()
    (tmp_path / "third" / ALSO).write_text("second\n")
    assert [place.name for place in run_folders(tmp_path / "third")] == ["none-copy-seed0-1", "none-copy-seed1-2"]
    assert list((tmp_path / "third/sweeps").iterdir()) == []
    (tmp_path / "first" / ALSO).write_text("../first\n")
    with pytest.raises(ValueError, match=r"names ../first: there is no ../first/runs.tar.xz beside it"):
        run_folders(tmp_path / "first")


@pytest.mark.parametrize("folder", ["classic", "bidirectional"])
def test_pages_keep_their_budget(folder: str, tmp_path: Path) -> None:
    place = tmp_path / folder
    place.mkdir()
    shutil.copy(ROOT / "results" / folder / ARCHIVE, place)
    assert report.main([str(place)]) == 0
    for pages, most in BUDGETS.items():
        found = [path.stat().st_size for path in (place / "report").glob(pages)]
        assert found
        assert (sum if pages == "report.*" else max)(found) <= 1000 * most
