"""Tasks with one answer: right by naive solvers, drawn as they say, and at chance for whoever sees no order."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from math import factorial, prod
from pathlib import Path

import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import Command, close, draw, generator
from torch import Tensor

import pe_zoo
from experiments import Transformer
from experiments.tasks import Batch, Task, tasks
from experiments.tasks.kinds.problem import Question
from experiments.tasks.mode import has_mode
from experiments.training.config import TrainConfig
from experiments.training.evaluate import evaluate
from experiments.training.step import Step
from pe_zoo import Geometry


def most_frequent(word: list[int]) -> int:
    """The one symbol that no other comes up to; an error if there is none."""
    (winner,) = (
        symbol for symbol in set(word) if all(word.count(symbol) > word.count(other) for other in set(word) - {symbol})
    )
    return winner


def earlier(word: list[int]) -> int:
    return next(symbol for symbol in word if symbol in (0, 1))


SOLVERS: dict[str, Callable[[list[int]], int]] = {"mode": most_frequent, "precedence": earlier}
SHORTEST = {"mode": 1, "precedence": 2}
NUM_ANSWERS: dict[str, Callable[[int], int]] = {"mode": lambda num_symbols: num_symbols, "precedence": lambda _: 2}


class Parity(Question):
    """The number of ones, even or odd, among symbols that are mostly zeros: a task whose answers are not balanced."""

    name = "parity"

    num_symbols = 3

    def solve(self, problems: Tensor) -> Tensor:
        return (problems == 1).sum(-1, keepdim=True) % 2

    def answer_shares(self, length: int) -> list[float]:
        odd = (1 - (1 / 3) ** length) / 2
        return [1 - odd, odd]


class HowMany(Question):
    """How many zeros there are: more answers than symbols."""

    name = "how_many"

    num_answers = 5

    def solve(self, problems: Tensor) -> Tensor:
        return (problems == 0).sum(-1, keepdim=True)


def words_of(task: Task, batch: Batch, length: int) -> list[list[int]]:
    words: list[list[int]] = batch.tokens[:, task.input_span(length)].tolist()
    return words


# ------------------------------------------------------------------------------------- words, answers and marks


@pytest.mark.parametrize("name", SOLVERS)
@given(st.integers(0, 20), st.integers(3, 9), st.booleans(), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_the_answer_is_right_and_asked_for_at_the_mark(
    name: str, longer: int, num_symbols: int, causal: bool, seed: int
) -> None:
    task, length = tasks.build(name, num_symbols=num_symbols), SHORTEST[name] + longer
    batch = draw(task, length, causal=causal, seed=seed)
    assert batch.tokens.shape == batch.targets.shape == (8, length + 2) == (8, task.sequence_length(length))
    assert batch.tokens.dtype == batch.targets.dtype == torch.int64
    assert (batch.counted.dtype, batch.counted.tolist()) == (torch.bool, [False] * (length + 1) + [True])
    assert task.vocab_size == num_symbols + 2
    assert task.input_span(length) == slice(1, length + 1)
    for tokens, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
        begin, *word, mark = tokens
        assert (begin, mark) == (num_symbols, num_symbols + 1)
        assert all(0 <= symbol < num_symbols for symbol in word)
        assert targets[-1] == SOLVERS[name](word)


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("length", [1, 2, 3, 40])
def test_no_model_is_shown_the_answer(name: str, length: int) -> None:
    """Both kinds of model read the same, and all that they read is the word."""
    task = tasks.build(name)
    if length < SHORTEST[name]:
        return
    one, other = draw(task, length, causal=True), draw(task, length, causal=False)
    assert torch.equal(one.tokens, other.tokens)
    assert torch.equal(one.targets, other.targets)
    assert one.counted.sum() == 1
    assert (one.tokens[:, one.counted] != one.targets[:, one.counted]).all()
    assert len(one.tokens[:, [0, -1]].unique(dim=0)) == 1
    assert len(one.targets[:, -1].unique()) > 1


def test_abacus_counts_the_word_and_coupled_is_refused() -> None:
    for name in SOLVERS:
        for causal in (True, False):
            assert tasks.build(name).numbers("abacus", 6, causal=causal).tolist() == [0, 1, 2, 3, 4, 0]
            with pytest.raises(ValueError, match=rf"task={name} offers no coupled positions"):
                tasks.build(name).numbers("coupled", 6, causal=causal)


# ------------------------------------------------------------------------------------------------- distributions


def words_with_a_mode(length: int, num_symbols: int) -> Iterator[tuple[int, ...]]:
    for word in itertools.product(range(num_symbols), repeat=length):
        first, second, *_ = sorted((word.count(symbol) for symbol in range(num_symbols)), reverse=True)
        if first > second:
            yield word


@pytest.mark.parametrize(("length", "num_symbols"), [(1, 3), (2, 3), (3, 2), (3, 4), (4, 3), (5, 3)])
def test_words_are_uniform_given_one_most_frequent_symbol(length: int, num_symbols: int) -> None:
    task = tasks.build("mode", num_symbols=num_symbols)
    allowed = list(words_with_a_mode(length, num_symbols))
    drawn = Counter(map(tuple, words_of(task, draw(task, length, 20000), length)))
    assert close(drawn.elements(), dict.fromkeys(allowed, 1 / len(allowed)))


def test_the_yardstick_tells_other_ways_to_settle_a_tie() -> None:
    """Putting one place right, or giving up after some draws, would each favour words."""
    allowed = dict.fromkeys(words_with_a_mode(4, 3), 1 / len(list(words_with_a_mode(4, 3))))
    anything = torch.randint(3, (20000, 4), generator=generator()).tolist()
    fair = Counter(tuple(word) for word in anything if tuple(word) in allowed)
    assert close(fair.elements(), allowed)
    mended = Counter(tuple(word if tuple(word) in allowed else [*word[:3], word[0]]) for word in anything)
    mended = Counter({word: count for word, count in mended.items() if word in allowed})
    assert not close(mended.elements(), allowed)
    given_up = Counter(tuple(word) if tuple(word) in allowed else (0, 0, 0, 0) for word in anything)
    assert not close(given_up.elements(), allowed)


def test_batches_are_no_different_from_words_drawn_one_by_one() -> None:
    """Drawing again what has no mode favours no kind of word, however many are asked for at a time."""
    task, source = tasks.build("mode", num_symbols=3), generator(5)
    singly = Counter(
        tuple(words_of(task, task.sample(1, 4, source, split="test", causal=True), 4)[0]) for _ in range(6000)
    )
    allowed = list(words_with_a_mode(4, 3))
    assert close(singly.elements(), dict.fromkeys(allowed, 1 / len(allowed)))


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12))
@settings(max_examples=200, deadline=None)
def test_a_mode_is_told_from_a_tie(word: list[int]) -> None:
    counts = [word.count(symbol) for symbol in set(word)]
    assert has_mode(torch.tensor([word, [7] * len(word)])).tolist() == [counts.count(max(counts)) == 1, True]


def test_a_large_alphabet_has_short_words_too() -> None:
    batch = draw(tasks.build("mode", num_symbols=3000), 2, 64)
    assert (batch.tokens[:, 1] == batch.tokens[:, 2]).all()
    assert torch.equal(batch.tokens[:, 1], batch.targets[:, -1])
    assert len(batch.targets[:, -1].unique()) > 50


@pytest.mark.parametrize(("length", "num_symbols"), [(2, 3), (3, 3), (4, 4), (5, 4), (5, 3), (6, 4)])
def test_words_are_uniform_over_the_arrangements_of_one_bag(length: int, num_symbols: int) -> None:
    task = tasks.build("precedence", num_symbols=num_symbols)
    drawn = Counter(map(tuple, words_of(task, draw(task, length, 20000), length)))
    bag = [0, 1, *[2 + place % (num_symbols - 2) for place in range(length - 2)]]
    arrangements = sorted(set(itertools.permutations(bag)))
    assert len(arrangements) == factorial(length) // prod(map(factorial, Counter(bag).values()))
    assert close(drawn.elements(), dict.fromkeys(arrangements, 1 / len(arrangements)))


@given(st.integers(2, 80), st.integers(3, 12), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_every_word_of_a_length_is_the_same_bag(length: int, num_symbols: int, seed: int) -> None:
    task = tasks.build("precedence", num_symbols=num_symbols)
    bags = [Counter(word) for word in words_of(task, draw(task, length, 16, seed=seed), length)]
    assert all(bag == bags[0] for bag in bags)
    assert bags[0][0] == bags[0][1] == 1
    fillers = [bags[0][symbol] for symbol in range(2, num_symbols)]
    assert sum(fillers) == length - 2
    assert max(fillers) - min(fillers) <= 1


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("num_symbols", [3, 5])
@pytest.mark.parametrize("length", [2, 3, 16, 128])
def test_all_answers_are_as_likely_as_chance_says(name: str, num_symbols: int, length: int) -> None:
    task, num_draws = tasks.build(name, num_symbols=num_symbols), 4000
    num_answers = NUM_ANSWERS[name](num_symbols)
    answers = Counter(draw(task, length, num_draws).targets[:, -1].tolist())
    assert close(answers.elements(), dict.fromkeys(range(num_answers), 1 / num_answers))
    for metric in ("token_accuracy", "exact_match"):
        assert task.chance(metric, length) == task.position_guess(metric, length) == 1 / num_answers


# --------------------------------------------------------------------------------- the base, for tasks yet to come


@pytest.mark.parametrize("task", [Parity(), HowMany()], ids=["parity", "how_many"])
def test_a_new_task_says_how_words_are_answered_and_no_more(task: Question) -> None:
    batch = draw(task, 4, 500)
    assert task.vocab_size == max(task.num_symbols, task.num_answers) + 2
    assert batch.tokens.max() < task.vocab_size
    assert len({*batch.tokens[:, 1:-1].flatten().tolist()}) == task.num_symbols
    assert not batch.tokens[:, 1:-1].eq(batch.tokens[0, -1]).any()
    assert torch.equal(batch.targets[:, -1:], task.solve(batch.tokens[:, 1:-1]))
    assert draw(task, 4, 500, causal=False).tokens.tolist() == batch.tokens.tolist()


@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_the_majority_class_of_a_length_is_the_position_guess(length: int) -> None:
    task = Parity()
    odd = [sum(symbol == 1 for symbol in word) % 2 for word in itertools.product(range(3), repeat=length)]
    assert task.position_guess("token_accuracy", length) == pytest.approx(
        max(Counter(odd).values()) / len(odd), abs=1e-12
    )
    assert task.chance("token_accuracy", length) == 0.5
    assert sum(task.answer_shares(length)) == pytest.approx(1)


# ------------------------------------------------------------------------------------------------ what models make


def tiny(task: Task, encoder: str, *, causal: bool) -> Transformer:
    torch.manual_seed(0)
    geometry = Geometry(model_dim=16, num_heads=2, num_layers=1, train_length=task.sequence_length(task.train_length))
    return Transformer(task.vocab_size, geometry, pe_zoo.build(encoder, geometry), causal=causal)


def accuracy_after_training(name: str, encoder: str, *, causal: bool, steps: int) -> float:
    task = tasks.build(name, train_length=4, min_length=4, num_symbols=3)
    model = tiny(task, encoder, causal=causal)
    step, source = Step(model, TrainConfig(steps=steps, learning_rate=1e-2)), generator()
    for _ in range(steps):
        step(task.sample(64, 4, source, split="train", causal=causal))
    batch = task.evaluation(1000, 4, generator(1), causal=causal)
    return evaluate(model, batch, torch.arange(6.0)).quality()["token_accuracy"]


def test_a_bag_of_tokens_counts_but_does_not_order() -> None:
    """A bidirectional model without positions gives all words of a bag one answer, trained or not."""
    task = tasks.build("precedence")
    model, batch = tiny(task, "none", causal=False), draw(task, 16, 50, causal=False)
    at_the_mark = model(batch.tokens)[:, -1]
    assert (at_the_mark - at_the_mark[:1]).abs().max() < 1e-5
    ordered = tiny(task, "sinusoidal", causal=False)(batch.tokens)[:, -1]
    assert (ordered - ordered[:1]).abs().max() > 0.1
    assert accuracy_after_training("precedence", "none", causal=False, steps=100) == pytest.approx(0.5, abs=0.08)
    assert accuracy_after_training("precedence", "sinusoidal", causal=False, steps=200) > 0.95
    assert accuracy_after_training("mode", "none", causal=False, steps=200) > 0.95


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("causal", [True, False])
def test_every_encoder_can_be_asked(name: str, causal: bool) -> None:
    task = tasks.build(name, train_length=6)
    batch = draw(task, 6, 2, causal=causal)
    for encoder in pe_zoo.names():
        if pe_zoo.get(encoder).causal_only and not causal:
            continue
        assert tiny(task, encoder, causal=causal)(batch.tokens).shape == (2, 8, task.vocab_size)


# ---------------------------------------------------------------------------------------------------- command line


def test_drawn_lengths_as_long_as_trained_ones_are_in_range(command: Command, tmp_path: Path) -> None:
    """Expressions have an odd number of symbols: 4 are drawn as 3."""
    done = command(
        *("task=modular_arithmetic_simple", "task.train_length=3", "figures=false", "model=tiny", "train.steps=1"),
        *("experiment=length_extrapolation", "length_extrapolation.multiples=[1,1.34,1.67]"),
    )
    assert done.code == 0, done.err
    (file,) = tmp_path.glob("results/*/runs/*/rows.csv")
    rows = pd.read_csv(file)
    status = rows[rows["metric"] == "token_accuracy"].groupby("eval_length")["status"].first().to_dict()
    assert status == {3: "ok", 4: "unsupported", 5: "ok"}
