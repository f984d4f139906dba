"""context_extension: another encoder in the place of a trained one, a window, no encoder; nothing trained."""

from __future__ import annotations

import copy
import csv
import math
import os
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from support import Command

import pe_zoo
from experiments import Transformer
from experiments.figures.style import render
from experiments.measures.context_extension import measure as context_extension
from experiments.measures.context_extension import report
from experiments.measures.context_extension.replacements import Replacement, agree, altered, replacing
from experiments.measures.length_extrapolation import measure as length_extrapolation
from experiments.model.layout import Layout
from experiments.plan.measures import load_experiment
from experiments.rows.row import Row, frame, slice_name
from experiments.tasks import tasks
from experiments.training.config import TrainConfig
from experiments.training.evaluate import Subject, evaluate
from experiments.training.loop import train
from pe_zoo import Geometry, Unsupported

T = 8
STRETCHED = ["llama3_rope", "longrope", "rope_linear", "rope_ntk", "self_extend", "yarn"]
BY_LENGTH = sorted([*STRETCHED, "rope_dynamic_ntk"])
STAND_INS = sorted([*BY_LENGTH, "dual_chunk", "rerope"])
LABELS = {"run_id": "run", "encoder": "x", "positions": "sequential", "task": "copy", "seed": 0, "train_length": T}


def geometry_of(train_length: int = 2 * T + 1) -> Geometry:
    return Geometry(model_dim=16, num_heads=2, num_layers=2, train_length=train_length)


def subject_of(
    name: str, *, causal: bool = True, layout: Layout | None = None, knobs: dict[str, object] | None = None
) -> Subject:
    encoder = pe_zoo.build(name, geometry_of(), **(knobs or {}))
    model = Transformer(12, geometry_of(), encoder, causal=causal, layout=layout)
    return Subject(
        model=model,
        initial=lambda: model,
        trained=False,
        task=tasks.build("copy", train_length=T),
        numbering=pe_zoo.numberings.build("sequential"),
        seed=0,
        labels=LABELS,  # type: ignore[arg-type]
    )


def measured(subject: Subject, **knobs: object) -> list[Row]:
    given = {"multiples": (1.0, 2.0, 4.0), "samples": 8}
    return context_extension.measure(subject, **(given | knobs))  # type: ignore[arg-type]


def logits(model: Transformer, length: int) -> torch.Tensor:
    tokens = torch.randint(12, (2, length), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return model(tokens)


def done(rows: list[Row]) -> set[str]:
    return {r.condition for r in rows if r.status == "ok"}


# ---- who can stand in -----------------------------------------------------------------------------


def test_all_that_are_made_for_it_stand_in_for_rope() -> None:
    assert replacing(pe_zoo.build("rope", geometry_of()), causal=True) == STAND_INS
    both_ways = [name for name in STAND_INS if not pe_zoo.get(name).causal_only]
    assert replacing(pe_zoo.build("rope", geometry_of(), base=77.0), causal=False) == both_ways, "the base goes over"


@pytest.mark.parametrize("knobs", [{"pairing": "half"}, {"fraction": 0.5}])
def test_none_stands_in_for_what_none_computes(knobs: dict[str, object]) -> None:
    assert replacing(pe_zoo.build("rope", geometry_of(), **knobs), causal=True) == []


def test_an_extended_encoder_is_extended_only_by_itself() -> None:
    trained = pe_zoo.build("rope_linear", geometry_of(), factor=3.0)
    assert replacing(trained, causal=True) == ["rope_linear"]
    encoder, given = Replacement("rope_linear", trained, causal=True).at(2.0)
    assert (encoder.factor, given) == (6.0, {"factor": 6.0})
    assert replacing(pe_zoo.build("rope_dynamic_ntk", geometry_of()), causal=True) == BY_LENGTH


def test_what_goes_by_the_length_itself_is_not_stretched_twice() -> None:
    trained = pe_zoo.build("rope", geometry_of())
    for name in BY_LENGTH:
        encoder, given = Replacement(name, trained, causal=True).at(4.0)
        assert encoder.factor == (4.0 if name in STRETCHED else 1.0)
        assert bool(given) == (name in STRETCHED)
        assert encoder.geometry == trained.geometry
    for name in STRETCHED:
        assert Replacement(name, trained, causal=True).at(0.5)[0].factor == 1.0, "a shorter text is not stretched"


def test_what_has_something_to_train_stands_in_for_nothing() -> None:
    rope = pe_zoo.build("rope", geometry_of())
    with pytest.raises(Unsupported, match="t5 has parameters"):
        Replacement("t5", rope, causal=True, chosen=True)
    with pytest.raises(Unsupported, match="t5 has parameters"):
        Replacement("rope_linear", pe_zoo.build("t5", geometry_of()), causal=True, chosen=True)
    with pytest.raises(Unsupported, match="causal"):
        Replacement("xpos", rope, causal=False, chosen=True)
    with pytest.raises(Unsupported, match="at no factor"):
        Replacement("yarn", pe_zoo.build("alibi", geometry_of()), causal=True)


def test_agreement_both_ways() -> None:
    rope, other = (pe_zoo.build("rope", geometry_of(), base=base) for base in (1e4, 1.1e4))
    assert agree(rope, rope, 64, causal=True)
    assert not agree(rope, other, 64, causal=True)
    dynamic = pe_zoo.build("rope_dynamic_ntk", geometry_of())
    assert agree(rope, dynamic, 2 * T + 1, causal=True)
    assert not agree(rope, dynamic, 8 * T, causal=True)


# ---- what is measured -----------------------------------------------------------------------------


def test_at_the_training_length_every_extension_is_the_model() -> None:
    subject = subject_of("rope")
    short, long = (logits(subject.model, length) for length in (2 * T + 1, 8 * T))
    for name in BY_LENGTH:
        encoder, _ = Replacement(name, subject.model.encoder, causal=True).at(1.0)
        with altered(subject.model, encoder=encoder) as model:
            torch.testing.assert_close(logits(model, 2 * T + 1), short, rtol=0, atol=1e-5)
            unstretched = (logits(model, 8 * T) - long).abs().max() < 1e-4
            assert unstretched == (name in STRETCHED), "one that goes by the length itself stretches beyond"


def test_a_stretched_model_is_one_built_with_that_encoder() -> None:
    subject = subject_of("rope", knobs={"base": 100.0})
    encoder, _ = Replacement("rope_ntk", subject.model.encoder, causal=True).at(4.0)
    built = Transformer(12, geometry_of(), pe_zoo.build("rope_ntk", geometry_of(), factor=4.0, base=100.0))
    built.load_state_dict(subject.model.state_dict())
    plain = logits(subject.model, 4 * T)
    with altered(subject.model, encoder=encoder) as model:
        assert torch.equal(logits(model, 4 * T), logits(built, 4 * T))
        assert not torch.equal(logits(model, 4 * T), plain)


def test_interpolation_is_the_model_at_divided_positions() -> None:
    """A second way to the same: positions divided by the factor, the encoder left alone."""
    subject = subject_of("rope")
    tokens = torch.randint(12, (1, 30), generator=torch.Generator().manual_seed(2))
    encoder, _ = Replacement("rope_linear", subject.model.encoder, causal=True).at(4.0)
    with torch.no_grad():
        squeezed = subject.model(tokens, torch.arange(30) / 4)
        with altered(subject.model, encoder=encoder) as model:
            torch.testing.assert_close(model(tokens), squeezed, rtol=0, atol=1e-5)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("own", [None, 3, 99])
def test_the_window_is_that_of_a_model_built_with_it(causal: bool, own: int | None) -> None:
    window = 5
    subject = subject_of("rope", causal=causal, layout=Layout(window=own))
    built = Transformer(
        12,
        geometry_of(),
        pe_zoo.build("rope", geometry_of()),
        causal=causal,
        layout=Layout(window=window if own is None else min(own, window)),
    )
    built.load_state_dict(subject.model.state_dict())
    plain = logits(subject.model, 30)
    with altered(subject.model, window=window) as model:
        assert torch.equal(logits(model, 30), logits(built, 30))
        assert torch.equal(logits(model, 30), plain) == (own == 3)


def test_masked_heads_stay_masked_under_a_window() -> None:
    subject = subject_of("rope", layout=Layout(masked_heads=1))
    with altered(subject.model, window=5) as model:
        assert [layer.windows for layer in model.layers] == [(1, 5), (1, 5)]
    assert [layer.windows for layer in subject.model.layers] == [(1, None), (1, None)]


def test_dropped_is_a_model_without_an_encoder() -> None:
    subject = subject_of("rope")
    bare = Transformer(12, geometry_of(), pe_zoo.build("none", geometry_of()))
    bare.load_state_dict(subject.model.state_dict())
    with altered(subject.model, dropped=True) as model:
        assert torch.equal(logits(model, 30), logits(bare, 30))
    assert not torch.equal(logits(subject.model, 30), logits(bare, 30))


def test_the_trained_model_is_as_before() -> None:
    subject = subject_of("rope", layout=Layout(window=30))
    encoder, before, state = subject.model.encoder, logits(subject.model, 40), copy.deepcopy(subject.model.state_dict())
    measured(subject)
    assert subject.model.encoder is encoder
    assert torch.equal(logits(subject.model, 40), before)
    assert all(torch.equal(tensor, state[key]) for key, tensor in subject.model.state_dict().items())
    with (
        pytest.raises(RuntimeError, match="on purpose"),
        altered(subject.model, encoder=pe_zoo.build("none", geometry_of()), window=2, dropped=True),
    ):
        raise RuntimeError("on purpose")
    assert subject.model.encoder is encoder
    assert torch.equal(logits(subject.model, 40), before)


def test_rows_of_rope() -> None:
    rows = measured(subject_of("rope"))
    assert done(rows) == {"as trained", *STAND_INS, "window", "dropped"}
    of_four = {slice_name(r) for r in rows if r.eval_length == 4 * T}
    factor = float(f"{(8 * T + 1) / (2 * T + 1):.4g}")
    assert f"rope_ntk, factor={factor}" in of_four, "positions over positions, beginning and mark included"
    assert "window, size=17" in of_four
    assert "rope_dynamic_ntk" in of_four
    by_place = {(r.eval_length, slice_name(r), r.metric): r.value for r in rows}
    assert by_place[T, "yarn, factor=1.0", "token_accuracy"] == by_place[T, "as trained", "token_accuracy"]
    assert len(by_place) == len(rows)
    torch.manual_seed(0)
    assert rows == measured(subject_of("rope")), "repeatable"


def test_named_encoders_and_no_others() -> None:
    rows = measured(subject_of("rope"), replacements=("none", "yarn", "t5"))
    assert done(rows) == {"as trained", "none", "yarn", "window", "dropped"}
    assert {r.status for r in rows if r.condition == "t5"} == {"unsupported"}
    by_place = {(r.eval_length, slice_name(r), r.metric): r.value for r in rows}
    assert by_place[4 * T, "none", "token_accuracy"] == by_place[4 * T, "dropped", "token_accuracy"]


def test_a_model_trained_to_go_without_is_not_given_another() -> None:
    subject = subject_of("rope")
    subject.model.drop_encoder()
    rows = measured(subject)
    assert done(rows) == {"as trained", "window", "dropped"}
    assert {r.condition for r in rows if r.status == "unsupported"} == {"replaced"}
    assert subject.model.encoder_dropped


def test_a_row_is_what_a_model_of_that_encoder_scores_on_the_questions_of_length_extrapolation() -> None:
    subject = subject_of("rope", knobs={"base": 100.0})
    rows = {(r.eval_length, r.condition, r.metric): r for r in measured(subject)}
    for name in ("yarn", "llama3_rope"):
        row = rows[4 * T, name, "token_accuracy"]
        encoder = pe_zoo.build(name, geometry_of(), factor=(8 * T + 1) / (2 * T + 1), base=100.0)
        built = Transformer(12, geometry_of(), encoder)
        built.load_state_dict(subject.model.state_dict())
        scored = evaluate(built, *subject.question("length_extrapolation", 8, 4 * T))
        assert row.value == scored.quality()[row.metric], (
            "Llama's rule at the base of the trained model, not at its own"
        )
    plain = length_extrapolation.measure(subject, multiples=(1.0, 2.0, 4.0), samples=8)
    for row in plain:
        if row.metric in subject.task.metrics and not row.condition:
            assert rows[row.eval_length, "as trained", row.metric].value == row.value


TUNED = ["llama3_rope", "longrope", "rope_linear", "yarn"]
"""Those that their papers train on."""


def test_fine_tuned_rows_are_of_a_copy_trained_on_with_the_encoder() -> None:
    config = TrainConfig(steps=20, learning_rate=0.01, tokens_per_step=64, stop_at_convergence=True)
    subject = replace(subject_of("rope"), training=config)
    before = copy.deepcopy(subject.model.state_dict())
    plain, rows = measured(subject), measured(subject, fine_tuning_share=0.25)
    assert rows[: len(plain)] == plain, "what is measured without training is as before"
    assert all(torch.equal(tensor, before[key]) for key, tensor in subject.model.state_dict().items())
    added = rows[len(plain) :]
    factor = float(f"{(8 * T + 1) / (2 * T + 1):.4g}")
    assert {slice_name(r) for r in added} == {f"{name} fine-tuned, share=0.25, factor={factor}" for name in TUNED}
    assert {r.eval_length for r in added} == {T, 2 * T, 4 * T}
    encoder = pe_zoo.build("yarn", geometry_of(), factor=(8 * T + 1) / (2 * T + 1))
    built = Transformer(12, geometry_of(), encoder)
    built.load_state_dict(before)
    how = TrainConfig(steps=5, rounds=1, learning_rate=0.001, tokens_per_step=64, curve_points=1)
    train(built, tasks.build("copy", train_length=4 * T), subject.numbering, how, seed=0)
    scored = evaluate(built, *subject.question("length_extrapolation", 8, 2 * T))
    (row,) = (
        r for r in added if (r.condition, r.eval_length, r.metric) == ("yarn fine-tuned", 2 * T, "token_accuracy")
    )
    assert row.value == scored.quality()["token_accuracy"]
    other = next(r for r in rows if (r.condition, r.eval_length, r.metric) == ("yarn", 2 * T, "token_accuracy"))
    assert row.value != other.value


def test_fine_tuning_without_a_whole_step_or_a_long_enough_task_is_unsupported() -> None:
    subject = replace(subject_of("rope"), training=TrainConfig(steps=20))
    rows = measured(subject, fine_tuning_share=0.01)
    assert {(r.condition, r.status) for r in rows if "fine-tuned" in r.condition} == {
        (f"{name} fine-tuned", "unsupported") for name in TUNED
    }
    others = measured(replace(subject_of("rope_linear"), training=TrainConfig(steps=20)), fine_tuning_share=1.0)
    assert not [r for r in others if "fine-tuned" in r.condition], "only the encoder that the paper extends is extended"


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", pe_zoo.names())
def test_every_encoder(name: str, causal: bool) -> None:
    if pe_zoo.build(name, geometry_of()).causal_only and not causal:
        pytest.skip("means nothing without a causal mask")
    rows = measured(subject_of(name, causal=causal), multiples=(2.0,), samples=2)
    always = {"as trained", "window", "dropped"}
    assert always <= done(rows)
    assert {r.condition for r in rows if r.status != "ok"} <= {"replaced"}
    assert (done(rows) > always) != any(r.condition == "replaced" for r in rows)
    assert all(math.isfinite(r.value) == (r.status == "ok") for r in rows)


def test_a_table_that_ends_is_unsupported_not_a_crash() -> None:
    rows = measured(subject_of("learned", knobs={"num_rows": 4 * T}))
    status = {(r.eval_length, slice_name(r)): r.status for r in rows}
    assert status[T, "as trained"] == "ok"
    assert status[4 * T, "as trained"] == status[4 * T, "window, size=17"] == "unsupported"
    assert status[4 * T, "dropped"] == "ok"


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"multiples": ()}, "multiples"),
        ({"multiples": (-1.0,)}, "multiples"),
        ({"samples": 0}, "samples"),
        ({"fine_tuning_share": 1.5}, "fine_tuning_share"),
        ({"replacements": ("yarnn",)}, "Did you mean 'yarn'"),
    ],
)
def test_knobs_out_of_range_are_refused(given: dict[str, object], word: str) -> None:
    knobs = {"multiples": (1.0, 4.0), "samples": 4, "replacements": ("yarn",), "fine_tuning_share": 0.1}
    load_experiment("context_extension", knobs)
    with pytest.raises(ValueError, match=word):
        load_experiment("context_extension", (knobs | given))


# ---- what is shown --------------------------------------------------------------------------------


def many(rows: list[Row], labels: int, seeds: int) -> pd.DataFrame:
    """The rows as of many series and seeds, each a little different."""
    table = frame(rows)
    parts = []
    for place in range(labels):
        for seed in range(seeds):
            fall = 1 - 0.1 * (table["eval_length"] / T).map(math.log2) * (1 + table.index % 5)
            moved = fall.clip(0, 1) - 0.02 * abs(math.sin(place * 7 + seed + 3))
            name = f"encoder_{place}(base=500000)" if place % 3 else f"e{place}"
            parts.append(table.assign(value=moved, encoder=name, seed=seed, run_id=f"{name}-{seed}"))
    return pd.concat(parts, ignore_index=True)


@pytest.mark.parametrize(("labels", "seeds"), [(1, 1), (6, 3), (16, 1)])
def test_figures_and_table(labels: int, seeds: int) -> None:
    rows = many(measured(subject_of("rope"), multiples=(1.0, 2.0, 4.0, 8.0)), labels, seeds)
    figures = report.plot(rows)
    assert list(figures) == ["copy_context_extension_token_accuracy"]
    figure = figures["copy_context_extension_token_accuracy"]
    assert len([axes for axes in figure.axes if axes.get_title(loc="left")]) == min(labels, report.MODELS)
    named = {label.get_text() for label in figure.axes[0].get_yticklabels()}
    assert named == {"unchanged", *STAND_INS, f"a window of {T}", "no encoding"}
    assert "window" in figure.caption
    if folder := os.environ.get("LOOK_AT_FIGURES"):
        Path(folder, f"extension_{labels}_{seeds}.png").write_bytes(render(figure, "png"))
    figure.draw_without_rendering()
    table = report.shown(rows)
    assert set(table["metric"]) == {"token_accuracy"}
    assert set(table["eval_length"]) == {T, 4 * T}
    lines = ["unchanged", *STAND_INS, "window"]
    assert list(dict.fromkeys(table["head"])) == ["unchanged, 1×", *(f"{line}, 4×" for line in lines)]
    assert not table.duplicated(["encoder", "seed", "head"]).any()


def test_nothing_is_ranked_within_the_training_length_or_by_a_few_windows() -> None:
    rows = many(measured(subject_of("rope"), multiples=(1.0,)), 1, 1)
    assert report.plot(rows) == {}
    longer = many(measured(subject_of("rope"), multiples=(1.0, 4.0)), 1, 1)
    assert report.plot(longer)
    of_checkpoint = longer.tail(1).assign(metric="last_quarter_bits_per_byte")
    times = of_checkpoint.assign(metric="relative_read_seconds", part=1)
    assert report.plot(pd.concat([longer, of_checkpoint, times])) == {}, "no blocks, so that nothing is ranked"
    assert report.plot(pd.concat([longer, of_checkpoint, longer.tail(9).assign(part=1)]))


def test_what_nothing_stands_in_for_is_said_to_be_so() -> None:
    rows = pd.concat(
        [frame(measured(subject_of(name))).assign(encoder=name, run_id=name) for name in ("rope", "alibi")]
    )
    table = report.shown(rows)
    of_alibi = table[table["encoder"] == "alibi"].set_index("head")["status"].to_dict()
    assert of_alibi == {f"{line}, 4×": "unsupported" for line in STAND_INS} | {
        "unchanged, 1×": "ok",
        "unchanged, 4×": "ok",
        "window, 4×": "ok",
    }
    assert set(table.loc[table["encoder"] == "rope", "status"]) == {"ok"}


def test_what_diverged_is_in_the_table() -> None:
    row = Row(**LABELS, experiment="context_extension", metric="token_accuracy", eval_length=T, status="diverged")  # type: ignore[arg-type]
    table = report.shown(frame([row]))
    assert set(table["status"]) == {"diverged"}
    assert report.plot(frame([row])) == {}


def test_from_the_command_line(command: Command, tmp_path: Path) -> None:
    done = command(
        *("task=copy", "model=tiny", "train.steps=2", "train.rounds=1", "experiment=context_extension", "encoder=rope"),
        *("context_extension.samples=2", "context_extension.multiples=[1,2]", "context_extension.replacements=[yarn]"),
    )
    assert done.code == 0, done.err
    (place,) = (tmp_path / "results" / "scratch" / "runs").iterdir()
    rows = list(csv.DictReader((place / "rows.csv").read_text(encoding="utf-8").splitlines()))
    conditions = {r["condition"] for r in rows if r["experiment"] == "context_extension"}
    assert conditions == {"as trained", "yarn", "window", "dropped"}
    assert (place / "figures" / "context_extension_copy_context_extension_token_accuracy.png").is_file()
    refused = command("context_extension.replacements=[yarnn]", "experiment=context_extension")
    assert (refused.code, "Did you mean 'yarn'" in refused.err) == (2, True)
