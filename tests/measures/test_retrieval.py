"""retrieval: accuracy by depth of the evidence and length, against solvers by hand and models that cannot know."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support import Command, generator
from torch import Tensor
from torch.nn import functional

import pe_zoo
from experiments import Transformer
from experiments.figures import dots
from experiments.measures.place_bias.measure import measure as place_bias
from experiments.measures.retrieval import report
from experiments.measures.retrieval.answer import answer as answer_of
from experiments.measures.retrieval.measure import measure
from experiments.rows.row import Row, frame
from experiments.statistics.intervals import over_seeds
from experiments.tasks import Placed, Task, tasks
from experiments.training.evaluate import Subject
from pe_zoo import Geometry, Unsupported

ALL = {
    "passkey": {"train_length": 8, "num_digits": 2},
    "associative_recall": {"train_length": 6, "num_keys": 48},
    "needles": {"train_length": 60, "num_needles": 3},
}
"""Tasks whose evidence has a place, and knobs to test them with."""
with_places = pytest.mark.parametrize("name", ALL)


def build(name: str, **knobs: Any) -> Task:
    return tasks.build(name, **{**ALL[name], **knobs})


def subject_of(model: torch.nn.Module, task: Task) -> Subject:
    labels: dict[str, Any] = {"run_id": "run", "encoder": "x", "positions": "sequential", "task": task.name, "seed": 0}
    return Subject(
        model=model,  # type: ignore[arg-type]
        initial=lambda: model,  # type: ignore[arg-type,return-value]
        trained=False,
        task=task,
        numbering=pe_zoo.numberings.build("sequential"),
        seed=0,
        labels={**labels, "train_length": task.train_length},
    )


def untrained(task: Task, name: str, *, causal: bool) -> Transformer:
    geometry = Geometry(model_dim=16, num_heads=2, num_layers=2, train_length=task.sequence_length(task.train_length))
    torch.manual_seed(0)
    return Transformer(task.vocab_size, geometry, pe_zoo.build(name, geometry), causal=causal).double().eval()


class Solver(torch.nn.Module):
    """Answers by hand what was read: ``solve`` makes tokens ``(batch, length)`` the answer at each place.

    Of longer sequences than ``window`` it knows the last ``window`` tokens alone, and takes the rest for token 0.
    """

    def __init__(self, task: Task, solve: Callable[[Tensor], Tensor], window: int = 10**6) -> None:
        super().__init__()
        self.vocab_size, self.solve, self.window, self.causal = task.vocab_size, solve, window, True
        self.token_embedding = torch.nn.Embedding(1, 1)

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        seen = tokens.clone()
        seen[:, : max(0, tokens.shape[1] - self.window)] = 0
        return functional.one_hot(self.solve(seen), self.vocab_size) * 9.0


def passkey(task: Any) -> Callable[[Tensor], Tensor]:
    """After the last mark, repeat what stands after the first."""

    def solve(tokens: Tensor) -> Tensor:
        marks = (tokens == task._mark).long()
        first, last = marks.argmax(1), tokens.shape[1] - 1 - marks.flip(1).argmax(1)
        back = (last - first).clamp(min=1).unsqueeze(1)
        following = torch.arange(tokens.shape[1]) + 1 - back
        return tokens.gather(1, following.clamp(0, tokens.shape[1] - 1))

    return solve


def recall(tokens: Tensor) -> Tensor:
    """Of each token, what stood after its first occurrence."""
    same = tokens.unsqueeze(2) == tokens.unsqueeze(1)
    return tokens.roll(-1, 1).gather(1, same.long().argmax(2))


def after_key(tokens: Tensor) -> Tensor:
    """Of each token, what stood after the first ``@ab=`` that is the last one, so far along."""
    answers = torch.full_like(tokens, ord("a"))
    for row, read in enumerate(tokens.tolist()):
        text = bytes(token % 256 for token in read)
        asked = text.rfind(b"\n@")
        found = text.find(text[asked : asked + 5])
        for place in range(asked + 4, len(read) if found < asked else 0):
            answers[row, place] = read[place - asked + found + 1]
    return answers


SOLVERS: dict[str, Callable[[Any], Callable[[Tensor], Tensor]]] = {
    "passkey": passkey,
    "associative_recall": lambda task: recall,
    "needles": lambda task: after_key,
}
WINDOWS = {"passkey": 14, "associative_recall": 30, "needles": 60}
"""Tokens at the end that hold a sequence of the training length, and the last evidence of one four times as long."""


def placed(task: Task, place: int, length: int = 6, other: int | None = None, *, causal: bool = True) -> Placed:
    return task.placed(place, 16, length, generator(), causal=causal, other=other)


def by_depth(rows: list[Row], metric: str = "token_accuracy") -> dict[tuple[int, float], float]:
    return {(r.eval_length, r.depth): r.value for r in rows if r.metric == metric and r.depth is not None}


def whole(rows: list[Row], metric: str) -> list[float]:
    return [row.value for row in rows if row.metric == metric and row.depth is None]


# ------------------------------------------------------------------------------------------- where the evidence is


def test_the_key_stands_at_its_place_in_filler_of_training() -> None:
    task: Any = build("passkey", num_fillers=3)
    assert task.places(6) == 7
    for place in range(7):
        batch = placed(task, place).batch
        for tokens, answer in zip(batch.tokens.tolist(), batch.targets[:, batch.counted].tolist(), strict=True):
            text = tokens[1 : 1 + task.problem_size(6)]
            assert text[place] == task._mark
            assert text[place + 1 : place + 3] == answer
            filler = [symbol - task._noise for symbol in (*text[:place], *text[place + 3 :])]
            assert filler == [*(i % 3 for i in range(place)), *(i % 3 for i in range(6 - place))]
        drawn = task.sample(4000, 6, generator(1), split="test", causal=True).tokens
        same = (drawn == batch.tokens[0]) | (drawn < 10)  # digits aside: each text is one that training draws
        assert same.all(1).any()
    assert torch.equal(placed(task, 0).batch.targets[:, -2:], placed(task, 5).batch.targets[:, -2:]), "the same keys"


def test_the_pair_asked_for_stands_at_its_place() -> None:
    task: Any = build("associative_recall")
    assert task.places(6) == 6
    for place in range(6):
        batch = placed(task, place).batch
        assert batch.counted.nonzero().flatten().tolist() == [13]
        for tokens, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
            keys, values, queries = tokens[1:13:2], tokens[2:14:2], tokens[13:]
            assert sorted(keys) == sorted(queries)
            assert (keys[place], values[place]) == (queries[0], targets[13])


def test_moving_the_evidence_moves_nothing_else_out_of_order() -> None:
    task: Any = build("associative_recall")
    first = placed(task, 0).batch.tokens[:, 1:13].unflatten(1, (6, 2))
    for place in range(6):
        batch = placed(task, place).batch
        pairs = batch.tokens[:, 1:13].unflatten(1, (6, 2))
        assert torch.equal(pairs[:, place], first[:, 0])
        assert torch.equal(pairs[:, [at for at in range(6) if at != place]], first[:, 1:])
        assert torch.equal(batch.tokens[:, 13:], placed(task, 0).batch.tokens[:, 13:])


def test_evidence_and_distractor_exchange_their_places_alone() -> None:
    task: Any = build("associative_recall")
    for place, other in ((0, 3), (5, 2)):
        one, two = (placed(task, *at) for at in ((place, 6, other), (other, 6, place)))
        pairs = [each.batch.tokens[:, 1:13].unflatten(1, (6, 2)) for each in (one, two)]
        assert torch.equal(pairs[0][:, [place, other]], pairs[1][:, [other, place]])
        rest = [at for at in range(6) if at not in (place, other)]
        assert torch.equal(pairs[0][:, rest], pairs[1][:, rest])
        assert torch.equal(one.batch.tokens[:, 13:], two.batch.tokens[:, 13:])
        for each, at in ((one, other), (two, place)):
            assert each.decoys is not None
            assert torch.equal(each.decoys[:, 13], each.batch.tokens[:, 2 + 2 * at])


def test_a_task_without_evidence_or_distractor_says_so() -> None:
    with pytest.raises(Unsupported, match="copy: no part of the input is the evidence"):
        measure(subject_of(untrained(tasks.build("copy"), "none", causal=True), tasks.build("copy")))
    with pytest.raises(Unsupported, match="no other in its stead"):
        placed(build("passkey"), 0, other=1)


# ------------------------------------------------------------------------------------------------- exact controls


@with_places
def test_a_solver_by_hand_is_right_everywhere(name: str) -> None:
    task = build(name)
    rows = measure(subject_of(Solver(task, SOLVERS[name](task)), task), multiples=(0.5, 1.0, 2.0), depths=5, samples=8)
    found = by_depth(rows)
    assert {depth for _, depth in found} == {0, 0.25, 0.5, 0.75, 1}
    assert set(found.values()) == {1.0}
    assert whole(rows, "effective_length") == [2.0]


@with_places
def test_who_sees_the_end_alone_finds_what_stands_there(name: str) -> None:
    """Evidence further back than the window is lost, nearer is found: the map has an edge."""
    task = build(name)
    subject = subject_of(Solver(task, SOLVERS[name](task), WINDOWS[name]), task)
    rows = measure(subject, multiples=(1.0, 4.0), depths=9, samples=64)
    found, length = by_depth(rows), task.train_length
    assert all(value == 1 for (at, _), value in found.items() if at == length)
    assert found[4 * length, 1.0] == 1
    assert found[4 * length, 0.0] < 0.3
    assert whole(rows, "effective_length") == [1.0]


@with_places
def test_who_cannot_know_gets_chance_and_has_no_effective_length(name: str) -> None:
    task = build(name)
    solver = Solver(task, SOLVERS[name](task), window=0)  # a guess that reads nothing
    rows = [row for row in measure(subject_of(solver, task), samples=256, depths=3) if row.depth is None]
    for row in rows:
        if row.metric == "token_accuracy":
            assert abs(row.value - row.chance) <= 5 * (row.chance * (1 - row.chance) / row.n) ** 0.5
    assert whole(rows, "effective_length") == [0]


@pytest.mark.parametrize("name", ["passkey", "associative_recall"])
def test_without_order_the_place_of_the_evidence_changes_nothing(name: str) -> None:
    """No encoder and no causal mask: moving the evidence permutes the tokens, and the answer cannot change."""
    task = build(name, **({"num_fillers": 1} if name == "passkey" else {}))
    model = untrained(task, "none", causal=False)
    logits = answers(task, model)
    for other in logits[1:]:
        assert torch.allclose(other, logits[0], atol=1e-9)
    found = by_depth(measure(subject_of(model, task), multiples=(1.0,)))
    assert len(set(found.values())) == 1
    ordered = answers(task, untrained(task, "sinusoidal", causal=False))
    assert all((other - ordered[0]).abs().max() > 1e-3 for other in ordered[1:])


def answers(task: Task, model: Transformer) -> list[Tensor]:
    """Logits of the answers with the evidence at each place."""
    batches = [placed(task, place, causal=model.causal).batch for place in range(task.places(6))]
    with torch.no_grad():
        places = torch.arange(batches[0].tokens.shape[1]).double()
        return [model(batch.tokens, places)[:, batch.counted] for batch in batches]


def test_a_length_that_is_refused_is_a_row() -> None:
    task = build("associative_recall")
    rows = measure(subject_of(Solver(task, recall), task), multiples=(1.0, 16.0), depths=2, samples=2)
    assert [(row.eval_length, row.status) for row in rows if row.status != "ok"] == [(96, "unsupported")]
    assert whole(rows, "effective_length") == [1.0]
    beyond = measure(subject_of(Solver(task, recall), task), multiples=(2.0,), depths=2, samples=2)
    assert [row.status for row in beyond if row.metric == "effective_length"] == ["unsupported"]


# -------------------------------------------------------------------------------------------------------- report


def rows_of(name: str, encoder: str, window: int, seed: int = 0) -> list[Row]:
    task = build(name)
    subject = subject_of(Solver(task, SOLVERS[name](task), window), task)
    subject.labels.update(encoder=encoder, run_id=f"{encoder}{seed}", seed=seed)
    return measure(subject, multiples=(1.0, 2.0, 4.0), depths=3, samples=4)


def test_the_report_ranks_by_effective_length_and_maps_have_one_scale() -> None:
    lengths = {"rope": 30, "alibi": 10**6, "none": 1}
    rows = frame([row for encoder, window in lengths.items() for row in rows_of("associative_recall", encoder, window)])
    figures = report.plot(rows)
    assert set(figures) == {"associative_recall_by_depth", "associative_recall_effective_length"}
    ranking = figures["associative_recall_effective_length"]
    assert [text.get_text() for text in ranking.axes[0].get_yticklabels()] == ["alibi", "rope", "none"]
    maps = figures["associative_recall_by_depth"]
    panels = [axes for axes in maps.axes if axes.get_title(loc="left")]
    assert [axes.get_title(loc="left") for axes in panels] == ["alibi", "rope", "none"]
    assert len({axes.collections[0].get_clim() for axes in panels}) == 1
    for figure in figures.values():
        assert figure.caption
    cells = over_seeds(report.shown(rows), ["series", "head"]).set_index(["series", "head"])["mean"]
    assert cells["alibi", "effective length"] == 4
    assert cells["rope", "token accuracy, depth 0, 4×"] < 1 == cells["rope", "token accuracy, depth 1, 4×"]
    assert not math.isnan(cells["none", "token accuracy, 1×"])


def told(window: int, **knobs: Any) -> Any:
    """The answer about one model that sees the last tokens alone, by both measures of place."""
    task = build("needles", **knobs)
    subject = subject_of(Solver(task, after_key, window), task)
    rows = measure(subject, multiples=(0.5, 1.0, 4.0), samples=16) + place_bias(
        subject, places=8, samples=16, influenced=0
    )
    return answer_of(frame(rows))


def test_the_answer_about_one_model_says_how_far_back_it_finds() -> None:
    near = told(100)  # of 240 tokens
    assert near.known
    assert near.heading.startswith("x on needles: finds 100 % at 60 and ")
    assert near.heading.endswith(" at 240")
    assert "right, 3.8 % by guessing" in near.sentences[0]
    (far,) = (sentence for sentence in near.sentences if sentence.startswith("At 240"))
    back = int(re.search(r"nothing further back than about (\d+) tokens", far)[1])  # type: ignore[index]
    assert back == pytest.approx(100, abs=240 / 8)
    assert "At 60 it is not lost in the middle: ends and middle differ by 0 points." in near.sentences
    everywhere = told(10**6)
    assert everywhere.heading == "x on needles: finds 100 % at 60 and 100 % at 240"
    assert "At 240 it finds evidence at every depth (0 the beginning, 1 the end)." in everywhere.sentences


def test_no_place_is_told_of_a_model_that_finds_too_little_in_range() -> None:
    """Above guessing, yet far from half of the answers: neither a place nor an effective length means anything."""
    task = build("needles")
    sometimes = Solver(task, lambda tokens: torch.where(tokens.sum(1, keepdim=True) % 5 > 0, 0, after_key(tokens)))
    rows = measure(subject_of(sometimes, task), multiples=(1.0, 2.0), samples=64)
    share = whole(rows, "token_accuracy")[0]
    assert 0.1 < share < 0.4
    assert whole(rows, "effective_length") == [0]
    found = answer_of(frame(rows))
    assert found is not None
    assert not found.known
    assert "it finds too few needles at its own length" in found.heading
    assert f"({100 * share:.0f} %, guessing 3.8 %)" in found.heading
    assert "add task.num_needles=1 task.num_letters=1: the text then hides only one line" in found.sentences[0]
    assert answer_of(frame(row for row in rows if row.eval_length > row.train_length)) is None
    asked = answer_of(frame(replace(row, task="needles(num_needles=1, num_letters=1)") for row in rows))
    assert asked is not None
    assert "no easier question" in asked.sentences[0], "what was done already is no advice"
    assert "add task" not in asked.sentences[0]
    assert asked.sentences[0].endswith("decide by text (task=text)."), "what follows from that"


def test_one_row_has_no_stripe_that_looks_like_a_bar() -> None:
    for names, stripes in ((["a"], 0), (["a", "b", "c"], 2)):
        _, (axes,) = dots.panels("", "", names, [""])
        assert np.isfinite(axes.lines[0].get_ydata()).sum() == 2 * stripes


def test_a_run_has_its_rows_and_its_picture(command: Command, tmp_path: Any) -> None:
    words = ("model=tiny", "train.steps=2", "train.rounds=1", "retrieval.samples=2", "retrieval.multiples=[1,2]")
    done = command("task=passkey", "experiment=retrieval", *words)
    assert done.code == 0, done.err
    (run,) = (tmp_path / "results" / "scratch" / "runs").iterdir()
    assert [path.name for path in (run / "figures").glob("*retrieval*")] == ["retrieval_passkey_by_depth.png"]
    done = command("task=copy", "experiment=retrieval", *words, "name=other")
    assert done.code == 0, done.err
    (table,) = (tmp_path / "results" / "other" / "runs").glob("*/rows.csv")
    assert "retrieval,token_accuracy" in table.read_text()
    assert "unsupported" in table.read_text()
