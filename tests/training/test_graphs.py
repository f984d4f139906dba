"""A step recorded on a GPU and replayed takes the steps that it takes as it comes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

import pe_zoo
from experiments.model.precision import repeatable
from experiments.model.streams import initialising, stream
from experiments.model.transformer import Transformer
from experiments.tasks import Batch
from experiments.training import graphs
from experiments.training.config import TrainConfig
from experiments.training.graphs import WARM, Graphs, recorded
from experiments.training.step import Step
from pe_zoo import Geometry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GEOMETRY = Geometry(model_dim=32, num_heads=2, num_layers=2, train_length=32)
on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class Recording:
    """Stands in for a CUDA graph: what ran while it was recorded runs again when it is replayed."""

    def __init__(self) -> None:
        self.again: Callable[[], None] = lambda: None

    def replay(self) -> None:
        self.again()


@pytest.fixture
def summing(monkeypatch: pytest.MonkeyPatch) -> Graphs:
    """A running sum as a recorded function, on the CPU."""
    total, calls = torch.zeros(()), list[tuple[Tensor, ...]]()

    def add(x: Tensor, y: Tensor) -> Tensor:
        calls.append((x, y))
        return total.add_(x.sum() + y.sum())

    @contextmanager
    def record(graph: Recording, **_: Any) -> Iterator[None]:
        before = total.clone()
        yield
        total.copy_(before)  # what is recorded is not done
        held = calls[-1]

        def again() -> None:
            add(*held)

        graph.again = again

    monkeypatch.setattr(graphs.torch.cuda, "CUDAGraph", Recording)
    monkeypatch.setattr(graphs.torch.cuda, "graph", record)
    monkeypatch.setattr(graphs.torch.cuda, "graph_pool_handle", object)
    return Graphs(add)


def test_every_call_counts_once_with_its_own_numbers(summing: Graphs) -> None:
    expected, found = 0.0, []
    for i in range(WARM + 4):
        found.append(summing(torch.full((2,), float(i)), torch.ones(3)))
        expected += 2 * i + 3
        assert float(found[-1]) == expected
    assert float(found[-2]) < float(found[-1]), "what was returned before stays as it was"
    assert len(summing._known) == 1


def test_shapes_kinds_and_states_are_told_apart(summing: Graphs) -> None:
    for _ in range(WARM + 1):
        summing(torch.ones(2), torch.ones(3))
    assert len(summing._known) == 1
    for x, state in ((torch.ones(4), None), (torch.ones(2).double(), None), (torch.ones(2), True)):
        before = float(summing(x, torch.ones(3), state=state))
        for _ in range(WARM + 1):
            after = float(summing(x, torch.ones(3), state=state))
            assert after - before == x.numel() + 3
            before = after
    assert len(summing._known) == 4


def test_what_cannot_be_recorded_is_computed_as_it_comes(
    summing: Graphs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @contextmanager
    def refuse(graph: Recording, **_: Any) -> Iterator[None]:
        raise RuntimeError("operation not permitted when stream is capturing\nmore")
        yield

    monkeypatch.setattr(graphs.torch.cuda, "graph", refuse)
    with caplog.at_level("INFO", "pe_zoo.noted"):
        totals = [float(summing(torch.ones(2), torch.ones(1))) for _ in range(WARM + 3)]
    assert totals == [3.0 * (i + 1) for i in range(WARM + 3)]
    assert summing.refused == "operation not permitted when stream is capturing"
    assert len(caplog.messages) == 1
    assert summing.refused in caplog.messages[0]


def test_a_cpu_records_nothing() -> None:
    function = recorded(lambda x: 2 * x, "cpu")
    assert not isinstance(function, Graphs)
    assert float(function(torch.tensor(2.0), state=True)) == 4


def batch_of(step: int, device: str) -> tuple[Batch, Tensor]:
    length = (32, 20)[step % 2]
    tokens = torch.randint(32, (8, length + 1), generator=stream(0, f"batch {step}"))
    batch = Batch(tokens[:, :-1], tokens[:, 1:], torch.arange(length) > 1)
    return batch.to(torch.device(device)), torch.arange(length, dtype=torch.float32, device=device)


def step_of(encoder: str, device: str) -> Step:
    with initialising(0, "model"):
        model = Transformer(32, GEOMETRY, pe_zoo.build(encoder, GEOMETRY))
    return Step(model.to(device).train(), TrainConfig(steps=40, learning_rate=0.003, precision="float32"))


@on_a_gpu
@pytest.mark.parametrize("encoder", pe_zoo.names())
def test_a_recorded_step_is_the_step(encoder: str) -> None:
    with repeatable(1):
        losses = {}
        for name, device in (("cpu", "cpu"), ("as it comes", "cuda"), ("recorded", "cuda")):
            step = step_of(encoder, device)
            if name == "as it comes":
                step._computed = lambda *given, state=None, step=step: step._compute(*given)
            losses[name] = torch.stack([step(*batch_of(i, device)) for i in range(6 * WARM)]).cpu()
    torch.testing.assert_close(losses["recorded"], losses["as it comes"], atol=1e-5, rtol=0)
    torch.testing.assert_close(losses["as it comes"], losses["cpu"], atol=2e-3, rtol=0)
