"""Sizes and budgets are compared each by itself, and a folder of one size is left as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support import write_run

from experiments.report import build
from experiments.rows import results as stored
from experiments.rows.rungs import amount, apart, rung_of

SIZES = {"0.15M": (3, 64), "0.6M": (4, 112)}


def write(place: Path, *, sizes: tuple[str, ...] = ("0.15M", "0.6M"), tasks: tuple[str, ...] = ("copy",)) -> None:
    for size in sizes:
        layers, width = SIZES[size]
        for task in tasks:
            for encoder in ("none", "rope", "alibi"):
                for budget in (5, 20) if size == "0.15M" else (5,):
                    parameters = 12 * layers * width**2
                    config: dict[str, Any] = {
                        "model": {"num_layers": layers, "model_dim": width, "ffn_multiple": 4},
                        "train": {"steps": round(budget * parameters / 1000), "tokens_per_step": 1000},
                    }
                    run_id = f"{encoder}-{task.partition('(')[0]}-seed0-{layers}-{budget}-{len(task)}"
                    write_run(place, encoder, task=task, config=config, run_id=run_id)


def test_a_rung_is_parameters_of_layers_and_tokens_for_each() -> None:
    config = {"model.model_dim": "64", "model.num_layers": "3", "model.ffn_multiple": "4"}
    rung = rung_of({**config, "train.steps": "360", "train.tokens_per_step": "2048"})
    assert rung == (147456, 5.0)
    assert str(rung) == "0.15M, 5 tokens a parameter"
    assert rung_of(config).budget != rung_of(config).budget, "an untrained model has no budget"
    assert amount(31457280) == "31M"


def test_each_rung_is_a_task_and_its_series_have_short_names(tmp_path: Path) -> None:
    write(tmp_path)
    whole = stored.read(tmp_path)
    results = apart(whole)
    keys = [f"copy({rung} tokens a parameter)" for rung in ("0.15M, 20", "0.15M, 5", "0.6M, 5")]
    assert sorted(results.rows["task"].unique()) == keys
    assert set(results.rows["series"]) == set(results.runs["series"]) == {"none", "rope", "alibi"}
    assert set(results.settings) == set(keys)
    assert set(whole.rows["task"]) == {"copy"}


def test_options_stay_where_two_tasks_share_a_name(tmp_path: Path) -> None:
    write(tmp_path, tasks=("copy", "copy(unique=True)"))
    keys = set(apart(stored.read(tmp_path)).rows["task"])
    assert {"copy(0.6M, 5 tokens a parameter)", "copy(unique=True, 0.6M, 5 tokens a parameter)"} <= keys


def test_one_size_is_left_as_it_is(tmp_path: Path) -> None:
    write(tmp_path, sizes=("0.15M",))
    results = stored.read(tmp_path)
    assert apart(results) is results


def test_models_of_other_sizes_that_were_not_trained_split_nothing(tmp_path: Path) -> None:
    write(tmp_path, sizes=("0.15M",))
    write_run(
        tmp_path, "rope", config={"model": {"num_layers": 1, "model_dim": 8, "ffn_multiple": 4}}, run_id="as-it-is"
    )
    results = stored.read(tmp_path)
    assert apart(results) is results


def test_a_page_of_several_sizes_has_a_board_for_each_in_order(tmp_path: Path) -> None:
    write(tmp_path)
    page, index = build.write(tmp_path, None, [])
    names = [below.name for below in page.below if below.name.startswith("copy(")]
    assert names == [f"copy({rung} tokens a parameter)" for rung in ("0.15M, 5", "0.15M, 20", "0.6M, 5")]
    assert "Does this transfer?" in index.read_text(encoding="utf-8")
    assert not any("differ in train." in warning for warning in page.warnings)
