"""Results in other people's formats: the schema of Every Eval Ever 0.3.0, and a dataset that `datasets` loads."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pytest
import yaml
from support import main_rows, values_of, write_sweep

import report
from experiments.rows.results import load

TOP = {
    "schema_version",
    "evaluation_id",
    "evaluation_timestamp",
    "retrieved_timestamp",
    "source_metadata",
    "model_info",
}
TOP |= {"eval_library", "evaluation_results"}
"""The schema requires all but evaluation_timestamp, and allows few others at this level."""
UUID4 = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\.json"


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results") / "mine"
    return write_sweep(folder, ("none", "learned"), 3, rows=main_rows, record={"packages": {"pe-zoo": "0.1.0"}})


def texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(one, str) for one in value.values())


def test_each_series_is_one_evaluation_record(sweep: Path) -> None:
    assert report.main([str(sweep), "--export", "evaluations"]) == 0
    files = sorted((sweep / "export" / "evaluations").rglob("*.json"))
    assert [file.parent.relative_to(sweep / "export/evaluations").as_posix() for file in files] == [
        "data/pe-zoo/pe-zoo/learned",
        "data/pe-zoo/pe-zoo/none",
    ]
    assert all(re.fullmatch(UUID4, file.name) for file in files)
    measured = values_of(sweep, experiment="length_extrapolation", metric="token_accuracy", eval_length="32")
    for file in files:
        record = json.loads(file.read_text())
        assert set(record) == TOP
        assert record["schema_version"] == "0.3.0"
        assert record["source_metadata"]["source_type"] in ("documentation", "evaluation_run")
        assert record["eval_library"]["version"] == "0.1.0"
        assert record["retrieved_timestamp"].isdigit()
        details = record["model_info"]["additional_details"]
        assert texts(details)
        assert details["deployment_type"] in ("self_deployed", "externally_managed", "unknown")
        assert details["model_availability"] in ("open_weights", "closed_weights", "unknown")
        for result in record["evaluation_results"]:
            metric, score = result["metric_config"], result["score_details"]
            assert metric["score_type"] == "continuous"
            assert metric["min_score"] <= score["score"] <= metric["max_score"]
            assert metric["lower_is_better"] is False
            assert texts(score["details"])
            assert texts(metric["additional_details"])
            assert score["uncertainty"]["num_samples"] == 3
        found = {one["evaluation_name"]: one["score_details"]["score"] for one in record["evaluation_results"]}
        if file.parent.name == "learned":
            assert "pe_zoo.copy.length_32" not in found, "unsupported has no score"
        else:
            values = [value for (encoder, _), value in measured.items() if encoder == "none"]
            assert found["pe_zoo.copy.length_32"] == pytest.approx(statistics.fmean(values))
    names = [file.name for file in files]
    assert report.main([str(sweep), "--export", "evaluations"]) == 0
    assert [file.name for file in sorted((sweep / "export" / "evaluations").rglob("*.json"))] == names


def test_the_dataset_loads_and_has_every_row(sweep: Path, tmp_path: Path) -> None:
    assert report.main([str(sweep), "--export", "dataset"]) == 0
    place = sweep / "export" / "dataset"
    _, front, text = (place / "README.md").read_text().split("---\n", 2)
    card = yaml.safe_load(front)
    assert card["license"] == "mit"
    assert [each["data_files"] for each in card["configs"]] == ["rows.parquet", "runs.parquet"]
    results = load(sweep)
    assert f"{len(results.rows):,} measurements of 6 runs" in text
    found = datasets.load_dataset(str(place), "rows", split="train", cache_dir=str(tmp_path)).to_pandas()
    pd.testing.assert_series_equal(found["value"], results.rows["value"], check_dtype=False)
    assert list(found["status"]) == list(results.rows["status"])
    runs = datasets.load_dataset(str(place), "runs", split="train", cache_dir=str(tmp_path))
    assert json.loads(runs[0]["packages"]) == {"pe-zoo": "0.1.0"}


def test_what_cannot_be_exported_is_said_in_one_line(
    sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_sweep(tmp_path, ("none",), 1, rows=lambda rows: [row for row in rows if row.experiment == "training"])
    for given in ([str(tmp_path), "--export", "evaluations"], [str(tmp_path / "nowhere"), "--export", "dataset"]):
        assert report.main(given) == 2
        assert capsys.readouterr().err.count("\n") == 1
