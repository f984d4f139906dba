"""The report: every number on the page comes from the rows, nothing is left out, nothing heavy is imported."""

from __future__ import annotations

import math
import re
import shutil
import statistics
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text
from scipy import stats as scipy_stats
from support import (
    ENCODERS,
    EXTRAPOLATE,
    LENGTHS,
    ORDERS,
    ROOT,
    made_up_rows,
    main_rows,
    mean_and_half,
    read_page,
    scripts_of,
    values_of,
    write_run,
    write_sweep,
)

import report
from experiments.figures import style
from experiments.figures import words as _words
from experiments.measures.length_extrapolation import report as length_extrapolation
from experiments.measures.permutation_sensitivity import report as permutation_report
from experiments.report import build
from experiments.report.sections import task as task_page
from experiments.rows import results
from experiments.rows.packed import unpack
from experiments.rows.row import Row, frame


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
                mean, half = mean_and_half(values)
                assert cell == f"{mean:.3f} ± {half:.3f}"


def test_every_number_of_the_comparison_comes_from_the_rows(sweep: Path) -> None:
    _, *lines = read_page(sweep).tables["Against none beyond the training length, copy"]
    beyond = [str(length) for length in LENGTHS if length > 16]
    where = {"experiment": ["length_extrapolation"], "metric": ["token_accuracy"], "eval_length": beyond}
    values = values_of(sweep, **where)
    p = {
        name: scipy_stats.ttest_rel([values[name, s] for s in range(3)], [values["none", s] for s in range(3)]).pvalue
        for name in ("sinusoidal", "rope", "alibi", "t5")
    }
    ordered = sorted(p, key=lambda name: p[name])
    steps = [min(1, p[name] * (4 - place)) for place, name in enumerate(ordered)]
    holm = {name: max(steps[: place + 1]) for place, name in enumerate(ordered)}
    assert [line[0] for line in lines] == list(ENCODERS[1:])
    for name, difference, interval, pairs, lengths, corrected, verdict in lines:
        if name == "learned":
            assert (difference, interval, pairs, verdict) == (
                "",
                "",
                "0 of 3",
                "cannot be evaluated there (unsupported)",
            )
            continue
        mean, half = mean_and_half([values[name, seed] - values["none", seed] for seed in range(3)])
        assert difference == f"{mean:+.3f}"
        assert interval == f"{mean - half:+.3f} to {mean + half:+.3f}"
        assert (pairs, lengths) == ("3 of 3", "20 to 128 (7)")
        assert corrected == ("< 0.001" if holm[name] < 0.001 else f"{holm[name]:.3f}")
        expected = "worse" if name in ("sinusoidal", "rope") else "not separable with these seeds"
        assert verdict == expected


def test_every_number_of_ranking_and_cost_comes_from_the_rows(tmp_path: Path) -> None:
    seconds = {"none": 30.0, "sinusoidal": 10.0, "rope": 20.0, "alibi": 12.0, "t5": 40.0}
    for encoder, spent in seconds.items():
        for seed in range(3):
            write_run(tmp_path, encoder, seed, rows=main_rows, record={"train_seconds": spent + seed})
    assert report.main([str(tmp_path)]) == 0
    where = {"experiment": ["length_extrapolation"], "metric": ["token_accuracy"]}
    values = values_of(tmp_path, **where, eval_length=[str(length) for length in LENGTHS if length > 16])
    known = {encoder: mean_and_half([v for (name, _), v in values.items() if name == encoder]) for encoder in seconds}
    ordered = sorted(known, key=lambda encoder: -known[encoder][0])
    tables = read_page(tmp_path).tables
    _, *lines = tables["Ranking beyond the training length, copy"]
    assert [line[0] for line in lines] == ordered
    assert [line[1] for line in lines] == ["1", "2", "3", "4", "5"]
    for label, _, _, mean, interval, seeds, *_ in lines:
        middle, half = known[label]
        assert (mean, seeds) == (f"{middle:.3f}", "3 of 3")
        assert interval == f"{middle - half:.3f} to {middle + half:.3f}"
    _, *lines = tables["Cost and quality of each series"]
    assert [line[0] for line in lines] == ordered
    for label, quality, cost, spread, _, _, front in lines:
        assert quality.startswith(f"{known[label][0]:.3f} [")
        assert (cost, spread) == (f"{seconds[label] + 1:.3g}", f"{seconds[label]:.3g} to {seconds[label] + 2:.3g}")
        cheaper = [other for other in seconds if seconds[other] < seconds[label]]
        beaten = any(known[other][0] > known[label][0] for other in cheaper)
        assert front == ("" if beaten else "on the front")
    assert {line[6] for line in lines} == {"", "on the front"}
    best = f"Best beyond the training length: {ordered[0]}, with a mean token accuracy of {known[ordered[0]][0]:.3f} "
    assert best in read_page(tmp_path).text


def test_every_number_of_how_far_it_holds_comes_from_the_rows(tmp_path: Path) -> None:
    encoders = ("none", "learned", "rope", "alibi")
    write_sweep(tmp_path, encoders, rows=main_rows)
    assert report.main([str(tmp_path)]) == 0
    head, *lines = read_page(tmp_path).tables["How far it holds, copy"]
    versus = ["area less that of none", "p (Holm)"]
    assert head == ["series", "in range", "learned in range", "reach", "area, ×1 to ×8", *versus]
    curves: dict[tuple[str, int], dict[int, float]] = {}
    for length in LENGTHS[1:]:
        where = {"experiment": ["length_extrapolation"], "metric": ["token_accuracy"], "eval_length": [str(length)]}
        for key, value in values_of(tmp_path, **where).items():
            curves.setdefault(key, {})[length] = value
    areas = {
        key: np.trapezoid(list(curve.values()), np.log2(list(curve))) / 3  # from 16 to 128 it doubles thrice
        for key, curve in curves.items()
    }
    p = {
        name: scipy_stats.ttest_rel([areas[name, s] for s in range(3)], [areas["none", s] for s in range(3)]).pvalue
        for name in ("rope", "alibi")
    }
    low, high = sorted(p.values())
    holm = {low: min(1, 2 * low), high: min(1, max(2 * low, high))}
    assert [line[0] for line in lines] == list(encoders)
    for encoder, in_range, learned, reached, area, less, corrected in lines:
        mean, half = mean_and_half([curves[encoder, seed][16] for seed in range(3)])
        assert (in_range, learned) == (f"{mean:.3f} ± {half:.3f}", "3 of 3")
        assert reached == ("×8 or more" if encoder in EXTRAPOLATE else "×1")
        if encoder == "learned":
            assert (area, less, corrected) == ("unsupported", "", "")
            continue
        mean, half = mean_and_half([areas[encoder, seed] for seed in range(3)])
        assert area == f"{mean:.3f} ± {half:.3f}"
        if encoder != "none":
            mean, half = mean_and_half([areas[encoder, seed] - areas["none", seed] for seed in range(3)])
            assert less == f"{mean:+.3f} ± {half:.3f}"
            expected = holm[p[encoder]]
            assert corrected == ("< 0.001" if expected < 0.001 else f"{expected:.3f}")


def test_areas_over_fewer_lengths_say_so_and_the_gate_is_counted(tmp_path: Path) -> None:

    def fewer(rows: list[Row]) -> list[Row]:
        return [row for row in main_rows(rows) if row.eval_length <= 32]

    write_sweep(tmp_path, ("none",), 2, rows=main_rows)
    write_run(tmp_path, "rope", 0, rows=fewer)
    write_run(tmp_path, "rope", 1, rows=fewer, record={"converged": False})
    write_run(tmp_path, "alibi", 0, rows=main_rows, record={"converged": None})
    assert report.main([str(tmp_path)]) == 0
    page = read_page(tmp_path)
    _, none, rope, alibi = page.tables["How far it holds, copy"]
    assert (none[2], rope[0], rope[2], alibi[2]) == ("2 of 2", "rope †", "1 of 2", "not judged")
    assert rope[4].endswith(" (up to ×2)")
    assert rope[5].endswith(" (up to ×2)")
    assert "up to" not in none[4] + alibi[4] + alibi[5]


def test_free_running_and_teacher_forced_are_told_apart(tmp_path: Path) -> None:
    def also_generated(rows: list[Row]) -> list[Row]:
        scored = [row for row in rows if row.metric == "token_accuracy" and row.experiment == "length_extrapolation"]
        return [*rows, *(replace(row, metric="generated_token_accuracy", value=row.value / 2) for row in scored)]

    write_run(tmp_path, "none", rows=also_generated)
    assert report.main([str(tmp_path)]) == 0
    page = read_page(tmp_path)
    forced, free = (page.tables[f"Token accuracy{how} by length, copy"][1][3] for how in ("", ", free-running"))
    assert float(free) == pytest.approx(float(forced) / 2, abs=1e-3)
    assert page.tables["How far it holds, copy"][1][1] == forced, "the teacher-forced one is the main one"
    assert "Token accuracy (share of tokens) at each length, teacher-forced:" in page.text
    assert "Exact match (share of sequences) at each length, teacher-forced:" in page.text
    assert "Token accuracy (share of tokens) at each length, free-running:" in page.text


def test_every_number_of_the_permutations_comes_from_the_rows(sweep: Path) -> None:
    head, *lines = read_page(sweep).tables["Quality lost, copy"]
    assert head == ["change of order", "index displacement", "neighbours lost", *ENCODERS]
    keys = [line[0].replace("shuffle, second draw", "1-gram shuffle") for line in lines]
    assert sorted(keys) == sorted(ORDERS)
    for change, (_, displacement, lost, *cells) in zip(keys, lines, strict=True):
        assert (float(displacement), float(lost)) == ORDERS[change]
        condition, where = unpack(change)
        chosen = {column: [str(value)] for column, value in where.items()} | {"condition": [condition]}
        values = values_of(sweep, metric=["quality_loss"], **chosen)
        for encoder, cell in zip(ENCODERS, cells, strict=True):
            mean, half = mean_and_half([values[encoder, seed] for seed in range(3)])
            assert cell == f"{mean:.3f} ± {half:.3f}"


def test_equivariance_error_keeps_its_order_of_magnitude(sweep: Path) -> None:
    _, *lines = read_page(sweep).tables["Equivariance error, copy"]
    assert lines[0] == ["none", "2e-07 ± 0", "2e-07 ± 0"]
    assert [line[0] for line in lines] == list(ENCODERS)


def test_summary_names_the_best_and_its_equals(sweep: Path) -> None:
    text = read_page(sweep).text
    assert "6 series with 3 seeds each were trained up to length 16 and evaluated up to 128 (8 times that)" in text
    assert re.search(r"(none|alibi|t5), with a mean token accuracy of 0\.9\d\d \[0\.\d{3}, \d\.\d{3}\]", text)
    assert re.search(
        r"does not differ significantly from (none|alibi|t5) and (none|alibi|t5); it does from 2 others", text
    )


def test_tables_as_csv_are_exact(sweep: Path) -> None:
    table = pd.read_csv(sweep / "report/tables/copy_token_accuracy.csv", keep_default_na=False)
    line = table[(table["series"] == "rope") & (table["eval_length"] == 32)].iloc[0]
    where = {"experiment": ["length_extrapolation"], "metric": ["token_accuracy"], "eval_length": ["32"]}
    values = [v for (name, _), v in values_of(sweep, **where).items() if name == "rope"]
    assert float(line["mean"]) == pytest.approx(statistics.fmean(values), rel=1e-15)
    assert "none" in set(table["series"])


def test_page_stands_alone_and_its_links_lead_somewhere(sweep: Path) -> None:
    page = read_page(sweep)
    assert not {"link", "iframe", "object"} & {tag for tag, _ in page.tags}
    assert all("src" not in attrs for tag, attrs in page.tags if tag == "script")
    images = [attrs for tag, attrs in page.tags if tag == "img"]
    assert len(images) == 8
    assert all((attrs["src"] or "").startswith("data:image/svg+xml;base64,") and attrs["alt"] for attrs in images)
    ids = {attrs["id"] for _, attrs in page.tags if "id" in attrs}
    for tag, attrs in page.tags:
        if tag == "a":
            target = attrs["href"] or ""
            if not re.fullmatch(r"https://arxiv\.org/abs/\d{4}\.\d{4,5}", target):
                assert target[1:] in ids if target.startswith("#") else (sweep / "report" / target).is_file(), target
    markdown = (sweep / "report/report.md").read_text()
    for target in re.findall(r"!\[[^\]]*\]\(([^)]*)\)", markdown):
        assert (sweep / "report" / target).is_file()
    assert not re.search(r"url\((?!#)", (sweep / "report/index.html").read_text())


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
    assert said == []
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
    assert "With so few seeds, no difference can be tested" in page.text
    _, line = page.tables["Against none beyond the training length, copy"]
    assert (line[2], line[5], line[6]) == ("", "", "not separable with these seeds")


def test_lengths_that_were_not_measured_are_said_to_be_so(tmp_path: Path) -> None:
    write_run(tmp_path, "none", rows=main_rows)
    write_run(tmp_path, "rope", rows=lambda rows: [row for row in main_rows(rows) if row.eval_length <= 32])
    assert report.main([str(tmp_path)]) == 0
    _, none, rope, _ = read_page(tmp_path).tables["Token accuracy by length, copy"]
    assert rope[-4:] == ["not measured"] * 4
    assert "not measured" not in none
    assert "20 to 32 (3)" in read_page(tmp_path).text


def test_nothing_beyond_the_training_length_is_no_error(tmp_path: Path) -> None:
    for encoder in ("none", "rope"):
        write_run(tmp_path, encoder, rows=lambda rows: [row for row in rows if row.eval_length <= 16])
    assert report.main([str(tmp_path)]) == 0


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
    assert "1 run diverged: rope-copy-seed2" in page.text
    assert "diverged: loss is NaN" in page.text
    assert page.tables["Against none beyond the training length, copy"][1][3] == "2 of 3"


def test_an_encoder_whose_runs_all_diverged_is_named(tmp_path: Path) -> None:
    """As a contestant and as the baseline: nothing takes its place silently."""
    for name, diverged in (("a", "rope"), ("b", "none")):
        write_sweep(tmp_path / name, tuple({"none", "rope", "alibi"} - {diverged}), 3, rows=main_rows)
        write_sweep(tmp_path / name, (diverged,), 3, rows=_diverged, record={"status": "diverged"})
        assert report.main([str(tmp_path / name)]) == 0
        page = read_page(tmp_path / name)
        verdicts = {line[0]: line[-1] for line in page.tables["Against none beyond the training length, copy"][1:]}
        assert verdicts["rope"].startswith("diverged" if diverged == "rope" else "baseline diverged")
        ranked = pd.read_csv(tmp_path / name / "report/tables/ranking.csv")
        assert ranked.set_index("series").loc[diverged, "status"] == "diverged"


def test_a_task_that_no_run_learned_is_named(tmp_path: Path) -> None:
    write_sweep(tmp_path, ("none", "rope"), 2, rows=main_rows, record={"converged": False})
    write_sweep(tmp_path, ("none",), 2, task="sort", rows=main_rows)
    assert report.main([str(tmp_path)]) == 0
    text = read_page(tmp_path).text
    assert "No run learned copy" in text
    assert "No run learned sort" not in text


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
    for caption in ("Against none beyond the training length, copy", "How far it holds, copy"):
        assert page.tables[caption][-1][0] == "rope †"
    assert "rope †" in [line[0] for line in page.tables["Ranking beyond the training length, copy"]]
    assert "1 run did not learn the task within the training length, marked †: rope-copy-seed2" in page.text
    assert [line[7] for line in page.tables["Every run of the folder"][1:]] == ["yes"] * 4 + ["no †"]
    table = pd.read_csv(tmp_path / "report/tables/copy_token_accuracy.csv")
    assert set(table.loc[table["series"] == "rope", "not_converged"]) == {1}


def test_names_are_escaped(tmp_path: Path) -> None:
    name = "<script>alert(1)</script>_50%&$#{x}|[a](b)"
    write_run(tmp_path, "none")
    write_run(tmp_path, name, run_id="odd", task="copy", record={"message": "<img src=x onerror=alert(1)>"})
    assert report.main([str(tmp_path)]) == 0
    page = read_page(tmp_path)
    assert scripts_of(tmp_path) == 1
    assert all("onerror" not in attrs for _, attrs in page.tags)
    assert page.tables["Token accuracy by length, copy"][2][0] == name
    latex = (tmp_path / "report/tables/copy_token_accuracy.tex").read_text()
    assert r"alert(1)$<$/script$>$\_50\%\&\$\#\{x\}" in latex
    assert all(rule in latex for rule in (r"\toprule", r"\midrule", r"\bottomrule"))
    markdown = (tmp_path / "report/report.md").read_text()
    assert "<script" not in markdown
    assert "<img" not in markdown
    assert r"\|\[a\](b)" in markdown


def test_tasks_have_own_sections_and_one_correction(tmp_path: Path) -> None:
    for task in ("copy", "sort"):
        write_sweep(tmp_path, ("none", "rope"), 3, task=task, rows=main_rows)
    assert report.main([str(tmp_path)]) == 0
    page = read_page(tmp_path)
    headings = [caption for caption in page.tables if caption.startswith("Token accuracy")]
    assert headings == ["Token accuracy by length, copy", "Token accuracy by length, sort"]
    table = pd.read_csv(tmp_path / "report/tables/copy_comparison.csv", keep_default_na=False)
    assert float(table["p_holm"].iloc[0]) == pytest.approx(2 * float(table["p"].iloc[0]))


def test_lower_is_better_for_text(tmp_path: Path) -> None:
    def as_text(rows: list[Row]) -> list[Row]:
        kept = [r for r in rows if r.metric == "token_accuracy" and r.experiment == "length_extrapolation"]
        return [replace(r, metric="bits_per_byte", value=4 - 2 * r.value, chance=4.5) for r in kept]

    write_sweep(tmp_path, ("none", "rope"), 3, task="text", rows=as_text)
    assert report.main([str(tmp_path)]) == 0
    page = read_page(tmp_path)
    line = page.tables["Against none beyond the training length, text"][1]
    assert float(line[1]) > 0
    assert line[-1] == "worse"


def test_an_experiment_of_ones_own_is_shown(tmp_path: Path) -> None:
    def renamed(rows: list[Row]) -> list[Row]:
        return [replace(r, experiment="outside", metric="warmth") for r in rows if r.metric == "quality_loss"]

    write_run(tmp_path, "none", rows=renamed)
    assert report.main([str(tmp_path)]) == 0
    assert "Outside, copy" in read_page(tmp_path).tables


def test_baseline_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_sweep(tmp_path, ("none", "rope"), 2, rows=main_rows)
    assert report.main([str(tmp_path), "--baseline", "rope"]) == 0
    assert "Against rope beyond the training length, copy" in read_page(tmp_path).tables
    capsys.readouterr()
    assert report.main([str(tmp_path), "--baseline", "ropee"]) == 2
    assert capsys.readouterr().err == "error: no baseline named 'ropee'. Did you mean 'rope'? Allowed: none; rope\n"


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
    assert "The runs of copy differ in corpus: aaaaaaaaaaaa (none) and bbbbbbbbbbbb (rope)." in text


def test_leftovers_of_an_earlier_report_go(tmp_path: Path) -> None:
    write_sweep(tmp_path, ("none", "rope"), 1, rows=main_rows)
    assert report.main([str(tmp_path)]) == 0
    shutil.rmtree(tmp_path / "runs")
    write_run(tmp_path, "none", rows=lambda rows: [row for row in rows if row.experiment == "training"])
    assert report.main([str(tmp_path)]) == 0
    assert {path.name for path in (tmp_path / "report/figures").iterdir()} == {"copy_training.png", "copy_training.svg"}


def test_experiments_draw_one_run_from_rows_in_memory() -> None:
    labels: dict[str, Any] = {"run_id": "a", "encoder": "rope", "positions": "sequential", "task": "copy"}
    labels |= {"seed": 0, "train_length": 16}
    rows = frame(made_up_rows(labels, np.random.default_rng(0)))
    for module in (length_extrapolation, permutation_report):
        figures = module.plot(rows)
        assert figures
        for figure in figures.values():
            assert "run a" in " ".join(text.get_text() for text in figure.findobj(Text))


def test_an_encoder_looks_the_same_in_every_figure() -> None:
    def rows(*encoders: str) -> pd.DataFrame:
        return pd.DataFrame({"encoder": encoders, "series": encoders})

    many = style.looks(rows("zebra", "rope", "none", "ant"))
    assert list(many) == ["none", "rope", "ant", "zebra"]
    for name, look in style.looks(rows("rope", "none")).items():
        assert (look.colour, look.marker) == (many[name].colour, many[name].marker)
    assert len({look.colour for look in many.values()}) == 4
    labels = ["rope · offset", "rope · sequential", "none"]
    found = style.looks(pd.DataFrame({"encoder": ["rope", "rope", "none"], "series": labels}))
    assert found["rope · offset"].colour == found["rope · sequential"].colour
    assert found["rope · offset"].dash != found["rope · sequential"].dash
    assert found["rope · offset"].fill != found["rope · sequential"].fill


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


def test_over_tasks_other_metrics_and_other_tasks_are_tried(tmp_path: Path) -> None:
    def scored(rows: list[Row]) -> list[Row]:
        return [row for row in rows if row.metric in ("token_accuracy", "exact_match") and not row.step]

    for task in ("add", "copy", "dedupe"):
        write_sweep(tmp_path, ("none", "alibi"), 1, task=task, rows=scored)
    assert report.main([str(tmp_path)]) == 0
    kept = read_page(tmp_path).tables["Tasks learned, and kept at twice the training length"]
    assert kept[1:] == [["none", "3", "3"], ["alibi", "3", "3"]]
    table = pd.read_csv(tmp_path / "report/tables/ranking_by_metric.csv")
    assert set(table["metric"]) == {"main", "exact_match"}
    assert set(table.loc[(table["metric"] == "main") & (table["lengths"] == "beyond"), "agreement"]) == {1.0}


def test_series_of_few_tasks_are_ranked_over_those(tmp_path: Path) -> None:
    """Of six tasks two have all four series: both comparisons are made, neither in the place of the other."""
    for task in ("copy", "reverse"):
        write_sweep(tmp_path, ("none", "alibi", "rope", "t5"), 1, task=task, rows=main_rows)
    for task in ("add", "dedupe", "mode", "sort"):
        write_sweep(tmp_path, ("none", "alibi"), 1, task=task, rows=main_rows)
    assert report.main([str(tmp_path)]) == 0
    of_all = pd.read_csv(tmp_path / "report/tables/ranking_over_tasks.csv").set_index("series")
    assert set(of_all.index[of_all["mean_rank"].notna()]) == {"none", "alibi"}
    assert (tmp_path / "report/figures/places.svg").exists()
    assert of_all.loc["rope", "status"] == "measured in 2 of 6 tasks"
    page = read_page(tmp_path)
    assert [line[0] for line in page.tables["Ranking over all tasks"][1:]] == ["alibi", "none"]
    assert "Left out, measured in 2 of 6 tasks: rope and t5." in page.text
    of_most = pd.read_csv(tmp_path / "report/tables/ranking_over_common_tasks.csv").set_index("series")
    assert set(of_most.index[of_most["mean_rank"].notna()]) == {"none", "alibi", "rope", "t5"}
    assert set(of_most["tasks"]) == {2}
    said = (tmp_path / "report/report.md").read_text()
    assert "Over 6 tasks, " in said
    assert "Over the 2 tasks that most series have (copy and reverse), " in said


def test_series_that_have_all_tasks_are_ranked_once(tmp_path: Path) -> None:
    for task in ("copy", "reverse", "sort"):
        write_sweep(tmp_path, ("none", "alibi", "rope"), 1, task=task, rows=main_rows)
    assert report.main([str(tmp_path)]) == 0
    assert not (tmp_path / "report/tables/ranking_over_common_tasks.csv").exists()
    assert "that most series have" not in (tmp_path / "report/report.md").read_text()


def test_tasks_without_a_series_in_common_are_not_ranked_together(tmp_path: Path) -> None:
    write_sweep(tmp_path, ("none", "alibi"), 1, task="copy", rows=main_rows)
    write_sweep(tmp_path, ("rope", "t5"), 1, task="sort", rows=main_rows)
    assert report.main([str(tmp_path)]) == 0
    page = read_page(tmp_path)
    assert "Ranking over all tasks" not in page.tables
    assert len(page.tables["Places in every task"]) == 5


def test_many_tasks_have_one_figure_a_section_and_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (build, task_page):
        monkeypatch.setattr(module, "PICTURED", 1)
    for task in ("copy", "sort"):
        write_sweep(tmp_path, ("none", "alibi"), 1, task=task)
    assert report.main([str(tmp_path)]) == 0
    drawn = {path.stem for path in (tmp_path / "report/figures").glob("copy_*.svg")}
    assert drawn == {"copy_token_accuracy", "copy_quality_loss", "copy_cost_and_quality"}
    assert "each section shows only its first figure" in (tmp_path / "report/report.md").read_text()
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
    axes = figure.axes[0]
    assert axes.get_xlim()[1] > 64
    upright = [set(np.asarray(line.get_xdata(), dtype=float)) for line in axes.lines]
    assert [places for places in upright if len(places) == 1] == [{16.0}]


@pytest.mark.parametrize(
    ("mean", "half_width", "said"),
    [(0.969, 2.76e-16, "0.969 ± 0"), (0.969, 2.76e-6, "0.969 ± 2.76e-06"), (0.0, 1e-300, "0 ± 1e-300")],
)
def test_a_spread_that_is_but_rounding_is_none(mean: float, half_width: float, said: str) -> None:
    line = {"mean": mean, "half_width": half_width, "seeds": 3, "unsupported": 0, "diverged": 0}
    assert _words.cell(line, 3, _words.short) == said
