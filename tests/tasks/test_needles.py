"""needles: lines put into real text, in the forms of RULER, and what is asked of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from support import draw, generator

from experiments.tasks import Batch, Placed, tasks
from experiments.tasks.needles import inserted
from pe_zoo import Unsupported

NEEDLE = rb"\n@[a-z]{2}=[a-z]{2}\n"
LINE = re.compile(rb"\n@([a-z]{2})=([a-z]{2})(?=\n)")
FORMS = [("keys", 1), ("keys", 4), ("queries", 2), ("values", 2), ("tracing", 3)]
every_form = pytest.mark.parametrize(("form", "num_needles"), FORMS)


def build(folder: Path, **knobs: Any) -> Any:
    (folder / "text.txt").write_bytes(b"".join(b"%d THE QUICK BROWN FOX. " % number for number in range(3000)))
    return tasks.build("needles", path=str(folder / "text.txt"), **knobs)


def expected(form: str, lines: list[tuple[bytes, bytes]], text: bytes) -> bytes:
    """The answer to a question by reading the lines."""
    if form == "tracing":
        value = text[2:4]
        following = {value: key for key, value in lines}
        names = []
        while value in following:
            names.append(value := following[value])
        return b"".join(names)
    asked = re.findall(rb"@([a-z]+)=", text)
    if form == "values":
        return b"".join(value for key, value in lines if key == asked[-1])
    return b"".join(dict(lines)[key] for key in asked)


@every_form
def test_the_answer_is_what_the_lines_say(form: str, num_needles: int, tmp_path: Path) -> None:
    task = build(tmp_path, form=form, num_needles=num_needles)
    groups, each = (num_needles, 1) if form == "keys" else (2, num_needles)
    assert task.min_length == task.shortest, "short sequences are among those of training"
    for length in (task.shortest, task.train_length, 200):
        batch = draw(task, length, split="test")
        assert batch.tokens.shape == batch.targets.shape == (8, length)
        assert int(batch.counted.sum()) == task.answer_size(length) == 2 * each
        question = len(task._counted)
        for tokens, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
            text = bytes(targets)
            assert (tokens[0], bytes(tokens[1:])) == (256, text[:-1])
            haystack, asked = text[:-question], text[-question:]
            lines = [(match[1], match[2]) for match in LINE.finditer(haystack)]
            assert len(lines) == groups * each
            assert re.fullmatch(rb"[\dA-Z .]*", re.sub(NEEDLE, b"", haystack))
            answer = bytes(target for target, counts in zip(targets, batch.counted.tolist(), strict=True) if counts)
            assert answer == expected(form, lines, asked)
            names = [key for key, _ in lines]
            distinct = len(set(names)) if form != "values" else 2 * each * (len(set(names)) == 2)
            assert distinct == groups * each, "no two keys are the same"
            assert len({name[0] for name in names}) == len(set(names)), "nor begin alike"


@every_form
def test_guesses_get_what_is_said(form: str, num_needles: int, tmp_path: Path) -> None:
    task = build(tmp_path, form=form, num_needles=num_needles, num_letters=1)
    batch = draw(task, task.train_length, 4000)
    answers = batch.targets[:, batch.counted] - ord("a")
    assert {*range(26)} == set(answers.flatten().tolist())
    for metric in ("token_accuracy", "exact_match"):
        assert task.chance(metric, 100) == pytest.approx(
            26.0 ** -(1 if metric == "token_accuracy" else answers.shape[1])
        )
    counts = torch.stack([answers[:, place].bincount(minlength=26) for place in range(answers.shape[1])])
    assert (counts / 4000 - task.position_guess("token_accuracy", 100)).abs().max() < 5 * (1 / 26 / 4000) ** 0.5
    if form == "tracing":
        assert task.position_guess("exact_match", 100) == pytest.approx(1 / (26 * 25 * 24))


@every_form
def test_the_evidence_stands_together_at_its_place(form: str, num_needles: int, tmp_path: Path) -> None:
    task = build(tmp_path, form=form, num_needles=num_needles)
    count, each = task.places(128), 1 if form == "keys" else num_needles

    def placed(place: int, other: int | None = None) -> Placed:
        return task.placed(place, 8, 128, generator(), causal=True, other=other)

    def texts(batch: Batch) -> list[bytes]:
        return [bytes(targets) for targets in batch.targets[:, : 128 - len(task._counted)].tolist()]

    def evidence(answer: bytes, text: bytes) -> bytes:
        first = next(line for line in LINE.finditer(text) if answer[:2] in line.groups()[form != "tracing" :])
        return text[first.start() : first.start() + 8 * each]

    first = placed(0).batch
    for place in (0, 5, count - 1):
        batch = placed(place).batch
        right = batch.targets[:, batch.counted]
        assert torch.equal(right, first.targets[:, first.counted]), "the same questions"
        for text, before, answer in zip(texts(batch), texts(first), map(bytes, right.tolist()), strict=True):
            found = evidence(answer, text)
            assert len(re.sub(NEEDLE, b"", text[: text.index(found)])) == place
            assert text.replace(found, b"") == before.replace(found, b"")
    if form == "keys" and num_needles == 1:
        with pytest.raises(Unsupported, match=r"raise task\.num_needles"):
            placed(0, 3)
        return
    one, two = placed(2, 50), placed(50, 2)
    assert one.decoys is not None
    decoys, right = one.decoys[:, one.batch.counted].tolist(), one.batch.targets[:, one.batch.counted].tolist()
    for here, there, answer, decoy in zip(texts(one.batch), texts(two.batch), right, decoys, strict=True):
        pair = [evidence(bytes(each), here) for each in (answer, decoy)]
        assert pair[0] != pair[1]
        for text, places in ((here, (2, 50)), (there, (50, 2))):
            assert [len(re.sub(NEEDLE, b"", text[: text.index(each)])) for each in pair] == [*places]
        assert here.replace(pair[0], b"").replace(pair[1], b"") == there.replace(pair[0], b"").replace(pair[1], b"")


def test_needles_go_between_tokens_in_order() -> None:
    text, needles = torch.tensor([[1, 2, 3], [1, 2, 3]]), torch.tensor([[[7, 8], [9, 9]], [[7, 8], [9, 9]]])
    found = inserted(text, needles, torch.tensor([[0, 3], [1, 1]]))
    assert found.tolist() == [[7, 8, 1, 2, 3, 9, 9], [1, 7, 8, 9, 9, 2, 3]]


def test_needles_come_and_go_with_their_text(tmp_path: Path) -> None:
    task = build(tmp_path)
    assert task.provenance()["source"] == "text.txt"
    digest = tasks.get("needles").data_sha256(path=str(tmp_path / "text.txt"))
    assert digest == task.provenance()["splits_sha256"]
    with pytest.raises(Unsupported, match="more than the test text has"):
        draw(task, 10**6, split="test")
    with pytest.raises(Unsupported, match="needles: the answer depends on all of the input"):
        task.windows(torch.tensor([5]), 4, causal=True)


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"form": "key"}, r"task\.form must be one of keys, queries, values, tracing; got 'key'\. Did you mean 'keys'"),
        ({"num_needles": 0}, r"task\.num_needles must be a whole number of at least 1; got 0"),
        ({"num_needles": 27}, r"task\.num_needles=27 takes 27 keys: there are 26 to begin keys with, none twice"),
        ({"num_letters": 0}, r"task\.num_letters must be a whole number of at least 1; got 0"),
        ({"train_length": 20}, r"task\.train_length must be a whole number of at least 24; got 20"),
    ],
)
def test_bad_knobs_are_one_line(knobs: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said) as refusal:
        build(tmp_path, **knobs)
    assert "\n" not in str(refusal.value)


def test_of_another_tokenizer_keys_and_values_are_words(tmp_path: Path) -> None:
    words = [f"{a}{b}word" for a in "abcdefghij" for b in "abcdefgh"]
    text = " ".join(f"{word} {number}" for number, word in enumerate(words * 60))
    (tmp_path / "text.txt").write_text(text)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=1000, initial_alphabet=alphabet)
    tokenizer.train_from_iterator([text], trainer)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    knobs = {"path": str(tmp_path / "text.txt"), "tokenizer": str(tmp_path), "num_letters": 1}
    task: Any = tasks.build("needles", **knobs)
    batch = draw(task, 128)
    spelled = [task.text.spelled[token] for token in batch.targets[:, batch.counted].flatten().tolist()]
    assert all(re.fullmatch(rb" ?[a-z]{3,}", word) for word in spelled)
    whole = b"".join(task.text.spelled[token] for token in batch.targets[0].tolist())
    assert re.search(rb"\n@ ?[a-z]+= ?[a-z]+\n", whole)
