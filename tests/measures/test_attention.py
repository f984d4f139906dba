"""Attention weights of every encoder against plain second computations, and what `attention_pattern` makes of them."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import torch
from matplotlib.patches import Rectangle
from support import Command
from torch import Tensor

import pe_zoo
from experiments.measures.attention_pattern import DISTANCE, ENTROPY, MAIN, report
from experiments.measures.attention_pattern import measure as attention_pattern
from experiments.measures.attention_pattern.report import over_heads
from experiments.measures.attention_pattern.weights import distance_bins, induction, patterns, repeated, spread
from experiments.model.attention import PLAIN, attend
from experiments.model.layout import Layout
from experiments.model.streams import initialising
from experiments.model.transformer import Layer, Transformer
from experiments.plan.measures import load_experiment
from experiments.rows.row import COORDINATES, Row, frame, slice_name
from experiments.tasks import tasks
from experiments.training.evaluate import Subject
from pe_zoo import Encoder, Geometry, Site, Unsupported

GEOMETRY = Geometry(model_dim=16, num_heads=2, num_layers=2, train_length=9)
LENGTH = 9


def bidirectional(name: str) -> bool:
    return not pe_zoo.build(name, GEOMETRY).causal_only


CASES = [(name, causal) for name in pe_zoo.names() for causal in (True, False) if causal or bidirectional(name)]


def model_of(encoder: Encoder, **options: object) -> Transformer:
    torch.manual_seed(1)
    return Transformer(12, encoder.geometry, encoder, **options).eval()  # type: ignore[arg-type]


def subject_of(
    encoder: str | type[Encoder],
    *,
    seed: int = 0,
    task: str = "copy",
    trained: bool = False,
    geometry: tuple[int, int, int] = (16, 2, 2),
    layout: Layout | None = None,
    causal: bool = True,
    **knobs: object,
) -> Subject:
    """Not trained; ``trained`` moves its parameters a little, so that it differs from the initial model."""
    of = tasks.build(task, **({"train_length": 6} | knobs))
    dim, heads, layers = geometry
    sizes = Geometry(
        model_dim=dim, num_heads=heads, num_layers=layers, train_length=of.sequence_length(of.train_length)
    )
    name = encoder if isinstance(encoder, str) else encoder.__name__

    def initial() -> Transformer:
        with initialising(seed, "test"):
            built = pe_zoo.build(encoder, sizes) if isinstance(encoder, str) else encoder(sizes)
            return Transformer(of.vocab_size, sizes, built, layout=layout, causal=causal)

    model = initial()
    if trained:
        with torch.no_grad():
            for parameter in model.layers.parameters():
                parameter.mul_(1.5)
    return Subject(
        model=model,
        initial=initial,
        trained=trained,
        task=of,
        numbering=pe_zoo.numberings.build("sequential").bound(partial(of.numbers, causal=causal)),
        seed=seed,
        labels={
            "run_id": f"{name}-{task}-{seed}",
            "encoder": name,
            "positions": "sequential",
            "task": task,
            "seed": seed,
            "train_length": of.train_length,
        },
    )


def some_tokens(batch_size: int = 2, length: int = LENGTH) -> Tensor:
    return torch.randint(12, (batch_size, length), generator=torch.Generator().manual_seed(3))


class Fixed(Encoder):
    """Looks at one distance and nowhere else: far above what content can say."""

    far = 1

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        return scores * 0 + 60.0 * (site.distance == self.far)


class Normed(Encoder):
    """Outputs that are not affine in the values."""

    def mix(self, scores: Tensor, v: Tensor, site: Site) -> Tensor:
        mixed = scores.softmax(-1) @ v
        return mixed / (1 + mixed.norm(dim=-1, keepdim=True))


class Gated(Encoder):
    """Affine, but with other weights for other dimensions."""

    def mix(self, scores: Tensor, v: Tensor, site: Site) -> Tensor:
        return scores.softmax(-1) @ v * torch.linspace(0.5, 1.5, v.shape[-1], dtype=v.dtype)


# ---- weights of a model -----------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "causal"), [case for case in CASES if not pe_zoo.get(case[0]).overrides("mix")])
def test_weights_are_a_plain_softmax_of_masked_scores(name: str, causal: bool) -> None:
    encoder = pe_zoo.build(name, GEOMETRY)
    model, tokens = model_of(encoder, causal=causal), some_tokens()
    positions = torch.arange(LENGTH, dtype=torch.float32)
    with torch.no_grad():
        found = model.attention(tokens)
        stream = model.hidden(tokens)
        for index, layer in enumerate(model.layers):
            assert isinstance(layer, Layer)
            x = layer.attention_norm(stream[index])
            q, k, _ = (part.view(2, LENGTH, 2, 8).transpose(1, 2) for part in layer.attention_in(x).split(16, -1))
            scores = pe_zoo.scores(encoder, q, k, positions, index, x, causal=causal)
            for b in range(2):
                for head in range(2):
                    for i in range(LENGTH):
                        keys = range(i + 1) if causal else range(LENGTH)
                        terms = [math.exp(float(scores[b, head, i, j])) for j in keys]
                        expected = [term / sum(terms) for term in terms] + [0.0] * (LENGTH - len(keys))
                        assert found[index][b, head, i].tolist() == pytest.approx(expected, abs=2e-6)


@pytest.mark.parametrize("layout", [Layout(), Layout(window=4), Layout(masked_heads=1), Layout(skip_every=2)], ids=str)
@pytest.mark.parametrize(("name", "causal"), CASES)
def test_weights_and_a_remainder_are_what_attention_puts_out(name: str, causal: bool, layout: Layout) -> None:
    encoder = pe_zoo.build(name, GEOMETRY)
    model = model_of(encoder, causal=causal, layout=layout, temperature="log_n", query_block=4)
    positions = torch.arange(LENGTH, dtype=torch.float32)
    with torch.no_grad():
        found, stream = model.attention(some_tokens()), model.hidden(some_tokens())
        for index, layer in enumerate(model.layers):
            assert isinstance(layer, Layer)
            mine = encoder if layout.carries(index) else Encoder(GEOMETRY)
            for q, k, v, site, _ in layer._blocks(layer._heads(mine, stream[index], positions)):
                taken = found[index][:, :, site.rows, : k.shape[-2]]
                rest = attend(mine, q, k, torch.zeros_like(v), site, PLAIN)
                for kernel in ("fused", PLAIN):
                    assert (taken @ v + rest - attend(mine, q, k, v, site, kernel)).abs().max() < 1e-5
                assert (taken.masked_select(~site.mask.expand_as(taken)).abs() < 1e-6).all(), "nothing unseen"
                assert (taken.sum(-1) < 1 + 1e-5).all()


def test_only_some_encoders_add_a_remainder_or_drop_a_part() -> None:
    """So that the test above is not about nothing: Shaw's output has a term beside the weighted values."""

    def remainder(name: str) -> float:
        encoder = pe_zoo.build(name, GEOMETRY)
        scores, zeros = torch.zeros(1, 2, LENGTH, LENGTH), torch.zeros(1, 2, LENGTH, 8)
        place = torch.arange(LENGTH, dtype=torch.float32)
        site = Site(
            layer=0,
            query_positions=place,
            key_positions=place,
            rows=slice(0, LENGTH),
            mask=torch.ones(LENGTH, LENGTH, dtype=torch.bool),
            causal=True,
        )
        with torch.no_grad():
            return float(encoder.mix(scores, zeros, site).abs().max())

    assert remainder("shaw") > 0.01
    assert remainder("rope") == 0
    parts = model_of(pe_zoo.build("stick_breaking", GEOMETRY)).attention(some_tokens())[0].sum(-1)
    assert (parts < 0.999).any(), "the rest of the stick is dropped"
    assert (parts[:, :, 0] == 0).all(), "the first query sees nothing"


@pytest.mark.parametrize("broken", [Normed, Gated])
def test_outputs_that_are_no_weighted_sums_are_refused(broken: type[Encoder]) -> None:
    with pytest.raises(Unsupported, match=broken.__name__), torch.no_grad():
        model_of(broken(GEOMETRY)).attention(some_tokens())


@pytest.mark.parametrize("length", [2, 3, 8, 17])
def test_weights_of_fewer_or_more_keys_than_dimensions(length: int) -> None:
    found = model_of(pe_zoo.build("shaw", GEOMETRY)).attention(some_tokens(length=length))[0]
    assert found.shape == (2, 2, length, length)
    assert torch.allclose(found.sum(-1), torch.ones(2, 2, length), atol=1e-5)


def test_positions_reach_the_weights() -> None:
    model, tokens = model_of(pe_zoo.build("alibi", GEOMETRY)), some_tokens()
    place = torch.arange(LENGTH, dtype=torch.float32)
    with torch.no_grad():
        assert torch.equal(model.attention(tokens)[1], model.attention(tokens, place)[1])
        assert not torch.allclose(model.attention(tokens)[1], model.attention(tokens, 3 * place)[1])


# ---- what is made of weights ------------------------------------------------------------------------


def test_ranges_of_distance() -> None:
    assert distance_bins(33, causal=True) == [(0, 0), (1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (17, 32)]
    assert distance_bins(34, causal=True)[-1] == (33, 64), "whole, though the sequence ends in it"
    assert distance_bins(3, causal=False) == [(-2, -2), (-1, -1), (0, 0), (1, 1), (2, 2)]
    assert distance_bins(6, causal=False)[:2] == [(-8, -5), (-4, -3)]
    assert distance_bins(1, causal=True) == [(0, 0)]
    for length in range(2, 40):
        for causal in (True, False):
            bins = distance_bins(length, causal=causal)
            for distance in range(0 if causal else 1 - length, length):
                assert sum(low <= distance <= high for low, high in bins) == 1


def test_a_pattern_worked_by_hand() -> None:
    weights = torch.tensor([[[[1.0, 0, 0], [0.25, 0.75, 0], [0.5, 0.25, 0.25]]]], dtype=torch.float64)
    seen = torch.ones(3, 3, dtype=torch.bool).tril().unsqueeze(0)
    found = {k: (total / count) for k, (total, count) in spread([(0, 0), (1, 1), (2, 2)])(weights, seen).items()}
    assert found["attention_mass"].tolist() == [pytest.approx([0.5, 0.25, 0.25])]
    assert found["mean_distance"].item() == pytest.approx((0.25 + 1.25) / 2)
    assert found["first_token_mass"].item() == pytest.approx((0.25 + 0.5) / 2)
    assert found["previous_token_score"].item() == pytest.approx((0.25 + 0.25) / 2)
    second = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75)) / math.log(2)
    third = -(0.5 * math.log(0.5) + 0.5 * math.log(0.25)) / math.log(3)
    assert found["attention_entropy_share"].item() == pytest.approx((second + third) / 2)


@pytest.mark.parametrize("causal", [True, False])
def test_patterns_against_loops(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout(masked_heads=1, window=5)
    model, tokens = model_of(pe_zoo.build("rope", GEOMETRY), causal=causal, layout=layout), some_tokens(3)
    bins = distance_bins(LENGTH, causal=causal)
    place = torch.arange(LENGTH, dtype=torch.float32)
    whole = patterns(model, tokens, place, spread(bins))
    with torch.no_grad():
        weights = model.attention(tokens)[1].double().tolist()
    windows = (1, 5)
    for head, window in enumerate(windows):
        mass, uniform, far, far_uniform = [0.0] * len(bins), [0.0] * len(bins), [], []
        for b in range(3):
            for i in range(1, LENGTH):
                keys = [j for j in range(LENGTH) if abs(i - j) < window and (j <= i or not causal)]
                for j in keys:
                    at = next(place for place, (low, high) in enumerate(bins) if low <= i - j <= high)
                    mass[at] += weights[b][head][i][j] / (3 * (LENGTH - 1))
                    uniform[at] += 1 / len(keys) / (3 * (LENGTH - 1))
                far.append(sum(weights[b][head][i][j] * abs(i - j) for j in keys))
                far_uniform.append(sum(abs(i - j) for j in keys) / len(keys))
        found = whole[1]["attention_mass"]
        assert found.value[head].tolist() == pytest.approx(mass, abs=1e-6)
        assert found.uniform[head].tolist() == pytest.approx(uniform)
        assert whole[1]["mean_distance"].value[head].item() == pytest.approx(sum(far) / len(far), abs=1e-6)
        assert whole[1]["mean_distance"].uniform[head].item() == pytest.approx(sum(far_uniform) / len(far))
    assert whole[1]["attention_entropy_share"].value.isnan().tolist() == [True, False], "one key leaves no choice"
    assert whole[1]["attention_entropy_share"].uniform[1].item() == pytest.approx(1)
    monkeypatch.setattr("experiments.measures.attention_pattern.weights.AT_ONCE", 1)
    for together, apart in zip(whole, patterns(model, tokens, place, spread(bins)), strict=True):
        for metric, pattern in together.items():
            assert torch.allclose(pattern.value, apart[metric].value, atol=1e-7, equal_nan=True)
            assert torch.equal(pattern.n, apart[metric].n)


def test_a_query_that_takes_nothing_counts_for_mass_alone() -> None:
    weights = torch.zeros(1, 1, 3, 3, dtype=torch.float64)
    weights[0, 0, 2] = torch.tensor([0.5, 0.0, 0.0])
    seen = torch.ones(3, 3, dtype=torch.bool).tril().unsqueeze(0)
    found = spread([(0, 0), (1, 1), (2, 2)])(weights, seen)
    assert found["attention_mass"][0].tolist() == [[0, 0, 0.5]]
    assert found["attention_mass"][1].tolist() == [2]
    assert (found["mean_distance"][0].item(), found["mean_distance"][1].item()) == (2, 1), "a share of what is taken"


def test_sequences_that_come_twice() -> None:
    symbols = torch.tensor([3, 5, 7, 11])
    tokens = repeated(99, symbols, 50, 100, torch.Generator().manual_seed(0))
    assert tokens.shape == (50, 9), "four symbols, twice, after the beginning"
    assert (tokens[:, 0] == 99).all()
    assert torch.equal(tokens[:, 1:5], tokens[:, 5:])
    assert all(sorted(row) == [3, 5, 7, 11] for row in tokens[:, 1:5].tolist())
    assert len({tuple(row) for row in tokens.tolist()}) > 10
    assert torch.equal(tokens, repeated(99, symbols, 50, 100, torch.Generator().manual_seed(0)))
    assert repeated(99, symbols, 1, 8, torch.Generator()).shape == (1, 7), "as long as there is room"
    for room, few in ((6, symbols), (100, symbols[:2])):
        with pytest.raises(Unsupported, match="twice over"):
            repeated(99, few, 1, room, torch.Generator())


@pytest.mark.parametrize("period", [3, 4, 7])
def test_induction_scores_the_key_after_the_earlier_occurrence(period: int) -> None:
    tokens = repeated(99, torch.arange(period), 1, 100, torch.Generator().manual_seed(0))[0].tolist()
    size = len(tokens)
    ideal = torch.zeros(1, 1, size, size, dtype=torch.float64)
    for t in range(1, size):
        earlier = [j for j in range(t) if tokens[j] == tokens[t]]
        ideal[0, 0, t, earlier[0] + 1 if earlier else 0] = 1
    seen = torch.ones(1, size, size, dtype=torch.bool)
    noise = torch.rand(1, 1, size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = sum(noise[0, 0, t, tokens.index(tokens[t]) + 1].item() for t in range(period + 1, size)) / period
    before = torch.eye(size, dtype=torch.float64).roll(-1, 1)[None, None]
    for weights, score in ((ideal, 1.0), (noise, expected), (before, 0.0)):
        total, count = induction(weights, seen)["induction_score"]
        assert count.item() == period
        assert total.item() / period == pytest.approx(score)


# ---- the experiment ---------------------------------------------------------------------------------


def values(rows: list[Row], metric: str) -> list[float]:
    return [row.value for row in rows if row.metric == metric]


@pytest.mark.parametrize(("name", "causal"), CASES)
def test_every_encoder_can_be_measured(name: str, causal: bool) -> None:
    rows = attention_pattern.measure(subject_of(name, causal=causal, trained=True), samples=3)
    assert {row.status for row in rows} == {"ok"}
    assert all(math.isfinite(row.value) and math.isfinite(row.chance) and row.n > 0 for row in rows)
    assert all(-1e-6 < row.value < 1 + 1e-6 for row in rows if not row.metric.endswith("mean_distance"))
    bins = len(distance_bins(13, causal=causal))
    assert len(rows) == 2 * 2 * 2 * (bins + 5)
    table = frame(rows)
    mass = table[table["metric"] == "attention_mass"].groupby(["layer", "head"])[["value", "chance"]].sum()
    assert (mass["value"] < 1 + 1e-5).all()
    assert mass["chance"].tolist() == pytest.approx([1.0] * 4)
    assert mass["value"].min() > 0.3


def test_a_head_that_looks_at_one_distance_is_seen_to() -> None:
    previous = attention_pattern.measure(subject_of(Fixed), samples=4)
    assert values(previous, "previous_token_score") == pytest.approx([1.0] * 4)
    assert values(previous, "mean_distance") == pytest.approx([1.0] * 4)
    assert max(values(previous, "attention_entropy_share")) < 1e-6
    assert max(values(previous, "induction_score")) < 0.01
    here = attention_pattern.measure(subject_of(type("Here", (Fixed,), {"far": 0})), samples=4)
    assert max(values(here, "previous_token_score")) < 1e-6
    # A word of six symbols, all different, twice: what came next the last time is five back.
    back = attention_pattern.measure(subject_of(type("Back", (Fixed,), {"far": 5}), num_symbols=40), samples=64)
    assert values(back, "induction_score") == pytest.approx([1.0] * 4)
    alone = [
        row
        for row in back
        if row.metric == "attention_mass" and slice_name(row) == "layer=1, head=0, distance=5, size=4"
    ]
    assert alone[0].value == pytest.approx(8 / 12), "all queries that have a key so far back, from the sixth place on"


def test_no_preference_is_what_uniform_attention_gives() -> None:
    """Scores of 0: values and their comparison agree for every metric."""
    zero = type("Zero", (Fixed,), {"far": 10_000})
    for row in attention_pattern.measure(subject_of(zero, layout=Layout(masked_heads=1)), samples=3):
        assert row.status == "unsupported" or row.value == pytest.approx(row.chance, abs=1e-6)


def test_a_head_that_sees_one_key_has_no_entropy_and_says_so() -> None:
    rows = attention_pattern.measure(subject_of("rope", layout=Layout(masked_heads=1)), samples=2)
    lacking = {(row.metric, slice_name(row)) for row in rows if row.status == "unsupported"}
    names = ("attention_entropy_share", "initial_attention_entropy_share")
    assert lacking == {(name, f"layer={layer}, head=0") for name in names for layer in (0, 1)}
    assert_drawn(rows, 2)


def test_training_shows_against_the_untrained_model() -> None:
    untrained, trained = (attention_pattern.measure(subject_of("rope", trained=t), samples=3) for t in (False, True))
    for metric in ("attention_mass", *report.SCORES, DISTANCE, ENTROPY):
        initial = values(untrained, f"initial_{metric}")
        assert values(untrained, metric) == initial
        assert values(trained, f"initial_{metric}") == initial
        assert values(trained, metric) != initial


def test_rows_are_repeatable_and_leave_the_model_unchanged() -> None:
    subject = subject_of("dape", trained=True)
    before, state = {k: v.clone() for k, v in subject.model.state_dict().items()}, torch.get_rng_state()
    subject.model.train()
    rows = attention_pattern.measure(subject, samples=3)
    assert attention_pattern.measure(subject, samples=3) == rows
    assert subject.model.training
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in subject.model.state_dict().items())
    assert attention_pattern.measure(subject_of("dape", trained=True, seed=1), samples=3) != rows


def test_what_an_encoder_cannot_do_is_a_row() -> None:
    rows = attention_pattern.measure(subject_of(Normed), samples=2)
    assert {row.status for row in rows} == {"unsupported"}
    assert len(rows) == 2 * 6, "a row a metric, before training and after"
    assert report.plot(frame(rows)) == {}
    both = frame([*rows, *attention_pattern.measure(subject_of("rope"), samples=2)])
    assert_drawn(both, 2)
    table = report.shown(both)
    assert set(table.loc[table["series"] == "Normed", "status"]) == {"unsupported"}


def test_a_sequence_too_short_to_come_twice_is_a_row() -> None:
    rows = attention_pattern.measure(subject_of("rope", train_length=1), samples=2)
    assert {row.metric for row in rows if row.status != "ok"} == {"induction_score", "initial_induction_score"}


def test_models_of_many_heads_have_few_rows() -> None:
    rows = attention_pattern.measure(subject_of("rope", geometry=(24, 12, 12), train_length=16), samples=1)
    assert len(rows) == 2 * (12 * 12 * 5 + 12 * 7)
    apart = attention_pattern.measure(subject_of("rope"), samples=3)
    together = attention_pattern.measure(subject_of("rope"), samples=3, max_histograms=3)
    mean = frame(apart)
    mean = mean[mean["metric"] == "attention_mass"].groupby(["layer", "distance"])["value"].mean()
    found = frame(together)
    for line in found[found["metric"] == "attention_mass"].to_dict("records"):
        assert pd.isna(line["head"])
        assert line["value"] == pytest.approx(mean[line["layer"], line["distance"]])
    assert_drawn(together, 2)


def test_text_and_the_number_of_sequences(tmp_path: Path) -> None:
    (tmp_path / "some.txt").write_text("the quick brown fox jumps over the lazy dog. " * 400)
    subject = subject_of("t5", task="text", path=str(tmp_path), duplicates="kept", train_length=20)
    n = {row.n for row in attention_pattern.measure(subject) if row.metric == "first_token_mass"}
    assert n == {64 * 19}
    n = {row.n for row in attention_pattern.measure(subject, samples=2) if row.metric == "induction_score"}
    assert n == {2 * 9}, "nine letters, twice, in twenty places"


def test_knobs_out_of_range_are_refused() -> None:
    load_experiment("attention_pattern", dict(samples=None, max_histograms=0))
    with pytest.raises(ValueError, match=r"attention_pattern\.samples .* at least 1"):
        load_experiment("attention_pattern", dict(samples=0, max_histograms=4))
    with pytest.raises(ValueError, match=r"attention_pattern\.max_histograms .* at least 0"):
        load_experiment("attention_pattern", dict(samples=1, max_histograms=-1))


# ---- tables and figures -----------------------------------------------------------------------------


def assert_drawn(rows: list[Row] | pd.DataFrame, count: int) -> None:
    table = rows if isinstance(rows, pd.DataFrame) else frame(rows)
    figures = report.plot(table)
    assert len(figures) == count
    for stem, figure in figures.items():
        assert stem.startswith("copy_attention_")
        assert figure.caption
        figure.draw_without_rendering()


def test_the_table_averages_the_largest_head_of_each_seed() -> None:
    rows = frame(
        Row(
            run_id=f"r{seed}",
            encoder="rope",
            positions="sequential",
            task="copy",
            seed=seed,
            experiment="attention_pattern",
            metric=metric,
            train_length=4,
            eval_length=4,
            layer=0,
            head=head,
            value=value,
            chance=head / 10,
        )
        for metric in ("induction_score", "mean_distance")
        for seed, of_heads in enumerate([(0.9, 0.1), (0.2, 0.6)])
        for head, value in enumerate(of_heads)
    )
    table = report.shown(rows)
    by_head = table.groupby("head")["value"]
    assert by_head.mean().to_dict() == pytest.approx({"induction score, largest": 0.75, "mean distance": 0.45})
    assert by_head.count().tolist() == [2, 2]
    assert table["chance"].tolist() == pytest.approx([0.0, 0.1, 0.05, 0.05]), "of the head that was taken"
    assert len(over_heads(table.head(0), [], largest=True)) == 0


def test_figures_of_one_run_and_of_many() -> None:
    one = attention_pattern.measure(subject_of("rope"), samples=2)
    assert_drawn(one, 2)
    many = [
        row
        for name in ("none", "alibi", "rope")
        for seed in range(2)
        for row in attention_pattern.measure(subject_of(name, seed=seed), samples=2)
    ]
    lost = replace(one[0], run_id="lost", encoder="t5", metric=MAIN, status="diverged")
    lost = replace(lost, **dict.fromkeys(COORDINATES))  # type: ignore[arg-type]
    table = frame([*many, replace(lost, value=math.nan)])
    assert_drawn(table, 2)
    profile = report.plot(table)["copy_attention_profile"]
    assert [axes.get_title(loc="left") for axes in profile.axes] == ["none", "rope", "alibi"]
    weights = [sum(bar.get_height() for bar in axes.patches if isinstance(bar, Rectangle)) for axes in profile.axes]
    assert weights == pytest.approx([1, 1, 1]), "shares of the weight"
    alone = report.plot(frame(one))["copy_attention_profile"]
    assert [axes.get_title(loc="left") for axes in alone.axes] == ["layer 0", "layer 1"]
    summary = report.summarise(table)
    assert set(summary.loc[summary["series"] == "alibi", "seeds"]) == {2}
    assert report.plot(frame([])) == {}


def test_figures_of_forty_series() -> None:
    one = frame(attention_pattern.measure(subject_of("rope", causal=False), samples=2))
    names = [*pe_zoo.names(), "another", "one_more"]
    assert_drawn(pd.concat([one.assign(encoder=name, run_id=name) for name in names]), 2)


def test_from_the_command_line(command: Command, tmp_path: Path) -> None:
    done = command(
        "encoder=alibi",
        "task=copy",
        "task.train_length=4",
        "model=tiny",
        "train.steps=2",
        "train.rounds=1",
        "experiment=attention_pattern",
        "attention_pattern.samples=3",
    )
    assert done.code == 0, done.err
    (rows,) = tmp_path.glob("results/scratch/runs/*/rows.csv")
    assert "attention_pattern,previous_token_score" in rows.read_text()
    assert len(list((rows.parent / "figures").glob("attention_pattern_*.png"))) == 2
    assert command("attention_pattern.samples=0", "experiment=attention_pattern").code == 2
