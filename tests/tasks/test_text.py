"""Text: the bytes of before, byte pairs that give the text back, documents kept apart, and what is no text."""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import Command
from torch import Generator, Tensor

import pe_zoo
from experiments import Transformer
from experiments.plan.measures import load_experiment
from experiments.tasks import tasks
from experiments.tasks.texts import cache
from experiments.tasks.texts import corpus as _corpus
from experiments.tasks.texts import tokenizer as _tokenizer
from experiments.tasks.texts.corpus import Corpus, held_out
from experiments.tasks.texts.documents import Documents
from experiments.tasks.texts.tokenizer import Tokenized, byte_pairs_of, bytes_of, pieces
from experiments.training.evaluate import Subject
from pe_zoo import Geometry, Unsupported

WORDS = [bytes(range(97, 97 + size)) for size in range(2, 9)]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def generator(seed: int = 7) -> Generator:
    return Generator().manual_seed(seed)


def text(path: Path | None, train_length: int = 8, **knobs: Any) -> Any:
    return tasks.build("text", path=path and str(path), train_length=train_length, **{"duplicates": "kept"} | knobs)


def write(folder: Path, contents: list[bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, content in enumerate(contents):
        (folder / f"{number}.txt").write_bytes(content)
    return folder


def of(*texts: bytes) -> Corpus:
    return Corpus({"test": list(texts), "validation": list(texts), "train": list(texts)}, {}, "a test")


def spelled(found: Tokenized, split: str = "train") -> bytes:
    return b"".join(found.spelled[token] for token in found.splits[split].tokens.tolist())


# ------------------------------------------------------------------------------------------------ bytes, as ever


def digest(tensors: list[Tensor]) -> str:
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.to(torch.int64).numpy().tobytes())
    return found.hexdigest()


def drawn(task: Any, lengths: tuple[int, ...]) -> str:
    """A hash of batches of every kind."""
    data = generator()
    batches = [task.sample(5, n, data, split=s, causal=True) for s in ("train", "validation", "test") for n in lengths]
    for length in lengths:
        batches.append(task.windows(torch.tensor([lengths[-1], lengths[-1] + 3]), length, causal=True))
    assert all(batch.target_bytes is None for batch in batches)
    return digest([part for batch in batches for part in (batch.tokens, batch.targets, batch.counted)])


def test_the_batches_of_bytes_are_those_of_the_first_release(tmp_path: Path) -> None:
    contents = [b" ".join(WORDS[(i * k * k + k) % 7] for k in range(1, 80 + 40 * i)) + b"\n" for i in range(6)]
    folder = write(tmp_path / "files", contents)
    many, one = text(folder, 16), text(folder / "5.txt", 16)
    assert drawn(many, (8, 16, 40)) == "ccee8791851b906de34eb94ac44edde801eb5ba3209ae54672a3c63858aa06af"
    assert drawn(one, (8, 16, 30)) == "9033ef02d9bf11b7edfa04ab03c98994eb9af729f8115129302bea5f3549c70a"
    assert many.position_guess("bits_per_byte", 16) == pytest.approx(3.1810298859627384, abs=1e-14)
    assert (many.chance("bits_per_byte", 16), many.chance("token_accuracy", 16)) == (8.0, 1 / 256)


# ------------------------------------------------------------------------------------------------ byte pairs

PROSE = "Der Käse, naïve café: 東京タワー 🎈 don't   stop\n\n\tx = 12345\r\n".encode()


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=4), st.sampled_from([256, 260, 400]))
@settings(max_examples=40, deadline=None)
def test_byte_pairs_give_any_bytes_back(texts: list[bytes], vocabulary: int) -> None:
    found = byte_pairs_of(of(*texts), vocabulary)
    assert spelled(found) == b"".join(texts)
    assert len(found.spelled) <= vocabulary
    assert found.spelled[:256] == [bytes([byte]) for byte in range(256)]
    starts = [0, *found.splits["train"].sizes.cumsum(0).tolist()]
    numbers = found.splits["train"].tokens.tolist()
    for document, first, last in zip(texts, starts[:-1], starts[1:], strict=True):
        assert b"".join(found.spelled[token] for token in numbers[first:last]) == document


def test_byte_pairs_are_learned_from_the_training_text_alone() -> None:
    train, test = b"abab cdcd " * 50, b"xyxy " * 50
    found = byte_pairs_of(Corpus({"test": [test], "validation": [test], "train": [train]}, {}, ""), 300)
    assert {b"ab", b"abab"} <= set(found.spelled)
    assert not any(b"xy" in token for token in found.spelled)
    assert len(found.splits["train"]) < len(train) / 3
    assert (len(found.splits["test"]), spelled(found, "test")) == (len(test), test)
    assert not any(b" " in token[1:] for token in found.spelled), "a piece has white space at its beginning only"
    assert found.widths.tolist() == [len(token) for token in found.spelled]


def test_no_pair_to_merge_leaves_the_bytes() -> None:
    same = byte_pairs_of(of(PROSE), 256)
    assert same.splits["train"].tokens.tolist() == list(PROSE) == bytes_of(of(PROSE)).splits["train"].tokens.tolist()
    many = byte_pairs_of(of(PROSE * 9), 1024)
    assert len(many.spelled) < 1024
    assert "東京タワー".encode() in b"".join(many.spelled[-20:]), "a word in UTF-8 is one piece"


def test_the_same_text_gives_the_same_tokens_in_pieces_too(monkeypatch: pytest.MonkeyPatch) -> None:
    content = PROSE * 40
    found = byte_pairs_of(of(content), 400)
    again = byte_pairs_of(of(content), 400)
    assert (found.sha256, found.spelled) == (again.sha256, again.spelled)
    assert byte_pairs_of(of(content + b"more"), 400).sha256 != found.sha256
    monkeypatch.setattr(_tokenizer, "PIECE_BYTES", 64)
    assert len(list(pieces(content))) > 20
    in_pieces = byte_pairs_of(of(content), 400)
    assert in_pieces.sha256 == found.sha256
    assert torch.equal(in_pieces.splits["train"].tokens, found.splits["train"].tokens)


def test_what_took_long_is_kept_for_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    content = PROSE * 40
    found = byte_pairs_of(of(content), 400)
    assert not (tmp_path / "cache").exists(), "what was quick is not"
    monkeypatch.setattr(cache, "KEPT_FROM_SECONDS", 0)
    byte_pairs_of(of(content), 400)
    (kept,) = (tmp_path / "cache" / "pe_zoo").iterdir()
    trained = []
    train = _tokenizer._train
    monkeypatch.setattr(_tokenizer, "_train", lambda *given: trained.append(given) or train(*given))
    again = byte_pairs_of(of(content), 400)
    assert not trained
    assert (again.spelled, again.sha256) == (found.spelled, found.sha256)
    for name, documents in found.splits.items():
        assert torch.equal(again.splits[name].tokens, documents.tokens)
        assert torch.equal(again.splits[name].sizes, documents.sizes)
    for other in (of(content + b"!"), of(content[:50], content[50:])):
        byte_pairs_of(other, 400)
    byte_pairs_of(of(content), 401)
    assert len(trained) == 3, "other text, other documents, another vocabulary"
    kept.write_bytes(b"not what it was")
    assert byte_pairs_of(of(content), 400).sha256 == found.sha256
    assert "damaged" in caplog.text


def test_without_the_library_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = write(tmp_path / "files", [PROSE * 9] * 3)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    text(folder)
    with pytest.raises(ValueError, match=r"tokenizer=bpe needs the package tokenizers: pip install .pe_zoo\[text\]"):
        text(folder, tokenizer="bpe")


def test_guesses_are_per_byte(tmp_path: Path) -> None:
    folder = write(tmp_path / "files", [b"the cat %d sat on the mat and the hat\n" % (n % 3) * 20 for n in range(9)])
    task = text(folder, tokenizer="bpe", vocabulary=300)
    size = len(task._widths)
    train, test = (Counter(task.splits[name].tokens.tolist()) for name in ("train", "test"))
    total, num_bytes = sum(train.values()) + size, sum(n * int(task._widths[token]) for token, n in test.items())
    bits = -sum(n * math.log2((train[token] + 1) / total) for token, n in test.items())
    assert task.position_guess("bits_per_byte", 8) == pytest.approx(bits / num_bytes, abs=1e-12)
    assert task.chance("bits_per_byte", 8) == pytest.approx(sum(test.values()) * math.log2(size) / num_bytes)
    assert (task.chance("token_accuracy", 8), task.vocab_size) == (1 / size, size + 1)
    half = 0.5 * sum(test.values()) / num_bytes
    assert task.has_converged({"bits_per_byte": bits / num_bytes - half - 1e-9})
    assert not task.has_converged({"bits_per_byte": bits / num_bytes - half + 1e-9})
    told = task.provenance()
    assert (told["tokenizer"], told["vocabulary"], len(told["tokenizer_sha256"])) == ("bpe", size, 64)
    assert told["bytes_per_token"] == pytest.approx(num_bytes / sum(test.values()), abs=1e-4)


def test_targets_stand_for_their_bytes(tmp_path: Path) -> None:
    folder = write(tmp_path / "files", [PROSE * 9, PROSE[::-1] * 9, PROSE * 10])
    task = text(folder, tokenizer="bpe", vocabulary=300)
    for batch in (
        task.sample(4, 8, generator(), split="train", causal=True),
        task.evaluation(3, 8, generator(), causal=True),
        task.windows(torch.tensor([8, 9]), 8, causal=True),
    ):
        assert torch.equal(batch.target_bytes, task._widths[batch.targets])
        assert (batch.tokens[:, 0] == task.vocab_size - 1).all()
        assert torch.equal(batch.part(slice(1, 2)).target_bytes, batch.target_bytes[1:2])
        assert batch.to(torch.device("meta")).target_bytes.device.type == "meta"
    assert batch.target_bytes.max() > 1


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"vocabulary": 500}, r"task\.vocabulary=500 changes nothing for bytes"),
        ({"tokenizer": "bpe", "vocabulary": 255}, r"task\.vocabulary must be a whole number of at least 256; got 255"),
        ({"tokenizer": "byte"}, r"task\.tokenizer must be one of bytes, bpe; got 'byte'\. Did you mean 'bytes'"),
        ({"documents": "apart"}, r"task\.documents must be one of joined, whole"),
        ({"column": "body"}, r"task\.column='body' changes nothing without a data set"),
        ({"dataset": "a/b"}, r"task\.path=.* and task\.dataset='a/b' cannot both be read"),
        ({"dataset": ""}, r"task\.dataset='' names nothing"),
    ],
)
def test_knobs_that_contradict_are_refused(knobs: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        text(write(tmp_path / "files", [PROSE * 9] * 3), **knobs)


# ------------------------------------------------------------------------------------------------ documents

SIZES = [40, 8, 100, 3, 60, 33, 7, 90]


def numbered(sizes: list[int]) -> Documents:
    """Every token is its place."""
    return Documents(torch.arange(sum(sizes)), torch.tensor(sizes))


def windows_of(sizes: list[int], length: int) -> set[tuple[int, ...]]:
    """Every window inside a document, one after another."""
    found, begin = set(), 0
    for size in sizes:
        found |= {tuple(range(start, start + length)) for start in range(begin, begin + size - length + 1)}
        begin += size
    return found


@pytest.mark.parametrize("length", [1, 3, 8, 33, 100])
def test_windows_of_whole_documents_are_complete(length: int) -> None:
    found = Counter(map(tuple, numbered(SIZES).draw(20_000, length, generator()).tolist()))
    allowed = windows_of(SIZES, length)
    assert set(found) == allowed
    assert max(found.values()) / 20_000 < 2.5 / len(allowed), "each as likely as any other"


def test_the_longest_documents_come_first_where_few_fill_a_stretch() -> None:
    documents = numbered(SIZES)
    begins = [sum(SIZES[:place]) for place in range(len(SIZES))]
    longest = {begins[place] + step for place in (2, 7) for step in range(80)}
    for length in (1, 2, 5, 10, 30):
        found = documents.stretches(160, length, 80, generator())
        assert set(map(tuple, found.tolist())) <= windows_of(SIZES, length)
        read = found.flatten().tolist()
        assert len(set(read)) == len(read)
        assert set(read) <= longest
        assert 160 - 2 * length < len(read) <= 160
    assert documents.stretches(5, 80, 80, generator()).tolist()[0][0] in (begins[2], begins[7]), "one, at least"
    every = documents.stretches(10**6, 8, 80, generator())
    assert len(every) == sum(size // 80 * 10 + size % 80 // 8 for size in SIZES)
    assert set(map(tuple, every.tolist())) <= windows_of(SIZES, 8)


def test_whole_documents_from_files(tmp_path: Path) -> None:
    contents = [bytes([97 + n]) * (40 + n) for n in range(12)]
    folder = write(tmp_path / "files", contents)
    task = text(folder, 16, documents="whole")
    for batch in (
        task.sample(200, 16, generator(), split="train", causal=True),
        task.evaluation(9, 16, generator(), causal=True),
    ):
        assert all(len(set(window)) == 1 for window in batch.targets.tolist())
    joined = text(folder, 16).sample(200, 16, generator(), split="train", causal=True)
    assert any(len(set(window)) == 2 for window in joined.targets.tolist())
    longest = task.splits["test"].longest
    assert task.evaluation(9, longest, generator(), causal=True).targets.shape == (1, longest)
    with pytest.raises(Unsupported, match=rf"window of 99 bytes is longer than any document.*longest has {longest}"):
        task.evaluation(9, 99, generator(), causal=True)
    with pytest.raises(Unsupported, match="no running text"):
        task.windows(torch.tensor([20]), 8, causal=True)
    assert task.running_length == 0
    with pytest.raises(ValueError, match=r"no document of 60 bytes for test, the longest has \d+.*documents=joined"):
        text(folder, 60, documents="whole")
    told = task.provenance()
    assert (told["documents"], sum(told["documents_by_split"].values())) == ("whole", 12)
    assert text(folder, 16).provenance()["boundary"] == "no mark"


@given(st.lists(st.integers(0, 30), min_size=1, max_size=40), st.integers(1, 3))
@settings(max_examples=100, deadline=None)
def test_splits_hold_every_byte_once_and_in_order(sizes: list[int], count: int) -> None:
    documents = [bytes([number]) * size for number, size in enumerate(sizes)]
    splits = held_out(documents, _corpus.SPLITS[-count:])
    assert b"".join(part for parts in splits.values() for part in parts) == b"".join(documents)
    assert list(splits) == list(_corpus.SPLITS[-count:])
    share = _corpus.HELD_OUT * sum(sizes)
    for name in list(splits)[: -1 if sum(sizes) >= count else 0]:
        assert share / 2 <= sum(map(len, splits[name])) <= max(2 * share, math.ceil(share))


@pytest.mark.parametrize(
    ("sizes", "held"),
    [
        ([10] * 12, [20, 20, 80]),
        ([10] * 5, [10, 10, 30]),
        ([10] * 4, [4, 4, 32]),
        ([200_000, 1000, 1000, 1000], [20_300, 20_300, 162_400]),
        ([1000, 1000, 1000, 200_000], [20_300, 20_300, 162_400]),
        ([100] * 10 + [4000], [500, 500, 4000]),
        ([100] * 6 + [4000], [460, 460, 3680]),
    ],
)
def test_documents_are_split_whole_where_that_comes_near_a_tenth(sizes: list[int], held: list[int]) -> None:
    documents = [bytes([number]) * size for number, size in enumerate(sizes)]
    splits = held_out(documents, _corpus.SPLITS)
    assert [sum(map(len, parts)) for parts in splits.values()] == held
    whole = all(part in documents for parts in splits.values() for part in parts)
    assert whole == (held[0] % sizes[0] == 0)


# ------------------------------------------------------------------------------------------------ no text


def refusal(folder: Path, **knobs: Any) -> str:
    with pytest.raises(ValueError) as refused:  # noqa: PT011  what it says is asked of the string
        text(folder, **knobs)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_binary_files_are_refused_by_name(tmp_path: Path) -> None:
    folder = write(tmp_path / "files", [PROSE * 9] * 3 + [b"\x89PNG\0\0"])
    assert "3.txt" in (said := refusal(folder))
    assert "not text" in said
    assert refusal(folder / "3.txt") == said
    assert "not text" in refusal(write(tmp_path / "wide", ["wide".encode("utf-16")]))


def test_any_encoding_is_read_and_noted(tmp_path: Path) -> None:
    latin = "Käse und Brot\n".encode("latin-1")
    folder = write(tmp_path / "files", [latin * 20, PROSE * 9, latin * 21, PROSE * 10])
    for knobs in ({}, {"tokenizer": "bpe"}):
        task = text(folder, **knobs)
        assert task.provenance()["not_utf8"] == 2
        read = b"".join(task.spelled[t] for held in task.splits.values() for t in held.tokens.tolist())
        assert Counter(read) == Counter(latin * 41 + PROSE * 19)


def test_what_cannot_be_read_is_not_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "files", [PROSE * 9] * 3)
    (folder / "gone.txt").symlink_to(tmp_path / "nowhere")
    assert "gone.txt" in (said := refusal(folder))
    assert "link" in said
    (folder / "gone.txt").unlink()
    (folder / "more").symlink_to(tmp_path)
    assert "more" in refusal(folder)
    (folder / "more").unlink()
    locked = write(folder / "locked", [PROSE])

    def scandir(place: Any) -> Any:
        if Path(place) == locked:
            raise PermissionError(13, "Permission denied", str(place))
        return real(place)

    real = os.scandir
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", scandir)
        assert "locked' cannot be read (Permission denied)" in refusal(folder)

    def read_bytes(place: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(place))

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    assert "0.txt' cannot be read (Permission denied)" in refusal(folder)


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "holds no text"), (b"short", "leaves 1 bytes for test"), (b"abc " * 30, "leaves 12 bytes for test")],
)
def test_too_little_text_is_refused(content: bytes, said: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "files", [content])
    assert said in refusal(folder, train_length=16)
    assert said in refusal(folder / "0.txt", train_length=16)


def test_a_training_length_beyond_the_corpus_is_refused(tmp_path: Path) -> None:
    said = refusal(write(tmp_path / "files", [PROSE * 9] * 3), train_length=10**8)
    assert "task.train_length=100000000; give it more text or a shorter train_length" in said
    assert "any document" not in said


# ------------------------------------------------------------------------------------------------ bits per byte

ASKED: dict[str, dict[str, Any]] = {
    "length_extrapolation": {"multiples": (1.0, 2.0), "samples": 4},
    "permutation_sensitivity": {"samples": 4},
    "shift_sensitivity": {"shifts": (3,), "samples": 4},
    "context_use": {"multiples": (1.0, 2.0), "samples": 4},
    "context_extension": {"multiples": (1.0,), "samples": 4},
}


@pytest.mark.parametrize("name", ASKED)
def test_every_experiment_tells_bits_per_byte(name: str, tmp_path: Path) -> None:
    """A model that says next to nothing needs the same bits for every token."""
    lines = [b"%d words that come again and again, in another order %d\n" % (n * n, n % 7) for n in range(900)]
    folder = write(tmp_path / "corpus", [b"".join(lines[start : start + 50]) for start in range(0, 900, 50)])
    task = text(folder, 16, tokenizer="bpe", vocabulary=320)
    geometry = Geometry(model_dim=8, num_heads=2, num_layers=1, train_length=16)
    model = Transformer(task.vocab_size, geometry, pe_zoo.build("rope", geometry))
    model.unembedding.weight.data *= 1e-4
    labels: dict[str, Any] = {"run_id": "run", "encoder": "x", "positions": "x", "task": "text", "seed": 0}
    subject = Subject(
        model=model,
        initial=lambda: model,
        trained=False,
        task=task,
        numbering=pe_zoo.numberings.build("sequential"),
        seed=0,
        labels=labels | {"train_length": 16},
    )
    rows = load_experiment(name).measure(subject, **ASKED[name])
    found = [row for row in rows if row.metric == "bits_per_byte" and row.status == "ok"]
    assert found
    per_token = math.log2(task.vocab_size)
    for row in found:
        num_bytes = per_token * row.n / row.value
        assert num_bytes == pytest.approx(round(num_bytes), abs=0.02), row
        assert 1.5 < num_bytes / row.n < 6, row
        assert row.chance < task.chance("bits_per_byte", 16)
    if name == "length_extrapolation":
        for row in found:
            batch, _ = subject.question(name, 4, row.eval_length)
            assert row.n == batch.targets.numel() == 64
            assert row.value == pytest.approx(per_token * 64 / int(batch.target_bytes.sum()), rel=1e-4)
        losses = [row.value for row in rows if row.metric == "position_loss"]
        assert losses == pytest.approx([per_token] * len(losses), rel=1e-4), "bits per token"


def test_a_run_records_its_tokenizer(command: Command, tmp_path: Path) -> None:
    write(tmp_path / "corpus", [b"%d words that come again and again %d\n" % (n, n * n) * 30 for n in range(9)])
    done = command(
        *("task=text", "task.path=corpus", "task.tokenizer=bpe", "task.vocabulary=320", "task.train_length=16"),
        *(
            "figures=false",
            "model=tiny",
            "train.steps=2",
            "train.rounds=1",
            "experiment=length_extrapolation",
            "length_extrapolation.multiples=[1]",
        ),
    )
    assert done.code == 0, done.err
    (place,) = (tmp_path / "results" / "scratch" / "runs").iterdir()
    corpus = json.loads((place / "run.json").read_text())["corpus"]
    assert (corpus["tokenizer"], len(corpus["tokenizer_sha256"])) == ("bpe", 64)
    assert command("task=text", "task.vocabulary=320").code == 2
