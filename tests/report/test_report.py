"""The report: every number on the page comes from the rows, nothing is left out, nothing heavy is imported."""

from __future__ import annotations

import math
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text
from scipy import stats as scipy_stats
from support import (
    ENCODERS,
    LENGTHS,
    ORDERS,
    ROOT,
    PageReader,
    change_of,
    made_up_rows,
    main_rows,
    mean_and_interval,
    read_page,
    scripts_of,
    values_of,
    write_run,
    write_sweep,
)

import report
from experiments.figures.words import few, fixed, listed, p_value, span
from experiments.measures.length_extrapolation import report as length_extrapolation
from experiments.measures.permutation_sensitivity import report as permutation_report
from experiments.report import build, drawing
from experiments.report.front import asked
from experiments.report.sections import cards, curves
from experiments.report.sections import task as task_page
from experiments.rows import results, sweeps
from experiments.rows.row import Row, frame
from experiments.runs import standings, status
from experiments.statistics import comparisons


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six encoders, three seeds, and their report."""
    folder = write_sweep(tmp_path_factory.mktemp("results") / "sweep")
    assert report.main([str(folder)]) == 0
    return folder


@pytest.mark.parametrize("metric", ["token_accuracy", "exact_match"])
def test_every_number_by_length_comes_from_the_rows(sweep: Path, metric: str) -> None:
    words = metric.replace("_", " ").capitalize()
    head, *lines = read_page(sweep).tables[f"{words} by length, copy"]
    assert head == ["series", "seeds", "8", "16 (trained)", *map(str, LENGTHS[2:])]
    assert [line[0] for line in lines] == [*ENCODERS, "guessing without reading"]
    for encoder, seeds, *cells in lines[:-1]:
        assert seeds == "3"
        for length, cell in zip(LENGTHS, cells, strict=True):
            where = {"experiment": ["length_extrapolation"], "metric": [metric], "eval_length": [str(length)]}
            values = [v for (name, _), v in values_of(sweep, **where).items() if name == encoder]
            if encoder == "learned" and length > 16:
                assert (cell, values) == ("unsupported", [])
            else:
                mean, low, high = mean_and_interval(values)
                assert cell == (f"{mean:.3f} [{low:.3f}, {high:.3f}]" if low == low else f"{mean:.3f}")


def kept_of(folder: Path, metric: str = "token_accuracy") -> dict[tuple[str, int], dict[str, float]]:
    """Quality that each run which has all lengths keeps, and its mean: trained to 16, guessing at 0.1."""
    curves: dict[tuple[str, int], dict[int, float]] = {}
    for length in (16, 32, 64, 128):
        where = {"experiment": ["length_extrapolation"], "metric": [metric], "eval_length": [str(length)]}
        for key, value in values_of(folder, **where).items():
            curves.setdefault(key, {})[length] = value
    found = {}
    for key, curve in curves.items():
        if len(curve) == 4:
            kept = [(curve[length] - 0.1) / (curve[16] - 0.1) for length in (16, 32, 64, 128)]
            found[key] = {"in range": curve[16], "×2": kept[1], "×4": kept[2], "×8": kept[3]}
            found[key]["kept"] = (kept[1] + kept[2] + kept[3]) / 3
    return found


def board_of(page: PageReader, caption: str = "Standings, copy") -> dict[str, dict[str, str]]:
    """The lines of a board by encoding; the second line of a head is left out."""
    head, *lines = page.tables[caption]
    names = [{"Place and its range": "place"}.get(name, name) for name in head]
    return {line[head.index("Encoding")]: dict(zip(names, line, strict=True)) for line in lines}


def test_every_number_of_the_standings_comes_from_the_rows(sweep: Path) -> None:
    board = board_of(read_page(sweep))
    found = kept_of(sweep)
    means = {name: statistics.fmean(found[name, s]["kept"] for s in range(3)) for name in {key[0] for key in found}}
    assert list(board) == [*sorted(means, key=lambda name: -means[name]), "learnedunsupported"]
    tests = {
        (one, other): scipy_stats.ttest_ind(
            *([found[name, seed]["kept"] for seed in range(3)] for name in (one, other)), equal_var=False
        ).pvalue
        for one in means
        for other in means
        if one != other
    }
    shown = pd.read_csv(sweep / "report/tables/standings.csv").set_index("series")
    for name, line in list(board.items())[:-1]:
        for multiple, column in ((16, "×116"), (32, "×232"), (64, "×464"), (128, "×8128")):
            where = {
                "experiment": ["length_extrapolation"],
                "metric": ["token_accuracy"],
                "eval_length": [str(multiple)],
            }
            values = [v for (encoder, _), v in values_of(sweep, **where).items() if encoder == name]
            assert float(line[column]) == pytest.approx(100 * statistics.fmean(values), abs=0.51)
        kept, *ends = line["Kept, %, mean of ×2, ×4 and ×8dots: seeds, bar: 95 % interval"].replace(" to ", " ").split()
        assert float(kept) == pytest.approx(100 * means[name], abs=0.51)
        assert [float(end) for end in ends] == pytest.approx(
            [100 * shown.loc[name, end] for end in ("low", "high")], abs=0.51
        )
        low, high = (int(end) for end in (line["place"].split("–") * 2)[:2])
        beaten = sum(means[other] > means[name] and tests[name, other] < 0.001 for other in means if other != name)
        beats = sum(means[other] < means[name] and tests[name, other] < 0.001 for other in means if other != name)
        assert low >= 1 + beaten
        assert high <= len(means) - beats
    assert (board["learnedunsupported"]["place"], board["learnedunsupported"]["×232"]) == ("–", "")
    table = pd.read_csv(sweep / "report/tables/standings.csv").set_index("series")
    for name in set(means) - {"none"}:
        assert table.loc[name, "difference"] == pytest.approx(means[name] - means["none"])
        certain, possible = tests[name, "none"] < 0.001, tests[name, "none"] < 0.05
        assert (table.loc[name, "verdict"] != "undecided") in {certain, possible}


def test_every_number_of_cost_comes_from_the_rows(tmp_path: Path) -> None:
    ratios = {"none": 1.0, "sinusoidal": 1.25, "t5": 1.5}

    def costly(rows: list[Row]) -> list[Row]:
        first = main_rows(rows)[0]
        costs = (
            replace(first, experiment="cost", metric="relative_operations", value=ratios[first.encoder] + longer)
            for longer in (0, 1)
        )
        places = (replace(row, sequence_length=16 + 16 * n) for n, row in enumerate(costs))
        return [*main_rows(rows), *places]

    write_sweep(tmp_path, tuple(ratios), 3, rows=costly)
    assert report.main([str(tmp_path)]) == 0
    found = kept_of(tmp_path)
    head, *lines = read_page(tmp_path).tables["Cost of each encoding"]
    assert head == ["encoding", "parameters added", "operations, ×", "mean kept, %"]
    for name, parameters, operations, kept in lines:
        assert parameters == ("2,048" if name == "t5" else "0")
        assert operations == f"{ratios[name] + 1:.2f}"
        assert float(kept) == pytest.approx(100 * statistics.fmean(found[name, s]["kept"] for s in range(3)), abs=0.51)


def test_runs_that_did_not_learn_are_counted_and_left_out(tmp_path: Path) -> None:
    write_sweep(tmp_path, ("none", "alibi"), 3, rows=main_rows)
    write_sweep(tmp_path, ("rope",), 3, rows=main_rows, record={"converged": False})
    write_run(tmp_path, "alibi", 3, rows=main_rows, record={"converged": False})
    write_run(tmp_path, "t5", 0, rows=lambda rows: [row for row in rows if row.eval_length <= 32])
    assert report.main([str(tmp_path)]) == 0
    page = read_page(tmp_path)
    board = board_of(page)
    assert set(board) == {"none", "alibi3 of 4 learned", "ropedid not learn", "t5not measured"}
    assert board["ropedid not learn"]["place"] == "–"
    assert "lost" in {kind for _, attrs in page.tags for kind in (attrs.get("class") or "").split()}
    table = pd.read_csv(tmp_path / "report/tables/standings.csv").set_index("series")
    assert (table.loc["rope", "status"], table.loc["rope", "seeds_learned"]) == ("did not learn", 0)


def test_free_running_and_teacher_forced_are_told_apart(tmp_path: Path) -> None:
    def also_generated(rows: list[Row]) -> list[Row]:
        scored = [row for row in rows if row.metric == "token_accuracy" and row.experiment == "length_extrapolation"]
        halved = (replace(row, metric="generated_token_accuracy", value=row.value / 2) for row in scored)
        return [*rows, *(replace(row, value=0.05) if row.eval_length > 16 else row for row in halved)]

    write_run(tmp_path, "none", rows=also_generated)
    write_run(tmp_path, "rope", rows=also_generated)
    assert report.main([str(tmp_path)]) == 0
    page = read_page(tmp_path)
    forced, free = (page.tables[f"Token accuracy{how} by length, copy"][1][3] for how in ("", ", free-running"))
    assert float(free) == pytest.approx(float(forced) / 2, abs=1e-3)
    standing = pd.read_csv(tmp_path / "report/tables/standings.csv")
    assert (standing["free_running_kept"] != standing["kept"]).all()
    assert any("Free" in head for head in page.tables["Standings, copy"][0])


def test_every_number_of_the_permutations_comes_from_the_rows(sweep: Path) -> None:
    head, *lines = read_page(sweep).tables["Quality lost, copy"]
    assert head == ["change of order", "index displacement", "neighbours lost", *ENCODERS]
    keys = [line[0] for line in lines]
    assert sorted(keys) == sorted(set(ORDERS) - {"1-gram shuffle"})
    for change, (_, displacement, lost, *cells) in zip(keys, lines, strict=True):
        assert (float(displacement), float(lost)) == ORDERS[change]
        condition, where = change_of(change)
        chosen = {column: [str(value)] for column, value in where.items()} | {"condition": [condition]}
        values = values_of(sweep, metric=["quality_loss"], **chosen)
        for encoder, cell in zip(ENCODERS, cells, strict=True):
            mean = statistics.fmean(values[encoder, seed] for seed in range(3))
            assert cell.startswith(f"{mean:.3f} [")


def test_equivariance_error_keeps_its_order_of_magnitude(sweep: Path) -> None:
    _, *lines = read_page(sweep).tables["Equivariance error, copy"]
    assert lines[0] == ["none", "2e-07 [2e-07, 2e-07]", "2e-07 [2e-07, 2e-07]"]
    assert [line[0] for line in lines] == list(ENCODERS)


def test_the_first_screen_names_the_best_and_its_equals(sweep: Path) -> None:
    text = read_page(sweep).text
    assert "6 encodings × 3 seeds" in text
    assert "trained to 16, measured to 128" in text
    found = kept_of(sweep)
    means = {name: statistics.fmean(found[name, s]["kept"] for s in range(3)) for name in {key[0] for key in found}}
    best = max(means, key=lambda name: means[name])
    assert re.search(rf"{best}(?: is first)?: {100 * means[best]:.0f} %", text)
    told = re.search(r"the most; better than (.+); undecided against (\w+) and (\w+) after 3 seeds\.", text)
    assert told is not None
    assert {best, told[2], told[3]} == {"none", "alibi", "t5"}
    assert set(re.findall(r"\w+", told[1])) == {"rope", "sinusoidal", "and"}, "learned did not learn"
    twice = {name: statistics.fmean(found[name, s]["×2"] for s in range(3)) for name in means}
    claim = "“Sinusoidal encodings extrapolate” fails here: trained to length 16, sinusoidal gets"
    heading = re.search(rf"{claim} \d+ % of tokens at 32; “?(\w+)”? gets \d+ %", text)
    assert heading is not None
    assert heading[1] == max(twice, key=lambda name: twice[name])


def test_the_heading_sets_beside_the_encoder_of_a_claim_one_that_beats_it(tmp_path: Path) -> None:
    """t5 has the best mean, with seeds so far apart that no test tells it from another."""

    def beyond(values: Sequence[float]) -> Callable[[list[Row]], list[Row]]:
        def set_to(rows: list[Row]) -> list[Row]:
            return [replace(r, value=values[r.seed] if r.eval_length > 16 else 0.99) for r in main_rows(rows)]

        return set_to

    values = {"t5": [0.99, 0.5, 0.99], "alibi": [0.7, 0.69, 0.71], "sinusoidal": [0.3, 0.31, 0.29]}
    for encoder, each in values.items():
        write_sweep(tmp_path, (encoder,), 3, rows=beyond(each))
    assert report.main([str(tmp_path)]) == 0
    title = (tmp_path / "report/report.md").read_text().splitlines()[0]
    assert title.endswith("sinusoidal gets 30 % of tokens at 32; alibi gets 70 %")
    for seed in range(3):
        numbered = {"rows": beyond([0.5, 0.51, 0.52]), "positions": "offset", "run_id": f"offset-{seed}"}
        write_run(tmp_path, "sinusoidal", seed, **numbered)
    assert report.main([str(tmp_path)]) == 0
    title = (tmp_path / "report/report.md").read_text().splitlines()[0]
    assert title.endswith("at 32 with its positions numbered as usual, 51 % as sinusoidal · offset")


def test_the_terminal_gives_the_places_of_the_page(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    family = Mock(side_effect=comparisons.family)
    monkeypatch.setattr(comparisons, "family", family)
    runs = {run.name for run in (sweep / "runs").iterdir()}
    found = re.findall(r"^([\d–]+) +(\w+) +([\d ]+) +\d+ \(", standings.text(sweep, runs), re.MULTILINE)
    printed = {series: places for places, series, _ in found}
    assert {len(numbers.split()) for _, _, numbers in found} == {4}, "at 16, 32, 64 and 128, of every encoder"
    page = pd.read_csv(sweep / "report/tables/standings.csv").dropna(subset="place")
    places = map(span, page["place_low"], page["place_high"])
    assert printed == dict(zip(page["series"], places, strict=True))
    assert family.call_args.args[1] == "none", "comparisons with it share half of the level there, too"


def test_tables_as_csv_are_exact(sweep: Path) -> None:
    table = pd.read_csv(sweep / "report/tables/copy_token_accuracy.csv", keep_default_na=False)
    line = table[(table["series"] == "rope") & (table["eval_length"] == 32)].iloc[0]
    where = {"experiment": ["length_extrapolation"], "metric": ["token_accuracy"], "eval_length": ["32"]}
    values = [v for (name, _), v in values_of(sweep, **where).items() if name == "rope"]
    assert float(line["mean"]) == pytest.approx(statistics.fmean(values), rel=1e-15)
    assert "none" in set(table["series"])


def test_pages_ask_nothing_of_a_network_and_their_links_lead_somewhere(sweep: Path) -> None:
    shown, pages = sweep / "report", list((sweep / "report").rglob("*.html"))
    assert len(pages) == 1 + 1 + 6 + 1
    for path in pages:
        page = PageReader()
        page.feed(path.read_text())
        assert not {"iframe", "object"} & {tag for tag, _ in page.tags}
        ids = {attrs["id"] for _, attrs in page.tags if "id" in attrs}
        for tag, attrs in page.tags:
            target = attrs.get("href") or attrs.get("src") or ""
            file, _, part = target.partition("#")
            if not target or re.fullmatch(r"https://arxiv\.org/abs/\d{4}\.\d{4,5}", target):
                continue
            assert (path.parent / file).is_file() if file else part in ids, (path.name, target)
            assert tag != "img" or (attrs["alt"] and attrs["loading"] == "lazy")
            assert tag != "img" or min(int(attrs["width"] or 0), int(attrs["height"] or 0)) > 40, "no room is kept"
        assert "url(" not in path.read_text()
    assert len(list((shown / "figures").iterdir())) == 5, "four, and that of the first screen"


def test_one_file_holds_everything(tmp_path: Path) -> None:
    write_sweep(tmp_path, ("none", "rope"), 1)
    assert report.main([str(tmp_path), "--single"]) == 0
    page = PageReader()
    page.feed((tmp_path / "report/single.html").read_text())
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert not any(tag == "link" for tag, _ in page.tags)
    assert all((attrs["src"] or "").startswith("data:") for tag, attrs in page.tags if tag == "img")
    inner = {attrs["href"][1:] for tag, attrs in page.tags if tag == "a" and (attrs["href"] or "").startswith("#")}
    assert inner - {"content"} <= set(ids)
    assert "Token accuracy by length, copy" in page.tables
    write_run(tmp_path, "alibi")
    assert report.main([str(tmp_path)]) == 0
    assert "alibi" in (tmp_path / "report/single.html").read_text(), "one that is there is kept up"


@pytest.mark.drawn
def test_same_rows_same_bytes(tmp_path: Path) -> None:
    found = []
    for name in ("first", "second"):
        folder = write_sweep(tmp_path / name / "sweep", ("none", "rope"), 1, rows=main_rows)
        assert report.main([str(folder)]) == 0
        found.append({p.relative_to(folder): p.read_bytes() for p in (folder / "report").rglob("*") if p.is_file()})
    first, second = found
    assert first == second
    assert len(first) > 20


def test_from_a_shell_nothing_heavy_is_imported(tmp_path: Path) -> None:
    write_run(tmp_path, "rope", rows=main_rows)
    command = [sys.executable, "-X", "importtime", str(ROOT / "report.py"), "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    imports, said = [], []
    for line in done.stderr.splitlines():
        (imports if line.startswith("import time:") else said).append(line.rpartition("|")[2].strip())
    assert [line for line in said if not line.startswith("writing the report, ")] == []
    assert "pandas" in imports
    assert not {"torch", "hydra", "omegaconf"} & set(imports)
    assert {path.name for path in (tmp_path / "report").iterdir()} >= {"index.html", "report.md"}


def test_one_run_one_seed(tmp_path: Path) -> None:
    write_run(tmp_path, "rope")
    assert report.main([str(tmp_path)]) == 0
    page = read_page(tmp_path)
    _, line, _ = page.tables["Token accuracy by length, copy"]
    assert line[:2] == ["rope", "1"]
    assert not any("±" in cell for cell in line)
    assert not any(caption.startswith("Against") for caption in page.tables)


def test_one_seed_says_that_nothing_can_be_told_apart(tmp_path: Path) -> None:
    write_sweep(tmp_path, ("none", "rope"), seeds=1, rows=main_rows)
    assert report.main([str(tmp_path)]) == 0
    page = read_page(tmp_path)
    table = pd.read_csv(tmp_path / "report/tables/standings.csv").set_index("series")
    assert table.loc["rope", "verdict"] == "fewer than 3 seeds"
    assert {line["place"] for line in board_of(page).values()} == {"1–2"}


def test_lengths_that_were_not_measured_are_said_to_be_so(tmp_path: Path) -> None:
    write_run(tmp_path, "none", rows=main_rows)
    write_run(tmp_path, "rope", rows=lambda rows: [row for row in main_rows(rows) if row.eval_length <= 32])
    assert report.main([str(tmp_path)]) == 0
    _, none, rope, _ = read_page(tmp_path).tables["Token accuracy by length, copy"]
    assert rope[-4:] == ["not measured"] * 4
    assert "not measured" not in none


def test_nothing_beyond_the_training_length_is_no_error(tmp_path: Path) -> None:
    for encoder in ("none", "rope"):
        write_run(tmp_path, encoder, rows=lambda rows: [row for row in main_rows(rows) if row.eval_length <= 16])
    assert report.main([str(tmp_path)]) == 0
    pasted, page = (tmp_path / "report/report.md").read_text(), read_page(tmp_path)
    assert pasted.startswith("# copy: token accuracy by length\n")
    assert page.tables["Token accuracy by length, copy"][1][0] == "none"
    told = standings.text(tmp_path, {run.name for run in (tmp_path / "runs").iterdir()})
    assert re.findall(r"^ +(?:none|rope) +\d+ +not measured +–$", told, re.MULTILINE)
    assert "learn" not in pasted + told


@pytest.mark.parametrize("kept", ["training", "length_extrapolation", "permutation_sensitivity"])
def test_any_one_experiment_alone(tmp_path: Path, kept: str) -> None:
    write_sweep(tmp_path, ("none", "rope"), 2, rows=lambda rows: [row for row in rows if row.experiment == kept])
    assert report.main([str(tmp_path)]) == 0


def _diverged(rows: list[Row]) -> list[Row]:
    """As a run that diverged leaves them: quality at each length, and a row for each other experiment."""
    kept: dict[tuple[str | int, ...], Row] = {}
    for row in rows:
        of_lengths = row.experiment == "length_extrapolation"
        if row.experiment != "training" and not (of_lengths and row.position):
            key = (row.metric, row.eval_length) if of_lengths else ()
            kept.setdefault((row.experiment, *key), replace(row, value=math.nan, status="diverged"))
    return list(kept.values())


def test_a_diverged_seed_is_counted(tmp_path: Path) -> None:
    write_sweep(tmp_path, ("none",), rows=main_rows)
    write_sweep(tmp_path, ("rope",), 2, rows=main_rows)
    write_run(tmp_path, "rope", 2, rows=_diverged, record={"status": "diverged", "message": "loss is NaN"})
    assert report.main([str(tmp_path)]) == 0
    page = read_page(tmp_path)
    _, _, rope, _ = page.tables["Token accuracy by length, copy"]
    assert all(cell.endswith("(2 of 3 seeds, 1 diverged)") for cell in rope[2:])
    assert "1 run diverged: rope on copy, seed 2" in page.text
    assert "diverged: loss is NaN" in page.text
    table = pd.read_csv(tmp_path / "report/tables/standings.csv").set_index("series")
    assert table.loc["rope", "verdict"] == "fewer than 3 seeds"


def test_an_encoder_whose_runs_all_diverged_is_named(tmp_path: Path) -> None:
    """As a contestant and as the baseline: nothing takes its place silently."""
    for name, diverged in (("a", "rope"), ("b", "none")):
        write_sweep(tmp_path / name, tuple({"none", "rope", "alibi"} - {diverged}), 3, rows=main_rows)
        write_sweep(tmp_path / name, (diverged,), 3, rows=_diverged, record={"status": "diverged"})
        assert report.main([str(tmp_path / name)]) == 0
        assert f"{diverged}diverged" in board_of(read_page(tmp_path / name))
        ranked = pd.read_csv(tmp_path / name / "report/tables/standings.csv").set_index("series")
        assert ranked.loc[diverged, "status"] == "diverged"
        if diverged == "none":
            assert set(ranked["verdict"].dropna()) == {"none: diverged"}


def test_a_task_that_no_run_learned_is_named(tmp_path: Path) -> None:
    write_sweep(tmp_path, ("none", "rope"), 2, rows=main_rows, record={"converged": False})
    write_sweep(tmp_path, ("none",), 2, task="sort", rows=main_rows)
    assert report.main([str(tmp_path)]) == 0
    text = read_page(tmp_path).text
    assert "No encoding learned copy" in text
    assert "No encoding learned sort" not in text


def test_every_run_diverged(tmp_path: Path) -> None:
    write_sweep(tmp_path, ("none", "rope"), 2, rows=_diverged, record={"status": "diverged"})
    assert report.main([str(tmp_path)]) == 0
    _, none, rope, _ = read_page(tmp_path).tables["Token accuracy by length, copy"]
    assert set(none[2:]) == set(rope[2:]) == {"diverged"}


def test_every_run_failed(tmp_path: Path) -> None:
    write_sweep(tmp_path, ("none", "rope"), 1, record={"status": "failed", "message": "out of memory"})
    assert report.main([str(tmp_path)]) == 0
    page = read_page(tmp_path)
    assert "nothing to compare yet" in page.text
    assert [line[4] for line in page.tables["Every run of the folder"][1:]] == ["failed: out of memory"] * 2


def test_unfinished_and_broken_runs_are_listed(tmp_path: Path) -> None:
    write_run(tmp_path, "none")
    (write_run(tmp_path, "rope") / "run.json").unlink()
    (write_run(tmp_path, "alibi") / "rows.csv").write_text("garbage")
    assert report.main([str(tmp_path)]) == 0
    statuses = {line[1]: line[4] for line in read_page(tmp_path).tables["Every run of the folder"][1:]}
    assert statuses["none"] == "ok"
    assert statuses["rope"].startswith("unfinished: run.json is missing")
    assert statuses["alibi"].startswith("unreadable: rows.csv cannot be read")
    assert "2 runs without rows" in read_page(tmp_path).text


def test_of_many_runs_failures_are_shown_and_all_are_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sweep(tmp_path, ("none", "rope"), rows=main_rows)
    write_run(tmp_path, "t5", 7, rows=main_rows, record={"converged": False}, config={"train": {"steps": 9}})
    monkeypatch.setattr("experiments.report.sections.folder.MOST_RUNS", 2)
    assert report.main([str(tmp_path)]) == 0
    page = read_page(tmp_path)
    shown = page.tables["Every run of the folder"][1:]
    assert [(line[1].split()[0], line[7]) for line in shown] == [("t5", "no †"), ("none", "yes")]
    assert "Shown are 2 of 7 runs" in page.text
    every = pd.read_csv(tmp_path / "report/tables/runs.csv").set_index("run_id")
    assert len(every) == 7
    assert "train.steps=9" in every["configuration"].to_dict()[next(run for run in every.index if "t5" in run)]


def test_runs_that_did_not_converge_are_marked_and_kept(tmp_path: Path) -> None:
    write_sweep(tmp_path, ("none", "rope"), 2)
    write_run(tmp_path, "rope", 2, record={"converged": False})
    assert report.main([str(tmp_path)]) == 0
    page = read_page(tmp_path)
    _, none, rope, _ = page.tables["Token accuracy by length, copy"]
    assert (none[:2], rope[:2]) == (["none", "2"], ["rope †", "3"])
    assert "rope †" in page.tables["Quality lost, copy"][0]
    assert "rope2 of 3 learned" in board_of(page)
    assert "did not learn the task within the training length (in curves a ring, in tables †: rope on copy" in page.text
    assert [line[7] for line in page.tables["Every run of the folder"][1:]] == ["yes"] * 4 + ["no †"]
    table = pd.read_csv(tmp_path / "report/tables/copy_token_accuracy.csv")
    assert set(table.loc[table["series"] == "rope", "not_converged"]) == {1}


@pytest.mark.parametrize(
    ("train", "advice"),
    [
        ({}, "They had 1 round of 2,000 steps: try train.rounds=4 or tune=true"),
        ({"rounds": 1}, "They had 1 round of 2,000 steps: try train.rounds=4 or tune=true"),
        ({"rounds": 4}, "They had up to 4 rounds of 2,000 steps: try train.steps=4000 or tune=true"),
        ({"rounds": 1, "max_steps": 500}, "They had 1 round of 500 steps: try train.max_steps=null or tune=true"),
        (
            {"rounds": 1, "drop_encoder_after": 0.5},
            "They had 1 round of 2,000 steps: try train.steps=4000 or tune=true",
        ),
        ({"rounds": 4, "learning_rate": "tuned"}, "They had up to 4 rounds of 2,000 steps: try train.steps=4000"),
        ({"rounds": 4, "stop_at_convergence": True}, "They had up to 4 rounds of 2,000 steps: try train.steps=4000"),
    ],
)
def test_runs_that_did_not_learn_are_advised_what_they_did_not_have(
    tmp_path: Path, train: dict[str, Any], advice: str
) -> None:
    write_sweep(tmp_path, ("none", "rope"), 2, rows=main_rows)
    failed, config = {"converged": False}, {"train": {"steps": 2000} | train}
    write_run(tmp_path, "alibi", rows=main_rows, record=failed, config=config)
    assert report.main([str(tmp_path)]) == 0
    assert f"say little about their encoder. {advice}." in read_page(tmp_path).text
    printed = standings.text(tmp_path, {run.name for run in (tmp_path / "runs").iterdir()})
    assert printed.endswith(f"1 of 5 runs did not learn it. {advice}")


def test_runs_of_a_budget_that_follows_from_their_size_are_advised_a_larger_one(tmp_path: Path) -> None:
    for width, steps in ((64, 36), (128, 144)):
        config = {
            "model": {"model_dim": width, "num_layers": 4, "ffn_multiple": 4},
            "train": {"steps": steps, "tokens_per_step": 2 * 48 * 64**2 // 36, "rounds": 1},
        }
        for encoder in ("none", "rope"):
            record = {"converged": (encoder, width) != ("rope", 64)}
            write_run(tmp_path, encoder, rows=main_rows, record=record, config=config, run_id=f"{encoder}-{width}")
    assert report.main([str(tmp_path)]) == 0
    advice = "They had 2 tokens a parameter: try train.tokens_per_parameter=8"
    assert advice in read_page(tmp_path).text
    assert advice in standings.text(tmp_path, {run.name for run in (tmp_path / "runs").iterdir()})


def test_names_are_escaped(tmp_path: Path) -> None:
    name = "<script>alert(1)</script>_50%&$#{x}|[a](b)"
    write_run(tmp_path, "none")
    write_run(tmp_path, name, run_id="odd", task="copy", record={"message": "<img src=x onerror=alert(1)>"})
    assert report.main([str(tmp_path)]) == 0
    page = read_page(tmp_path)
    assert scripts_of(tmp_path) == {'<script src="report.js">'}
    assert all("onerror" not in attrs for _, attrs in page.tags)
    assert page.tables["Token accuracy by length, copy"][2][0] == name
    markdown = (tmp_path / "report/report.md").read_text()
    assert "<script" not in markdown
    assert "<img" not in markdown
    assert r"\|\[a\](b)" in markdown


def test_tasks_have_own_sections_and_corrections(tmp_path: Path) -> None:
    for task in ("copy", "sort"):
        write_sweep(tmp_path, ("none", "rope"), 3, task=task, rows=main_rows)
    assert report.main([str(tmp_path)]) == 0
    page = read_page(tmp_path)
    headings = [caption for caption in page.tables if caption.startswith("Token accuracy")]
    assert headings == ["Token accuracy by length, copy", "Token accuracy by length, sort"]
    table = pd.read_csv(tmp_path / "report/tables/standings.csv").set_index(["task", "series"])
    for task in ("copy", "sort"):
        assert table.loc[(task, "rope"), "p_holm"] == table.loc[(task, "rope"), "p"]


def test_lower_is_better_for_text(tmp_path: Path) -> None:
    def as_text(rows: list[Row]) -> list[Row]:
        kept = [r for r in rows if r.metric == "token_accuracy" and r.experiment == "length_extrapolation"]
        return [replace(r, metric="bits_per_byte", value=4 - 2 * r.value, chance=4.5) for r in kept]

    write_sweep(tmp_path, ("none", "rope"), 3, task="text", rows=as_text)
    assert report.main([str(tmp_path)]) == 0
    table = pd.read_csv(tmp_path / "report/tables/standings.csv").set_index("series")
    assert table.loc["rope", "verdict"] == "worse"
    assert list(board_of(read_page(tmp_path), "Standings, text")) == ["none", "rope"]


def test_an_experiment_of_ones_own_is_shown(tmp_path: Path) -> None:
    def renamed(rows: list[Row]) -> list[Row]:
        return [replace(r, experiment="outside", metric="warmth") for r in rows if r.metric == "quality_loss"]

    write_run(tmp_path, "none", rows=renamed)
    assert report.main([str(tmp_path)]) == 0
    assert "Outside, copy" in read_page(tmp_path).tables


def test_baseline_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_sweep(tmp_path, ("none", "rope"), 2, rows=main_rows)
    assert report.main([str(tmp_path), "--baseline", "rope"]) == 0
    assert set(pd.read_csv(tmp_path / "report/tables/standings.csv")["baseline"].dropna()) == {"rope"}
    capsys.readouterr()
    assert report.main([str(tmp_path), "--baseline", "ropee"]) == 2
    assert capsys.readouterr().err == "error: no baseline named 'ropee'. Did you mean 'rope'? Allowed: none; rope\n"


def test_what_is_asked_is_answered_first(tmp_path: Path) -> None:
    write_sweep(tmp_path, ("none", "rope", "alibi"), 3, rows=main_rows)
    assert report.main([str(tmp_path), "--baseline", "rope"]) == 0
    kept = {key: each["kept"] for key, each in kept_of(tmp_path).items()}
    means = {name: statistics.fmean(kept[name, seed] for seed in range(3)) for name in ("none", "rope", "alibi")}
    table = pd.read_csv(tmp_path / "report/tables/standings.csv").set_index("series")
    page = read_page(tmp_path)
    board, head = board_of(page), "Kept, minus rope, points"
    assert board["rope"][head] == "–"
    for name in ("none", "alibi"):
        line, points = table.loc[name], 100 * (means["rope"] - means[name])
        said = {"better": f"rope loses to {name} by", "worse": f"rope beats {name} by"}
        assert said.get(line["verdict"], f"rope and {name}:") in page.text
        its = re.escape(fixed(-points, "+.1f"))
        p = f"p {p_value(line['p_holm'])}"
        assert re.search(
            rf"\({name} less rope: {its} \[[^]]+\] points of quality kept, {p}, 3 runs each",
            page.text,
        )
        assert re.fullmatch(rf"{its} \[[^]]+\], {p}: {line['verdict']}", board[name][head])
    assert not re.search(r"[ (\[]-\d", page.text), "a hyphen for a minus sign"
    assert report.main([str(tmp_path)]) == 0
    assert "Better than" in board_of(read_page(tmp_path))["rope"]


def test_over_tasks_it_is_said_where_each_is_better_than_what_was_asked(tmp_path: Path) -> None:
    for task, seeds in (("copy", 2), ("sort", 3)):
        write_sweep(tmp_path, ("none", "rope", "alibi"), seeds, task=task, rows=main_rows)
    assert report.main([str(tmp_path), "--baseline", "rope"]) == 0
    table = pd.read_csv(tmp_path / "report/tables/standings.csv").set_index(["task", "series"])
    board = board_of(read_page(tmp_path), "Standings over 2 tasks")
    assert board["rope"]["Than rope"] == "–"
    for name in ("none", "alibi"):
        verdicts = {task: table.loc[(task, name), "verdict"] for task in ("copy", "sort")}
        assert board[name]["Than rope"] == f"{verdicts['sort']}: sort; {verdicts['copy']}: copy", "decided first"


def test_a_task_is_named_without_its_settings_unless_another_has_its_name(tmp_path: Path) -> None:
    few, more = "sort(num_symbols=4)", "sort(num_symbols=8)"
    for task, heads in (("copy", []), (few, ["copy", "sort"]), (more, ["copy", few, more])):
        write_sweep(tmp_path, ("none", "rope"), 2, task=task, rows=main_rows)
        assert report.main([str(tmp_path)]) == 0
        if heads:
            page = read_page(tmp_path)
            board = board_of(page, f"Standings over {len(heads)} tasks")
            assert [head.partition("kept")[0] for head in board["rope"] if "kept" in head] == heads
            assert f"Standings, {few}" in (tmp_path / "report/report.md").read_text() + page.text


def test_the_task_with_most_decided_is_told_first(tmp_path: Path) -> None:
    for task, seeds in (("copy", 2), ("reverse", 2), ("sort", 4)):  # two decide nothing
        write_sweep(tmp_path, ("none", "rope", "alibi"), seeds, task=task, rows=main_rows)
    assert report.main([str(tmp_path), "--baseline", "rope"]) == 0
    told = (tmp_path / "report/report.md").read_text()
    assert told.index("sort: 2 of 2 beat") < told.index("copy: 0 of 2 beat") < told.index("reverse: 0 of 2 beat")


def test_the_title_counts_every_comparison_that_was_asked_for(tmp_path: Path) -> None:
    """Also of a task that not all series have, which the standings over tasks leave out."""
    for task, names in {
        "copy": ("none", "rope", "t5"),
        "sort": ("none", "rope", "t5"),
        "reverse": ("none", "rope"),
    }.items():
        write_sweep(tmp_path, names, 3, task=task, rows=main_rows)
    assert report.main([str(tmp_path), "--baseline", "rope"]) == 0
    assert (tmp_path / "report/report.md").read_text().startswith("# Against rope, 5 comparisons on 3 tasks: ")


def declare(folder: Path, question: str, *looks: int, **others: object) -> None:
    """Note the rule of a sweep that adds seeds to compare each series with one."""
    rule = {"question": question, "looks": looks, "weights": [1 / len(looks)] * len(looks), "delta": None}
    runs = tuple(run.name for run in (folder / "runs").iterdir())
    sweeps.write(folder, sweeps.Sweep("python run.py -m …", runs, rule | {"first_seed": 0} | others))


def test_a_search_for_the_best_says_who_may_be_it_and_gives_no_places(tmp_path: Path) -> None:
    for task in ("copy", "sort"):
        write_sweep(tmp_path, ("none", "rope", "t5"), 3, task=task, rows=main_rows)
    write_sweep(tmp_path, ("alibi",), 3, task="copy", rows=main_rows)
    declare(tmp_path, "best", 3, 5)
    assert report.main([str(tmp_path)]) == 0
    table = pd.read_csv(tmp_path / "report/tables/standings.csv").set_index(["task", "series"])
    names = {
        task: list(part.index[part["possibly_best"]])
        for task, part in table.droplevel(0).groupby(table.index.get_level_values(0))
    }
    assert 0 < len(names["copy"]) < 4
    title, said = (tmp_path / "report/report.md").read_text().split("\n", 1)
    counts = f"{len(names['sort'])} of 3 on sort and {len(names['copy'])} of 4 on copy"  # first where fewest are left
    assert title.startswith(f"# Possibly the best, with 95 % confidence on each task: {counts}; on all: ")
    assert f"copy: {len(names['copy'])} of 4 are possibly the best: {few(names['copy'])}." in said
    assert "More seeds may leave fewer" in said
    board = board_of(read_page(tmp_path), "Standings over 2 tasks")
    for name in ("none", "rope", "t5", "alibi"):
        assert board[name]["Possibly the best on"] == (listed(task for task in names if name in names[task]) or "–")
    board = board_of(read_page(tmp_path), "Standings, copy")
    assert "place" not in board["rope"]
    assert re.match(r"no: beside (alibi|t5|none) −[\d.]+ \[.*\], p ", board["rope"]["Possibly the best"])
    assert board[names["copy"][0]]["Possibly the best"] == "yes"


def test_ones_own_in_a_search_for_the_best(tmp_path: Path) -> None:
    source = {"source": {"file": "mine.py", "check": "30 promises hold, 0 fail"}}
    write_sweep(tmp_path, ("none", "rope"), 3, rows=main_rows)
    write_sweep(tmp_path, ("mine",), 3, rows=main_rows, record=source | {"converged": False})
    declare(tmp_path, "best", 3)
    assert report.main([str(tmp_path)]) == 0
    said = (tmp_path / "report/report.md").read_text()
    assert said.startswith("# copy: with 95 % confidence “none” is the best of 2\n")
    assert "\n\ncopy: “none” is the best of 2, with 95 % confidence. mine, yours: " in said
    assert "mine, yours: did not learn." in said
    assert report.main([str(tmp_path), "--baseline", "rope"]) == 0
    assert "rope loses to none by" in (tmp_path / "report/report.md").read_text()
    assert report.main([str(tmp_path), "--baseline", "none"]) == 0
    assert "none beats rope by" in (tmp_path / "report/report.md").read_text(), "asked for, though it is the default"


def test_a_search_for_the_best_over_many_tasks_gives_no_places_either(tmp_path: Path) -> None:
    tasks = ("copy", "sort", "reverse", "mode", "parity", "majority")
    for task in tasks:
        write_sweep(tmp_path, ("none", "rope", "t5"), 3, task=task, rows=main_rows)
    declare(tmp_path, "best", 3)
    assert report.main([str(tmp_path)]) == 0
    board = board_of(read_page(tmp_path), f"Standings over {len(tasks)} tasks")
    assert set(board["rope"]) & {"Places", "place", "better", "worse", "compared"} == set()
    assert board["rope"]["Possibly the best on"] == "–"


def test_one_of_which_none_learned_is_in_the_board_over_tasks(tmp_path: Path) -> None:
    for task in ("copy", "sort"):
        write_sweep(tmp_path, ("rope", "t5"), 3, task=task, rows=main_rows)
        write_sweep(tmp_path, ("none",), 3, task=task, rows=main_rows, record={"converged": False})
    declare(tmp_path, "none", 3)
    assert report.main([str(tmp_path)]) == 0
    assert "nonelearned 0 of 2 tasks" in board_of(read_page(tmp_path), "Standings over 2 tasks")


def test_a_difference_that_was_asked_for_is_one_number_and_the_title_has_none(tmp_path: Path) -> None:
    """Later seeds of the baseline, with half the quality beyond training, move its mean and not the difference."""

    def later(rows: list[Row]) -> list[Row]:
        worse = [row.seed > 2 and row.eval_length > 16 for row in main_rows(rows)]
        return [replace(row, value=row.value / (1 + low)) for row, low in zip(main_rows(rows), worse, strict=True)]

    write_sweep(tmp_path, ("alibi",), 5, rows=later)
    write_sweep(tmp_path, ("none", "rope"), 3, rows=main_rows)
    write_run(tmp_path, "t5", record={"converged": False}, rows=main_rows)
    declare(tmp_path, "alibi", 3)
    assert report.main([str(tmp_path)]) == 0
    table = pd.read_csv(tmp_path / "report/tables/standings.csv").set_index("series")
    title, said = (tmp_path / "report/report.md").read_text().split("\n", 1)
    assert title == "# copy: alibi beats rope; none is undecided; t5 did not learn"
    points = 100 * table.loc["rope", "difference"]
    assert abs(points - 100 * (table.loc["rope", "kept"] - table.loc["alibi", "kept"])) > 1
    assert f"alibi beats rope by {abs(points):.0f} points (rope less alibi at the look that decided: −" in said
    assert "alibi and none: undecided (none less alibi at the last look: " in said
    assert "alibi and t5: no comparison (no run of t5 learned copy)." in said


@pytest.mark.parametrize(
    ("question", "looks", "more", "verdict"),
    [
        ("none", (3,), (), "undecided"),
        ("none", (3, 5), (), "open"),
        ("statements", (3, 5), (), "undecided"),
        ("", (), (), "undecided"),
        ("", (), ("none-copy-seed3-abc1234",), "open"),
    ],
)
def test_what_planned_runs_may_decide_is_open(
    tmp_path: Path, question: str, looks: tuple[int, ...], more: tuple[str, ...], verdict: str
) -> None:
    write_sweep(tmp_path, ("none", "rope", "alibi"), 3, rows=main_rows)
    if question:
        declare(tmp_path, question, *looks)
    else:
        runs = tuple(run.name for run in (tmp_path / "runs").iterdir())
        sweeps.write(tmp_path, sweeps.Sweep("python run.py -m …", (*runs, *more)))
    assert report.main([str(tmp_path)]) == 0
    table = pd.read_csv(tmp_path / "report/tables/standings.csv").set_index("series")
    assert table["verdict"].dropna().to_dict() == {"rope": "worse", "alibi": verdict}
    said = (tmp_path / "report/report.md").read_text()
    assert (f"# copy: none beats rope; alibi is {verdict}\n" if question == "none" else f"; {verdict} against ") in said
    other = {"open": "undecided", "undecided": "open"}[verdict]
    assert not re.search(rf"\b{other}\b", read_page(tmp_path).text.partition("Runs")[0])


@pytest.mark.parametrize("learned", [["copy"], ["copy", "sort"]])
def test_over_tasks_each_answer_names_its_task(tmp_path: Path, learned: list[str]) -> None:
    for task in learned:
        write_sweep(tmp_path, ("none", "rope"), 3, task=task, rows=main_rows)
    write_sweep(tmp_path, ("none", "rope"), 3, task="addition", rows=main_rows, record={"converged": False})
    declare(tmp_path, "none", 3)
    assert report.main([str(tmp_path)]) == 0
    found = (tmp_path / "report/report.md").read_text().split("\n\n")[1 : len(learned) + 2]
    for task, text in zip(learned, found, strict=False):
        assert text.startswith(f"{task}: none beats rope by ")
    assert found[-1] == "addition: no comparison (no run of any encoding learned it)."
    page = (tmp_path / "report/tasks/addition.html").read_text()
    assert "<h1>No encoding learned addition" in page
    assert page.count("no comparison") == 1
    table = pd.read_csv(tmp_path / "report/tables/standings.csv").set_index("task")
    assert table.loc["addition", ["p", "p_holm", "effect", "difference"]].isna().all(axis=None)
    assert "1.000" not in status.text(tmp_path)


def test_many_answers_are_one_finding_for_each_task_with_the_numbers(tmp_path: Path) -> None:
    for task in ("copy", "sort"):
        write_sweep(tmp_path, ("none", "rope", "alibi"), 3, task=task, rows=main_rows)
    declare(tmp_path, "none", 3)
    assert report.main([str(tmp_path)]) == 0
    table = pd.read_csv(tmp_path / "report/tables/standings.csv").set_index(["task", "series"])
    found = (tmp_path / "report/report.md").read_text().split("\n\n")[1:3]
    for task, text in zip(("copy", "sort"), found, strict=True):
        assert text.startswith(f"{task}: 0 of 2 beat “none” (quality kept, less none, points: ")
        for name in ("rope", "alibi"):
            assert f"{name} {fixed(100 * table.loc[(task, name), 'difference'], '+.1f')} \\[" in text


def test_of_many_seeds_the_curve_has_an_interval_and_says_so(tmp_path: Path) -> None:
    write_sweep(tmp_path, ("none",), 9, rows=main_rows)
    assert report.main([str(tmp_path)]) == 0
    page = (tmp_path / "report/index.html").read_text()
    assert "<span>thick: mean, band: 95 % interval</span>" in page
    assert 'class="seed"' not in page
    (band,) = re.findall(r'class="band" d="([^"]+)"', page.partition('class="hero narrow"')[0])
    ends = [float(y) for y in re.findall(r"\d+ ([\d.]+)", band)]
    assert len(ends) == 2 * len(LENGTHS), "there and back"
    where = {"metric": ["token_accuracy"], "eval_length": ["128"], "experiment": ["length_extrapolation"]}
    _, *expected = mean_and_interval(list(values_of(tmp_path, **where).values()))
    assert ends[len(LENGTHS) - 1 : len(LENGTHS) + 1] == pytest.approx([316 - 304 * end for end in expected], abs=0.06)
    write_sweep(tmp_path, ("rope",), 3, rows=main_rows)
    assert report.main([str(tmp_path)]) == 0
    assert "<span>thick: mean, thin: seeds, band: 95 % interval</span>" in (tmp_path / "report/index.html").read_text()


def test_a_task_that_no_run_learned_has_named_curves(tmp_path: Path) -> None:
    write_sweep(tmp_path, ("none", "rope"), 2, rows=main_rows, record={"converged": False})
    write_sweep(tmp_path, ("alibi",), 9, rows=main_rows, record={"converged": False})
    assert report.main([str(tmp_path)]) == 0
    page = (tmp_path / "report/index.html").read_text()
    wide = page.partition('class="hero wide"')[2].partition("</svg>")[0]
    assert set(re.findall(r'<text class="lab [^>]+>(\w+)<', wide)) == {"none", "rope", "alibi"}
    assert wide.count('class="seed lost"') == 2 + 2 + 1, "of more than eight, their mean"
    assert "<span>ring: did not learn</span>" in page


@pytest.mark.parametrize(
    ("values", "ticks"),
    [([1.31, 1.55], [1.3, 1.4, 1.5, 1.6]), ([2.0, 2.0], [2.0, 2.1]), ([1.2, 7.9], [0.0, 2.0, 4.0, 6.0, 8.0])],
)
def test_bits_have_ticks_that_set_them_apart(values: list[float], ticks: list[float]) -> None:
    """Where guesses lie beyond them, no line is drawn at a wrong place: their value stands there."""
    rows = pd.DataFrame({"value": values, "eval_length": [128, 256], "chance": 9.5})
    axes = curves.axes(rows.assign(metric="bits_per_byte", train_length=128))
    assert list(axes.ticks) == ticks
    drawn = drawing.curves([drawing.Line("one", "input", [(128, values[0]), (256, values[1])])], axes, "")
    assert 'class="chance"' not in drawn
    assert "guessing: 9.50, off the scale" in drawn
    assert 'class="chance"' not in drawing.small([], axes, 100, 26)


def test_what_rises_is_told_at_the_first_length_where_it_shows(tmp_path: Path) -> None:
    """Bits of 1.420 and 1.424 are printed alike; and they rise where a share falls."""

    def bits(before: list[Row]) -> list[Row]:
        values = {8: 1.42, 16: 1.42, 32: 1.424, 64: 1.53}
        found = {row.eval_length: row for row in main_rows(before) if row.eval_length in values}
        measured = {"metric": "bits_per_byte", "chance": 2.8}
        return [replace(row, value=values[length], **measured) for length, row in found.items()]

    write_sweep(tmp_path, ("none", "rope"), 1, rows=bits, task="text")
    assert report.main([str(tmp_path)]) == 0
    text = read_page(tmp_path).text
    assert re.search(r"none rises most: 1\.42 → 1\.53 bits per byte\s*from length 16 to 64[.;]", text)


def test_a_run_to_come_is_of_the_size_that_lacks_it() -> None:
    """Only its encoder, task and seed are known before it begins."""
    names = {"text(1M)": ["rope-text-seed0-1", "rope-text-seed1-2"], "text(2M)": ["rope-text-seed0-3"]}
    names["copy"] = ["rope-copy-seed0-4"]
    lines = [{"run_id": run, "task": task, "status": "ok"} for task, runs in names.items() for run in runs]
    found = results.Results(Path(), pd.DataFrame(), pd.DataFrame(lines), {}, {}, ("rope-text-seed1-5",))
    assert [found.waits_for(task) for task in names] == [False, True, False]
    assert all(replace(found, missing=("rope-text-seed0-6",)).waits_for(task) for task in list(names)[:2])
    begun = replace(found, runs=found.runs.assign(status=["running", "ok", "ok", "ok"]), missing=())
    assert [begun.waits_for(task) for task in names] == [True, False, False]


def test_curves_are_named_at_their_ends_in_the_order_of_these() -> None:
    """Two lines that are one up to twice the training length, and end a pixel apart; a name too long for a phone."""
    axes = drawing.Axes((8, 16, 32, 64, 128), 16, (0.0, 50.0, 100.0))
    shared = [(8, 100.0), (16, 100.0), (32, 90.0)]
    lines = [
        drawing.Line("one", "input", [*shared, (64, 80.0), (128, 20.3)]),
        drawing.Line("another_one_of_many", "rotation", [*shared, (64, 50.0), (128, 20.0)]),
    ]
    both = drawing.curves(lines, axes, "").partition('class="hero narrow"')
    for drawn, long in ((both[0], "another_one_of_many"), (both[2], "another_one_of_…")):
        places = {name: int(y) for y, name in re.findall(r'<text class="lab [^>]+ y="(\d+)"[^>]*>([^<]+)<', drawn)}
        assert set(places) == {"one", long}
        assert places["one"] + 17 <= places[long], "one below the other, as the lines are"


def test_no_places_where_other_pairs_were_not_tested(tmp_path: Path) -> None:
    for task in ("copy", "sort"):
        write_sweep(tmp_path, ("none", "rope", "alibi"), 3, task=task, rows=main_rows)
    declare(tmp_path, "none", 3)
    assert report.main([str(tmp_path)]) == 0
    assert "place" not in next(iter(board_of(read_page(tmp_path)).values()))
    assert not re.search(r"place \d|places? of|Place:|wide ranges", read_page(tmp_path).text)
    assert "place" not in standings.text(tmp_path, {run.name for run in (tmp_path / "runs").iterdir()})


@pytest.mark.parametrize("made", [False, True])
def test_a_folder_without_runs_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], made: bool
) -> None:
    folder = tmp_path / "sweep"
    if made:
        folder.mkdir()
    assert report.main([str(folder)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: no ")
    assert error.count("\n") == 1


def test_runs_made_differently_are_warned_of(tmp_path: Path) -> None:
    write_run(tmp_path, "none", record={"corpus": {"sha256": "a" * 64, "bytes": 5}})
    write_run(tmp_path, "rope", record={"torch": "2.12.0", "corpus": {"sha256": "b" * 64, "bytes": 5}})
    assert report.main([str(tmp_path)]) == 0
    text = read_page(tmp_path).text
    assert "The runs differ in torch: 2.12.0 (rope) and 2.13.0 (none)." in text
    assert "The runs differ in corpus: aaaaaaaaaaaa (none) and bbbbbbbbbbbb (rope)." in text


def test_a_setting_compared_in_every_encoder_is_not_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def write(encoder: str, rate: float) -> None:
        write_run(tmp_path, encoder, run_id=f"{encoder}-{rate}", config={"train": {"learning_rate": rate}})

    write("none", 0.01)
    write("rope", 0.02)
    assert report.main([str(tmp_path)]) == 0
    assert "warning: The runs differ in train.learning_rate: 0.01 (none · " in capsys.readouterr().out
    write("none", 0.02)
    write("rope", 0.01)
    assert report.main([str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "rope · train.learning_rate=0.02" in said
    assert "warning" not in said


def test_a_precision_counts_where_a_model_was_trained(tmp_path: Path) -> None:
    write_run(tmp_path, "none")
    write_run(tmp_path, "rope", record={"precision": "bfloat16"}, config={"train": None})
    assert report.main([str(tmp_path)]) == 0
    assert "differ in precision" not in read_page(tmp_path).text
    write_run(tmp_path, "alibi", record={"precision": "bfloat16"})
    assert report.main([str(tmp_path)]) == 0
    assert "The runs differ in precision: bfloat16 (alibi) and float32 (none)." in read_page(tmp_path).text


def test_leftovers_of_an_earlier_report_go(tmp_path: Path) -> None:
    write_sweep(tmp_path, ("none", "rope"), 1, rows=main_rows)
    assert report.main([str(tmp_path)]) == 0
    shutil.rmtree(tmp_path / "runs")
    write_run(tmp_path, "none", rows=lambda rows: [row for row in rows if row.experiment == "training"])
    assert report.main([str(tmp_path)]) == 0
    assert {path.name for path in (tmp_path / "report/figures").iterdir()} == {"copy_training.svg"}
    assert {path.name for path in (tmp_path / "report/encoders").iterdir()} == {"none.html"}


def test_experiments_draw_one_run_from_rows_in_memory() -> None:
    labels: dict[str, Any] = {"run_id": "a", "encoder": "rope", "positions": "sequential", "task": "copy"}
    labels |= {"seed": 0, "train_length": 16}
    rows = frame(made_up_rows(labels, np.random.default_rng(0)))
    for module in (length_extrapolation, permutation_report):
        figures = module.plot(rows)
        assert figures
        for figure in figures.values():
            assert "copy" in " ".join(text.get_text() for text in figure.findobj(Text))


def test_a_series_says_what_departs_from_the_usual_setting(tmp_path: Path) -> None:
    def config(causal: bool, rate: float) -> dict[str, Any]:
        return {"model": {"causal": causal}, "train": {"learning_rate": rate}}

    for seed in range(5):
        write_run(tmp_path, "rope", seed, config=config(True, 0.1))
    write_run(tmp_path, "rope", 0, config=config(False, 0.1), run_id="odd")
    found = results.read(tmp_path)
    assert set(found.rows["series"]) == {"rope", "rope · model.causal=false"}
    assert found.settings["copy"]["model.causal"] == "true, unless a series says otherwise"
    assert found.settings["copy"]["train.learning_rate"] == "0.1"
    for seed in range(3):
        write_run(tmp_path, "rope", seed, config=config(True, 0.2), run_id=f"half{seed}")
    found = results.read(tmp_path)
    labels = {"rope · train.learning_rate=0.1", "rope · train.learning_rate=0.2"}
    assert set(found.rows["series"]) == {*labels, "rope · model.causal=false · train.learning_rate=0.1"}
    assert "train.learning_rate" not in found.settings["copy"]


def test_runs_with_other_measures_of_one_encoder_are_one_series(tmp_path: Path) -> None:
    write_run(tmp_path, "rope", 0)
    structure = {"train": None, "experiment": ["structure"], "structure": {"reach": 4}}
    write_run(tmp_path, "rope", 0, config=structure, run_id="untrained")
    assert set(results.read(tmp_path).rows["series"]) == {"rope"}
    assert results.read(tmp_path).configs["untrained"]["trained"] == "false"
    again = {"train": None, "experiment": ["length_extrapolation"]}
    write_run(tmp_path, "rope", 0, config=again, run_id="measured-twice")
    assert len(set(results.read(tmp_path).rows["series"])) == 3


def test_the_usual_numbering_goes_without_saying(tmp_path: Path) -> None:
    for seed in range(4):
        for encoder in ("none", "rope"):
            write_run(tmp_path, encoder, seed)
    write_run(tmp_path, "rope", 0, positions="randomized", run_id="rope-randomized-copy-seed0")
    assert set(results.read(tmp_path).runs["series"]) == {"none", "rope", "rope · randomized"}


def test_over_tasks_wins_and_losses_are_counted(tmp_path: Path) -> None:
    for task in ("add", "copy", "sort"):
        write_sweep(tmp_path, ("none", "alibi", "rope"), 3, task=task, rows=main_rows)
    for task in ("even", "odd"):  # further tasks of fewer series are compared by themselves
        write_sweep(tmp_path, ("none", "alibi"), 3, task=task, rows=main_rows)
    assert report.main([str(tmp_path)]) == 0
    assert set(board_of(read_page(tmp_path), "Standings over 3 tasks")) == {"none", "alibi", "rope"}
    board = pd.read_csv(tmp_path / "report/tables/over_tasks.csv").set_index("series")
    assert board["wins"].sum() == board["losses"].sum() > 0
    assert set(board["tasks_learned"]) == {3}
    pairs = pd.read_csv(tmp_path / "report/tables/pairs.csv").set_index(["first", "second"])
    assert pairs.loc[("none", "rope"), "tasks"] == 3
    assert pairs.loc[("none", "rope"), "wins"] == pairs.loc[("rope", "none"), "losses"]


def test_a_task_that_no_series_keeps_does_not_count_over_tasks(tmp_path: Path) -> None:
    def lost(rows: list[Row]) -> list[Row]:
        return [
            replace(row, value=row.chance) if row.eval_length > row.train_length else row for row in main_rows(rows)
        ]

    for task, rows in (("add", main_rows), ("copy", main_rows), ("sort", lost)):
        write_sweep(tmp_path, ("none", "alibi"), 3, task=task, rows=rows)
    assert report.main([str(tmp_path)]) == 0
    page = read_page(tmp_path)
    assert "no encoding keeps half of its quality at twice the training length: sort." in page.text
    assert set(board_of(page, "Standings over 2 tasks")) == {"none", "alibi"}


def test_many_tasks_have_one_figure_a_section_and_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (build, task_page):
        monkeypatch.setattr(module, "PICTURED", 1)
    for task in ("copy", "sort"):
        write_sweep(tmp_path, ("none", "alibi"), 1, task=task)
    assert report.main([str(tmp_path)]) == 0
    drawn = {path.stem for path in (tmp_path / "report/figures").glob("copy_*.svg")}
    assert drawn == {"copy_token_accuracy", "copy_sensitivity"}
    assert "each section shows only its first figure" in read_page(tmp_path).text
    assert (tmp_path / "report/tables/copy_exact_match.csv").exists()


def test_loss_by_position_ends_at_the_last_and_is_split() -> None:
    """An answer twice as long as the word: of 8 symbols trained on it has 16 places."""
    shared: dict[str, Any] = {"run_id": "r", "encoder": "none", "positions": "sequential", "task": "duplicate_string"}
    shared |= {"seed": 0, "experiment": "length_extrapolation", "metric": "position_loss", "train_length": 8}
    rows = [
        Row(**shared, eval_length=length, position=place, value=1.0)
        for length in (8, 32)
        for place in range(1, 2 * length + 1)
    ]
    (figure,) = length_extrapolation.plot(frame(rows).assign(series="none", converged=True)).values()
    inside, beyond = figure.axes
    assert (inside.get_xlim()[1], beyond.get_xlim()[1]) == (16, 64)
    upright = [set(np.asarray(line.get_xdata(), dtype=float)) for line in beyond.lines]
    assert [places for places in upright if len(places) == 1] == [{16.0}]


def test_an_encoder_from_outside_is_described_by_its_run(tmp_path: Path) -> None:
    source = {
        "docstring": "Biases by a <b>guess</b>.\n\n    scores - x\n\nArgs:\n    x: how much.",
        "knobs": {"x": "1.5"},
    }
    source |= {"family": "score bias", "file": "mine.py", "sha256": "ab" * 32, "check": "28 promises hold, 0 fail"}
    write_sweep(tmp_path, ("none",), 1, rows=main_rows)
    write_run(tmp_path, "mine", rows=main_rows, record={"source": source})
    assert report.main([str(tmp_path)]) == 0
    page = PageReader()
    page.feed((tmp_path / "report/encoders/mine.html").read_text())
    for said in (
        "Biases by a <b>guess</b>.",
        "scores - x",
        "x = 1.5",
        "how much.",
        "mine.py, sha256 abab",
        "28 promises hold",
    ):
        assert said in page.text
    assert "mine is from mine.py (sha256 abababababab)" in (tmp_path / "report/methods.txt").read_text()
    assert 'class="f-other" data-e="mine"' in (tmp_path / "report/index.html").read_text()


@pytest.mark.parametrize(
    ("check", "warned"),
    [
        ("30 promises hold, 0 fail, 0 do not apply", None),
        ("26 promises hold, 4 fail, 0 do not apply", "mine breaks promises (26 promises hold, 4 fail"),
        ("not checked: python -m pe_zoo check mine.py", "mine was not checked, so that a mistake in it would show"),
    ],
)
def test_an_encoder_that_fails_its_contract_is_warned_of(tmp_path: Path, check: str, warned: str | None) -> None:
    write_sweep(tmp_path, ("none",), 1, rows=main_rows)
    write_run(tmp_path, "mine", rows=main_rows, record={"source": {"file": "mine.py", "check": check}})
    assert report.main([str(tmp_path)]) == 0
    page = read_page(tmp_path).text
    assert (warned in page) if warned else ("mine breaks" not in page and "mine was not" not in page)


def test_saved_models_in_one_folder_are_named_each_without_their_paths(tmp_path: Path) -> None:
    for place in ("one", "two"):
        config = {
            "model": {"checkpoint": f"/far/{place}", "sha256": place * 9},
            "task": {"name": "copy", "tokenizer": f"/far/{place}"},
            "train": {"elsewhere": "true"},
        }
        write_run(tmp_path, place, rows=main_rows, config=config)
    assert set(results.read(tmp_path).runs["series"]) == {"one", "two"}
    assert report.main([str(tmp_path)]) == 0
    title = (tmp_path / "report/report.md").read_text().splitlines()[0]
    assert re.match(r"# Models as they are, % at 128: one [\d.]+ and two [\d.]+$", title), title


def test_a_parameter_that_training_left_where_it_was_is_told(tmp_path: Path) -> None:
    """A variant that fixes it tests next to nothing."""
    write_sweep(tmp_path, ("none",), 1, rows=main_rows)
    for seed, share in enumerate((0.001, 0.004)):
        moved = {"offset": share, "slope": 0.5, "gate": None, "width": 20 * share}
        record = {"source": {"file": "mine.py", "check": "28 promises hold, 0 fail"}, "moved": moved}
        write_run(tmp_path, "mine", seed, rows=main_rows, record=record)
    assert report.main([str(tmp_path)]) == 0
    assert "mine: offset moved by less than 1 % in every run: to learn it or to fix it" in read_page(tmp_path).text


def test_a_comparison_with_ones_own_encoder_shows_its_variant_first(tmp_path: Path) -> None:
    write_sweep(tmp_path, (*ENCODERS, "fire", "cope"), 3, rows=main_rows)
    source = {"source": {"file": "mine.py", "check": "28 promises hold, 0 fail"}}
    for name in ("mine", "mine(gate=False)"):
        for seed in range(3):
            moved = {"slope": 0.5} if "gate" in name else {"gate": 0.2, "slope": 0.9}
            config = {"encoder": {"name": "mine", "gate": "gate" not in name}}
            run_id = f"{name.partition('(')[0]}-{len(name)}-{seed}"
            write_run(
                tmp_path,
                name,
                seed,
                run_id=run_id,
                rows=main_rows,
                config=config,
                record=source | {"moved": moved} | {"choice": "mine"},
            )
    assert report.main([str(tmp_path), "--baseline", "mine"]) == 0
    page = (tmp_path / "report/index.html").read_text("utf-8")
    first = page.partition("<svg")[2].partition("</svg>")[0]
    assert {"mine", "mine(gate=False)"} <= set(re.findall(r">([^<>]+)</text>", first))
    said = " ".join((tmp_path / "report/report.md").read_text("utf-8").split())
    assert "Ahead by their means, and not decided, in points: " in said
    of_mine = (tmp_path / "report/encoders/mine.html").read_text("utf-8")
    assert "gate by 20 % of its size; slope by 90 % of its size; 3 runs" in of_mine
    assert "slope by 50 % of its size; 3 runs" in of_mine


def test_the_page_of_an_encoder_names_its_curve_and_gives_its_numbers(tmp_path: Path) -> None:
    write_sweep(tmp_path, ("none", "rope", "alibi"), 3, rows=main_rows)
    for seed in range(3):
        write_run(tmp_path, "t5", seed, rows=main_rows, record={"converged": False})
    assert report.main([str(tmp_path), "--baseline", "alibi"]) == 0
    table = pd.read_csv(tmp_path / "report/tables/standings.csv").set_index("series")
    of = {name: (tmp_path / f"report/encoders/{name}.html").read_text("utf-8") for name in ("alibi", "rope", "t5")}
    for name in ("alibi", "rope"):
        cell = of[name].partition('<ul class="smalls">')[2].partition("</ul>")[0]
        texts = re.findall(r'<text class="(tick(?: b)?)"[^>]*>([^<]+)</text>', cell)
        names = [(kind, label) for kind, label in texts if not label.isdigit()]
        assert sorted(int(label) for _, label in texts if label.isdigit()) == [0, 8, 16, 100, 128], (
            "the ends of its axes"
        )
        assert [label for kind, label in names if kind == "tick b"] == [name]
        assert {label for _, label in names} == ({"alibi", "rope", "none"} if name == "alibi" else {"alibi", "rope"})
        assert 'class="other"' not in cell.rpartition('class="mean"')[0].rpartition("<g")[2], "its own is drawn last"
        line = table.loc[name]
        assert f"{name}: keeps {100 * line['kept']:.0f} [{100 * line['low']:.0f}, " in cell
        assert "3 seeds" in cell
        other = table.loc["none" if name == "alibi" else name]
        assert f"{fixed(100 * other['difference'], '+.1f')} [" in cell
        assert other["verdict"] in cell
    cell = of["t5"].partition('<ul class="smalls">')[2].partition("</ul>")[0]
    assert "t5: did not learn, 3 seeds" in cell
    assert "<svg" not in cell


def test_the_page_of_a_task_explains_the_numbers_of_untrained_encoders(tmp_path: Path) -> None:
    def untrained(rows: list[Row]) -> list[Row]:
        return [replace(rows[0], experiment="structure", metric="half_life", step=None, value=7.0)]

    write_run(tmp_path, "alibi", rows=lambda rows: [*main_rows(rows), *untrained(rows)])
    assert report.main([str(tmp_path)]) == 0
    on_task = (tmp_path / "report/tasks/copy.html").read_text("utf-8")
    assert "half of attention within, tokens: the nearest tokens" in on_task.lower()
    assert "receptive field" not in on_task, "which was not measured"


def test_the_users_own_encoder_is_the_first_finding(tmp_path: Path) -> None:
    """Whom it beats, who beats it, and whether it extrapolates, by hand: ``worse`` is what it loses from 20 on."""

    def with_loss(worse: float, learned: bool = True) -> dict[str, Any]:
        def rows(before: list[Row]) -> list[Row]:
            return [replace(row, value=0.9 - worse * (row.eval_length > 16)) for row in main_rows(before)]

        return {"rows": rows, "record": {"converged": learned}}

    mine = {"source": {"file": "mine.py", "check": "30 promises hold, 0 fail"}}
    for name, worse in (("none", 0.6), ("rope", 0.4), ("alibi", 0.0)):
        write_sweep(tmp_path / "found", (name,), 3, **with_loss(worse))
    for folder, changed in (("found", with_loss(0.4)), ("unlearned", with_loss(0.4, learned=False))):
        changed["record"] |= mine
        write_sweep(tmp_path / folder, ("mine",), 3, **changed)
    write_sweep(tmp_path / "unlearned", ("none",), 3, **with_loss(0.6))
    for folder in ("found", "unlearned"):
        assert report.main([str(tmp_path / folder)]) == 0
    text = read_page(tmp_path / "found").text
    # .5 of .9, and guessing is .1
    assert re.search(r"mine, yours: 50 %\s*of its quality kept[^;]*; better than none; worse than alibi; ", text)
    assert "undecided against rope." in text
    assert "It does not extrapolate: at twice the length it keeps 50 %. After 3 seeds." in text
    assert re.search(r"mine, yours\s*did not learn copy", read_page(tmp_path / "unlearned").text)
    assert report.main([str(tmp_path / "found"), "--baseline", "mine"]) == 0
    assert (
        read_page(tmp_path / "found").text.count("mine does not extrapolate: at twice the length it keeps 50 %.") == 1
    )


def test_what_is_told_of_ones_own_that_extrapolates_is_the_median_of_seeds(tmp_path: Path) -> None:
    """One of three seeds keeps nine tenths at 32 and one at 20 alone: the middle one decides."""
    reaches = {0: 32, 1: 20, 2: 20}

    def far(rows: list[Row]) -> list[Row]:
        return [replace(row, value=0.9 if row.eval_length <= reaches[row.seed] else 0.2) for row in main_rows(rows)]

    write_sweep(
        tmp_path, ("mine",), 3, rows=far, record={"source": {"file": "mine.py", "check": "30 promises hold, 0 fail"}}
    )
    write_sweep(tmp_path, ("none", "rope"), 3, rows=main_rows)
    assert report.main([str(tmp_path), "--baseline", "mine"]) == 0
    told = "mine extrapolates to 1.25 times the length by the median of its seeds, keeping 90% or more."
    assert told in read_page(tmp_path).text


def test_beside_an_undecided_relative_stands_its_difference_by_seed(tmp_path: Path) -> None:
    """Seeds that lie far apart, and the same for both but for .02, and .01 in one of them."""

    def with_loss(worse: float) -> dict[str, Any]:
        def value(row: Row) -> float:
            return 0.9 - (worse + 0.1 * row.seed + 0.01 * worse * (row.seed == 1)) * (row.eval_length > 16)

        return {"rows": lambda rows: [replace(row, value=value(row)) for row in main_rows(rows)]}

    mine = {"source": {"file": "mine.py", "check": "30 promises hold, 0 fail"}}
    write_sweep(tmp_path, ("mine",), 5, **with_loss(0.2), record=mine)
    write_sweep(tmp_path, ("none",), 5, **with_loss(0.22))
    declare(tmp_path, "mine", 5)
    assert report.main([str(tmp_path)]) == 0
    text = read_page(tmp_path).text
    (told,) = set(re.findall(r"undecided \(by seed the two correlate by 1\.00; paired, (.*?): not declared", text))
    assert re.match(r"−2\.\d \[−\d", told)
    shutil.rmtree(tmp_path / "sweeps")
    declare(tmp_path, "mine", 5, paired=True)
    assert report.main([str(tmp_path)]) == 0
    text = read_page(tmp_path).text
    assert f"{told}, p" in text
    assert "Student's t test of the differences by seed" in text
    assert "correlate" not in text


def test_what_is_equal_or_did_not_learn_is_not_counted_as_undecided() -> None:
    verdicts = ["better", "worse", "worse", "equal", "undecided", "did not learn", "did not learn", comparisons.TOO_FEW]
    against = pd.DataFrame(
        {"series": list("abcdefgh"), "verdict": verdicts, "difference": 0.0, "low": 0.0, "high": 0.0}
    )
    against = against.assign(p_holm=0.01)
    standing = pd.DataFrame({"series": ["none"], "status": ["ok"]})
    task = Mock(against=against, standing=standing, label="copy", tasks=2, baseline="none")
    task.is_own.return_value = False
    (finding,) = asked.in_one(task)
    assert finding.head == "copy: 1 of 8 beats “none”:"
    counted = "; 1 is undecided; 1 is equal; not compared: 2 (did not learn), 1 (fewer than 3 seeds). "
    less = "This, in points: e less none, 0.0 [0.0, 0.0]."
    assert finding.text == f"a (0.0 [0.0, 0.0] points, p 0.010); “none” beats b and c{counted}{less}"
    task.is_own.return_value = True
    task.free_running = pd.Series(dtype=float)
    standing.loc[0, ["reach", "seeds_learned", "kept_2"]] = [2.0, 1, 1.0]
    standing["series"] = "none"
    (finding,) = asked.in_one(task)
    assert finding.head == "copy: none beats 2 of 8:"
    assert finding.text == f"b and c; loses to a (0.0 [0.0, 0.0] points, p 0.010){counted}{less}"
    task.against = against.iloc[[0, 1, 2, 3, 5]]
    (finding,) = asked.in_one(task)
    assert finding.text.endswith("Of those beaten, nearest: b (0.0 [0.0, 0.0] points, p 0.010).")
    task.against = against.iloc[:2].assign(verdict="better", difference=[0.1, 0.2], low=0.05, high=0.3)
    task.against = pd.concat([task.against, against.iloc[1:5]])
    (finding,) = asked.in_one(task)
    assert "loses to b (+20.0 [+5.0, +30.0] points, p 0.010), then a; " in finding.text
    task.is_own.return_value = False
    (finding,) = asked.in_one(task)
    assert finding.head == "copy: 2 of 6 beat “none”:"
    assert finding.text.startswith("b (+20.0 [+5.0, +30.0] points, p 0.010), then a; “none” beats b and c; ")


def test_an_encoders_page_tells_what_training_did_to_its_parameters(tmp_path: Path) -> None:
    learned = {"moved": {"slope": 0.5}, "turned": {"slope": "1 of 2"}}
    learned |= {"values": {"slope": [[1.0, 0.25], [-0.5, 0.375]], "odd": "from elsewhere", "other": [["text"]]}}
    for seed in range(2):
        write_run(tmp_path, "fire", seed, rows=main_rows, record=learned if seed else {})
        write_run(tmp_path, "none", seed, rows=main_rows)
    assert report.main([str(tmp_path)]) == 0
    told = (tmp_path / "report/encoders/fire.html").read_text("utf-8")
    assert "slope by 50 % of its size; 1 run" in told
    assert "slope in 1 of 1 run (entries: 1 of 2)" in told
    assert "slope 1 0.25 → −0.5 0.375<" in told
    assert {"moved", "turned", "values"}.isdisjoint(pd.read_csv(tmp_path / "report/tables/runs.csv"))


def test_how_far_an_encoder_moved_is_told_of_numbers_alone() -> None:
    noted = [{"slope": 0.03}, {"slope": 0.4}, {"slope": "a folder from elsewhere"}, None]
    assert cards._moved(pd.DataFrame({"moved": noted})) == [
        ("Moved in training", "slope by 3 to 40 % of its size; 3 runs")
    ]
    assert cards._moved(pd.DataFrame({"moved": [{"bias": None}]})) == [("Moved in training", "bias from 0; 1 run")]
    assert cards._moved(pd.DataFrame({"encoder": ["rope"]})) == []
    signs = pd.DataFrame({"moved": [{"slope": 1.5}] * 3, "turned": [{"slope": "1 of 4"}, {"slope": "2 of 4"}, {}]})
    assert cards._moved(signs)[1:] == [
        ("Changed sign in training", "slope in 2 of 3 runs (entries: 1 of 4 and 2 of 4)")
    ]
    many = {f"w{number}": 0.1 * number for number in range(1, 8)} | {"bias": None}
    ((_, told),) = cards._moved(pd.DataFrame({"moved": [many]}))
    assert told == (
        "bias from 0; w7 by 70 % of its size; w6 by 60 % of its size; w5 by 50 % of its size; w4 by 40 % of its size; "
        "w3 by 30 % of its size; 2 more by less; 1 run"
    )
