"""Addition, parity, majority, counting, modular arithmetic: right by naive solvers, drawn and guessed as they say."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import close, draw, generator
from torch import Tensor

from experiments.tasks import Task, tasks
from experiments.tasks.addition import carried

Solver = Callable[[Any, list[int]], list[int]]


def written(number: int, base: int, width: int) -> list[int]:
    """Digits, the least significant first."""
    return [number // base**place % base for place in range(width)]


def add(task: Any, problem: list[int]) -> list[int]:
    """By whole numbers, of any size."""
    length = problem.index(task.base)
    numbers = [problem[:length], problem[length + 1 :]]
    if task.reverse != "all":
        numbers = [number[::-1] for number in numbers]
    total = sum(digit * task.base**place for number in numbers for place, digit in enumerate(number))
    digits = written(total, task.base, length + 1)
    return digits[::-1] if task.reverse == "neither" else digits


def parities(task: Any, problem: list[int]) -> list[int]:
    so_far = [problem[: place + 1].count(1) % 2 for place in range(len(problem))]
    return so_far if task.scratchpad else so_far[-1:]


def more_frequent(task: Any, problem: list[int]) -> list[int]:
    zeros, ones = problem.count(0), problem.count(1)
    assert zeros != ones
    return [0 if zeros > ones else 1]


def listed(task: Any, problem: list[int]) -> list[int]:
    first, last = problem
    return [*range(first, last + 1), task.num_symbols]


def worked_out(task: Any, problem: list[int]) -> list[int]:
    values = [problem[0]]
    for operator, operand in zip(problem[1::2], problem[2::2], strict=True):
        sign = "+-*"[operator - task.modulus]
        values.append(eval(f"({values[-1]} {sign} {operand}) % {task.modulus}"))
    return values if task.scratchpad else values[-1:]


SOLVERS: dict[str, Solver] = {
    "addition": add,
    "parity": parities,
    "majority": more_frequent,
    "counting": listed,
    "modular_arithmetic": worked_out,
}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("addition", {}),
    ("addition", {"reverse": "answer", "base": 2}),
    ("addition", {"reverse": "neither", "zero_padded": False, "base": 3}),
    ("addition", {"reverse": "all", "zero_padded": False}),
    ("parity", {}),
    ("parity", {"scratchpad": True}),
    ("majority", {}),
    ("counting", {}),
    ("counting", {"num_symbols": 50}),
    ("modular_arithmetic", {}),
    ("modular_arithmetic", {"scratchpad": False, "modulus": 2}),
    ("modular_arithmetic", {"modulus": 7, "scratchpad": False}),
]
variants = pytest.mark.parametrize(
    ("name", "knobs"), VARIANTS, ids=[f"{name}-{'-'.join(map(str, knobs.values()))}" for name, knobs in VARIANTS]
)


def answers(task: Task, length: int, batch_size: int, seed: int = 0) -> Tensor:
    batch = draw(task, length, batch_size, seed=seed)
    return batch.targets[:, batch.counted]


def begin_and_mark(task: Task) -> tuple[int, int]:
    return task.vocab_size - 2, task.vocab_size - 1


# ------------------------------------------------------------------------------------------------------ answers


@variants
@given(st.integers(1, 14), st.booleans(), st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_the_answer_is_right_and_hidden_before_its_question(
    name: str, knobs: dict[str, Any], length: int, causal: bool, seed: int
) -> None:
    task = tasks.build(name, **knobs)
    batch, (begin, mark) = draw(task, length, causal=causal, seed=seed), begin_and_mark(task)
    size, span = task.sequence_length(length), task.input_span(length)
    assert batch.tokens.shape == batch.targets.shape == (8, size)
    assert batch.tokens.dtype == batch.targets.dtype == torch.int64
    assert (batch.counted.dtype, batch.counted.tolist()) == (torch.bool, [place >= span.stop for place in range(size)])
    for tokens, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
        problem, answer = tokens[span], targets[span.stop :]
        assert answer == SOLVERS[name](task, problem)
        assert tokens[: span.start] == [begin]
        assert max(problem + answer) < begin
        # A causal model may read the answer up to, and not including, what it is asked for.
        assert tokens[span.stop :] == ([mark, *answer[:-1]] if causal else [mark] * len(answer))


@variants
def test_both_kinds_of_model_get_the_same_problems(name: str, knobs: dict[str, Any]) -> None:
    task, before = tasks.build(name, **knobs), torch.random.get_rng_state()
    one, again, other = draw(task, 9, 200), draw(task, 9, 200), draw(task, 9, 200, causal=False)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(one.tokens, again.tokens)
    assert torch.equal(one.targets, again.targets)
    assert torch.equal(one.targets, other.targets)
    assert torch.equal(one.tokens[:, task.input_span(9)], other.tokens[:, task.input_span(9)])
    assert not torch.equal(one.tokens, draw(task, 9, 200, seed=1).tokens)
    source = generator()
    first, second = (task.evaluation(8, 9, source, causal=True).tokens for _ in range(2))
    assert not torch.equal(first, second)


@pytest.mark.parametrize(
    ("name", "knobs", "problem", "answer"),
    [
        ("addition", {}, [3, 5, 10, 9, 0], [2, 6, 0]),
        ("addition", {"reverse": "answer"}, [6, 5, 3, 10, 0, 4, 9], [2, 0, 7, 0]),
        ("addition", {"reverse": "neither"}, [6, 5, 3, 10, 0, 4, 9], [0, 7, 0, 2]),
        ("addition", {}, [9, 9, 9, 10, 1, 0, 0], [0, 0, 0, 1]),
        ("addition", {"base": 2}, [1, 1, 2, 1, 1], [0, 1, 1]),
        ("parity", {}, [1, 0, 1, 0, 1, 0, 0], [1]),
        ("parity", {}, [0, 1, 1, 1, 1], [0]),
        ("parity", {"scratchpad": True}, [1, 0, 1, 1], [1, 1, 0, 1]),
        ("counting", {}, [2, 5], [2, 3, 4, 5, 256]),
        ("counting", {"num_symbols": 20}, [15, 15], [15, 20]),
        ("modular_arithmetic", {}, [2, 5, 4, 7, 3], [2, 1, 3]),
        ("modular_arithmetic", {"scratchpad": False}, [1, 6, 1, 6, 1], [4]),
        ("modular_arithmetic", {}, [1, 6, 3, 7, 4], [1, 3, 2]),
    ],
)
def test_answers_by_hand(name: str, knobs: dict[str, Any], problem: list[int], answer: list[int]) -> None:
    task: Any = tasks.build(name, **knobs)
    assert task.solve(torch.tensor([problem])).tolist() == [answer]


@given(st.integers(2, 12), st.integers(1, 40), st.data())
@settings(max_examples=100, deadline=None)
def test_carries_run_as_far_as_they_must(base: int, length: int, data: st.DataObject) -> None:
    """Sums that hand a carry on are drawn as often as all others together."""
    sums = data.draw(
        st.lists(st.one_of(st.just(base - 1), st.integers(0, 2 * base - 2)), min_size=length, max_size=length)
    )
    total = sum(digit * base**place for place, digit in enumerate(sums))
    assert carried(torch.tensor([sums]), base).tolist() == [written(total, base, length + 1)]


KNOBS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "addition": st.fixed_dictionaries(
        {
            "base": st.integers(2, 40),
            "reverse": st.sampled_from(["all", "answer", "neither"]),
            "zero_padded": st.booleans(),
        }
    ),
    "counting": st.fixed_dictionaries({"num_symbols": st.integers(16, 90)}),
    "modular_arithmetic": st.fixed_dictionaries(
        {"modulus": st.integers(2, 30), "operators": st.sampled_from(["+", "+-", "+-*"]), "scratchpad": st.booleans()}
    ),
}


@pytest.mark.parametrize("name", KNOBS)
@given(st.data(), st.integers(1, 16), st.booleans(), st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_the_answer_is_right_however_the_knobs_are_turned(
    name: str, data: st.DataObject, length: int, causal: bool, seed: int
) -> None:
    task: Any = tasks.build(name, **data.draw(KNOBS[name]))
    batch, span = draw(task, length, causal=causal, seed=seed), task.input_span(length)
    for problem, answer in zip(batch.tokens[:, span].tolist(), batch.targets[:, batch.counted].tolist(), strict=True):
        assert answer == SOLVERS[name](task, problem)
        if name == "addition" and not task.zero_padded and length > 1:
            numbers = [problem[:length], problem[length + 1 :]]
            assert all(number[-1 if task.reverse == "all" else 0] > 0 for number in numbers)


@pytest.mark.parametrize("operators", ["+", "+-", "+-*"])
def test_operators_are_those_chosen(operators: str) -> None:
    task: Any = tasks.build("modular_arithmetic", operators=operators)
    batch = draw(task, 9, 400)
    assert task.vocab_size == 5 + len(operators) + 2
    problems = batch.tokens[:, task.input_span(9)]
    assert set(problems[:, 1::2].flatten().tolist()) == {5 + i for i in range(len(operators))}
    for problem, targets in zip(problems.tolist(), batch.targets[:, batch.counted].tolist(), strict=True):
        assert targets == worked_out(task, problem)


# ------------------------------------------------------------------------------------------------ distributions


def all_problems(task: Any, length: int) -> dict[tuple[int, ...], float]:
    """Every problem of a length and its probability."""
    if task.name == "majority":
        ones = [k for k in range(length + 1) if 2 * k != length]
        words = [word for word in itertools.product(range(2), repeat=length) if sum(word) in ones]
        alike = Counter(map(sum, words))
        return {word: 1 / len(ones) / alike[sum(word)] for word in words}
    found: Iterator[tuple[int, ...]]
    if task.name == "addition":
        found = sums_of_two(task, length)
    elif task.name == "counting":
        found = ((first, first + length - 1) for first in range(task.num_symbols - length + 1))
    elif task.name == "parity":
        found = itertools.product(range(2), repeat=length)
    else:
        symbols = [range(task.modulus), range(task.modulus, task.modulus + 3)]
        found = itertools.product(*[symbols[place % 2] for place in range(2 * length - 1)])
    problems = list(found)
    return dict.fromkeys(problems, 1 / len(problems))


def sums_of_two(task: Any, length: int) -> Iterator[tuple[int, ...]]:
    lowest = 0 if task.zero_padded or length == 1 else task.base ** (length - 1)
    numbers = [written(number, task.base, length) for number in range(lowest, task.base**length)]
    if task.reverse != "all":
        numbers = [number[::-1] for number in numbers]
    yield from ((*one, task.base, *other) for one in numbers for other in numbers)


SMALL: list[tuple[str, dict[str, Any], int]] = [
    ("addition", {"base": 3}, 1),
    ("addition", {"base": 3}, 2),
    ("addition", {"base": 3, "zero_padded": False, "reverse": "neither"}, 1),
    ("addition", {"base": 3, "zero_padded": False, "reverse": "neither"}, 2),
    ("addition", {"base": 2, "zero_padded": False, "reverse": "answer"}, 3),
    ("addition", {"base": 2, "zero_padded": False}, 4),
    ("addition", {"base": 2}, 4),
    ("addition", {"base": 10}, 1),
    ("parity", {}, 1),
    ("parity", {}, 6),
    ("parity", {"scratchpad": True}, 5),
    ("majority", {}, 1),
    ("majority", {}, 2),
    ("majority", {}, 5),
    ("majority", {}, 6),
    ("counting", {"num_symbols": 7, "train_length": 3}, 3),
    ("counting", {"num_symbols": 7, "train_length": 3}, 6),
    ("counting", {"num_symbols": 7, "train_length": 3}, 7),
    ("modular_arithmetic", {"modulus": 3}, 1),
    ("modular_arithmetic", {"modulus": 3}, 3),
    ("modular_arithmetic", {"modulus": 4, "scratchpad": False}, 3),
    ("modular_arithmetic", {"modulus": 2}, 4),
]
small = pytest.mark.parametrize(
    ("name", "knobs", "length"),
    SMALL,
    ids=[f"{name}-{'-'.join(map(str, knobs.values()))}-{n}" for name, knobs, n in SMALL],
)


@small
def test_problems_are_as_likely_as_they_say(name: str, knobs: dict[str, Any], length: int) -> None:
    task, num_draws = tasks.build(name, **knobs), 20000
    problems = draw(task, length, num_draws).tokens[:, task.input_span(length)]
    expected = all_problems(task, length)
    assert sum(expected.values()) == pytest.approx(1)
    drawn = Counter(map(tuple, problems.tolist()))
    assert len(expected) == 1 or close(drawn.elements(), expected)


@small
def test_the_position_guess_is_the_best_there_is(name: str, knobs: dict[str, Any], length: int) -> None:
    """By enumeration: the likeliest symbol at each place, and the likeliest answer."""
    task, whole = tasks.build(name, **knobs), Counter[tuple[int, ...]]()
    for problem, probability in all_problems(task, length).items():
        whole[tuple(SOLVERS[name](task, list(problem)))] += probability  # type: ignore[assignment]
    size = len(next(iter(whole)))
    places = [Counter[int]() for _ in range(size)]
    for answer, probability in whole.items():
        for place, symbol in enumerate(answer):
            places[place][symbol] += probability
    best = {"token_accuracy": sum(max(place.values()) for place in places) / size, "exact_match": max(whole.values())}
    for metric in task.metrics:
        assert task.position_guess(metric, length) == pytest.approx(best[metric], abs=1e-12)
        assert task.chance(metric, length) <= task.position_guess(metric, length)


@variants
@pytest.mark.parametrize("length", [1, 5, 16, 40])
def test_guesses_get_on_draws_what_they_say(name: str, knobs: dict[str, Any], length: int) -> None:
    task: Any = tasks.build(name, **knobs)
    given, num_draws = answers(task, length, 8000), 8000
    uniform = torch.randint(task.num_answers, given.shape, generator=generator(2)) == given
    likeliest = answers(task, length, 20000, seed=1).mode(0).values == given
    for guess, said in ((uniform, task.chance), (likeliest, task.position_guess)):
        expected = said("token_accuracy", length)
        # Places of one answer may all be right together: as many draws as there are sequences.
        assert guess.double().mean().item() == pytest.approx(expected, abs=5 * (0.25 / num_draws) ** 0.5)
    hits = uniform.all(1).double().mean().item()
    by_chance = task.chance("exact_match", length)
    assert abs(hits - by_chance) <= 5 * (by_chance / num_draws) ** 0.5 + 2 / num_draws


@variants
@pytest.mark.parametrize("length", [128, 1200])
def test_guesses_stay_sane_at_great_lengths(name: str, knobs: dict[str, Any], length: int) -> None:
    task: Any = tasks.build(name, **({**knobs, "num_symbols": 5000} if name == "counting" else knobs))
    for metric in task.metrics:
        assert 0 <= task.chance(metric, length) <= task.position_guess(metric, length) <= 1
    assert 0.4 < tasks.build("parity").position_guess("token_accuracy", length) < 0.6
    batch = draw(task, length, 2)
    problem = batch.tokens[0, task.input_span(length)].tolist()
    assert batch.targets[0, batch.counted].tolist() == SOLVERS[name](task, problem)


# -------------------------------------------------------------------------------------------------- hints of place

HINTED: dict[str, dict[str, Any]] = {
    "addition": {"index_hints": 20, "train_length": 1},
    "parity": {"index_hints": 20, "train_length": 1, "scratchpad": True},
    "modular_arithmetic": {"index_hints": 20, "train_length": 1},
}


@given(st.sampled_from(["all", "answer", "neither"]), st.integers(1, 20), st.booleans(), st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("name", HINTED)
def test_without_its_hints_a_problem_is_one_without(
    name: str, reverse: str, length: int, causal: bool, seed: int
) -> None:
    """Hints are consecutive, the same at symbols that share a number, and the answers are a naive solver's."""
    turned = {"reverse": reverse} if name == "addition" else {}
    task = tasks.build(name, **HINTED[name], **turned)
    plain = tasks.build(name, **{**HINTED[name], "index_hints": 0}, **turned)
    batch, size = draw(task, length, causal=causal, seed=seed), plain.answer_size(length)  # type: ignore[attr-defined]
    assert batch.tokens.shape == (8, task.sequence_length(length))
    known = plain.numbered("coupled", length)  # type: ignore[attr-defined]
    for tokens, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
        hints = [token - plain.vocab_size + 1 for token in tokens]
        end = task.input_span(length).stop
        problem = [token for token, hint in zip(tokens[1:end], hints[1:end], strict=True) if hint < 1]
        answer = [target for target, counted in zip(targets, batch.counted, strict=True) if counted]
        assert answer == SOLVERS[name](plain, problem)
        asked = hints[end + 1 :: 2]
        first = min(asked) - 1
        assert [hint - first for hint in asked] == known[2].tolist()
        assert 0 <= first <= 20 - length
        assert batch.counted.nonzero().flatten().tolist() == list(range(end + 1, len(tokens), 2))
        assert tokens[end + 2 :: 2] == (answer[:-1] if causal else [tokens[end]] * (size - 1))
        number, found = 0, []
        for hint in hints[1:end]:
            number = hint - first if hint > 0 else number
            found += [] if hint > 0 else [number]
        assert [n for n, k in zip(found, known[0].tolist(), strict=True) if k] == [k for k in known[0].tolist() if k]


def test_every_hint_is_seen_in_training() -> None:
    task = tasks.build("addition", train_length=3, index_hints=12)
    hints = draw(task, 3, 2000).tokens.unique()
    assert set(range(task.vocab_size - 13, task.vocab_size)) <= set(hints.tolist())


def test_hints_stand_in_place_of_positions_of_the_task() -> None:
    task = tasks.build("addition", index_hints=20)
    with pytest.raises(ValueError, match=r"^task=addition has hints in place of coupled positions; leave one of the"):
        task.numbers("coupled", 40, causal=True)


def test_one_answer_is_scored_once() -> None:
    both = ("token_accuracy", "exact_match")
    for name in ("parity", "modular_arithmetic"):
        assert tasks.build(name, scratchpad=True).metrics == both
        assert tasks.build(name, scratchpad=False).metrics == ("token_accuracy",)
        assert tasks.build(name, scratchpad=True).metrics == both
    assert tasks.build("majority").metrics == ("token_accuracy",)
    assert tasks.build("addition").metrics == tasks.build("counting").metrics == both


# ------------------------------------------------------------------------------------------- numbers of their own


@pytest.mark.parametrize(
    ("kind", "name", "knobs", "causal", "numbers"),
    [
        #                                                   ^  6  5  3  +  0  4  9  |  then the sum, one place late
        ("coupled", "addition", {"reverse": "answer"}, True, [0, 3, 2, 1, 0, 3, 2, 1, 0, 1, 2, 3]),
        ("coupled", "addition", {"reverse": "answer"}, False, [0, 3, 2, 1, 0, 3, 2, 1, 1, 2, 3, 4]),
        ("coupled", "addition", {"reverse": "all"}, True, [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3]),
        ("coupled", "addition", {"reverse": "neither"}, True, [0, 3, 2, 1, 0, 3, 2, 1, 5, 4, 3, 2]),
        ("coupled", "addition", {"reverse": "neither"}, False, [0, 3, 2, 1, 0, 3, 2, 1, 4, 3, 2, 1]),
        ("abacus", "addition", {"reverse": "all"}, True, [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3]),
        ("abacus", "addition", {"reverse": "neither"}, False, [0, 1, 2, 3, 0, 1, 2, 3, 1, 2, 3, 4]),
        ("coupled", "parity", {"scratchpad": True}, True, [0, 1, 2, 3, 0, 1, 2]),
        ("coupled", "parity", {"scratchpad": True}, False, [0, 1, 2, 3, 1, 2, 3]),
        ("abacus", "parity", {"scratchpad": True}, False, [0, 1, 2, 3, 1, 2, 3]),
        ("abacus", "parity", {}, True, [0, 1, 2, 3, 0]),
        ("abacus", "parity", {}, False, [0, 1, 2, 3, 0]),
        ("abacus", "majority", {}, True, [0, 1, 2, 3, 0]),
        ("coupled", "modular_arithmetic", {}, True, [0, 1, 2, 2, 3, 3, 0, 1, 2]),
        ("coupled", "modular_arithmetic", {}, False, [0, 1, 2, 2, 3, 3, 1, 2, 3]),
    ],
)
def test_what_tasks_supply(kind: str, name: str, knobs: dict[str, Any], causal: bool, numbers: list[int]) -> None:
    task = tasks.build(name, **knobs)
    assert task.numbers(kind, task.sequence_length(3), causal=causal).tolist() == numbers


@pytest.mark.parametrize("reverse", ["all", "answer", "neither"])
@given(st.integers(1, 30))
@settings(max_examples=15, deadline=None)
def test_coupled_digits_are_those_of_one_significance(reverse: str, length: int) -> None:
    """A 1 put at one place of a sum of zeros comes out at the place with the same number."""
    task: Any = tasks.build("addition", reverse=reverse)
    numbers = task.numbers("coupled", task.sequence_length(length), causal=False)
    for place in {0, length // 2, length - 1}:
        problem = torch.zeros(1, 2 * length + 1, dtype=torch.long)
        problem[0, length] = task.base
        problem[0, place] = 1
        (out,) = task.solve(problem)[0].nonzero().flatten().tolist()
        assert numbers[1 + place] == numbers[length + 2 + place] == numbers[2 * length + 2 + out]


@given(st.integers(1, 20), st.integers(0, 100))
@settings(max_examples=20, deadline=None)
def test_abacus_counts_runs_of_digits(length: int, seed: int) -> None:
    task: Any = tasks.build("addition")
    tokens = draw(task, length, 1, seed=seed).tokens[0].tolist()
    counted, run = [], 0
    for token in tokens:
        run = run + 1 if token < task.base else 0
        counted.append(run)
    assert task.numbers("abacus", len(tokens), causal=True).tolist() == counted
