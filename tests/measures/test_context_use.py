"""context_use: the same bytes with their far context kept, cut and replaced; separate and sliding windows."""

from __future__ import annotations

import csv
import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from support import Command
from torch import Tensor
from torch.nn import functional

import pe_zoo
from experiments import Transformer
from experiments.figures.panels import columns_at
from experiments.figures.style import render
from experiments.measures.context_use import measure as context_use
from experiments.measures.context_use import report
from experiments.measures.context_use.measure import Places
from experiments.plan.measures import load_experiment
from experiments.rows.row import Row, frame
from experiments.tasks import tasks
from experiments.training.evaluate import Subject
from pe_zoo import Encoder, Geometry, Unsupported

T = 8
TEXT = bytes(range(32, 127)) * 40
LABELS = {"run_id": "run", "encoder": "x", "positions": "sequential", "task": "text", "seed": 0, "train_length": T}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "corpus.txt").write_bytes(TEXT)
    return tmp_path / "corpus.txt"


def subject_of(model: torch.nn.Module, path: Path | None, task: str = "text", numbering: str = "sequential") -> Subject:
    given = {"path": str(path), "duplicates": "kept"} if path else {}
    return Subject(
        model=model,  # type: ignore[arg-type]
        initial=lambda: model,  # type: ignore[arg-type,return-value]
        trained=False,
        task=tasks.build(task, train_length=T, **given),
        numbering=pe_zoo.numberings.build(numbering),
        seed=0,
        labels={**LABELS, "task": task},
    )


def model_of(name: str = "alibi", **knobs: object) -> Transformer:
    geometry = Geometry(model_dim=8, num_heads=2, num_layers=2, train_length=T)
    return Transformer(257, geometry, pe_zoo.build(name, geometry, **knobs))


class LooksBack(torch.nn.Module):
    """Knows the next byte for sure if token ``back`` places ago was the byte that stood there in a cycle; else nothing.

    The corpus is a cycle of 95 bytes: the byte to come is the one ``back`` + 1 before it, moved on by as much.
    """

    def __init__(self, back: int) -> None:
        super().__init__()
        self.back, self.causal = back, True
        self.token_embedding = torch.nn.Embedding(1, 1)

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        logits = torch.zeros(*tokens.shape, 257)
        if tokens.shape[1] > self.back:
            seen = tokens[:, : tokens.shape[1] - self.back]
            following = (seen - 32 + self.back + 1) % 95 + 32
            known = functional.one_hot(following, 257) * 50.0 * (seen < 256).unsqueeze(-1)
            logits[:, self.back :] = known
        return logits


def measured(subject: Subject, **knobs: object) -> list[Row]:
    given = {"multiples": (0.5, 1.0, 2.0, 4.0), "samples": 4}
    return context_use.measure(subject, **(given | knobs))  # type: ignore[arg-type]


def value(rows: list[Row], metric: str, condition: str, length: int) -> float:
    found = [r.value for r in rows if (r.metric, r.condition, r.eval_length) == (metric, condition, length)]
    assert len(found) == 1
    return found[0]


def test_windows_end_where_they_are_asked_to(corpus: Path) -> None:
    task = tasks.build("text", train_length=T, path=str(corpus), duplicates="kept")
    test = TEXT[: math.ceil(0.1 * len(TEXT))]
    assert task.running_length == len(test)
    batch = task.windows(torch.tensor([5, 9]), 4, causal=True)
    assert batch.targets.tolist() == [list(test[1:5]), list(test[5:9])]
    assert batch.tokens.tolist() == [[256, *test[1:4]], [256, *test[5:8]]]
    assert batch.counted.all()
    for ends in ([3], [len(test) + 1]):
        with pytest.raises(Unsupported, match="leave"):
            task.windows(torch.tensor(ends), 4, causal=True)


@pytest.mark.parametrize("name", ["copy", "reverse", "sort"])
def test_a_task_without_running_text_says_why(name: str) -> None:
    with pytest.raises(Unsupported, match="the question changes"):
        measured(subject_of(model_of(), None, name))


def test_a_model_that_looks_far_back_gains_from_far_context(corpus: Path) -> None:
    rows = measured(subject_of(LooksBack(2 * T), corpus))
    assert value(rows, "bits_per_byte", "kept", 4 * T) == pytest.approx(0, abs=1e-6)
    for condition in ("cut", "replaced"):
        assert value(rows, "bits_per_byte", condition, 4 * T) > 8
    assert value(rows, "far_context_gain", "", 4 * T) == pytest.approx(math.log2(257), abs=1e-4)
    assert value(rows, "far_context_content", "", 4 * T) > 8, "wrong text where it looks"
    # In windows of 4T, half the bytes of each have 2T before them; of sliding ones all have.
    assert value(rows, "bits_per_byte", "separate windows", 4 * T) == pytest.approx(
        math.log2(257) * (2 * T + 1) / (4 * T), abs=1e-4
    )
    assert value(rows, "bits_per_byte", "sliding windows", 4 * T) == pytest.approx(0, abs=1e-6)


def test_a_local_model_gains_only_from_fewer_early_bytes(corpus: Path) -> None:
    rows = measured(subject_of(LooksBack(2), corpus))
    assert value(rows, "far_context_gain", "", 4 * T) == 0
    assert value(rows, "far_context_content", "", 4 * T) == 0
    separate = [value(rows, "bits_per_byte", "separate windows", length) for length in (T, 2 * T, 4 * T)]
    assert separate == pytest.approx([math.log2(257) * 3 / length for length in (T, 2 * T, 4 * T)], abs=1e-4)
    sliding = [value(rows, "bits_per_byte", "sliding windows", length) for length in (T, 2 * T, 4 * T)]
    assert sliding == pytest.approx([0, 0, 0], abs=1e-6)


def test_every_condition_against_a_loop(corpus: Path) -> None:
    model, targets, stride, budget = model_of("sinusoidal"), 2, 3, 64
    subject = subject_of(model, corpus)
    rows = measured(subject, samples=8, stride_share=3 / 8)
    text, longest = list(TEXT[: math.ceil(0.1 * len(TEXT))]), 4 * T
    shift = float(torch.rand((), generator=subject.stream("context_use/places")))
    asked = Places.of(len(text), longest, targets, budget, shift)
    ends = asked.target_ends.tolist()

    def nats(context: list[int], byte: int) -> float:
        with torch.no_grad():
            return -model(torch.tensor([[256, *context]]))[0, -1].log_softmax(-1)[byte].item()

    def mean(found: list[float]) -> float:
        return sum(found) / len(found) / math.log(2)

    for length in (2 * T, 4 * T):
        kept, cut, replaced = [], [], []
        for place, end in enumerate(ends):
            other = ends[(place - len(ends) // 2) % len(ends)]
            for at in range(end - targets, end):
                kept.append(nats(text[end - length : at], text[at]))
                cut.append(nats(text[end - T : at], text[at]))
                far = text[other - length : other - T]
                replaced.append(nats(far + text[end - T : at], text[at]))
        for condition, found in {"kept": kept, "cut": cut, "replaced": replaced}.items():
            assert value(rows, "bits_per_byte", condition, length) == pytest.approx(mean(found), abs=1e-5)
        gain = mean(cut) - mean(kept)
        assert gain != 0
        assert value(rows, "far_context_gain", "", length) == pytest.approx(gain, abs=1e-5)
        assert value(rows, "far_context_content", "", length) == pytest.approx(mean(replaced) - mean(kept), abs=1e-5)
        separate, sliding = [], []
        for start in asked.starts.tolist():
            for at in range(start, start + longest):
                first = start + (at - start) // length * length
                separate.append(nats(text[first:at], text[at]))
                end = min(start + ((at - start) // stride + 1) * stride, start + longest)
                sliding.append(nats(text[end - length : at], text[at]))
        assert value(rows, "bits_per_byte", "separate windows", length) == pytest.approx(mean(separate), abs=1e-5)
        assert value(rows, "bits_per_byte", "sliding windows", length) == pytest.approx(mean(sliding), abs=1e-5)


def test_at_the_training_length_nothing_is_cut_or_replaced(corpus: Path) -> None:
    rows = measured(subject_of(model_of("sinusoidal"), corpus, numbering="offset"))
    kept, cut, replaced = (value(rows, "bits_per_byte", name, T) for name in ("kept", "cut", "replaced"))
    assert kept == cut == replaced
    assert value(rows, "bits_per_byte", "cut", 4 * T) == cut, "the same bytes after the same context"
    lengths = {r.eval_length for r in rows if r.metric == "far_context_gain"}
    assert lengths == {2 * T, 4 * T}
    assert not [r for r in rows if r.condition == "cut" and r.eval_length < T]


def test_sliding_by_a_window_is_separate_windows(corpus: Path) -> None:
    rows = measured(subject_of(model_of(), corpus), multiples=(1.0,), stride_share=1.0)
    assert value(rows, "bits_per_byte", "sliding windows", T) == value(rows, "bits_per_byte", "separate windows", T)
    rows = measured(subject_of(model_of(), corpus), multiples=(1.0,), stride_share=0.5)
    assert value(rows, "bits_per_byte", "sliding windows", T) != value(rows, "bits_per_byte", "separate windows", T)


@pytest.mark.parametrize("shift", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(
    ("text_length", "longest", "targets", "budget"), [(1000, 32, 2, 64), (64, 32, 2, 999), (70, 32, 5, 1)]
)
def test_bytes_have_a_window_before_them_and_are_asked_once(
    text_length: int, longest: int, targets: int, budget: int, shift: float
) -> None:
    asked = Places.of(text_length, longest, targets, budget, shift)
    places = [end - back for end in asked.target_ends.tolist() for back in range(1, targets + 1)]
    assert len(set(places)) == len(places)
    assert min(asked.target_ends.tolist()) >= longest
    assert max(places) < text_length
    stretched = [start + step for start in asked.starts.tolist() for step in range(asked.size)]
    assert len(set(stretched)) == len(stretched)
    assert min(stretched) >= longest
    assert max(stretched) < text_length
    if shift == 1:
        assert text_length - len(asked.target_ends) < asked.target_ends[-1] <= text_length


def test_a_seed_has_places_of_its_own(corpus: Path) -> None:
    subject = subject_of(model_of(), corpus)
    drawn = [measured(replace(subject, seed=seed), multiples=(1.0,)) for seed in (0, 0, 1)]
    first, again, other = ([row.value for row in rows] for rows in drawn)
    assert first == again
    assert first != other


def test_too_little_text_is_said(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_bytes(TEXT[:400])
    rows = measured(subject_of(model_of(), tmp_path / "short.txt"))  # 40 bytes to test with
    refused = {(r.eval_length, r.condition) for r in rows if r.status == "unsupported"}
    assert (4 * T, "") in refused
    assert (2 * T, "replaced") not in refused or (2 * T, "kept") not in refused
    assert all(math.isfinite(r.value) for r in rows if r.status == "ok")


@pytest.mark.parametrize("name", pe_zoo.names())
def test_every_encoder(name: str, corpus: Path) -> None:
    subject = subject_of(model_of(name), corpus)
    rows = measured(subject, samples=2)
    assert rows == measured(subject, samples=2), "repeatable"
    assert {r.condition for r in rows} == {"", *CONDITIONS}
    assert all(math.isfinite(r.value) == (r.status == "ok") for r in rows)
    assert all(r.status == "ok" for r in rows)


def test_a_table_that_ends_is_unsupported_not_a_crash(corpus: Path) -> None:
    rows = measured(subject_of(model_of("learned", num_rows=2 * T), corpus))
    status = {(r.eval_length, r.condition, r.metric): r.status for r in rows}
    assert status[4 * T, "kept", "bits_per_byte"] == "unsupported"
    assert status[4 * T, "cut", "bits_per_byte"] == "ok", "the cut context is short enough"
    assert status[4 * T, "", "far_context_gain"] == "unsupported"
    assert status[2 * T, "kept", "bits_per_byte"] == "ok"


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"multiples": ()}, "multiples"),
        ({"multiples": (0.0,)}, "multiples"),
        ({"samples": 0}, "samples"),
        ({"target_share": 0.6}, "target_share"),
        ({"stride_share": 0.6}, "stride_share"),
        ({"stride_share": 0}, "stride_share"),
    ],
)
def test_knobs_out_of_range_are_refused(given: dict[str, object], word: str) -> None:
    knobs = {"multiples": (0.5, 1.0), "samples": 4, "target_share": 0.25, "stride_share": 0.125}
    load_experiment("context_use", knobs)
    with pytest.raises(ValueError, match=rf"context_use\.{word}"):
        load_experiment("context_use", (knobs | given))


def many(rows: list[Row], labels: int, seeds: int) -> pd.DataFrame:
    """The rows as of many series and seeds, each a little different."""
    table = frame(rows)
    parts = []
    for place in range(labels):
        for seed in range(seeds):
            moved = table["value"] + 0.05 * place + 0.1 * math.sin(place * 7 + seed)
            name = f"encoder_{place}(base=500000)" if place % 3 else f"e{place}"
            parts.append(table.assign(value=moved, encoder=name, seed=seed, run_id=f"{name}-{seed}"))
    return pd.concat(parts, ignore_index=True)


@pytest.mark.parametrize(("labels", "seeds"), [(1, 1), (6, 3), (16, 1)])
def test_figures_and_table(corpus: Path, labels: int, seeds: int) -> None:
    of_one = measured(subject_of(model_of(), corpus))
    rows = many(of_one, labels, seeds)
    figures = report.plot(rows)
    assert list(figures) == ["text_context_use"]
    figure = figures["text_context_use"]
    assert len(figure.axes) == 2
    gain = rows[(rows["metric"] == "far_context_gain") & (rows["eval_length"] == rows["eval_length"].max())]
    best_first = gain.groupby("encoder")["value"].mean().sort_values(ascending=False)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == list(best_first.index)
    drawn = [x for line in figure.axes[0].get_lines() for x in np.asarray(line.get_xdata(), float)]
    assert all(np.isclose(drawn, value).any() for value in best_first)
    if folder := os.environ.get("LOOK_AT_FIGURES"):
        Path(folder, f"use_{labels}_{seeds}.png").write_bytes(render(figure, "png"))
    figure.draw_without_rendering()
    table = report.shown(rows)
    assert list(dict.fromkeys(table["head"])) == [
        *("separate windows, 1×", "sliding windows, 1×", "separate windows, 4×", "sliding windows, 4×"),
        *("gain from far context, 4×", "gain from its content, 4×"),
    ]
    assert not table.duplicated(["encoder", "seed", "head"]).any()
    assert len(report.summarise(rows)) == labels * len(of_one)


def test_the_table_takes_the_longest_where_there_is_no_fourfold() -> None:
    rows = frame([Row(**LABELS, experiment="x", metric="m", eval_length=n, value=float(n)) for n in (8, 16, 24)])  # type: ignore[arg-type]
    assert columns_at([(rows, 2, "a")])["value"].tolist() == [16]
    assert columns_at([(rows, 4, "a")])[["value", "head"]].values.tolist() == [[24, "a, 3×"]]
    assert columns_at([(rows[:0], 4, "a")]).empty


def test_what_could_not_be_measured_is_in_the_table() -> None:
    row = Row(**LABELS, experiment="context_use", metric="far_context_gain", eval_length=T, status="unsupported")  # type: ignore[arg-type]
    table = report.shown(frame([row]))
    assert table["status"].tolist() == ["unsupported"]
    assert report.plot(frame([row])) == {}


CONDITIONS = ("kept", "cut", "replaced", "separate windows", "sliding windows")


def test_from_the_command_line(command: Command, tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_bytes(b"".join(b"%d, " % (n * n) for n in range(900)))
    done = command(
        *("task=text", "task.path=own.txt", "task.train_length=16", "model=tiny", "train.steps=2", "train.rounds=1"),
        *("experiment=context_use", "context_use.samples=2", "encoder=alibi"),
    )
    assert done.code == 0, done.err
    (place,) = (tmp_path / "results" / "scratch" / "runs").iterdir()
    rows = list(csv.DictReader((place / "rows.csv").read_text(encoding="utf-8").splitlines()))
    assert {r["condition"] for r in rows if r["experiment"] == "context_use"} == {"", *CONDITIONS}
    assert (place / "figures" / "context_use_text_context_use.png").is_file()
    assert command("context_use.samples=0", "experiment=context_use").code == 2


def test_the_encoder_sees_positions_from_the_start_again(corpus: Path) -> None:
    seen: list[float] = []

    class Notes(Encoder):
        def embed(self, x: Tensor, positions: Tensor) -> Tensor:
            seen.append(float(positions.max()))
            return x

    geometry = Geometry(model_dim=8, num_heads=2, num_layers=1, train_length=T)
    subject = subject_of(Transformer(257, geometry, Notes(geometry)), corpus)
    asked = Places.of(subject.task.running_length, 4 * T, 2, 16, 0.5)
    context_use.kept(subject, asked, T)
    context_use.replaced(subject, asked, 4 * T, T)
    assert seen == [T - 1, 4 * T - 1]
