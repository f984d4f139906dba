"""Tasks: right answers, shown to nobody before they are asked for, and guesses that are as good as they say."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import draw, generator

from experiments.model.layout import Layout
from experiments.plan.prepare import prepare
from experiments.plan.refusal import BadRequest
from experiments.plan.request import ModelConfig, RunConfig
from experiments.statistics.intervals import bounded
from experiments.tasks import tasks
from experiments.training.config import TrainConfig
from pe_zoo import Unsupported

SOLVERS: dict[str, Callable[[list[int]], list[int]]] = {
    "copy": list,
    "reverse": lambda word: [word[-1 - place] for place in range(len(word))],
    "sort": lambda word: [symbol for symbol in range(max(word) + 1) for _ in range(word.count(symbol))],
}


# ------------------------------------------------------------------------------------------------ transduction


@pytest.mark.parametrize("name", SOLVERS)
@given(st.integers(1, 12), st.integers(2, 9), st.booleans(), st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_the_answer_is_right_and_stands_where_it_is_asked(
    name: str, length: int, num_symbols: int, causal: bool, seed: int
) -> None:
    task = tasks.build(name, num_symbols=num_symbols)
    batch = draw(task, length, causal=causal, seed=seed)
    begin, mark = num_symbols, num_symbols + 1
    size = task.sequence_length(length)
    assert batch.tokens.shape == batch.targets.shape == (8, size) == (8, 2 * length + 1)
    assert batch.tokens.dtype == batch.targets.dtype == torch.int64
    assert (batch.counted.shape, batch.counted.dtype) == ((size,), torch.bool)
    assert batch.counted.tolist() == [place > length for place in range(size)]
    assert task.vocab_size == num_symbols + 2
    assert 0 <= int(batch.tokens.min()) <= int(batch.tokens.max()) < task.vocab_size
    span = task.input_span(length)
    for tokens, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
        word = tokens[span]
        assert len(word) == length
        assert all(symbol < num_symbols for symbol in word)
        assert tokens[:1] == [begin]
        answer = SOLVERS[name](word)
        assert [target for target, counts in zip(targets, batch.counted.tolist(), strict=True) if counts] == answer
        # A causal model may read the answer up to, and not including, what it is asked for.
        assert tokens[span.stop :] == ([mark, *answer[:-1]] if causal else [mark] * length)


@pytest.mark.parametrize("name", SOLVERS)
def test_both_kinds_of_model_get_the_same_words(name: str) -> None:
    task = tasks.build(name)
    one, other = draw(task, 6, causal=True), draw(task, 6, causal=False)
    assert torch.equal(one.tokens[:, :7], other.tokens[:, :7])
    assert torch.equal(one.targets, other.targets)
    assert not torch.equal(one.tokens, other.tokens)


@pytest.mark.parametrize("name", SOLVERS)
def test_words_are_drawn_from_the_generator_alone_and_uniformly(name: str) -> None:
    task, before = tasks.build(name, num_symbols=5), torch.random.get_rng_state()
    batch = draw(task, 10, 2000)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(batch.tokens, draw(task, 10, 2000).tokens)
    assert not torch.equal(batch.tokens, draw(task, 10, 2000, seed=1).tokens)
    for place in range(1, 11):
        counts = torch.bincount(batch.tokens[:, place], minlength=5)
        assert (counts - 400).abs().max() < 5 * 320**0.5
    source = generator()
    assert not torch.equal(
        task.evaluation(8, 6, source, causal=True).tokens, task.evaluation(8, 6, source, causal=True).tokens
    )


def best_guess_by_enumeration(
    solve: Callable[[list[int]], list[int]], length: int, num_symbols: int
) -> dict[str, float]:
    """What the best guess gets that knows place and length alone: the likeliest symbol at each place, and word."""
    answers = [tuple(solve(list(word))) for word in itertools.product(range(num_symbols), repeat=length)]
    per_place = [Counter(answer[place] for answer in answers).most_common(1)[0][1] for place in range(length)]
    return {
        "token_accuracy": sum(per_place) / length / len(answers),
        "exact_match": Counter(answers).most_common(1)[0][1] / len(answers),
    }


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize(
    ("length", "num_symbols"), [(1, 2), (1, 5), (2, 2), (3, 3), (4, 3), (5, 2), (5, 4), (6, 3), (7, 2), (3, 7)]
)
def test_the_position_guess_is_the_best_there_is(name: str, length: int, num_symbols: int) -> None:
    task = tasks.build(name, num_symbols=num_symbols)
    for metric, best in best_guess_by_enumeration(SOLVERS[name], length, num_symbols).items():
        assert task.position_guess(metric, length) == pytest.approx(best, abs=1e-12)
        assert task.chance(metric, length) <= best + 1e-12
    assert task.chance("token_accuracy", length) == pytest.approx(1 / num_symbols)
    assert task.chance("exact_match", length) == pytest.approx(num_symbols**-length)


@pytest.mark.parametrize("length", [16, 40])
def test_the_position_guess_of_sort_holds_on_draws(length: int) -> None:
    task = tasks.build("sort")
    batch = draw(task, length, 4000)
    answers = batch.targets[:, batch.counted]
    likeliest = draw(task, length, 20000, seed=1).targets[:, batch.counted].mode(0).values
    assert (answers == likeliest).double().mean().item() == pytest.approx(
        task.position_guess("token_accuracy", length), abs=0.01
    )
    assert task.position_guess("token_accuracy", length) > 2 * task.chance("token_accuracy", length)


@pytest.mark.parametrize("name", SOLVERS)
def test_a_learned_task_is_told_from_one_that_was_not(name: str) -> None:
    task = tasks.build(name)
    assert task.has_converged({"token_accuracy": 0.999, "exact_match": 0.9})
    assert not task.has_converged({"token_accuracy": 0.9, "exact_match": 0.1})
    assert task.provenance() is None


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match=r"no task named 'sorting'\. Did you mean 'sort'\?"):
        tasks.build("sorting")
    with pytest.raises(ValueError, match=r"copy has no knob 'trainlength'\. Did you mean 'train_length'\?"):
        tasks.build("copy", trainlength=3)
    with pytest.raises(ValueError, match=r"min_length=9 exceeds task\.train_length=8"):
        tasks.build("copy", train_length=8, min_length=9)


def test_a_batch_moves_whole() -> None:
    batch = draw(tasks.build("copy"), 3)
    moved = batch.to(torch.device("meta"))
    assert {moved.tokens.device.type, moved.targets.device.type, moved.counted.device.type} == {"meta"}


# -------------------------------------------------------------------------------------------------------- text


def marked(number: int, size: int) -> bytes:
    """Text that says which file and place each byte is from: no three bytes occur twice in a corpus."""
    return b"".join(bytes([100 + number, 1 + i // 90, 1 + i % 90]) for i in range(size))[:size]


def corpus(folder: Path, sizes: list[int]) -> Path:
    for number, size in enumerate(sizes):
        place = folder / f"part{number % 2}"
        place.mkdir(exist_ok=True, parents=True)
        (place / f"{number}.txt").write_bytes(marked(number, size))
    return folder


def splits(task: Any) -> dict[str, bytes]:
    return {name: bytes(text.tokens.tolist()) for name, text in task.splits.items()}


def text(path: Path, train_length: int = 8) -> Any:
    return tasks.build("text", path=str(path), train_length=train_length)


@pytest.mark.parametrize("sizes", [[300] * 10, [300, 500, 400, 600, 350, 450, 550], [30] * 40])
def test_text_is_split_by_file(tmp_path: Path, sizes: list[int]) -> None:
    found = splits(text(corpus(tmp_path, sizes)))
    files = {number: marked(number, size) for number, size in enumerate(sizes)}
    assert set(found) == {"test", "validation", "train"}
    assert sum(map(len, found.values())) == sum(sizes)
    for number, content in files.items():
        holders = [name for name, held in found.items() if content in held]
        assert len(holders) == 1, f"file {number} is in {holders}"
    if sizes == [300] * 10:
        assert {name: len(held) for name, held in found.items()} == {"test": 300, "validation": 300, "train": 2400}


def test_text_of_one_great_file_and_small_ones_is_cut_by_place(tmp_path: Path) -> None:
    """Whichever file comes first in the order of the hash."""
    for great in range(6):
        folder = corpus(tmp_path / str(great), [4000 if number == great else 40 for number in range(6)])
        found = splits(text(folder))
        assert {name: len(held) for name, held in found.items()} == {"test": 420, "validation": 420, "train": 3360}


@pytest.mark.parametrize(
    "sizes", [[1000], [700, 300], [400, 400, 400], [5000, 100, 100, 100], [50, 900, 60, 70, 1000, 80, 90]]
)
def test_few_files_or_very_unequal_ones_are_cut_by_place(tmp_path: Path, sizes: list[int]) -> None:
    found = splits(text(corpus(tmp_path, sizes)))
    tenth = sum(sizes) // 10
    assert {name: len(held) for name, held in found.items()} == {
        "test": tenth,
        "validation": tenth,
        "train": sum(sizes) - 2 * tenth,
    }
    together = found["test"] + found["validation"] + found["train"]
    orders = itertools.permutations(marked(number, size) for number, size in enumerate(sizes))
    assert together in [b"".join(order) for order in orders]


def test_a_file_alone_may_be_given_itself(tmp_path: Path) -> None:
    file = tmp_path / "book.txt"
    file.write_bytes(marked(3, 500))
    task = text(file)
    told = task.provenance()
    assert {key: told[key] for key in ("source", "files", "bytes")} == {"source": "book.txt", "files": 1, "bytes": 500}


def test_the_hash_says_what_was_read_whatever_the_order(tmp_path: Path) -> None:
    one, other = corpus(tmp_path / "one", [200] * 5), tmp_path / "other"
    for file in sorted(one.rglob("*.txt"), reverse=True):
        place = other / file.relative_to(one)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(file.read_bytes())
    here, there = text(one), text(other)
    assert here.provenance()["sha256"] == there.provenance()["sha256"]
    assert len(here.provenance()["sha256"]) == 64
    assert splits(here) == splits(there)
    (other / ".hidden").write_text("not read")
    assert text(other).provenance()["sha256"] == here.provenance()["sha256"]
    changed = [(other / "part0" / "0.txt", b"!")]
    for file, more in changed:
        file.write_bytes(file.read_bytes() + more)
    assert text(other).provenance()["sha256"] != here.provenance()["sha256"]
    file.write_bytes(file.read_bytes()[:-1])
    file.rename(other / "part0" / "renamed.txt")
    assert text(other).provenance()["sha256"] != here.provenance()["sha256"]


def test_the_hash_is_the_same_on_every_machine(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"abc" * 50)
    parts = hashlib.sha256(b"a.txt").digest() + hashlib.sha256(b"abc" * 50).digest()
    assert text(tmp_path).provenance()["sha256"] == hashlib.sha256(parts).hexdigest()


def test_a_path_without_text_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "blank.txt").write_bytes(b"")
    for path, said in [
        (tmp_path / "nowhere", "does not exist"),
        (tmp_path / "empty", "holds no text"),
        (tmp_path / "blank.txt", "holds no text"),
    ]:
        with pytest.raises(ValueError, match=rf"task\.path=.*{path.name}.*{said}") as refusal:
            text(path)
        assert "\n" not in str(refusal.value)
    with pytest.raises(ValueError, match=r"leaves 30 bytes for test, .*train_length=64"):
        text(corpus(tmp_path / "small", [30] * 10), train_length=64)


def test_the_next_byte_is_asked_for_and_not_shown(tmp_path: Path) -> None:
    task = text(corpus(tmp_path, [300] * 10))
    for batch in (draw(task, 12, 50), task.evaluation(6, 12, generator(), causal=True)):
        assert batch.tokens.shape[1] == task.sequence_length(12) == 12
        assert (batch.tokens[:, 0] == 256).all()
        assert torch.equal(batch.tokens[:, 1:], batch.targets[:, :-1])
        assert batch.counted.all()
        assert task.vocab_size == 257
        assert 0 <= int(batch.targets.min()) <= int(batch.targets.max()) <= 255
    with pytest.raises(ValueError, match=r"task=text.*model\.causal=true"):
        draw(task, 12, causal=False)


def test_windows_come_from_their_own_split_and_all_of_it(tmp_path: Path) -> None:
    task = text(corpus(tmp_path, [300] * 10))
    held = splits(task)
    for split, content in held.items():
        windows = {bytes(row) for row in draw(task, 12, 4000, split=split).targets.tolist()}
        assert all(window in content for window in windows)
        assert content[:12] in windows or split == "train"
        assert content[-12:] in windows or split == "train"
        assert not any(window in held["test"] for window in windows if split == "train")
    with pytest.raises(Unsupported, match="301"):
        draw(task, 301, split="test")
    assert draw(task, 300, split="test").tokens.shape == (8, 300)


def test_windows_of_all_lengths_cover_the_same_test_bytes(tmp_path: Path) -> None:
    task = text(corpus(tmp_path, [3000] * 10))
    content = splits(task)["test"]
    stretches = [content[start : start + 64] for start in range(0, 2944, 64)]
    for samples in (24, 30):
        read = {}
        for length in (8, 16, 20, 32, 64):
            batch = task.evaluation(samples, length, generator(), causal=True)
            rows = [bytes(row) for row in batch.targets.tolist()]
            read[length] = {byte for row in rows for byte in range(content.index(row), content.index(row) + length)}
            assert len(read[length]) == len(rows) * length, "no byte twice"
            assert all(any(row in stretch for stretch in stretches) for row in rows)
            assert samples * 8 - 64 < len(rows) * (64 / (64 // length)) <= samples * 8
        if samples == 24:
            assert read[20] < read[8] == read[16] == read[32] == read[64]


def test_test_windows_are_drawn_from_the_whole_split_by_seed(tmp_path: Path) -> None:
    task = text(corpus(tmp_path, [3000] * 10))
    content = splits(task)["test"]
    first, again, other = (task.evaluation(24, 8, generator(seed), causal=True).targets for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    places = Counter()
    for seed in range(300):
        rows = task.evaluation(8, 8, generator(seed), causal=True).targets.tolist()
        places[content.index(bytes(rows[0])) // 64] += 1
    assert set(places) == set(range(46)), "any full stretch"
    assert max(places.values()) < 20
    for seed in range(50):
        rows = task.evaluation(24, 8, generator(seed), causal=True).targets[::8].tolist()
        drawn = [content.index(bytes(row)) // 64 for row in rows]
        assert [(stretch >= 15) + (stretch >= 30) for stretch in drawn] == [0, 1, 2], "one of each third"
    everything = task.evaluation(10**6, 8, generator(), causal=True).targets
    assert sorted(content.index(bytes(row)) for row in everything.tolist()) == list(range(0, 3000, 8))
    assert task.evaluation(10**6, 1000, generator(), causal=True).tokens.shape == (2, 1000)
    assert task.evaluation(1, 3000, generator(), causal=True).tokens.shape == (1, 3000)
    with pytest.raises(Unsupported, match="longer than the test text"):
        task.evaluation(1, 3001, generator(), causal=True)


def test_the_guess_from_byte_frequencies_by_hand(tmp_path: Path) -> None:
    content = b"aaaaaaab" * 100
    (tmp_path / "a.txt").write_bytes(content)
    task = tasks.build("text", path=str(tmp_path), train_length=8, duplicates="kept")
    train, test = Counter(splits(task)["train"]), Counter(splits(task)["test"])
    total = sum(train.values()) + 256
    bits = -sum(count * math.log2((train[byte] + 1) / total) for byte, count in test.items()) / sum(test.values())
    assert task.position_guess("bits_per_byte", 8) == pytest.approx(bits, abs=1e-12)
    assert bits < 2
    assert task.position_guess("token_accuracy", 8) == pytest.approx(test[ord("a")] / sum(test.values()))
    assert task.chance("bits_per_byte", 8) == 8
    assert task.chance("token_accuracy", 8) == 1 / 256
    assert task.has_converged({"bits_per_byte": bits - 0.6})
    assert not task.has_converged({"bits_per_byte": bits - 0.4})


def test_the_default_corpus_is_text_enough() -> None:
    task: Any = tasks.build("text")
    assert task.provenance()["files"] > 100
    assert min(len(held) for held in splits_sizes(task)) > 200_000
    assert 3 < task.position_guess("bits_per_byte", 128) < 6
    assert b"import" in bytes(task.splits["test"].tokens[:200_000].tolist())


def test_intervals_over_seeds_contain_the_choice_of_files() -> None:
    """The mean over the whole test split of a quantity that differs from file to file; 200 times five seeds."""
    task: Any = tasks.build("text")
    bits = -task._guess.log2()
    split = float(bits[task.splits["test"].tokens.long()].mean())
    drawn = [task.evaluation(256, 128, generator(seed), causal=True).targets for seed in range(1000)]
    values = torch.tensor([float(bits[targets].mean()) for targets in drawn], dtype=torch.float64).view(200, 5).numpy()
    assert values.mean() == pytest.approx(split, abs=0.01)
    assert values.std() > 0.02
    ends = [bounded(of_seeds, (0, math.inf)) for of_seeds in values]
    known = [(low, high) for low, high in ends if not math.isnan(low)]
    assert len(known) > 150
    assert 0.9 < sum(low <= split <= high for low, high in known) / len(known) < 0.99


def splits_sizes(task: Any) -> list[Any]:
    return list(task.splits.values())


@pytest.mark.parametrize("name", tasks.names())
def test_only_the_input_may_be_permuted(name: str, tmp_path: Path) -> None:
    task: Any = text(corpus(tmp_path, [300] * 10)) if name == "text" else tasks.build(name)
    for length in (2, 3, 8, 40):
        if length < task.shortest:
            continue
        span = task.input_span(length)
        size = task.sequence_length(length)
        assert 1 <= span.start < span.stop <= size
        batch = draw(task, length)
        assert batch.counted[span.stop :].any() or length < 3


# ------------------------------------------------------------------------------------------------ all tasks

VARIANTS = [
    *((name, {}) for name in tasks.names()),
    ("addition", {"reverse": "neither"}),
    ("addition", {"zero_padded": False}),
    ("modular_arithmetic", {"scratchpad": False}),
    ("parity", {"scratchpad": True}),
    ("copy", {"unique": True, "num_symbols": 64}),
    ("s5", {"group": "z60", "generators": "all"}),
]
NEXT_TOKEN = {"dyck", "needles", "scan", "text"}
"""Tasks that say one thing after another, or show their answers, and mean nothing to a bidirectional model."""
COUPLED = {
    *("addition", "copy", "duplicate_string", "lego", "missing_duplicate", "modular_arithmetic", "odds_first"),
    *("parity(scratchpad=True)", "reverse", "reverse_string"),
}
NEITHER = {"modular_arithmetic(scratchpad=False)"}
READ_ON = {
    *("addition", "copy", "counting", "flip_flop", "modular_arithmetic", "parity(scratchpad=True)", "passkey"),
    *("needles", "reverse", "scan", "selective_copy", "sort", "text"),
}
"""Tasks whose right answers a causal model reads next, so that its own may be put in their place."""
ASKED_ONCE = {
    *("cycle_navigation", "digits", "even_pairs", "majority", "missing_duplicate", "mode", "modular_arithmetic_simple"),
    *("modular_arithmetic(scratchpad=False)", "parity", "parity_check", "precedence", "solve_equation"),
}
"""Tasks with one answer at the very end, after which nothing is read."""
READ_NOWHERE = {
    *("above", "associative_recall", "binary_addition", "bucket_sort", "duplicate_string", "dyck", "indirect_indexing"),
    *("lego", "mqar", "odds_first", "reverse_string", "s5", "stack_manipulation"),
}
"""Tasks that ask at blanks, at keys, or beside a text of its own: what is read next is not what was asked for."""


@pytest.mark.parametrize(("name", "knobs"), VARIANTS, ids=lambda value: str(value))
def test_answers_are_read_next_or_nowhere(name: str, knobs: dict[str, Any], tmp_path: Path) -> None:
    """Free-running answers can be read off a batch: of each scored place, all right answers are read next, or few."""
    said = f"{name}({', '.join(f'{knob}={value}' for knob, value in knobs.items())})"
    kinds = [said in kind or (name in kind and said not in ASKED_ONCE | READ_ON) for kind in (READ_ON, ASKED_ONCE)]
    kinds.append(name in READ_NOWHERE)
    assert sum(kinds) == 1, f"{said} is of no kind, or of two"
    (tmp_path / "book.txt").write_text("".join(f"Line {number}.\n" for number in range(1000)))
    task: Any = text(tmp_path) if name == "text" else tasks.build(name, **knobs)
    length = min(task.train_length, 30)
    for batch in (draw(task, length, 64), task.evaluation(64, length, generator(), causal=True)):
        share = (batch.tokens[:, 1:] == batch.targets[:, :-1]).double().mean(0)[batch.counted[:-1]]
        read_on, asked_once, _ = kinds
        if asked_once:
            assert batch.counted.tolist() == [False] * (len(batch.counted) - 1) + [True]
        else:
            assert len(share) > 0
            assert (share == 1).all() if read_on else (share < 0.9).all()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("name", "knobs"), VARIANTS, ids=lambda value: str(value))
def test_a_run_of_every_task_composes(
    name: str, knobs: dict[str, Any], causal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = {"path": str(corpus(tmp_path, [3000] * 10))} if name == "text" else {}
    request = RunConfig(
        encoder={"name": "rope"},
        task={"name": name, **path, **knobs},
        positions={"name": "sequential"},
        layout=Layout(),
        model=ModelConfig(causal=causal),
        train=TrainConfig(),
        experiments={},
        seed=0,
        name="composed",
    )
    if name in NEXT_TOKEN and not causal:
        with pytest.raises(BadRequest, match=rf"^task={name} .*needs a causal model: set model\.causal=true"):
            prepare(request)
        return
    plan = prepare(request)
    assert plan.geometry.train_length == plan.task.sequence_length(plan.task.train_length)
    said = f"{name}({', '.join(f'{knob}={value}' for knob, value in knobs.items())})"
    request.positions = {"name": "coupled"}
    if (name in COUPLED and said not in NEITHER) or said in COUPLED:
        prepare(request)
    else:
        with pytest.raises(BadRequest, match=f"task={name} offers no coupled positions"):
            prepare(request)
