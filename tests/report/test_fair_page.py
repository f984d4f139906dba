"""What the report says of fair training: learning rates tuned or shared, runs stopped early, controls or none."""

from __future__ import annotations

import csv
import math
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scipy import stats as scipy_stats
from support import main_rows, read_page, values_of, write_run

import report
from experiments.rows.row import Row

TRAIN = {"steps": 2000, "learning_rate": 0.001, "max_steps": None}
TUNED = TRAIN | {"learning_rate": "tuned", "learning_rates": [0.0003, 0.001, 0.003]}
MODEL = {"num_layers": 2, "model_dim": 64, "num_heads": 2, "as_many_as": None}
CONTROL = "none · model.as_many_as=t5"


def text_of(folder: Path) -> str:
    assert report.main([str(folder)]) == 0
    return read_page(folder).text


def search(chosen: float | None, seconds: float = 40.0) -> dict[str, Any]:
    losses = {0.0003: 0.5, 0.001: 0.4, 0.003: None}
    if chosen is not None:
        losses[chosen] = 0.1
    grid = list(losses)
    edge = chosen in (grid[0], grid[-1])
    return {"grid": grid, "losses": list(losses.values()), "chosen": chosen, "seconds": seconds, "at_edge": edge}


def searched(rows: list[Row]) -> list[Row]:
    """With the rows of a search; what they say is in the record too."""
    row = replace(rows[0], experiment="tuning", metric="validation_loss", learning_rate=0.001, value=0.4)
    return [*rows, row, replace(row, learning_rate=0.003, value=math.nan, status="diverged")]


def record(**changed: Any) -> dict[str, Any]:
    return {"steps": 2000, "stopped": "steps", "tuning": None} | changed


# ------------------------------------------------------------------------------------- learning rates and steps


def test_a_shared_learning_rate_is_said_to_be_one(tmp_path: Path) -> None:
    for encoder in ("none", "rope"):
        write_run(tmp_path, encoder, config={"train": TRAIN}, record=record())
    text = text_of(tmp_path)
    assert "One peak learning rate, 0.001, was shared by all runs, not tuned" in text
    assert "learning rates other than 0.001" in text
    assert "tuned in" not in text
    assert "ended" not in text.partition("Length extrapolation")[0]
    assert not any(caption.startswith("Learning rates") for caption in read_page(tmp_path).tables)


def test_learning_rates_set_by_hand_are_all_named(tmp_path: Path) -> None:
    write_run(tmp_path, "none", config={"train": TRAIN}, record=record())
    write_run(tmp_path, "rope", config={"train": TRAIN | {"learning_rate": 0.01}}, record=record())
    assert "The peak learning rates of all runs, 0.001 and 0.01, were set by hand, not tuned" in text_of(tmp_path)


def test_tuned_runs_say_which_rates_were_tried_and_chosen(tmp_path: Path) -> None:
    chosen = {("none", 0): 0.001, ("none", 1): 0.001, ("rope", 0): 0.001, ("rope", 1): 0.003, ("alibi", 0): None}
    for (encoder, seed), rate in chosen.items():
        told = record(tuning=search(rate, 40.0 + seed), train_seconds=12.0)
        write_run(tmp_path, encoder, seed, config={"train": TUNED}, record=told, rows=searched)
    text = text_of(tmp_path)
    assert "tuned in every run, for each seed separately: of trainings with 0.0003, 0.001 and 0.003" in text
    assert "not tuned" not in text
    assert "learning rates other than" not in text
    assert "3.6 minutes, all runs added up" in text, "searches of 40, 41, 40, 41 and 40 s, 3.25 s of measuring each"
    assert not any("alidation" in caption or caption.startswith("Tuning") for caption in read_page(tmp_path).tables)
    head, *lines = read_page(tmp_path).tables["Learning rates, copy"]
    assert head[:4] == ["series", "chosen", "tried", "seconds of the search"]
    cells = {line[0]: line[1:] for line in lines}
    grid = "0.0003, 0.001, 0.003"
    assert cells == {
        "none": ["0.001 (2 seeds)", grid, "40.5", "12", ""],
        "rope": ["0.001 (1 seed), 0.003 (1 seed)", grid, "40.5", "12", "at the edge in 1 of 2 seeds"],
        "alibi": ["none (1 seed, all diverged)", grid, "40", "12", ""],
    }
    with (tmp_path / "report/tables/copy_tuning.csv").open(newline="") as file:
        found = [line for line in csv.DictReader(file) if line["series"] == "rope" and line["seed"] == "1"]
    assert [(line["learning_rate"], line["chosen"]) for line in found] == [
        ("0.0003", "False"),
        ("0.001", "False"),
        ("0.003", "True"),
    ]


def test_what_is_kept_at_each_rate_is_told_of_those_that_learned(tmp_path: Path) -> None:
    def measured(rows: list[Row]) -> list[Row]:
        beyond = [row for row in rows if row.experiment == "length_extrapolation"]
        return searched(rows) + [replace(row, experiment="tuning", learning_rate=0.003) for row in beyond]

    for seed in range(2):
        told = record(tuning=search(0.003, 40.0), train_seconds=12.0)
        write_run(tmp_path, "none", seed, config={"train": TUNED}, record=told, rows=searched if seed else measured)
        write_run(tmp_path, "rope", seed, config={"train": TUNED}, record=told, rows=searched)
    text_of(tmp_path)
    head, *lines = read_page(tmp_path).tables["Learning rates, copy"]
    assert head[3] == "kept at 0.003, %"
    assert {line[0]: line[3] for line in lines} == {"none": f"{100 * kept_by_none(tmp_path):.0f} (1 of 2)", "rope": "–"}


def kept_by_none(place: Path) -> float:
    """What seed 0 keeps by the CSV of the table, which knows of no other run that learned at a rate."""
    with (place / "report/tables/copy_tuning.csv").open(newline="") as file:
        lines = [line for line in csv.DictReader(file) if line["kept"]]
    assert {(line["series"], line["seed"], line["learning_rate"]) for line in lines} == {("none", "0", "0.003")}
    return float(lines[0]["kept"])


def test_tuned_and_other_runs_side_by_side_are_two_series(tmp_path: Path) -> None:
    for seed in range(2):
        told = record(tuning=search(0.001))
        write_run(tmp_path, "rope", seed, run_id=f"tuned{seed}", config={"train": TUNED}, record=told)
        write_run(tmp_path, "rope", seed, run_id=f"rope{seed}", config={"train": TRAIN}, record=record())
    text = text_of(tmp_path)
    assert "tuned in 2 of 4 runs" in text
    assert "One peak learning rate, 0.001, was shared by the other runs" in text
    labels = [line[0] for line in read_page(tmp_path).tables["Training cost, copy"][1:]]
    assert labels == ["rope", "rope · train.learning_rate=tuned"]


def test_runs_that_ended_early_are_said_to_have(tmp_path: Path) -> None:
    write_run(tmp_path, "none", config={"train": TRAIN}, record=record(steps=800, stopped="converged"))
    write_run(tmp_path, "rope", config={"train": TRAIN}, record=record(steps=1200, stopped="converged"))
    write_run(tmp_path, "t5", config={"train": TRAIN | {"max_steps": 90}}, record=record(steps=90, stopped="max_steps"))
    text = text_of(tmp_path)
    assert "2 of 3 runs ended as soon as the task counted as learned within the training length" in text
    assert "differ: on average over all runs 90 with t5 · train.max_steps=90, 800 with none and 1,200 with rope" in text
    assert "1 of 3 runs ended at train.max_steps, before the 2000 steps of the learning-rate schedule" in text
    head, *lines = read_page(tmp_path).tables["Training cost, copy"]
    column = head.index("steps")
    assert [line[column] for line in lines] == ["800", "1,200", "90"]


# ------------------------------------------------------------------------------------------------------ controls


def write_controlled(folder: Path, *, seeds: int = 3, control: int = 412_345 + 24000 + 10, **model: Any) -> None:
    """t5 that adds 24000 parameters, none, and none with a trunk of ``control`` parameters."""
    for seed in range(seeds):
        for encoder in ("none", "rope"):
            write_run(folder, encoder, seed, rows=main_rows, config={"train": TRAIN, "model": MODEL}, record=record())
        added = record(
            encoder_parameters=24000, command="python run.py -m encoder=t5,rope seed=0,1 model=tiny name=here"
        )
        write_run(folder, "t5", seed, rows=main_rows, config={"train": TRAIN, "model": MODEL}, record=added)
        if control:
            write_run(
                folder,
                "none",
                seed,
                run_id=f"widened{seed}",
                config={"train": TRAIN, "model": MODEL | {"as_many_as": "t5"} | model},
                record=record(model_parameters=control),
                rows=lambda rows: [replace(row, value=row.value * 0.9) for row in main_rows(rows)],
            )


def test_an_encoder_that_adds_much_is_compared_with_its_control(tmp_path: Path) -> None:
    write_controlled(tmp_path)
    assert report.main([str(tmp_path)]) == 0
    page = read_page(tmp_path)
    _, line = page.tables["Controls with as many parameters, copy"]
    assert line[:4] == ["t5", "24,000", "5.8 %", f"{CONTROL} (control)"]
    means = [kept_of(tmp_path, run_ids(tmp_path, prefix)) for prefix in ("t5", "widened")]
    tested = scipy_stats.ttest_ind(*means, equal_var=False)
    interval = tested.confidence_interval(0.95)
    difference = statistics.fmean(means[0]) - statistics.fmean(means[1])
    assert line[4] == f"{difference:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]".replace("-", "−")
    assert line[5] == ("< 0.001" if tested.pvalue < 0.001 else f"{tested.pvalue:.3f}")
    assert "To add a missing control" not in page.text


def kept_of(folder: Path, runs: list[str]) -> list[float]:
    """What each run keeps at 32, 64 and 128, trained to 16; the best guess is right in 0.1."""
    curves = [
        values_of(
            folder,
            experiment=["length_extrapolation"],
            metric=["token_accuracy"],
            eval_length=[str(length)],
            run_id=runs,
        )
        for length in (16, 32, 64, 128)
    ]
    kept = [{key: (value - 0.1) / (curves[0][key] - 0.1) for key, value in curve.items()} for curve in curves]
    return [(kept[1][key] + kept[2][key] + kept[3][key]) / 3 for key in kept[0]]


def run_ids(folder: Path, prefix: str) -> list[str]:
    return [path.name for path in (folder / "runs").iterdir() if path.name.startswith(prefix)]


@pytest.mark.parametrize(
    ("size", "model"),
    [(0, {}), (412_345 + 23999, {}), (412_345 + 24000 + 256, {}), (412_345 + 24010, {"num_heads": 8})],
    ids=["none there", "too small", "too large", "another trunk"],
)
def test_what_is_no_control_does_not_count_as_one(tmp_path: Path, size: int, model: dict[str, Any]) -> None:
    write_controlled(tmp_path, control=size, **model)
    assert report.main([str(tmp_path)]) == 0
    page = read_page(tmp_path)
    _, line = page.tables["Controls with as many parameters, copy"]
    assert line[0].partition(" · ")[0] == "t5"
    assert line[1:] == ["24,000", "5.8 %", "not in this folder", "", ""]
    assert "encoder=none model.as_many_as=<encoder>" in page.text


def test_encoders_that_add_little_need_no_control(tmp_path: Path) -> None:
    write_run(tmp_path, "t5", rows=main_rows, record=record(encoder_parameters=20617))
    write_run(tmp_path, "none")
    assert "Controls with as many" not in text_of(tmp_path)
    write_run(tmp_path, "learned", rows=main_rows, record=record(encoder_parameters=20618))
    assert "Controls with as many" in text_of(tmp_path)


def test_a_control_decides_no_claim_of_its_encoder(tmp_path: Path) -> None:
    """The widened model without an encoder must not pass for the plain one, nor stand in its way."""
    write_controlled(tmp_path)
    plain = tmp_path / "plain"
    write_controlled(plain, control=0)
    assert report.main([str(tmp_path)]) == report.main([str(plain)]) == 0
    caption = "Published statements"
    assert read_page(tmp_path).tables[caption] == read_page(plain).tables[caption]


def structure_alone(rows: list[Row]) -> list[Row]:
    return [replace(rows[0], experiment="structure", metric="translation_invariance", step=None, value=0.5)]


def test_what_was_not_trained_is_no_part_of_the_cost_of_training(tmp_path: Path) -> None:
    write_controlled(tmp_path, control=0)
    for seed in range(2):
        write_run(
            tmp_path,
            "t5",
            seed,
            run_id=f"a-untrained{seed}",
            config={"train": None, "model": MODEL, "experiment": ["structure"]},
            record=record(
                encoder_parameters=24000,
                steps=0,
                stopped=None,
                train_seconds=0.0,
                tokens_per_second=None,
                converged=None,
                command="python run.py -m experiment=structure encoder=t5",
            ),
            rows=structure_alone,
        )
    assert report.main([str(tmp_path)]) == 0
    page = read_page(tmp_path)
    head, *lines = page.tables["Training cost, copy"]
    (of_t5,) = ([*line] for line in lines if line[0] == "t5")
    assert of_t5[head.index("steps")] == "2,000"
    assert of_t5[head.index("train seconds")] == "13.5"
    assert page.tables["Structure, copy"][1:] == [["t5", "0.5"]]


def test_a_folder_without_training_has_no_controls(tmp_path: Path) -> None:
    told = record(encoder_parameters=24000, steps=0, train_seconds=0.0, tokens_per_second=None, converged=None)
    write_run(
        tmp_path,
        "t5",
        config={"train": None, "experiment": ["structure"]},
        record=told,
        rows=structure_alone,
    )
    text = text_of(tmp_path)
    assert "Training cost" in text
    assert "Controls with as many" not in text
