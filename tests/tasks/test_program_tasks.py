"""lego, s5 and scan: right by naive solvers, drawn as they say, shown to nobody, and guesses that none can better."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import draw, generator

from experiments.tasks import Batch, tasks
from experiments.tasks import lego as lego_module
from experiments.tasks import s5 as s5_module
from experiments.tasks import scan as scan_module
from pe_zoo import Unsupported

NAMES = ("lego", "s5", "scan")
GROUPS = {"s5": 120, "a5": 60, "a4_x_z5": 60, "z60": 60, "s3": 6}


def answers(batch: Batch) -> list[list[int]]:
    found: list[list[int]] = batch.targets[:, batch.counted].tolist()
    return found


def within(share: float, expected: float, n: int) -> bool:
    """Within five binomial errors."""
    return abs(share - expected) <= 5 * max(expected * (1 - expected) / n, 1 / n**2) ** 0.5


# -------------------------------------------------------------------------------------------------------- lego


def resolve(clauses: list[tuple[str, str, str]]) -> dict[str, str]:
    """Values of all variables: assign what can be assigned, again and again."""
    values: dict[str, str] = {"1": "+"}
    while len(values) <= len(clauses):
        for name, sign, source in clauses:
            if source in values:
                values[name] = "+" if sign == values[source] else "-"
    return values


def spelled(token: int) -> str:
    return "+-1^|"[token] if token < 5 else f"x{token - 5}"


def programs(batch: Batch, length: int) -> list[tuple[list[tuple[str, str, str]], list[str]]]:
    """Clauses and the variables asked for, of each sequence."""
    found = []
    for tokens in batch.tokens.tolist():
        begin, *rest = map(spelled, tokens)
        program, mark, asked = rest[: 3 * length], rest[3 * length], rest[3 * length + 1 :]
        assert (begin, mark) == ("^", "|")
        clauses = [(program[place], program[place + 1], program[place + 2]) for place in range(0, 3 * length, 3)]
        found.append((clauses, asked))
    return found


@given(st.integers(1, 12), st.integers(0, 20), st.booleans(), st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_lego_is_one_chain_and_its_values_are_right(length: int, spare: int, causal: bool, seed: int) -> None:
    num_variables = max(2, length + spare)
    task = tasks.build("lego", train_length=1, num_variables=num_variables)
    batch = draw(task, length, causal=causal, seed=seed)
    size = 4 * length + 2
    assert batch.tokens.shape == batch.targets.shape == (8, size) == (8, task.sequence_length(length))
    assert batch.tokens.dtype == batch.targets.dtype == torch.int64
    assert batch.counted.tolist() == [place >= 3 * length + 2 for place in range(size)]
    assert 0 <= int(batch.tokens.min()) <= int(batch.tokens.max()) < task.vocab_size == num_variables + 5
    assert task.input_span(length) == slice(1, 3 * length + 1)
    for (clauses, asked), answer in zip(programs(batch, length), answers(batch), strict=True):
        assert asked == [name for name, _, _ in clauses]
        assert len(set(asked)) == length
        assert all(name.startswith("x") and sign in "+-" for name, sign, _ in clauses)
        sources = Counter(source for _, _, source in clauses)
        assert sources["1"] == 1
        assert max(sources.values()) == 1
        assert set(sources) <= {"1", *asked}
        values = resolve(clauses)
        assert [spelled(token) for token in answer] == [values[name] for name in asked]


@pytest.mark.parametrize("length", [1, 2, 3])
def test_lego_programs_are_uniform(length: int) -> None:
    task, num_draws = tasks.build("lego", train_length=1, num_variables=3), 20000
    drawn = Counter(tuple(clauses) for clauses, _ in programs(draw(task, length, num_draws), length))
    names = {1: 3, 2: 6, 3: 6}[length]
    orders = {1: 1, 2: 2, 3: 6}[length]
    assert len(drawn) == names * orders * 2**length
    assert all(within(count / num_draws, 1 / len(drawn), num_draws) for count in drawn.values())


def test_lego_places_say_nothing_of_values_or_depth() -> None:
    task, num_draws, length = tasks.build("lego"), 6000, 5
    batch = draw(task, length, num_draws)
    values = batch.targets[:, batch.counted].double().mean(0)
    assert all(within(share, 0.5, num_draws) for share in values.tolist())
    roots = torch.tensor(
        [[source == "1" for _, _, source in clauses] for clauses, _ in programs(batch, length)], dtype=torch.float64
    )
    assert all(within(share, 1 / length, num_draws) for share in roots.mean(0).tolist())
    likeliest = Counter(map(tuple, answers(batch))).most_common(1)[0][1]
    assert likeliest / num_draws < 2 * task.position_guess("exact_match", length)
    for metric, chance in {"token_accuracy": 0.5, "exact_match": 0.5**length}.items():
        assert task.chance(metric, length) == task.position_guess(metric, length) == chance


def test_lego_couples_what_is_asked_with_where_it_is_assigned() -> None:
    task = tasks.build("lego")
    for causal in (True, False):
        numbers = task.numbers("coupled", task.sequence_length(3), causal=causal).tolist()
        assert numbers == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 4, 7]
        tokens = draw(task, 3, 1, causal=causal).tokens[0].tolist()
        named = {number: token for number, token in zip(numbers[1:10], tokens[1:10], strict=True)}
        assert [named[number] for number in numbers[11:]] == tokens[11:]
        assert task.numbers("coupled", 6, causal=causal).tolist() == [0, 1, 2, 3, 0, 1]
        with pytest.raises(ValueError, match="task=lego offers no abacus positions"):
            task.numbers("abacus", 6, causal=causal)


# ---------------------------------------------------------------------------------------------------------- s5


def cycles(*moved: tuple[int, ...], points: int) -> tuple[int, ...]:
    """A permutation from its cycles."""
    image = list(range(points))
    for cycle in moved:
        for here, there in zip(cycle, cycle[1:] + cycle[:1], strict=True):
            image[here] = there
    return tuple(image)


def even(permutation: tuple[int, ...]) -> bool:
    """Even by its cycles: as many points as cycles, or differing by an even number."""
    unseen, num_cycles = set(range(len(permutation))), 0
    while unseen:
        num_cycles += 1
        point = unseen.pop()
        while permutation[point] in unseen:
            point = permutation[point]
            unseen.remove(point)
    return (len(permutation) - num_cycles) % 2 == 0


def members(group: str) -> list[tuple[int, ...]]:
    """The elements in order, from the definitions of the groups."""
    four, five = itertools.permutations(range(4)), itertools.permutations(range(5))
    turns = [tuple((point + step) % 5 for point in range(5)) for step in range(5)]
    return {
        "s5": lambda: sorted(five),
        "a5": lambda: sorted(filter(even, five)),
        "a4_x_z5": lambda: sorted(
            (*one, *(4 + point for point in turn)) for one in filter(even, four) for turn in turns
        ),
        "z60": lambda: sorted(tuple((point + step) % 60 for point in range(60)) for step in range(60)),
        "s3": lambda: sorted(itertools.permutations(range(3))),
    }[group]()


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("generators", ["all", "pair"])
@given(st.integers(1, 40), st.booleans(), st.integers(0, 1000))
@settings(max_examples=12, deadline=None)
def test_s5_says_where_everything_is_after_each_move(
    group: str, generators: str, length: int, causal: bool, seed: int
) -> None:
    task, order = tasks.build("s5", group=group, generators=generators), GROUPS[group]
    every = members(group)
    batch = draw(task, length, 4, causal=causal, seed=seed)
    assert batch.tokens.shape == batch.targets.shape == (4, length + 1) == (4, task.sequence_length(length))
    assert batch.tokens.dtype == batch.targets.dtype == torch.int64
    assert batch.counted.tolist() == [False] + [True] * length
    assert task.vocab_size == order + 1 == len(every) + 1
    for tokens, answer in zip(batch.tokens.tolist(), answers(batch), strict=True):
        begin, *word = tokens
        assert begin == order
        where = list(range(len(every[0])))
        for element, state in zip(word, answer, strict=True):
            where = [every[element][place] for place in where]
            assert every[state] == tuple(where)


@pytest.mark.parametrize("group", GROUPS)
def test_s5_tables_are_groups_and_pairs_generate_them(group: str) -> None:
    assert s5_module.elements(group) == members(group)
    table = s5_module.products(group)
    size = torch.arange(GROUPS[group])
    assert table.shape == (len(size), len(size))
    assert torch.equal(table[0], size)
    assert torch.equal(table[:, 0], size)
    assert torch.equal(table.sort(0).values, size.unsqueeze(1).expand_as(table))
    assert torch.equal(table.sort(1).values, size.expand_as(table))
    one, other = table[table[:7]], table[:7][:, table]
    assert torch.equal(one, other), "not associative"
    assert torch.equal(table, table.T) == (group == "z60")
    pair = {s5_module.elements(group).index(element) for element in s5_module.PAIRS[group]}
    reached = {0}
    while further := {int(table[here, step]) for here in reached for step in pair} - reached:
        reached |= further
    assert len(reached) == len(size)


def test_s5_moves_are_the_documented_ones() -> None:
    number = {element: place for place, element in enumerate(s5_module.elements("s5"))}
    assert number[cycles((0, 1), points=5)] == 24
    assert number[cycles((0, 1, 2, 3, 4), points=5)] == 33
    assert s5_module.PAIRS["s5"] == (cycles((0, 1), points=5), cycles((0, 1, 2, 3, 4), points=5))
    assert s5_module.PAIRS["a5"] == (cycles((0, 1, 2), points=5), cycles((0, 1, 2, 3, 4), points=5))
    assert s5_module.PAIRS["a4_x_z5"] == (
        cycles((0, 1), (2, 3), points=9),
        cycles((0, 1, 2), (4, 5, 6, 7, 8), points=9),
    )
    assert s5_module.PAIRS["z60"] == (cycles(points=60), cycles(tuple(range(60)), points=60))


@pytest.mark.parametrize("group", ["s3", "a5", "z60"])
@pytest.mark.parametrize("generators", ["all", "pair"])
@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_s5_guesses_are_the_best_there_are(group: str, generators: str, length: int) -> None:
    """By enumeration of all words where that is possible, else on draws."""
    task = tasks.build("s5", group=group, generators=generators)
    order = GROUPS[group]
    for metric, chance in {"token_accuracy": 1 / order, "exact_match": order**-length}.items():
        assert task.chance(metric, length) == pytest.approx(chance)
        assert task.chance(metric, length) <= task.position_guess(metric, length)
    num_moves = order if generators == "all" else 2
    assert task.position_guess("exact_match", length) == pytest.approx(num_moves**-length)
    if generators == "all":
        assert task.position_guess("token_accuracy", length) == pytest.approx(1 / order)
        return
    every = members(group)
    states: list[Counter[tuple[int, ...]]] = [Counter() for _ in range(length)]
    for word in itertools.product(s5_module.PAIRS[group], repeat=length):
        where = tuple(range(len(every[0])))
        for place, move in enumerate(word):
            where = tuple(move[point] for point in where)
            states[place][where] += 1
    best = sum(max(found.values()) for found in states) / length / 2**length
    assert task.position_guess("token_accuracy", length) == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize(("group", "generators"), [("s5", "pair"), ("s5", "all"), ("a4_x_z5", "pair"), ("s3", "pair")])
def test_s5_draws_are_as_uniform_as_the_guess_says(group: str, generators: str) -> None:
    task, num_draws, length = tasks.build("s5", group=group, generators=generators), 20000, 12
    batch = draw(task, length, num_draws)
    moves = batch.tokens[:, 1:].unique(return_counts=True)[1]
    assert len(moves) == (GROUPS[group] if generators == "all" else 2)
    assert all(within(count / moves.sum(), 1 / len(moves), int(moves.sum())) for count in moves.tolist())
    learned = draw(task, length, num_draws, seed=1).targets[:, batch.counted].mode(0).values
    share = (batch.targets[:, batch.counted] == learned).double().mean().item()
    assert within(share, task.position_guess("token_accuracy", length), num_draws)


# -------------------------------------------------------------------------------------------------------- scan

PRIMITIVES = {"walk": ["WALK"], "look": ["LOOK"], "run": ["RUN"], "jump": ["JUMP"], "turn": []}
TURNS = {"left": "LTURN", "right": "RTURN"}


def carry_out(command: list[str]) -> list[str]:
    """The interpretation function of the paper, read from the command's end."""
    for joint in ("and", "after"):
        if joint in command:
            place = command.index(joint)
            first, second = carry_out(command[:place]), carry_out(command[place + 1 :])
            return first + second if joint == "and" else second + first
    *rest, last = command
    if last in ("twice", "thrice"):
        return carry_out(rest) * {"twice": 2, "thrice": 3}[last]
    if last in TURNS:
        verb, *manner = rest
        once = [TURNS[last], *PRIMITIVES[verb]]
        return {"": once, "opposite": [TURNS[last], *once], "around": once * 4}["".join(manner)]
    assert not rest
    assert last != "turn"
    return PRIMITIVES[last]


def say(tokens: list[int]) -> list[str]:
    return [scan_module.TOKENS[token] for token in tokens]


def test_scan_commands_are_the_published_ones() -> None:
    """The digest is of the published file's lines, sorted, written in its own names for the actions."""
    every = list(scan_module.grammar())
    assert len(every) == len({words for words, _ in every}) == 20910
    assert sum(len(actions) <= 22 for _, actions in every) == 16990
    assert sum(len(actions) > 22 for _, actions in every) == 3920
    own = {"LTURN": "I_TURN_LEFT", "RTURN": "I_TURN_RIGHT"}
    lines = sorted(
        f"IN: {' '.join(words)} OUT: {' '.join(own.get(action, f'I_{action}') for action in actions)}"
        for words, actions in every
    )
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    assert digest == "345bff3c25864652f326ba1960aa515d156b63f45067ea57268f71d7362a2440"
    assert max(len(words) for words, _ in every) == scan_module.MOST_WORDS == 9
    assert len(set(scan_module.TOKENS)) == len(scan_module.TOKENS) == tasks.build("scan").vocab_size


def test_scan_actions_are_what_the_commands_mean() -> None:
    for words, actions in scan_module.grammar():
        assert carry_out(list(words)) == list(actions)


def test_scan_has_the_lengths_that_it_says() -> None:
    counts = {length: len(words) for length, (words, _) in scan_module.commands().items()}
    assert sum(counts.values()) == 20910
    assert counts == Counter(len(actions) for _, actions in scan_module.grammar())
    missing = {23, 29, 31, 34, 35, *range(37, 40), *range(41, 48)}
    assert set(counts) == set(range(1, 49)) - missing
    assert min(length for length in counts if length > 22) == 24


@given(st.sampled_from(sorted(scan_module.commands())), st.integers(0, 1000), st.booleans())
@settings(max_examples=60, deadline=None)
def test_scan_asks_for_the_actions_after_the_command(length: int, seed: int, fixed: bool) -> None:
    task = tasks.build("scan")
    batch = task.evaluation(6, length, generator(seed), causal=True) if fixed else draw(task, length, 6, seed=seed)
    size = 10 + length
    assert batch.tokens.shape == batch.targets.shape == (6, size) == (6, task.sequence_length(length))
    assert batch.tokens.dtype == batch.targets.dtype == torch.int64
    assert batch.counted.tolist() == [place >= 10 for place in range(size)]
    assert task.input_span(length) == slice(1, 10)
    for tokens, answer in zip(batch.tokens.tolist(), answers(batch), strict=True):
        begin, *command = say(tokens[:10])
        words = [word for word in command if word != "_"]
        assert begin == "^"
        assert command == ["_"] * (9 - len(words)) + words
        assert say(answer) == carry_out(words)
        assert len(answer) == length
        # It may read the answer up to, and not including, what it is asked for.
        assert say(tokens[10:]) == ["|", *carry_out(words)[:-1]]


def test_scan_commands_are_uniform_and_tested_once_each() -> None:
    task, num_draws = tasks.build("scan"), 20000
    for length, num_commands in {1: 6, 2: 88, 48: 128}.items():
        drawn = Counter(map(tuple, draw(task, length, num_draws).tokens[:, 1:10].tolist()))
        assert len(drawn) == num_commands
        assert all(within(count / num_draws, 1 / num_commands, num_draws) for count in drawn.values())
        tested = task.evaluation(1000, length, generator(), causal=True).tokens
        assert len(tested) == len(tested.unique(dim=0)) == num_commands
    for seed in (0, 1):
        tested = task.evaluation(50, 22, generator(seed), causal=True).tokens
        assert len(tested) == len(tested.unique(dim=0)) == 50


def test_scan_refuses_lengths_without_commands_by_the_nearest() -> None:
    task = tasks.build("scan")
    for length, said in {
        23: "no command has 23 actions; the nearest have 22 and 24",
        44: "no command has 44 actions; the nearest have 40 and 48",
        49: "no command has 49 actions; the nearest have 48",
        0: "no command has 0 actions; the nearest have 1",
    }.items():
        for asked in (task.evaluation, task.position_guess):
            given_to: Any = {task.evaluation: (4, length, generator()), task.position_guess: ("exact_match", length)}
            more = {"causal": True} if asked == task.evaluation else {}
            with pytest.raises(Unsupported) as refusal:
                asked(*given_to[asked], **more)
            assert str(refusal.value) == f"task=scan: {said}"
        with pytest.raises(Unsupported):
            draw(task, length, split="test")
    with pytest.raises(Unsupported):
        task.sample(4, 49, generator(), split="train", causal=True)


def test_scan_trains_on_the_next_length_that_has_commands() -> None:
    task = tasks.build("scan", train_length=25)
    assert task.sequence_length(23) == task.sequence_length(24) == 34
    for length, taken in {22: 22, 23: 24, 24: 24, 25: 25}.items():
        batch = task.sample(4, length, generator(), split="train", causal=True)
        assert batch.tokens.shape == (4, 10 + taken) == (4, task.sequence_length(length))
        assert torch.equal(batch.tokens, task.sample(4, taken, generator(), split="train", causal=True).tokens)


def test_scan_guesses_are_the_best_there_are() -> None:
    task = tasks.build("scan")
    outputs: dict[int, list[tuple[str, ...]]] = {}
    for _, actions in scan_module.grammar():
        outputs.setdefault(len(actions), []).append(actions)
    for length, found in outputs.items():
        likeliest = [Counter(place).most_common(1)[0][1] for place in zip(*found, strict=True)]
        whole = Counter(found).most_common(1)[0][1]
        assert task.position_guess("token_accuracy", length) == pytest.approx(sum(likeliest) / length / len(found))
        assert task.position_guess("exact_match", length) == pytest.approx(whole / len(found))
        for metric, chance in {"token_accuracy": 1 / 6, "exact_match": 6.0**-length}.items():
            assert task.chance(metric, length) == pytest.approx(chance)
            assert task.chance(metric, length) <= task.position_guess(metric, length) + 1e-12
    for length in (4, 22):
        batch = draw(task, length, 20000)
        learned = torch.tensor([place.mode().values for place in scan_module.commands()[length][1].unbind(1)])
        share = (batch.targets[:, 10:] == learned).double().mean().item()
        assert within(share, task.position_guess("token_accuracy", length), 20000)


# ------------------------------------------------------------------------------------------------ what all share


@pytest.mark.parametrize("name", ["lego", "s5"])
@pytest.mark.parametrize("length", [1, 2, 7])
def test_both_kinds_of_model_read_the_same_and_no_answer(name: str, length: int) -> None:
    """Answers are read nowhere: what is read does not change with them but by the input."""
    task = tasks.build(name)
    one, other = draw(task, length, 50, causal=True), draw(task, length, 50, causal=False)
    assert torch.equal(one.tokens, other.tokens)
    assert torch.equal(one.targets, other.targets)
    if name == "lego":
        assert (one.tokens[:, one.counted] >= lego_module.FIRST_VARIABLE).all()
        assert (one.targets[:, one.counted] <= lego_module.MINUS).all()
    else:
        moves = s5_module.products("s5").argsort(1)[one.targets[:, 1:-1], one.targets[:, 2:]]
        assert torch.equal(moves, one.tokens[:, 2:])


def test_a_bidirectional_model_generates_no_actions() -> None:
    task = tasks.build("scan")
    for ask in (lambda: draw(task, 5, causal=False), lambda: task.evaluation(2, 5, generator(), causal=False)):
        with pytest.raises(ValueError, match=r"task=scan .*needs a causal model: set model\.causal=true") as refusal:
            ask()
        assert "\n" not in str(refusal.value)
