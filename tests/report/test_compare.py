"""Two folders side by side, and published curves laid over ours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support import main_rows, read_page, write_run, write_sweep

import report
from experiments.figures import style
from experiments.report import changes, overlay
from experiments.rows import results
from experiments.rows.row import Row


def shifted(by: float, encoder: str) -> Any:
    """A change of the accuracy beyond the training length of one encoder."""

    def change(rows: list[Row]) -> list[Row]:
        return [
            replace(row, value=row.value + by + 0.001 * row.seed)
            if row.encoder == encoder and row.metric == "token_accuracy" and row.eval_length > 16
            else row
            for row in rows
        ]

    return change


def compared(first: Path, second: Path) -> pd.DataFrame:
    table = changes.compare(results.read(first).rows, results.read(second).rows)
    return table.set_index(["series", "what"])


BEYOND = "token accuracy, beyond training"


def test_what_changed_is_told_from_what_did_not(tmp_path: Path) -> None:
    write_sweep(tmp_path / "a", ("none", "rope", "alibi"), seeds=4, rows=shifted(-0.2, "rope"))
    write_sweep(tmp_path / "b", ("none", "rope", "t5"), seeds=4)
    table = compared(tmp_path / "a", tmp_path / "b")
    line = table.loc[("rope", BEYOND)]
    assert line["verdict"] == "worse"
    assert line["difference"] == pytest.approx(-0.2 + 0.0015)
    assert line["low"] < line["difference"] < line["high"] < 0
    assert (line["pairs"], line["by"], line["seeds"]) == (4, "seed", "4 and 4")
    assert table.loc[("none", BEYOND), "verdict"] == "identical"
    assert table.loc[("rope", "token accuracy, in range"), "verdict"] == "identical"
    assert "permutation_sensitivity: quality lost, tokens shuffled" in table.loc["none"].index
    assert set(table.index.get_level_values("series")) == {"none", "rope"}
    back = compared(tmp_path / "b", tmp_path / "a")
    assert back.loc[("rope", BEYOND), "difference"] == pytest.approx(-line["difference"])
    assert back.loc[("rope", BEYOND), "verdict"] == "better"


def test_other_seeds_are_compared_as_independent_samples(tmp_path: Path) -> None:
    for seed in range(4):
        write_run(tmp_path / "a", "none", seed)
        write_run(tmp_path / "b", "none", seed + 10)
    line = compared(tmp_path / "a", tmp_path / "b").loc[("none", BEYOND)]
    assert (line["pairs"], line["by"], line["verdict"]) == (0, "Welch", "within noise")
    assert line["low"] < line["difference"] < line["high"]


def test_one_seed_tells_nothing(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "rope", 0, rows=shifted(-0.3, "rope"))
    write_run(tmp_path / "b", "rope", 0)
    line = compared(tmp_path / "a", tmp_path / "b").loc[("rope", BEYOND)]
    assert line["verdict"] == "one seed: not testable"
    assert line["difference"] == pytest.approx(-0.3)
    assert pd.isna(line["p"])


def test_seeds_without_spread_and_in_common_tell_nothing(tmp_path: Path) -> None:
    def constant(value: float) -> Any:
        return lambda rows: [replace(row, value=value) if row.metric == "token_accuracy" else row for row in rows]

    for seed in range(3):
        write_run(tmp_path / "a", "rope", seed, rows=constant(1.0))
        write_run(tmp_path / "b", "rope", seed + 10, rows=constant(0.5))
    assert compared(tmp_path / "a", tmp_path / "b").loc[("rope", BEYOND), "verdict"] == "no spread: not testable"


def test_chance_alone_changes_next_to_nothing(tmp_path: Path) -> None:
    """Of many comparisons of runs that differ by nothing but chance, corrected for how many they are."""
    for seed in range(5):
        for encoder in ("none", "rope", "alibi", "t5"):
            write_run(tmp_path / "a", encoder, seed)
            write_run(tmp_path / "b", encoder, seed + 5)
    table = compared(tmp_path / "a", tmp_path / "b")
    assert len(table) == 12
    assert set(table["verdict"]) <= {"within noise", "identical"}


@pytest.mark.parametrize("part", ["report", "report/against", "report/against/b", "report/against/b/tables"])
def test_no_link_leads_the_page_out_of_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], part: str
) -> None:
    for name in ("a", "b"):
        write_run(tmp_path / name, "rope")
    secret, link = tmp_path / "secret", tmp_path / "a" / part
    for place in (secret, secret / "tables"):
        place.mkdir()
        (place / "precious.csv").write_text("precious")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(secret)
    before = sorted(tmp_path.rglob("*"))
    assert report.main([str(tmp_path / "a"), str(tmp_path / "b")]) == 2
    said = capsys.readouterr().err
    assert f"{link.name} is a link that leads out of the folder" in said
    assert said.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_the_page_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_sweep(tmp_path / "a", ("none", "rope", "alibi"), seeds=4, rows=shifted(-0.2, "rope"))
    config = {"train": {"steps": 9}, "model": {"num_layers": 2}}
    write_sweep(tmp_path / "b", ("none", "rope", "t5"), seeds=4, config=config)
    assert report.main([str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    said = capsys.readouterr().out
    assert "In a worse than in b: rope on copy (token accuracy, beyond training) by −0.199" in said
    place = tmp_path / "a" / "report" / "against" / "b"
    assert said.rstrip().endswith(str(place / "index.html"))
    assert "train.steps" in (place / "index.html").read_text(encoding="utf-8")
    assert {path.stem for path in (place / "tables").glob("*.csv")} == {"changed", "differences", "alone", "settings"}
    alone = pd.read_csv(place / "tables" / "alone.csv")
    assert list(alone.itertuples(index=False, name=None)) == [("copy", "alibi", "a"), ("copy", "t5", "b")]
    settings = pd.read_csv(place / "tables" / "settings.csv", dtype=str).set_index("setting")
    assert settings.loc["train.steps", ["a", "b"]].tolist() == ["2000", "9"]
    assert (tmp_path / "b" / "report").exists() is False


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["b"], "no folder"),
        (["empty"], "no runs in"),
        (["a", "--paper"], "without --baseline, --paper"),
        (["a", "--status"], "leave these out"),
    ],
)
def test_a_bad_request_is_refused_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    write_run(tmp_path / "a", "rope")
    (tmp_path / "empty").mkdir()
    try:
        code: Any = report.main([str(tmp_path / "a"), str(tmp_path / arguments[0]), *arguments[1:]])
    except SystemExit as refusal:
        code = refusal.code
    assert code == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert said in error[-1]
    assert not (tmp_path / "a" / "report").exists()


def test_folders_without_anything_in_common(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "rope")
    write_run(tmp_path / "b", "none", record={"status": "failed"})
    assert report.main([str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    page = (tmp_path / "a" / "report" / "against" / "b" / "report.md").read_text(encoding="utf-8")
    assert "there is nothing to compare" in page


# ---- published curves -------------------------------------------------------------------------------


def published(path: Path, text: str = "") -> Path:
    lines = [
        "encoder,task,metric,eval_length,value",
        "rope,copy,token_accuracy,16,0.9",
        "rope,copy,token_accuracy,256,0.4",
    ]
    path.write_text(text or "\n".join(lines) + "\n")
    return path


def test_a_published_curve_is_drawn_and_counted_nowhere(tmp_path: Path) -> None:
    write_sweep(tmp_path / "a", ("none", "rope"), seeds=2, rows=main_rows)
    plain = tmp_path / "plain"
    assert report.main([str(tmp_path / "a")]) == 0
    (tmp_path / "a" / "report" / "tables").rename(plain)
    assert report.main([str(tmp_path / "a"), "--overlay", str(published(tmp_path / "su2021.csv"))]) == 0
    for path in plain.iterdir():
        assert path.read_bytes() == (tmp_path / "a" / "report" / "tables" / path.name).read_bytes()
    assert "published (su2021)" in read_page(tmp_path / "a").text


def test_it_is_dashed_and_named_and_in_the_colour_of_its_encoder(tmp_path: Path) -> None:
    from experiments.measures.length_extrapolation import report as length_extrapolation
    from experiments.report.page import Page, Picture, Section

    write_sweep(tmp_path, ("none", "rope"), seeds=2)
    figure = length_extrapolation.plot(results.read(tmp_path).rows)["copy_token_accuracy"]
    before = len(figure.axes[0].lines)
    page = Page("", [], [Section("", parts=[Picture("copy_token_accuracy", "Ours.", figure)])])
    overlay.draw(page, [overlay.read(published(tmp_path / "su2021.csv"))])
    (line,) = figure.axes[0].lines[before:]
    looks = style.looks(pd.DataFrame({"encoder": ["rope"], "series": "rope"}))
    assert line.get_color() == looks["rope"].colour
    assert line.is_dashed()
    assert list(line.get_xdata()) == [16, 256]
    assert "rope (su2021)" in [text.get_text() for text in figure.axes[0].texts]
    assert figure.axes[0].get_xlim()[1] > 256


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("encoder,task,metric,eval_length\nrope,copy,token_accuracy,16\n", "lacks the column 'value'"),
        ("encoder,task,metric,eval_length,value,colour\nrope,copy,token_accuracy,16,1,red\n", "column 'colour'"),
        (
            "encoder,task,metric,eval_length,value\nrope,copy,token_accuracy,16,high\n",
            "column 'value': 'high' in line 2",
        ),
        ("encoder,task,metric,eval_length,value\nrope,copy,token_accuracy,16,nan\n", "column 'value': 'nan' in line 2"),
        (
            "encoder,task,metric,eval_length,value\nrope,copy,token_accuracy,0,1\n",
            "column 'eval_length': '0' in line 2",
        ),
        ("encoder,task,metric,eval_length,value\nrope,copy\n", "line 2 has 2 cells, its head 5"),
        (
            "encoder,task,metric,eval_length,value\nrope,sort,token_accuracy,16,1\n",
            "no figure shows token_accuracy of sort",
        ),
        ("experiment,encoder,task,metric,eval_length,value\nstructure,rope,copy,kernel,1,1\n", "none of its rows"),
    ],
)
def test_a_malformed_one_is_refused_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    write_run(tmp_path / "a", "rope")
    code = report.main([str(tmp_path / "a"), "--overlay", str(published(tmp_path / "x.csv", text))])
    assert code == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("typed", ["{}", "{}\n\n", "\N{ZERO WIDTH NO-BREAK SPACE}{}\r\n"], ids=["end", "blank", "mark"])
def test_one_that_was_typed_by_hand_is_read(tmp_path: Path, typed: str) -> None:
    text = "encoder,task,metric,eval_length,value\nrope,copy,token_accuracy,16,0.5"
    assert list(overlay.read(published(tmp_path / "x.csv", typed.format(text)))["value"]) == [0.5]


def test_the_status_of_a_folder_takes_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        report.main([str(tmp_path), "--status", "--paper"])
    assert ended.value.code == 2
    assert "--status draws nothing" in capsys.readouterr().err


def test_an_interrupted_report_says_so_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(results, "read", stop)
    assert report.main([str(tmp_path)]) == 130
    assert capsys.readouterr().err.startswith("interrupted")


def test_a_missing_one_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "a", "rope")
    assert report.main([str(tmp_path / "a"), "--overlay", str(tmp_path / "x.csv")]) == 2
    assert "no file" in capsys.readouterr().err
