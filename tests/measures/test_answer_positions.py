"""Answers numbered as in training: by hand, and for whom it must and must not matter."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from support import subject_of

import pe_zoo
from experiments.measures.answer_positions import MOVED, report
from experiments.measures.answer_positions.measure import measure
from experiments.measures.length_extrapolation.measure import measure as over_lengths
from experiments.rows.row import Row, frame
from experiments.tasks import tasks


def found(rows: list[Row], metric: str = "token_accuracy") -> dict[tuple[int, str], Row]:
    return {(row.eval_length, row.condition): row for row in rows if row.metric == metric}


def test_moved_answers_are_those_of_the_model_by_hand() -> None:
    """Words of 9 from a model of words of up to 6: the bar at 7 instead of 10, all behind it 3 earlier."""
    subject = subject_of("sinusoidal")
    rows = found(measure(subject, multiples=(1.0, 1.5), samples=5))
    batch, _ = subject.question("length_extrapolation", 5, 9)
    positions = torch.tensor([*range(10), *range(7, 16)])
    with torch.no_grad():
        answers = subject.model(batch.tokens, positions)[:, batch.counted].argmax(-1)
    assert rows[9, MOVED].value == pytest.approx((answers == batch.targets[:, batch.counted]).double().mean().item())
    assert rows[9, MOVED].n == 45
    assert set(rows) == {(6, ""), (9, ""), (9, MOVED)}, "in range there is nothing to move"


def test_unmoved_quality_is_that_of_length_extrapolation() -> None:
    subject = subject_of("rope")
    rows, others = (found(one(subject, multiples=(1.0, 2.0), samples=8)) for one in (measure, over_lengths))
    for length in (6, 12):
        assert rows[length, ""].value == others[length, ""].value
        assert rows[length, ""].chance == others[length, ""].chance


def test_who_reads_no_positions_answers_alike() -> None:
    measured = measure(subject_of("none"), samples=16)
    for rows in (found(measured), found(measured, "exact_match")):
        assert {condition for _, condition in rows} == {"", MOVED}
        for (length, _), row in rows.items():
            assert row.value == rows[length, ""].value


@pytest.mark.parametrize(
    ("task", "numbering", "reason"),
    [
        ("text", "sequential", "task=text asks for answers elsewhere than behind the input"),
        ("flip_flop", "sequential", "task=flip_flop asks for answers elsewhere than behind the input"),
        ("copy", "offset", "the numbering is not sequential"),
    ],
)
def test_where_moved_answers_mean_nothing_it_says_why(task: str, numbering: str, reason: str) -> None:
    subject = subject_of("rope", task=tasks.build(task), numbering=pe_zoo.numberings.build(numbering))
    with pytest.raises(pe_zoo.Unsupported, match=reason):
        measure(subject, samples=2)


def test_a_length_that_the_encoder_refuses_is_a_row() -> None:
    """Words of 9 take 19 positions, 16 of them with moved answers: a table of 16 rows reads the latter alone."""
    rows = found(measure(subject_of("learned", num_rows=16), multiples=(1.5,), samples=2))
    assert {key: row.status for key, row in rows.items()} == {(9, ""): "unsupported", (9, MOVED): "ok"}


def test_the_title_says_whose_answers_come_back() -> None:
    """One is right again, one as wrong as before, one never failed."""
    rows = [
        row
        for row in measure(subject_of("sinusoidal"), samples=4, multiples=(1.0, 1.5))
        if row.n == 4 * row.eval_length
    ]
    values = {"sinusoidal": (0.98, 0.3, 0.8), "rope": (1.0, 0.5, 0.6), "alibi": (1.0, 0.97, 0.5)}
    table = frame(
        replace(row, encoder=encoder, seed=seed, run_id=f"{encoder}-{seed}", value=value)
        for encoder, quality in values.items()
        for seed in range(3)
        for row, value in zip(rows, quality, strict=True)
    )
    assert [figure.title for figure in report.plot(table).values()] == [
        "copy: at 9 sinusoidal comes back with the answers numbered as in training"
    ]
    assert set(report.shown(table)["head"]) == {"at 9", "at 9, answers moved"}
    assert report.plot(table[table["condition"] == ""]) == {}
