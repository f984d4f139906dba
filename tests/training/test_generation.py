"""Free-running generation: a cache changes what is computed again, never what comes out."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch
from support import Command
from torch import Tensor

import pe_zoo
from experiments import Transformer
from experiments.measures.length_extrapolation import measure as length_extrapolation
from experiments.model.layout import Layout
from experiments.rows.row import slice_name
from experiments.tasks import Batch, tasks
from experiments.training.evaluate import Subject, evaluate, score
from experiments.training.generate import Cache, fed, generate
from pe_zoo import Geometry, Unsupported

GEOMETRY = Geometry(model_dim=24, num_heads=6, num_layers=2, train_length=6)
LENGTH = 10
"""Longer than the training length: encoders that change beyond it are asked on both sides."""


def model_of(encoder: str, *, causal: bool = True, vocab_size: int = 12, **options: object) -> Transformer:
    torch.manual_seed(3)
    built = pe_zoo.build(encoder, GEOMETRY)
    model = Transformer(vocab_size, GEOMETRY, built, causal=causal, **options).double().eval()  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in built.parameters():  # what starts at 0 would hide a difference
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def in_parts(model: Transformer, tokens: Tensor, positions: Tensor, sizes: tuple[int, ...]) -> Tensor:
    cache = Cache(model, positions)
    return torch.cat([cache.read(part) for part in tokens.split(sizes, 1)], 1)


@pytest.mark.parametrize("encoder", pe_zoo.names())
def test_what_is_read_bit_by_bit_is_what_is_read_at_once(encoder: str) -> None:
    model = model_of(encoder)
    torch.manual_seed(4)
    tokens = torch.randint(12, (2, LENGTH))
    shared = torch.arange(LENGTH, dtype=torch.float32)
    for positions in (shared, torch.stack([shared, 2 * shared])):
        with torch.no_grad():
            at_once = model(tokens, positions)
        for sizes in ((1,) * LENGTH, (4, 1, 1, 3, 1)):
            torch.testing.assert_close(in_parts(model, tokens, positions, sizes), at_once, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    "options",
    [
        {"layout": Layout(window=3)},
        {"layout": Layout(masked_heads=2, skip_every=2)},
        {"temperature": "log_n"},
        {"query_block": 2},
        {"attention": "plain"},
    ],
    ids=str,
)
def test_layouts_temperatures_and_blocks_are_kept(options: dict[str, object]) -> None:
    model, tokens = model_of("rope", **options), torch.randint(12, (2, LENGTH))
    positions = torch.arange(LENGTH, dtype=torch.float32)
    with torch.no_grad():
        at_once = model(tokens, positions)
    torch.testing.assert_close(in_parts(model, tokens, positions, (5, 1, 4)), at_once, rtol=1e-9, atol=1e-10)


def test_a_dropped_encoder_stays_dropped() -> None:
    model, tokens = model_of("sinusoidal"), torch.randint(12, (2, LENGTH))
    positions = torch.arange(LENGTH, dtype=torch.float32)
    carried = in_parts(model, tokens, positions, (5, 5))
    model.drop_encoder()
    dropped = in_parts(model, tokens, positions, (5, 5))
    assert (carried - dropped).abs().max() > 1e-3
    with torch.no_grad():
        torch.testing.assert_close(dropped, model(tokens, positions), rtol=1e-9, atol=1e-10)


def test_a_bidirectional_model_says_that_it_has_none() -> None:
    with pytest.raises(Unsupported, match="bidirectional"):
        Cache(model_of("rope", causal=False), torch.arange(4.0))


def test_more_tokens_than_positions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"positions of shape \(4,\) for tokens of shape \(1, 5\)"):
        Cache(model_of("rope"), torch.arange(4.0)).read(torch.zeros(1, 5, dtype=torch.long))


def naively(model: Transformer, batch: Batch, positions: Tensor) -> Tensor:
    """Read everything anew for each token, and put each answer in place of the truth. The logits."""
    tokens, places = batch.tokens.clone(), fed(batch).nonzero().flatten().tolist()
    with torch.no_grad():
        for place in places:
            answer = model(tokens[:, : place + 1], positions[..., : place + 1])[:, -1].argmax(-1)
            tokens[:, place + 1] = answer
        return model(tokens, positions)


@pytest.mark.parametrize("encoder", ["none", "t5", "rope_dynamic_ntk", "path", "transformer_xl"])
@pytest.mark.parametrize("task", ["copy", "flip_flop", "addition"])
def test_generated_is_what_reading_all_anew_for_each_token_gives(encoder: str, task: str) -> None:
    made = tasks.build(task)
    batch = made.sample(3, 4, torch.Generator().manual_seed(0), split="test", causal=True)
    model = model_of(encoder, vocab_size=made.vocab_size)
    positions = torch.arange(batch.tokens.shape[1], dtype=torch.float32)
    scored = generate(model, batch, positions)
    assert scored is not None
    expected = score(naively(model, batch, positions)[:, batch.counted], batch)
    assert torch.equal(scored.correct, expected.correct)
    torch.testing.assert_close(scored.nats, expected.nats)


def test_positions_of_each_sample_its_own() -> None:
    made = tasks.build("copy")
    batch = made.sample(3, 4, torch.Generator().manual_seed(0), split="test", causal=True)
    model = model_of("sinusoidal", vocab_size=made.vocab_size)
    positions = torch.arange(9.0) * torch.tensor([[1.0], [2.0], [3.0]])
    scored = generate(model, batch, positions)
    assert scored is not None
    expected = score(naively(model, batch, positions)[:, batch.counted], batch)
    torch.testing.assert_close(scored.nats, expected.nats)


def test_many_sequences_are_generated_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made = tasks.build("copy")
    batch = made.sample(5, 4, torch.Generator().manual_seed(0), split="test", causal=True)
    model = model_of("rope", vocab_size=made.vocab_size)
    positions = torch.arange(9.0) + torch.arange(5.0).unsqueeze(1)
    together = generate(model, batch, positions)
    monkeypatch.setattr("experiments.training.evaluate.CHUNK_TOKENS", 20)
    apart = generate(model, batch, positions)
    some = generate(model, batch, positions, 3)
    assert together is not None
    assert apart is not None
    assert some is not None
    torch.testing.assert_close(together.nats, apart.nats)
    torch.testing.assert_close(together.nats[:3], some.nats)


class _Follower(Transformer):
    """Says the successor of what it has just read: right for the targets below until its first mistake."""

    def forward(self, tokens: Tensor, positions: Tensor | None = None, pasts: object = None) -> Tensor:
        return torch.nn.functional.one_hot((tokens + 1) % self.vocab_size, self.vocab_size).double()


def test_a_mistake_is_fed_back_only_when_free_running() -> None:
    model = _Follower(8, GEOMETRY, pe_zoo.build("none", GEOMETRY))
    #                           mark: what follows 0 should be 2, then 3, 4, 5
    batch = Batch(
        torch.tensor([[7, 0, 2, 3, 4]]), torch.tensor([[7, 2, 3, 4, 5]]), torch.tensor([False, True, True, True, True])
    )
    positions = torch.arange(5.0)
    assert fed(batch).tolist() == [False, True, True, True, False]
    assert evaluate(model, batch, positions).correct.tolist() == [[False, True, True, True]]
    free = generate(model, batch, positions)
    assert free is not None
    assert free.correct.tolist() == [[False, False, False, False]]  # 1, 2, 3, 4 instead of 2, 3, 4, 5


@pytest.mark.parametrize("task", ["reverse_string", "mode", "parity"])
def test_where_no_answer_is_read_there_is_nothing_to_generate(task: str) -> None:
    made = tasks.build(task)
    batch = made.sample(4, 5, torch.Generator().manual_seed(0), split="test", causal=True)
    assert not fed(batch).any()
    model = model_of("none", vocab_size=made.vocab_size)
    assert generate(model, batch, torch.arange(float(batch.tokens.shape[1]))) is None


QUICK = [
    "figures=false",
    "model=tiny",
    "train.steps=3",
    "experiment=length_extrapolation",
    "length_extrapolation.samples=6",
]


def generated(folder: Path) -> dict[tuple[str, str], dict[str, str]]:
    """Metric and length -> row, of what the one run in a folder generated."""
    (file,) = folder.glob("results/*/runs/*/rows.csv")
    with file.open() as lines:
        rows = [row for row in csv.DictReader(lines) if row["experiment"] == "length_extrapolation"]
    return {
        (row["metric"], row["eval_length"]): row for row in rows if row["metric"].startswith(("generated_", "free"))
    }


def test_a_run_reports_both_ways_of_asking(command: Command, tmp_path: Path) -> None:
    done = command(*QUICK, "task=copy", "length_extrapolation.generated=5", "length_extrapolation.multiples=[0.25,2]")
    assert done.code == 0, done.err
    rows = generated(tmp_path)
    gap = rows.pop(("free_running_gap", "4")), rows.pop(("free_running_gap", "32"))
    assert [row["n"] for row in gap] == [str(5 * 4), str(5 * 32)]
    metrics = ("generated_token_accuracy", "generated_exact_match")
    assert set(rows) == {(metric, length) for metric in metrics for length in ("4", "32")}
    assert rows["generated_exact_match", "32"]["n"] == "5"
    assert rows["generated_token_accuracy", "32"]["n"] == str(5 * 32)
    assert rows["generated_token_accuracy", "4"]["chance"] == "0.1"
    assert "free: tokens after the model's own" in done.out


@pytest.mark.parametrize(
    "asked",
    [
        ["task=copy", "length_extrapolation.generated=0"],
        ["task=copy", "model.causal=false"],
        ["task=mode"],
        ["task=text"],
    ],
    ids=" ".join,
)
def test_nothing_is_generated_unless_needed(command: Command, tmp_path: Path, asked: list[str]) -> None:
    done = command(*QUICK, "length_extrapolation.multiples=[1]", *asked)
    assert done.code == 0, done.err
    assert not generated(tmp_path)


def test_a_negative_number_of_sequences_is_refused(command: Command) -> None:
    done = command(*QUICK, "length_extrapolation.generated=-1")
    assert (done.code, done.err) == (
        2,
        "error: length_extrapolation.generated must be a whole number of at least 0; got -1\n",
    )


def test_the_gap_is_that_of_the_same_sequences() -> None:
    made = tasks.build("copy", train_length=6)
    model = model_of("alibi", vocab_size=made.vocab_size).float()
    labels: dict[str, str | int] = {"run_id": "r", "encoder": "alibi", "positions": "sequential", "task": "copy"}
    subject = Subject(
        model=model,
        initial=lambda: model,
        trained=False,
        task=made,
        numbering=pe_zoo.numberings.build("sequential"),
        seed=0,
        labels=labels | {"seed": 0, "train_length": 6},
    )
    rows = length_extrapolation.measure(subject, multiples=(2.0,), samples=60, generated=5)
    value = {row.metric: row.value for row in rows if not slice_name(row)}
    batch, positions = subject.question("length_extrapolation", 60, 12)
    same, all_of_them = (evaluate(model, batch.first(n), positions).quality()["token_accuracy"] for n in (5, 60))
    assert same != all_of_them == value["token_accuracy"]
    assert value["free_running_gap"] == value["generated_token_accuracy"] - same
