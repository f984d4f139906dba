"""place_bias: accuracy and influence by place, against models whose bias is known."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from measures.test_retrieval import SOLVERS, Solver, build, by_depth, recall, subject_of, untrained, whole, with_places
from support import Command
from torch import Tensor

from experiments import Transformer
from experiments.measures.place_bias import report
from experiments.measures.place_bias.influence import profile
from experiments.measures.place_bias.measure import ends_and_middle, measure, pairs
from experiments.rows.row import Row, frame
from experiments.statistics.intervals import over_seeds
from experiments.tasks import tasks


def measured(model: torch.nn.Module, task: Any, **knobs: Any) -> list[Row]:
    return measure(subject_of(model, task), **{"samples": 64, "influenced": 0, **knobs})


def at_place(place: int) -> Any:
    """Answer every query with the value of the pair at a place."""
    return lambda tokens: tokens[:, 2 + 2 * place].unsqueeze(1).expand(tokens.shape)


# ----------------------------------------------------------------------------------------------------- accuracy


@pytest.mark.parametrize("count", range(1, 40))
@pytest.mark.parametrize("most", [1, 2, 3, 8, 16, 100])
def test_places_have_partners_half_away_and_include_both_ends(count: int, most: int) -> None:
    partner, middle = pairs(count, most)
    assert all(partner[other] == place and abs(other - place) == count - count // 2 for place, other in partner.items())
    chosen = {*partner, *middle}
    assert chosen <= set(range(count))
    assert len(chosen) == len(partner) + len(middle) <= max(most, 2 + count % 2)
    assert most < 4 or count < 4 or {0, count - 1} <= chosen
    assert most < count or chosen == set(range(count))


def test_the_index_of_values_worked_by_hand() -> None:
    found = ends_and_middle({0.0: 1.0, 0.25: 0.5, 0.5: 0.1, 0.75: 0.4, 1.0: 0.6})
    assert found == pytest.approx((0.625 - 0.1, -0.25))
    assert ends_and_middle({0.0: 1.0, 1.0: 1.0}) is None


@with_places
def test_a_solver_by_hand_has_no_bias(name: str) -> None:
    task = build(name)
    rows = measured(Solver(task, SOLVERS[name](task)), task)
    assert set(by_depth(rows).values()) == {1.0}
    assert (whole(rows, "u_index"), whole(rows, "recency")) == ([0], [0])
    if name != "passkey":
        assert set(by_depth(rows, "content_followed").values()) == {1.0}
        assert set(by_depth(rows, "place_followed").values()) == {0.0}
    else:
        followed = [row.status for row in rows if row.metric in ("content_followed", "place_followed")]
        assert followed == ["unsupported"] * 2


def test_who_reads_a_place_follows_it_and_not_the_content() -> None:
    task: Any = build("associative_recall", num_values=1000)
    rows = measured(Solver(task, at_place(0)), task)
    accuracy, followed = by_depth(rows), by_depth(rows, "place_followed")
    assert accuracy[6, 0.0] == followed[6, 0.0] == 1
    assert all(value < 0.1 for found in (accuracy, followed) for (_, depth), value in found.items() if depth)
    assert set(by_depth(rows, "content_followed").values()) <= {0.0}
    (u_index,), (recency,) = whole(rows, "u_index"), whole(rows, "recency")
    assert u_index == pytest.approx(0.25, abs=0.03)  # of the first quarter two places, one of them found
    assert recency == pytest.approx(-0.5, abs=0.03)


def test_who_is_lost_in_the_middle_has_a_high_index() -> None:
    task: Any = build("associative_recall", train_length=9)

    def ends(tokens: Tensor) -> Tensor:
        lost = tokens.clone()
        lost[:, 7:13] = task.num_keys  # the middle three of nine pairs
        return recall(lost)

    rows = measured(Solver(task, ends), task)
    assert whole(rows, "u_index")[0] > 0.9
    assert abs(whole(rows, "recency")[0]) < 0.05


def test_without_order_accuracy_is_flat_exactly() -> None:
    task = build("associative_recall")
    rows = measured(untrained(task, "none", causal=False), task, influenced=2)
    assert len(set(by_depth(rows).values())) == 1
    assert (whole(rows, "u_index"), whole(rows, "recency")) == ([0], [0])


# ---------------------------------------------------------------------------------------------------- influence


def influence(name: str, *, causal: bool, layers: int = 2, length: int = 12) -> Tensor:
    """The profile of an untrained model in a text of one repeated token."""
    task = tasks.build("copy", train_length=length)
    model = untrained(task, name, causal=causal)
    del model.layers[layers:]
    tokens = torch.full((2, length), 3)
    directions = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
    return profile(model, tokens, torch.arange(length).double(), directions)


def test_influence_without_order_is_flat_exactly() -> None:
    """Every token but the last, which has a residual stream of its own, counts the same."""
    found = influence("none", causal=False)[:-1]
    assert torch.allclose(found, found[:1].expand(len(found)), rtol=1e-9)
    assert found[0] > 0
    ordered = influence("sinusoidal", causal=False)[:-1]
    assert (ordered / ordered.mean() - 1).abs().max() > 0.05


def test_a_causal_mask_alone_favours_the_beginning_once_layers_are_stacked() -> None:
    """Wu et al. 2025: one layer of uniform attention is flat; in several, early tokens reach the output more ways."""
    one = influence("none", causal=True, layers=1)[:-1]
    assert torch.allclose(one, one[:1].expand(len(one)), rtol=1e-9)
    two = influence("none", causal=True)[:-1]
    assert (two.diff() < 0).all()


def test_decay_by_distance_favours_the_end() -> None:
    found = influence("alibi", causal=True)
    assert found[-4:].sum() > found[:4].sum()


def test_influence_is_that_of_finite_differences() -> None:
    task = tasks.build("copy", train_length=4)
    model: Transformer = untrained(task, "rope", causal=True)
    tokens, positions = torch.tensor([[3, 1, 4, 1, 5]]), torch.arange(5).double()
    direction = torch.randn(1, 16, generator=torch.Generator().manual_seed(1)).double()
    weight, step = model.token_embedding.weight, 1e-5
    with torch.no_grad():
        found = []
        for dimension in range(16):
            outputs = []
            for sign in (1, -1):
                weight[4, dimension] += sign * step  # token 4 stands at one place
                outputs.append(model.norm(model.hidden(tokens, positions)[-1])[0, -1] @ direction[0])
                weight[4, dimension] -= sign * step
            found.append((outputs[0] - outputs[1]) / (2 * step))
    assert profile(model, tokens, positions, direction)[2].item() == pytest.approx(torch.stack(found).norm().item())


def test_any_task_has_an_influence() -> None:
    task = tasks.build("copy", train_length=40)
    rows = measured(untrained(task, "rope", causal=True).float(), task, influenced=3)
    assert [(row.metric, row.status) for row in rows[:1]] == [("u_index", "unsupported")]
    found = [row for row in rows if row.metric == "influence"]
    assert [(row.position, row.size) for row in found] == [(1 + 2 * at, 2) for at in range(20)]
    assert sum(row.value for row in found) == pytest.approx(20, rel=1e-5), "times the mean"
    assert len(whole(rows, "influence_u_index")) == 1


# ------------------------------------------------------------------------------------------------------- report


def test_the_report_says_who_is_lost() -> None:
    task, rows = build("associative_recall"), list[Row]()
    for encoder, solve in {"rope": recall, "alibi": at_place(5)}.items():
        subject = subject_of(Solver(task, solve), task)
        subject.labels.update(encoder=encoder, run_id=encoder)
        rows += measure(subject, influenced=0)
    figures = report.plot(frame(rows))
    assert set(figures) == {"associative_recall_by_place", "associative_recall_u_index"}
    assert figures["associative_recall_by_place"].title == "associative_recall: alibi is lost in the middle"
    one = report.plot(frame(row for row in rows if row.encoder == "rope"))["associative_recall_by_place"]
    assert one.title == "associative_recall: rope is not lost in the middle"
    alone = report.plot(
        frame(measured(untrained(tasks.build("copy"), "rope", causal=True).float(), tasks.build("copy"), influenced=2))
    )
    assert alone["copy_by_place"].title == "copy: influence of each place"
    assert [axes.get_title(loc="left") for axes in alone["copy_by_place"].axes] == ["influence"]
    cells = over_seeds(report.shown(frame(rows)), ["series", "head"]).set_index(["series", "head"])["mean"]
    assert cells["rope", "content followed"] == 1
    assert cells["rope", "U index"] == 0 < cells["alibi", "U index"]


def test_a_run_has_its_rows_and_its_pictures(command: Command, tmp_path: Any) -> None:
    words = ("model=tiny", "train.steps=2", "train.rounds=1", "place_bias.samples=2", "place_bias.influenced=2")
    done = command("task=passkey", "experiment=place_bias", *words)
    assert done.code == 0, done.err
    (run,) = (tmp_path / "results" / "scratch" / "runs").iterdir()
    names = {path.name for path in (run / "figures").glob("place_bias*")}
    assert names == {"place_bias_passkey_by_place.png", "place_bias_passkey_u_index.png"}
    text = (run / "rows.csv").read_text()
    for metric in ("initial_influence", "influence_u_index", "initial_influence_recency", "u_index"):
        assert f"place_bias,{metric}," in text
