"""Results in scripts and notebooks: tidy frames that every experiment's functions take as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure
from pandas.api import types
from support import ROOT, Command, write_run, write_sweep

import experiments
from experiments.measures import report_of
from experiments.measures.length_extrapolation import report as length_extrapolation
from experiments.measures.permutation_sensitivity import report as permutation_report
from experiments.plan.measures import experiment_names


def test_numbers_are_numbers_and_times_are_times(tmp_path: Path) -> None:
    write_sweep(tmp_path, ("none", "rope"), seeds=2)
    write_run(tmp_path, "t5", record={"status": "failed", "train_seconds": None, "converged": None}, run_id="failed")
    results = experiments.load(str(tmp_path))
    assert types.is_float_dtype(results.runs["train_seconds"])
    assert results.runs["train_seconds"].mean() == pytest.approx(13.0)
    assert types.is_datetime64_any_dtype(results.runs["started"])
    assert types.is_bool_dtype(results.runs["converged"])
    assert results.runs["converged"].sum() == 4
    assert set(results.runs.loc[results.runs["status"] == "ok", "series"]) == {"none", "rope"}
    assert types.is_float_dtype(results.rows["value"])
    assert types.is_integer_dtype(results.rows["eval_length"])


def test_rows_of_everything_go_into_the_functions_of_one(tmp_path: Path) -> None:
    write_sweep(tmp_path, ("none", "rope"), seeds=2)
    rows = experiments.load(tmp_path).rows
    for module in (length_extrapolation, permutation_report):
        alone = rows[rows["experiment"] == module.NAME]
        pd.testing.assert_frame_equal(module.summarise(rows), module.summarise(alone))
        assert set(module.plot(rows)) == set(module.plot(alone)) != set()
    assert "quality_loss" not in set(length_extrapolation.summarise(rows)["metric"])


def test_every_experiment_takes_them(command: Command, tmp_path: Path) -> None:
    arguments = [
        "encoder=rope",
        "model=tiny",
        "train.steps=2",
        "train.rounds=1",
        "task=text",
        "experiment=all",
        "name=all",
    ]
    small = ["task.train_length=16", "length_extrapolation.multiples=[1,2]", "cost.multiples=[1]", "cost.seconds=0.01"]
    assert command(*arguments, *small, "figures=false").code == 0
    rows = experiments.load(tmp_path / "results" / "all").rows
    assert set(rows["experiment"]) >= set(experiment_names())
    for name in experiment_names():
        module = report_of(name)
        summary, figures = module.summarise(rows), module.plot(rows)
        assert len(summary)
        assert {"series", "mean", "low", "high", "seeds"} <= set(summary.columns)
        assert figures or set(rows["status"][rows["experiment"] == name]) == {"unsupported"}
        assert all(isinstance(figure, Figure) for figure in figures.values())


def test_a_folder_that_is_none_is_refused_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no folder") as refusal:
        experiments.load(tmp_path / "nowhere")
    assert "\n" not in str(refusal.value)


def test_it_imports_no_torch(tmp_path: Path) -> None:
    write_run(tmp_path, "rope")
    code = f"import sys, experiments; experiments.load({str(tmp_path)!r}); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_public_names_are_what_they_were() -> None:
    assert {"RunConfig", "Transformer", "load", "make_train_step", "run"} == set(experiments.__all__)
    assert experiments.run.__module__ == "experiments.pipeline"
    assert experiments.Transformer.__name__ == "Transformer"
    assert callable(experiments.make_train_step)
