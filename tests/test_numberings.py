"""Numberings: which numbers positions get, drawn once per sample, from the generator and nothing else."""

from __future__ import annotations

import pytest
import torch
from torch import Generator, Tensor

import pe_zoo
from experiments._model import Transformer
from pe_zoo import Geometry, Numbering, Unsupported, numberings

GEOMETRY = Geometry(model_dim=12, num_heads=2, num_layers=1, train_length=8)
DRAWN = {"offset": "train", "randomized": "both"}
"""Numberings that draw, and where."""


def generator(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def draws(numbering: Numbering, seed: int = 0, batch_size: int = 5, length: int = 7) -> dict[str, Tensor]:
    return {
        "train": numbering.train(batch_size, length, generator(seed)),
        "evaluate": numbering.evaluate(batch_size, length, generator(seed)),
    }


@pytest.mark.parametrize("name", numberings.names())
def test_shape_dtype_and_order(name: str) -> None:
    for length in (1, 2, 40):
        for positions in draws(numberings.build(name), length=length).values():
            assert positions.shape in {(length,), (5, length)}
            assert positions.dtype == torch.float32
            assert positions.isfinite().all()
            assert (positions >= 0).all()
            assert (positions.diff(dim=-1) > 0).all(), "positions increase along a sequence"


@pytest.mark.parametrize("name", numberings.names())
def test_all_randomness_comes_from_the_generator(name: str) -> None:
    numbering, before = numberings.build(name), torch.random.get_rng_state()
    first, again, other = draws(numbering), draws(numbering), draws(numbering, seed=1)
    assert torch.equal(torch.random.get_rng_state(), before)
    for which in ("train", "evaluate"):
        drawn = DRAWN.get(name) in (which, "both")
        assert torch.equal(first[which], again[which])
        assert torch.equal(first[which], other[which]) != drawn
        assert (first[which].ndim == 2) == drawn, "one draw for each sample, or one numbering for all"
        if drawn:
            assert len(first[which].unique(dim=0)) == len(first[which])


@pytest.mark.parametrize("name", numberings.names())
def test_a_generator_goes_on_and_does_not_repeat_itself(name: str) -> None:
    source, numbering = generator(), numberings.build(name)
    assert torch.equal(numbering.train(5, 7, source), numbering.train(5, 7, source)) == (name not in DRAWN)


def test_sequential_counts_up() -> None:
    for positions in draws(numberings.build("sequential"), length=4).values():
        assert positions.tolist() == [0, 1, 2, 3]


def test_offset_counts_up_from_anywhere_and_evaluates_from_one_place() -> None:
    found = draws(numberings.build("offset", num_offsets=10, evaluate_at=3), batch_size=2000, length=4)
    starts = found["train"][:, 0]
    assert torch.equal(found["train"], starts[:, None] + torch.arange(4.0))
    counts = torch.bincount(starts.long(), minlength=10)
    assert len(counts) == 10, "num_offsets itself is no start"
    assert (counts - 200).abs().max() < 5 * 200**0.5
    assert found["evaluate"].tolist() == [3, 4, 5, 6]
    assert draws(numberings.build("offset", num_offsets=1))["train"].unique(dim=0).tolist() == [[0, 1, 2, 3, 4, 5, 6]]
    assert draws(numberings.build("offset"))["evaluate"].tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_randomized_draws_without_replacement_and_every_number_alike() -> None:
    limit, length, samples = 20, 6, 4000
    found = draws(numberings.build("randomized", limit=limit), batch_size=samples, length=length)
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
    numbering = numberings.build("randomized", limit=8)
    assert draws(numbering, length=8)["train"].unique(dim=0).tolist() == [[0, 1, 2, 3, 4, 5, 6, 7]]
    for ask in (numbering.train, numbering.evaluate):
        with pytest.raises(Unsupported, match=r"9 different positions out of limit=8.*positions\.limit") as refusal:
            ask(1, 9, generator())
        assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("encoder", pe_zoo.names())
@pytest.mark.parametrize("name", numberings.names())
def test_a_numbering_multiplies_with_every_encoder(name: str, encoder: str) -> None:
    model = Transformer(5, GEOMETRY, pe_zoo.build(encoder, GEOMETRY))
    tokens = torch.zeros(3, 7, dtype=torch.long)
    for positions in draws(numberings.build(name), batch_size=3).values():
        logits = model(tokens, positions)
        assert logits.shape == (3, 7, 5)
        assert logits.isfinite().all()
        q = torch.randn(3, 2, 7, 6)
        assert pe_zoo.scores(model.encoder, q, q, positions).isfinite().all()


def test_a_numbering_beyond_a_table_is_unsupported() -> None:
    encoder = pe_zoo.build("learned", GEOMETRY, num_rows=16)
    model = Transformer(5, GEOMETRY, encoder)
    with pytest.raises(Unsupported, match="15"):
        model(torch.zeros(3, 7, dtype=torch.long), numberings.build("randomized").train(3, 7, generator()))


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match=r"no numbering named 'randomised'\. Did you mean 'randomized'\?"):
        numberings.build("randomised")
    with pytest.raises(ValueError, match=r"randomized has no knob 'limits'\. Did you mean 'limit'\?"):
        numberings.build("randomized", limits=3)
