"""The page compares like with like: extensions as they are used, controls, and encoders that are nearly alike."""

from __future__ import annotations

import re
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support import PageReader, main_rows, read_page, write_run

import report
from experiments.rows.row import Row

LENGTHS = (16, 32, 64, 128)


def with_distance(away: float) -> Any:
    """The rows of a run that measured how far its scores are from those of rope."""

    def rows(before: list[Row]) -> list[Row]:
        row = replace(main_rows(before)[0], metric="relative_distance", condition="rope", value=away, eval_length=16)
        return [*main_rows(before), row]

    return rows


def quality(seed: int, length: int) -> float:
    return 0.9 - 0.1 * LENGTHS.index(length) - 0.01 * seed


def extended(before: list[Row]) -> list[Row]:
    """The rows of a run that was extended by two methods: one zero-shot alone, one fine-tuned as well."""
    own = {row.eval_length: row for row in main_rows(before)}
    rows = [replace(row, value=quality(row.seed, 16)) if length == 16 else row for length, row in own.items()]
    for condition, share, worse, lengths in (
        ("as trained", None, 0.2, LENGTHS),
        ("rope_ntk", None, 0.0, LENGTHS),
        ("yarn", None, 0.3, LENGTHS),
        ("yarn fine-tuned", 0.1, 0.05, LENGTHS),
        ("rope_linear", None, 0.0, (16, 64)),  # too few lengths to be ranked
        ("window", None, 0.0, LENGTHS),
        ("clipped_rope", None, 0.0, LENGTHS),  # named by hand; it extends nothing
    ):
        where = {"experiment": "context_extension", "condition": condition, "share": share}
        for length in lengths:
            value = quality(own[length].seed, length) - worse * (length > 16 or share is not None)
            rows.append(replace(own[length], **where, value=value))
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("like")
    model = {"num_layers": 2, "model_dim": 64, "as_many_as": None}
    for seed in range(3):
        write_run(place, "none", seed, rows=main_rows, config={"model": model})
        write_run(place, "rope", seed, rows=extended, config={"model": model})
        for encoder, away in (("p_rope", 0.0031), ("xpos", 0.065), ("yarn", 0.9)):
            write_run(place, encoder, seed, rows=with_distance(away), config={"model": model})
        write_run(place, "short_convolution", seed, rows=main_rows, config={"model": model})
        wide = {"model": model | {"as_many_as": "learned"}}
        write_run(place, "none", seed, rows=main_rows, config=wide, run_id=f"wide-{seed}")
    assert report.main([str(place)]) == 0
    return place


def standings(folder: Path) -> dict[str, dict[str, str]]:
    table = pd.read_csv(folder / "report/tables/standings.csv", keep_default_na=False, dtype=str)
    return {line["series"]: line for line in table.to_dict("records")}


def test_an_encoder_that_is_the_same_here_is_said_to_be(folder: Path) -> None:
    scores = {series: line["scores"] for series, line in standings(folder).items()}
    assert scores["p_rope"] == "the same as rope here (0.31 %)"
    assert scores["xpos"] == "nearly rope here (6.5 %)"
    assert scores["yarn"] == "unlike rope here (90 %)"
    assert scores["rope"] == scores["none"] == ""
    assert "xposnearly rope here (6.5 %)" in [line[1] for line in read_page(folder).tables["Standings, copy"]]


def test_controls_and_extensions_trained_by_themselves_are_named_so(folder: Path) -> None:
    names = {line[1].partition("unlike")[0] for line in read_page(folder).tables["Standings, copy"]}
    assert {"short_convolution (control)", "none · model.as_many_as=learned (control)"} <= names
    assert {"none", "rope", "yarn, trained from scratch"} <= names
    assert not {"yarn", "short_convolution"} & names


def test_extensions_are_ranked_as_they_are_used(folder: Path) -> None:
    """Zero-shot or fine-tuned as in the paper, each in one line: by what they keep of the trained model's quality."""
    lines = {series: line for series, line in standings(folder).items() if "extending" in series}
    assert set(lines) == {"rope_ntk (extending rope)", "yarn (extending rope, fine-tuned 10 %)"}
    chance = 0.1
    for series, worse in zip(sorted(lines), (0.0, 0.05), strict=True):
        means = []
        for seed in range(3):
            room = quality(seed, 16) - chance
            kept = [(quality(seed, length) - worse - chance) / room for length in LENGTHS]
            means.append((kept[1] + kept[2] + kept[3]) / 3)
        assert float(lines[series]["kept"]) == pytest.approx(statistics.fmean(means))
        assert lines[series]["place_low"]
        assert lines[series]["seeds_learned"] == "3"


def test_methods_on_other_texts_are_not_ranked_beside_encoders(tmp_path: Path) -> None:
    """As with fewer samples: the model as trained has another quality there, and what is kept would be of both."""

    def fewer(before: list[Row]) -> list[Row]:
        return [
            replace(row, n=row.n // 4) if row.experiment == "context_extension" else row for row in extended(before)
        ]

    for encoder, rows in (("none", main_rows), ("rope", fewer)):
        write_run(tmp_path, encoder, rows=rows)
    assert report.main([str(tmp_path)]) == 0
    assert set(standings(tmp_path)) == {"none", "rope"}
    left_out = "read other texts than length_extrapolation: rope_linear, rope_ntk and yarn. Give both the same samples."
    assert left_out in read_page(tmp_path).text


def test_cards_and_the_note_say_it_too(folder: Path) -> None:
    text = read_page(folder).text
    assert re.search(r"yarn \(extending rope, fine-tuned 10 %\): keeps [^;]* %, place ", text)
    assert "the same as rope here (0.31 %)" in text
    assert "Extending: the trained model with this encoder" in text


def test_the_page_of_a_method_opens_with_what_a_trained_model_keeps(folder: Path) -> None:
    kept = {worse: statistics.fmean((quality(s, 128) - worse) / quality(s, 16) for s in range(3)) for worse in (0.2, 0)}
    trained, method = f"as trained {kept[0.2]:.2f}", f"rope_ntk {kept[0]:.2f}"
    reader = PageReader()
    reader.feed((folder / "report/encoders/rope.html").read_text())
    assert re.search(rf"copy, rope at 128 \(×8\), token accuracy: .*{method}.*{trained}", reader.text)
    reader = PageReader()
    reader.feed((folder / "report/encoders/rope_ntk.html").read_text())
    assert re.search(rf"copy, rope at 128 \(×8\), token accuracy: .*{method}.*{trained}", reader.text)
    assert "yarn" not in reader.text.partition("What it is")[0]


def test_older_rows_make_the_page_that_they_made(tmp_path: Path) -> None:
    """Without distances; and with extensions at too few lengths, which change nothing."""

    def at_two_lengths(before: list[Row]) -> list[Row]:
        kept = [
            row for row in extended(before) if row.experiment == "length_extrapolation" or row.eval_length in (16, 64)
        ]
        return kept[::-1]

    def alone(before: list[Row]) -> list[Row]:
        return [row for row in extended(before) if row.experiment == "length_extrapolation"]

    pages = []
    for name, rows in (("older", at_two_lengths), ("without", alone)):
        for encoder in ("none", "rope"):
            for seed in range(3):
                write_run(tmp_path / name, encoder, seed, rows=rows if encoder == "rope" else main_rows)
        assert report.main([str(tmp_path / name)]) == 0
        pages.append(standings(tmp_path / name))
    assert set(pages[0]) == {"none", "rope"}
    assert pages[0]["rope"]["scores"] == ""
    assert pages[0] == pages[1]


def test_a_report_on_extensions_alone_opens_with_what_was_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def alone(before: list[Row]) -> list[Row]:
        rows = [row for row in extended(before) if row.experiment == "context_extension"]
        as_trained = [replace(row, condition="", value=0.1) for row in rows if row.condition == "rope_ntk"]
        return [*as_trained, *rows]

    write_run(tmp_path, "rope", rows=alone)
    assert report.main([str(tmp_path)]) == 0
    assert "extends a trained model" in capsys.readouterr().out.splitlines()[0]
    assert '<details id="context-extension"' not in (tmp_path / "report/tasks/copy.html").read_text()
