"""Several seeds trained as one batched model: each as it is trained alone."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import pe_zoo
from experiments.model.streams import initialising, stream
from experiments.model.transformer import Transformer
from experiments.tasks import Batch
from experiments.training.config import TrainConfig
from experiments.training.stacked import StackedStep
from experiments.training.step import Step
from pe_zoo import Geometry

GEOMETRY = Geometry(model_dim=16, num_heads=2, num_layers=2, train_length=12)
CONFIG = TrainConfig(steps=8, learning_rate=0.01, precision="float32", gradient_clip=0.5)
SEEDS = (0, 1, 5)


@pytest.fixture(autouse=True)
def _fallbacks_may_be_slow() -> None:
    warnings.filterwarnings("ignore", message="There is a performance drop")


def model_of(encoder: str, seed: int) -> Transformer:
    with initialising(seed, "model"):
        return Transformer(9, GEOMETRY, pe_zoo.build(encoder, GEOMETRY)).double()


def batch_of(seed: int, step: int) -> Batch:
    length = (12, 5)[step % 2]
    tokens = torch.randint(9, (3, length + 1), generator=stream(seed, f"batch {step}"))
    return Batch(tokens[:, :-1], tokens[:, 1:], torch.arange(length) > 1)


def alone(encoder: str, seed: int, config: TrainConfig, steps: range, step: Step | None = None) -> tuple[Step, Tensor]:
    step = step or Step(model_of(encoder, seed).train(), config)
    return step, torch.stack([step(batch_of(seed, i)) for i in steps])


def together(steps: list[Step], seeds: tuple[int, ...], done: range) -> Tensor:
    stacked = StackedStep(steps)
    losses = []
    for i in done:
        batches = [batch_of(seed, i) for seed in seeds]
        places = [torch.arange(batch.tokens.shape[1], dtype=torch.float32) for batch in batches]
        losses.append(stacked(batches, places))
    stacked.distribute()
    return torch.stack(losses, 1)


@pytest.mark.parametrize("encoder", pe_zoo.names())
def test_a_seed_of_several_learns_what_it_learns_alone(encoder: str) -> None:
    expected = [alone(encoder, seed, CONFIG, range(3)) for seed in SEEDS]
    steps = [Step(model_of(encoder, seed).train(), CONFIG) for seed in SEEDS]
    losses = together(steps, SEEDS, range(3))
    for found, loss, (step, curve) in zip(steps, losses, expected, strict=True):
        torch.testing.assert_close(loss, curve, atol=1e-9, rtol=1e-9)
        for (name, ours), theirs in zip(found.model.named_parameters(), step.model.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-7, rtol=1e-7, msg=name)


def test_seeds_differ() -> None:
    steps = [Step(model_of("rope", seed).train(), CONFIG) for seed in SEEDS]
    losses = together(steps, SEEDS, range(2))
    assert len({round(float(loss), 6) for loss in losses[:, 1]}) == len(SEEDS)


@pytest.mark.parametrize("first_together", [True, False])
def test_a_seed_resumes_alone_from_a_stack_and_back(first_together: bool) -> None:
    expected, _ = alone("fire", 1, CONFIG, range(6))
    steps = [Step(model_of("fire", seed).train(), CONFIG) for seed in (0, 1)]
    if first_together:
        together(steps, (0, 1), range(3))
        alone("fire", 1, CONFIG, range(3, 6), steps[1])
    else:
        for seed, step in zip((0, 1), steps, strict=True):
            alone("fire", seed, CONFIG, range(3), step)
        together(steps, (0, 1), range(3, 6))
    assert steps[1].taken == expected.taken == 6
    assert steps[1].optimizer.param_groups[0]["lr"] == expected.optimizer.param_groups[0]["lr"]
    for ours, theirs in zip(steps[1].model.parameters(), expected.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-7, rtol=1e-7)


def test_clipping_and_divergence_stay_within_a_seed() -> None:
    steps = [Step(model_of("rope", seed).train(), replace(CONFIG, gradient_clip=1e-3)) for seed in SEEDS]
    with torch.no_grad():
        steps[1].model.unembedding.weight.fill_(float("nan"))
    losses = together(steps, SEEDS, range(3))
    assert losses[1].isnan().all()
    for index in (0, 2):
        expected = alone("rope", SEEDS[index], replace(CONFIG, gradient_clip=1e-3), range(3))[1]
        torch.testing.assert_close(losses[index], expected, atol=1e-9, rtol=1e-9)


def test_a_dropped_encoder_is_left_as_it_is() -> None:
    steps = [Step(model_of("t5", seed).train(), CONFIG) for seed in (0, 1)]
    before = steps[0].model.encoder.state_dict()
    before = {name: value.clone() for name, value in before.items()}
    for step in steps:
        step.model.drop_encoder()
    together(steps, (0, 1), range(2))
    for name, value in steps[0].model.encoder.state_dict().items():
        assert torch.equal(value, before[name])
