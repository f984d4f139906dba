"""Tasks of retrieval: right by naive solvers, drawn as their papers say, answers shown to nobody before their time."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import close, draw, generator

import pe_zoo
from experiments import Transformer
from experiments.tasks import Batch, Task, tasks
from experiments.tasks.dyck import innermost
from pe_zoo import Geometry

SHORTEST = {"dyck": 1, "flip_flop": 2, "associative_recall": 1, "selective_copy": 1, "passkey": 1}
RETRIEVAL = [*SHORTEST, "copy"]
KNOBS: dict[str, dict[str, Any]] = {"copy": {"unique": True, "num_symbols": 64}}
"""What a task is built with here, where not with its defaults."""
THREE = {"train_length": 3}
"""Of an alphabet so small, no longer words can be trained on."""


def build(name: str, **knobs: Any) -> Any:
    return tasks.build(name, **{**KNOBS.get(name, {}), **knobs})


def read(batch: Batch) -> Iterator[tuple[list[int], dict[int, int]]]:
    """Of each sequence, its tokens, and what is asked for at which place."""
    places = batch.counted.nonzero().flatten().tolist()
    for tokens, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
        yield tokens, {place: targets[place] for place in places}


def check_form(task: Task, batch: Batch, length: int, batch_size: int = 8) -> None:
    size = task.sequence_length(length)
    assert batch.tokens.shape == batch.targets.shape == (batch_size, size)
    assert batch.tokens.dtype == batch.targets.dtype == torch.int64
    assert (batch.counted.shape, batch.counted.dtype) == ((size,), torch.bool)
    for held in (batch.tokens, batch.targets):
        assert 0 <= int(held.min()) <= int(held.max()) < task.vocab_size


def uniform(outcomes: Iterable[Hashable]) -> dict[Hashable, float]:
    listed = list(outcomes)
    return dict.fromkeys(listed, 1 / len(listed))


def answers(batch: Batch) -> list[tuple[int, ...]]:
    return [tuple(answer) for answer in batch.targets[:, batch.counted].tolist()]


# ---------------------------------------------------------------------------------------------- right answers


@given(st.integers(1, 30), st.integers(1, 5), st.integers(1, 6), st.integers(0, 1000))
@settings(max_examples=80, deadline=None)
def test_dyck_words_nest_and_the_innermost_bracket_closes(length: int, kinds: int, max_depth: int, seed: int) -> None:
    task = build("dyck", kinds=kinds, max_depth=max_depth)
    batch = draw(task, length, seed=seed)
    check_form(task, batch, length)
    nothing_open = 2 * kinds
    assert task.vocab_size == nothing_open + 1
    for tokens, asked in read(batch):
        assert tokens[0] == nothing_open
        assert sorted(asked) == list(range(1, length + 1))
        stack: list[int] = []
        for place, bracket in enumerate(tokens[1:], 1):
            if bracket < kinds:
                stack.append(bracket)
            else:
                assert bracket == kinds + stack.pop()
            assert len(stack) <= max_depth
            assert asked[place] == (kinds + stack[-1] if stack else nothing_open)


@given(st.lists(st.booleans(), min_size=1, max_size=20))
@settings(max_examples=100, deadline=None)
def test_the_innermost_open_bracket_is_the_top_of_the_stack(ups: list[bool]) -> None:
    stack: list[int] = []
    depth, opened, tops = [], [], []
    for place, up in enumerate(ups):
        if up or not stack:
            stack.append(place)
            opened.append(True)
        else:
            stack.pop()
            opened.append(False)
        depth.append(len(stack))
        tops.append(stack[-1] if stack else None)
    found = innermost(torch.tensor([depth, depth]), torch.tensor([opened, opened])).tolist()
    for row in found:
        assert [place for place, top in zip(row, tops, strict=True) if top is not None] == [
            top for top in tops if top is not None
        ]


@given(st.integers(2, 30), st.sampled_from([0.0, 0.1, 0.5, 0.8, 1.0]), st.booleans(), st.integers(0, 1000))
@settings(max_examples=80, deadline=None)
def test_a_read_gives_the_bit_written_last(length: int, ignores: float, causal: bool, seed: int) -> None:
    task = build("flip_flop", ignores=ignores)
    batch = draw(task, length, causal=causal, seed=seed)
    check_form(task, batch, length)
    write, ignore, recall, begin, hidden = range(2, 7)
    for tokens, asked in read(batch):
        assert tokens[0] == begin
        instructions, shown = tokens[1::2], tokens[2::2]
        assert (instructions[0], instructions[-1]) == (write, recall)
        assert set(instructions) <= {write, ignore, recall}
        register = None
        for number, instruction in enumerate(instructions):
            place = 1 + 2 * number
            assert (place in asked) == (instruction == recall)
            if instruction == recall:
                assert asked[place] == register
                bit = register if causal else hidden
            else:
                bit = shown[number]
                assert bit in (0, 1)
                register = bit if instruction == write else register
            assert number == length - 1 or shown[number] == bit


@given(st.integers(1, 20), st.integers(2, 30), st.booleans(), st.integers(0, 1000))
@settings(max_examples=80, deadline=None)
def test_every_key_is_asked_for_once_and_gives_its_value(length: int, size: int, causal: bool, seed: int) -> None:
    num_keys = max(2, length + size % 4)
    task = build("associative_recall", train_length=1, num_keys=num_keys, num_values=size)
    batch = draw(task, length, causal=causal, seed=seed)
    check_form(task, batch, length)
    for tokens, asked in read(batch):
        assert tokens[0] == num_keys + size
        keys, values, queries = tokens[1 : 2 * length : 2], tokens[2 : 2 * length + 1 : 2], tokens[2 * length + 1 :]
        assert len(set(keys)) == length
        assert all(key < num_keys for key in keys)
        assert all(num_keys <= value < num_keys + size for value in values)
        assert sorted(queries) == sorted(keys)
        paired = dict(zip(keys, values, strict=True))
        assert asked == {place: paired[query] for place, query in enumerate(queries, 2 * length + 1)}


@given(st.integers(1, 12), st.integers(0, 9), st.integers(1, 8), st.floats(0.01, 1), st.booleans(), st.integers(0, 999))
@settings(max_examples=60, deadline=None)
def test_a_key_that_comes_again_among_noise_gives_its_value(
    length: int, spare: int, slots: int, power: float, causal: bool, seed: int
) -> None:
    num_keys, num_values = max(2, length + spare), max(2, length)
    task = build("mqar", train_length=1, num_keys=num_keys, num_values=num_values, slots=slots, power=power)
    batch = draw(task, length, causal=causal, seed=seed)
    check_form(task, batch, length)
    for tokens, asked in read(batch):
        paired = dict(zip(tokens[1 : 2 * length : 2], tokens[2 : 2 * length + 1 : 2], strict=True))
        assert len(paired) == len(set(paired.values())) == length
        assert all(key < num_keys <= value < num_keys + num_values for key, value in paired.items())
        assert sorted(tokens[place] for place in asked) == sorted(paired)
        assert all((place - 2 * length) % 2 and asked[place] == paired[tokens[place]] for place in asked)
        assert max(tokens[1:]) < tokens[0] == num_keys + num_values


def test_gaps_follow_the_power_law() -> None:
    """The place of one key's repetition, drawn batch by batch; at power 1 all are alike."""
    for power in (0.01, 1.0):
        task, source = build("mqar", train_length=1, slots=5, power=power), generator()
        weights = [gap ** (power - 1) for gap in range(1, 6)]
        places = (
            int(task.sample(1, 1, source, split="train", causal=True).counted.nonzero().item()) for _ in range(4000)
        )
        assert close(places, {3 + 2 * gap: weight / sum(weights) for gap, weight in enumerate(weights)})


@given(st.integers(2, 20), st.integers(0, 5), st.integers(1, 9), st.booleans(), st.integers(0, 999))
@settings(max_examples=60, deadline=None)
def test_an_offset_leads_from_one_symbol_to_another(
    length: int, spare: int, max_offset: int, causal: bool, seed: int
) -> None:
    num_symbols = length + spare
    task = build("indirect_indexing", train_length=2, num_symbols=num_symbols, max_offset=max_offset)
    batch = draw(task, length, causal=causal, seed=seed)
    check_form(task, batch, length)
    offsets = [offset for offset in range(-max_offset, max_offset + 1) if offset]
    for tokens, asked in read(batch):
        word, questions = tokens[1 : length + 1], tokens[length + 1 :]
        assert len(set(word)) == length
        assert sorted(questions[::2]) == sorted(word)
        for number, (source, offset) in enumerate(zip(questions[::2], questions[1::2], strict=True)):
            target = word.index(source) + offsets[offset - num_symbols]
            assert 0 <= target < length
            assert asked[length + 2 + 2 * number] == word[target]


def test_offsets_within_the_word_are_equally_likely() -> None:
    batch = draw(build("indirect_indexing", train_length=4, num_symbols=4, max_offset=2), 4, 20000)
    asked = [[*tokens[5:7], tokens.index(tokens[5], 1)] for tokens in batch.tokens.tolist()]
    expected = {
        (place, offset): 1 / 4 / len(far)
        for place, far in enumerate(([6, 7], [5, 6, 7], [4, 5, 6], [4, 5]), 1)
        for offset in far
    }
    assert close(((place, offset) for _, offset, place in asked), expected)


@given(st.integers(1, 30), st.integers(2, 12), st.integers(1, 9), st.booleans(), st.integers(0, 1000))
@settings(max_examples=80, deadline=None)
def test_selective_copy_says_what_is_not_noise(
    length: int, num_symbols: int, num_copied: int, causal: bool, seed: int
) -> None:
    task = build("selective_copy", num_symbols=num_symbols, num_copied=num_copied)
    batch = draw(task, length, causal=causal, seed=seed)
    check_form(task, batch, length)
    begin, mark, noise = range(num_symbols, num_symbols + 3)
    places = length + num_copied
    for tokens, asked in read(batch):
        text = tokens[1 : 1 + places]
        assert text.count(noise) == length
        symbols = [symbol for symbol in text if symbol != noise]
        assert all(symbol < num_symbols for symbol in symbols)
        assert asked == dict(enumerate(symbols, 1 + places))
        assert tokens == [begin, *text, *shown(symbols, mark, causal)]


@given(
    st.integers(1, 30), st.integers(2, 12), st.integers(1, 7), st.integers(1, 6), st.booleans(), st.integers(0, 1000)
)
@settings(max_examples=80, deadline=None)
def test_the_passkey_is_what_stands_after_the_mark(
    length: int, num_symbols: int, num_digits: int, num_fillers: int, causal: bool, seed: int
) -> None:
    task = build("passkey", num_symbols=num_symbols, num_digits=num_digits, num_fillers=num_fillers)
    batch = draw(task, length, causal=causal, seed=seed)
    check_form(task, batch, length)
    begin, mark, first_filler = range(num_symbols, num_symbols + 3)
    for tokens, asked in read(batch):
        places = length + 1 + num_digits
        text = tokens[1 : 1 + places]
        depth = text.index(mark)
        digits = text[depth + 1 : depth + 1 + num_digits]
        assert all(digit < num_symbols for digit in digits)
        for filler in (text[:depth], text[depth + 1 + num_digits :]):
            assert filler == [first_filler + place % num_fillers for place in range(len(filler))]
        assert asked == dict(enumerate(digits, 1 + places))
        assert tokens == [begin, *text, *shown(digits, mark, causal)]


@given(st.integers(1, 20), st.integers(0, 5), st.booleans(), st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_unique_words_repeat_nothing(length: int, spare: int, causal: bool, seed: int) -> None:
    num_symbols = max(2, length + spare)
    task = build("copy", train_length=1, unique=True, num_symbols=num_symbols)
    batch = draw(task, length, causal=causal, seed=seed)
    check_form(task, batch, length)
    for tokens, asked in read(batch):
        word = tokens[1 : length + 1]
        assert len(set(word)) == length
        assert all(symbol < num_symbols for symbol in word)
        assert asked == dict(enumerate(word, length + 1))
        assert tokens == [num_symbols, *word, *shown(word, num_symbols + 1, causal)]


def shown(answer: list[int], mark: int, causal: bool) -> list[int]:
    """What is read where the answer is asked for: up to, and not including, what is asked for."""
    return [mark, *answer[:-1]] if causal else [mark] * len(answer)


def test_words_that_may_repeat_are_drawn_as_they_always_were() -> None:
    batch = draw(tasks.build("copy"), 12)
    assert torch.equal(batch.tokens[:, 1:13], torch.randint(10, (8, 12), generator=generator()))


# ------------------------------------------------------------------------------------------------ both kinds of model


@pytest.mark.parametrize("name", RETRIEVAL)
@pytest.mark.parametrize("length", [2, 3, 40])
def test_no_model_is_shown_an_answer_before_it_gave_it(name: str, length: int) -> None:
    """A causal model reads the true answers before the one asked for; a bidirectional one reads none."""
    task = build(name)
    if name == "dyck":
        with pytest.raises(ValueError, match=r"^task=dyck .*model\.causal=true$"):
            draw(task, length, causal=False)
        return
    one, other = draw(task, length, 64, causal=True), draw(task, length, 64, causal=False)
    span = task.input_span(length)
    assert torch.equal(one.targets, other.targets)
    assert torch.equal(one.counted, other.counted)
    if name == "flip_flop":
        bits = other.counted.roll(1)[1:]
        assert (other.tokens[:, 1:][:, bits] == task.vocab_size - 1).all()
        assert torch.equal(one.tokens[:, 1:][:, ~bits], other.tokens[:, 1:][:, ~bits])
    elif name == "associative_recall":
        assert torch.equal(one.tokens, other.tokens)
        assert other.tokens[:, span.stop :].max() < task.num_keys
    else:
        assert torch.equal(one.tokens[:, : span.stop + 1], other.tokens[:, : span.stop + 1])
        assert len(other.tokens[:, span.stop :].unique()) == 1
        assert torch.equal(one.tokens[:, span.stop + 1 :], one.targets[:, span.stop : -1])


# ----------------------------------------------------------------------------------------------------- distributions


@pytest.mark.parametrize(("length", "kinds", "max_depth"), [(1, 3, 2), (4, 2, 2), (5, 2, 1), (6, 1, 3), (4, 2, 6)])
def test_dyck_words_are_as_likely_as_the_automaton_says(length: int, kinds: int, max_depth: int) -> None:
    """Hewitt et al. (2020): open or close, half and half, where both are legal; kinds uniform; no end."""
    expected: dict[tuple[int, ...], float] = {}

    def walk(word: tuple[int, ...], stack: tuple[int, ...], probability: float) -> None:
        if len(word) == length:
            expected[word] = probability
            return
        opens = 1.0 if not stack else 0.0 if len(stack) == max_depth else 0.5
        for kind in range(kinds) if opens else ():
            walk((*word, kind), (*stack, kind), probability * opens / kinds)
        if opens < 1:
            walk((*word, kinds + stack[-1]), stack[:-1], probability * (1 - opens))

    walk((), (), 1.0)
    task = build("dyck", kinds=kinds, max_depth=max_depth)
    batch = draw(task, length, 20000)
    assert close((tuple(word) for word in batch.tokens[:, 1:].tolist()), expected)
    best = [Counter[int]() for _ in range(length)]
    for word, probability in expected.items():
        stack: list[int] = []
        for place, bracket in enumerate(word):
            stack = [*stack, bracket] if bracket < kinds else stack[:-1]
            best[place][stack[-1] if stack else -1] += probability  # type: ignore[assignment]
    likeliest = sum(max(chances.values()) for chances in best) / length
    assert task.position_guess("token_accuracy", length) == pytest.approx(likeliest, abs=1e-12)


@pytest.mark.parametrize("ignores", [0.8, 0.1])
def test_instructions_are_as_likely_as_the_paper_says(ignores: float) -> None:
    """Of sequences drawn one by one. All but the first and last are independent; half of the rest are writes."""
    task, source = build("flip_flop", ignores=ignores), generator()
    shares = {2: (1 - ignores) / 2, 3: ignores, 4: (1 - ignores) / 2}
    expected = {(a, b): shares[a] * shares[b] for a, b in itertools.product(shares, repeat=2)}
    drawn = [task.sample(1, 4, source, split="train", causal=True).tokens[0].tolist() for _ in range(6000)]
    assert close(((tokens[3], tokens[5]) for tokens in drawn), expected)
    assert close((tokens[2] for tokens in drawn), uniform([0, 1]))
    assert close((tokens[4] for tokens in drawn if tokens[3] != 4), uniform([0, 1]))


def test_a_batch_reads_at_shared_and_writes_at_own_positions() -> None:
    task = build("flip_flop")
    one, other = draw(task, 40, 64), draw(task, 40, 64, seed=1)
    instructions = one.tokens[:, 1::2]
    assert len((instructions == 4).unique(dim=0)) == 1
    assert len((instructions == 2).unique(dim=0)) > 60
    assert not torch.equal(one.counted, other.counted)


def test_pairs_and_their_order_are_uniform() -> None:
    task = build("associative_recall", train_length=3, num_keys=4, num_values=3)
    batch = draw(task, 3, 20000).tokens.tolist()
    assert close((tuple(tokens[1:6:2]) for tokens in batch), uniform(itertools.permutations(range(4), 3)))
    assert close((tuple(tokens[2:7:2]) for tokens in batch), uniform(itertools.product(range(4, 7), repeat=3)))
    orders = (tuple(tokens[1:6:2].index(query) for query in tokens[7:]) for tokens in batch)
    assert close(orders, uniform(itertools.permutations(range(3))))


def test_all_places_of_what_is_copied_are_equally_likely() -> None:
    task = build("selective_copy", num_copied=3)
    batch = draw(task, 4, 20000).tokens[:, 1:8]
    places = (tuple(places) for places in (batch < 10).nonzero()[:, 1].view(-1, 3).tolist())
    assert close(places, uniform(itertools.combinations(range(7), 3)))


@pytest.mark.parametrize("length", [1, 6, 40])
def test_a_passkey_is_as_likely_at_every_depth(length: int) -> None:
    batch = draw(build("passkey"), length, 20000).tokens
    depths = (batch[:, 1:] == 11).long().argmax(-1).tolist()
    assert close(depths, uniform(range(length + 1)))


# ------------------------------------------------------------------------------------------------------------ guesses


@pytest.mark.parametrize(
    ("name", "knobs", "length", "expected"),
    [
        ("associative_recall", {**THREE, "num_keys": 5, "num_values": 3}, 3, itertools.product(range(5, 8), repeat=3)),
        ("selective_copy", {"num_symbols": 3, "num_copied": 3}, 4, itertools.product(range(3), repeat=3)),
        ("passkey", {"num_symbols": 2, "num_digits": 5}, 4, itertools.product(range(2), repeat=5)),
        ("copy", {**THREE, "unique": True, "num_symbols": 4}, 3, itertools.permutations(range(4), 3)),
        ("copy", {**THREE, "unique": True, "num_symbols": 3}, 3, itertools.permutations(range(3), 3)),
    ],
)
def test_all_answers_are_as_likely_as_the_guess_says(
    name: str, knobs: dict[str, Any], length: int, expected: Iterable[tuple[int, ...]]
) -> None:
    task, batch = tasks.build(name, **knobs), draw(tasks.build(name, **knobs), length, 20000)
    likely = uniform(expected)
    assert close(answers(batch), likely)
    symbols = {symbol for answer in likely for symbol in answer}  # type: ignore[attr-defined]
    for place in range(batch.counted.sum()):
        assert close((answer[place] for answer in answers(batch)), uniform(symbols))
    assert task.position_guess("exact_match", length) == pytest.approx(1 / len(likely), rel=1e-12)
    assert task.position_guess("token_accuracy", length) == task.chance("token_accuracy", length)
    assert task.chance("token_accuracy", length) == pytest.approx(1 / len(symbols))
    assert task.chance("exact_match", length) == pytest.approx(len(symbols) ** -int(batch.counted.sum()))


@pytest.mark.parametrize("ignores", [0.1, 0.8, 1.0])
def test_reads_give_one_bit_as_often_as_the_other(ignores: float) -> None:
    task = build("flip_flop", ignores=ignores)
    batch = draw(task, 24, 4000)
    ones = batch.targets[:, batch.counted].double().mean(0)
    assert (ones - 0.5).abs().max() < 5 * 0.5 / 4000**0.5
    assert task.chance("token_accuracy", 24) == task.position_guess("token_accuracy", 24) == 0.5


@pytest.mark.parametrize("knobs", [{}, {"kinds": 8, "max_depth": 10}, {"kinds": 1, "max_depth": 1}, {"max_depth": 1}])
@pytest.mark.parametrize("length", [3, 32])
def test_the_guess_at_brackets_holds_on_draws(knobs: dict[str, int], length: int) -> None:
    """The likeliest answers of some draws, on others."""
    task = build("dyck", **knobs)
    learned = draw(task, length, 4000, seed=1).targets[:, 1:].mode(0).values
    right = (draw(task, length, 4000).targets[:, 1:] == learned).double().mean(1)
    error = right.std().item() / 4000**0.5
    assert task.position_guess("token_accuracy", length) == pytest.approx(right.mean().item(), abs=5 * error + 1e-9)
    assert task.chance("token_accuracy", length) == pytest.approx(1 / (knobs.get("kinds", 2) + 1))


# ------------------------------------------------------------------------------------------------- bounds and mistakes


@pytest.mark.parametrize("name", SHORTEST)
def test_the_shortest_and_the_long(name: str) -> None:
    task = build(name)
    longest = {"associative_recall": 64}.get(name, 1500)
    for length in (SHORTEST[name], longest):
        batch = draw(task, length, 2)
        check_form(task, batch, length, 2)
        assert batch.counted.any()
    small = build(name, train_length=SHORTEST[name], min_length=SHORTEST[name])
    check_form(small, draw(small, SHORTEST[name]), SHORTEST[name])


@pytest.mark.parametrize("name", RETRIEVAL)
def test_what_is_asked_after_the_input_depends_on_all_of_it(name: str) -> None:
    task: Any = build(name)
    for length in (2, 3, 8, 40):
        span, batch = task.input_span(length), draw(task, length)
        assert 1 <= span.start < span.stop <= task.sequence_length(length)
        after = batch.counted[span.stop :].sum()
        whole: Callable[[int], int] = {
            "dyck": lambda length: length - 3 * length // 4,
            "flip_flop": lambda _: 1,
            "selective_copy": lambda _: 8,
            "passkey": lambda _: 5,
        }.get(name, lambda length: length)
        assert after == whole(length)


# ----------------------------------------------------------------------------------------------------------------- runs


@pytest.mark.parametrize("name", RETRIEVAL)
def test_a_model_reads_every_batch(name: str) -> None:
    task = build(name)
    geometry = Geometry(model_dim=16, num_heads=2, num_layers=1, train_length=task.sequence_length(task.train_length))
    model = Transformer(task.vocab_size, geometry, pe_zoo.build("t5", geometry))
    batch = draw(task, 6, 2)
    assert model(batch.tokens).shape == (*batch.tokens.shape, task.vocab_size)
