"""Results of earlier releases, whose conditions hold the coordinates, read as new ones."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pandas as pd
import pytest

from experiments.rows.packed import unpack
from experiments.rows.results import read
from experiments.rows.row import COORDINATES, Row, write_rows


@pytest.mark.parametrize(
    ("packed", "condition", "coordinates"),
    [
        ("", "", {}),
        ("step=240", "", {"step": 240}),
        ("learning_rate=3e-05", "", {"learning_rate": 3e-5}),
        ("layer=1, head=0, distance=5-8", "", {"layer": 1, "head": 0, "distance": 5, "size": 4}),
        ("layer=0, distance=-8--5", "", {"layer": 0, "distance": -8, "size": 4}),
        ("head=3, distance=-1", "", {"head": 3, "distance": -1}),
        ("position=17-20", "", {"position": 17, "size": 4}),
        ("query=40, key=8", "", {"position": 40, "key": 8}),
        ("positions: 2-gram shuffle", "positions: n-gram shuffle", {"size": 2}),
        ("shuffle within 8", "shuffle within", {"size": 8}),
        ("within 16", "within", {"size": 16}),
        ("positions: adjacent swaps 12.5%", "positions: adjacent swaps", {"share": 0.125}),
        ("positions: reversal, layer=2", "positions: reversal", {"layer": 2}),
        ("tokens, inputs=3/8", "tokens", {"part": 3}),
        ("rope_ntk, factor=3.879", "rope_ntk", {"factor": 3.879}),
        ("window, keys=128", "window", {"size": 128}),
        ("keys=132, head=1", "", {"sequence_length": 132, "head": 1}),
        ("without encoder, places=528", "without encoder", {"sequence_length": 528}),
        ("held out, offset=4", "held out", {"shift": 4}),
        ("bfloat16, below=10000", "bfloat16", {"sequence_length": 10000}),
        ("shuffled labels, layer=2", "shuffled labels", {"layer": 2}),
        ("a, b=c, layer=x, layer=", "a, b=c, layer=x, layer=", {}),
        (f"layer={'9' * 40}", f"layer={'9' * 40}", {}),
    ],
)
def test_packed_conditions(packed: str, condition: str, coordinates: dict[str, float]) -> None:
    assert unpack(packed) == (condition, coordinates)


@pytest.mark.parametrize("lacking", [(), ("chance", "n", "status")])
def test_a_file_without_coordinates_reads_like_a_new_one(tmp_path: Path, lacking: tuple[str, ...]) -> None:
    given = {"encoder": "rope", "positions": "sequential", "task": "copy", "seed": 0, "experiment": "e", "metric": "m"}
    row = {"train_length": 16, "eval_length": 16, "value": 0.5, **given}
    packed = ["", "shuffle, layer=2", "4-gram shuffle", "adjacent swaps 10%", "window, keys=17", "odd, name=1"]
    for name, conditions in (("old", packed), ("new", map(unpack, packed))):
        place = tmp_path / "runs" / name
        place.mkdir(parents=True)
        (place / "config.yaml").write_text("seed: 0\nname: old\n")
        (place / "run.json").write_text(json.dumps({"status": "ok"}))
        if name == "old":
            with (place / "rows.csv").open("w", newline="") as file:
                columns = ["run_id", *row, "condition", *(c for c in ("chance", "n", "status") if c not in lacking)]
                writer = csv.DictWriter(file, columns, restval="")
                writer.writeheader()
                full = {"chance": "", "n": 0, "status": "ok"}
                more = {column: value for column, value in full.items() if column not in lacking}
                writer.writerows({"run_id": name, **row, "condition": text, **more} for text in conditions)
        else:
            rows = [Row(run_id=name, condition=done, **row, **where) for done, where in conditions]  # type: ignore
            write_rows(place / "rows.csv", rows)
    found = read(tmp_path)
    assert set(found.runs["status"]) == {"ok"}, list(found.runs["message"])
    old, new = (found.rows[found.rows["run_id"] == name].reset_index(drop=True) for name in ("old", "new"))
    pd.testing.assert_frame_equal(old.drop(columns=["run_id", "series"]), new.drop(columns=["run_id", "series"]))
    assert new["layer"].tolist()[1] == 2
    assert {str(new[column].dtype) for column in COORDINATES} == {"Int32", "float64"}
