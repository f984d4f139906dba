"""What a linear probe reads: the regression against a plain one, and what must and must not be readable."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from support import Command, many, subject_of

import pe_zoo
from experiments.figures.panels import spread
from experiments.measures.position_probe import measure as position_probe
from experiments.measures.position_probe import report as probe_report
from experiments.plan.measures import load_experiment
from experiments.rows.row import Row, frame, slice_name
from experiments.tasks import tasks
from pe_zoo import Unsupported


def values(rows: list[Row], metric: str = "probe_error") -> dict[str, float]:
    return {slice_name(row): row.value for row in rows if row.metric == metric}


def data(sequences: int, length: int, features: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(sequences, length, features, dtype=torch.float64) * torch.arange(1, features + 1)
    x[..., 0] = 7.0  # says nothing, and must not divide by nothing
    places = torch.arange(length).expand(sequences, length)
    x[..., 1] += places
    return x, torch.stack([places, places.flip(-1) ** 2], -1)


def plain_ridge(x: np.ndarray, y: np.ndarray, strength: float) -> Callable[[np.ndarray], np.ndarray]:
    """Least squares on data with one more observation of 0 for each weight: ridge, without its formula."""
    mean, scale = x.mean(0), np.where(x.std(0) > 0, x.std(0), 1.0)
    z = (x - mean) / scale
    count, width = z.shape
    rows = np.vstack([z, np.sqrt(count * strength) * np.eye(width)])
    weights = np.linalg.lstsq(rows, np.concatenate([y - y.mean(), np.zeros(width)]), rcond=None)[0]
    return lambda new: (new - mean) / scale @ weights + y.mean()


def test_every_strength_is_the_ridge_regression_of_that_strength() -> None:
    x, labels = data(5, 7, 6)
    sums = position_probe.Sums()
    for part in (slice(0, 2), slice(2, 5)):
        sums.add(x[part].flatten(0, 1), labels[part].flatten(0, 1))
    new = torch.randn(11, 6, dtype=torch.float64)
    read = sums.probe()(new)
    assert read.shape == (len(position_probe.STRENGTHS), 11, 2)
    for place, strength in enumerate(position_probe.STRENGTHS):
        for label in range(2):
            known = x.flatten(0, 1).numpy(), labels.flatten(0, 1)[:, label].double().numpy()
            wanted = plain_ridge(*known, strength)(new.numpy())
            np.testing.assert_allclose(read[place, :, label].numpy(), wanted, rtol=1e-8, atol=1e-8)


def test_the_strength_is_chosen_on_validation_sequences() -> None:
    x, labels = data(9, 7, 6)  # 4 to fit, 2 to choose, 3 to test
    found = position_probe.probe_errors(
        lambda part: [x[part], 0 * x[part]],
        labels,
    )
    for label in range(2):
        y = labels[..., label].double().numpy()
        errors = []
        for strength in position_probe.STRENGTHS:
            probe = plain_ridge(x[:4].reshape(-1, 6).numpy(), y[:4].ravel(), strength)
            parts = []
            for some in ((4, 5), (6, 7, 8)):
                off = [abs(min(max(probe(x[s, t].numpy()), 0), 6) - y[s, t]) for s in some for t in range(7)]
                parts.append(sum(off) / len(off))
            errors.append(parts)
        assert found[0, label].item() == pytest.approx(min(errors)[1], rel=1e-9)
    assert found[1, 0].item() == pytest.approx(position_probe.constant_error(7)), (
        "nothing to read: the mean is the median"
    )


def test_hand_worked_constant_errors_and_parts() -> None:
    assert [position_probe.constant_error(length) for length in (1, 2, 3, 4, 33)] == [
        0,
        0.5,
        2 / 3,
        1,
        pytest.approx(272 / 33),
    ]


def test_readings_are_cut_to_the_places_there_are() -> None:
    places = torch.arange(5).expand(8, 5).double().unsqueeze(-1)
    x = places.clone()
    x[6:] *= 100
    found = position_probe.probe_errors(lambda part: [x[part], places[part]], places).squeeze(1)
    assert found[0].item() == pytest.approx((0 + 3 + 2 + 1 + 0) / 5, abs=1e-4)
    assert found[1].item() < 1e-4


def test_what_is_learned_by_heart_does_not_count() -> None:
    x = torch.randn(8, 12, 200, dtype=torch.float64)  # more features than tokens: any labels can be fitted
    labels = torch.arange(12).expand(8, 12).unsqueeze(-1)
    sums = position_probe.Sums()
    sums.add(x[:4].flatten(0, 1), labels[:4].flatten(0, 1))
    fitted = sums.probe()(x[:4].flatten(0, 1))[-1, :, 0] - labels[:4].flatten()
    assert fitted.abs().mean() < 0.01
    assert position_probe.probe_errors(lambda part: [x[part]], labels).item() > 0.8 * position_probe.constant_error(12)


def test_features_are_the_residual_stream_in_any_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = subject_of("sinusoidal", numbering=pe_zoo.numberings.build("randomized", limit=64))
    batch, positions = subject.question("test", 8, 6)
    stream = position_probe.streams(subject.model, batch.tokens, positions)(slice(2, 5))
    for got, wanted in zip(stream, subject.model.hidden(batch.tokens, positions), strict=True):
        torch.testing.assert_close(got, wanted[2:5].detach())
    assert not stream[0].requires_grad
    labels = torch.arange(13).expand(8, 13).unsqueeze(-1)
    features = position_probe.streams(subject.model, batch.tokens, positions)
    together = position_probe.probe_errors(features, labels)
    monkeypatch.setattr(position_probe, "CHUNK_TOKENS", 20)
    torch.testing.assert_close(position_probe.probe_errors(features, labels), together, rtol=1e-4, atol=1e-4)


def test_added_codes_are_decoded_before_layer_one_distances_not() -> None:
    added = values(position_probe.measure(subject_of("sinusoidal"), samples=256))
    distances = values(position_probe.measure(subject_of("alibi"), samples=256))
    assert added["layer=0"] < 0.01
    assert distances["layer=0"] == pytest.approx(distances["tokens alone"], abs=0.02)
    assert distances["layer=1"] < distances["tokens alone"] - 0.5
    assert added["tokens alone"] == distances["tokens alone"], "the same sequences"


def test_untrained_without_encoder_only_a_causal_model_decodes() -> None:
    """The causal mask alone gives places away: Chi et al. (2023), arXiv:2305.13571."""
    causal = values(position_probe.measure(subject_of("none"), samples=512))
    both_ways = values(position_probe.measure(subject_of("none", causal=False), samples=512))
    for layer in (1, 2):
        assert causal[f"layer={layer}"] < causal["tokens alone"] - 0.5
    for layer in (0, 1, 2):
        assert both_ways[f"layer={layer}"] == pytest.approx(both_ways["tokens alone"], abs=0.05)


def test_of_shuffled_places_nothing_is_read() -> None:
    rows = position_probe.measure(subject_of("sinusoidal"), samples=512)
    found, chance = values(rows), rows[0].chance
    for layer in range(3):
        assert found[f"shuffled labels, layer={layer}"] == pytest.approx(chance, rel=0.02)
    assert found["layer=0"] < 0.01 * chance


def test_rows_say_what_was_measured_on_how_much() -> None:
    rows = position_probe.measure(subject_of("rope"), samples=8)
    per_layer = {f"layer={layer}" for layer in range(3)}
    assert set(values(rows)) == per_layer | {f"shuffled labels, {layer}" for layer in per_layer} | {"tokens alone"}
    assert set(values(rows, "initial_probe_error")) == per_layer
    assert {(row.n, row.eval_length, row.chance) for row in rows} == {(2 * 13, 6, position_probe.constant_error(13))}


def test_before_training_is_measured_on_the_model_as_it_was() -> None:
    subject = subject_of("sinusoidal")
    same = position_probe.measure(subject, samples=8)
    initial = values(same, "initial_probe_error")
    assert {condition: value for condition, value in values(same).items() if condition in initial} == initial
    with torch.no_grad():
        subject.model.token_embedding.weight.mul_(30)  # drowns the codes
    changed = position_probe.measure(subject, samples=8)
    assert values(changed, "initial_probe_error") == initial
    assert values(changed)["layer=0"] > initial["layer=0"] + 0.01


@pytest.mark.parametrize("name", pe_zoo.names())
def test_every_encoder_can_be_probed_and_twice_alike(name: str) -> None:
    causal_only = pe_zoo.get(name).causal_only
    for causal in (True,) if causal_only else (True, False):
        rows = position_probe.measure(subject_of(name, causal=causal), samples=4)
        assert all(row.status == "ok" and np.isfinite(row.value) for row in rows)
        assert rows == position_probe.measure(subject_of(name, causal=causal), samples=4)


def test_too_little_text_is_said(tmp_path: Path) -> None:
    (tmp_path / "small.txt").write_text("abcdefgh" * 60)
    task = tasks.build("text", train_length=16, path=str(tmp_path / "small.txt"))
    with pytest.raises(Unsupported, match="needs 4 sequences and the task has 3"):
        position_probe.measure(subject_of("none", task=task), samples=256)


@pytest.mark.parametrize("samples", [3, 0, 4.0, True])
def test_too_few_samples_are_refused(samples: Any) -> None:
    with pytest.raises(ValueError, match=r"position_probe\.samples"):
        load_experiment("position_probe", {"samples": samples})
    load_experiment("position_probe", {"samples": 4})


def test_layers_of_a_table_are_spread() -> None:
    assert spread([3, 1, 2, 0], 5) == [0, 1, 2, 3]
    assert spread(range(13), 5) == [0, 3, 6, 9, 12]
    assert spread(range(13), 1) == [0]


@pytest.mark.parametrize(("labels", "seeds"), [(1, 1), (6, 3), (16, 1)])
def test_figures_have_a_panel_a_stage_and_a_caption(labels: int, seeds: int) -> None:
    rows = many(position_probe.measure(subject_of("rope"), samples=4), labels, seeds)
    ((stem, figure),) = probe_report.plot(rows).items()
    assert (stem, len(figure.axes)) == ("copy_probe_error", 2)
    assert "probe" in figure.caption
    figure.canvas.draw()
    summary = probe_report.summarise(rows)
    assert set(summary["seeds"]) == {seeds}


def test_the_table_has_layers_controls_and_unsupported() -> None:
    subject = subject_of("rope", layers=6)
    rows = many(position_probe.measure(subject, samples=4), 2, 2)
    lost = frame([replace(subject.row("position_probe", "probe_error", status="diverged"), encoder="lost")])
    table = probe_report.shown(pd.concat([rows, lost]))
    heads = ["layer 0", "layer 2", "layer 3", "layer 5", "layer 6", "layer 6, untrained", "tokens alone"]
    assert list(dict.fromkeys(table["head"])) == [*heads, "best constant"]
    assert set(table.loc[table["encoder"] == "lost", "head"]) == {*heads, "best constant"}
    constant = table[(table["head"] == "best constant") & (table["status"] == "ok")]
    assert set(constant["value"]) == {position_probe.constant_error(13)}
    highest = frame([replace(row, encoder="z", value=30.0) for row in position_probe.measure(subject, samples=4)])
    axes = probe_report.plot(pd.concat([lost, rows, highest]))["copy_probe_error"].axes[-1]
    assert axes.get_ylim()[1] > 30, "no panel cuts another off"
    assert list(probe_report.shown(lost)["status"]) == ["diverged"]
    assert probe_report.plot(lost) == {}


def test_from_the_command_line(command: Command, tmp_path: Path) -> None:
    done = command(
        "experiment=position_probe", "model=tiny", "train.steps=4", "train.rounds=1", "position_probe.samples=8"
    )
    assert done.code == 0, done.err
    (run,) = (tmp_path / "results" / "scratch" / "runs").iterdir()
    with (run / "rows.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["experiment"] == "position_probe"]
    assert len(rows) == 1 + 3 * 3
    assert (run / "figures" / "position_probe_copy_probe_error.png").exists()
    done = command("experiment=position_probe", "position_probe.samples=3")
    assert (done.code, "position_probe.samples must be a whole number of at least 4" in done.err) == (2, True)


def test_symbols_that_a_text_lacks_do_not_matter() -> None:
    """An eigenvalue solver gives up on some matrices like this one: most rows are zero, many values are alike."""
    batch = torch.Generator().manual_seed(0)
    tokens = torch.randint(90, (64, 32), generator=batch)
    labels = torch.arange(32).expand(64, 32).unsqueeze(-1)
    errors = [
        position_probe.probe_errors(lambda part, n=size: [torch.nn.functional.one_hot(tokens[part], n)], labels)
        for size in (90, 257)
    ]
    torch.testing.assert_close(errors[0], errors[1])
