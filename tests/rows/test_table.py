"""Rows written and read back: whole, exact, and never two incomparable runs under one series."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from experiments.plan.request import LATER
from experiments.rows.results import Results, read
from experiments.rows.row import COLUMNS, Row, main_metric, metric_of, write_json, write_rows
from experiments.rows.series import AS_BEFORE, defaults, name_series


def row(run_id: str = "a", **changed: Any) -> Row:
    cells: dict[str, Any] = {"run_id": run_id, "encoder": "none", "positions": "sequential", "task": "copy", "seed": 0}
    cells |= {"experiment": "length_extrapolation", "metric": "token_accuracy", "train_length": 16, "eval_length": 32}
    return Row(**(cells | {"value": 0.5} | changed))


def write_run(folder: Path, run_id: str = "a", rows: list[Row] | None = None, **changed: Any) -> Path:
    place = folder / "runs" / run_id
    place.mkdir(parents=True)
    config: dict[str, Any] = {"seed": 0, "name": folder.name, "train": {"steps": 100}, "model": {"causal": True}}
    config |= {"encoder": {"name": "none"}, "positions": {"name": "sequential"}, "task": {"name": "copy"}}
    (place / "config.yaml").write_text(yaml.safe_dump(config | changed.get("config", {})))
    write_rows(place / "rows.csv", [row(run_id)] if rows is None else rows)
    record = {
        "status": "ok",
        "encoder": "none",
        "positions": "sequential",
        "task": "copy",
        "seed": 0,
        "layout": "uniform",
    }
    write_json(place / "run.json", record | changed.get("record", {}))
    return place


def run_of(results: Results, run_id: str) -> dict[Any, Any]:
    return results.runs[results.runs["run_id"] == run_id].to_dict("records")[0]


def labels_of(results: Results) -> dict[str, str]:
    return dict(zip(results.runs["run_id"], results.runs["series"], strict=True))


def test_numbers_come_back_exactly(tmp_path: Path) -> None:
    value = float(np.nextafter(np.float32(0.1), np.float32(1)))
    rows = [row(value=value, chance=1e-300, n=7, seed=3)]
    rows.append(row(value=math.nan, status="unsupported", condition='a,"b"'))
    write_run(tmp_path, rows=rows)
    found = read(tmp_path).rows
    assert list(found.columns[: len(COLUMNS)]) == COLUMNS
    assert np.float32(found["value"][0]) == np.float32(value) != np.float32(0.1)
    assert found["value"][0] == 0.100000009
    assert found["chance"][0] == 1e-300
    assert (found["n"][0], found["seed"][0]) == (7, 3)
    assert math.isnan(found["value"][1])
    assert found["condition"].tolist() == ["", 'a,"b"']


def test_what_an_older_file_lacks_is_blank(tmp_path: Path) -> None:
    path = write_run(tmp_path, rows=[row(condition="shuffle", size=2)]) / "rows.csv"
    later = ["size", "depth", "chance", "n", "status"]
    pd.read_csv(path).drop(columns=later).to_csv(path, index=False)
    found = read(tmp_path).rows
    assert found[["condition", "value", "n", "status"]].to_numpy().tolist() == [["shuffle", 0.5, 0, "ok"]]
    assert found[["size", "depth", "chance"]].isna().all(axis=None)


@pytest.mark.parametrize("name", ["none", "nan", "NA", "null", "None", "1", "a,b", 'quote"d', "naïve · ü"])
def test_a_name_stays_a_name(tmp_path: Path, name: str) -> None:
    write_run(tmp_path, rows=[row(encoder=name)])
    found = read(tmp_path)
    assert found.rows["encoder"].tolist() == [name]
    assert found.rows["series"].tolist() == [name]


def test_a_value_that_is_no_number_counts_as_diverged(tmp_path: Path) -> None:
    write_run(tmp_path, rows=[row(value=math.inf), row(value=math.nan), row(value=0.5)])
    assert read(tmp_path).rows["status"].tolist() == ["diverged", "diverged", "ok"]
    assert read(tmp_path).rows["value"].isna().tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("file", "content", "status", "said"),
    [
        ("run.json", None, "unfinished", "run.json is missing"),
        ("rows.csv", None, "unfinished", "rows.csv is missing"),
        ("config.yaml", None, "unfinished", "config.yaml is missing"),
        ("run.json", "{", "unreadable", "run.json cannot be read"),
        ("run.json", "[1]", "unreadable", "it holds no mapping"),
        ("config.yaml", "a: [", "unreadable", "config.yaml cannot be read"),
        ("rows.csv", "", "unreadable", "rows.csv cannot be read"),
        ("rows.csv", "\0\0 garbage", "unreadable", "rows.csv cannot be read"),
        ("rows.csv", "run_id,encoder\na,none\n", "unreadable", "it lacks the columns positions"),
        ("rows.csv", ",".join(COLUMNS) + "\n", "unreadable", "cut short"),
    ],
)
def test_a_broken_run_is_listed_and_stops_nothing(
    tmp_path: Path, file: str, content: str | None, status: str, said: str
) -> None:
    write_run(tmp_path, "sound")
    broken = write_run(tmp_path, "broken") / file
    broken.unlink() if content is None else broken.write_text(content)
    found = read(tmp_path)
    assert set(found.rows["run_id"]) == {"sound"}
    line = run_of(found, "broken")
    assert line["status"] == status
    assert said in line["message"]
    assert "\n" not in line["message"]


@pytest.mark.parametrize("keep", [0.3, 0.9, 0.999])
def test_a_truncated_table_is_never_read_in_part(tmp_path: Path, keep: float) -> None:
    path = write_run(tmp_path, rows=[row(eval_length=length) for length in (8, 16, 32)]) / "rows.csv"
    text = path.read_text()
    path.write_text(text[: int(len(text) * keep)])
    found = read(tmp_path)
    assert found.rows.empty
    assert run_of(found, "a")["status"] == "unreadable"


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (write_run(tmp_path) / "rows.csv").write_bytes(b"\xff\xfe\x00")
    assert run_of(read(tmp_path), "a")["status"] == "unreadable"


@pytest.mark.parametrize("status", ["failed", "running"])
def test_rows_of_a_run_that_did_not_end_are_not_used(tmp_path: Path, status: str) -> None:
    write_run(tmp_path, record={"status": status})
    found = read(tmp_path)
    assert found.rows.empty
    assert run_of(found, "a")["status"] == status


def test_a_copied_run_folder_is_not_a_second_seed(tmp_path: Path) -> None:
    write_run(tmp_path, "a")
    write_run(tmp_path, "copy-of-a", rows=[row("a")])
    found = read(tmp_path)
    assert len(found.rows) == 1
    assert "belongs to another run, 'a'" in run_of(found, "copy-of-a")["message"]


def test_missing_folder_and_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no folder .*nothing"):
        read(tmp_path / "nothing")
    with pytest.raises(ValueError, match="no runs in"):
        read(tmp_path)


def test_seed_and_name_do_not_make_a_series(tmp_path: Path) -> None:
    write_run(tmp_path, "a")
    write_run(tmp_path, "b", rows=[row("b", seed=1)], config={"seed": 1, "name": "other"})
    assert labels_of(read(tmp_path)) == {"a": "none", "b": "none"}


def test_what_varies_is_in_the_series(tmp_path: Path) -> None:
    write_run(tmp_path, "a")
    write_run(tmp_path, "b", config={"train": {"steps": 200}})
    write_run(tmp_path, "c", rows=[row("c", positions="offset")], config={"positions": {"name": "offset"}})
    write_run(tmp_path, "d", record={"layout": "skip_every=2"})
    assert labels_of(read(tmp_path)) == {
        "a": "none · train.steps=100",
        "b": "none · train.steps=200",
        "c": "none · offset · train.steps=100",
        "d": "none · skip_every=2 · train.steps=100",
    }


def test_the_name_of_a_recipe_says_its_layout_and_its_trunk(tmp_path: Path) -> None:
    def write(name: str, encoder: str, model: dict[str, Any], **config: Any) -> None:
        given = {"encoder": {"name": config.get("of", encoder)}, "model": model, "layout": config.get("layout", {})}
        record = {"encoder": encoder, "layout": config.get("told", "uniform")}
        write_run(tmp_path, name, rows=[row(name, encoder=encoder)], config=given, record=record)

    write("a", "rope", {"num_layers": 6})
    write("b", "gemma4", {"num_layers": 6}, of="layered", layout={"windows": [0.25, None]}, told="windows=[0.25, None]")
    write("c", "gpt_oss", {"num_layers": 6, "sinks": True}, of="rope")
    write("d", "rope", {"num_layers": 6, "sinks": True})
    assert labels_of(read(tmp_path)) == {"a": "rope", "b": "gemma4", "c": "gpt_oss", "d": "rope · model.sinks=true"}


def test_options_that_came_later_are_those_that_leave_ids_as_they_were() -> None:
    assert {key.partition(".")[2]: yaml.safe_load(value) for key, value in AS_BEFORE.items()} == LATER
    assert {key: AS_BEFORE[key] for key in AS_BEFORE if key in defaults()} == {
        key: defaults()[key] for key in ("layout.windows", "model.sinks")
    }


@pytest.mark.parametrize(
    ("component", "key", "values"),
    [("task", "train_length", (16, 32)), ("encoder", "knob", (1, 2)), ("layout", "window", (None, 8))],
)
def test_what_a_name_does_not_say_is_in_the_series(
    tmp_path: Path, component: str, key: str, values: tuple[Any, Any]
) -> None:
    for run_id, value in zip("ab", values, strict=True):
        write_run(tmp_path, run_id, config={component: {"name": "none", key: value}})
    first, second = labels_of(read(tmp_path)).values()
    assert first != second
    assert f"{component}.{key}=" in f"{first}, {second}"


def test_what_a_name_says_is_not_said_again(tmp_path: Path) -> None:
    for run_id, base in (("a", 100), ("b", 200)):
        encoder = f"rope(base={base})"
        config = {"encoder": {"name": "rope", "base": base}}
        write_run(tmp_path, run_id, rows=[row(run_id, encoder=encoder)], config=config)
    assert labels_of(read(tmp_path)) == {"a": "rope(base=100)", "b": "rope(base=200)"}


def test_a_key_that_some_runs_lack_varies(tmp_path: Path) -> None:
    write_run(tmp_path, "a")
    write_run(tmp_path, "b", config={"model": {"causal": True, "new": None}})
    assert labels_of(read(tmp_path)) == {"a": "none · model.new=unset", "b": "none"}


def test_what_varies_between_tasks_only_stays_out_of_the_series(tmp_path: Path) -> None:
    write_run(tmp_path, "a")
    changed = {"config": {"train": {"steps": 900}, "task": {"name": "sort"}}, "record": {"task": "sort"}}
    write_run(tmp_path, "b", rows=[row("b", task="sort")], **changed)
    found = read(tmp_path)
    assert labels_of(found) == {"a": "none", "b": "none"}
    assert found.settings["copy"]["train.steps"] == "100"
    assert found.settings["sort"]["train.steps"] == "900"


def test_experiments_are_in_a_name_only_if_needed(tmp_path: Path) -> None:
    write_run(tmp_path, "a", config={"experiment": ["x"]})
    write_run(tmp_path, "b", rows=[row("b", encoder="rope")], config={"experiment": ["x", "y"]})
    assert labels_of(read(tmp_path)) == {"a": "none", "b": "rope"}
    write_run(tmp_path, "c", config={"experiment": ["y"]})
    assert labels_of(read(tmp_path))["c"] == "none", "what a measured not, c may add"
    write_run(tmp_path, "d", config={"experiment": ["y", "z"]})
    assert labels_of(read(tmp_path))["c"] == 'none · experiment=["y"]'


def test_only_runs_off_the_project_default_name_a_setting(tmp_path: Path) -> None:
    usual = int(defaults()["train.steps"])
    for number, steps in enumerate((usual, usual + 1, usual + 1, usual + 1, usual + 1)):
        write_run(tmp_path, f"r{number}", config={"train": {"steps": steps}})
    found = read(tmp_path)
    assert set(labels_of(found).values()) == {"none", f"none · train.steps={usual + 1}"}
    assert labels_of(found)["r0"] == "none"
    assert found.settings["copy"]["train.steps"] == f"{usual}, unless a series says otherwise"


ADDED: dict[str, dict[str, Any]] = {
    "numbering": {"encoder": "rope", "positions": "offset(num_offsets=2)"},
    "layout": {"encoder": "rope", "layout": "window=8"},
    "knob": {"encoder": "rope(base=7)"},
    "setting": {"encoder": "rope", "train.steps": "77"},
    "seed": {"encoder": "rope", "seed": "1"},
    "unfinished": {"encoder": "rope", "positions": None, "layout": None},
}


@pytest.mark.parametrize("added", ADDED)
def test_adding_a_run_renames_nothing(added: str) -> None:
    kinds = [
        {"encoder": "rope"},
        {"encoder": "t5(num_buckets=8)", "positions": "randomized(limit=64)"},
        {"encoder": "none", "layout": "skip_every=2"},
        {"encoder": "none", "train.steps": "50"},
    ]

    def names(*changes: dict[str, Any]) -> list[str]:
        runs = []
        for change in changes:
            record = {"positions": "sequential", "layout": "uniform", "task": "copy", "seed": 0} | change
            config = {"seed": "0", "train.steps": defaults()["train.steps"], "experiment": '["x"]'}
            runs.append((record, config | {key: value for key, value in change.items() if key in config}))
        name_series(runs)
        return [str(record["series"]) for record, _ in runs]

    before = names(*kinds)
    assert before == [
        "rope",
        "t5(num_buckets=8) · randomized(limit=64)",
        "none · skip_every=2",
        "none · train.steps=50",
    ]
    *after, new = names(*kinds, ADDED[added])
    assert after == before
    assert (new in before) == (added in ("seed", "unfinished"))


def test_metrics_have_readers_words() -> None:
    assert main_metric(["exact_match", "token_accuracy"]) == "token_accuracy"
    assert main_metric(["token_accuracy", "bits_per_byte"]) == "bits_per_byte"
    assert main_metric(["loss"]) is None
    assert main_metric(["generated_token_accuracy", "generated_exact_match"]) is None, "free-running is no main metric"
    assert main_metric(["generated_token_accuracy", "token_accuracy"]) == "token_accuracy"
    assert metric_of("bits_per_byte").higher_is_better is False
    assert metric_of("outside_metric").label == "outside metric"
