"""Permutation sensitivity: the definitions by hand and by loops, known truths, and what every encoder must give."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.text import Text
from scipy import stats as scipy_stats
from support import Command
from torch import Generator, Tensor

import pe_zoo
import report
from experiments.figures import style
from experiments.measures.permutation_sensitivity import measure as permutation_sensitivity
from experiments.measures.permutation_sensitivity import report as permutation_report
from experiments.measures.permutation_sensitivity.effects import Effects, effects, relative
from experiments.measures.permutation_sensitivity.permutations import (
    Intervention,
    adjacent_swaps,
    index_displacement,
    makers,
    neighbours_lost,
    ngram_shuffle,
    rotation,
    slope,
    window_shuffle,
)
from experiments.model.streams import initialising
from experiments.model.transformer import Transformer
from experiments.plan.measures import load_experiment
from experiments.rows.row import METRICS, Row, frame, slice_name
from experiments.tasks import tasks
from experiments.training.evaluate import Subject, evaluate
from pe_zoo import Encoder, Geometry, Unsupported

LENGTH = 8
QUICK: dict[str, Any] = {"samples": 5, "ngrams": (2,), "windows": (4,), "swap_shares": (0.5,)}
CONDITIONS = {
    "shuffle": "shuffle",
    "n-gram shuffle, size=2": "2-gram shuffle",
    "shuffle within, size=4": "shuffle within 4",
    "adjacent swaps, share=0.5": "adjacent swaps 50%",
    "rotation": "rotation",
    "reversal": "reversal",
}
"""Columns of a row -> the name of its change of order."""


def subject(
    encoder: str | Callable[[Geometry], Encoder] = "none",
    *,
    causal: bool = True,
    task: str = "copy",
    seed: int = 0,
    trained: bool = True,
    length: int = LENGTH,
) -> Subject:
    """A subject whose trained model is another initialisation: measuring does not ask where weights come from."""
    made = tasks.build(task, train_length=length)
    geometry = Geometry(model_dim=16, num_heads=2, num_layers=2, train_length=length)
    build = (lambda g: pe_zoo.build(encoder, g)) if isinstance(encoder, str) else encoder

    def initial(purpose: str = "first") -> Transformer:
        with initialising(seed, purpose):
            return Transformer(made.vocab_size, geometry, build(geometry), causal=causal)

    name = encoder if isinstance(encoder, str) else "mine"
    labels: dict[str, str | int] = {"run_id": f"{name}-{seed}", "encoder": name, "positions": "sequential"}
    labels |= {"task": task, "seed": seed, "train_length": length}
    return Subject(
        model=initial("second" if trained else "first"),
        initial=initial,
        trained=trained,
        task=made,
        numbering=pe_zoo.numberings.build("sequential"),
        seed=seed,
        labels=labels,
    )


def measured(*arguments: Any, **options: Any) -> dict[tuple[str, str], Row]:
    rows = permutation_sensitivity.measure(subject(*arguments, **options), **QUICK)
    found = {(row.metric, slice_name(row)): row for row in rows}
    assert len(found) == len(rows), "a measurement twice"
    return found


def generator(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


# ---- permutations and distances --------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 3, 7, 16])
def test_every_kind_is_a_permutation(length: int) -> None:
    for condition, make in makers((1, 2, 4), (2, 5), (0.1, 1.0)).items():
        for seed in range(5):
            assert sorted(make(length, generator(seed)).tolist()) == list(range(length)), condition


def test_distances_by_hand() -> None:
    for order, displacement, lost in (
        ([0, 1, 2, 3], 0, 0),
        ([3, 2, 1, 0], (3 + 1 + 1 + 3) / 16, 1),
        ([2, 3, 0, 1], 8 / 16, 1 / 3),
        ([1, 0, 3, 2], 4 / 16, 1),
        ([1, 2, 3, 0], 6 / 16, 1 / 3),
    ):
        assert index_displacement(torch.tensor(order)) == pytest.approx(displacement)
        assert neighbours_lost(torch.tensor(order)) == pytest.approx(lost)
    assert neighbours_lost(torch.tensor([[0]])) == 0


def test_an_inverse_is_as_far_as_the_permutation() -> None:
    for seed in range(20):
        order = torch.randperm(9, generator=generator(seed))
        assert index_displacement(order) == pytest.approx(index_displacement(order.argsort()))
        assert neighbours_lost(order) == pytest.approx(neighbours_lost(order.argsort()))


def test_windows_part_neighbours_and_ngrams_move_far() -> None:
    def both(make: Callable[[int, Generator], Tensor]) -> tuple[float, float]:
        orders = torch.stack([make(32, generator(seed)) for seed in range(200)])
        return index_displacement(orders), neighbours_lost(orders)

    within = both(lambda n, g: window_shuffle(n, g, width=4))
    pieces = both(lambda n, g: ngram_shuffle(n, g, n=8))
    assert within[0] < 0.05
    assert within[1] > 0.7
    assert pieces[0] > 0.2
    assert pieces[1] < 0.1
    whole = both(lambda n, g: window_shuffle(n, g, width=32))
    assert whole[0] == pytest.approx((32**2 - 1) / (3 * 32**2), abs=0.02)
    assert whole[1] == pytest.approx(1 - 1 / 32, abs=0.01)
    for order in (window_shuffle(10, generator(seed), width=4) for seed in range(20)):
        assert [sorted(part) for part in (order[:4].tolist(), order[4:8].tolist(), order[8:].tolist())] == [
            [0, 1, 2, 3],
            [4, 5, 6, 7],
            [8, 9],
        ]


def test_swaps_and_rotations() -> None:
    assert adjacent_swaps(5, generator(), share=1.0).tolist() == [1, 0, 3, 2, 4]
    order = adjacent_swaps(20, generator(), share=0.5)
    assert int((order != torch.arange(20)).sum()) == 10
    turned = rotation(7, generator()).tolist()
    assert turned != list(range(7))
    assert {(b - a) % 7 for a, b in zip(turned, turned[1:] + turned[:1], strict=True)} == {1}


def test_slope_by_hand_and_against_least_squares() -> None:
    assert slope([1.0, 2.0], [2.0, 4.0]) == 2.0
    assert slope([1.0, 1.0], [0.0, 1.0]) == 0.5
    assert slope([0.0, 0.5], [9.0, -0.25]) == -0.5  # leaving the input alone says nothing of a slope
    far, lost = np.random.default_rng(0).random((2, 9))
    assert slope(list(far), list(lost)) == pytest.approx(np.linalg.lstsq(far[:, None], lost, rcond=None)[0][0])


def test_both_interventions_give_each_token_the_same_position() -> None:
    tokens = torch.tensor([[9, 1, 2, 3, 8], [9, 4, 5, 6, 8]])
    orders = torch.tensor([[1, 2, 0], [0, 2, 1]])
    span = slice(1, 4)
    for positions in (torch.arange(5.0), torch.stack([torch.arange(5.0), 10 + 2 * torch.arange(5.0)])):
        moved, same = Intervention(orders)(tokens, positions, span)
        assert moved.tolist() == [[9, 2, 3, 1, 8], [9, 4, 6, 5, 8]]
        assert torch.equal(same, positions)
        still, numbers = Intervention(orders, on_positions=True)(tokens, positions, span)
        assert torch.equal(still, tokens)
        for row in range(2):
            pairs = set(zip(moved[row].tolist(), positions.expand(2, 5)[row].tolist(), strict=True))
            assert set(zip(still[row].tolist(), numbers[row].tolist(), strict=True)) == pairs
        assert torch.equal(numbers[:, [0, 4]], positions.expand(2, 5)[:, [0, 4]])


# ---- what a model makes of it: a second computation --------------------------------------------------


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("on_positions", [True, False])
def test_every_change_against_loops(causal: bool, on_positions: bool) -> None:
    given = subject("rope", causal=causal)
    batch, positions = given.question("test", 3, LENGTH)
    span = given.task.input_span(LENGTH)
    orders = torch.stack([torch.randperm(LENGTH, generator=generator(seed)) for seed in range(3)])
    intervention = Intervention(orders, on_positions)
    found = effects(given.model, batch, positions, span, {"x": intervention})["x"]
    assert isinstance(found, Effects)
    squares: dict[Any, list[float]] = {}
    changed, places = 0, 0
    for row in range(3):
        tokens, numbers = intervention(batch.tokens, positions, span)
        numbers = numbers.expand(3, -1)
        with torch.no_grad():
            after = given.model.hidden(tokens[row : row + 1], numbers[row])
            before = given.model.hidden(batch.tokens[row : row + 1], positions)
            says, said = (given.model.unembedding(given.model.norm(s[-1]))[0] for s in (after, before))
        for place in range(len(positions)):
            now, then = (x[place] - x[place].mean() for x in (says, said))
            if place >= span.stop:
                squares.setdefault("output", []).append(float((now - then).square().sum()))
                squares.setdefault("said", []).append(float(then.square().sum()))
                changed += int(now.argmax() != then.argmax())
                places += 1
        for i in range(LENGTH):
            source = i if on_positions else int(orders[row, i])
            for layer in range(3):
                gap = after[layer][0, span.start + i] - before[layer][0, span.start + source]
                squares.setdefault(layer, []).append(float(gap.square().sum()))
                norm = before[layer][0, span.start + i]
                squares.setdefault((layer, "before"), []).append(float(norm.square().sum()))
    assert relative(found.output) == pytest.approx(math.sqrt(sum(squares["output"]) / sum(squares["said"])), rel=1e-4)
    assert found.changed.double().mean().item() == changed / places
    for layer in range(3):
        expected = math.sqrt(sum(squares[layer]) / sum(squares[layer, "before"]))
        assert relative(found.representation[:, layer]) == pytest.approx(expected, rel=1e-4, abs=1e-7)


def test_chunks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = measured("rope")
    monkeypatch.setattr("experiments.training.evaluate.CHUNK_TOKENS", 2 * (2 * LENGTH + 1))
    for key, row in measured("rope").items():
        assert row.value == pytest.approx(whole[key].value, rel=1e-4, abs=1e-6), key


def test_quality_lost_is_the_difference_of_two_evaluations() -> None:
    given = subject("rope")
    rows = {(r.metric, slice_name(r)): r for r in permutation_sensitivity.measure(given, **QUICK)}
    batch, positions = given.question(permutation_sensitivity.NAME, 5, LENGTH)
    good = evaluate(given.model, batch, positions).quality()
    assert rows["token_accuracy", ""].value == good["token_accuracy"]
    tokens = batch.tokens.clone()
    tokens[:, 1 : LENGTH + 1] = tokens[:, 1 : LENGTH + 1].flip(1)
    reversed_ = evaluate(given.model, replace(batch, tokens=tokens), positions).quality()
    assert rows["token_accuracy", "reversal"].value == reversed_["token_accuracy"]
    lost = good["token_accuracy"] - reversed_["token_accuracy"]
    assert rows["quality_loss", "reversal"].value == pytest.approx(lost)
    numbers = positions.clone()
    numbers[1 : LENGTH + 1] = numbers[1 : LENGTH + 1].flip(0)
    worse = evaluate(given.model, batch, numbers).quality()["token_accuracy"]
    assert rows["token_accuracy", "positions: reversal"].value == worse


def test_sensitivities_are_slopes_over_rows_in_folds() -> None:
    rows = measured("rope", seed=1)
    for prefix, kind in (("", "tokens"), ("positions: ", "positions")):
        for distance, metric in permutation_sensitivity.SLOPES.items():
            far = [rows[distance, f"{prefix}{condition}"].value for condition in CONDITIONS]
            lost = [rows["quality_loss", f"{prefix}{condition}"].value for condition in CONDITIONS]
            expected = sum(x * y for x, y in zip(far, lost, strict=True)) / sum(x * x for x in far)
            assert rows[metric, kind].value == pytest.approx(expected)
            folds = [row for (name, where), row in rows.items() if name == metric and where.startswith(f"{kind}, ")]
            assert [slice_name(row) for row in folds] == [f"{kind}, part={i}" for i in range(1, 6)]
            assert sum(row.n for row in folds) == rows[metric, kind].n == 5
            assert len({row.value for row in folds}) > 1


# ---- known truths, both ways -------------------------------------------------------------------------


def test_without_encoder_and_mask_outputs_move_with_tokens() -> None:
    rows = measured("none", causal=False)
    for stage in ("", "initial_"):
        for condition in ("shuffle", "reversal"):
            assert rows[f"{stage}equivariance_error", condition].value < 1e-5
            for layer in range(3):
                assert rows[f"{stage}representation_change", f"{condition}, layer={layer}"].value < 1e-5
    assert all(row.value == 0 for (metric, _), row in rows.items() if metric == "answers_changed")
    assert all(row.value == 0 for (metric, _), row in rows.items() if metric.endswith("_sensitivity"))


@pytest.mark.parametrize(("encoder", "causal"), [("none", True), ("rope", False), ("sinusoidal", False)])
def test_with_a_mask_or_an_encoder_they_do_not(encoder: str, causal: bool) -> None:
    rows = measured(encoder, causal=causal)
    for stage in ("", "initial_"):
        for condition in ("shuffle", "reversal"):
            assert rows[f"{stage}equivariance_error", condition].value > 1e-2
            assert rows[f"{stage}representation_change", f"{condition}, layer=2"].value > 1e-2


@pytest.mark.parametrize("encoder", ["sinusoidal", "rope", "t5", "learned"])
def test_only_a_bidirectional_model_treats_interventions_alike(encoder: str) -> None:
    both_ways = measured(encoder, causal=False)
    causal = measured(encoder)
    for condition in CONDITIONS:
        for metric in ("output_change", "quality_loss"):
            tokens, positions = (both_ways[metric, f"{prefix}{condition}"].value for prefix in ("", "positions: "))
            assert positions == pytest.approx(tokens, abs=1e-5), (metric, condition)
    for layer in range(3):
        tokens, positions = (
            both_ways["representation_change", f"{prefix}shuffle, layer={layer}"].value
            for prefix in ("", "positions: ")
        )
        assert positions == pytest.approx(tokens, abs=1e-5)
    gap = causal["output_change", "shuffle"].value - causal["output_change", "positions: shuffle"].value
    assert abs(gap) > 1e-4


def reads_positions(encoder: str) -> bool:
    """Asked of the encoder in one forward pass: does another set of positions change any output?"""
    given = subject(encoder)
    tokens = torch.arange(2 * LENGTH + 1).unsqueeze(0) % given.task.vocab_size
    order = torch.arange(2 * LENGTH + 1.0)
    order[1 : LENGTH + 1] = order[1 : LENGTH + 1].flip(0)
    with torch.no_grad():
        return not torch.equal(given.model(tokens), given.model(tokens, order))


@pytest.mark.parametrize("encoder", pe_zoo.names())
def test_every_encoder(encoder: str) -> None:
    kinds = [True] if pe_zoo.get(encoder).causal_only else [True, False]
    for causal in kinds:
        rows = measured(encoder, causal=causal)
        assert {row.status for row in rows.values()} == {"ok"}
        assert all(math.isfinite(row.value) and row.n for row in rows.values())
        assert {metric for metric, _ in rows} <= set(METRICS)
        adds = pe_zoo.get(encoder).overrides("embed")
        for stage in ("", "initial_"):
            for condition in ("shuffle", "positions: shuffle"):
                change = rows[f"{stage}representation_change", f"{condition}, layer=0"].value
                assert (change > 0) == adds, "what is not added does not show before the first layer"
    moved = [row.value for (m, where), row in measured(encoder).items() if "change" in m and where[:9] == "positions"]
    assert any(moved) == reads_positions(encoder), "exactly 0 where positions are not read"


def test_some_encoders_read_positions_and_some_do_not() -> None:
    assert {reads_positions(name) for name in ("none", "rope")} == {False, True}


def test_text_counts_bits_upwards(tmp_path: Path) -> None:
    for i in range(12):
        (tmp_path / f"{i}.txt").write_text(f"{i} words that are not the same in every file {i * i}\n" * 20)
    given = subject("rope", length=16)
    made: Any = tasks.build("text", train_length=16, path=str(tmp_path))
    geometry = Geometry(model_dim=16, num_heads=2, num_layers=2, train_length=16)
    model = Transformer(made.vocab_size, geometry, pe_zoo.build("rope", geometry))
    text = replace(given, task=made, model=model, initial=lambda: model)
    rows = {(r.metric, slice_name(r)): r for r in permutation_sensitivity.measure(text, **QUICK)}
    more = rows["bits_per_byte", "shuffle"].value - rows["bits_per_byte", ""].value
    assert rows["quality_loss", "shuffle"].value == pytest.approx(more)
    too_short = replace(text, task=tasks.build("text", train_length=2, path=str(tmp_path)))
    with pytest.raises(Unsupported, match="train_length"):
        permutation_sensitivity.measure(too_short, **QUICK)


# ---- what cannot be measured -------------------------------------------------------------------------


class InOrderOnly(Encoder):
    """Refuses positions that do not ascend."""

    name = "mine"

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        if (positions.diff(dim=-1) < 0).any():
            raise Unsupported("mine: positions must ascend")
        return x + positions.unsqueeze(-1)


def test_what_an_encoder_refuses_is_one_unsupported_row() -> None:
    rows = measured(InOrderOnly)
    accepting = measured("sinusoidal")
    assert set(rows) == set(accepting), "refusing leaves nothing out"
    refused = {key for key, row in rows.items() if row.status == "unsupported"}
    distances = permutation_sensitivity.DISTANCES
    assert refused == {key for key in rows if key[1].startswith("positions") and key[0] not in distances}
    assert all(math.isnan(rows[key].value) for key in refused)
    assert all(row.status == "ok" for key, row in rows.items() if key not in refused)


def test_one_token_has_no_order() -> None:
    rows = measured("rope", length=1)
    slopes = {row.status for (metric, _), row in rows.items() if metric.endswith("_sensitivity")}
    assert slopes == {"unsupported"}
    assert {r.status for (m, _), r in rows.items() if not m.endswith("_sensitivity")} == {"ok"}
    assert rows["quality_loss", "shuffle"].value == 0


@pytest.mark.parametrize(
    ("knob", "value"), [("samples", 0), ("ngrams", (0,)), ("windows", (1,)), ("swap_shares", (0.0,)), ("samples", True)]
)
def test_knobs_out_of_range_are_refused(knob: str, value: Any) -> None:
    load_experiment("permutation_sensitivity", QUICK)
    with pytest.raises(ValueError, match=f"permutation_sensitivity.{knob}"):
        load_experiment("permutation_sensitivity", QUICK | {knob: value})


# ---- repeating, not training -------------------------------------------------------------------------


def test_repeatable_with_inputs_independent_of_the_encoder() -> None:
    first, again, other, seed = measured("t5"), measured("t5"), measured("rope"), measured("t5", seed=1)
    assert first == again
    for metric in permutation_sensitivity.DISTANCES:
        assert first[metric, "shuffle"].value == other[metric, "shuffle"].value != seed[metric, "shuffle"].value


def test_a_model_that_was_not_trained_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = measured("rope")
    calls = []
    monkeypatch.setattr(Transformer, "hidden", _counting(Transformer.hidden, calls))
    rows = measured("rope", trained=False)
    assert len(calls) == 1 + 2 * len(CONDITIONS)
    assert set(rows) == set(trained)
    for (metric, condition), row in rows.items():
        if metric.startswith("initial_"):
            assert row.value == rows[metric.removeprefix("initial_"), condition].value
    assert any(
        trained[m, c].value != trained[m.removeprefix("initial_"), c].value for m, c in trained if m[:4] == "init"
    )


def _counting(function: Callable[..., Any], calls: list[int]) -> Callable[..., Any]:
    def counted(*arguments: Any) -> Any:
        calls.append(1)
        return function(*arguments)

    return counted


# ---- rows to pages -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    given = [subject(name, seed=seed) for name in ("none", "rope") for seed in (0, 1)]
    return frame(row for one in given for row in permutation_sensitivity.measure(one, **QUICK))


def many(table: pd.DataFrame, labels: int) -> pd.DataFrame:
    one = table[(table["encoder"] == "rope") & (table["seed"] == 0)]
    parts = [
        one.assign(encoder=f"encoder_{i}", run_id=f"run-{i}", value=one["value"] * (1 + i / 50)) for i in range(labels)
    ]
    return pd.concat(parts)


def test_one_seed_has_an_interval_over_inputs_several_over_seeds(table: pd.DataFrame) -> None:
    metric, keys = "neighbour_sensitivity", ["series", "condition"]
    lines = permutation_report.summarise(table[table["seed"] == 0])
    line = lines[(lines["metric"] == metric) & lines["part"].isna()].set_index(keys).loc[("rope", "tokens")]
    of_rope = table[(table["seed"] == 0) & (table["encoder"] == "rope") & (table["metric"] == metric)]
    folds = of_rope[(of_rope["condition"] == "tokens") & of_rope["part"].notna()]["value"]
    half = scipy_stats.t.ppf(0.975, len(folds) - 1) * folds.std(ddof=1) / math.sqrt(len(folds))
    assert (line["interval_over"], (line["high"] - line["low"]) / 2) == ("inputs", pytest.approx(half))
    assert line["mean"] == of_rope[of_rope["part"].isna()].set_index("condition").loc["tokens", "value"]
    assert (line["low"], line["high"]) == (pytest.approx(line["mean"] - half), pytest.approx(line["mean"] + half))
    assert set(lines.loc[~lines["metric"].str.endswith("_sensitivity"), "interval_over"]) == {""}
    both = permutation_report.summarise(table)
    line = both[(both["metric"] == metric) & both["part"].isna()].set_index(keys).loc[("rope", "tokens")]
    assert (line["interval_over"], line["seeds"]) == ("", 2)
    three = pd.concat([table, table[table["seed"] == 1].assign(seed=2)])
    lines = permutation_report.summarise(three)
    line = lines[(lines["metric"] == metric) & lines["part"].isna()].set_index(keys).loc[("rope", "tokens")]
    chosen = (three["encoder"] == "rope") & (three["metric"] == metric) & (three["condition"] == "tokens")
    values = three[chosen & three["part"].isna()]["value"]
    half = scipy_stats.t.ppf(0.975, 2) * values.std(ddof=1) / math.sqrt(3)
    assert (line["interval_over"], (line["high"] - line["low"]) / 2) == ("seeds", pytest.approx(half))


STEMS = {"sensitivity", "representation_change"}


@pytest.mark.drawn
@pytest.mark.parametrize("labels", [1, 2, 21])
def test_figures_of_one_run_and_of_many(table: pd.DataFrame, labels: int) -> None:
    rows = {1: table[table["run_id"] == "rope-0"], 2: table, 21: many(table, 21)}[labels]
    drawn = permutation_report.plot(rows)
    assert set(drawn) == {f"copy_{stem}" for stem in STEMS}
    for stem, figure in drawn.items():
        words = {text.get_text() for text in figure.findobj(Text)}
        assert figure.caption
        if labels > 1 and stem != "copy_representation_change":
            assert set(rows["encoder"]) <= words, stem
        assert figure.get_figwidth() == style.room()
        assert figure.get_figheight() < 18


def test_panels_that_share_their_axes_show_all_lines(table: pd.DataFrame) -> None:
    trained = table["metric"] == "representation_change"
    rows = table.assign(value=table["value"].where(~trained, 10 * table["value"]))
    panels = permutation_report.plot(rows)["copy_representation_change"].axes
    highest = max(np.nanmax(line.get_ydata()) for axes in panels for line in axes.lines)
    assert highest == pytest.approx(rows.loc[trained, "value"].max(), rel=0.3)
    assert all(axes.get_ylim()[0] == 0 and axes.get_ylim()[1] > highest for axes in panels)


def test_rows_of_before_there_were_sensitivities_are_drawn_too(table: pd.DataFrame) -> None:
    older = table[table["metric"].isin(["token_accuracy", "quality_loss", *permutation_sensitivity.DISTANCES])]
    assert set(permutation_report.plot(older)) == {"copy_sensitivity"}


@pytest.mark.parametrize(("metric", "unit"), [("token_accuracy", "share of the answer"), ("bits_per_byte", "bits")])
def test_quality_lost_has_the_unit_of_the_quality(table: pd.DataFrame, metric: str, unit: str) -> None:
    rows = table.assign(metric=table["metric"].replace("token_accuracy", metric))
    written = {text.get_text() for text in permutation_report.plot(rows)["copy_sensitivity"].findobj(Text)}
    assert f"quality lost, {unit}" in written


def test_figures_where_positions_were_refused() -> None:
    rows = frame(permutation_sensitivity.measure(subject(InOrderOnly), **QUICK))
    drawn = permutation_report.plot(rows)
    assert {stem.removeprefix("copy_") for stem in drawn} == STEMS


def test_a_shuffle_drawn_twice_is_one(table: pd.DataFrame) -> None:
    assert permutation_sensitivity.Change("n-gram shuffle", size=1).name == "shuffle"


def test_the_one_table(table: pd.DataFrame) -> None:
    shown = permutation_report.shown(table)
    heads = list(dict.fromkeys(shown["head"]))
    assert len(heads) == 8
    assert heads[0] == "quality lost, tokens shuffled"
    assert shown.groupby(["head", "run_id"]).size().eq(1).all()
    assert shown[shown["head"] == heads[5]]["metric"].unique().tolist() == ["neighbour_sensitivity"]


def test_from_the_command_line(command: Command, tmp_path: Path) -> None:
    knobs = [
        f"permutation_sensitivity.{knob}" for knob in ("samples=8", "ngrams=[2]", "windows=[3]", "swap_shares=[1]")
    ]
    asked = ["model=tiny", "train.steps=3", "train.rounds=1", "experiment=permutation_sensitivity", *knobs]
    done = command(*asked, "encoder=sinusoidal", "model.causal=false", "task.train_length=6")
    assert done.code == 0, done.err
    (folder,) = (tmp_path / "results" / "scratch" / "runs").iterdir()
    with (folder / "rows.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["experiment"] == "permutation_sensitivity"]
    places = {slice_name(row) for row in rows}
    assert {"shuffle within, size=3", "positions: adjacent swaps, share=1.0", "positions, part=8"} <= places
    assert "positions: reversal, layer=2" in places
    assert len(list((folder / "figures").glob("permutation_sensitivity_*.png"))) == len(STEMS)
    assert report.main([str(folder.parent.parent)]) == 0
    table = pd.read_csv(folder.parent.parent / "report" / "tables" / "copy_order_sensitivity.csv")
    assert set(table.loc[table["part"].isna(), "interval_over"]) == {"inputs"}


@pytest.mark.parametrize(("task", "length", "all_asked"), [("copy", 8, True), ("s5", 8, False), ("dyck", 16, False)])
def test_chance_is_left_out_where_not_all_places_are_asked(task: str, length: int, all_asked: bool) -> None:
    rows = measured("none", task=task, length=length)
    known = {
        not math.isnan(row.chance)
        for (metric, _), row in rows.items()
        if metric in ("token_accuracy", "exact_match") and row.status == "ok"
    }
    assert known == {all_asked}
