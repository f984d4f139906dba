"""The same run again: the same rows to the last bit, or which differ, and what else was not the same."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from support import Command

from experiments.rows.row import COORDINATES, METRICS
from experiments.runs import rerun

TINY = [
    "figures=false",
    "model=tiny",
    "train.steps=4",
    "train.rounds=1",
    "train.curve_points=2",
    "experiment=length_extrapolation",
    "name=first",
]
TINY += ["length_extrapolation.samples=2", "length_extrapolation.multiples=[1]"]
PLUGIN = """
import pe_zoo

@pe_zoo.register("rerun_outsider")
class Outsider(pe_zoo.Encoder):
    pass
"""


def only_run(folder: Path) -> Path:
    (found,) = (folder / "results" / "first" / "runs").iterdir()
    return found


@pytest.mark.parametrize("options", [["encoder=rope"], ["tune=true", "train.learning_rates=[0.001,0.01]"]])
def test_the_same_run_again_has_the_same_rows(command: Command, tmp_path: Path, options: list[str]) -> None:
    assert command(*TINY, *options).code == 0
    place = only_run(tmp_path)
    before = (place / "rows.csv").read_bytes()
    done = command("--rerun", str(place))
    assert done.code == 0, done.err + done.out
    assert "bit for bit" in done.out
    again = tmp_path / "results" / "first-rerun" / "runs" / place.name / "rows.csv"
    assert again.read_bytes() == before == (place / "rows.csv").read_bytes()


def test_what_differs_is_shown_largest_first(command: Command, tmp_path: Path) -> None:
    assert command(*TINY).code == 0
    place = only_run(tmp_path)
    with (place / "rows.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    lines[0]["value"] = repr(float(lines[0]["value"]) + 0.25)
    lines[1]["value"] = repr(float(lines[1]["value"]) + 0.5)
    with (place / "rows.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    record = json.loads((place / "run.json").read_text())
    record["torch"], record["packages"]["numpy"] = "1.0", "0.9"
    (place / "run.json").write_text(json.dumps(record))
    done = command("--rerun", str(place))
    assert done.code == 1, done.err
    assert f"2 of {len(lines)} rows differ, by 0.5 at most" in done.out
    assert "Another rounding does not explain this: " in done.out
    assert "torch: 1.0 then" in done.out
    assert "numpy: 0.9 then" in done.out


def test_a_plugin_is_given_again_and_is_the_same(command: Command, tmp_path: Path) -> None:
    file, other = tmp_path / "outsider.py", tmp_path / "other.py"
    file.write_text(PLUGIN)
    other.write_text(PLUGIN.replace("rerun_outsider", "rerun_other"))
    assert command(*TINY, f"plugin={file}", "encoder=rerun_outsider").code == 0
    place = only_run(tmp_path)
    for options, said in (([], "add plugin=FILE.py"), ([f"plugin={other}"], "give the same file")):
        done = command("--rerun", str(place), *options)
        assert done.code == 2
        assert said in done.err
        assert done.err.count("\n") == 1
    assert command("--rerun", str(place), f"plugin={file}").code == 0


@pytest.mark.parametrize("file", ["rows.csv", "run.json", "config.yaml"])
def test_what_cannot_be_repeated_is_refused_in_one_line(command: Command, tmp_path: Path, file: str) -> None:
    assert command(*TINY).code == 0
    place = only_run(tmp_path)
    (place / file).write_text("garbage")
    for given in ([str(place)], [str(tmp_path)], [], [str(place), "more"]):
        done = command("--rerun", *given)
        assert (done.code, done.err.count("\n"), done.err[:7]) == (2, 1, "error: ")
    assert not (tmp_path / "results" / "first-rerun").exists()


def test_times_are_not_compared_and_everything_else_is() -> None:
    timed = {name for name, metric in METRICS.items() if not metric.repeats}
    endings = ("_per_second", "_time", "_ms_per_token", "_read_seconds")
    assert timed == {name for name in METRICS if name.endswith(endings)}
    table = {"experiment": ["cost"] * 2, "train_length": [1] * 2, "eval_length": [1] * 2, "condition": [""] * 2}
    table |= {column: [None] * 2 for column in COORDINATES}
    table |= {"chance": [float("nan")] * 2, "n": [1] * 2, "status": ["ok"] * 2}
    table["metric"] = ["train_tokens_per_second", "operations_per_token"]
    first, timing, other = ({**table, "value": values} for values in ([1.0, 2.0], [3.0, 2.0], [1.0, 2.5]))
    assert rerun.compare(first, timing)[0]
    same, said = rerun.compare(first, other)
    assert not same
    assert "1 of 1 rows differ, by 0.5 at most; 1 row of times not compared" in said
