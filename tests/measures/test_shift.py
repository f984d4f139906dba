"""What shifting all positions does: against a plain second computation, and who must and must not notice."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from support import Command, many, subject_of

import pe_zoo
from experiments.measures.shift_sensitivity import measure as shift_sensitivity
from experiments.measures.shift_sensitivity import report as shift_report
from experiments.plan.measures import load_experiment
from experiments.rows.row import Row, frame, slice_name
from experiments.tasks import tasks
from experiments.training.evaluate import Subject

METRICS = ("token_accuracy", "exact_match", "quality_loss", "output_change", "initial_output_change")


def value(rows: list[Row], metric: str, condition: str) -> float:
    (found,) = (row.value for row in rows if (row.metric, slice_name(row)) == (metric, condition))
    return found


def changed(subject: Subject) -> Subject:
    """The model as some training might leave it, other than it was."""
    with torch.no_grad():
        for parameter in subject.model.parameters():
            parameter.mul_(1.3)
    return subject


@pytest.mark.parametrize("causal", [True, False])
def test_every_metric_equals_its_definition_token_by_token(causal: bool) -> None:
    subject = changed(subject_of("sinusoidal", causal=causal))
    rows = shift_sensitivity.measure(subject, shifts=(3,), samples=5)
    batch, positions = subject.question("shift_sensitivity", 5, 6)
    norms: dict[str, list[float]] = {}
    right = {0: 0, 3: 0}
    for sequence in range(5):
        for stage, model in (("", subject.model), ("initial_", subject.initial())):
            outputs = {}
            for shift in (0, 3):
                logits = model(batch.tokens[sequence : sequence + 1], positions + shift)[0].detach().double()
                outputs[shift] = [logits[t] - logits[t].mean() for t in range(13) if batch.counted[t]]
                if stage == "":
                    said = zip(outputs[shift], batch.targets[sequence, batch.counted], strict=True)
                    right[shift] += sum(int(one.argmax()) == int(target) for one, target in said)
            pairs = list(zip(outputs[0], outputs[3], strict=True))
            norms.setdefault(f"{stage}top", []).extend(float(((b - a) ** 2).sum()) for a, b in pairs)
            norms.setdefault(f"{stage}bottom", []).extend(float((a**2).sum()) for a, _ in pairs)
    for stage in ("", "initial_"):
        wanted = math.sqrt(sum(norms[f"{stage}top"]) / sum(norms[f"{stage}bottom"]))
        assert value(rows, f"{stage}output_change", "shift=3") == pytest.approx(wanted, rel=1e-4)
    assert value(rows, "token_accuracy", "") == pytest.approx(right[0] / 30)
    assert value(rows, "token_accuracy", "shift=3") == pytest.approx(right[3] / 30)
    assert value(rows, "quality_loss", "shift=3") == pytest.approx((right[0] - right[3]) / 30)
    assert value(rows, "output_change", "shift=3") != value(rows, "initial_output_change", "shift=3")


def test_a_loss_is_positive_where_quality_falls(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the quick brown fox " * 40)
    task = tasks.build("text", train_length=16, path=str(tmp_path / "text.txt"), duplicates="kept")
    rows = shift_sensitivity.measure(subject_of("sinusoidal", task=task), shifts=(1, 64), samples=4)
    for shift in ("shift=1", "shift=64"):
        more = value(rows, "bits_per_byte", shift) - value(rows, "bits_per_byte", "")
        assert value(rows, "quality_loss", shift) == pytest.approx(more)
        assert more != 0
    assert {row.n for row in rows if row.metric == "bits_per_byte"} == {4 * 16}, "all bytes are scored"


def test_a_shift_is_the_same_as_a_numbering_that_starts_there() -> None:
    offset = pe_zoo.numberings.build("offset", num_offsets=1, evaluate_at=3)
    shifted = shift_sensitivity.measure(subject_of("learned"), shifts=(3, 5), samples=6)
    started = shift_sensitivity.measure(subject_of("learned", numbering=offset), shifts=(2,), samples=6)
    for metric in ("token_accuracy", "exact_match"):
        assert value(shifted, metric, "shift=3") == value(started, metric, "")
        assert value(shifted, metric, "shift=5") == value(started, metric, "shift=2")


def test_half_the_length_leaves_room_to_shift_within_the_range_trained_on() -> None:
    """Of 13 positions trained on, words of 3 take 7: a table of 13 rows has a shift by 6, and none by 7."""
    subject = subject_of("learned", num_rows=13)
    rows = shift_sensitivity.measure(subject, shifts=(6, 7), samples=4, length_share=0.5)
    assert {row.eval_length for row in rows} == {3}
    assert {row.status for row in rows if row.shift != 7} == {"ok"}
    assert {row.status for row in rows if row.shift == 7} == {"unsupported"}
    batch, positions = subject.question("shift_sensitivity", 4, 3)
    logits = subject.model(batch.tokens, positions + 6)[:, batch.counted]
    right = (logits.argmax(-1) == batch.targets[:, batch.counted]).double().mean().item()
    assert value(rows, "token_accuracy", "shift=6") == pytest.approx(right)


def test_each_sequence_may_have_positions_of_its_own() -> None:
    drawn = pe_zoo.numberings.build("randomized", limit=64)
    relative = shift_sensitivity.measure(subject_of("rope", numbering=drawn), shifts=(16,), samples=6)
    absolute = shift_sensitivity.measure(subject_of("sinusoidal", numbering=drawn), shifts=(16,), samples=6)
    assert value(relative, "output_change", "shift=16") < 1e-5
    assert value(absolute, "output_change", "shift=16") > 0.1


@pytest.mark.parametrize("name", pe_zoo.names())
def test_those_who_claim_not_to_notice_do_not_and_all_repeat(name: str) -> None:
    for causal in (True,) if pe_zoo.get(name).causal_only else (True, False):
        subject = subject_of(name, causal=causal)
        rows = shift_sensitivity.measure(subject, shifts=(1, 256), samples=4)
        assert all(row.status == "ok" and np.isfinite(row.value) for row in rows)
        assert {row.metric for row in rows if row.shift == 256} == set(METRICS)
        if subject.model.encoder.shift_invariant:
            for shift in ("shift=1", "shift=256"):
                assert value(rows, "output_change", shift) < 1e-4
                assert value(rows, "quality_loss", shift) == 0
        assert rows == shift_sensitivity.measure(subject_of(name, causal=causal), shifts=(1, 256), samples=4)


@pytest.mark.parametrize("name", ["sinusoidal", "learned", "fire", "longrope", "tupe"])
def test_those_who_see_positions_themselves_notice(name: str) -> None:
    rows = shift_sensitivity.measure(subject_of(name), shifts=(64,), samples=4)
    assert value(rows, "output_change", "shift=64") > 1e-3
    assert value(rows, "output_change", "shift=64") == value(rows, "initial_output_change", "shift=64")


def test_the_end_of_a_table_is_a_row_for_every_metric() -> None:
    rows = shift_sensitivity.measure(subject_of("learned", num_rows=20), shifts=(64, 1, 7, 8, 1), samples=4)
    conditions = list(dict.fromkeys(slice_name(row) for row in rows))
    assert conditions == ["", "shift=1", "shift=7", "shift=8", "shift=64"]
    for condition in ("shift=8", "shift=64"):  # positions up to 12, rows up to 19
        beyond = [row for row in rows if slice_name(row) == condition]
        assert sorted(row.metric for row in beyond) == sorted(METRICS)
        assert {(row.status, math.isnan(row.value)) for row in beyond} == {("unsupported", True)}
    assert {row.status for row in rows if row.shift in (None, 1, 7)} == {"ok"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"shifts": ()}, "shifts is empty"),
        ({"shifts": (0,)}, "shifts must be a whole number of at least 1"),
        ({"shifts": (1.5,)}, "shifts must be a whole number"),
        ({"shifts": (2**24,)}, "at most"),
        ({"samples": 0}, "samples must be a whole number of at least 1"),
        ({"length_share": 0}, "length_share must be"),
        ({"length_share": 1.5}, "length_share must be"),
    ],
)
def test_knobs_out_of_range_are_refused(given: dict[str, Any], said: str) -> None:
    asked: dict[str, Any] = {"shifts": (1,), "samples": 4, "length_share": 1.0} | given
    with pytest.raises(ValueError, match=said):
        load_experiment("shift_sensitivity", asked)
    load_experiment("shift_sensitivity", dict(shifts=(1, 2**23), samples=1, length_share=0.5))


@pytest.mark.parametrize(("labels", "seeds"), [(1, 1), (6, 3), (16, 1)])
def test_lines_end_where_positions_do(labels: int, seeds: int) -> None:
    rows = many(shift_sensitivity.measure(subject_of("learned", num_rows=20), shifts=(1, 8), samples=4), labels, seeds)
    figures = shift_report.plot(rows)
    (figure,) = figures.values()
    assert list(figures) == ["copy_shift_quality"]
    figure.canvas.draw()
    ends = {tuple(np.asarray(line.get_xdata(), float)) for line in figure.axes[0].lines}
    assert (0, 1) in ends, "the line ends where the table does"
    assert not any(8 in line for line in ends)
    assert len(shift_report.summarise(rows)) == labels * len(
        set(zip(rows["metric"], rows["shift"].fillna(0), strict=True))
    )


def test_no_panel_cuts_another_off(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the quick brown fox " * 40)
    task = tasks.build("text", train_length=16, path=str(tmp_path / "text.txt"), duplicates="kept")
    subject = subject_of("sinusoidal", task=task)
    rows = shift_sensitivity.measure(subject, shifts=(1,), samples=4)
    higher = [replace(row, encoder="without", value=3 * row.value) for row in rows]
    lost = replace(subject.row("shift_sensitivity", "quality_loss", status="diverged"), encoder="alibi")
    for figure in shift_report.plot(frame([lost, *rows, *higher])).values():
        for axes in figure.axes:
            drawn = [float(y) for line in axes.lines for y in np.asarray(line.get_ydata(), dtype=float)]
            assert all(axes.get_ylim()[0] <= y <= axes.get_ylim()[1] for y in drawn if y == y)


def shifted(encoder: str, *values: float) -> pd.DataFrame:
    """Rows of one run: the quality at shifts 0, 1, …, and what is lost."""
    labels: dict[str, Any] = {"run_id": encoder, "encoder": encoder, "positions": "sequential", "task": "copy"}
    labels |= {"seed": 0, "experiment": "shift_sensitivity", "train_length": 4, "eval_length": 4}
    rows = [
        Row(**labels, metric=metric, shift=shift or None, value=value)
        for shift, quality in enumerate(values)
        for metric, value in (("token_accuracy", quality), ("quality_loss", values[0] - quality))
        if shift or metric == "token_accuracy"
    ]
    return frame(rows)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (("sinusoidal", "learned"), "only absolute codes mind a shift"),
        (("sinusoidal",), "sinusoidal minds a shift"),
        (("sinusoidal", "rope"), "sinusoidal and rope mind a shift"),
        ((), "changes nothing"),
    ],
)
def test_the_title_says_who_minds_a_shift(broken: tuple[str, ...], said: str) -> None:
    names = ("none", "sinusoidal", "learned", "rope")
    rows = pd.concat([shifted(name, 1.0, 0.4 if name in broken else 1.0) for name in names])
    figure = shift_report.plot(rows)["copy_shift_quality"]
    assert said in figure.texts[0].get_text()
    named = {text.get_text() for text in figure.axes[0].texts}
    assert set(broken or names) <= named, "those that break stand beside those that do not"


def test_nothing_is_found_where_nothing_was_learned() -> None:
    rows = pd.concat([shifted("sinusoidal", 0.3, 0.1), shifted("rope", 0.3, 0.3)])
    title = shift_report.plot(rows)["copy_shift_quality"].texts[0].get_text()
    assert "not learned, 30 % right" in title


def test_the_table_has_quality_losses_and_unsupported() -> None:
    subject = subject_of("rope")
    shifts = (1, 2, 4, 8, 16, 32, 64)
    rows = frame(shift_sensitivity.measure(subject, shifts=shifts, samples=4))
    lost = frame([replace(subject.row("shift_sensitivity", "quality_loss", status="diverged"), encoder="lost")])
    table = shift_report.shown(pd.concat([rows, lost]))
    heads = ["token accuracy, shift 0", *(f"lost at shift {shift}" for shift in (1, 4, 8, 32, 64))]
    heads += ["output change at shift 64, untrained", "output change at shift 64, trained"]
    assert list(dict.fromkeys(table["head"])) == heads
    assert list(table.loc[table["encoder"] == "lost", "head"]) == heads
    assert shift_report.plot(lost) == {}


def test_from_the_command_line(command: Command, tmp_path: Path) -> None:
    asked = [
        "experiment=shift_sensitivity",
        "model=tiny",
        "train.steps=4",
        "train.rounds=1",
        "shift_sensitivity.samples=4",
    ]
    done = command(*asked, "shift_sensitivity.shifts=[2,8]", "encoder=learned", "encoder.num_rows=36")
    assert done.code == 0, done.err
    (run,) = (tmp_path / "results" / "scratch" / "runs").iterdir()
    with (run / "rows.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["experiment"] == "shift_sensitivity"]
    status = {(slice_name(row), row["status"]) for row in rows}
    assert status == {("", "ok"), ("shift=2", "ok"), ("shift=8", "unsupported")}
    stems = {path.stem for path in (run / "figures").glob("shift_*.png")}
    assert stems == {"shift_sensitivity_copy_shift_quality"}
    done = command(*asked, "shift_sensitivity.shifts=[0]")
    assert (done.code, "shift_sensitivity.shifts must be a whole number of at least 1" in done.err) == (2, True)
