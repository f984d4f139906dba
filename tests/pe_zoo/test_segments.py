"""Positions by segment, ``positions=segments``, and the encoder of both levels: the authors' numbers, loops, runs."""

from __future__ import annotations

import cmath
import json
import math
import random
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from support import QUICK, Command, subject_of
from torch import Generator, Tensor

import pe_zoo
from experiments import Transformer
from experiments.plan.prepare import check_range
from experiments.tasks import Batch, Task, tasks
from experiments.training.evaluate import score
from experiments.training.generate import Cache, generate
from pe_zoo import Encoder, Geometry, Numbering, Unsupported, numberings

GOLDEN = json.loads((Path(__file__).parent / "golden" / "bipe.json").read_text(encoding="utf-8"))
SMALL = Geometry(model_dim=24, num_heads=3, num_layers=2, train_length=17)
SLOPES = [1 / 16, 1 / 256, 1 / 4]
"""ALiBi's, of three heads."""


def reader(*delimiters: int) -> Numbering:
    return numberings.build("segments").bound(lambda kind, size: torch.tensor(delimiters))


def read(tokens: list[list[int]] | Tensor, *delimiters: int) -> Tensor:
    return reader(*delimiters).read(torch.as_tensor(tokens), Generator())


def counted(tokens: list[int], delimiters: set[int]) -> list[list[float]]:
    """Segment and place of each token, one after another."""
    found, segment, place = [], 0.0, 0.0
    for token in tokens:
        found.append([segment, place])
        segment, place = (segment + 1, 0.0) if token in delimiters else (segment, place + 1)
    return found


def fresh(**knobs: Any) -> Encoder:
    torch.manual_seed(0)
    return pe_zoo.build("bipe", SMALL, **knobs).double()


def heads(length: int) -> tuple[Tensor, Tensor]:
    return torch.randn(2, 2, 3, length, 8, dtype=torch.float64).unbind()  # type: ignore[return-value]


# ------------------------------------------------------------------------------------------------- the numbering


def test_segments_are_those_of_the_official_code() -> None:
    found = read(GOLDEN["tokens"], *GOLDEN["delimiters"])
    assert found.dtype == torch.float32
    assert found[..., 0].tolist() == GOLDEN["segments"]
    assert found[..., 1].tolist() == GOLDEN["places"]


def test_segments_by_a_loop() -> None:
    tokens = torch.randint(9, (30, 25), generator=Generator().manual_seed(1))
    assert read(tokens, 3, 7).tolist() == [counted(row, {3, 7}) for row in tokens.tolist()]
    assert read(tokens[:, :1], 3).tolist() == [[[0, 0]]] * 30


def test_no_later_token_moves_an_earlier_one() -> None:
    tokens = torch.randint(4, (8, 12), generator=Generator().manual_seed(1))
    whole = read(tokens, 0)
    for size in range(1, 13):
        assert torch.equal(read(tokens[:, :size], 0), whole[:, :size])


def test_without_tokens_or_delimiters_there_are_no_segments(command: Command) -> None:
    numbering = numberings.build("segments")
    for ask in (numbering.train, numbering.evaluate):
        with pytest.raises(Unsupported, match="segments follows from tokens"):
            ask(1, 3, Generator())
    with pytest.raises(Unsupported, match="segments takes its numbers from the task"):
        numbering.read(torch.zeros(1, 3, dtype=torch.long), Generator())
    done = command(*QUICK, "encoder=bipe", "positions=segments", "task=parity_check", "task.train_length=6")
    assert done.code == 0, done.err
    done = command(*QUICK, "encoder=bipe", "positions=segments", "task=mqar")
    assert (done.code, done.err) == (
        2,
        "error: task=mqar offers no segments positions; take another task or numbering\n",
    )


@pytest.mark.parametrize(
    ("task", "knobs", "delimiters"),
    [("copy", {"num_symbols": 3}, [4]), ("addition", {"base": 5}, [5, 7]), ("passkey", {}, None)],
)
def test_tasks_name_the_mark_that_ends_a_problem(
    task: str, knobs: dict[str, Any], delimiters: list[int] | None
) -> None:
    chosen = tasks.build(task, **knobs)
    found = chosen.numbers("segments", 9, causal=True).tolist()
    assert delimiters is None or found == delimiters
    batch = chosen.sample(3, 4, Generator().manual_seed(0), split="train", causal=True)
    positions = read(batch.tokens, *found)
    answers = int(batch.counted.int().argmax())
    assert torch.isin(batch.tokens[:, answers], torch.tensor(found)).all(), "the mark stands before the answers"
    assert (positions[:, answers + 1 :, 1] == torch.arange(batch.tokens.shape[1] - answers - 1)).all()


def some_text(folder: Path) -> str:
    """A file of sentences, none of them twice."""
    drawn = random.Random(0)
    words = ["".join(drawn.choices("abcdefgh", k=5)) for _ in range(3000)]
    lines = [f"{a} {b}:\n    {c}. And {d}.\n\n" for a, b, c, d in zip(*[iter(words)] * 4, strict=True)]
    (folder / "a.txt").write_text("".join(lines) + "@ = ", encoding="utf-8")
    return str(folder / "a.txt")


@pytest.mark.parametrize("task", ["text", "needles"])
def test_sentences_and_lines_of_text_are_segments(tmp_path: Path, task: str) -> None:
    chosen = tasks.build(task, path=some_text(tmp_path), train_length=60)
    assert chosen.numbers("segments", 9, causal=True).tolist() == [ord("\n"), ord(".")]


def test_merged_bytes_end_a_segment_with_a_stop_or_a_line_break(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    chosen: Any = tasks.build("text", path=some_text(tmp_path), train_length=8, tokenizer="bpe")
    ends = set(chosen.numbers("segments", 9, causal=True).tolist())
    expected = {i for i, token in enumerate(chosen.spelled) if token.endswith(b".") or b"\n" in token}
    assert ends == expected
    assert len(ends) > 2, "some are merged"


# --------------------------------------------------------------------------------------------------- the encoder


@pytest.mark.parametrize("within", ["learned", "sinusoidal"])
def test_embed_adds_the_vector_of_the_place(within: str) -> None:
    encoder: Any = fresh(within=within, num_rows=1024)
    positions = read(GOLDEN["tokens"], *GOLDEN["delimiters"])
    x = torch.randn(2, 8, 24, dtype=torch.float64)
    found = (encoder.embed(x, positions) - x).detach()
    for b in range(2):
        for t in range(8):
            place = GOLDEN["places"][b][t]
            if within == "learned":
                expected = encoder.table[place].tolist()
            else:
                waves = [place * 10000 ** (-2 * i / 24) for i in range(12)]
                expected = [wave(angle) for angle in waves for wave in (math.sin, math.cos)]
            assert found[b, t].tolist() == pytest.approx(expected, abs=1e-12)


def test_rope_between_segments_by_complex_numbers() -> None:
    encoder, positions = fresh(base=50.0), read(GOLDEN["tokens"], *GOLDEN["delimiters"])
    q, k = heads(8)
    found = pe_zoo.scores(encoder, q, k, positions)
    for b in range(2):
        for h in range(3):
            for i in range(8):
                for j in range(8):
                    apart, total = GOLDEN["segments"][b][i] - GOLDEN["segments"][b][j], 0.0
                    for pair in range(4):
                        one = complex(*q[b, h, i, 2 * pair : 2 * pair + 2].tolist())
                        other = complex(*k[b, h, j, 2 * pair : 2 * pair + 2].tolist())
                        total += (one * other.conjugate() * cmath.exp(1j * apart * 50.0 ** (-pair / 4))).real
                    assert found[b, h, i, j].item() == pytest.approx(total / math.sqrt(8), abs=1e-12)


def test_alibi_between_segments_by_a_loop() -> None:
    encoder, positions = fresh(between="alibi"), read(GOLDEN["tokens"], *GOLDEN["delimiters"])
    q, k = heads(8)
    found = pe_zoo.scores(encoder, q, k, positions) - q @ k.mT / math.sqrt(8)
    for b in range(2):
        for h in range(3):
            for i in range(8):
                for j in range(8):
                    apart = abs(GOLDEN["segments"][b][i] - GOLDEN["segments"][b][j])
                    assert found[b, h, i, j].item() == pytest.approx(-96 * SLOPES[h] * apart, abs=1e-9)


@pytest.mark.parametrize("expected", GOLDEN["slopes"], ids=len)
def test_slopes_are_the_official_ones(expected: list[float]) -> None:
    count = len(expected)
    encoder = pe_zoo.build(
        "bipe", Geometry(model_dim=2 * count, num_heads=count, num_layers=1, train_length=4), between="alibi"
    )
    nothing = torch.zeros(1, count, 2, 2)
    found = pe_zoo.scores(encoder, nothing, nothing, torch.tensor([[0.0, 3.0], [1.0, 0.0]]))
    assert (-found[0, :, 1, 0]).tolist() == expected


def test_a_text_of_one_segment_has_no_relative_term() -> None:
    q, k = heads(6)
    positions = read(torch.ones(2, 6, dtype=torch.long), 0)
    for between in ("rope", "alibi"):
        found = pe_zoo.scores(fresh(between=between), q, k, positions)
        torch.testing.assert_close(found, q @ k.mT / math.sqrt(8), atol=1e-12, rtol=0)


def test_knobs_of_the_other_choice_are_refused() -> None:
    with pytest.raises(ValueError, match=r"bipe base=50 changes nothing with between=alibi.*leave one of them out"):
        fresh(between="alibi", base=50.0)
    with pytest.raises(ValueError, match=r"bipe num_rows=99 changes nothing with within=sinusoidal.*leave one"):
        fresh(within="sinusoidal", num_rows=99)


def test_a_place_beyond_the_table_is_unsupported_and_a_late_segment_is_not() -> None:
    encoder, x = fresh(num_rows=20), torch.zeros(1, 2, 24, dtype=torch.float64)
    assert encoder.embed(x, torch.tensor([[[500.0, 3.0], [501.0, 0.0]]])).isfinite().all()
    with pytest.raises(Unsupported, match="bipe has rows for positions 0 to 19"):
        encoder.embed(x, torch.tensor([[[0.0, 19.0], [0.0, 20.0]]]))


# ------------------------------------------------------------------------------------------- sequences and grids


def test_segments_are_no_grid() -> None:
    """Two axes either way, which mean different things: of cells, and of text."""
    assert pe_zoo.names(2, "segments") == ["bipe"]
    assert "bipe" not in pe_zoo.names() + pe_zoo.names(2)
    for encoder, positions in (("bipe", "grid"), ("axial_rope", "segments"), ("rope", "segments"), ("bipe", "offset")):
        with pytest.raises(ValueError, match=f"encoder={encoder} takes positions of .*, but positions={positions} giv"):
            check_range(pe_zoo.build(encoder, SMALL), numberings.build(positions), 7)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["encoder=bipe"], "bipe takes positions of segments, but positions=sequential .* set positions=segments"),
        (["encoder=rope", "positions=segments"], "gives those of segments; leave positions=segments out"),
        (["encoder=swin", "positions=segments"], "of a grid, but positions=segments .* set positions=grid and a task"),
    ],
)
def test_a_run_says_what_goes_together(words: list[str], message: str, command: Command) -> None:
    done = command(*QUICK, *words)
    assert done.code == 2
    assert re.search(message, done.err)
    assert done.err.count("\n") == 1


# ------------------------------------------------------------------------------------- one token after another


def model_of(**knobs: Any) -> Transformer:
    torch.manual_seed(3)
    return Transformer(12, SMALL, pe_zoo.build("bipe", SMALL, **knobs)).double().eval()


@pytest.mark.parametrize("between", ["rope", "alibi"])
def test_what_is_read_bit_by_bit_is_what_is_read_at_once(between: str) -> None:
    model, tokens = model_of(between=between), torch.randint(12, (2, 10))
    positions = read(tokens, 1, 5, 8)
    cache = Cache(model, positions)
    with torch.no_grad():
        at_once = model(tokens, positions)
    in_parts = torch.cat([cache.read(part) for part in tokens.split((4, 1, 1, 3, 1), 1)], 1)
    torch.testing.assert_close(in_parts, at_once, rtol=1e-9, atol=1e-10)


def naive(model: Transformer, batch: Batch, numbering: Numbering) -> Tensor:
    """Read everything again for each token, at the positions of what was written."""
    tokens, logits = batch.tokens.clone(), []
    for place in batch.counted.nonzero().flatten().tolist():
        with torch.no_grad():
            logits.append(model(tokens, numbering.read(tokens, Generator()))[:, place])
        if place + 1 < tokens.shape[1]:
            tokens[:, place + 1] = logits[-1].argmax(-1)
    return torch.stack(logits, 1)


def test_delimiters_that_are_generated_end_segments() -> None:
    model, numbering = model_of(), reader(*range(6))
    task = tasks.build("copy", train_length=6, num_symbols=10)
    batch = task.sample(16, 6, Generator().manual_seed(0), split="test", causal=True)
    positions = numbering.read(batch.tokens, Generator())
    found = generate(model, batch, positions, numbering=numbering)
    expected = score(naive(model, batch, numbering), batch)
    assert found is not None
    torch.testing.assert_close(found.nats, expected.nats, rtol=1e-9, atol=1e-10)
    assert torch.equal(found.correct, expected.correct)
    stale = generate(model, batch, positions)
    assert stale is not None
    assert (stale.nats - found.nats).abs().max() > 1e-3, "the right answers' segments are not those of the written"


def test_numberings_that_read_no_tokens_are_drawn_as_before() -> None:
    tokens = torch.zeros(5, 7, dtype=torch.long)
    for name in ("sequential", "offset", "randomized", "cape"):
        numbering = numberings.build(name)
        for training, draw in ((True, numbering.train), (False, numbering.evaluate)):
            seeded = [Generator().manual_seed(0) for _ in range(2)]
            assert torch.equal(numbering.read(tokens, seeded[0], training=training), draw(5, 7, seeded[1]))
            assert torch.equal(seeded[0].get_state(), seeded[1].get_state())


def test_questions_have_the_segments_of_their_tokens() -> None:
    task: Task = tasks.build("copy", train_length=6)
    numbering = numberings.build("segments").bound(lambda kind, size: task.numbers(kind, size, causal=True))
    subject = subject_of("bipe", task=task, numbering=numbering)
    batch, positions = subject.question("any", 3, 9)
    mark = task.numbers("segments", 1, causal=True).item()
    assert positions.tolist() == [counted(row, {mark}) for row in batch.tokens.tolist()]


@pytest.mark.parametrize(
    "words", [["task=copy"], ["task=text", "task.train_length=32"], ["task=reverse", "model.causal=false"]], ids=str
)
def test_a_run_by_segments(command: Command, words: list[str]) -> None:
    measures = "experiment=[length_extrapolation,permutation_sensitivity,shift_sensitivity,attention_pattern,cost]"
    generated = "length_extrapolation.generated=2"
    done = command(*QUICK, generated, *words, "positions=segments", "encoder=bipe", "encoder.between=alibi", measures)
    assert done.code == 0, done.err
