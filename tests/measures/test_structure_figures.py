"""The experiment `structure`: the rows its pictures are drawn from, the table, and the figures themselves."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.text import Text
from support import Command
from torch import Tensor

import pe_zoo
from experiments.figures import style
from experiments.measures.structure import MAIN
from experiments.measures.structure import measure as structure
from experiments.measures.structure import report as structure_report
from experiments.measures.structure.kernel import exact, kernel
from experiments.measures.structure.vectors import codes
from experiments.model.transformer import Transformer
from experiments.plan.measures import load_experiment
from experiments.rows.row import Row, frame, metric_of, slice_name
from experiments.statistics.intervals import over_seeds
from experiments.tasks import tasks
from experiments.training.evaluate import Subject
from pe_zoo import Encoder, Geometry, Site

LENGTH = 2  # of the word; 5 positions
KNOBS = {"reach": 2, "max_positions": 6, "draws": 2, "kernel_cells": 4, "shifts": (1,)}


def subject(
    name: str = "sinusoidal",
    *,
    encoder: Callable[[Geometry], Encoder] | None = None,
    causal: bool = True,
    seed: int = 0,
    model_dim: int = 8,
    trained: bool = False,
    **knobs: object,
) -> Subject:
    task = tasks.build("copy", train_length=LENGTH)
    geometry = Geometry(
        model_dim=model_dim, num_heads=2, num_layers=1, train_length=task.sequence_length(task.train_length)
    )

    def model() -> Transformer:
        torch.manual_seed(seed)
        made = encoder(geometry) if encoder else pe_zoo.build(name, geometry, **knobs)
        return Transformer(task.vocab_size, geometry, made, causal=causal)

    labels: dict[str, str | int] = {"run_id": f"{name}-{seed}", "encoder": name, "positions": "sequential"}
    return Subject(
        model=model(),
        initial=model,
        trained=trained,
        task=task,
        numbering=pe_zoo.numberings.build("sequential"),
        seed=seed,
        labels=labels | {"task": "copy", "seed": seed, "train_length": LENGTH},
    )


def measured(name: str = "sinusoidal", *, knobs: dict[str, object] | None = None, **given: object) -> list[Row]:
    return structure.measure(subject(name, **given), **{**KNOBS, **(knobs or {})})  # type: ignore[arg-type]


def values(rows: list[Row], metric: str) -> dict[str, float]:
    return {slice_name(row): row.value for row in rows if row.metric == metric and row.status == "ok"}


# ---- rows -----------------------------------------------------------------------------------------


def test_codes_are_the_published_table_to_the_last_digit() -> None:
    """Vaswani et al. 2017, section 3.5, by a loop over plain numbers."""
    found = values(measured(model_dim=4), "code")
    assert len(found) == 6 * 4
    for position in range(6):
        for dimension in range(4):
            angle = position / 10000 ** (2 * (dimension // 2) / 4)
            known = math.cos(angle) if dimension % 2 else math.sin(angle)
            assert found[f"position={position}, dimension={dimension}"] == pytest.approx(known, abs=1e-15)


def test_an_encoder_that_adds_nothing_says_so_once() -> None:
    rows = measured("rope")
    assert [row.status for row in rows if row.metric == "code"] == ["unsupported"]
    assert not values(rows, "wave")


def test_a_table_is_shown_to_its_end_and_the_end_is_said() -> None:
    rows = measured("learned", knobs={"max_positions": 50}, num_rows=7)
    shown = {int(condition.split(",")[0].removeprefix("position=")) for condition in values(rows, "code")}
    assert shown == set(range(7))
    ends = {(row.metric, slice_name(row)) for row in rows if row.status == "unsupported"}
    assert {("code", "position=7"), ("kernel", "position=7"), ("kernel_at", "distance=7")} <= ends
    assert "head=0, distance=6" in values(rows, "kernel_at")
    assert "head=0, distance=7" not in values(rows, "kernel_at")


def test_waves_of_the_default_that_the_model_lacks_are_left_out() -> None:
    assert {c.rpartition("=")[2] for c in values(measured(), "wave")} == {"0"}


def test_a_requested_wave_that_is_absent_is_unsupported() -> None:
    rows = [row for row in measured(knobs={"waves": (3, 8)}) if row.metric == "wave"]
    assert {row.dimension for row in rows if row.status == "ok"} == {3}
    assert [slice_name(row) for row in rows if row.status == "unsupported"] == ["dimension=8"]


def test_a_wide_model_keeps_pairs_of_dimensions() -> None:
    rows = [row for row in measured("sinusoidal", model_dim=256) if row.metric == "code"]
    kept = sorted({row.dimension for row in rows if row.dimension is not None})
    assert (len(kept), kept[0], kept[-1]) == (structure.MAX_DIMENSIONS, 0, 255)
    assert set(np.diff(kept[::2])) == {4, 6}
    assert kept[::2] == [d - 1 for d in kept[1::2]]
    assert all(d % 2 == 0 for d in kept[::2])


@pytest.mark.parametrize("size", [3, 64, 65, 132, 2048])
def test_distances_are_near_ones_all_and_far_ones_thinned_out(size: int) -> None:
    kept = structure.distances(size, 33)
    assert kept == sorted(set(kept))
    assert (kept[0], kept[-1]) == (0, size - 1)
    assert len(kept) == size if size <= 64 else 33 <= len(kept) <= 66
    assert set(range(min(size, 32))) <= set(kept)
    assert {d for d in (32, 33) if d < size} <= set(kept)


@pytest.mark.parametrize("causal", [True, False])
def test_the_curve_is_the_mean_over_queries_by_a_loop(causal: bool) -> None:
    it = subject("t5", causal=causal)
    found = kernel(
        exact(it.model.encoder), torch.arange(10.0), it.stream("structure/kernel"), causal=causal, draws=2
    ).numpy()
    got = values(measured("t5", causal=causal), "kernel_at")
    distances = range(10) if causal else range(-9, 10)
    assert len(got) == 2 * len(distances)
    for head in range(2):
        for distance in distances:
            cells = [found[head, i, i - distance] for i in range(10) if 0 <= i - distance < 10]
            assert got[f"head={head}, distance={distance}"] == pytest.approx(sum(cells) / len(cells), abs=1e-12)


@pytest.mark.parametrize("causal", [True, False])
def test_the_image_is_the_mean_over_heads_where_a_query_may_look(causal: bool) -> None:
    it = subject("alibi", causal=causal)
    found = kernel(exact(it.model.encoder), torch.arange(10.0), it.stream("structure/kernel"), causal=causal, draws=2)
    got = values(measured("alibi", causal=causal), "kernel")
    places = [0, 3, 6, 9]
    seen = [(i, j) for i in places for j in places if j <= i or not causal]
    assert set(got) == {f"position={i}, key={j}" for i, j in seen}
    for i, j in seen:
        assert got[f"position={i}, key={j}"] == pytest.approx(found[:, i, j].mean().item(), abs=1e-12)


def test_the_slope_of_alibi_is_read_off_the_curve() -> None:
    """Two heads have slopes 2^-4 and 2^-8 (Press et al. 2022, section 3)."""
    got = values(measured("alibi"), "kernel_at")
    for head, slope in ((0, 2**-4), (1, 2**-8)):
        fall = got[f"head={head}, distance=0"] - got[f"head={head}, distance=5"]
        assert fall == pytest.approx(5 * slope, abs=1e-12)


def test_a_place_that_is_hidden_leaves_no_row() -> None:
    got = measured("stick_breaking")
    assert "position=3, key=3" not in values(got, "kernel")
    assert "position=3, key=0" in values(got, "kernel")
    assert "head=0, distance=0" not in values(got, "kernel_at")


def test_training_sequences_are_counted_in_positions() -> None:
    assert values(measured(), "train_positions") == {"": 5.0}


def test_a_trained_model_is_shown_as_it_was_initialised() -> None:
    it = subject("learned", trained=True)
    before = structure.measure(it, **KNOBS)  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in it.model.parameters():
            parameter.add_(1.0)
    assert repr(structure.measure(it, **KNOBS)) == repr(before)  # type: ignore[arg-type]
    known = codes(exact(it.initial().encoder), torch.arange(1.0))[0, 0].item()
    assert values(before, "code")["position=0, dimension=0"] == known


class Refuses(Encoder):
    """Cannot be asked at all."""

    name = "refuses"

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        raise pe_zoo.Unsupported("not today")

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        raise pe_zoo.Unsupported("not today")


def test_what_an_encoder_refuses_becomes_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.measures.structure.measure.numbers", lambda *_, **__: [])
    rows = measured("refuses", encoder=Refuses)
    assert [(row.metric, row.status) for row in rows] == [
        ("train_positions", "ok"),
        *((metric, "unsupported") for metric in ("code", "kernel", "kernel_at")),
    ]


@pytest.mark.parametrize("name", pe_zoo.names())
def test_every_encoder_has_pictures_and_all_values_are_finite(name: str) -> None:
    rows = measured(name)
    assert repr(rows) == repr(measured(name)), "bit for bit"
    assert all(math.isfinite(row.value) for row in rows if row.status == "ok")
    assert all(math.isnan(row.value) for row in rows if row.status != "ok")
    assert {row.experiment for row in rows} == {structure.NAME}
    assert all(values(rows, metric) for metric in ("kernel", "kernel_at", MAIN))
    assert bool(values(rows, "code")) == pe_zoo.get(name).overrides("embed")
    assert len({(row.metric, slice_name(row)) for row in rows}) == len(rows)
    figures = structure_report.plot(frame(rows))
    assert {"kernel_curve", "entropy"} <= set(figures)


@pytest.mark.parametrize("name", [name for name in pe_zoo.names() if not pe_zoo.get(name).causal_only])
def test_bidirectional_models_too(name: str) -> None:
    got = values(measured(name, causal=False), "kernel_at")
    assert {"head=0, distance=-9", "head=0, distance=9"} <= set(got)


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        ("reach", 1),
        ("max_positions", 1),
        ("waves", [-1]),
        ("waves", []),
        ("shifts", [0]),
        ("shifts", []),
        ("draws", 0),
        ("kernel_cells", 1),
    ],
)
def test_knobs_out_of_range_are_refused_by_name(knob: str, value: object) -> None:
    fine = {"reach": 4, "max_positions": 100, "waves": [0], "shifts": [1], "draws": 16, "kernel_cells": 32}
    load_experiment("structure", fine)
    with pytest.raises(ValueError, match=f"^structure.{knob} "):
        load_experiment("structure", {**fine, knob: value})


# ---- the table ------------------------------------------------------------------------------------


def test_the_table_takes_the_worst_shift_and_the_longest_length() -> None:
    it = subject()
    rows = [
        it.row(structure.NAME, "score_shift_change", shift=1, value=0.25),
        it.row(structure.NAME, "score_shift_change", shift=10, value=0.75),
        it.cannot(structure.NAME, "score_shift_change", "no", shift=100),
        it.row(structure.NAME, "uncovered", sequence_length=10, value=0.1),
        it.row(structure.NAME, "uncovered", sequence_length=20, value=0.2),
        it.row(structure.NAME, "translation_invariance", value=1.0),
        it.row(structure.NAME, "translation_invariance", head=0, value=0.5),
        it.row(structure.NAME, "half_life", value=3e-17),
    ]
    table = structure_report.shown(frame(rows)).set_index("head")["value"].to_dict()
    assert table == {
        "code alone: only distance counts (1 = yes)": 1.0,
        "with tokens: scores change in a shift (0 = no)": 0.75,
        "half of attention within, tokens": 0.0,
        "share never seen, at 4 × training": 0.2,
    }


def test_what_cannot_be_told_stays_in_the_table() -> None:
    it = subject()
    rows = [it.cannot(structure.NAME, "score_shift_change", "no", shift=n) for n in (1, 10)]
    table = structure_report.shown(frame(rows))
    assert list(table["status"]) == ["unsupported"]


def test_the_table_of_real_rows_has_a_line_for_each_series() -> None:
    rows = frame([row for name in ("alibi", "sinusoidal") for seed in (0, 1) for row in measured(name, seed=seed)])
    table = structure_report.shown(rows.assign(series=rows["encoder"]))
    assert table["head"].nunique() == 8
    assert (over_seeds(table, ["series", "head"])[["seeds", "unsupported"]].sum(axis=1) == 2).all()
    shifted = over_seeds(table, ["series", "head"]).set_index(["series", "head"])["mean"]
    head = "with tokens: scores change in a shift (0 = no)"
    assert shifted[("alibi", head)] == 0.0
    assert shifted[("sinusoidal", head)] > 0.01


# ---- figures --------------------------------------------------------------------------------------


def many(labels: int, seeds: int) -> pd.DataFrame:
    """Rows as of many encoders: those of one, perturbed."""
    rows = frame(measured())
    parts = []
    for label in range(labels):
        for seed in range(seeds):
            part = rows.assign(encoder=f"a_long_encoder_{label}", seed=seed, run_id=f"{label}-{seed}")
            parts.append(part.assign(value=part["value"] * (1 + 0.01 * seed + 0.1 * label)))
    return pd.concat(parts, ignore_index=True)


NAMES = {"heatmap", "waves", "kernel", "kernel_curve", "wavelengths", "entropy"}


@pytest.mark.drawn
@pytest.mark.parametrize(("labels", "seeds"), [(1, 1), (9, 2), (21, 1)])
def test_figures_are_of_no_task_and_legible(labels: int, seeds: int) -> None:
    figures = structure_report.plot(many(labels, seeds))
    assert set(figures) == NAMES
    for name, figure in figures.items():
        assert figure.caption
        assert not any("copy" in text.get_text() for text in figure.findobj(Text)), name
        assert min(text.get_fontsize() for text in figure.findobj(Text) if text.get_text()) >= 7
        assert figure.get_figwidth() == style.room()
    assert len([axes for axes in figures["kernel"].axes]) == min(labels, 6)


def test_pictures_are_of_the_first_seed() -> None:
    rows = many(1, 2)
    swapped = rows.assign(seed=1 - rows["seed"])
    first, second = (structure_report.plot(part)["heatmap"].axes[0].images[0].get_array() for part in (rows, swapped))
    assert np.allclose(np.asarray(first) * 1.01, np.asarray(second))


def test_sines_stand_before_cosines() -> None:
    rows = frame(measured(model_dim=4))
    cells = np.asarray(structure_report.plot(rows)["heatmap"].axes[0].images[0].get_array())
    assert cells[0] == pytest.approx([0, 0, 1, 1])
    assert cells[3] == pytest.approx([math.sin(3), math.sin(0.03), math.cos(3), math.cos(0.03)])


def test_the_image_has_every_value_at_its_place() -> None:
    rows = frame(measured("alibi"))
    image = structure_report.plot(rows)["kernel"].axes[0].images[0]
    got = np.ma.masked_invalid(image.get_array())
    part = rows[rows["metric"] == "kernel"]
    known = {(int(i), int(j)): v for i, j, v in zip(part["position"], part["key"], part["value"], strict=True)}
    for row, i in enumerate((0, 3, 6, 9)):
        for column, j in enumerate((0, 3, 6, 9)):
            if j > i:
                assert got.mask[row, column]
            else:
                assert got[row, column] == pytest.approx(known[i, j] - max(known.values()))
    assert list(image.get_extent()) == [-1.5, 10.5, 10.5, -1.5]


def test_rounding_is_not_blown_up_to_a_picture() -> None:
    """A kernel that is the same everywhere is a sentence."""
    parts = []
    for name in ("none", "alibi"):
        rows = frame(measured(name))
        noise = np.where(rows["metric"].isin(["kernel", "kernel_at"]), 1e-14 * np.arange(len(rows)) % 3e-14, 0.0)
        parts.append(rows.assign(value=rows["value"] + noise))
    assert "kernel" not in structure_report.plot(parts[0])
    assert structure_report.plot(parts[0])["kernel_curve"].axes[0].get_ylim() == pytest.approx((-1, 1))
    kernel = structure_report.plot(pd.concat(parts))["kernel"]
    assert len(kernel.axes) == 1
    assert "The same score everywhere: none." in kernel.caption


def test_nothing_is_drawn_of_what_was_not_measured() -> None:
    rows = frame(measured("alibi"))
    assert set(structure_report.plot(rows)) == {"kernel", "kernel_curve", "entropy"}
    assert structure_report.plot(rows.assign(status="unsupported", value=math.nan)) == {}
    assert structure_report.plot(rows.iloc[:0]) == {}


def test_every_metric_is_named_and_documented() -> None:
    readme = (Path(__file__).parents[2] / "docs" / "rows.md").read_text(encoding="utf-8")
    for metric in {row.metric for row in measured()}:
        assert metric_of(metric).unit, metric
        assert f"`{metric}`" in readme, metric


def test_from_the_command_line(command: Command, tmp_path: Path) -> None:
    done = command("encoder=sinusoidal", "experiment=structure", "model=tiny", "structure.waves=[1,3]", "name=s")
    assert done.code == 0, done.err
    (folder,) = (tmp_path / "results" / "s" / "runs").iterdir()
    assert json.loads((folder / "run.json").read_text())["trained"] is False
    with (folder / "rows.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["metric"] for row in rows} >= {"code", "wave", "kernel", "kernel_at", MAIN}
    asked = {f"position={p}, dimension={d}" for p in range(100) for d in (1, 3)}
    assert {slice_name(row) for row in rows if row["metric"] == "wave"} == asked
    drawn = {path.stem.removeprefix("structure_") for path in (folder / "figures").glob("structure_*.png")}
    assert drawn == NAMES
    assert command("experiment=structure", "structure.reach=0", "name=t").code == 2
