"""What holds for every task: guesses get what they are said to, examples are as written, bad requests are refused."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from support import Command, draw, generator
from torch import Tensor

from experiments.tasks import Task, flip_flop, tasks
from experiments.tasks import lego as lego_module
from experiments.tasks import scan as scan_module
from pe_zoo import Unsupported
from pe_zoo._knobs import knobs as knobs_of

NAMES = [name for name in tasks.names() if name not in ("text", "needles")]
NEEDS_CAUSAL = {"dyck", "scan"}


# ----------------------------------------------------------------------------------------------------------- guesses

TURNED: list[tuple[str, dict[str, Any]]] = [
    ("addition", {"reverse": "neither", "zero_padded": False, "base": 3}),
    ("addition", {"index_hints": 40, "base": 4}),
    ("associative_recall", {"num_values": 3}),
    ("bucket_sort", {"num_symbols": 3}),
    ("copy", {"unique": True, "num_symbols": 17}),
    ("cycle_navigation", {"cycle_length": 3}),
    ("dyck", {"kinds": 1, "max_depth": 5}),
    ("flip_flop", {"ignores": 0.1}),
    ("indirect_indexing", {"num_symbols": 40, "max_offset": 9}),
    ("mode", {"num_symbols": 2}),
    ("modular_arithmetic", {"index_hints": 40, "modulus": 3}),
    ("modular_arithmetic", {"modulus": 3, "operators": "+-", "scratchpad": False}),
    ("modular_arithmetic", {"modulus": 4, "operators": "+-*"}),
    ("modular_arithmetic_simple", {"modulus": 3}),
    ("mqar", {"num_values": 41, "slots": 1, "power": 1}),
    ("parity", {"scratchpad": True}),
    ("parity", {"scratchpad": True, "index_hints": 40}),
    ("passkey", {"num_symbols": 3, "num_digits": 2}),
    ("s5", {"group": "s3", "generators": "all"}),
    ("s5", {"group": "a5"}),
    ("selective_copy", {"num_symbols": 2, "num_copied": 3}),
    ("solve_equation", {"modulus": 3}),
    ("sort", {"num_symbols": 2}),
]
every_task = pytest.mark.parametrize(("name", "knobs"), [*((name, {}) for name in NAMES), *TURNED], ids=str)
NUM_DRAWS = 4000


def lengths_of(task: Task) -> list[int]:
    return sorted({task.shortest, task.shortest + 1, 5, task.train_length})


def wrong_by(share: float) -> float:
    """What a share of ``NUM_DRAWS`` sequences may be off by: five binomial errors, and as many stray hits."""
    return 5 * (share * (1 - share) / NUM_DRAWS) ** 0.5 + 5 / NUM_DRAWS


def hits(guess: Tensor, answers: Tensor) -> dict[str, float]:
    right = (guess == answers).double()
    return {"token_accuracy": right.mean().item(), "exact_match": right.prod(1).mean().item()}


@every_task
def test_who_knows_only_the_place_gets_no_more_and_no_less(name: str, knobs: dict[str, Any]) -> None:
    """The likeliest answers of half of the draws: on the other half they get no more than the best guess there is, on
    those that they were read off no less."""
    task = tasks.build(name, **knobs)
    for length in lengths_of(task):
        batch = draw(task, length, 2 * NUM_DRAWS, seed=length)
        seen, other = batch.targets[:, batch.counted].split(NUM_DRAWS)
        symbols = seen.mode(0).values
        words, counts = seen.unique(dim=0, return_counts=True)
        for metric, likeliest in {"token_accuracy": symbols, "exact_match": words[counts.argmax()]}.items():
            if metric not in task.metrics:
                continue
            said = task.position_guess(metric, length)
            assert said >= task.chance(metric, length) * (1 - 1e-12)
            assert hits(likeliest, other)[metric] <= said + wrong_by(said), (length, metric)
            assert hits(likeliest, seen)[metric] >= said - wrong_by(said), (length, metric)


@every_task
def test_who_knows_nothing_gets_what_chance_says(name: str, knobs: dict[str, Any]) -> None:
    """Uniform over the symbols that are ever an answer, of which there are as many as chance says."""
    task = tasks.build(name, **knobs)
    longest = task.train_length if name in ("copy", "scan") else 40
    batch = draw(task, longest, NUM_DRAWS)
    alphabet = batch.targets[:, batch.counted].unique()
    assert len(alphabet) == round(1 / task.chance("token_accuracy", longest))
    for length in lengths_of(task):
        batch = draw(task, length, NUM_DRAWS, seed=length)
        answers = batch.targets[:, batch.counted]
        guess = alphabet[torch.randint(len(alphabet), answers.shape, generator=generator(1000))]
        for metric in task.metrics:
            said = task.chance(metric, length)
            assert hits(guess, answers)[metric] == pytest.approx(said, abs=wrong_by(said)), (length, metric)
        if "exact_match" in task.metrics:
            assert task.chance("exact_match", length) == pytest.approx(len(alphabet) ** -float(answers.shape[1]))


# ------------------------------------------------------------------------------------------------- what is documented


def paragraph(name: str, opening: str) -> str:
    found = re.search(rf"^ *{opening}.*?(?=\n *\n|\Z)", str(tasks.get(name).__doc__), re.MULTILINE | re.DOTALL)
    assert found, f"{name} does not say: {opening}"
    return " ".join(found.group().split())


@pytest.mark.parametrize("name", NAMES)
def test_what_is_said_of_guessing_is_so(name: str) -> None:
    # What is said of whole answers is said of scratchpads.
    task = tasks.build(name, **({"scratchpad": True} if name == "parity" else {}))
    by_chance, alone = paragraph(name, "Chance:").split("Best guess from position:")
    known = {knob.name: knob.default for knob in knobs_of(tasks.get(name)).values()}
    length = task.train_length
    for metric, formula in zip(task.metrics, re.findall(r"``(.+?)``", by_chance), strict=True):
        for asked in (3, length):
            assert task.chance(metric, asked) == pytest.approx(eval(formula, {**known, "length": asked}))
    if "no better" in alone:
        guesses = [task.chance(metric, length) for metric in task.metrics]
    else:
        *said, at = re.findall(r"\d[-.\de]*\d|\d+", alone)
        assert int(at) == length
        guesses = [float(number) for number in said]
    for metric, guess in zip(task.metrics, guesses, strict=True):
        assert task.position_guess(metric, length) == pytest.approx(guess, rel=5e-3)


SYMBOLS: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "addition": ({}, {"+": 10}),
    "associative_recall": (
        {"train_length": 3, "num_keys": 3, "num_values": 9},
        {"a": 0, "b": 1, "c": 2, "3": 6, "7": 10},
    ),
    "counting": ({}, {"$": 256}),
    "dyck": ({}, {"(": 0, "[": 1, ")": 2, "]": 3}),
    "flip_flop": ({}, {"w": 2, "i": 3, "r": 4}),
    "lego": (
        {"train_length": 3, "num_variables": 3},
        {"+": lego_module.PLUS, "-": lego_module.MINUS, "1": lego_module.ONE, "|": lego_module.MARK}
        | {name: lego_module.FIRST_VARIABLE + number for number, name in enumerate("abc")},
    ),
    "indirect_indexing": (
        {"train_length": 5, "num_symbols": 5, "max_offset": 2},
        {"-2": 5, "-1": 6, "+1": 7, "+2": 8},
    ),
    "modular_arithmetic": ({}, {"+": 5, "-": 6, "*": 7}),
    "mqar": (
        {"train_length": 2, "num_keys": 2, "num_values": 3, "slots": 1},
        {"a": 0, "b": 1, "4": 2, "5": 3, "6": 4},
    ),
    "passkey": ({"num_digits": 2}, {"a": 12, "b": 13, "c": 14}),
    "scan": ({}, {token: number for number, token in enumerate(scan_module.TOKENS)}),
    "selective_copy": ({"num_copied": 2}, {"_": 12}),
}
"""Knobs that an example is drawn with, and the tokens that are not written as the numbers they are."""


def example(name: str) -> tuple[str, str]:
    """What is read in a docstring's example, and the answers: of two lines below each other, or of the one."""
    lines = str(tasks.get(name).__doc__).splitlines()
    above = [place for place, line in enumerate(lines) if " tokens " in line]
    if not above:
        inline = re.search(r"``(.+?)``", lines[0])
        assert inline
        word, answer = inline.group(1).rsplit("|", 1)
        return word, answer
    tokens = re.search(r"(?<= tokens )\s*(.+?)(\s{4,}|$)", lines[above[0]])
    assert tokens
    targets = lines[above[0] + 1].partition("targets")[2].rjust(len(lines[above[0] + 1]))
    return tokens.group(1), targets[: tokens.end()].replace(".", "").strip()


@pytest.mark.parametrize("name", [name for name in NAMES if name != "digits"])  # its images are no examples to write
def test_the_example_is_so(name: str) -> None:
    """Among many draws is the one that is written, and its answers are those written."""
    knobs, written = SYMBOLS.get(name, ({}, {}))
    task: Any = tasks.build(name, **knobs)
    begin = int(draw(task, task.train_length, 1).tokens[0, 0])
    marks = (
        {"^": begin}
        if name in ("dyck", "flip_flop", "associative_recall", "indirect_indexing", "mqar", "scan")
        else {"^": begin, "|": begin + 1}
    )
    known = {**marks, "_": begin + 1} | written
    given, answer = ([known[s] if s in known else int(s) for s in part.split()] for part in example(name))
    (length,) = {
        length
        for length in range(task.shortest, 20)
        if (task.sequence_length(length) if given[0] == begin else task.input_span(length).stop - 1) == len(given)
        and (name != "modular_arithmetic_simple" or length % 2)
    }
    for seed in range(100):
        batch = draw(task, length, 10_000, seed=seed)
        read = batch.tokens if given[0] == begin else batch.tokens[:, task.input_span(length)]
        alike = (read == torch.tensor(given)).all(1)
        if alike.any():
            break
    assert alike.any(), f"{given} is never drawn"
    assert batch.targets[alike][0, batch.counted].tolist() == answer


# ---------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("name", NAMES)
def test_knobs_that_are_nothing_of_the_kind_are_refused(name: str) -> None:
    for knob in knobs_of(tasks.get(name)):
        for value in ("8", None, -1, 2.5, [4], float("nan")):
            with pytest.raises(ValueError, match=rf"^task\.{knob} must be .*got {re.escape(repr(value))}") as refusal:
                tasks.build(name, **{knob: value})
            assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_trained_on_must_be_a_range(name: str) -> None:
    with pytest.raises(ValueError, match=r"^task\.min_length=6 exceeds task\.train_length=5; lower it$"):
        tasks.build(name, train_length=5, min_length=6)


LIMITS: dict[str, dict[str, int]] = {
    "addition": {"base": 2, "index_hints": 0},
    "associative_recall": {"num_keys": 2, "num_values": 2},
    "cycle_navigation": {"cycle_length": 2},
    "dyck": {"kinds": 1, "max_depth": 1},
    "indirect_indexing": {"num_symbols": 2, "max_offset": 1},
    "lego": {"num_variables": 2},
    "mqar": {"num_keys": 2, "num_values": 2, "slots": 1},
    "passkey": {"num_symbols": 2, "num_digits": 1, "num_fillers": 1},
    "precedence": {"num_symbols": 3},
    "selective_copy": {"num_symbols": 2, "num_copied": 1},
    "modular_arithmetic": {"modulus": 2, "index_hints": 0},
    "parity": {"index_hints": 0},
    **{key: {"modulus": 2} for key in ("modular_arithmetic_simple", "solve_equation")},
    **{key: {"num_symbols": 2} for key in ("above", "bucket_sort", "copy", "counting", "duplicate_string", "mode")},
    **{key: {"num_symbols": 2} for key in ("odds_first", "reverse", "reverse_string", "sort")},
}
"""The least value of each whole number, lengths aside."""


@pytest.mark.parametrize("name", NAMES)
def test_every_whole_number_has_its_limit(name: str) -> None:
    shortest = tasks.get(name).shortest
    limits = {"train_length": shortest, "min_length": shortest} | LIMITS.get(name, {})
    assert limits.keys() == {knob.name for knob in knobs_of(tasks.get(name)).values() if knob.type is int}
    for knob, least in limits.items():
        for value in (least - 1, least + 0.5):
            allowed = rf"^task\.{knob} must be a whole number of at least {least}; got {value}$"
            with pytest.raises(ValueError, match=allowed):
                tasks.build(name, **{knob: value})


@pytest.mark.parametrize(
    ("name", "knobs", "message"),
    [
        ("addition", {"reverse": "al"}, r"task\.reverse must be one of all, answer, neither; got 'al'. Did you mean"),
        ("associative_recall", {"num_keys": 7}, r"task\.train_length=8 exceeds task\.num_keys=7; lower the one"),
        ("copy", {"unique": True}, r"task\.train_length=16 exceeds task\.num_symbols=10; lower the one"),
        ("counting", {"num_symbols": 8}, r"task\.train_length=16 exceeds task\.num_symbols=8; lower the one"),
        ("indirect_indexing", {"num_symbols": 7}, r"task\.train_length=8 exceeds task\.num_symbols=7; lower the one"),
        ("lego", {"train_length": 9, "num_variables": 8}, r"train_length=9 exceeds task\.num_variables=8; lower"),
        ("modular_arithmetic", {"operators": "-"}, r"task\.operators must be one of \+, \+-, \+-\*; got '-'"),
        ("modular_arithmetic", {"modulo": 4}, r"modular_arithmetic has no knob 'modulo'\. Did you mean 'modulus'\?"),
        ("flip_flop", {"ignores": 1.5}, r"task\.ignores must be a finite number at least 0 and at most 1; got 1\.5"),
        ("flip_flop", {"ignores": -0.1}, r"task\.ignores must be a finite number at least 0 and at most 1; got -0\.1"),
        ("mqar", {"num_values": 3}, r"task\.train_length=4 exceeds task\.num_values=3; lower the one or raise the"),
        ("parity", {"index_hints": 20}, r"task\.index_hints=20 needs the scratchpad: set task\.scratchpad=true"),
        ("addition", {"index_hints": 7}, r"task\.train_length=8 exceeds task\.index_hints=7; lower the one or raise"),
        ("s5", {"group": "s4"}, r"task\.group must be one of s5, a5, a4_x_z5, z60, s3; got 's4'"),
        ("s5", {"generators": "pairs"}, r"task\.generators must be one of all, pair; got .* Did you mean 'pair'\?"),
        ("scan", {"train_length": 23}, r"train_length=23: no command has 23 actions; .* 22 and 24; take one of these"),
        ("scan", {"train_length": 50}, r"train_length=50: no command has 50 actions; the nearest have 48; take one"),
        ("stack_manipulation", {"num_symbols": 5}, r"stack_manipulation has no knob 'num_symbols'"),
    ],
)
def test_bad_knobs_are_one_line(name: str, knobs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        tasks.build(name, **knobs)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", NAMES)
def test_lengths_outside_the_limits_are_unsupported(name: str) -> None:
    knobs: dict[str, Any] = {"unique": True, "num_symbols": 64} if name == "copy" else {}
    task = tasks.build(name, **knobs)
    limits = {"associative_recall": 64, "copy": 64, "counting": 256, "lego": 64, "scan": 48} | dict.fromkeys(
        ("indirect_indexing", "mqar"), 64
    )
    longest = limits.get(name, 1200)
    for length in [-1, *range(task.shortest), *([longest + 1, 10**6] if name in limits else [])]:
        for causal in [True] if name in NEEDS_CAUSAL else [True, False]:
            for ask in (task.sample, task.evaluation):
                more = {"split": "test"} if ask == task.sample else {}
                allowed = rf"^task={name}\b.*(at (least|most) \d+\b.*; got|no command has) {length}\b"
                with pytest.raises(Unsupported, match=allowed) as refusal:
                    ask(2, length, generator(), causal=causal, **more)  # type: ignore[operator]
                assert "\n" not in str(refusal.value)
    small = tasks.build(name, **knobs, train_length=task.shortest, min_length=task.shortest)
    for length in (task.shortest, longest):
        batch = draw(small, length, 1, split="test")
        assert batch.tokens.shape == batch.targets.shape == (1, small.sequence_length(length))
        assert batch.counted.any()


@every_task
def test_guesses_stay_between_0_and_1_at_every_length(name: str, knobs: dict[str, Any]) -> None:
    task = tasks.build(name, **knobs)
    for length in (3, 16, 48) if name in ("counting", "scan") else (3, 16, 129, 3000):
        for metric in task.metrics:
            assert 0 <= task.chance(metric, length) <= task.position_guess(metric, length) + 1e-12 <= 1 + 1e-12


@every_task
def test_data_come_from_the_generator_alone(name: str, knobs: dict[str, Any]) -> None:
    task, before = tasks.build(name, **knobs), torch.random.get_rng_state()
    batch, again, other = draw(task, 9, 200), draw(task, 9, 200), draw(task, 9, 200, seed=1)
    source = generator()
    first, second = (task.evaluation(8, 9, source, causal=True).tokens for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), before)
    for part in ("tokens", "targets", "counted"):
        assert torch.equal(getattr(batch, part), getattr(again, part))
    assert not torch.equal(batch.tokens, other.tokens)
    assert not torch.equal(first, second)


# ------------------------------------------------------------------------------------------------------------ numbers

WORDS = ("addition", "copy", "duplicate_string", "missing_duplicate", "odds_first", "reverse", "reverse_string")
OFFERS: dict[str, tuple[str, ...]] = {
    "coupled": (*WORDS, "lego", "modular_arithmetic"),
    "abacus": (
        *(*WORDS, "bucket_sort", "cycle_navigation", "even_pairs", "majority", "mode", "modular_arithmetic_simple"),
        *("parity", "parity_check", "precedence", "solve_equation", "sort"),
    ),
    "other": (),
}


@pytest.mark.parametrize("kind", OFFERS)
@pytest.mark.parametrize("name", NAMES)
def test_numbers_are_offered_or_refused(name: str, kind: str) -> None:
    task = tasks.build(name)
    size = task.sequence_length(5)
    if name in OFFERS[kind]:
        assert task.numbers(kind, size, causal=True).shape == (size,)
        return
    with pytest.raises(ValueError, match=f"task={name} offers no {kind} positions"):
        task.numbers(kind, size, causal=True)


# --------------------------------------------------------------------------------------------------------------- runs


@pytest.mark.parametrize(
    ("name", "options", "multiples", "statuses"),
    [
        ("associative_recall", ["encoder=t5", "task.num_keys=16"], "[0.125,1,8]", {1: "ok", 8: "ok", 64: ""}),
        ("counting", ["encoder=alibi", "task.num_symbols=100"], "[0.5,1,8]", {8: "ok", 16: "ok", 128: ""}),
        ("duplicate_string", ["positions=coupled"], "[0.5,2]", {8: "ok", 32: "ok"}),
        ("dyck", ["encoder=learned"], "[0.125,1,8]", {4: "ok", 32: "ok", 256: "ok"}),
        ("flip_flop", ["task.train_length=8", "model.causal=false"], "[0.125,1,8]", {1: "", 8: "ok", 64: "ok"}),
        ("mode", ["encoder=learned", "positions=abacus"], "[0.5,1,8]", {8: "ok", 16: "ok", 128: "ok"}),
        ("modular_arithmetic", ["task.operators=+-", "positions=coupled"], "[0.5,8]", {8: "ok", 128: "ok"}),
        ("modular_arithmetic_simple", ["task.train_length=8", "model.causal=false"], "[1,2]", {8: "ok", 16: "ok"}),
        ("parity", ["encoder=none", "model.causal=false"], "[0.5,1,8]", {8: "ok", 16: "ok", 128: "ok"}),
        ("precedence", ["positions=abacus", "model.causal=false"], "[0.5,8]", {8: "ok", 128: "ok"}),
        ("scan", ["task.min_length=22", "task.train_length=24"], "[1,1.5,3]", {24: "ok", 36: "ok", 72: ""}),
        ("stack_manipulation", ["model.causal=false"], "[0.5,1,2]", {8: "ok", 16: "ok", 32: "ok"}),
    ],
)
def test_a_run_end_to_end(
    command: Command, tmp_path: Path, name: str, options: list[str], multiples: str, statuses: dict[int, str]
) -> None:
    """Train briefly, then evaluate other lengths and orders of the input; a length that a task lacks is a row."""
    encoder = [] if any(option.startswith("encoder=") for option in options) else ["encoder=sinusoidal"]
    quick = ["figures=false", "model=tiny", "train.steps=3", "train.rounds=1", "permutation_sensitivity.samples=4"]
    lengths = ["length_extrapolation.samples=4", f"length_extrapolation.multiples={multiples}"]
    done = command(*quick, *lengths, *encoder, f"task={name}", *options)
    assert done.code == 0, done.err
    (file,) = tmp_path.glob("results/*/runs/*/rows.csv")
    with file.open() as lines:
        rows = list(csv.DictReader(lines))
    measured = [row for row in rows if row["experiment"] == "length_extrapolation"]
    assert {int(row["eval_length"]): row["status"] for row in measured} == {
        length: status or "unsupported" for length, status in statuses.items()
    }
    accuracies = [row for row in rows if row["metric"] == "token_accuracy"]
    orders = [row["status"] for row in accuracies if row["experiment"] == "permutation_sensitivity"]
    assert set(orders) == {"ok"}
    if name in ("mode", "precedence"):
        assert {row["chance"] for row in accuracies if row["status"] == "ok"} == {"0.2" if name == "mode" else "0.5"}
        assert not [row for row in rows if row["metric"] == "exact_match"]


def test_bad_requests_are_one_line(command: Command) -> None:
    for words, message in {
        ("task=associative_recall", "task.num_keys=7"): "task.train_length=8 exceeds task.num_keys=7; lower the one",
        ("task=copy", "task.unique=true"): "task.train_length=16 exceeds task.num_symbols=10; lower the one",
        ("task=precedence", "task.num_symbols=1"): "task.num_symbols must be a whole number of at least 3; got 1",
        ("task=precedence", "positions=coupled"): "task=precedence offers no coupled positions; take another task",
    }.items():
        done = command(*words)
        assert done.code == 2
        assert done.err.startswith(f"error: {message}")
        assert done.err.count("\n") == 1


# ------------------------------------------------------------------------------------------------ inputs held out

SMALL: list[tuple[str, dict[str, Any]]] = [
    ("addition", {"train_length": 2, "reverse": "all", "zero_padded": True}),
    ("copy", {"train_length": 4, "num_symbols": 4}),
    ("lego", {"train_length": 2, "num_variables": 8}),
    ("modular_arithmetic", {"scratchpad": True, "modulus": 3, "train_length": 5}),
    ("parity", {"scratchpad": True, "train_length": 8}),
    ("s5", {"train_length": 6}),
]
"""With few inputs, of which training soon has seen all."""


@pytest.mark.parametrize(("name", "knobs"), [*((name, {}) for name in NAMES), *SMALL], ids=str)
def test_memorising_inputs_does_not_pass_for_learning(name: str, knobs: dict[str, Any]) -> None:
    task, source = tasks.build(name, **knobs), generator()
    remembered = set[str]()
    for _ in range(40):
        batch = task.draw_split(256, task.train_length, source, split="train", causal=True)
        remembered.update(map(repr, batch.tokens.tolist()))
    for batch in (
        task.draw_split(256, task.train_length, source, split="validation", causal=True),
        task.evaluation(256, task.train_length, source, causal=True),
    ):
        assert batch.tokens.shape == (len(batch.tokens), task.sequence_length(task.train_length))
        assert 0 < len(batch.tokens) <= 256
        assert not any(repr(tokens) in remembered for tokens in batch.tokens.tolist())
    for length in (task.shortest, task.train_length + 1):
        if name != "scan":
            drawn = task.draw_split(8, length, generator(1), split="test", causal=True)
            assert torch.equal(drawn.tokens, task.sample(8, length, generator(1), split="test", causal=True).tokens)


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_a_batch_without_held_out_inputs_counts_reads_alone(split: str) -> None:
    """A draw has its own places of reads: inputs of several draws would be scored at places of one."""
    task, source = tasks.build("flip_flop"), generator()
    for _ in range(5):
        batch = task.draw_split(256, task.train_length, source, split=split, causal=True)
        assert len(batch.tokens) == 256
        assert (batch.tokens[:, batch.counted] == flip_flop.READ).all()


def test_too_few_inputs_are_not_split() -> None:
    task = tasks.build("copy", train_length=1)
    batch = task.draw_split(500, 1, generator(), split="train", causal=True)
    assert len(batch.tokens.unique(dim=0)) == 10, "or a symbol would never be seen"
