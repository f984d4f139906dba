"""Numberings: which numbers positions get, drawn once per sample, from the generator and nothing else."""

from __future__ import annotations

import itertools
import math
import random
import re
from functools import partial
from pathlib import Path

import pytest
import torch
from support import QUICK, Command
from torch import Generator, Tensor

import pe_zoo
from experiments.model.transformer import Transformer
from experiments.plan.prepare import check_range
from experiments.plan.refusal import BadRequest
from experiments.runs.arguments import expand
from experiments.tasks import tasks
from pe_zoo import Geometry, Numbering, Unsupported, numberings

GEOMETRY = Geometry(model_dim=12, num_heads=2, num_layers=1, train_length=8)
GRID = Geometry(model_dim=16, num_heads=2, num_layers=1, train_length=8)
DRAWN = {
    "abacus": "train",
    "cape": "train",
    "chunked": "train",
    "coupled": "train",
    "offset": "train",
    "random_float": "train",
    "randomized": "both",
}
"""Numberings that draw, and where."""


def built(name: str, **knobs: object) -> Numbering:
    """A numbering, with numbers at hand for those that take them from a task."""
    return numberings.build(name, **knobs).bound(supply)


def supply(kind: str, places: int) -> Tensor:
    """What a task would say: in a grid, of one column; of segments, that every token is one."""
    if kind == "segments":
        return torch.tensor([0])
    counted = torch.arange(places)
    return torch.stack([counted, counted.clamp(max=1)], -1) if kind == "grid" else counted


def generator(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def draws(numbering: Numbering, seed: int = 0, batch_size: int = 5, length: int = 7) -> dict[str, Tensor]:
    tokens = torch.zeros(batch_size, length, dtype=torch.long)
    return {
        "train": numbering.read(tokens, generator(seed), training=True),
        "evaluate": numbering.read(tokens, generator(seed)),
    }


@pytest.mark.parametrize("name", numberings.names())
def test_shape_dtype_and_order(name: str) -> None:
    for length in (1, 2, 40):
        for positions in draws(built(name), length=length).values():
            axes, rows = numberings.get(name).axes, 5 if numberings.get(name).reads_tokens else 1
            assert positions.shape in ({(length,), (5, length)} if axes == 1 else {(rows, length, axes)})
            assert positions.dtype == torch.float32
            assert positions.isfinite().all()
            along = positions if axes == 1 else positions[..., 0]
            assert (along.diff(dim=-1) > 0).all(), "positions increase along a sequence"


TURNED: list[tuple[str, dict[str, object]]] = [
    *((name, {}) for name in numberings.names()),
    ("cape", {"centred": False}),
    ("cape", {"max_shift": 0.0, "max_jitter": 0.0, "max_stretch": 0.0}),
    ("cape", {"max_stretch": 1.0}),
    ("chunked", {"limit": 40}),
    ("offset", {"num_offsets": 1, "evaluate_at": 7}),
    ("random_float", {"limit": 3.0, "evaluation": "sampled"}),
    ("randomized", {"limit": 40}),
    ("scaled", {"factor": 1.0}),
]


@pytest.mark.parametrize(("name", "knobs"), TURNED, ids=str)
def test_no_position_lies_outside_the_bounds_and_some_come_near(name: str, knobs: dict[str, object]) -> None:
    numbering = built(name, **knobs)
    for length in (1, 2, 3, 40):
        lowest, highest = numbering.lowest(length), numbering.highest(length)
        drawn = draws(numbering, batch_size=3000, length=length).values()
        slack = 1e-5 * max(1.0, highest)  # float32
        assert all((positions >= lowest - slack).all() and (positions <= highest + slack).all() for positions in drawn)
        reached = max(positions.max().item() for positions in drawn), min(positions.min().item() for positions in drawn)
        if length == 40:
            room = 0.1 * (highest - lowest)
            assert reached[0] > highest - room
            assert reached[1] < lowest + room


@pytest.mark.parametrize("name", numberings.names())
def test_all_randomness_comes_from_the_generator(name: str) -> None:
    numbering, before = built(name), torch.random.get_rng_state()
    first, again, other = draws(numbering), draws(numbering), draws(numbering, seed=1)
    assert torch.equal(torch.random.get_rng_state(), before)
    for which in ("train", "evaluate"):
        drawn = DRAWN.get(name) in (which, "both")
        assert torch.equal(first[which], again[which])
        assert torch.equal(first[which], other[which]) != drawn
        assert (len(first[which]) == 5) == (drawn or numbering.reads_tokens), "one each, or one for all"
        if drawn:
            assert len(first[which].unique(dim=0)) == len(first[which])


@pytest.mark.parametrize("name", numberings.names())
def test_a_generator_goes_on_and_does_not_repeat_itself(name: str) -> None:
    source, numbering, tokens = generator(), built(name), torch.zeros(5, 7, dtype=torch.long)
    drawn = [numbering.read(tokens, source, training=True) for _ in range(2)]
    assert torch.equal(*drawn) == (name not in DRAWN)


def test_sequential_counts_up() -> None:
    for positions in draws(built("sequential"), length=4).values():
        assert positions.tolist() == [0, 1, 2, 3]


def test_offset_starts_anywhere_and_evaluates_from_one_start() -> None:
    found = draws(built("offset", num_offsets=10, evaluate_at=3), batch_size=2000, length=4)
    starts = found["train"][:, 0]
    assert torch.equal(found["train"], starts[:, None] + torch.arange(4.0))
    counts = torch.bincount(starts.long(), minlength=10)
    assert len(counts) == 10, "num_offsets itself is no start"
    assert (counts - 200).abs().max() < 5 * 200**0.5
    assert found["evaluate"].tolist() == [3, 4, 5, 6]
    assert draws(built("offset", num_offsets=1))["train"].unique(dim=0).tolist() == [[0, 1, 2, 3, 4, 5, 6]]
    assert draws(built("offset"))["evaluate"].tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_randomized_draws_uniformly_without_replacement() -> None:
    limit, length, samples = 20, 6, 4000
    found = draws(built("randomized", limit=limit), batch_size=samples, length=length)
    for positions in found.values():
        assert positions.shape == (samples, length)
        assert torch.equal(positions, positions.floor())
        counts = torch.bincount(positions.long().flatten(), minlength=limit)
        assert len(counts) == limit, "limit itself is not drawn"
        expected = samples * length / limit
        assert (counts - expected).abs().max() < 5 * (expected * (1 - length / limit)) ** 0.5
        # Which numbers come together is uniform too: the least of 6 out of 0 … 19 is 2 on average.
        assert positions[:, 0].mean().item() == pytest.approx((limit - length) / (length + 1), abs=0.15)


def test_randomized_takes_its_whole_range_and_no_more() -> None:
    numbering = built("randomized", limit=8)
    assert draws(numbering, length=8)["train"].unique(dim=0).tolist() == [[0, 1, 2, 3, 4, 5, 6, 7]]
    for ask in (numbering.train, numbering.evaluate):
        with pytest.raises(Unsupported, match=r"9 different positions out of limit=8.*positions\.limit") as refusal:
            ask(1, 9, generator())
        assert "\n" not in str(refusal.value)


def test_random_floats_are_uniform_sorted_and_evaluated_evenly() -> None:
    samples, length, limit = 4000, 5, 30.0
    found = draws(built("random_float", limit=limit), batch_size=samples, length=length)
    drawn = found["train"]
    assert not torch.equal(drawn, drawn.floor())
    counts = torch.histc(drawn, bins=10, min=0, max=limit)
    expected = samples * length / 10
    assert (counts - expected).abs().max() < 5 * (expected * 0.9) ** 0.5
    # The i-th of n sorted uniform numbers is i/(n + 1) of the range on average.
    for place in range(length):
        assert drawn[:, place].mean().item() == pytest.approx(limit * (place + 1) / (length + 1), abs=0.3)
    assert found["evaluate"].tolist() == [0, 6, 12, 18, 24]
    assert draws(built("random_float", limit=limit), length=3)["evaluate"].tolist() == [0, 10, 20]
    sampled = built("random_float", limit=limit, evaluation="sampled")
    assert torch.equal(*draws(sampled).values())


def test_scaled_counts_in_fractions_only_in_evaluation() -> None:
    found = draws(built("scaled", factor=2.5), length=6)
    assert found["train"].tolist() == [0, 1, 2, 3, 4, 5]
    assert found["evaluate"].tolist() == pytest.approx([0, 0.4, 0.8, 1.2, 1.6, 2.0])
    assert built("scaled").evaluate(1, 32 * 4, generator()).max() < 32, "four times the length fits"


@pytest.mark.parametrize("centred", [True, False])
def test_cape_by_a_loop(centred: bool) -> None:
    """λ · (p − mean + Δ + ε) written out, its three draws recovered one by one from what the others leave."""
    shift, jitter, stretch, length, samples = 3.0, 0.25, 0.5, 4, 3000
    start = -1.5 if centred else 0.0
    plain = {"max_shift": 0.0, "max_jitter": 0.0, "max_stretch": 0.0, "centred": centred}

    def drawn(**knobs: float) -> Tensor:
        numbering = built("cape", **{**plain, **knobs})
        return draws(numbering, batch_size=samples, length=length)["train"].double()

    for positions in drawn().tolist():
        assert positions == [start + p for p in range(length)]
    for only, bound, value in [
        ({"max_shift": shift}, shift, lambda x, p: x - (start + p)),
        ({"max_jitter": jitter}, jitter, lambda x, p: x - (start + p)),
        ({"max_stretch": stretch, "centred": False}, math.log(1.5), lambda x, p: math.log(x / p) if p else 0.0),
    ]:
        found = [[value(x, p) for p, x in enumerate(row)] for row in drawn(**only).tolist()]  # type: ignore[arg-type]
        shared = "max_jitter" not in only
        for row in found:
            assert all(abs(v) <= bound + 1e-5 for v in row)
            if shared:
                assert max(row[1:]) - min(row[1:]) < 1e-5, "one draw for a sample"
            else:
                assert max(row) - min(row) > 1e-4, "one draw for each position"
        values = torch.tensor([row[1] for row in found])
        assert values.mean().item() == pytest.approx(0, abs=0.1 * bound)
        assert values.std().item() == pytest.approx(bound / 3**0.5, rel=0.05), "uniform"
    both = drawn(max_shift=shift, max_stretch=stretch)
    steps = both.diff(dim=-1)
    # The stretch multiplies the shift too: p + Δ is what is left when it is taken out, by the steps between positions.
    left = both / steps.mean(-1, keepdim=True) - torch.arange(length) - start
    assert left.abs().max() <= shift + 1e-4
    assert left[:, 0].std().item() == pytest.approx(shift / 3**0.5, rel=0.05)
    assert draws(built("cape", centred=centred), length=4)["evaluate"].tolist() == [start + p for p in range(4)]


def test_chunked_is_two_pieces_with_a_gap() -> None:
    length, limit, samples = 7, 20, 6000
    found = draws(built("chunked", limit=limit), batch_size=samples, length=length)
    assert found["evaluate"].tolist() == [0, 1, 2, 3, 4, 5, 6]
    cuts, gaps = [], []
    for row in found["train"].tolist():
        steps = [after - before for before, after in itertools.pairwise(row)]
        assert row[0] == 0
        assert sum(step != 1 for step in steps) <= 1
        gaps.append(row[-1] - (length - 1))
        if gaps[-1]:
            cuts.append(steps.index(gaps[-1] + 1) + 1)
    assert {*cuts} == {1, 2, 3, 4}, "half of the sequence at most"
    assert {*gaps} == set(range(limit - length + 1))
    for counted, kinds in ((cuts, 4), (gaps, limit - length + 1)):
        expected = len(counted) / kinds
        assert max(abs(counted.count(kind) - expected) for kind in {*counted}) < 5 * expected**0.5
    # The official procedure in plain Python has the same distribution of the last position.
    plain = random.Random(0)
    last = [length - 1 + plain.randint(0, limit - length) for _ in range(samples)]
    assert sum(last) / samples == pytest.approx(found["train"][:, -1].mean().item(), abs=0.3)


def test_chunked_takes_its_whole_range_and_no_more() -> None:
    numbering = built("chunked", limit=8)
    assert draws(numbering, length=8)["train"].unique(dim=0).tolist() == [[0, 1, 2, 3, 4, 5, 6, 7]]
    with pytest.raises(Unsupported, match=r"9 positions into limit=8.*positions\.limit") as refusal:
        numbering.train(1, 9, generator())
    assert "\n" not in str(refusal.value)
    assert numbering.evaluate(1, 9, generator()).tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8]


def test_grid_numbers_rows_and_columns_and_leaves_marks_out() -> None:
    numbering = numberings.build("grid").bound(partial(tasks.build("digits").numbers, causal=False))
    marks, cells = [0, 0], [[row, column] for row in (1, 2, 3) for column in (1, 2, 3)]
    for positions in draws(numbering, length=11).values():
        assert positions.tolist() == [[marks, *cells, marks]]
    assert numbering.highest(11) == 3


def test_a_finer_grid_keeps_to_the_extent_of_the_one_trained_on() -> None:
    """Two cells where there was one: their middles are a quarter of a cell to either side of its own."""
    numbering = numberings.build("grid", extent=2).bound(partial(tasks.build("above").numbers, causal=False))
    assert numbering.evaluate(3, 5, generator()).tolist() == [[[0, 0], [1, 1], [1, 2], [2, 1], [2, 2]]]
    finer = numbering.evaluate(3, 17, generator())[0]
    assert finer[:6].tolist() == [[0, 0], [0.75, 0.75], [0.75, 1.25], [0.75, 1.75], [0.75, 2.25], [1.25, 0.75]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["encoder=rope", "task=above", "positions=grid"],
            "positions of a sequence, .* leave positions=grid",
        ),
        (["encoder=swin", "task=above"], "swin takes positions of a grid, .* set positions=grid and a task that has"),
        (["encoder=swin", "positions=grid"], "task=copy offers no grid positions"),
        (["encoder=swin", "task=above", "positions=grid", "encoder.window=8"], "up to 7, but positions=grid reaches 8"),
    ],
)
def test_sequences_and_grids_are_not_confused(words: list[str], message: str, command: Command) -> None:
    done = command(*QUICK, "model.causal=false", *words)
    assert done.code == 2
    assert re.search(message, done.err)
    assert done.err.count("\n") == 1


def test_all_encoders_are_those_of_the_numbering(tmp_path: Path) -> None:
    def every(*words: str) -> list[str]:
        ((word, *_),) = expand(["encoder=all", *words], tmp_path)
        return word.removeprefix("encoder=").split(",")

    assert every() == every("positions=offset,cape") == pe_zoo.names()
    assert every("positions=grid") == pe_zoo.names(2)
    assert every("positions=segments") == pe_zoo.names(2, "segments")
    assert not {*pe_zoo.names()} & {*pe_zoo.names(2)}
    for mixed in ("grid,offset", "grid,segments"):
        with pytest.raises(BadRequest, match=rf"of grids or of segments, one of them; got positions={mixed}$"):
            every(f"positions={mixed}")


@pytest.mark.parametrize("encoder", pe_zoo.names(None))
@pytest.mark.parametrize("name", numberings.names())
def test_a_numbering_works_with_every_encoder_of_its_range(name: str, encoder: str) -> None:
    taken, given = pe_zoo.get(encoder), numberings.get(name)
    if taken.axes != given.axes or (taken.axes > 1 and taken.plane != given.plane):
        with pytest.raises(ValueError, match="takes positions of"):
            check_range(pe_zoo.build(encoder, GRID), built(name), 7)
        return
    check_works(name, encoder, GEOMETRY if pe_zoo.get(encoder).axes == 1 else GRID)


def check_works(name: str, encoder: str, geometry: Geometry) -> None:
    model = Transformer(5, geometry, pe_zoo.build(encoder, geometry))
    tokens = torch.zeros(3, 7, dtype=torch.long)
    try:
        check_range(model.encoder, built(name), 7)
    except ValueError:
        assert model.encoder.max_length is not None
        assert name == "cape", "with default knobs a table holds all others"
        with pytest.raises(Unsupported):
            model(tokens, built(name).train(3, 7, generator()))
        return
    for positions in draws(built(name), batch_size=3).values():
        logits = model(tokens, positions)
        assert logits.shape == (3, 7, 5)
        assert logits.isfinite().all()
        q, x = torch.randn(3, 2, 7, geometry.head_dim), torch.randn(3, 7, geometry.model_dim)
        assert pe_zoo.scores(model.encoder, q, q, positions, x=x).isnan().logical_not().all()


def test_a_numbering_beyond_a_table_is_unsupported() -> None:
    encoder = pe_zoo.build("learned", GEOMETRY, num_rows=16)
    model = Transformer(5, GEOMETRY, encoder)
    with pytest.raises(Unsupported, match="15"):
        model(torch.zeros(3, 7, dtype=torch.long), built("randomized").train(3, 7, generator()))


REFUSED = {
    "positions=cape": "takes positions from 0 on, but positions=cape reaches -22.145; ",
    "positions=cape positions.centred=false": "takes positions from 0 on, but positions=cape reaches -5.665; ",
    "positions=random_float positions.limit=2047.5": "up to 2047, but positions=random_float reaches 2047.5 in",
    "positions=randomized positions.limit=2049": "takes positions up to 2047, but positions=randomized reaches 2048 ",
    "positions=chunked positions.limit=2049": "takes positions up to 2047, but positions=chunked reaches 2048 ",
    "positions=offset positions.evaluate_at=2016": "takes positions up to 2047, but positions=offset reaches 2048 ",
    "positions=chunked positions.limit=5": "chunked fits 33 positions into limit=5; set positions.limit higher",
}


@pytest.mark.parametrize("asked", REFUSED)
def test_positions_beyond_a_table_are_refused_before_writing(command: Command, tmp_path: object, asked: str) -> None:
    done = command("figures=false", "model=tiny", "train.steps=10", "train.rounds=1", "encoder=learned", *asked.split())
    assert done.code == 2
    assert REFUSED[asked] in done.err
    assert done.err.count("\n") == 1
    assert not list(tmp_path.iterdir())  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "knobs"),
    [
        ("random_float", {"limit": 15.0}),
        ("chunked", {"limit": 16}),
        ("randomized", {"limit": 16}),
        ("offset", {"num_offsets": 10}),
        ("scaled", {}),
        ("cape", {"max_shift": 0.0, "max_jitter": 0.0, "centred": False}),
    ],
)
def test_the_last_row_of_a_table_is_allowed(name: str, knobs: dict[str, object]) -> None:
    encoder = pe_zoo.build("learned", GEOMETRY, num_rows=16)
    numbering = built(name, **knobs)
    check_range(encoder, numbering, 7)
    for positions in draws(numbering, batch_size=200).values():
        assert encoder.embed(torch.zeros(200, 7, 12), positions).isfinite().all()


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match=r"no numbering named 'randomised'\. Did you mean 'randomized'\?"):
        built("randomised")
    with pytest.raises(ValueError, match=r"randomized has no knob 'limits'\. Did you mean 'limit'\?"):
        built("randomized", limits=3)


# ------------------------------------------------------------------------------------- numbers that a task supplies


def of_task(kind: str, task: str, length: int, causal: bool) -> list[int]:
    chosen = tasks.build(task)
    return chosen.numbers(kind, chosen.sequence_length(length), causal=causal).tolist()


@pytest.mark.parametrize(
    ("kind", "task", "causal", "numbers"),
    [
        #                             ^  3  1  2  |  then the answer, shown one place late in a causal model
        ("coupled", "copy", True, [0, 1, 2, 3, 0, 1, 2]),
        ("coupled", "copy", False, [0, 1, 2, 3, 1, 2, 3]),
        ("coupled", "reverse", True, [0, 1, 2, 3, 4, 3, 2]),
        ("coupled", "reverse", False, [0, 1, 2, 3, 3, 2, 1]),
        ("abacus", "reverse", True, [0, 1, 2, 3, 0, 1, 2]),
        ("abacus", "sort", False, [0, 1, 2, 3, 1, 2, 3]),
    ],
)
def test_what_tasks_supply(kind: str, task: str, causal: bool, numbers: list[int]) -> None:
    assert of_task(kind, task, 3, causal) == numbers


@pytest.mark.parametrize("task", ["copy", "reverse"])
def test_coupled_symbols_are_the_ones_that_are_repeated(task: str) -> None:
    chosen = tasks.build(task, num_symbols=50)
    batch = chosen.sample(4, 9, generator(), split="test", causal=False)
    numbers = of_task("coupled", task, 9, causal=False)
    for place in range(10, 19):
        (source,) = (i for i in range(1, 10) if numbers[i] == numbers[place])
        assert torch.equal(batch.targets[:, place], batch.tokens[:, source])


def test_abacus_shifts_whole_words_and_keeps_marks_at_0() -> None:
    numbers = torch.tensor([0, 1, 2, 0, 1, 2])
    for name, marks_move in (("coupled", True), ("abacus", False)):
        numbering = numberings.build(name, num_offsets=30).bound(lambda kind, places: numbers)
        drawn = numbering.train(400, 6, generator())
        starts = drawn[:, 1] - 1
        assert starts.min() == 0
        assert starts.max() == 29
        moved = starts[:, None] * torch.ones(6) if marks_move else starts[:, None] * (numbers > 0)
        assert torch.equal(drawn, numbers + moved)
        assert torch.equal(numbering.evaluate(2, 6, generator()), numbers.float())
        assert numbering.highest(6) == 31


def test_without_a_task_s_numbers_there_are_none(command: Command) -> None:
    for name in ("coupled", "abacus"):
        with pytest.raises(Unsupported, match=f"{name} takes its numbers from"):
            numberings.build(name).train(1, 3, generator())
    done = command("task=sort", "positions=coupled", "model=tiny")
    assert (done.code, done.err) == (
        2,
        "error: task=sort offers no coupled positions; take another task or numbering\n",
    )
    assert "task=text offers no abacus" in command("task=text", "positions=abacus", "model=tiny").err


@pytest.mark.parametrize("causal", ["true", "false"])
def test_a_run_with_a_task_s_numbers(command: Command, causal: str) -> None:
    for task, kind in (("reverse", "coupled"), ("sort", "abacus")):
        done = command(*QUICK, f"task={task}", f"positions={kind}", "encoder=learned", f"model.causal={causal}")
        assert done.code == 0, done.err
