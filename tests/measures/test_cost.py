"""What an encoder costs: a counter of memory against hand-worked cases, and rows against what was measured."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from support import ROOT, Command, many, subject_of

import pe_zoo
from experiments.measures.cost import MAIN, report
from experiments.measures.cost import measure as cost
from experiments.measures.cost.memory import CountedMemory
from experiments.measures.cost.timing import Both, Trunks
from experiments.model.transformer import Transformer
from experiments.plan.measures import load_experiment
from experiments.rows.row import METRICS, Row, frame, slice_name
from experiments.training.config import TrainConfig
from pe_zoo._cost import extra_operations


@pytest.fixture(autouse=True)
def _few_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.measures.cost.timing.CHUNK_TOKENS", 64)


KILOBYTE = torch.zeros(256)
QUICK: dict[str, Any] = {"multiples": (1, 2), "memory_lengths": (8, 16), "seconds": 0.0}


def value(rows: list[Row], metric: str, condition: str) -> float:
    (found,) = (row.value for row in rows if (row.metric, slice_name(row)) == (metric, condition))
    return found


# -------------------------------------------------------------------------------------------- the counter of memory


def test_memory_counts_live_tensors_and_no_freed_ones() -> None:
    with CountedMemory() as memory:
        first = KILOBYTE + 1
        second = first + 1
        assert memory.held == 2048
        del first
        third = second + 1
        assert (memory.held, memory.peak) == (2048, 2048), "one was freed before another was made"
        memory.restart()
        del second, third
        assert (memory.held, memory.peak) == (0, 2048)
        memory.restart()
        assert memory.peak == 0


def test_views_share_and_what_was_there_before_does_not_count() -> None:
    before = torch.zeros(16, 16)
    with CountedMemory() as memory:
        before.view(256).t().add_(1)
        assert memory.peak == 0
        made = before + 1
        views = [made.mT, made.view(256)[3:], made.expand(5, 16, 16)]
        del made
        assert (memory.held, memory.peak) == (1024, 1024), "a view keeps all of it"
        del views
        assert memory.held == 0


def test_what_is_made_of_numbers_and_what_grows_in_place_counts() -> None:
    with CountedMemory() as memory:
        numbers = torch.tensor([1.0, 2.0, 3.0])
        assert memory.held == numbers.nbytes == 12
        torch.add(KILOBYTE, 1, out=(grown := torch.empty(0)))
        assert memory.held == 12 + grown.nbytes == 12 + 1024


def test_a_backward_pass_worked_by_hand() -> None:
    weight, x = torch.ones(256, 256, requires_grad=True), torch.ones(256, 256)
    matrix = weight.nbytes
    with CountedMemory() as memory:
        loss = (x @ weight).exp().sum()  # of the two matrices, only what exp made is kept
        assert (memory.held, memory.peak) == (matrix + 4, 2 * matrix)
        loss.backward()
        del loss
        assert weight.grad is not None
        # exp's result and its gradient, then that and the weight's; the sum and its gradient are a number each.
        assert memory.peak == 2 * matrix + 8
        assert memory.held == matrix, "the gradient stays"
    assert memory.peak >= memory.held


def test_a_linear_operation_grows_linearly_and_all_repeats() -> None:
    layer, peaks = torch.nn.Linear(8, 8), []
    for length in (10, 20, 40, 40):
        with torch.no_grad(), CountedMemory() as memory:
            layer(layer(torch.zeros(length, 8)))
        peaks.append(memory.peak)
    # Input and two results: the input is held by its caller's frame until the first layer is done.
    assert peaks == [2 * 32 * length for length in (10, 20, 40, 40)]


def test_scores_of_plain_attention_are_seen() -> None:
    torch.manual_seed(0)
    geometry = pe_zoo.Geometry(model_dim=8, num_heads=2, num_layers=1, train_length=64)
    plain = Transformer(5, geometry, pe_zoo.build("none", geometry), attention="plain").eval()
    with torch.no_grad(), CountedMemory() as memory:
        plain(torch.zeros(1, 64, dtype=torch.long))
    scores = 2 * 64 * 64 * 4
    assert 2 * scores < memory.peak < 4 * scores


# ------------------------------------------------------------------------------------------------------ the amounts


@pytest.mark.parametrize("name", pe_zoo.names())
def test_counts_are_finite_and_repeat_for_every_encoder(name: str) -> None:
    first, second = (Trunks(subject_of(name)) for _ in range(2))
    for take in (Trunks.operations, Trunks.forward_bytes):
        assert take(first, 13) == take(second, 13)
        assert take(first, 26).with_encoder > 0
    held = first.training_bytes()
    assert held == second.training_bytes()
    parameters = sum(p.nbytes for p in first.models[0].parameters())
    assert held.with_encoder > 3 * parameters, "two moments and a gradient for each parameter, and activations"


def test_without_encoder_is_the_encoder_that_does_nothing() -> None:
    trunks = Trunks(subject_of("none"))
    for found in (trunks.operations(13), trunks.forward_bytes(13), trunks.training_bytes()):
        assert found.ratio == 1
    other = Trunks(subject_of("t5"))
    assert other.operations(13).without == trunks.operations(13).without
    assert other.forward_bytes(26).without == trunks.forward_bytes(26).without
    assert other.training_bytes().without == trunks.training_bytes().without


def test_operations_equal_the_catalogue_and_worked_numbers() -> None:
    """Of the products alone: 24 · model_dim² a layer and the logits; attention reads every key, seen or not."""
    trunks = Trunks(subject_of("none", layers=2))
    vocab, dim, size = trunks.models[0].vocab_size, 32, 13
    products = 2 * (24 * dim**2 + 4 * size * dim) + 2 * dim * vocab
    assert products < trunks.operations(size).with_encoder < 1.6 * products
    for name in ("fire", "rope", "deberta"):
        subject = subject_of(name)
        added = Trunks(subject).operations(size)
        layers = subject.model.geometry.num_layers
        base = size * 24 * dim**2 * layers
        extra = extra_operations(subject.model.encoder)
        # The catalogue's whole leaves out norms, feed-forward activations and logits.
        assert (added.with_encoder - added.without) * size > 0.95 * extra * base


@pytest.mark.parametrize("name", pe_zoo.names())
def test_memory_grows_linearly_once_queries_come_in_blocks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.model.transformer.PAIRS_AT_ONCE", 2**9)
    rows = {"num_rows": 256} if name in ("learned", "tupe") else {}
    trunks = Trunks(subject_of(name, **rows))
    short, long = (trunks.forward_bytes(size).with_encoder for size in (128, 256))
    assert long < 2.2 * short


def test_times_are_medians_of_alternating_pairs_after_a_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now, order = [0.0], []
    lasts = {0: iter([90.0, 2.0, 4.0, 9.0, 5.0]), 1: iter([90.0, 1.0, 2.0, 3.0, 4.0])}
    monkeypatch.setattr("experiments.measures.cost.timing.time.perf_counter", lambda: now[0])

    def do(which: int) -> None:
        order.append(which)
        now[0] += next(lasts[which])

    found = Trunks(subject_of("rope"))._in_turn(do, 201.5, lambda which: order.append(which + 2))
    assert (found.with_encoder, found.without, found.n) == (4.5, 2.5, 4), "four pairs take 201 seconds"
    assert found.ratio == 1.8
    assert order == [2, 0, 3, 1] * 5
    lasts |= {0: iter([90.0, 3.0, 1.0, 2.0]), 1: iter([9.0, 1.0, 2.0, 3.0])}
    assert Trunks(subject_of("rope"))._in_turn(do, 0) == Both(2.0, 2.0, 3), "three pairs at least"


def test_every_time_is_per_token_of_what_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    trunks = Trunks(subject_of("rope"), tokens_per_step=60)
    monkeypatch.setattr(trunks, "_in_turn", lambda *given: Both(240.0, 120.0, 7))
    assert trunks.training_seconds(0.0) == Both(240 / 52, 120 / 52, 7), "four sequences of 13 fit into 60 tokens"
    assert trunks.inference_seconds(24, 0.0) == Both(5.0, 2.5, 7), "two sequences of 24 fit into 64 tokens"
    assert trunks.inference_seconds(80, 0.0) == Both(3.0, 1.5, 7), "one sequence, however long"
    assert trunks.generation_seconds(40, 0.0) == Both(15.0, 7.5, 7), "the last 16"
    assert trunks.generation_seconds(8, 0.0) == Both(60.0, 30.0, 7), "or half"


# --------------------------------------------------------------------------------------------------------- the rows


def test_rows_are_amounts_with_and_without_and_their_ratio() -> None:
    subject = subject_of("t5")
    rows = cost.measure(subject, **QUICK)
    assert {row.metric for row in rows} <= set(METRICS)
    assert {row.metric for row in rows} == {
        *("encoder_parameters", "encoder_parameter_share"),
        *(name for pair in cost.RELATIVE.items() for name in pair),
    }
    assert all(row.status == "ok" and math.isfinite(row.value) and row.value > 0 for row in rows)
    places = {
        row.metric: sorted({r.sequence_length or 0 for r in rows if r.metric == row.metric})
        for row in rows
        if row.sequence_length
    }
    assert places["peak_memory_mib"] == [8, 16]
    assert places["operations_per_token"] == places["inference_tokens_per_second"] == [13, 26]
    assert places["generation_ms_per_token"] == [13, 26]
    assert places["train_tokens_per_second"] == places["train_peak_memory_mib"] == [13]
    for metric, relative in cost.RELATIVE.items():
        for size in places[metric]:
            ours, bare = (value(rows, metric, f"{done}sequence_length={size}") for done in ("", "without encoder, "))
            wanted = bare / ours if metric.endswith("per_second") else ours / bare
            assert value(rows, relative, f"sequence_length={size}") == pytest.approx(wanted)
    own = sum(p.numel() for p in subject.model.encoder.parameters())
    assert value(rows, "encoder_parameters", "") == own > 0
    rest = sum(p.numel() for _, p in subject.model.trunk_parameters())
    assert value(rows, "encoder_parameter_share", "") == own / rest
    assert (
        value(rows, "peak_memory_mib", "sequence_length=16") == Trunks(subject).forward_bytes(16).with_encoder / 2**20
    )


def test_memory_is_measured_at_multiples_of_training_unless_told() -> None:
    rows = cost.measure(subject_of("rope"), multiples=(1,), seconds=0.0)
    found = [slice_name(row) for row in rows if row.metric == "relative_peak_memory"]
    assert found == [f"sequence_length={13 * multiple}" for multiple in (1, 2, 4, 8, 16)]


def test_a_table_that_ends_and_a_model_without_a_cache_are_rows() -> None:
    rows = cost.measure(subject_of("learned", num_rows=20, causal=False), **QUICK | {"memory_lengths": (16, 24)})
    lost = {(row.metric, slice_name(row)) for row in rows if row.status == "unsupported"}
    ends = [(m, "sequence_length=26") for m in ("operations_per_token", "inference_tokens_per_second")]
    ends += [("peak_memory_mib", "sequence_length=24")]
    ends += [("generation_ms_per_token", f"sequence_length={size}") for size in (13, 26)]
    assert lost == {*ends, *((cost.RELATIVE[metric], condition) for metric, condition in ends)}


def test_measuring_leaves_the_model_as_it_is() -> None:
    subject = subject_of("learned")
    before = {name: p.clone() for name, p in subject.model.state_dict().items()}
    cost.measure(subject, **QUICK)
    assert all(torch.equal(p, before[name]) for name, p in subject.model.state_dict().items())
    assert subject.model.training
    assert not subject.model.encoder_dropped


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"multiples": ()}, "cost.multiples is empty"),
        ({"multiples": (0,)}, "cost.multiples must be a whole number of at least 1; got 0"),
        ({"memory_lengths": (1,)}, "cost.memory_lengths must be a whole number of at least 2; got 1"),
        ({"tokens_per_step": 0}, "cost.tokens_per_step must be a whole number of at least 1"),
        ({"seconds": -1.0}, "cost.seconds must be a finite number at least 0"),
    ],
)
def test_knobs_out_of_range_are_refused(given: dict[str, Any], said: str) -> None:
    asked: dict[str, Any] = QUICK | {"tokens_per_step": None}
    load_experiment("cost", asked)
    with pytest.raises(ValueError, match=said):
        load_experiment("cost", asked | given)


def test_the_batch_is_the_trainers_unless_told() -> None:
    batch, _ = Trunks(subject_of("rope"))._training_batch()
    assert len(batch.tokens) == TrainConfig().tokens_per_step // 13


# ------------------------------------------------------------------------------------------------ table and figures


@pytest.mark.parametrize(("labels", "seeds"), [(1, 1), (6, 2), (16, 1)])
def test_figures_have_captions_and_every_series(labels: int, seeds: int) -> None:
    rows = many(cost.measure(subject_of("learned", num_rows=20), **QUICK | {"memory_lengths": (16, 24)}), labels, seeds)
    figures = report.plot(rows)
    assert list(figures) == ["copy_relative_cost"]
    relative = figures["copy_relative_cost"]
    assert "counted" in relative.caption
    relative.canvas.draw()
    assert len(relative.axes[0].get_yticks()) == labels
    for axes in relative.axes:
        low, high = axes.get_xlim()
        drawn = [
            x for line in axes.lines if line.get_transform() == axes.transData for x in np.asarray(line.get_xdata())
        ]
        assert all(low < x < high for x in drawn if x == x), "no dot is clipped"
    assert len(report.summarise(rows)) == labels * len(
        {(row["metric"], slice_name(row)) for row in rows.to_dict("records")}
    )


def test_the_table_has_each_quantity_at_its_longest_length() -> None:
    subject = subject_of("rope")
    rows = frame(cost.measure(subject, **QUICK))
    lost = frame([subject.row("cost", MAIN, status="diverged")]).assign(encoder="lost")
    table = report.shown(pd.concat([rows, lost]))
    heads = [
        "parameters",
        "operations at 26, × without",
        "training time at 13, × without",
        "training memory at 13, × without",
        "inference time at 26, × without",
        "generation time at 26, × without",
        "memory at 16, MiB",
        "memory at 16, × without",
    ]
    assert list(dict.fromkeys(table["head"])) == heads
    assert list(table.loc[table["encoder"] == "lost", "head"]) == heads
    found = table[(table["encoder"] == "rope") & (table["head"] == "memory at 16, MiB")]
    assert found["value"].item() == value_of(rows, "peak_memory_mib", 16)
    assert report.plot(lost) == {}


def value_of(rows: pd.DataFrame, metric: str, length: int) -> float:
    at = (rows["condition"] == "") & (rows["sequence_length"] == length)
    return float(rows[(rows["metric"] == metric) & at]["value"].item())


def test_from_the_command_line(command: Command, tmp_path: Path) -> None:
    asked = ["experiment=cost", "model=tiny", "encoder=alibi", "cost.seconds=0", "cost.multiples=[1]"]
    done = command(*asked, "cost.memory_lengths=[16,32]", "cost.tokens_per_step=64")
    assert done.code == 0, done.err
    assert "not trained" in done.out
    (run,) = (tmp_path / "results" / "scratch" / "runs").iterdir()
    with (run / "rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["experiment"] for row in rows} == {"cost"}
    assert {path.stem for path in (run / "figures").glob("*.png")} == {"cost_copy_relative_cost"}
    done = command(*asked, "cost.memory_lengths=[0]")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "cost.memory_lengths must be a whole number of at least 2" in done.err


def test_the_sweep_makes_every_table_long_enough() -> None:
    sweep = yaml.safe_load((ROOT / "configs" / "sweep" / "cost.yaml").read_text(encoding="utf-8"))
    plain, tables = (part.split()[0].removeprefix("encoder=").split(",") for part in sweep["parts"])
    own = [name for name in pe_zoo.names() if pe_zoo.get(name).__module__.startswith("pe_zoo.")]
    assert plain == ["all"]
    geometry = pe_zoo.Geometry(model_dim=16, num_heads=2, num_layers=1, train_length=4)
    assert tables == [name for name in own if pe_zoo.build(name, geometry).max_length is not None]
    lengths = [part.partition("cost.memory_lengths=")[2] for part in sweep["parts"]]
    assert all(max(yaml.safe_load(found)) == 16384 for found in lengths)
